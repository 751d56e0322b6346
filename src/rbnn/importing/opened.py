"""Opens a trained network for inference.  torch is needed only for checkpoints."""

from pathlib import Path

from rbnn.errors import CheckpointError
from rbnn.packed.find import find_net, is_packed
from rbnn.packed.graph import Graph
from rbnn.packed.session import Session


def load(net: str | Path, threads: int = 1, kernels: str | None = None) -> Session:
    """Load a trained network for inference: ``rbnn.load("resnet20-bireal-cifar10").predict("cat.jpg")``.

    ``net`` is the name of a pretrained network, a packed file (.rbnn), a run directory (its best epoch) or a
    checkpoint.  The last two need torch: they are packed in memory and compared with torch layer by layer, as
    `rbnn export` does.
    """
    path = find_trained(net)
    return Session(path if is_packed(path) else _packed(path), threads, kernels)


def find_trained(net: str | Path) -> Path:
    """The trained network ``net``, which must exist."""
    try:
        return find_net(Path(net))
    except CheckpointError:
        if _is_model(str(net)):
            raise CheckpointError(
                f"{net} is an untrained model, which rbnn.create_model builds: name a trained network instead, such as "
                "those that `rbnn models --pretrained` lists"
            ) from None
        raise


def _is_model(name: str) -> bool:
    try:
        from rbnn.models import model_names
    except ModuleNotFoundError:  # without torch
        return False
    return name in model_names()


def _packed(path: Path) -> Graph:
    try:
        import torch

        from rbnn.exporting import packed
        from rbnn.training.checkpoint import load_network
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"{path} is a checkpoint, which needs torch: pip install 'rbnn[train]'", name="torch"
        ) from None
    network = load_network(path)
    contract = network.contract
    shape = 2, contract.channels, contract.image_size, contract.image_size
    example = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return packed(network.model, example, contract.mean, contract.std, contract.classes).graph
