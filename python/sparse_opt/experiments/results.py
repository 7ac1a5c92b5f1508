# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What runs came to: their measures, their FLOPs, their means over seeds, tables.

"""Measures of runs, and the tables of them."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sparse_opt.experiments.grid import Grid, Labels, Run
from sparse_opt.experiments.runs import Line

Measures = dict[str, float]

MEASURES = [
    # name in the CSV, heading, unit
    ("held_out", "held-out loss", "nats"),
    ("flops", "training FLOPs", "1e12"),
    ("time", "training time", "s"),
    ("step_ms", "step", "ms"),
    ("memory", "peak memory", "MiB"),
]


def undisturbed(metrics: Sequence[Line], key: str) -> tuple[float, int]:
    """Returns (the fastest, how many) of what metrics time as `key`. Runs go side
    by side, and what else a machine does slows all but the fastest of them."""
    times = [line[key] for line in metrics if key in line]
    return min(times, default=0), len(times)


def columns(grid: Grid) -> list[tuple[str, str, str]]:
    """Returns (name, heading, unit) of what tables have of a run: those of the grid behind
    the loss."""
    own = [(name, entry.heading, entry.unit) for name, entry in grid.measures.items()]
    return [MEASURES[0], *own, *MEASURES[1:]]


def measure(folder: Path, own: Iterable[str] = ()) -> Measures | None:
    """Returns the measures of a run that is done, and of its summary those that a grid has of
    its `own`; none if it is not. What a program does not say is unknown."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        metrics = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return None
    def known(key: str) -> float:
        value = summary.get(key)
        return math.nan if value is None else value

    step, steps = undisturbed(metrics, "step_time")
    update, updates = undisturbed(metrics, "update_time")
    # No FLOPs of a step that was compiled before the compiler counted them.
    return {"held_out": summary["held_out_end"], **{name: known(name) for name in own},
            "flops": (known("training_flops") or math.nan) / 1e12,
            "time": step * steps + update * updates if steps else math.nan,
            "step_ms": step * 1e3 if steps else math.nan,
            "memory": known("peak_memory") / 2**20}


class Group:
    """The runs that differ in nothing but the seed."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.runs: list[tuple[str, Measures]] = []  # by seeds

    def mean(self, name: str) -> float:
        return statistics.fmean(measures[name] for _, measures in self.runs)

    def deviation(self, name: str) -> float:
        """Returns the standard deviation over the seeds; 0 for one run."""
        values = [measures[name] for _, measures in self.runs]
        return statistics.stdev(values) if len(values) > 1 else 0.0


def group(grid: Grid, done: Mapping[Run, Measures]) -> list[Group]:
    """Returns the groups of the runs in `done`, which maps runs to measures."""
    groups: dict[tuple[str, ...], Group] = {}
    for run in grid.whole(done):
        labels = {**run.labels(),
                  **{key: str(run.settings.get(key, "")) for key in grid.varied}}
        entry = groups.setdefault(tuple(labels.values()), Group(labels))
        entry.runs.append((run.settings["seed"], done[run]))
    return list(groups.values())


def frontier(groups: Sequence[Group], cost: str) -> list[Group]:
    """Returns the groups that no other beats in both loss and cost, by cost."""
    best: list[Group] = []
    for entry in sorted(groups, key=lambda g: (g.mean(cost), g.mean("held_out"))):
        if not best or entry.mean("held_out") < best[-1].mean("held_out"):
            best.append(entry)
    return best


def digits(value: float) -> str:
    """Returns a number in plain notation, to four digits at least."""
    if math.isnan(value):
        return "unknown"
    before = math.floor(math.log10(value)) + 1 if value > 0 else 1
    return f"{value:,.{max(0, 4 - before)}f}"


def markdown(grid: Grid, groups: Sequence[Group]) -> str:
    """Returns a table with a row for each group. Of a program it has what that says."""
    if not groups:
        return "no seed is done\n" if grid.has_whole_seeds else "no run is done\n"
    names = list(groups[0].labels)
    shown = [column for column in columns(grid) if not grid.program
             or not all(math.isnan(entry.mean(column[0])) for entry in groups)]
    rows = [names + ["runs"] + [f"{heading} ({unit})" for _, heading, unit in shown]]
    for entry in groups:
        row = list(entry.labels.values()) + [str(len(entry.runs))]
        for name, *_ in shown:
            is_outcome = name == "held_out" or name in grid.measures
            text = digits(entry.mean(name))
            if is_outcome and not math.isnan(entry.mean(name)):
                text = f"{entry.mean(name):.4f}"
                text += f" ± {entry.deviation(name):.4f}" if len(entry.runs) > 1 else ""
            row.append(text)
        rows.append(row)
    return layout(rows, len(names))


def layout(rows: Sequence[Sequence[str]], left: int) -> str:
    """Returns rows as a Markdown table, of which `left` columns are words."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) if i < left else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append(f"| {' | '.join(cells)} |")
    rule = ["-" * (width + 2) if i < left else "-" * (width + 1) + ":"
            for i, width in enumerate(widths)]
    lines.insert(1, f"|{'|'.join(rule)}|")
    return "\n".join(lines) + "\n"


def table(grid: Grid, groups: Sequence[Group]) -> str:
    """Returns a CSV with a row for each run, unrounded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(groups[0].labels) if groups else []
    writer.writerow(names + ["seed"] + [name for name, *_ in columns(grid)])
    for entry in groups:
        for seed, measures in entry.runs:
            writer.writerow([*entry.labels.values(), seed, *measures.values()])
    return out.getvalue()
