"""The sections of a report: their figures and captions."""

from dataclasses import dataclass

from rbnn.costs.model import Costs
from rbnn.report.analysed import Analysed, Timed, judged_on
from rbnn.report.cost_figures import cost_figure, time_figure
from rbnn.report.figures import Figure, approximation, curve, histograms, per_layer, spread
from rbnn.report.gradients import Gradient
from rbnn.report.layers import GAUSSIAN_ANGLE, GAUSSIAN_COSINE
from rbnn.text import listed


@dataclass(frozen=True)
class Section:
    """A section of the page; without figures it says why."""

    key: str
    title: str
    figures: list[Figure]
    instead: str
    """The sentence to show if there are no figures."""


def sections(runs: list[Analysed], times: list[Timed]) -> list[Section]:
    """The sections of the page, in order; each figure belongs to one."""
    logged = [each for each in runs if each.run.epochs]
    layered = [each for each in runs if each.layers]
    return [
        Section("curves", "Curves", _curves(logged) if logged else [], "No run has finished an epoch."),
        Section("layers", "Angle and quantisation error", _layers(layered) if layered else [],
                "No run has binary layers that were measured."),
        Section("weights", "Weights before binarization", [histograms(layered)] if _weighed(layered) else [],
                "Histograms need a checkpoint of a binary network."),
        Section("flips", "Flips", _flips(layered), "No run has binary layers with signs to compare."),
        Section("alpha", "α, how far the weights are rotated", _alpha(logged),
                "No run has an α, which belongs to RBNN with alpha = filter or layer."),
        Section("gradients", "Gradient of sign", _gradients(runs),
                "No run has an estimator by name: float networks have no sign, and DSQ learns its own."),
        Section("costs", "Size, work and time", _costs(runs, times), "Sizes need a checkpoint."),
    ]  # fmt: skip


def _weighed(runs: list[Analysed]) -> bool:
    return any(layer.histogram is not None for each in runs for layer in each.layers)


def _curves(runs: list[Analysed]) -> list[Figure]:
    different = list({tuple(entry["lr"] for entry in each.run.epochs): each for each in reversed(runs)}.values())[::-1]
    return [
        curve(runs, "accuracy", "Accuracy", "% top-1",
              f"Share of the images ({judged_on(runs)}) that are classified correctly, after each epoch; higher is "
              "better.",
              "top1", ("train_top1", "Thin and dotted: training images; far above means overfitting.")),
        curve(runs, "loss", "Loss", "cross entropy",
              f"What training minimises, on the {judged_on(runs)}; lower is better.",
              "test_loss", ("loss", "Thin and dotted: training images.")),
        curve(different, "lr", "Learning rate", "learning rate",
              "Step size of the optimiser at the end of each epoch: a linear warm-up, then a cosine to 0."
              + " Runs with the same learning rate are drawn once." * (len(different) < len(runs)), "lr"),
    ]  # fmt: skip


def _layers(runs: list[Analysed]) -> list[Figure]:
    figures = [
        per_layer(runs, "cosine", lambda layer: layer.cosine, "Cosine similarity of each layer", "cos θ",
                  "How well the signs point in the direction of the weight before sign, w̃; 1 is perfect. Dotted: "
                  f"Gaussian weights without rotation, √(2/π) = {GAUSSIAN_COSINE:.3f}. Figure 2a of the paper: RBNN "
                  "is above XNOR-Net in every layer.", (GAUSSIAN_COSINE, "unrotated")),
        per_layer(runs, "angle", lambda layer: layer.angle, "Angle of each layer", "θ, degrees",
                  f"The same as an angle: 0° is perfect, Gaussian weights without rotation have {GAUSSIAN_ANGLE:.1f}° "
                  "(dotted). The rotation should make it small.", (GAUSSIAN_ANGLE, "unrotated")),
        per_layer(runs, "relative_error", lambda layer: layer.relative_error, "Relative quantisation error", "sin²θ",
                  "The share of the weight's squared norm that is lost when it becomes bits with the best scale: "
                  "‖w̃ − λ*b‖² / ‖w̃‖² = sin²θ, between 0 (best) and 1. It compares layers and methods of any size. "
                  "Figure 2b of the paper: RBNN is below XNOR-Net in every layer.",
                  (1 - GAUSSIAN_COSINE**2, "unrotated")),
        per_layer(runs, "error", lambda layer: layer.error, "Absolute quantisation error", "‖w̃ − λ*b‖²",
                  "The same without the division, on a logarithmic scale; lower is better. It grows with the layer and "
                  "with the scale of its weights: RBNN's are standardised, XNOR-Net's are small, so compare only runs "
                  "of one method. The paper uses it in figure 2b.", logarithmic=True),
        spread(runs, "angle_over_training", "angle", "Angle over training", "θ, degrees",
               "The angle after each epoch. It decreases when weights move towards their signs."),
    ]  # fmt: skip
    return [figure for figure in figures if figure.rows]


def _flips(runs: list[Analysed]) -> list[Figure]:
    figures = [
        per_layer(runs, "flips", lambda layer: layer.flips, "Flips from initialisation", "% of the signs",
                  "Share of signs that differ from those of the initial weights. Chance or any random rotation gives "
                  "half (dotted). Figure 7 of the paper: RBNN is near 50 % in every layer, XNOR-Net far below.",
                  (0.5, "chance"), factor=100.0, bottom=0.0),
        spread(runs, "epoch_flips", "epoch_flips", "Flips from epoch to epoch", "% of the signs",
               "Share of signs that changed within an epoch, from the second on. It should decrease as the network "
               "settles; a jump means that a rotation was updated.",
               factor=100.0, first=2),
    ]  # fmt: skip
    return [figure for figure in figures if figure.rows]


def _alpha(runs: list[Analysed]) -> list[Figure]:
    figure = spread(
        runs, "alpha", "alpha", "α over training", "α = |sin β|",
        "How far the weights follow the rotation: 1 is completely, 0 not at all. Figure 4c of the paper: α of one "
        "layer changes during training.",
        limits=(0.0, 1.03),
    )  # fmt: skip
    return [figure] if figure.rows else []


def _gradients(runs: list[Analysed]) -> list[Figure]:
    users: dict[Gradient, dict[str, list[str]]] = {}
    for each in runs:
        for of, gradient in each.gradients.items():
            users.setdefault(gradient, {}).setdefault(of, []).append(each.name)
    figures = []
    for number, (gradient, named) in enumerate(users.items(), 1):
        used_by = [f"{listed(names, of=len(runs))} for {of}" for of, names in named.items()]
        figures.append(approximation(f"gradient_{number}", gradient, "; ".join(used_by)))
    return figures


def networks(runs: list[Analysed]) -> list[tuple[str, Costs]]:
    """The different networks among the runs: (names of the runs, costs)."""
    found: dict[str, tuple[list[str], Costs]] = {}
    for each in runs:
        if each.costs is not None:
            found.setdefault(repr(each.costs.layers), ([], each.costs))[0].append(each.name)
    return [(listed(names, of=len(runs)), counted) for names, counted in found.values()]


def _costs(runs: list[Analysed], times: list[Timed]) -> list[Figure]:
    figures = [cost_figure(f"costs_{number}", *found) for number, found in enumerate(networks(runs), 1)]
    return figures + [time_figure(f"time_{number}", timed) for number, timed in enumerate(times, 1)]
