# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks what a sweep of the unigram step says of FLOPs and of time.

import csv
import json
import sys
from pathlib import Path

from sparse_opt.experiments.results import undisturbed

# Times are those of an undisturbed machine.
times = [{"step": 0}, {"step_time": 3}, {"step_time": 2, "update_time": 0.5},
         {"step_time": 9}, {"step_time": 2, "update_time": 0.25}]
assert undisturbed(times, "step_time") == (2, 4)
assert undisturbed(times, "update_time") == (0.25, 2)
assert undisturbed(times, "none") == (0, 0)

# 120 steps, each of 1,000 operations and 30 for each of 4 stored blocks.
STEP = 1000 + 30 * 4
folder = Path(sys.argv[1])
with open(folder / "grid.csv") as file:
    rows = list(csv.DictReader(file))
assert len(rows) == 8, rows
for row in rows:
    assert abs(float(row["flops"]) * 1e12 / (120 * STEP) - 1) < 1e-9, row
    assert float(row["time"]) > 0 and float(row["memory"]) > 1, row
runs = list((folder / "runs").iterdir())
assert len(runs) == 8, runs
for run in runs:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line.get("flops") for line in lines] == [None] + 120 * [STEP], run
    assert json.loads((run / "summary.json").read_text())["training_flops"] == 120 * STEP, run
