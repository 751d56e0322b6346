"""The operators: the shapes that they declare are right, and torch.compile accepts them unchanged."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, library, nn
from torch._dynamo.testing import CompileCounterWithBackend

import rbnn
from rbnn.functional import kernels
from rbnn.functional.estimators import Tent
from rbnn.methods import METHODS
from rbnn.nn import show_example

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch.compile uses what torch deprecates
TENT = Tent(1.0, 0.5, 1.5).numbers()


def numbers(*shape: int, last: bool = True) -> Tensor:
    x = torch.randn(shape)
    return (x.to(memory_format=torch.channels_last) if last and len(shape) == 4 else x).requires_grad_()


JOINED = (
    numbers(2, 8, 5, 5), numbers(16, 8, 3, 3), numbers(16), None, numbers(16), numbers(16), numbers(2, 16, 3, 3),
)  # fmt: skip
SOFT = numbers(2, 8, 5, 5), numbers(8, 8, 3, 3).detach(), None, numbers(8, 8, 3, 3), numbers(8), numbers(8), None

CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sign": (kernels.tent_sign, (numbers(2, 8, 3, 3), TENT)),
    "sign of double": (kernels.tent_sign, (numbers(2, 5).detach().double().requires_grad_(), TENT)),
    "standardised sign": (kernels.standardised_tent_sign, (numbers(2, 8, 3, 3, last=False), TENT)),
    "add and hardtanh": (kernels.add_hardtanh, (numbers(2, 8, 3, 3), numbers(2, 8, 3, 3))),
    "add and hardtanh of two orders": (kernels.add_hardtanh, (numbers(2, 8, 3, 3), numbers(2, 8, 3, 3, last=False))),
    "norm, add and hardtanh": (
        kernels.norm_add_hardtanh,
        (numbers(2, 8, 3, 3), numbers(8), numbers(8), numbers(2, 8, 3, 3), 1e-5),
    ),
    "rotated weight": (
        kernels.rotated_weight,
        (numbers(8, 4, 3, 3), torch.eye(4), torch.eye(9), numbers(8), True),
    ),
    "signs of the rotated weight": (
        kernels.rotated_signs,
        (numbers(8, 4, 3, 3), torch.eye(4), torch.eye(9), numbers(8), True, TENT),
    ),
    "standardised weight": (kernels.rotated_weight, (numbers(8, 4), None, None, None, True)),
    "branch": (
        kernels.branch,
        (*JOINED, numbers(16), numbers(16), numbers(16), (2, 2), (1, 1), True, TENT, 1e-5),
    ),
    "branch with a soft weight": (kernels.branch, (*SOFT, None, None, None, (1, 1), (1, 1), False, TENT, 1e-5)),
    "convolution": (
        kernels.sign_conv,
        (numbers(2, 8, 5, 5), numbers(16, 8, 3, 3), numbers(16), None, (2, 1), (1, 0), True, TENT),
    ),
    "convolution with a soft weight": (
        kernels.sign_conv,
        (numbers(2, 8, 5, 5), numbers(8, 8, 3, 3).detach(), None, numbers(8, 8, 3, 3), (1, 1), (1, 1), False, TENT),
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_operator_keeps_what_it_promises(call: str) -> None:
    """Shapes, memory order and gradients pass torch's own check of operators."""
    operator, arguments = CALLS[call]
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor")
    assert library.opcheck(operator.overload, arguments, test_utils=utilities) == dict.fromkeys(utilities, "SUCCESS")


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardtanh(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.Flatten(),
        nn.Linear(128, 8), nn.BatchNorm1d(8), nn.Linear(8, 4),
    )  # fmt: skip
    rbnn.binarize_(model, name)
    show_example(model, torch.zeros(1, 3, 8, 8))
    return model


def losses(model: nn.Module, forward: Any, epochs: int, size: int, classes: int, steps: int = 2) -> list[float]:
    random = torch.Generator().manual_seed(1)
    images = torch.randn(8, 3, size, size, generator=random).to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (8,), generator=random)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs)
    found = []
    for epoch in range(epochs):
        schedule.step(epoch)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(images), labels) + rbnn.penalty(model)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize("name", METHODS)
def test_a_compiled_network_trains_as_one_that_is_not(name: str) -> None:
    """One graph serves every epoch, whatever the schedule changes."""
    torch._dynamo.reset()
    compiler = CompileCounterWithBackend("aot_eager")
    plain, compiled = network(name), network(name)
    expected = losses(plain, plain, epochs=3, size=8, classes=4)
    graph, graphs = torch.compile(compiled, backend=compiler, fullgraph=True), []

    def forward(images: Tensor) -> Tensor:
        logits: Tensor = graph(images)
        graphs.append(compiler.frame_count)
        return logits

    assert losses(compiled, forward, epochs=3, size=8, classes=4) == pytest.approx(expected, rel=1e-6)
    assert graphs == graphs[:1] * 6


@pytest.mark.parametrize(("backend", "epochs"), [("eager", 1), pytest.param("inductor", 3, marks=pytest.mark.long)])
def test_resnet_20_compiles_whole(backend: str, epochs: int) -> None:
    torch._dynamo.reset()
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = rbnn.create_model("resnet20", image_size=16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        forward = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
        found.append(losses(model, forward, epochs, size=16, classes=10))
    assert found[0] == pytest.approx(found[1], rel=1e-6 if backend == "eager" else 2e-2)
