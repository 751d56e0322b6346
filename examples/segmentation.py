"""Segmentation: a U-Net with a 1-bit body classifies each pixel, compared with its float twin.

    python examples/segmentation.py                                     # digits on noise: about a minute, no download
    python examples/segmentation.py --data cifar10 --data-dir data --scenes 300 --epochs 10

The scenes are synthetic: cut-outs of images, each of one class, at random positions and in random sizes on a background
of noise.  The label of a pixel is the class of the cut-out that covers it, or background.  Digits have ten classes, and
their strokes are cut out.  Images of CIFAR-10 are animals or vehicles, and an ellipse is cut out of them, so a pixel
next to the animal, but inside the ellipse, also counts as the animal.  Networks learn from scenes of training images
and are tested on scenes of test images.

It writes to --out: unet.rbnn, the packed network; scene.png, an image for `rbnn predict unet.rbnn scene.png`; and
figure.png with scenes, their labels, and the outputs of both networks.
"""

import argparse
import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import rbnn
from rbnn.bench.race import race
from rbnn.data.preprocess import normalise, resize

SIDE = {"digits": 32, "cifar10": 64}
"""Side of a scene in pixels."""
CUT_OUTS = {"digits": (9, 18), "cifar10": (20, 40)}
"""The smallest and the largest side of a cut-out."""
VEHICLES = ("airplane", "automobile", "ship", "truck")
"""The vehicles of CIFAR-10; its other classes are animals.  Distinguishing all ten would take too long for an
example."""
MOST_CUT_OUTS = 4
TEST_SCENES = 100
BATCH = 16
SECONDS = 0.3
"""Seconds of timing for each network."""


class Scenes:
    """Scenes from one split of a data set."""

    def __init__(self, name: str, directory: Path | None, split: rbnn.data.Split) -> None:
        found = rbnn.data.load(name, directory, split)
        assert isinstance(found, rbnn.data.ImageSet)
        self.pictures, self.side, self.sizes = found, SIDE[name], CUT_OUTS[name]
        names = found.classes
        if name == "cifar10":
            names = tuple("vehicle" if each in VEHICLES else "animal" for each in names)
        self.classes = ("background", *dict.fromkeys(names))
        self.labels = np.array([self.classes.index(names[label]) for label in found.labels])
        """The labels of the images, as indices into ``classes``."""

    def __call__(self, count: int, random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images (N, H, W, C) and the class of each pixel (N, H, W)."""
        pictures = np.stack([self.background(random) for _ in range(count)])
        labels = np.zeros(pictures.shape[:3], np.int64)
        for picture, label in zip(pictures, labels, strict=True):
            for _ in range(random.integers(1, MOST_CUT_OUTS + 1)):
                self.paste(picture, label, random)
        return pictures, labels

    def background(self, random: np.random.Generator) -> NDArray[np.uint8]:
        """A few large blobs of colour, and noise."""
        channels = self.pictures.channels
        blots = resize(random.integers(0, 160, (4, 4, channels), np.uint8), self.side, self.side)
        return blots + random.integers(0, 96, (self.side, self.side, channels), np.uint8)

    def paste(self, picture: NDArray[np.uint8], label: NDArray[np.int64], random: np.random.Generator) -> None:
        one = random.integers(len(self.pictures))
        height, width = random.integers(*self.sizes, 2, endpoint=True)
        top, left = random.integers(0, self.side - height + 1), random.integers(0, self.side - width + 1)
        cut_out = resize(self.pictures.images[one], height, width)
        if self.pictures.channels == 1:
            mask = cut_out[..., 0] > 96  # the strokes
        else:
            y, x = np.ogrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
            mask = y * y + x * x <= 1
        place = slice(top, top + height), slice(left, left + width)
        picture[place][mask] = cut_out[mask]
        label[place][mask] = self.labels[one]

    def tensors(self, count: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        pictures, labels = self(count, random)
        return self.normalised(pictures), torch.from_numpy(labels)

    def normalised(self, pictures: NDArray[np.uint8]) -> Tensor:
        return torch.from_numpy(normalise(pictures, self.pictures.mean, self.pictures.std))


class Normed(nn.Sequential):
    """Convolution and batch norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """A convolution and a shortcut around it, which passes full-precision values on."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = Normed(inputs, outputs, 3)

    def forward(self, x: Tensor, shortcut: Tensor) -> Tensor:
        return F.hardtanh(self.conv(x) + shortcut)


class Level(nn.Module):
    """The part below a level of the U: half its size, twice its channels, and the levels below that."""

    def __init__(self, channels: int, levels: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.widen, self.down = Block(channels, 2 * channels), Block(2 * channels, 2 * channels)
        self.below = Level(2 * channels, levels - 1) if levels > 1 else nn.Identity()
        self.narrow, self.enlarge = Normed(2 * channels, channels, 1), nn.Upsample(scale_factor=2)
        self.up = Block(2 * channels, channels)

    def forward(self, skip: Tensor) -> Tensor:
        x = self.pool(skip)
        x = self.widen(x, torch.cat([x, x], 1))
        x = self.below(self.down(x, x))
        return self.up(torch.cat([self.enlarge(self.narrow(x)), skip], 1), skip)


class UNet(nn.Module):
    """An ordinary torch network that knows nothing about bits."""

    def __init__(self, inputs: int, classes: int, channels: int, levels: int = 3) -> None:
        super().__init__()
        self.first = Normed(inputs, channels, 3)
        self.below = Level(channels, levels)
        self.last = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.below(F.hardtanh(self.first(x))))


def train(model: nn.Module, scenes: Scenes, count: int, epochs: int, seed: int, float_twin: bool) -> None:
    """Train on ``count`` new scenes in every epoch."""
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    steps = -(-count // BATCH)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs, float_twin=float_twin)  # then it does nothing
    random = np.random.default_rng(seed)
    model.train()
    for epoch in range(epochs):
        schedule.step(epoch)
        total = 0.0
        for _ in range(steps):
            images, labels = scenes.tensors(BATCH, random)
            loss = F.cross_entropy(model(images), labels) + rbnn.penalty(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cosine.step()
            total += float(loss.detach())
        print(f"epoch {epoch + 1}: loss {total / steps:.3f}", flush=True)


def scores(seen: Tensor, labels: Tensor, classes: int) -> str:
    """The fraction of correct pixels, and the mean intersection over union of the classes."""
    pairs = torch.bincount((labels * classes + seen).flatten(), minlength=classes**2).reshape(classes, classes)
    right = pairs.diagonal()
    union = pairs.sum(0) + pairs.sum(1) - right
    pixels, mean_iou = right.sum() / pairs.sum(), (right / union).mean()
    return f"{100 * float(pixels):.2f} % of pixels right, mean IoU {100 * float(mean_iou):.2f} %"


@torch.no_grad()
def seen_by(network: nn.Module | rbnn.Session, images: Tensor) -> Tensor:
    """The class of each pixel."""
    parts = images.split(BATCH)
    if isinstance(network, rbnn.Session):
        return torch.cat([torch.from_numpy(network(some.numpy()).argmax(1)) for some in parts])
    return torch.cat([network(some).argmax(1) for some in parts])


def folded(model: nn.Module) -> nn.Module:
    """A copy with the batch norms folded into the weights, as in an engine."""
    model = copy.deepcopy(model)
    for part in list(model.modules()):
        if isinstance(part, Normed):
            part[0], part[1] = fuse_conv_bn_eval(part[0], part[1]), nn.Identity()
    return model


@torch.inference_mode()
def print_speed(twin: nn.Module, session: rbnn.Session, image: Tensor) -> None:
    """Time one scene on one thread: the minimum of many calls, taken in turns; torch uses its faster memory format."""
    torch.set_num_threads(1)
    pixels = image.numpy()
    calls: dict[str, Callable[[], object]] = {"1-bit": lambda: session(pixels)}
    for layout in (torch.contiguous_format, torch.channels_last):
        network, scene = folded(twin).to(memory_format=layout), image.contiguous(memory_format=layout)
        calls[str(layout)] = lambda network=network, scene=scene: network(scene)
    times = race(calls, SECONDS)
    ours = times.pop("1-bit").best
    theirs = min(each.best for each in times.values())
    print(f"one scene on one thread: 1-bit {1e3 * ours:.2f} ms, float twin in torch {1e3 * theirs:.2f} ms, ", end="")
    print(f"{theirs / ours:.1f} times as long")


def draw(path: Path, scenes: Scenes, columns: dict[str, NDArray[np.generic]]) -> None:
    """A row for each scene: the image, then maps of classes."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    colours = ListedColormap(["black", *colormaps["tab10"].colors][: len(scenes.classes)])
    rows = len(next(iter(columns.values())))
    figure = Figure((1.7 * len(columns), 1.7 * rows + 0.6), layout="constrained")
    for axes, (name, shown) in zip(figure.subplots(rows, len(columns), squeeze=False).T, columns.items(), strict=True):
        axes[0].set_title(name, fontsize=9)
        for axis, one in zip(axes, shown, strict=True):
            axis.imshow(one, colours, vmin=0, vmax=len(scenes.classes) - 1, interpolation="nearest")
            axis.set_axis_off()
    patches = [Patch(facecolor=colours(i), label=name) for i, name in enumerate(scenes.classes)]
    figure.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=SIDE, default="digits", help="source of the cut-outs (default: digits)")
    parser.add_argument("--data-dir", type=Path, help="the directory given to `rbnn data cifar10 --dir`")
    parser.add_argument("--scenes", type=int, default=800, help="scenes per epoch")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of training (default: 8)")
    parser.add_argument("--channels", type=int, default=32, help="channels of the top level")
    methods = [name for name in rbnn.methods.method_names() if name != "float"]
    parser.add_argument("--method", choices=methods, default="rbnn", help="binarization method (default: rbnn)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and scenes (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("segmentation"), help="directory (default: segmentation)")
    options = parser.parse_args()
    if min(options.scenes, options.epochs, options.channels) < 1:
        parser.error("--scenes, --epochs and --channels must be at least 1")

    scenes, tests = (Scenes(options.data, options.data_dir, split) for split in ("train", "test"))
    pictures, labels = tests(TEST_SCENES, np.random.default_rng(options.seed + 1))
    images, truth = tests.normalised(pictures), torch.from_numpy(labels)

    networks: dict[str, nn.Module] = {}
    for method in ("float", options.method):
        torch.manual_seed(options.seed)
        networks[method] = model = UNet(images.shape[1], len(tests.classes), options.channels)
        if method != "float":
            print(rbnn.binarize_(model, method))
        train(model, scenes, options.scenes, options.epochs, options.seed, float_twin=method == "float")
        model.eval()

    options.out.mkdir(parents=True, exist_ok=True)
    packed = options.out / "unet.rbnn"
    print(rbnn.export(model, packed, images[:BATCH], tests.pictures.mean, tests.pictures.std, tests.classes))
    session = rbnn.Session(packed)
    seen = {
        "float twin": seen_by(networks["float"], images), "1-bit, torch": seen_by(model, images),
        "1-bit, packed": seen_by(session, images),
    }  # fmt: skip
    for name, classes in seen.items():
        print(f"{name}: {scores(classes, truth, len(tests.classes))}")
    equal = seen["1-bit, torch"] == seen["1-bit, packed"]
    print(f"torch and packed: {int(equal.sum()):,} of {equal.numel():,} pixels equal")
    print_speed(networks["float"], session, images[:1])

    Image.fromarray(pictures[0].squeeze()).save(options.out / "scene.png")
    colours = pictures.repeat(3 // pictures.shape[3], 3)
    shown = {"picture": colours, "labels": labels, "1-bit": seen["1-bit, packed"], "float": seen["float twin"]}
    draw(options.out / "figure.png", tests, {name: np.asarray(each[:4]) for name, each in shown.items()})


if __name__ == "__main__":
    try:
        main()
    except rbnn.RbnnError as error:
        raise SystemExit(f"segmentation.py: {error}") from None
