"""Pickles in archives are read, never executed."""

import os
import pickle
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from official_formats import python2_pickle

from rbnn.data import _unpickle
from rbnn.errors import DataError

PIXELS = np.arange(12, dtype=np.uint8).reshape(2, 6)


class Touch:
    """If unpickled in the usual way, this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_a_batch_as_python_2_wrote_it() -> None:
    raw = python2_pickle({"batch_label": "batch 1 of 5", "labels": [6, 9], "data": PIXELS})
    assert pickle.loads(raw, encoding="bytes")[b"labels"] == [6, 9]  # the fixture is a real pickle
    found = _unpickle.batch(raw, "here")
    assert found["labels"] == [6, 9]
    np.testing.assert_array_equal(found["data"], PIXELS)


@pytest.mark.parametrize("protocol", [3, 4])
def test_a_batch_as_python_3_wrote_it(protocol: int) -> None:
    found = _unpickle.batch(pickle.dumps({"labels": [1, 2], "data": PIXELS}, protocol), "here")
    np.testing.assert_array_equal(found["data"], PIXELS)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_unexecuted(tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    raw = pickle.dumps({"data": Touch(made)}, protocol)
    with pytest.raises(DataError, match=r"batch_1 was refused: it refers to \w+\.system"):
        _unpickle.batch(raw, "batch_1")
    assert not made.exists()


@pytest.mark.parametrize("name", ["builtins\neval", "numpy\nload", "numpy.core.multiarray\nscalar", "os\nsystem"])
def test_nothing_but_arrays_resolves(name: str) -> None:
    with pytest.raises(DataError, match="which no data file needs"):
        _unpickle.batch(b"\x80\x02c" + name.encode() + b"\n.", "here")


def test_a_pickle_cannot_change_the_stand_ins() -> None:
    before = vars(_unpickle._Array).copy(), vars(_unpickle._DType).copy()
    for name in (b"numpy\nndarray", b"numpy\ndtype", b"numpy.core.multiarray\n_reconstruct"):
        for state in (
            b"}U\x06valuesK\x01s",
            b"N}U\x06valuesK\x01s\x86",
        ):  # BUILD on the class itself, both ways
            with pytest.raises(DataError):
                _unpickle.batch(b"\x80\x02c" + name + b"\n" + state + b"b.", "here")
    assert (dict(vars(_unpickle._Array)), dict(vars(_unpickle._DType))) == tuple(map(dict, before))


@pytest.mark.parametrize("values", [np.arange(3.0), np.array([{}], object), np.arange(6, dtype=np.uint16)])
def test_arrays_of_anything_but_bytes_are_refused(values: np.ndarray) -> None:
    with pytest.raises(DataError, match="not plain bytes"):
        _unpickle.batch(pickle.dumps({"data": values}, 3), "here")


def test_something_else_than_a_dictionary_is_refused() -> None:
    with pytest.raises(DataError, match="expected a dictionary, got a list"):
        _unpickle.batch(pickle.dumps([1, 2]), "here")


def test_a_few_bytes_cannot_ask_for_much_memory() -> None:
    places_in_the_memo = b"}r" + (2**28).to_bytes(4, "little")
    array_of_bytes = b"\x96" + (2**30).to_bytes(8, "little")
    string = b"\x8e" + (2**30).to_bytes(8, "little")
    tracemalloc.start()
    for claim in (places_in_the_memo, array_of_bytes, string):
        with pytest.raises(DataError):
            _unpickle.batch(b"\x80\x05" + claim + b".", "here")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@settings(deadline=None)
@given(st.data())
def test_damage_gives_an_error_or_a_dictionary(data: st.DataObject) -> None:
    raw = bytearray(python2_pickle({"labels": [6, 9], "data": PIXELS}))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    with suppress(DataError):
        assert isinstance(_unpickle.batch(bytes(raw), "here"), dict)
