"""Accuracy of a network on a data set."""

import torch
from torch import nn

from rbnn.nn import evaluation_mode
from rbnn.training.batches import Batches
from rbnn.training.distributed import Processes


@torch.no_grad()
def evaluate(model: nn.Module, batches: Batches, processes: Processes) -> dict[str, float]:
    """Top-1 and top-5 accuracy in percent and the mean loss.  The model's mode is restored afterwards."""
    count = hit1 = hit5 = 0.0
    loss = torch.zeros((), dtype=torch.float64)
    with evaluation_mode(model):
        for images, labels in batches.epoch(0):
            images, labels = images.to(processes.device), labels.to(processes.device)
            logits = model(images).float()
            loss += nn.functional.cross_entropy(logits, labels, reduction="sum").cpu().double()
            ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
            hit1 += float(ranked[:, 0].sum())
            hit5 += float(ranked.any(1).sum())
            count += len(labels)
    count, hit1, hit5, total = processes.sum([count, hit1, hit5, float(loss)])
    return {"top1": 100 * hit1 / count, "top5": 100 * hit5 / count, "loss": total / count}
