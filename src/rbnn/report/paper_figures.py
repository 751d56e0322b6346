"""Which of the paper's figures a run reproduces, counted over its layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sin
from statistics import fmean

from rbnn.methods import method_options
from rbnn.report.analysed import Analysed
from rbnn.report.layers import Layer
from rbnn.text import as_range

SHOWN = {
    "2a": "cosine similarity above XNOR-Net’s in every layer",
    "2b": "quantisation error, relative to the weight, below XNOR-Net’s in every layer",
    "4c": "α changes during training",
    "6": "two modes of weights, at −1 and +1; for XNOR-Net one, at 0",
    "7": "about half of the signs flip; for XNOR-Net clearly fewer",
}
"""What the paper's figures show about RBNN."""

HALF = 0.05
"""Flips between 45 and 55 % are what chance or any random rotation gives."""

MOVED = 0.01
"""α within this distance of its start has not changed."""


@dataclass(frozen=True)
class Claim:
    """A figure of the paper and whether a run reproduces it."""

    figure: str
    run: str
    holds: bool
    answer: str


def claims(runs: Sequence[Analysed]) -> list[Claim]:
    """The figures of ``SHOWN`` that can be checked, for every RBNN that rotates and every XNOR-Net among the runs."""
    found: list[Claim] = []
    baselines = [each for each in runs if each.run.config.method == "xnor-net" and each.layers]
    for each in runs:
        if _rotates(each) and each.layers:
            names = [layer.name for layer in each.layers]
            beside = [other for other in baselines if [layer.name for layer in other.layers] == names]
            found += [*_against(each, beside[0])] if beside else []
            found += [*_alpha(each), *_of_signs(each, rotated=True)]
        elif each in baselines:
            found += _of_signs(each, rotated=False)
    return found


def _rotates(each: Analysed) -> bool:
    config = each.run.config
    return config.method == "rbnn" and config.options.get("rotation") != "none"


def _against(ours: Analysed, theirs: Analysed) -> list[Claim]:
    pairs = list(zip(ours.layers, theirs.layers, strict=True))

    def count(better: Callable[[Layer, Layer], bool]) -> int:
        return sum(better(a, b) for a, b in pairs)

    def means(number: Callable[[Layer], float]) -> str:
        return f"mean {fmean([number(a) for a, _ in pairs]):.3f}, XNOR-Net {fmean([number(b) for _, b in pairs]):.3f}"

    higher = count(lambda a, b: a.cosine > b.cosine)
    lower = count(lambda a, b: a.relative_error < b.relative_error)
    absolute = count(lambda a, b: a.error is not None and b.error is not None and a.error < b.error)
    whole = len(pairs)
    cosines, errors = means(lambda layer: layer.cosine), means(lambda layer: layer.relative_error)
    answer = f"{lower} of {whole} layers, {errors}; absolute: {absolute} of {whole}"
    return [
        Claim("2a", ours.name, higher == whole, f"{higher} of {whole} layers, {cosines}"),
        Claim("2b", ours.name, lower == whole, answer),
    ]


def _alpha(each: Analysed) -> list[Claim]:
    points = each.over_training("alpha")
    if not points:
        return []
    options = method_options("rbnn") | each.run.config.options
    start, last = abs(sin(options["beta_start"])), points[-1][1]
    moved = any(abs(value - start) > MOVED for value in last)
    return [Claim("4c", each.name, moved, f"{start:.3f} at the start, {as_range(last, 1, '', 3)} at the end")]


def _of_signs(each: Analysed, rotated: bool) -> list[Claim]:
    found = []
    modes = [layer.two_modes for layer in each.layers if layer.two_modes is not None]
    if modes:
        fitting = modes.count(rotated)
        found.append(Claim("6", each.name, fitting == len(modes), f"{fitting} of {len(modes)} layers"))
    flips = [layer.flips for layer in each.layers if layer.flips is not None]
    if flips:
        fitting = sum((abs(flip - 0.5) <= HALF) if rotated else (flip < 0.5 - HALF) for flip in flips)
        answer = f"{fitting} of {len(flips)} layers, {as_range(flips, 100, ' %')}"
        found.append(Claim("7", each.name, fitting == len(flips), answer))
    return found
