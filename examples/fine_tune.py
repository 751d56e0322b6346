"""Train a pretrained network on your own classes.

    python examples/fine_tune.py PICTURES NET.rbnn

PICTURES contains train/<class>/*.jpg and val/<class>/*.jpg, with a folder for each class.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import rbnn
from rbnn.data.preprocess import normalise, picture

START, EPOCHS, BATCH = "resnet20-bireal-cifar10", 10, 32
if len(sys.argv) != 3:
    sys.exit("usage: python fine_tune.py PICTURES NET.rbnn")
folder, net = Path(sys.argv[1]), Path(sys.argv[2])

known = rbnn.load(START).graph.input  # how its images are normalised
try:
    mine = rbnn.data.load("image-folder", folder, "train")
except rbnn.RbnnError as error:
    sys.exit(f"fine_tune.py: {error}")
images = torch.from_numpy(normalise(np.stack([picture(p, 32, 3) for p in mine.paths]), known.mean, known.std))
labels = torch.from_numpy(mine.labels)

model = rbnn.create_model(START, pretrained=True, num_classes=len(mine.classes))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = rbnn.BinarySchedule(model, optimizer, EPOCHS)
for epoch in range(EPOCHS):
    schedule.step(epoch)
    for some in torch.randperm(len(images))[: len(images) // BATCH * BATCH].split(BATCH):
        optimizer.zero_grad()
        (cross_entropy(model(images[some]), labels[some]) + rbnn.penalty(model)).backward()
        optimizer.step()

print(rbnn.export(model, net, images[:8], known.mean, known.std, mine.classes))
tests = rbnn.data.load("image-folder", folder, "test")
seen = rbnn.load(net).predict(list(tests.paths))
right = [each.index == label for each, label in zip(seen, tests.labels, strict=True)]
print(f"{sum(right)} of {len(right)} pictures that it has never seen are right")
