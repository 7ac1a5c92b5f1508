# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The page that compares training runs.

"""HTML that needs no other file and no script."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from sparse_opt.experiments.figures import LOG, Figure, smooth
from sparse_opt.experiments.page import STYLE
from sparse_opt.experiments.runs import NoRun, Points, parse, read_all, read_config, read_lines, series

# A color for each of many runs.
COLORS = ["#1f5fa8", "#c8641e", "#3c8c46", "#8c3c8c", "#b8332e", "#2a9d9d", "#8a6d1f", "#555555"]

# What is shown of a run beside its configuration.
RESULTS: list[tuple[str, Callable[[Run], str]]] = [
    ("held-out loss", lambda run: f"{run.last('held_out'):.4f}"),
    ("training loss", lambda run: f"{run.last('loss'):.4f}"),
    ("steps", lambda run: f"{run.last('step'):,}"),
    ("ms a step, median", lambda run: f"{run.median('step_time') * 1e3:.3g}"),
    ("peak MiB", lambda run: f"{run.last('peak_memory') / 2**20:,.0f}"),
    ("stored", lambda run: f"{run.last('density'):.2%}"),
    ("ever used", lambda run: f"{run.last('used'):.2%}"),
]


class Run:
    """A run that may be going on."""

    def __init__(self, path: Path) -> None:
        try:
            self.config = dict(read_config((path / "config.yaml").read_text()))
            self.metrics = read_lines(path / "metrics.jsonl")
            summary = path / "summary.json"
            self.summary = parse(summary.read_text()) if summary.exists() else {}
        except (OSError, ValueError) as error:
            raise NoRun(f"expected '{path}' to hold a run, but got: {error}") from None
        self.name = path.resolve().name

    def series(self, key: str, scale: float = 1) -> Points:
        return series(self.metrics, key, scale)

    def last(self, key: str) -> Any:
        return self.series(key)[-1][1]

    def median(self, key: str) -> float:
        values = sorted(value for _, value in self.series(key))
        return values[len(values) // 2]


def tell(value: Callable[[Run], str], run: Run) -> str:
    """Returns `value(run)`, where its metrics know it."""
    try:
        return value(run)
    except (IndexError, TypeError):
        return "unknown"


def table(runs: list[Run]) -> str:
    """Returns the runs with what differs between them, and what came of it."""
    keys = dict.fromkeys(key for run in runs for key in run.config if key != "run")
    differ = [key for key in keys if len({run.config.get(key, "") for run in runs}) > 1]
    head = "".join(f"<th>{escape(name)}</th>" for name in ["run", *differ])
    head += "".join(f'<th class="number">{escape(name)}</th>' for name, _ in RESULTS)
    rows = [f"<tr>{head}</tr>"]
    for i, run in enumerate(runs):
        color = COLORS[i % len(COLORS)]
        cells = f'<td><b style="color: {color}">●</b> {escape(run.name)}</td>'
        cells += "".join(f"<td>{escape(run.config.get(key, ''))}</td>" for key in differ)
        cells += "".join(f'<td class="number">{tell(value, run)}</td>' for _, value in RESULTS)
        rows.append(f"<tr>{cells}</tr>")
    return f'<div class="scroll"><table class="plain">{"".join(rows)}</table></div>'


def figures(runs: list[Run]) -> str:
    """Returns the figures, a curve for each run."""
    steps = max(int(run.config["steps"]) for run in runs)
    parts = []
    for title, key, scale, low, has_log in (
        ("held-out loss", "held_out", 1, None, True),
        ("training loss, mean of 10", "loss", 1, None, True),
        ("held-out accuracy", "held_out_accuracy", 1, 0, False),
        ("learning rate", "lr", 1, 0, False),
        ("density (%)", "density", 100, 0, False),
        ("positions ever used (%)", "used", 100, 0, False),
        ("blocks replaced by an update (%)", "turnover", 100, 0, False),
        ("time of a step (ms), mean of 10", "step_time", 1e3, 0, True),
    ):
        # The table has the colors.
        figure = Figure(title, steps, legend=False)
        for i, run in enumerate(runs):
            points = run.series(key, scale)
            if "mean of 10" in title:
                points = smooth(points)
            figure.curve(run.name, points, COLORS[i % len(COLORS)], dots=len(points) < 60)
        if figure.curves:
            parts.append(figure.both(low) if has_log else figure.draw(low))
    return "\n".join(parts)


def comparison(paths: list[Path]) -> str:
    """Returns the page of the runs in these folders."""
    runs = read_all(paths, Run)
    body = (f"<h1>{len(runs)} runs</h1><p>What differs in their configurations, and what came of "
            f"it.</p>{table(runs)}<h2>Curves</h2><p>The colors are those of the table; point at "
            f'a curve for its run and numbers.</p>{LOG}<div class="figures">{figures(runs)}</div>')
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"<title>{len(runs)} runs</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n"
            "</body>\n</html>\n")
