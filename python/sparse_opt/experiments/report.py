# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The command sparse-report.

"""Reads the run folders of sparse-train.

    sparse-report RUN... [--output PLOT.svg]

prints one table with a column for each run, named as its folder, and draws the
losses and the turnover of the patterns over the steps.

    sparse-report --html RUN...

writes RUN/report.html for each: one page that needs nothing else, with its
losses, rates, times, patterns, densities and configuration. The run may still be
going on.

    sparse-report --compare PAGE.html RUN...

writes such a page of all: their curves together, what differs in their configurations
beside what came of it. A folder without a run, as one that failed before it began
leaves it, is left out with a warning.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparse_opt.experiments.comparison import comparison
from sparse_opt.experiments.figures import COLORS, Panel, smooth, svg
from sparse_opt.experiments.page import page
from sparse_opt.experiments.results import layout
from sparse_opt.experiments.runs import NoRun, Points, parse, read_all, read_lines, series

# The picture: two panels over one axis of steps, in pixels.
WIDTH, LEFT, RIGHT = 760, 70, 740
LOSS = (46, 330)
TURNOVER = (370, 480)
HEIGHT = 530

Summary = dict[str, Any]


def perplexity(summary: Summary) -> str:
    """Returns what text tasks report beside the loss: its exponential."""
    if summary.get("unigram_entropy") is None:
        raise KeyError("unigram_entropy")
    return f"{math.exp(min(summary['held_out_end'], 99)):,.4g}"


ROWS: list[tuple[str, str, Callable[[Summary], str]]] = [
    ("held-out loss at the start", "nats", lambda s: f"{s['held_out_start']:.3f}"),
    ("held-out loss at the end", "nats", lambda s: f"{s['held_out_end']:.3f}"),
    ("held-out perplexity at the end", "", perplexity),
    ("unigram entropy of the data", "nats", lambda s: f"{s['unigram_entropy']:.3f}"),
    ("step, median", "ms", lambda s: f"{s['median_step_time'] * 1e3:.1f}"),
    ("tokens per second", "", lambda s: f"{s['tokens_per_s']:,.0f}"),
    ("training FLOPs", "1e12", lambda s: f"{s['training_flops'] / 1e12:,.4g}"),
    ("peak memory", "MiB", lambda s: f"{s['peak_memory'] / 2**20:,.0f}"),
    ("blocks stored", "", lambda s: f"{s['blocks_stored']:,} of {s['blocks']:,}"),
    ("products compiled sparse", "", lambda s: f"{s['sparse_products']:,}"),
    ("products left dense", "", lambda s: f"{s['left_dense']:,}"),
    ("pattern updates", "", lambda s: f"{s['pattern_updates']:,}"),
    ("blocks pruned and regrown", "",
     lambda s: f"{s['blocks_pruned']:,} and {s['blocks_regrown']:,}"),
    ("recompilations", "", lambda s: f"{s['recompilations']:,}"),
    ("reallocations", "", lambda s: f"{s['reallocations']:,}"),
]


class Run:
    """A finished run: its summary, and its metrics by step."""

    def __init__(self, path: Path) -> None:
        try:
            self.summary: Summary = parse((path / "summary.json").read_text())
            self.metrics = read_lines(path / "metrics.jsonl")
        except (OSError, ValueError) as error:
            raise NoRun(f"expected '{path}' to hold a finished run, but got: {error}") from None
        self.name = path.name

    def series(self, key: str, scale: float = 1) -> Points:
        return series(self.metrics, key, scale)


def cell(value: Callable[[Summary], str], summary: Summary) -> str:
    """Returns `value(summary)`, where the summary knows it."""
    try:
        return value(summary)
    except KeyError:
        return "unknown"


def table(runs: list[Run]) -> str:
    """Returns the comparison as a Markdown table."""
    rows = [["", *(run.name for run in runs)]]
    for label, unit, value in ROWS:
        rows.append([f"{label} ({unit})" if unit else label,
                     *(cell(value, run.summary) for run in runs)])
    return layout(rows, 1)


def plot(runs: list[Run]) -> str:
    """Returns the SVG: losses above, turnover of the patterns below."""
    steps = max(run.summary["steps"] for run in runs)
    entropy = runs[0].summary.get("unigram_entropy")
    values = [entropy] if entropy is not None else []
    for run in runs:
        values += [y for _, y in smooth(run.series("loss")) + run.series("held_out")]
    margin = 0.05 * (max(values) - min(values)) or 1
    loss = Panel((LEFT, RIGHT), LOSS, steps, min(values) - margin, max(values) + margin)
    loss.axes("loss (nats per token)")
    if entropy is not None:
        loss.line([(0, entropy), (steps, entropy)], "#222", 1.2, ' stroke-dasharray="6 4"')

    most = max((y for run in runs for _, y in run.series("turnover", 100)), default=0)
    turnover = Panel((LEFT, RIGHT), TURNOVER, steps, 0, most * 1.1 or 1)
    turnover.axes("blocks replaced (%)")
    turnover.text((LEFT + RIGHT) / 2, HEIGHT - 10, "step", "middle")

    for i, run in enumerate(runs):
        color = COLORS[i % len(COLORS)]
        loss.line(smooth(run.series("loss")), color, 1, ' stroke-opacity="0.45"')
        loss.line(run.series("held_out"), color, 2)
        loss.dots(run.series("held_out"), color)
        turnover.bars(run.series("turnover", 100), color, 4 * i - 2)
        loss.text(LEFT + 150 * i, 24, f"● {run.name}", color=color, extra=' font-weight="bold"')
    if entropy is not None:
        loss.text(RIGHT, loss.y(entropy) - 6, f"unigram entropy {entropy:.3f}", "end", "#222",
                  ' stroke="white" stroke-width="4" paint-order="stroke"')
    loss.text(RIGHT, 24, "thick: held out, thin: training (mean of 10)", "end")
    return svg(WIDTH, HEIGHT, loss.parts + turnover.parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="sparse-report", description="Compares training runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--output", type=Path, metavar="PLOT.svg")
    parser.add_argument("--html", action="store_true")
    parser.add_argument("--compare", type=Path, metavar="PAGE.html")
    options = parser.parse_args()
    if options.compare:
        options.compare.write_text(comparison(options.runs))
        return
    if options.html:
        for path in options.runs:
            (path / "report.html").write_text(page(path))
        return
    runs = read_all(options.runs, Run)
    print(table(runs), end="")
    if options.output:
        options.output.write_text(plot(runs))


if __name__ == "__main__":
    main()
