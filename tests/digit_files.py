"""A data set of image files for image-folder."""

from pathlib import Path

from PIL import Image

from rbnn import data

CLASSES = "0", "1", "7"


def pictures(root: Path, train: int, val: int) -> Path:
    """Three classes of handwritten digits as image files."""
    for split, name, count in (("train", "train", train), ("test", "val", val)):
        digits = data.load("digits", None, split)
        for label in CLASSES:
            (root / name / label).mkdir(parents=True)
            chosen = [i for i, each in enumerate(digits.labels) if str(each) == label][:count]
            for index in chosen:
                picture = Image.fromarray(digits.images[index, :, :, 0]).resize((32, 32))
                picture.convert("RGB").save(root / name / label / f"{index}.png")
    return root
