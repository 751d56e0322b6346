"""CIFAR-100: 50,000 + 10,000 colour images of 32 x 32 pixels in 100 classes (Krizhevsky, 2009)."""

from functools import partial

from rbnn.data import _cifar

CLASSES = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
    can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
    lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter
    palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road
    rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower
    sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
    willow_tree wolf woman worm
    """.split()  # noqa: SIM905 - a hundred quoted words would be harder to read
)

CIFAR100 = _cifar.Cifar(
    name="cifar100",
    batches={"train": ("train",), "test": ("test",)},
    pictures={"train": 50_000, "test": 10_000},
    label_keys=("coarse_labels", "fine_labels"),
    label_counts=(20, 100),
    binary="cifar-100-binary",
    pickles="cifar-100-python",
    archives={
        "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
        "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    },
    classes=CLASSES,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)

load = partial(_cifar.load, CIFAR100)
obtain = partial(_cifar.obtain, CIFAR100)
