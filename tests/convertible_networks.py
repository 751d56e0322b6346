"""Networks that people might binarize."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sequential() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Hardtanh(),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Hardtanh(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.Hardtanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 24), nn.BatchNorm1d(24), nn.Hardtanh(), nn.Linear(24, 4),
    )  # fmt: skip


class Residual(nn.Module):
    """A user's block that uses its ReLU twice."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.1)
        self.middle = nn.Linear(channels, channels)
        self.fc = nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)) + x)
        return self.fc(self.middle(self.drop(self.pool(y).flatten(1))))  # type: ignore[no-any-return]


class Functional(nn.Module):
    """ReLUs as functions and methods; a depthwise and a grouped convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.conv3 = nn.Conv2d(16, 16, 1)
        self.conv4 = nn.Conv2d(16, 16, 3, padding=1, groups=2)
        self.narrow = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = torch.relu(self.depthwise(self.conv2(x)))
        x = self.conv3(F.dropout(x, 0.1, self.training)).relu()
        x = self.narrow(self.conv4(x))
        return self.fc(x.mean((2, 3)))  # type: ignore[no-any-return]


class Dynamic(nn.Module):
    """Its computation depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.relu, self.fc = nn.ReLU(), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        if x.mean() > 1e6:
            x = -x
        return self.fc(self.conv2(self.relu(x)).mean((2, 3)))  # type: ignore[no-any-return]


class Shared(nn.Module):
    """One convolution under two names, and a list that is not a ModuleList."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.twin = nn.Conv2d(16, 16, 3, padding=1)
        self.again = self.twin
        self.unregistered = [self.twin]
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.twin(self.conv1(x)))
        for layer in self.unregistered:
            x = layer(x)
        return self.fc(x.mean((2, 3)))  # type: ignore[no-any-return]


NETWORKS: list[Callable[[], nn.Module]] = [sequential, Residual, Functional, Dynamic, Shared]
