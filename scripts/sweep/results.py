# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What runs came to: their measures, their FLOPs, their means over seeds, tables.

import csv
import io
import json
import math
import statistics

from sweep.grid import expect

MEASURES = [
    # name in the CSV, heading, unit
    ("held_out", "held-out loss", "nats"),
    ("flops", "training FLOPs", "1e12"),
    ("time", "training time", "s"),
    ("step_ms", "step", "ms"),
    ("memory", "peak memory", "MiB"),
]


def sequence_flops(shape, share):
    """Returns the FLOPs of one sequence in training, forward and backward.

    Dietrich et al., appendix A.2: the matrices of a transformer have 12 H^2
    elements a layer, `share` of which is stored; the two products of attention
    are dense. Embedding and head do not count.
    """
    tokens, hidden, layers = shape["tokens"], shape["hidden"], shape["layers"]
    weights = 2 * 12 * hidden**2 * layers * share
    return 3 * tokens * (weights + 4 * tokens * hidden * layers)


def training_flops(run, summary, metrics):
    """Returns the FLOPs of a whole run. What no mark matches is dense; of the
    rest, metrics have the share that is stored wherever it may have changed."""
    shape, (rows, cols) = run.model.shape, run.block()
    elements = 12 * shape["hidden"] ** 2 * shape["layers"]
    marked = summary["blocks"] * rows * cols
    expect(marked <= elements, f"the shape of model '{run.model.name}' to be that of its step, "
           f"of whose matrices {marked:,} elements are marked", f"one of {elements:,} elements")
    changes = [(line["step"], line["density"]) for line in metrics if "density" in line]
    ends = [step for step, _ in changes[1:]] + [summary["steps"]]
    batch = shape["batch"] * int(run.settings.get("accumulate", 1))
    return sum((end - begin) * batch
               * sequence_flops(shape, 1 - (1 - density) * marked / elements)
               for (begin, density), end in zip(changes, ends))


def undisturbed(metrics, key):
    """Returns (the fastest, how many) of what metrics time as `key`. Runs go side
    by side, and what else a machine does slows all but the fastest of them."""
    times = [line[key] for line in metrics if key in line]
    return min(times, default=0), len(times)


def measure(run, folder):
    """Returns the measures of a run that is done; none if it is not."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        metrics = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return None
    flops = training_flops(run, summary, metrics)
    step, steps = undisturbed(metrics, "step_time")
    update, updates = undisturbed(metrics, "update_time")
    return {"held_out": summary["held_out_end"], "flops": flops / 1e12,
            "time": step * steps + update * updates, "step_ms": step * 1e3,
            "memory": summary["peak_memory"] / 2**20}


class Group:
    """The runs that differ in nothing but the seed."""

    def __init__(self, labels):
        self.labels = labels
        self.runs = []  # (seed, measures)

    def mean(self, name):
        return statistics.fmean(measures[name] for _, measures in self.runs)

    def deviation(self, name):
        """Returns the standard deviation over the seeds; 0 for one run."""
        values = [measures[name] for _, measures in self.runs]
        return statistics.stdev(values) if len(values) > 1 else 0.0


def group(grid, done):
    """Returns the groups of the runs in `done`, which maps runs to measures."""
    groups = {}
    for run in grid.runs:
        if run not in done:
            continue
        labels = {**run.labels(),
                  **{key: str(run.settings.get(key, "")) for key in grid.varied}}
        entry = groups.setdefault(tuple(labels.values()), Group(labels))
        entry.runs.append((run.settings["seed"], done[run]))
    return list(groups.values())


def frontier(groups, cost):
    """Returns the groups that no other beats in both loss and cost, by cost."""
    best = []
    for entry in sorted(groups, key=lambda g: (g.mean(cost), g.mean("held_out"))):
        if not best or entry.mean("held_out") < best[-1].mean("held_out"):
            best.append(entry)
    return best


def digits(value):
    """Returns a number in plain notation, to four digits at least."""
    before = math.floor(math.log10(value)) + 1 if value > 0 else 1
    return f"{value:,.{max(0, 4 - before)}f}"


def markdown(groups):
    """Returns a table with a row for each group."""
    if not groups:
        return "no run is done\n"
    names = list(groups[0].labels)
    rows = [names + ["runs"] + [f"{heading} ({unit})" for _, heading, unit in MEASURES]]
    for entry in groups:
        row = list(entry.labels.values()) + [str(len(entry.runs))]
        for name, *_ in MEASURES:
            if name == "held_out":
                text = f"{entry.mean(name):.4f}"
                text += f" ± {entry.deviation(name):.4f}" if len(entry.runs) > 1 else ""
            else:
                text = digits(entry.mean(name))
            row.append(text)
        rows.append(row)
    return layout(rows, len(names))


def layout(rows, left):
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


def table(groups):
    """Returns a CSV with a row for each run, unrounded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(groups[0].labels) if groups else []
    writer.writerow(names + ["seed"] + [name for name, *_ in MEASURES])
    for entry in groups:
        for seed, measures in entry.runs:
            writer.writerow([*entry.labels.values(), seed, *measures.values()])
    return out.getvalue()
