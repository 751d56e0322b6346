"""A run that starts from a trained network: what it takes over, and what begins anew."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from rbnn.errors import CheckpointError
from rbnn.nn import binary_layers
from rbnn.training.checkpoint import load_network


def start_from(model: nn.Module, path: Path, notice: Callable[[str], None]) -> set[str]:
    """Take over the weights and batch norms of a checkpoint of the same network.  Returns the binary layers that go on
    as they were.

    A layer of the same method goes on as it was, with its rotation, scales and β: its signs are those of the
    checkpoint.  A layer that was float, or of another method, starts its method from the weights that it takes over; so
    does, with a notice, one whose method has options that give it tensors of other shapes.
    """
    before = load_network(path).model
    weights, own = before.state_dict(), model.state_dict()
    for name, value in own.items():
        if ".method." in name:
            continue
        if name not in weights or weights[name].shape != value.shape:
            raise CheckpointError(f"cannot start from {path}: it has no {name} of shape {tuple(value.shape)}")
        own[name] = weights[name]
    model.load_state_dict(own)
    trained, continued, anew = dict(binary_layers(before)), set(), []
    for name, layer in binary_layers(model):
        layer.restart_method()
        if name not in trained:
            continue
        if layer.method.continue_from(trained[name].method):
            continued.add(name)
        elif type(layer.method) is type(trained[name].method):
            anew.append(name)
    if anew:
        notice(
            f"{len(anew)} layers, first {anew[0]}, have other options than in {path}, which their scales and rotations "
            "do not fit: these start anew from the weights, and most signs change"
        )
    return continued
