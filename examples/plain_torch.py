"""Your own training loop, with gradient clipping and accumulation.

python examples/plain_torch.py
"""

import torch
import torch.nn.functional as F
from digits_cnn import DigitsCNN, loader, options, pack

import rbnn

ACCUMULATED = 2
"""Batches whose gradients are accumulated before a step."""

given = options()
torch.manual_seed(0)
model = DigitsCNN()
print(rbnn.binarize_(model, given.method))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, given.epochs)
schedule = rbnn.BinarySchedule(model, optimizer, given.epochs)

batches = loader(train=True, batch_size=32)
for epoch in range(given.epochs):
    schedule.step(epoch)
    total = 0.0
    for step, (images, labels) in enumerate(batches):
        loss = F.cross_entropy(model(images), labels) + rbnn.penalty(model)
        (loss / ACCUMULATED).backward()
        if (step + 1) % ACCUMULATED == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        total += float(loss.detach())
    cosine.step()
    print(f"epoch {epoch + 1}: loss {total / len(batches):.3f}")

pack(model, given.out)
