"""A table of the paper with our numbers next to the paper's, as JSON and as Markdown."""

from dataclasses import asdict
from statistics import mean, stdev
from typing import Any

from rbnn import __version__
from rbnn.reproduce.plan import Budget, Run
from rbnn.reproduce.tables import TABLES, PaperTable, Row
from rbnn.training.config import CIRCUMSTANCES, TrainConfig, as_table
from rbnn.training.optimizer import warmup_epochs

NOTHING = "–"


def summarise(
    table: PaperTable, budget: Budget, runs: list[Run], failed: dict[str, str], asked_for: list[Row]
) -> dict[str, Any]:
    """Everything that a reader needs to judge the numbers.  ``runs`` are all runs of the table; unfinished ones do not
    count.  ``failed`` maps names of runs to errors.  The summary has the rows in ``asked_for``, and those that are
    already finished."""
    rows = []
    for row in table.rows:
        own = [run for run in runs if run.row is row]
        done = [(run, run.whole_log()) for run in own if run.done()]
        if not done and row not in asked_for:
            continue
        rows.append(
            {
                "row": row.name,
                "model": row.model,
                "method": row.method,
                "options": own[0].config.options,
                "paper": {"top1": row.top1, "top5": row.top5},
                "top1": _spread([log[-1]["top1"] for _, log in done]),
                "top5": _spread([log[-1]["top5"] for _, log in done]),
                "best_top1": _spread([max(entry["top1"] for entry in log) for _, log in done]),
                "seeds": [run.config.seed for run, _ in done],
                "runs": [str(run.out) for run, _ in done],
                "failed": {str(run.config.seed): failed[run.name] for run in own if run.name in failed},
            }
        )
    config = runs[0].config
    training = {key: getattr(config, key) for key in ("lr", "binary_lr", "momentum", "weight_decay", "decay")}
    training |= {"warmup_epochs": warmup_epochs(config), "also": _unusual(config)}
    return {
        "table": table.name,
        "title": table.title,
        "budget": asdict(budget) | training,
        "published_epochs": table.epochs,
        "rbnn": __version__,
        "rows": rows,
    }


def _unusual(config: TrainConfig) -> dict[str, Any]:
    """What else differs from an ordinary run, such as a teacher."""
    default, own = as_table(TrainConfig()), as_table(config)
    told = {"model", "method", "options", "data", "epochs", "batch_size", "accumulate", "limit", "seed", "lr"}
    told |= {"binary_lr", "momentum", "weight_decay", "decay", "warmup", *CIRCUMSTANCES}
    return {key: value for key, value in own.items() if key not in told and value != default.get(key)}


def _spread(values: list[float]) -> dict[str, Any] | None:
    """Mean and sample standard deviation over seeds.  A single value has no deviation."""
    if not values:
        return None
    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None, "values": values}


def budget_sentence(summary: dict[str, Any]) -> str:
    """The budget in words."""
    budget = summary["budget"]
    seeds = sorted({seed for row in summary["rows"] for seed in row["seeds"]})
    said = ", ".join(map(str, seeds)) if seeds else "none finished yet"
    faster = f" ({budget['binary_lr']:g} times that for binary weights)" if budget["binary_lr"] != 1 else ""
    epochs = "1 epoch" if budget["epochs"] == 1 else f"{budget['epochs']} epochs"
    same = budget["epochs"] == summary["published_epochs"]
    whose = "the published runs" if summary["table"] in TABLES else "the table"
    published = "" if same else f" ({whose}: {summary['published_epochs']})"
    also = "".join(f", {key} {value}" for key, value in budget["also"].items())
    return (
        f"{epochs} of {budget['images']:,} images of {budget['data']}{published}, batch {budget['batch_size']}, SGD, "
        f"lr {budget['lr']:g}{faster}, cosine to 0 after {budget['warmup_epochs']:g} epochs of warm-up{also}; "
        f"seeds: {said}. Every row has the same budget, data order and initial weights."
    )


def cells(summary: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the printed table."""
    shows_top5 = any(row["paper"]["top5"] is not None for row in summary["rows"])
    heads = ["row", "network", "method", "paper top-1 %", "ours top-1 %", "best epoch %"]
    heads += ["paper top-5 %", "ours top-5 %"] if shows_top5 else []
    lines = []
    for row in summary["rows"]:
        line = [row["row"], row["model"], row["method"], _number(row["paper"]["top1"])]
        ours = "failed" if row["failed"] and not row["top1"] else _cell(row["top1"])
        line += [ours, _cell(row["best_top1"])]
        line += [_number(row["paper"]["top5"]), _cell(row["top5"])] if shows_top5 else []
        lines.append(line)
    return heads, lines


def markdown(summary: dict[str, Any]) -> str:
    """The table as a document."""
    heads, lines = cells(summary)
    rule = ["---"] * 3 + ["---:"] * (len(heads) - 3)
    text = [f"# {summary['title']}", "", budget_sentence(summary), ""]
    text += [f"| {' | '.join(line)} |" for line in (heads, rule, *lines)]
    complaints = [(row["row"], seed, said) for row in summary["rows"] for seed, said in row["failed"].items()]
    text += ["", *(f"- {row}, seed {seed}, failed: {said}" for row, seed, said in complaints)] if complaints else []
    return "\n".join(text) + "\n"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def _cell(spread: dict[str, Any] | None) -> str:
    if spread is None:
        return NOTHING
    if spread["std"] is None:
        return f"{spread['mean']:.2f}"
    return f"{spread['mean']:.2f} ± {spread['std']:.2f} ({len(spread['values'])})"
