"""CIFAR-10: 50,000 + 10,000 colour images of 32 x 32 pixels in 10 classes (Krizhevsky, 2009)."""

from functools import partial

from rbnn.data import _cifar

CIFAR10 = _cifar.Cifar(
    name="cifar10",
    batches={"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    pictures={"train": 10_000, "test": 10_000},
    label_keys=("labels",),
    label_counts=(10,),
    binary="cifar-10-batches-bin",
    pickles="cifar-10-batches-py",
    archives={
        "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    },
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    sha1={
        "data_batch_1": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "data_batch_2": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "data_batch_3": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "data_batch_4": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "data_batch_5": "26e2849e66a845b7f1e4614ae70f4889ae604628",
        "test_batch": "67eb016db431130d61cd03c7ad570b013799c88c",
    },
)

load = partial(_cifar.load, CIFAR10)
obtain = partial(_cifar.obtain, CIFAR10)
