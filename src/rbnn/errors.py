"""The exceptions that rbnn raises on purpose:

    RbnnError                     one sentence for the user: what was expected, what was found, what to do
    ├── UnknownName               no such model, method, data set, field …: names the nearest one
    ├── ConfigError               a value that is invalid, or two that contradict each other
    │   └── MissingImport         a run whose method or network comes from a file that was not imported
    ├── DataError                 a data file that is missing, damaged or not what it claims to be
    │   └── MissingData           no files of the data set in the directory
    ├── CheckpointError           a checkpoint that is missing, damaged or belongs to another network
    │   └── DamagedCheckpoint     a checkpoint that is truncated or whose bytes have changed
    ├── NotBinary                 a layer or a network that cannot be binarized or expressed in bits
    ├── ExportError               a network that cannot be packed, or whose packed form differs from it
    ├── PackError                 a packed file that is missing, damaged, too new or not a packed file at all
    ├── InputError                an array that the network does not accept
    └── TrainingError             training cannot continue (a loss that is not finite, ranks that drifted apart)
        └── LostWorker            a process that decodes images has died

The command line prints the sentence and exits with code 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from rbnn.text import LONGEST_QUOTE, quoted, shorten

MOST_LISTED = 15
"""Up to this many known names, an error message lists all of them; otherwise it lists the nearest few."""


class RbnnError(Exception):
    """Root of all exceptions that rbnn raises on purpose."""


class UnknownName(RbnnError):
    """No such model, method, data set or field."""

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "") -> None:
        # Names from a file may have any length.
        written, name = quoted(name), name[:LONGEST_QUOTE]
        known = sorted(shorten(each, LONGEST_QUOTE) for each in known)
        nearest = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        listed = known if len(known) <= MOST_LISTED else get_close_matches(name, known, n=4, cutoff=0.0)
        others = f" and {len(known) - len(listed)} others" if len(listed) < len(known) else ""
        super().__init__(
            f"unknown {kind} {written}{where and f' {where}'}: {hint}available: {', '.join(listed)}{others}"
        )


class ConfigError(RbnnError):
    """A value that is invalid, or two that contradict each other."""


class MissingImport(ConfigError):
    """A run whose method or network comes from a file or package that was not imported."""


class DataError(RbnnError):
    """A data file that is missing, damaged or not what it claims to be."""


class MissingData(DataError):
    """No files of the data set in the directory."""


class CheckpointError(RbnnError):
    """A checkpoint that is missing, damaged or belongs to another network."""


class DamagedCheckpoint(CheckpointError):
    """A checkpoint that is truncated or whose bytes have changed; the previous checkpoint may be intact."""


class NotBinary(RbnnError):
    """A layer or a network that cannot be binarized or expressed in bits."""


class ExportError(RbnnError):
    """A network that cannot be packed, or whose packed form differs from it."""


class PackError(RbnnError):
    """A packed file that is missing, damaged, too new or not a packed file at all."""


class InputError(RbnnError):
    """An array that the network does not accept."""


class TrainingError(RbnnError):
    """Training cannot continue: a loss that is not finite, ranks that drifted apart."""


class LostWorker(TrainingError):
    """A process that decodes images has died."""
