"""HTML reprs for notebooks: the facts, escaped."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

import rbnn
from rbnn import notebook
from rbnn.packed import file as packfile
from rbnn.packed import pretrained
from rbnn.packed.prediction import Prediction

DIGITS = "resnet20-bireal-digits"


def test_a_table_is_escaped() -> None:
    shown = notebook.table("<b>", [("<i>", 3)], ("&",))
    for word in ("&lt;b&gt;", "&lt;i&gt;", "&amp;", ">3<"):
        assert word in shown
    assert shown.count("<tr>") == 2


def test_a_session() -> None:
    with rbnn.Session(pretrained.path(DIGITS), kernels="portable") as session:
        shown = session._repr_html_()
        for fact in ("1×8×8", "18 binary and 2 float layers", "portable kernels, 1 thread", "0, 1, 2, 3, 6 more"):
            assert f">{fact}<" in shown
    assert ">closed<" in session._repr_html_()


def test_names_of_a_strangers_file_are_shown_not_run() -> None:
    graph = packfile.read(pretrained.path(DIGITS))
    classes = ("<script>alert(1)</script>", *graph.input.classes[1:])
    session = rbnn.Session(replace(graph, input=replace(graph.input, classes=classes)))
    for shown in (session._repr_html_(), Prediction(classes, np.eye(10)[0])._repr_html_()):
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown


def test_a_conversion() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(16, 10))
    shown = rbnn.binarize_(model)._repr_html_()
    assert "1 binary, 2 float layers" in shown
    assert shown.count("<tr>") == 4
    for word in (">binary<", ">first convolution<", ">last linear layer<"):
        assert word in shown


def test_a_notebook_is_told_from_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not notebook.inside()
    for name, found in (("ZMQInteractiveShell", True), ("TerminalInteractiveShell", False)):
        shell = type(name, (), {})()
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert notebook.inside() is found
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not notebook.inside()
