"""The paper's tables: rows, their networks and methods, and the accuracies that the paper prints.

The ``options`` of a row define it.  Every other option of its method has its default, which follows the method's paper
and its authors' runs, except for those in ``OURS``.
"""

from dataclasses import dataclass, field
from typing import Any

from rbnn.errors import ConfigError, UnknownName

PARTS = ("rotation", "alpha", "estimator")
"""The options of RBNN that rows switch off and on: the paper's R, A and T."""

OURS: dict[str, dict[str, Any]] = {"xnor-net": {"gradient": "sgd"}}
"""Where our rows differ from a method's paper: XNOR-Net's gradient is that of a public PyTorch version."""

OF_A_PART = {"rotation": ("cycles", "rotate_until"), "alpha": ("beta_start", "beta_decay")}
"""Options that have no meaning if the part is switched off."""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    name: str
    model: str
    method: str
    top1: float | None = None
    """Accuracy in the paper, in percent; None for a row that we add."""
    top5: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def all_options(self, more: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
        """Every option of the row's method.  ``more`` applies to RBNN.  Options that define the row stay, and options
        of a part that the row does not have keep their defaults, so that it is the same run with and without them."""
        idle = [key for part, keys in OF_A_PART.items() if self.options.get(part) == "none" for key in keys]
        meant = OURS.get(self.method, {}) | (more if self.method == "rbnn" else {})
        return defaults | {key: value for key, value in meant.items() if key not in idle} | self.options


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, and how the published runs were trained."""

    name: str
    title: str
    data: str
    epochs: int
    batch_size: int
    warmup: int
    rows: tuple[Row, ...]

    def chosen(self, names: tuple[str, ...]) -> list[Row]:
        """The rows with these names, in the order of the table; all rows if no name is given."""
        known = {row.name: row for row in self.rows}
        for name in names:
            if name not in known:
                raise UnknownName("row", name, known, f"of table {self.name!r}")
        return [row for row in self.rows if not names or row.name in names]


def _named(model: str, short: str, *rows: tuple[Any, ...]) -> tuple[Row, ...]:
    """Rows of one network, named METHOD-NETWORK: (method, top1, top5, options)."""
    made = []
    for method, top1, *more in rows:
        top5, options = (*more, None, None)[:2]
        made.append(Row(f"{method}-{short}", model, method, top1, top5, options or {}))
    return tuple(made)


def _bireal(name: str, top1: float | None, method: str = "rbnn", **options: Any) -> Row:
    return Row(name, "resnet20-bireal", method, top1, None, options)


CIFAR10_RUNS: dict[str, Any] = {"data": "cifar10", "epochs": 1000, "batch_size": 256, "warmup": 5}

_TABLES = (
    PaperTable(
        "cifar10",
        "Table 1: CIFAR-10",
        **CIFAR10_RUNS,
        rows=(
            *_named("resnet18-cifar", "resnet18", ("float", 93.0), ("rad", 90.5), ("ir-net", 91.5), ("rbnn", 92.2)),
            *_named("resnet20", "resnet20", ("float", 91.7), ("dorefa", 79.3), ("dsq", 84.1), ("ir-net", 85.4)),
            *_named("resnet20", "resnet20", ("rbnn", 86.5)),
            *_named("resnet20-bireal", "resnet20-bireal", ("ir-net", 86.5), ("rbnn", 87.8)),
            *_named("vgg-small", "vgg-small", ("float", 91.7), ("lab", 87.7), ("xnor-net", 89.8), ("bnn", 89.9)),
            # IR-Net's exponents are −1 to 1 for VGG-small and −3 to 1 for ResNet-20.
            *_named("vgg-small", "vgg-small", ("rad", 90.0), ("ir-net", 90.4, None, {"t_min": -1.0}), ("rbnn", 91.3)),
        ),
    ),
    PaperTable(
        "imagenet",
        "Table 2: ImageNet",
        data="image-folder",
        epochs=150,
        batch_size=512,
        warmup=0,
        rows=(
            *_named("resnet18", "resnet18", ("float", 69.6, 89.2), ("abc-net", 42.7, 67.6), ("xnor-net", 51.2, 73.2)),
            *_named("resnet18", "resnet18", ("bnn+", 53.0, 72.6), ("dorefa", 53.4, None, {"activation_bits": 2})),
            *_named("resnet18", "resnet18", ("bi-real", 56.4, 79.5), ("xnor++", 57.1, 79.9), ("ir-net", 58.1, 80.0)),
            *_named("resnet18", "resnet18", ("rbnn", 59.9, 81.9)),
            *_named("resnet34", "resnet34", ("float", 73.3, 91.3), ("abc-net", 52.4, 76.5), ("bi-real", 62.2, 83.9)),
            *_named("resnet34", "resnet34", ("ir-net", 62.9, 84.1), ("rbnn", 63.1, 84.4)),
        ),
    ),
    PaperTable(
        "gradients",
        "Estimators of the gradient of sign in RBNN: ResNet-20 with Bi-Real structure",
        **CIFAR10_RUNS,
        rows=(
            _bireal("ste", 84.9, estimator="ste"),
            _bireal("ppf", 86.9, estimator="ppf"),
            _bireal("ede", 86.0, estimator="ede"),
            _bireal("training-aware", 87.8, estimator="training-aware"),
        ),
    ),
    PaperTable(
        "ablation",
        "The parts of RBNN: ResNet-20 with Bi-Real structure",
        **CIFAR10_RUNS,
        rows=(
            _bireal("B", 83.7, rotation="none", alpha="none", estimator="ste"),
            _bireal("B+R", 86.4, alpha="none", estimator="ste"),
            _bireal("B+T", 86.6, rotation="none", alpha="none"),
            _bireal("B+T+R", 87.1, alpha="none"),
            _bireal("B+T+R+A", 87.8),
            # Other readings of R: rotated only before the first epoch, and with the release's gradient of the weight.
            _bireal("B+R-once", None, alpha="none", estimator="ste", rotate_until=0.0),
            _bireal("B+T+R-once", None, alpha="none", rotate_until=0.0),
            _bireal("B+T+R+A-once", None, rotate_until=0.0),
            _bireal("B+T+R+A-release", None, gradient="release"),
            # The paper calls B "binarization using XNOR-Net".  B above is RBNN without its parts; this is XNOR-Net
            # itself.
            _bireal("xnor-net", None, method="xnor-net"),
            _bireal("ir-net", 86.5, method="ir-net"),
        ),
    ),
)

TABLES = {table.name: table for table in _TABLES}


def find_table(name: str) -> PaperTable:
    """A table by its name."""
    if name not in TABLES:
        raise UnknownName("table", name, TABLES)
    return TABLES[name]


def check_options(options: dict[str, Any]) -> None:
    """Options for all RBNN rows change how a part works.  They cannot change which parts a row has."""
    for key, value in options.items():
        if key == "estimator" or (key in PARTS and value == "none"):
            raise ConfigError(f"{key} = {value!r} would turn a row into another row: choose rows with --rows instead")
