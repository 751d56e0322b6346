"""Binarization methods, one file each."""

from rbnn.methods._form import BinaryForm
from rbnn.methods._method import Method
from rbnn.methods._registry import (
    METHODS,
    against_paper,
    check_method,
    create_method,
    differences,
    method_names,
    method_options,
    register_method,
)

# In this order `rbnn methods` lists them: ours, then by year.
from rbnn.methods.rbnn import RBNN  # isort: skip
from rbnn.methods.bnn import BNN  # isort: skip
from rbnn.methods.xnor_net import XNORNet  # isort: skip
from rbnn.methods.dorefa import DoReFa  # isort: skip
from rbnn.methods.lab import LAB  # isort: skip
from rbnn.methods.abc_net import ABCNet  # isort: skip
from rbnn.methods.bnn_plus import BNNPlus  # isort: skip
from rbnn.methods.bi_real import BiReal  # isort: skip
from rbnn.methods.xnor_plus_plus import XNORPlusPlus  # isort: skip
from rbnn.methods.dsq import DSQ  # isort: skip
from rbnn.methods.rad import RAD  # isort: skip
from rbnn.methods.ir_net import IRNet  # isort: skip

__all__ = [
    "BNN",
    "DSQ",
    "LAB",
    "METHODS",
    "RAD",
    "RBNN",
    "ABCNet",
    "BNNPlus",
    "BiReal",
    "BinaryForm",
    "DoReFa",
    "IRNet",
    "Method",
    "XNORNet",
    "XNORPlusPlus",
    "against_paper",
    "check_method",
    "create_method",
    "differences",
    "method_names",
    "method_options",
    "register_method",
]
