"""torch.compile: train the compiled network, pack the original one.

The default backend, inductor, needs a C++ compiler; the others do not.

python examples/compiled.py
python examples/compiled.py --backend aot_eager
"""

import torch
import torch.nn.functional as F
from digits_cnn import DigitsCNN, loader, options, pack

import rbnn

given = options(backend="inductor")
torch.manual_seed(0)
model = DigitsCNN()
rbnn.binarize_(model, given.method)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
schedule = rbnn.BinarySchedule(model, optimizer, given.epochs)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, given.epochs)
compiled = torch.compile(model, backend=given.backend)

print("the first step waits for the compiler")
batches = loader(train=True)
for epoch in range(given.epochs):
    schedule.step(epoch)
    total = 0.0
    for images, labels in batches:
        loss = F.cross_entropy(compiled(images), labels) + rbnn.penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
    cosine.step()
    print(f"epoch {epoch + 1}: loss {total / len(batches):.3f}")

pack(model, given.out)
