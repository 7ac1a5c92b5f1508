# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks the table of predictions in a sweep's Markdown by its CSV.

import csv
import math
import sys

with open(sys.argv[1]) as file:
    loss = {(row["method"], row["block"], row["seed"]): float(row["held_out"])
            for row in csv.DictReader(file)}
with open(sys.argv[2]) as file:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in file]
start = next(i for i, line in enumerate(lines) if line and line[0] == "claim")
found = lines[start + 2:]

expected = []
for say, better, than, claim in [
    ("change beats rest", ("dynamic", "4"), ("dense", ""), "beats"),
    ("change beats rest", ("dynamic", "2x8"), ("dense", ""), "beats"),
    ("half beats a tenth", ("gentle", "16"), ("dynamic", "4"), "no worse"),
    ("half beats a tenth", ("gentle", "16"), ("dynamic", "2x8"), "no worse"),
]:
    a, b = (loss[(*than, seed)] - loss[(*better, seed)] for seed in "01")
    mean, error = (a + b) / 2, abs(a - b) / 2  # of two values
    if claim == "no worse":
        verdict = "no" if mean < -2 * error else "yes"
    else:
        verdict = "undecided" if abs(mean) <= 2 * error else "yes" if mean > 0 else "no"
    row = {"change beats rest": [f"method dynamic, block {better[1]}, density 0.1",
                                 "method dense, density 1"],
           "half beats a tenth": ["method gentle, density 0.5, block 16",
                                  f"method dynamic, density 0.1, block {than[1]}"]}[say]
    expected.append([say, *row, "", "held-out loss (nats)", f"{mean:+.4f} ± {error:.4f}",
                     f"{2 * error:.4f}", f"{(a > 0) + (b > 0)} of 2", verdict])
assert not any(math.isnan(value) for value in loss.values())
assert found == expected, f"expected {expected}, but got {found}"
