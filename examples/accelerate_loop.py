"""Hugging Face accelerate: the schedule gets the model and the optimizer that ``prepare`` returned.

python examples/accelerate_loop.py          # or: accelerate launch examples/accelerate_loop.py
"""

import torch
import torch.nn.functional as F
from digits_cnn import DigitsCNN, loader, options, pack

import rbnn

try:
    from accelerate import Accelerator
except ModuleNotFoundError as missing:
    raise SystemExit(f"this example needs {missing.name}: pip install 'rbnn[examples]'") from None

given = options()
torch.manual_seed(0)
accelerator = Accelerator()
model = DigitsCNN()
rbnn.binarize_(model, given.method)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
model, optimizer, batches = accelerator.prepare(model, optimizer, loader(train=True))
schedule = rbnn.BinarySchedule(model, optimizer, given.epochs)

for epoch in range(given.epochs):
    schedule.step(epoch)
    total = 0.0
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels) + rbnn.penalty(model)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += float(loss.detach())
    accelerator.print(f"epoch {epoch + 1}: loss {total / len(batches):.3f}")

if accelerator.is_main_process:
    pack(accelerator.unwrap_model(model).cpu(), given.out)
