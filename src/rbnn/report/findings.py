"""What the figures show, in sentences computed from the numbers."""

from collections.abc import Callable, Sequence
from statistics import fmean

from rbnn.methods import against_paper
from rbnn.report.analysed import Analysed, Timed, judged_on
from rbnn.report.layers import GAUSSIAN_ANGLE, GAUSSIAN_NEAR_ONE, Layer
from rbnn.report.paper_figures import HALF
from rbnn.text import as_range, as_size, listed


def findings(runs: Sequence[Analysed], times: Sequence[Timed]) -> list[str]:
    """What is true of all runs together."""
    sentences = _accuracies(runs)
    sentences += _compared(*runs) if len(runs) == 2 else _errors(runs)
    # Real file sizes come before computed ones.
    return [*sentences, *map(_file, times), *_sizes(runs)]


def in_short(runs: Sequence[Analysed], times: Sequence[Timed]) -> list[str]:
    """The report in a few lines: how accurate, why, and how small and fast as bits."""
    known = sorted((each for each in runs if each.run.epochs), key=lambda each: -each.best()["top1"])
    lines = []
    if known:
        order = ", ".join(f"{each.name} {each.best()['top1']:.1f} %" for each in known)
        lines.append(f"Accuracy on {known[0].run.config.data}: {order}.")
    if angles := {each.name: fmean([layer.angle for layer in each.layers]) for each in runs if each.layers}:
        order = ", ".join(f"{name} {angles[name]:.1f}°" for name in sorted(angles, key=angles.__getitem__))
        lines.append(f"Mean angle between weights and their signs (0° loses nothing): {order}.")
    for timed in times:
        ratio = timed.costs.total("float_bytes") / timed.costs.file_bytes
        lines.append(
            f"As bits: {timed.name} has {as_size(timed.costs.file_bytes)}, {ratio:.1f}× smaller than the float "
            f"weights, and takes {timed.milliseconds:.3f} ms per image."
        )
    return lines


def findings_of(each: Analysed) -> list[str]:
    """What is true of one run."""
    measured = [*_angles(each), *_modes(each), *_flips(each), *_alpha(each), *_reached(each)]
    return [_named(each), *_accuracy(each), *measured]


def _count(one: Analysed, other: Analysed, better: Callable[[Layer, Layer], bool]) -> tuple[int, int]:
    """The number of shared layers in which the first run is better, and the number of shared layers."""
    others = {layer.name: layer for layer in other.layers}
    pairs = [(layer, others[layer.name]) for layer in one.layers if layer.name in others]
    return sum(better(a, b) for a, b in pairs), len(pairs)


def _accuracies(runs: Sequence[Analysed]) -> list[str]:
    known = sorted((each for each in runs if each.run.epochs), key=lambda each: -each.best()["top1"])
    if len(known) < 2:
        return []
    order = ", ".join(f"{each.name} {each.best()['top1']:.2f} %" for each in known)
    sentences = [f"Best accuracy on the {judged_on(known)}: {order}."]
    configs = [(each.run.config, len(each.run.epochs)) for each in known]
    if len({(config.data, config.limit, config.validation, epochs) for config, epochs in configs}) > 1:
        sentences.append(
            "The runs used different data or numbers of epochs, so their accuracies cannot be compared directly."
        )
    return sentences


def _named(each: Analysed) -> str:
    words = against_paper(each.run.config.method, each.run.config.options)
    return f"{words[0].upper()}{words[1:]}." if words.startswith("float") else f"Method: {words}."


def _accuracy(each: Analysed) -> list[str]:
    if not each.run.epochs:
        return []
    best, last = each.best(), each.run.epochs[-1]
    on = f"the {judged_on([each])} of {each.run.config.data}"
    text = f"Reached {best['top1']:.2f} % on {on} in epoch {best['epoch'] + 1:.0f}"
    if best["top1"] - last["top1"] >= 0.005:
        text += f" and ended at {last['top1']:.2f} %"
    gap = last["train_top1"] - last["top1"]
    if abs(gap) > 5:
        text += f"; this is {abs(gap):.1f} points {'below' if gap > 0 else 'above'} the training accuracy"
        text += ", which is measured during the epoch on augmented images" * (gap < 0)
    sentences = [text + "."]
    if each.run.config.validation:
        looked = last.get("last_test_top1")
        sentences.append(
            f"The epoch was chosen on {each.run.config.validation:,} held-out training images, without looking at the "
            "test set"
            + (f", which was evaluated once, after the last epoch: {looked:.2f} %." if looked is not None else ".")
        )
    return sentences


def _angles(each: Analysed) -> list[str]:
    angles = [layer.angle for layer in each.layers]
    if not angles:
        return []
    below = sum(angle < GAUSSIAN_ANGLE for angle in angles)
    nearer = f"{_of(below, len(angles))} layers have a smaller angle" if below else "no layer has a smaller angle"
    return [
        f"The angle between weights and their signs is {fmean(angles):.1f}° on average ({as_range(angles, 1, '°')}). "
        f"Gaussian weights without rotation would have {GAUSSIAN_ANGLE:.1f}°; {nearer}."
    ]


def _compared(first: Analysed, other: Analysed) -> list[str]:
    won, shared = _count(first, other, lambda a, b: a.angle < b.angle)
    lost, _ = _count(first, other, lambda a, b: a.angle > b.angle)
    if lost > won:
        return _compared(other, first)
    if not won:  # no shared layers, or the same angles
        return []
    return [
        f"The angle between weights and signs is smaller in {first.name} than in {other.name} in {_of(won, shared)} "
        f"layers. The mean relative quantisation error is {fmean([a.relative_error for a in first.layers]):.3f}, "
        f"compared with {fmean([b.relative_error for b in other.layers]):.3f}."
    ]


def _errors(runs: Sequence[Analysed]) -> list[str]:
    errors = {each.name: fmean([layer.relative_error for layer in each.layers]) for each in runs if each.layers}
    if len(errors) < 2:
        return []
    order = ", ".join(f"{name} {errors[name]:.3f}" for name in sorted(errors, key=errors.__getitem__))
    return [f"Mean relative quantisation error of the layers: {order}."]


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
        f"{100 * near:.0f} % of |w̃|/λ* are within [0.5, 1.5], compared with {100 * GAUSSIAN_NEAR_ONE:.0f} % for "
        f"Gaussian weights: {shape}."
    ]


def _flips(each: Analysed) -> list[str]:
    flips = [layer.flips for layer in each.layers if layer.flips is not None]
    if not flips:
        return []
    text = f"{100 * fmean(flips):.0f} % of the signs differ from initialisation ({as_range(flips, 100, ' %')})"
    if all(abs(flip - 0.5) <= HALF for flip in flips):
        text += ", as after any random rotation"
    changes = each.over_training("epoch_flips")
    if len(changes) > 1:
        text += f"; {100 * fmean(changes[-1][1]):.1f} % changed in the last epoch"
    return [text + "."]


def _alpha(each: Analysed) -> list[str]:
    points = each.over_training("alpha")
    if not points:
        return []
    first, last = fmean(points[0][1]), fmean(points[-1][1])
    text = f"α stayed at {last:.3f}" if abs(first - last) < 0.005 else f"α went from {first:.3f} to {last:.3f}"
    text += f" on average ({as_range(points[-1][1], 1, '', 3)} at the end)"
    if last > 0.99:
        text += ": the weights are fully rotated, and α adjusts nothing"
    elif last < 0.1:
        text += ": almost nothing of the rotation is left"
    return [text + "."]


def _reached(each: Analysed) -> list[str]:
    if each.reached is None:
        return []
    others = "" if each.reached == 1 else "; for the others F′ is 0 or close to it"
    share = f"{100 * each.reached:.0f}"  # 100 and 0 mean exactly all and none
    if 0.99 < each.reached < 1:
        share = "more than 99"
    elif 0 < each.reached < 0.01:
        share = "less than 1"
    return [f"At {each.run.measured} the gradient of sign reaches {share} % of the weights{others}."]


def _sizes(runs: Sequence[Analysed]) -> list[str]:
    sentences: dict[str, list[str]] = {}
    for each in runs:
        found = each.costs
        if found is not None and each.run.binary:
            text = (
                f"{as_size(found.bytes)} when packed, {found.bytes_ratio:.1f}× smaller than the float twin, "
                f"with {100 * found.binary_mac_share:.1f} % of the multiply-accumulates on single bits. A packed file "
                "also contains the list of its operations, less than 2 kB for a ResNet-20"
            )
            sentences.setdefault(text, []).append(each.name)
    return [f"Weights of {listed(names, of=len(runs))}: {text}." for text, names in sentences.items()]


def _file(timed: Timed) -> str:
    ratio = timed.costs.total("float_bytes") / timed.costs.file_bytes
    return (
        f"The file {timed.name} has {as_size(timed.costs.file_bytes)}, {ratio:.1f}× smaller than the weights of its "
        f"float twin, and takes {timed.milliseconds:.3f} ms per image on one thread. {_slowest(timed)}"
    )


def _slowest(timed: Timed) -> str:
    name, operations = max(timed.layers().items(), key=lambda layer: sum(each.seconds for each in layer[1]))
    bits = [operation for operation in timed.costs.operations if operation.bits == 1]
    return (
        f"{100 * timed.costs.share_of_time(bits):.0f} % of the time is work on bits. The slowest layer is {name} with "
        f"{100 * timed.costs.share_of_time(operations):.0f} %."
    )
