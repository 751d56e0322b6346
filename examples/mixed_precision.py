"""Automatic mixed precision: bfloat16 where torch supports it, binary layers in float32.

python examples/mixed_precision.py
"""

import torch
import torch.nn.functional as F
from digits_cnn import DigitsCNN, loader, options, pack

import rbnn

given = options()
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = DigitsCNN()
rbnn.binarize_(model, given.method)
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
schedule = rbnn.BinarySchedule(model, optimizer, given.epochs)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, given.epochs)

batches = loader(train=True)
for epoch in range(given.epochs):
    schedule.step(epoch)
    total = 0.0
    for images, labels in batches:
        with torch.autocast(device, torch.bfloat16):
            loss = F.cross_entropy(model(images.to(device)), labels.to(device)) + rbnn.penalty(model)
        optimizer.zero_grad()
        loss.backward()  # with float16, through torch.amp.GradScaler
        optimizer.step()
        total += float(loss.detach())
    cosine.step()
    print(f"epoch {epoch + 1}: loss {total / len(batches):.3f}")

pack(model.cpu(), given.out)
