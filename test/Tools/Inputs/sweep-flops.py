# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks how a sweep counts FLOPs: against the numbers that Dietrich et al.
# print, and in a table of the unigram step.

import csv
import sys

sys.path.insert(0, sys.argv[1])
from sweep.results import sequence_flops

# name, layers, hidden, share stored, FLOPs as printed
PAPER = [("Mini", 4, 256, 1, "2.617e+09"), ("Small", 4, 512, 1, "1.007e+10"),
         ("Medium", 8, 512, 0.1, "2.738e+09"), ("Base", 12, 768, 0.1, "8.33e+09")]
for name, layers, hidden, share, printed in PAPER:
    flops = sequence_flops({"layers": layers, "hidden": hidden, "tokens": 128}, share)
    # Medium and Base store a little more than a tenth: whole blocks.
    assert abs(flops / float(printed) - 1) < 1e-3, (name, flops)

# 120 steps of 4 sequences of 16 tokens; 2 layers, 32 wide. The step stores 4 of
# 16 blocks; of 24,576 elements that leaves these for blocks of 16 or 256.
ELEMENTS = 12 * 32**2 * 2
stored = {"": ELEMENTS, "4": ELEMENTS - 12 * 16, "2x8": ELEMENTS - 12 * 16,
          "16": ELEMENTS - 12 * 256}
with open(sys.argv[2]) as file:
    rows = list(csv.DictReader(file))
assert len(rows) == 8, rows
for row in rows:
    expected = 120 * 4 * 3 * 16 * (2 * stored[row["block"]] + 4 * 16 * 32 * 2)
    assert abs(float(row["flops"]) * 1e12 / expected - 1) < 1e-9, row
    assert float(row["time"]) > 0 and float(row["memory"]) > 1, row
