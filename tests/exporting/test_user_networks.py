"""CNNs made of exportable operations: the packed file gives the same result as torch."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from user_networks import CHANNELS, HEIGHT, NETWORKS, WIDTH, Around

import rbnn
from rbnn.packed.session import Session


def random_norms(model: nn.Module) -> None:
    """Each batch norm has a gamma of 0, one of 1e-8 and many negative ones."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias, std=0.5)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.2, 4)
            with torch.no_grad():
                module.weight[:2] = torch.tensor([0.0, 1e-8])


def images(count: int) -> Tensor:
    return torch.randn(count, CHANNELS, HEIGHT, WIDTH)


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_file_answers_like_torch(tmp_path: Path, name: str) -> None:
    model, path = Around(NETWORKS[name]()).eval(), tmp_path / "net.rbnn"
    model(images(2))  # XNOR-Net++ needs one forward pass
    random_norms(model)
    report = rbnn.export(model, path, images(2))
    x = images(5)  # other images than those of the export
    with torch.no_grad():
        wanted = model(x).flatten(1)
    got = torch.from_numpy(Session(path)(x.numpy())).flatten(1)
    apart = (wanted - got).abs().amax(1) / wanted.abs().amax(1)
    # One flipped sign may change one image; in networks this small none does.
    assert float(apart.max()) < 1e-4, report
