"""Binarization methods, one file each."""

from ._method import Method
from ._registry import (
    METHODS,
    check_method,
    create_method,
    method_names,
    method_options,
    register_method,
)
from .rbnn import RBNN
from .xnor_net import XNORNet

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
