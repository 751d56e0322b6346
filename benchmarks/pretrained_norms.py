"""Write the batch statistics that fine-tuning a pretrained network needs: src/rbnn/pretrained/NAME.norms.

    python benchmarks/pretrained_norms.py resnet20-bireal-digits --data-dir data

The packed file is converted back into a torch network, which then processes its training images once, without
augmentation.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
import tyro
from safetensors.torch import save
from torch import Tensor

from rbnn import data
from rbnn.data import ImageSet
from rbnn.data.preprocess import normalise
from rbnn.files import write_whole
from rbnn.importing.packed import restore_
from rbnn.models import create_model
from rbnn.packed import file as packfile
from rbnn.packed import pretrained
from rbnn.training.statistics import get_statistics, refresh_statistics

AT_ONCE = 500


def main(name: tyro.conf.Positional[str], data_dir: Path = Path("data")) -> None:
    """Write src/rbnn/pretrained/NAME.norms: the mean and variance of each batch norm's input on the training images."""
    card, graph = pretrained.card(name), packfile.read(pretrained.path(name))
    size, _, channels = graph.buffers[graph.input.buffer].shape
    sizes = len(graph.input.classes), channels, size
    model = create_model(card.model, card.method, *sizes, **card.parts, **card.options)
    restore_(model, graph)
    trained_on = data.load(card.data, data_dir, "train")
    assert isinstance(trained_on, ImageSet), "a set in memory"

    def pictures() -> Iterator[Tensor]:
        for first in range(0, len(trained_on), AT_ONCE):
            some = trained_on.images[first : first + AT_ONCE]
            yield torch.from_numpy(normalise(some, graph.input.mean, graph.input.std))

    refresh_statistics(model, pictures())
    mean, variance = get_statistics(model)
    write_whole(pretrained.norms(name), lambda file: file.write(save({"mean": mean, "var": variance})))


if __name__ == "__main__":
    tyro.cli(main)
