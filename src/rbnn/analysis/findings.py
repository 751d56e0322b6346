"""What the figures show, in sentences made from the numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rbnn.analysis.analysed import Analysed, Timed
from rbnn.analysis.layers import GAUSSIAN_ANGLE, GAUSSIAN_NEAR_ONE, Layer
from rbnn.analysis.words import as_size, listed

HALF = 0.05
"""Flips between 45 and 55 % are what chance alone, or any random rotation, gives."""


@dataclass(frozen=True)
class Claim:
    """A figure of the paper and what these runs say of it."""

    figure: str
    claim: str
    runs: str
    answer: str
    holds: bool


def findings(runs: Sequence[Analysed], times: Sequence[Timed]) -> list[str]:
    """What holds of the runs together."""
    sentences = _accuracies(runs)
    for other in runs[1:]:
        sentences += _compared(runs[0], other)
    sentences += _sizes(runs)
    sentences += [
        f"{timed.name} answers in {timed.milliseconds:.3f} ms on one thread; {_slowest(timed)}" for timed in times
    ]
    return sentences


def findings_of(each: Analysed) -> list[str]:
    """What holds of one run."""
    return [*_accuracy(each), *_angles(each), *_modes(each), *_flips(each), *_alpha(each), *_reached(each)]


def claims(runs: Sequence[Analysed]) -> list[Claim]:
    """The paper's figures that compare RBNN with XNOR-Net, checked on every such pair among the runs."""
    of_rbnn = [each for each in runs if _rotates(each) and each.layers]
    of_xnor = [each for each in runs if each.run.config.method == "xnor-net" and each.layers]
    found: list[Claim] = []
    for ours in of_rbnn:
        for theirs in of_xnor:
            pair = f"{ours.name} against {theirs.name}"
            found.append(_wins("2a", "RBNN's cosine similarity is higher in every layer", pair, ours, theirs,
                               lambda a, b: a.cosine > b.cosine))  # fmt: skip
            found.append(_wins("2b", "RBNN's relative quantisation error is lower in every layer", pair,
                               ours, theirs, lambda a, b: a.relative_error < b.relative_error))  # fmt: skip
    for each in [*of_rbnn, *of_xnor]:
        two = [layer.two_modes for layer in each.layers if layer.two_modes is not None]
        wanted = each in of_rbnn
        if two:
            name = "RBNN's weights have two modes, at −1 and +1" if wanted else "XNOR-Net's weights have one mode, at 0"
            fitting = two.count(wanted)
            found.append(Claim("6", name, each.name, f"{fitting} of {len(two)} layers", fitting == len(two)))
    for each in [*of_rbnn, *of_xnor]:
        flips = [layer.flips for layer in each.layers if layer.flips is not None]
        if flips:
            wanted = each in of_rbnn
            name = "RBNN flips about half of the signs" if wanted else "XNOR-Net flips clearly fewer than half"
            fitting = sum((abs(flip - 0.5) <= HALF) if wanted else (flip < 0.5 - HALF) for flip in flips)
            answer = f"{fitting} of {len(flips)} layers ({_range(flips, 100, ' %')})"
            found.append(Claim("7", name, each.name, answer, fitting == len(flips)))
    return sorted(found, key=lambda claim: claim.figure)


def _rotates(each: Analysed) -> bool:
    config = each.run.config
    return config.method == "rbnn" and config.options.get("rotation") != "none"


def _wins(figure: str, claim: str, pair: str, ours: Analysed, theirs: Analysed,
          better: Callable[[Layer, Layer], bool]) -> Claim:  # fmt: skip
    won, shared = _count(ours, theirs, better)
    return Claim(figure, claim, pair, f"{won} of {shared} layers", won == shared > 0)


def _count(one: Analysed, other: Analysed, better: Callable[[Layer, Layer], bool]) -> tuple[int, int]:
    """In how many of the layers that both have the first is better, and how many those are."""
    others = {layer.name: layer for layer in other.layers}
    pairs = [(layer, others[layer.name]) for layer in one.layers if layer.name in others]
    return sum(better(a, b) for a, b in pairs), len(pairs)


def _accuracies(runs: Sequence[Analysed]) -> list[str]:
    known = sorted((each for each in runs if each.run.epochs), key=lambda each: -each.best()["top1"])
    if len(known) < 2:
        return []
    order = ", ".join(f"{each.name} {each.best()['top1']:.2f} %" for each in known)
    sentences = [f"Best test accuracy: {order}."]
    budgets = {(each.run.config.data, each.run.config.limit, len(each.run.epochs)) for each in known}
    if len(budgets) > 1:
        sentences.append(
            "The runs saw different data or numbers of epochs, so their accuracies do not compare directly."
        )
    return sentences


def _accuracy(each: Analysed) -> list[str]:
    if not each.run.epochs:
        return []
    best, last = each.best(), each.run.epochs[-1]
    text = f"Reached {best['top1']:.2f} % on the test set of {each.run.config.data} in epoch {best['epoch'] + 1:.0f}"
    if best["top1"] - last["top1"] >= 0.005:
        text += f" and ended at {last['top1']:.2f} %"
    gap = last["train_top1"] - last["top1"]
    if abs(gap) > 5:
        text += f"; that is {abs(gap):.1f} points {'below' if gap > 0 else 'above'} the accuracy in training"
    return [text + "."]


def _angles(each: Analysed) -> list[str]:
    angles = [layer.angle for layer in each.layers]
    if not angles:
        return []
    below = sum(angle < GAUSSIAN_ANGLE for angle in angles)
    nearer = f"{_of(below, len(angles))} layers are nearer" if below else "no layer is nearer"
    return [
        f"Weights and their signs are {_mean(angles):.1f}° apart on average ({_range(angles, 1, '°')}); Gaussian "
        f"weights without rotation would be at {GAUSSIAN_ANGLE:.1f}°, and {nearer} than that."
    ]


def _compared(first: Analysed, other: Analysed) -> list[str]:
    won, shared = _count(first, other, lambda a, b: a.angle < b.angle)
    lost, _ = _count(first, other, lambda a, b: a.angle > b.angle)
    if lost > won:
        return _compared(other, first)
    if not won:  # no layer in common, or the same angles
        return []
    return [
        f"The angle between weights and signs is smaller in {first.name} than in {other.name} in {_of(won, shared)} "
        f"layers; the relative quantisation error is {_mean([a.relative_error for a in first.layers]):.3f} on average "
        f"against {_mean([b.relative_error for b in other.layers]):.3f}."
    ]


def _of(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}"


def _modes(each: Analysed) -> list[str]:
    known = [layer for layer in each.layers if layer.weights is not None]
    if not known:
        return []
    two = sum(bool(layer.two_modes) for layer in known)
    near = sum((layer.near_one or 0.0) * len(layer.weights) for layer in known if layer.weights is not None)
    near /= sum(len(layer.weights) for layer in known if layer.weights is not None)
    shape = (
        "two modes at ±1 in every layer" if two == len(known) else "one mode around 0 in every layer" if two == 0
        else f"two modes at ±1 in {two} of {len(known)} layers, one around 0 in the others"
    )  # fmt: skip
    return [
        f"{100 * near:.0f} % of |w̃|/λ* lie within [0.5, 1.5], where {100 * GAUSSIAN_NEAR_ONE:.0f} % of Gaussian "
        f"weights would: {shape}."
    ]


def _flips(each: Analysed) -> list[str]:
    flips = [layer.flips for layer in each.layers if layer.flips is not None]
    if not flips:
        return []
    text = f"{100 * _mean(flips):.0f} % of the signs differ from initialisation ({_range(flips, 100, ' %')})"
    if all(abs(flip - 0.5) <= HALF for flip in flips):
        text += ", as after any random rotation"
    changes = each.over_training("epoch_flips")
    if len(changes) > 1:
        text += f"; in the last epoch {100 * _mean(changes[-1][1]):.1f} % changed"
    return [text + "."]


def _alpha(each: Analysed) -> list[str]:
    points = each.over_training("alpha")
    if not points:
        return []
    first, last = _mean(points[0][1]), _mean(points[-1][1])
    text = f"α stayed at {last:.3f}" if abs(first - last) < 0.005 else f"α went from {first:.3f} to {last:.3f}"
    text += f" on average ({_range(points[-1][1], 1, '', 3)} at the end)"
    if last > 0.99:
        text += ": the weights are fully rotated, α adjusts nothing"
    elif last < 0.1:
        text += ": nearly nothing of the rotation is left"
    return [text + "."]


def _reached(each: Analysed) -> list[str]:
    if each.reached is None:
        return []
    return [
        f"At {each.run.measured} the gradient of sign reaches {100 * each.reached:.0f} % of the weights; the others "
        "lie where F′ is 0."
    ]


def _sizes(runs: Sequence[Analysed]) -> list[str]:
    sentences: dict[str, list[str]] = {}
    for each in runs:
        found = each.costs
        if found is not None and each.run.binary:
            text = (
                f"deployed {as_size(found.bytes)}, {found.bytes_ratio:.1f} times smaller than the float twin, "
                f"with {100 * found.binary_mac_share:.1f} % of the multiply-accumulates on single bits"
            )
            sentences.setdefault(text, []).append(each.name)
    return [f"{listed(names)}: {text}." for text, names in sentences.items()]


def _slowest(timed: Timed) -> str:
    name, operations = max(timed.layers().items(), key=lambda layer: sum(each.seconds for each in layer[1]))
    bits = [operation for operation in timed.costs.operations if operation.bits == 1]
    return (
        f"{100 * timed.costs.share_of_time(bits):.0f} % of it is work on bits, and the slowest layer is {name} with "
        f"{100 * timed.costs.share_of_time(operations):.0f} %."
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _range(values: Sequence[float], factor: float, unit: str, digits: int = 1) -> str:
    least, most = f"{factor * min(values):.{digits}f}", f"{factor * max(values):.{digits}f}"
    return f"{least} to {most}{unit}" if least != most else f"{least}{unit} in every layer"
