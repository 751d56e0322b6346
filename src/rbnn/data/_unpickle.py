"""Read the pickles of the CIFAR archives without executing what they contain.

A pickle is a program that may call any function by name. Here the only names that resolve are those with which NumPy
rebuilds an array of bytes, and each resolves to an inert stand-in.
"""

import io
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.errors import DataError


class _DType:
    """Stands in for numpy.dtype: remembers the code it was called with."""

    __slots__ = ("code",)

    def __init__(self, *arguments: object) -> None:
        code = arguments[0] if arguments else None
        self.code = code.decode("latin1") if isinstance(code, bytes) else code

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment, which single bytes do not have."""


class _Array:
    """Stands in for numpy.ndarray and its rebuilding function; becomes an array of bytes or an error."""

    # Every stand-in is a class with __setstate__ and __slots__.  The BUILD instruction can then write only to an
    # instance, and a hostile pickle cannot leave a changed stand-in behind.
    __slots__ = ("values",)

    def __init__(self, *arguments: object) -> None:
        self.values: NDArray[np.uint8] | None = None

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(shape), _DType(code="u1"), False | 0, bytes(raw)):
                self.values = np.frombuffer(raw, np.uint8).reshape(shape)
            case _:
                raise pickle.UnpicklingError("it contains an array that is not plain bytes")


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which no data file needs") from None


def batch(raw: bytes, where: str) -> dict[str, Any]:
    """A CIFAR batch: a dictionary of lists and NumPy arrays; `where` names the file in errors."""
    try:
        _check_claims(raw)
        # Written by Python 2: its strings are bytes.
        found = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a damaged or hostile pickle can make the unpickler raise nearly anything
        raise DataError(f"{where} was refused: {error}; replace it with the published file") from error
    if not isinstance(found, dict):
        raise DataError(f"{where}: expected a dictionary, got a {type(found).__name__}")
    return {_text(key): value.values if isinstance(value, _Array) else value for key, value in found.items()}


def _check_claims(raw: bytes) -> None:
    """A few bytes must not make the unpickler allocate any amount of memory. `genops` refuses strings that claim to be
    longer than the file, and the memo of a real pickle never has an index beyond the number of bytes before it."""
    for opcode, argument, position in pickletools.genops(raw):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > (position or 0):
            raise pickle.UnpicklingError(f"it claims {argument} memo entries")


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)
