"""The description of a training run: one dataclass.  Its fields are the keys of a recipe and the command-line flags."""

import json
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from rbnn import plugins
from rbnn.data import names as data_names
from rbnn.errors import ConfigError, MissingImport, UnknownName
from rbnn.methods import check_method, method_options
from rbnn.models import MODELS, check_width, model_names
from rbnn.text import LONGEST_QUOTE, quoted, shorten

CONFIG_NAME = "config.toml"
LARGEST_RECIPE = 1 << 20
PATHS = ("data_dir", "out", "start_from", "teacher")
RATES = ("lr", "binary_lr", "momentum", "weight_decay", "binary_decay", "gradient_floor", "silent_decay", "warmup")
CHOICES = ("augment", "activation", "shortcut", "decay", "precision", "batch_norm")
COUNTS = ("seed", "limit", "validation", "image_size", "workers", "threads")
MOST_THREADS = 1024
"""More than any machine has.  OpenMP crashes on numbers that are typing errors."""
BEYOND = 2**63
"""Numbers of a configuration are smaller.  A file may contain integers that no float can hold."""


def _options_from_words(words: list[str]) -> dict[str, Any]:
    """``["rotation=layer", "cycles=5"]`` as a table.  Values are written as in TOML; bare words are strings."""
    options: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"expected KEY=VALUE, got {word!r}")
        try:
            table = tomllib.loads(f"value = {text}")
        except tomllib.TOMLDecodeError:
            table = {}
        options[key] = table["value"] if len(table) == 1 else text
    return options


KEY_VALUE = PrimitiveConstructorSpec(
    nargs="*",
    metavar="KEY=VALUE ...",
    instance_from_str=_options_from_words,
    is_instance=lambda instance: isinstance(instance, dict),
    str_from_instance=lambda options: [f"{key}={value}" for key, value in options.items()],
)


@dataclass(frozen=True)
class TrainConfig:
    """A complete description of a training run."""

    model: str = "resnet20-bireal"
    """Network (`rbnn models` lists them)."""
    method: str = "rbnn"
    """Binarization method (`rbnn methods` lists them); float trains the float twin."""
    options: Annotated[dict[str, Any], KEY_VALUE] = field(default_factory=dict)
    """Options of the method, as KEY=VALUE (`rbnn methods NAME` lists them). Options that are not named keep the
    recipe's value, or the default from the method's paper."""
    activation: Literal["hardtanh", "none", "prelu", "rprelu"] = "hardtanh"
    """Activation after a batch norm, or after the sum of branch and shortcut. A float twin uses ReLU instead of
    hardtanh and none."""
    shortcut: Literal["own", "option-a", "pool-pad", "pool-conv", "conv"] = "own"
    """Shortcut where the size changes. own: as the network was published. option-a: every second pixel, padded with
    zero channels. pool-pad: 2×2 average pooling, padded with zero channels. pool-conv: 2×2 average pooling and a float
    1×1 convolution. conv: a float 1×1 convolution with stride 2."""
    width: float = 1.0
    """Multiplies the channels of every layer of the network, rounded to even numbers."""
    data: str = "digits"
    """Data set: digits, cifar10, cifar100, fashion-mnist or image-folder."""
    data_dir: Path = Path("data")
    """Directory of the data sets; `rbnn data` fills it."""
    out: Path | None = None
    """Run directory; by default runs/MODEL-METHOD-DATA-SEED."""
    epochs: int = 40
    """Passes over the training set."""
    batch_size: int = 256
    """Images per step, summed over all processes."""
    accumulate: int = 1
    """Micro-batches per step. Their gradients are accumulated before the optimiser steps."""
    lr: float = 0.1
    """Peak learning rate of SGD; cosine to 0 after a linear warm-up."""
    binary_lr: float = 1.0
    """Learning rate of the latent weights of binary layers, as a multiple of `lr`. It decides how fast signs change."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 1e-4
    """Weight decay of the weights."""
    binary_decay: float = 1.0
    """Weight decay of the latent weights of binary layers, as a multiple of `weight_decay`."""
    decay: Literal["weights", "all"] = "all"
    """What weight decay applies to: all parameters, or weights (not batch norm, biases and scales)."""
    gradient_floor: float = 0.0
    """Adaptive gradient scaling (OvSW): the smallest ratio of gradient norm to weight norm for each filter of a binary
    layer. OvSW uses 0.04; 0 turns it off."""
    silent_decay: float = 0.0
    """Silence-aware decay (OvSW): additional weight decay for latent weights whose signs have not changed recently.
    OvSW uses 9e-4; 0 turns it off."""
    silent_memory: float = 0.999
    """Decay per step of the moving average of sign changes, which decides which weights are silent."""
    silent_below: float = 1e-4
    """A weight is silent while its moving average of sign changes is below this value."""
    average: float = 0.0
    """Decay of a moving average of the weights, such as 0.999. The averaged weights are evaluated and saved; 0 uses the
    weights themselves."""
    warmup: int = 5
    """Epochs of linear warm-up, at most a tenth of the run."""
    seed: int = 0
    """Seed of all random numbers."""
    limit: int = 0
    """Number of training images to use, always the same ones; 0 uses all."""
    validation: int = 0
    """Number of training images to hold out, balanced over the classes and always the same ones. The best epoch is
    chosen on them, and the test set is evaluated once, after the last epoch. With 0 the test set is evaluated after
    each epoch."""
    augment: Literal["standard", "none"] = "standard"
    """Augmentation of the training images. standard: random crops, and mirror images where they keep the class."""
    image_size: int = 0
    """Side of the images that the network sees. 0 uses the data set's own size, or the network's size (`rbnn models`)
    for an image-folder."""
    workers: int = 2
    """Processes that decode image files (image-folder only)."""
    threads: int = 0
    """CPU threads; 0 leaves the choice to torch."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 trains the float layers in bfloat16 with autocast. Weights, binary layers, evaluation and export stay in
    float32."""
    compile: bool = False
    """Train the network as one graph with torch.compile. The first step takes longer, and on a CPU torch needs a C++
    compiler."""
    batch_norm: Literal["local", "all-reduced"] = "local"
    """Batch statistics with several processes. local: of each process's share. all-reduced: of the whole batch."""
    start_from: Path | None = None
    """Trained network to start from: a run directory, a checkpoint, a packed file (.rbnn) or the name of a pretrained
    network. A network of the same method keeps its rotations and scales. From a network of another method, such as the
    float twin, the method starts from scratch. Images are normalised as that network expects, and those of an
    image-folder are resized to its input size. If the number of classes differs, the last layer starts from scratch."""
    teacher: Path | None = None
    """Run or checkpoint to distil from, such as the float twin or a wider network."""
    distillation_share: float = 0.9
    """Share of the loss that comes from the teacher; 1 ignores the labels."""
    temperature: float = 2.0
    """Temperature of the distillation: the logits of both networks are divided by it."""
    resume: bool = False
    """Continue the run in `out` where it stopped. A larger `epochs` makes the run longer."""
    imports: Annotated[list[str], tyro.conf.Suppress] = field(default_factory=list)
    """Files and packages that define the method and the network. The run records their names and shows them to the
    reader, but never imports them by itself."""

    def __post_init__(self) -> None:
        if not all(isinstance(each, str) for each in self.imports):
            raise ConfigError(f"imports must be a list of file names, got {quoted(self.imports)}")
        try:
            if self.model not in MODELS and self.model not in model_names():
                raise UnknownName("model", self.model, MODELS)
            check_method(self.method)
        except UnknownName as unknown:
            raise (_missing(self.imports) if self.imports else unknown) from None
        check_method(self.method, self.options)
        if self.data not in data_names():
            raise UnknownName("data set", self.data, data_names())
        check_width(self.width)
        for name in CHOICES:
            known = get_args(TrainConfig.__annotations__[name])
            if getattr(self, name) not in known:
                raise UnknownName("value", str(getattr(self, name)), known, f"of {name}")
        for name in PATHS:
            text = str(getattr(self, name))
            if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ConfigError(f"{name} must be a path in valid Unicode, which {CONFIG_NAME} can hold, got {text!r}")
        least = dict.fromkeys(("epochs", "batch_size", "accumulate"), 1) | dict.fromkeys(RATES + COUNTS, 0)
        for name, smallest in least.items():
            value = getattr(self, name)
            if not smallest <= value < BEYOND:
                bound = "at least 1" if smallest else "0 or more"
                if isinstance(value, float) and not isfinite(value):
                    bound = f"a finite number of {bound}"
                elif value >= BEYOND:
                    bound += " and below 2^63"
                raise ConfigError(f"{name} must be {bound}, got {quoted(value)}")
        if self.threads > MOST_THREADS:
            raise ConfigError(f"threads must be at most {MOST_THREADS}, got {self.threads}")
        if self.momentum >= 1:
            raise ConfigError(f"momentum must be below 1, got {self.momentum}")
        for name in ("average", "silent_memory", "silent_below"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 0 or more and below 1, got {getattr(self, name)}")
        if not 0 <= self.distillation_share <= 1 or not 0 < self.temperature < BEYOND:
            raise ConfigError(
                f"distillation_share must be 0 to 1 and temperature above 0, got {self.distillation_share} and "
                f"{self.temperature}"
            )
        if self.batch_size % self.accumulate:
            raise ConfigError(
                f"batch_size {self.batch_size} cannot be split into {self.accumulate} equal micro-batches"
            )

    @property
    def network(self) -> str:
        """The network and its parts that are not as published, such as ``resnet20-bireal, width 1.5``."""
        default = TrainConfig().parts
        return ", ".join([self.model, *(f"{part} {own}" for part, own in self.parts.items() if own != default[part])])

    @property
    def parts(self) -> dict[str, Any]:
        """The arguments of ``create_model`` for the parts of a network that can be chosen."""
        return {"activation": self.activation, "shortcut": self.shortcut, "width": self.width}

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.out or Path("runs") / f"{self.model}-{self.method}-{self.data}-{self.seed}"


# Fields that say where or how fast a run is computed, but not what it computes.  They may change on --resume.
CIRCUMSTANCES = ("out", "data_dir", "workers", "threads", "device", "compile", "resume", "imports")


EARLIER_DEFAULTS: dict[str, dict[str, Any]] = {"rbnn": {"rotate_until": 0.0}, "xnor-net": {"gradient": "exact"}}
"""The former defaults of options whose default has changed.  A run now records all options of its method; earlier runs
recorded only those that the user gave."""


def with_all_options(config: TrainConfig) -> TrainConfig:
    """The run with every option of its method, so that a new default cannot change what it computes, and with the files
    that its method and network come from."""
    named = plugins.source_of("method", config.method), plugins.source_of("model", config.model)
    sources = list(dict.fromkeys(filter(None, named)))
    return replace(config, options=method_options(config.method) | config.options, imports=sources)


def _missing(imports: list[str]) -> MissingImport:
    """The names are shortened, because they may come from an untrusted file."""
    packages = [each.removeprefix(plugins.PACKAGE) for each in imports if each.startswith(plugins.PACKAGE)]
    files = [each for each in imports if not each.startswith(plugins.PACKAGE)]
    todo = [f"install {' and '.join(packages)}"] if packages else []
    todo += ["add " + " ".join(f"--import {each}" for each in files)] if files else []
    needed, remedy = (shorten(" and ".join(each), LONGEST_QUOTE) for each in (imports, todo))
    return MissingImport(f"the run needs {needed}: {remedy}")


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first difference in what two runs compute, such as ``"lr = 0.1, not lr = 0.7"``, or None."""
    for key in before | now:
        if key not in CIRCUMSTANCES and before.get(key) != now.get(key):
            return f"{_setting(key, before)}, not {_setting(key, now)}"
    return None


def _setting(key: str, table: dict[str, Any]) -> str:
    return f"{key} = {table[key]!r}" if key in table else f"no {key}"


def from_table(table: dict[str, Any], source: str = "recipe") -> TrainConfig:
    """The run with the fields in ``table``.  Unknown keys and wrong types raise."""
    if "resume" in table and isinstance(table.get("options"), dict):  # written by a run: recipes have no such key
        table = table | {"options": EARLIER_DEFAULTS.get(str(table.get("method")), {}) | table["options"]}
    default = TrainConfig()
    known = {f.name: "" if f.name in PATHS else getattr(default, f.name) for f in fields(TrainConfig)}
    values = checked(table, known, source)
    return TrainConfig(**values | {key: Path(values[key]) for key in PATHS if key in values})


def checked(table: dict[str, Any], known: dict[str, Any], where: str) -> dict[str, Any]:
    """The values of ``table``.  Unknown keys and values of the wrong type raise."""
    found = {}
    for key, value in table.items():
        if key not in known:
            raise UnknownName("key", key, known, f"in {where}")
        expected = type(known[key])
        if type(value) is int and abs(value) >= BEYOND:
            raise ConfigError(f"{key} in {where} must be below 2^63, got {quoted(value)}")
        if expected is float and type(value) is int:
            value = float(value)
        if type(value) is not expected:
            raise ConfigError(f"{key} in {where} must be of type {expected.__name__}, got {quoted(value)}")
        found[key] = value
    return found


def read_recipe(path: Path) -> TrainConfig:
    """The run that a TOML file describes.  Missing keys have their defaults."""
    return from_table(read_toml(path, "recipe"), source=f"recipe {path}")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file that the user wrote, unless it is far too large."""
    try:
        if path.stat().st_size > LARGEST_RECIPE:
            raise ConfigError(f"{path} is too large for a {what}: expected at most {LARGEST_RECIPE:,} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise ConfigError(f"{what} {path} is not valid TOML: {error}") from None


def find_recipe(name: str) -> Path:
    """Find a recipe by path, by run directory, or by the name of a bundled recipe."""
    path = Path(name)
    file = path / CONFIG_NAME if path.is_dir() else path
    if file.is_file():
        return file
    bundled = {p.stem: p for p in sorted(bundled_recipes().glob("*.toml"))}
    if name in bundled:
        return bundled[name]
    if path.is_dir():
        raise ConfigError(f"{path} contains no run: it has no {CONFIG_NAME}")
    if len(path.parts) == 1:
        raise UnknownName("recipe or file", name, bundled)
    found = sorted(str(each.parent) for each in path.parent.glob(f"*/{CONFIG_NAME}")) if path.parent.is_dir() else []
    near = get_close_matches(str(path), found, n=3, cutoff=0.0)
    there = f"runs in {path.parent}: {', '.join(near)}" if near else f"{path.parent} contains no runs"
    raise ConfigError(f"the run directory or recipe {path} does not exist; {there}")


def bundled_recipes() -> Path:
    """The folder of the bundled recipes, in the installed package or in the source tree."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def as_table(config: TrainConfig) -> dict[str, Any]:
    """The config as plain values, for TOML, JSON and checkpoints; paths that are not set are left out."""
    table = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(config).items()}
    return {key: value for key, value in table.items() if value is not None}


def as_toml(config: TrainConfig) -> str:
    """The config as a TOML document that ``read_recipe`` reads back."""
    table = as_table(config)
    options = table.pop("options")
    lines = [f"{key} = {_toml_value(value)}" for key, value in table.items()]
    lines += ["", "[options]", *(f"{key} = {_toml_value(value)}" for key, value in options.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    """JSON's strings, numbers and booleans are also valid in TOML, except for one control character that TOML wants
    escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
