"""`torchrun sharded_ranks.py FOLDER`: train a small network with every method, whole and sharded by FSDP, on the same
images, and write both states to FOLDER."""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

import rbnn
from rbnn.methods import method_names
from rbnn.nn import show_example


def network(method: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.Hardtanh(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 9), nn.BatchNorm1d(9), nn.Linear(9, 4),
    )  # fmt: skip
    rbnn.binarize_(model, method)
    show_example(model, torch.zeros(2, 3, 8, 8))
    return model


def train(model: nn.Module, images: Tensor, labels: Tensor) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs=2)
    losses = []
    for epoch in range(2):
        schedule.step(epoch)
        for _ in range(2):
            loss = F.cross_entropy(model(images), labels) + rbnn.penalty(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    return losses


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    images, labels = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4
    found: dict[str, Any] = {}
    for method in method_names():
        if method == "float":
            continue
        whole, cut = network(method), network(method)
        for part in cut:
            if isinstance(part, rbnn.BinaryConv2d):
                fully_shard(part)
        fully_shard(cut)
        losses = train(whole, images, labels), train(cut, images, labels)
        state = get_model_state_dict(cut, options=StateDictOptions(full_state_dict=True))
        found[method] = {"losses": losses, "whole": whole.state_dict(), "cut": state}
    if dist.get_rank() == 0:
        torch.save(found, folder / "found.pt")
    dist.barrier()  # nobody leaves while another process still needs it
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
