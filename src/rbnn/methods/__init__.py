"""Binarization methods, one file each."""

from rbnn.methods._method import Method
from rbnn.methods._registry import (
    METHODS,
    check_method,
    create_method,
    method_names,
    method_options,
    register_method,
)
from rbnn.methods.rbnn import RBNN
from rbnn.methods.xnor_net import XNORNet

__all__ = [
    "METHODS",
    "RBNN",
    "Method",
    "XNORNet",
    "check_method",
    "create_method",
    "method_names",
    "method_options",
    "register_method",
]
