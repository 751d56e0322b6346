"""An exponential moving average of the weights: train the network, pack its average.

python examples/moving_average.py
"""

import torch
import torch.nn.functional as F
from digits_cnn import DigitsCNN, loader, options, pack
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import rbnn

given = options()
torch.manual_seed(0)
model = DigitsCNN()
rbnn.binarize_(model, given.method)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
schedule = rbnn.BinarySchedule(model, optimizer, given.epochs)
# Buffers too, because the running statistics of the batch norms belong to the averaged weights.
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95), use_buffers=True)

batches = loader(train=True)
for epoch in range(given.epochs):
    schedule.step(epoch)
    total = 0.0
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels) + rbnn.penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        total += float(loss.detach())
    print(f"epoch {epoch + 1}: loss {total / len(batches):.3f}")

pack(average.module, given.out)
