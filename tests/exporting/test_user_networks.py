"""Any CNN made of the operations that export: the packed file answers like torch."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from user_networks import CHANNELS, HEIGHT, NETWORKS, WIDTH, Around

import rbnn
from rbnn.packed.session import Session


def random_norms(model: nn.Module) -> None:
    """A gamma of 0, one of 1e-8 and many negative ones in each batch norm."""
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
    model(images(2))  # XNOR-Net++ has to see a picture
    random_norms(model)
    report = rbnn.export(model, path, images(2))
    x = images(5)  # others than those of the export
    with torch.no_grad():
        wanted = model(x).flatten(1)
    got = torch.from_numpy(Session(path)(x.numpy())).flatten(1)
    apart = (wanted - got).abs().amax(1) / wanted.abs().amax(1)
    # One flipped sign is allowed to change one picture; in networks this small none does.
    assert float(apart.max()) < 1e-4, report
