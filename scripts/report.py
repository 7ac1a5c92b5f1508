# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares training runs: a table on the standard output, and a plot.

"""Reads the run folders of sparse-train.

    python3 scripts/report.py RUN... [--output PLOT.svg]

prints one table with a column for each run, named as its folder, and draws the
losses and the turnover of the patterns over the steps.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

COLORS = ["#1f5fa8", "#c8641e", "#3c8c46", "#8c3c8c"]
GREY = "#666"

# The picture: two panels over one axis of steps, in pixels.
WIDTH, LEFT, RIGHT = 760, 70, 740
LOSS = (46, 330)
TURNOVER = (370, 480)
HEIGHT = 530

ROWS = [
    ("held-out loss at the start", "nats", lambda s: f"{s['held_out_start']:.3f}"),
    ("held-out loss at the end", "nats", lambda s: f"{s['held_out_end']:.3f}"),
    ("unigram entropy of the data", "nats", lambda s: f"{s['unigram_entropy']:.3f}"),
    ("step, median", "ms", lambda s: f"{s['median_step_time'] * 1e3:.1f}"),
    ("tokens per second", "", lambda s: f"{s['tokens_per_s']:,.0f}"),
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

    def __init__(self, path):
        try:
            self.summary = json.loads((path / "summary.json").read_text())
            lines = (path / "metrics.jsonl").read_text().splitlines()
            self.metrics = [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            sys.exit(f"error: expected '{path}' to hold a finished run, but got: {error}")
        self.name = path.name

    def series(self, key, scale=1):
        return [(m["step"], m[key] * scale) for m in self.metrics if key in m]


def table(runs):
    """Returns the comparison as a Markdown table."""
    rows = [["", *(run.name for run in runs)]]
    for label, unit, value in ROWS:
        rows.append([f"{label} ({unit})" if unit else label,
                     *(value(run.summary) for run in runs)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append(f"| {' | '.join(cells)} |")
    lines.insert(1, f"|{'-' * (widths[0] + 2)}|"
                    + "".join(f"{'-' * (width + 1)}:|" for width in widths[1:]))
    return "\n".join(lines)


def ticks(low, high, count):
    """Returns about `count` round numbers from `low` to `high`."""
    rough = max(high - low, 1e-9) / count
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def smooth(points, span=10):
    """Returns the running mean over `span` points."""
    return [(x, sum(y for _, y in points[max(0, i + 1 - span):i + 1]) / min(i + 1, span))
            for i, (x, _) in enumerate(points)]


class Panel:
    """A pair of axes, and what is drawn between them."""

    def __init__(self, vertical, steps, low, high):
        self.top, self.bottom = vertical
        self.steps, self.low, self.high = steps, low, high
        self.parts = []

    def x(self, step):
        return LEFT + (RIGHT - LEFT) * step / self.steps

    def y(self, value):
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - (self.bottom - self.top) * share

    def text(self, x, y, text, anchor="start", color=GREY, extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
                          f'fill="{color}"{extra}>{escape(text)}</text>')

    def line(self, points, color, width=1.0, extra=""):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" '
                          f'stroke-width="{width}"{extra}/>')

    def dots(self, points, color):
        self.parts += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{color}"/>'
                       for x, y in points]

    def bars(self, points, color, shift):
        self.parts += [f'<rect x="{self.x(x) + shift:.1f}" y="{self.y(y):.1f}" width="4" '
                       f'height="{self.bottom - self.y(y):.1f}" fill="{color}"/>'
                       for x, y in points]

    def axes(self, label):
        for value in ticks(self.low, self.high, 5):
            self.line([(0, value), (self.steps, value)], "#e4e4e4")
            self.text(LEFT - 8, self.y(value) + 4, f"{value:g}", "end")
        for step in ticks(0, self.steps, 8):
            self.text(self.x(step), self.bottom + 18, f"{step:g}", "middle")
        self.line([(0, self.high), (0, self.low), (self.steps, self.low)], GREY)
        middle = (self.top + self.bottom) / 2
        self.text(18, middle, label, "middle", extra=f' transform="rotate(-90 18 {middle})"')


def plot(runs):
    """Returns the SVG: losses above, turnover of the patterns below."""
    steps = max(run.summary["steps"] for run in runs)
    entropy = runs[0].summary["unigram_entropy"]
    values = [entropy]
    for run in runs:
        values += [y for _, y in smooth(run.series("loss")) + run.series("held_out")]
    margin = 0.05 * (max(values) - min(values)) or 1
    loss = Panel(LOSS, steps, min(values) - margin, max(values) + margin)
    loss.axes("loss (nats per token)")
    loss.line([(0, entropy), (steps, entropy)], "#222", 1.2, ' stroke-dasharray="6 4"')

    most = max((y for run in runs for _, y in run.series("turnover", 100)), default=0)
    turnover = Panel(TURNOVER, steps, 0, most * 1.1 or 1)
    turnover.axes("blocks replaced (%)")
    turnover.text((LEFT + RIGHT) / 2, HEIGHT - 10, "step", "middle")

    for i, run in enumerate(runs):
        color = COLORS[i % len(COLORS)]
        loss.line(smooth(run.series("loss")), color, 1, ' stroke-opacity="0.45"')
        loss.line(run.series("held_out"), color, 2)
        loss.dots(run.series("held_out"), color)
        turnover.bars(run.series("turnover", 100), color, 4 * i - 2)
        loss.text(LEFT + 150 * i, 24, f"● {run.name}", color=color, extra=' font-weight="bold"')
    loss.text(RIGHT, loss.y(entropy) - 6, f"unigram entropy {entropy:.3f}", "end", "#222",
              ' stroke="white" stroke-width="4" paint-order="stroke"')
    loss.text(RIGHT, 24, "thick: held out, thin: training (mean of 10)", "end")
    body = "\n".join(loss.parts + turnover.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'font-family="sans-serif" font-size="13">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description="Compares training runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--output", type=Path, metavar="PLOT.svg")
    options = parser.parse_args()
    runs = [Run(path) for path in options.runs]
    print(table(runs))
    if options.output:
        options.output.write_text(plot(runs))


if __name__ == "__main__":
    main()
