# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks how a sweep counts FLOPs: against the numbers that Dietrich et al.
# print, and in a table of the unigram step.

import csv
import sys
from types import SimpleNamespace

sys.path.insert(0, sys.argv[1])
from sweep.results import sequence_flops, training_flops, undisturbed

# name, layers, hidden, share stored, FLOPs as printed
PAPER = [("Mini", 4, 256, 1, "2.617e+09"), ("Small", 4, 512, 1, "1.007e+10"),
         ("Medium", 8, 512, 0.1, "2.738e+09"), ("Base", 12, 768, 0.1, "8.33e+09")]
for name, layers, hidden, share, printed in PAPER:
    flops = sequence_flops({"layers": layers, "hidden": hidden, "tokens": 128}, share)
    # Medium and Base store a little more than a tenth: whole blocks.
    assert abs(flops / float(printed) - 1) < 1e-3, (name, flops)

# A run whose density falls: 30 steps at 1, 10 at a half, 60 at a quarter, of
# half of the elements; the others are not marked.
shape = {"layers": 2, "hidden": 32, "tokens": 16, "batch": 4}
run = SimpleNamespace(model=SimpleNamespace(name="falling", shape=shape), settings={"accumulate": "3"},
                      block=lambda: (4, 8))
changes = [{"step": 0, "density": 1}, {"step": 7}, {"step": 30, "density": 0.5},
           {"step": 40, "density": 0.25}]
flops = training_flops(run, {"blocks": 384, "steps": 100}, changes)
assert flops == 4 * 3 * sum(steps * sequence_flops(shape, share)
                        for steps, share in [(30, 1), (10, 0.75), (60, 0.625)]), flops

# Times are those of an undisturbed machine.
times = [{"step": 0}, {"step_time": 3}, {"step_time": 2, "update_time": 0.5},
         {"step_time": 9}, {"step_time": 2, "update_time": 0.25}]
assert undisturbed(times, "step_time") == (2, 4)
assert undisturbed(times, "update_time") == (0.25, 2)
assert undisturbed(times, "none") == (0, 0)

# 120 steps of 4 sequences of 16 tokens; 2 layers, 32 wide. The step stores 4 of
# 16 blocks; of 24,576 elements that leaves these for blocks of 16 or 256.
ELEMENTS = 12 * 32**2 * 2
stored = {"": ELEMENTS - 12 * 256, "4": ELEMENTS - 12 * 16, "2x8": ELEMENTS - 12 * 16,
          "16": ELEMENTS - 12 * 256}
with open(sys.argv[2]) as file:
    rows = list(csv.DictReader(file))
assert len(rows) == 8, rows
for row in rows:
    expected = 120 * 4 * 3 * 16 * (2 * stored[row["block"]] + 4 * 16 * 32 * 2)
    assert abs(float(row["flops"]) * 1e12 / expected - 1) < 1e-9, row
    assert float(row["time"]) > 0 and float(row["memory"]) > 1, row
