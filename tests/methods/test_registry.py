"""Methods by name: errors suggest the nearest name."""

from typing import Any

import pytest
import torch

from rbnn.errors import ConfigError, UnknownName
from rbnn.functional import as_tensor
from rbnn.methods import METHODS, Method, against_paper, check_method, create_method, method_names, method_options
from rbnn.methods.bnn import BNN

W = torch.randn(4, 8, 3, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"dorefa"}))  # its inputs are {0, 1}
def test_a_binarized_weight_is_signs_times_a_scale_per_filter(name: str) -> None:
    method = create_method(name, W)
    w, x = as_tensor(method.weight(W)), method.activation(W)
    assert w.shape == x.shape == W.shape
    for values in w.flatten(1):
        assert len(values.abs().unique()) == 1
    assert torch.equal(w > 0, method.signs(W) > 0)
    assert set(x.unique().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_survives_a_state_dict(name: str) -> None:
    method = create_method(name, W)
    method.begin_epoch(W, 3, 8)
    other = create_method(name, torch.randn_like(W))
    other.load_state_dict(method.state_dict())
    assert other.progress == 3 / 8
    assert torch.equal(as_tensor(other.weight(W)), as_tensor(method.weight(W)))


def test_names() -> None:
    known = "rbnn bnn xnor-net dorefa lab abc-net bnn+ bi-real xnor++ dsq rad ir-net float"
    assert method_names() == known.split()
    assert all(cls.__doc__ and "\n\n" in cls.__doc__ for cls in METHODS.values())
    assert method_options("float") == {}
    assert method_options("xnor-net") == {"gradient": "release", "k_map": False, "estimator": "ste"}
    assert method_options("rbnn")["cycles"] == 3
    assert all(issubclass(cls, Method) for cls in METHODS.values())


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("rbn", {}, UnknownName, "did you mean 'rbnn'"),
        ("xnornet", {}, UnknownName, "did you mean 'xnor-net'"),
        ("rbnn", {"cycle": 3}, UnknownName, "did you mean 'cycles'"),
        ("rbnn", {"cycles": 2.5}, ConfigError, "must be of type int"),
        ("rbnn", {"cycles": "3"}, ConfigError, "must be of type int"),
        ("rbnn", {"cycles": True}, ConfigError, "must be of type int"),
        ("rbnn", {"standardise": 1}, ConfigError, "must be of type bool"),
        ("rbnn", {"rotation": None}, ConfigError, "must be of type str"),
        ("rbnn", {"beta_start": "π"}, ConfigError, "must be of type float"),
        ("rbnn", {"beta_start": False}, ConfigError, "must be of type float"),
        ("xnor-net", {"cycles": 3}, UnknownName, "option 'cycles' of method 'xnor-net'"),
        ("dsq", {"cycles": 3}, ConfigError, "has no options"),
        ("float", {"cycles": 3}, ConfigError, "has no options"),
    ],
)
def test_wrong_names_and_options(name: str, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_method(name, options)
    with pytest.raises(error, match=words):
        create_method(name, W, **options)


def test_a_whole_number_is_a_float() -> None:
    check_method("rbnn", {"beta_start": 1, "rotate_until": 0})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rotation": "filters"}, "one of filter, layer, none"),
        ({"alpha": "weight"}, "one of filter, layer, none"),
        ({"estimator": "stee"}, "ste"),
        ({"rotation": "none"}, "set alpha = 'none'"),
        ({"rotation": "none", "alpha": "layer"}, "set alpha = 'none'"),
        ({"cycles": 0}, "cycles ≥ 1"),
        ({"rotate_until": 1.5}, "rotate_until ≤ 1"),
        ({"rotate_until": -0.1}, "rotate_until ≤ 1"),
        ({"t_max": float("nan")}, "between -2 and 10, got nan"),
        ({"t_max": -3.0}, "between -2 and 10"),
        ({"beta_start": float("nan")}, "between -3.14159 and 3.14159, got nan"),
        ({"beta_decay": -1.0}, "between 0 and inf"),
    ],
)
def test_options_of_rbnn_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create_method("rbnn", W, **options)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("bnn", {"estimator": "stee"}, "'estimator' of method 'bnn' must be one of identity, ste"),
        ("bnn", {"weight_estimator": "tanh"}, "'weight_estimator' of method 'bnn'"),
        ("xnor-net", {"gradient": "approximate"}, "one of release, paper, exact, sgd"),
        ("xnor++", {"case": 5}, "one of 1, 2, 3, 4"),
        ("dorefa", {"activation_bits": 0}, "between 1 and 8"),
        ("dorefa", {"gradient_bits": 33}, "between 1 and 32"),
        ("abc-net", {"weight_bases": 0}, "between 1 and 16"),
        ("abc-net", {"activation_bases": 17}, "between 1 and 16"),
        ("bnn+", {"regulariser": "l2"}, "one of r1, r2"),
        ("bnn+", {"scale": "none"}, "one of filter, layer"),
        ("bnn+", {"strength": -1.0}, "between 0 and inf"),
        ("rad", {"until": 1.5}, "between 0 and 1"),
        ("rad", {"strength": float("nan")}, "between 0 and inf"),
        ("ir-net", {"t_min": float("nan")}, "between -10 and 10, got nan"),
        ("ir-net", {"t_max": -4.0}, "between -3 and 10"),
        ("bi-real", {"gradient": "caffe"}, "one of paper, release"),
    ],
)
def test_options_of_the_others_that_cannot_be(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create_method(name, W, **options)


def test_float_is_no_method_of_a_layer() -> None:
    with pytest.raises(ConfigError, match=r"torch\.nn's own layers"):
        create_method("float", W)


def test_a_method_in_words_beside_its_paper() -> None:
    assert against_paper("rbnn", {}) == "rbnn as in its paper"
    assert against_paper("rbnn", method_options("rbnn")) == "rbnn as in its paper"
    assert against_paper("rbnn", {"rotate_until": 0.0, "cycles": 3, "standardise": False}) == (
        "rbnn, not as in its paper: rotate_until = 0 (paper: 1), standardise = false (paper: true)"
    )
    assert against_paper("float", {}) == "float twin, nothing is binarized"


def test_a_method_of_ones_own_has_no_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(METHODS["bnn"]):  # type: ignore[misc]
        pass

    monkeypatch.setitem(METHODS, "own", Own)
    assert against_paper("own", {}) == "own with its defaults"
    (option, value), *_ = method_options("own").items()
    assert (
        against_paper("own", {option: "another"})
        == f"own, not with its defaults: {option} = another (default: {value})"
    )


def test_defaults_are_what_the_papers_and_their_authors_do() -> None:
    """Names that differed in earlier versions of this library."""
    assert method_options("rbnn")["rotate_until"] == 1.0
    assert method_options("xnor-net")["gradient"] == "release"


def test_a_method_that_calls_its_measures_figures_still_logs_them() -> None:
    """As an earlier docs/extending.md described it."""

    class Earlier(BNN):
        def figures(self) -> dict[str, float]:
            return {"alpha": 0.5}

    assert Earlier(W).measures() == {"alpha": 0.5}
