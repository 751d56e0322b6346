"""A network with one residual block, and a command line that knows it.

`python residual.py BACKEND rbnn-words…`; BACKEND is that of torch.compile.
"""

import sys
from functools import partial

import torch
from torch import nn

from rbnn.cli import main
from rbnn.models import MODELS
from rbnn.models._registry import Bricks, Entry
from rbnn.models._shortcuts import OptionA
from rbnn.models.cifar_resnet import BiRealBlock, CifarResNet


def residual(bricks: Bricks) -> nn.Module:
    layers = nn.Sequential(nn.Sequential(BiRealBlock(bricks, 8, 16, 2, OptionA(8, 16, 2))))
    return CifarResNet(bricks, layers, 8, 16, bricks.activation(8))


ENTRY = Entry(residual, 8)

if __name__ == "__main__":
    MODELS["residual"] = ENTRY
    torch.compile = partial(torch.compile, backend=sys.argv[1])
    sys.exit(main(sys.argv[2:]))
