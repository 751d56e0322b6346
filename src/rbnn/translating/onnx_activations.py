"""Activations in the operators of ONNX.  Those that opset 18 lacks are composed of others."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rbnn.packed.formulas import SELU_ALPHA, SELU_SCALE
from rbnn.translating.builder import Array

if TYPE_CHECKING:
    from rbnn.translating.onnx_nodes import Nodes

PLAIN = {
    "relu": "Relu", "sigmoid": "Sigmoid", "hardswish": "HardSwish", "abs": "Abs", "tanh": "Tanh", "mish": "Mish",
    "exp": "Exp",
}  # fmt: skip
LARGE = 20.0
"""From here on, ln(1 + eˣ) equals x in float32."""


def activation(nodes: "Nodes", x: str, name: str, numbers: Sequence[float], slope: Array | None) -> str:
    if name in PLAIN:
        return nodes.node(PLAIN[name], x)
    if name in ("hardtanh", "relu6"):
        return nodes.node("Clip", x, *map(nodes.number, numbers or (0.0, 6.0)))
    if name == "prelu":
        assert slope is not None
        return nodes.node("PRelu", x, nodes.constant(slope.reshape(-1, 1, 1), "slope"))
    if name in ("leaky_relu", "elu"):
        return nodes.node({"leaky_relu": "LeakyRelu", "elu": "Elu"}[name], x, alpha=float(numbers[0]))
    if name == "selu":
        return nodes.node("Selu", x, alpha=SELU_ALPHA, gamma=SELU_SCALE)
    if name == "hardsigmoid":
        return nodes.node("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    if name == "silu":
        return nodes.node("Mul", x, nodes.node("Sigmoid", x))
    if name == "softplus":
        return _softplus(nodes, x, *numbers)
    if name == "power":
        return nodes.node("Pow", x, nodes.number(numbers[0]))
    return {"gelu": _gelu, "gelu_tanh": _gelu_tanh}[name](nodes, x)


def _softplus(nodes: "Nodes", x: str, beta: float, threshold: float) -> str:
    """ln(1 + exp(beta·x))/beta; x above the threshold."""
    scaled = x if beta == 1 else nodes.node("Mul", x, nodes.number(beta))
    y = nodes.node("Softplus", scaled)
    if beta != 1:
        y = nodes.node("Div", y, nodes.number(beta))
    if threshold < LARGE:
        y = nodes.node("Where", nodes.node("Greater", scaled, nodes.number(threshold)), x, y)
    return y


def _gelu(nodes: "Nodes", x: str) -> str:
    """x/2·(1 + erf(x/√2))"""
    bent = nodes.node("Erf", nodes.node("Div", x, nodes.number(math.sqrt(2))))
    return _half(nodes, x, bent)


def _gelu_tanh(nodes: "Nodes", x: str) -> str:
    """x/2·(1 + tanh(√(2/π)·(x + 0.044715 x³)))"""
    cube = nodes.node("Mul", nodes.node("Mul", x, x), x)
    sum_of_both = nodes.node("Add", x, nodes.node("Mul", cube, nodes.number(0.044715)))
    return _half(nodes, x, nodes.node("Tanh", nodes.node("Mul", sum_of_both, nodes.number(math.sqrt(2 / math.pi)))))


def _half(nodes: "Nodes", x: str, bent: str) -> str:
    return nodes.node("Mul", nodes.node("Mul", x, nodes.node("Add", bent, nodes.number(1))), nodes.number(0.5))
