# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# bytes.py DENSE SPARSE RUNS: of two runs of the same step by two processes, each
# of which ran it RUNS times, checks that the second sent as much less than the first
# as its patterns leave out of the gradients of marked weights, f32 in blocks of 16 x 16.

import json
import sys
from pathlib import Path

dense, sparse = (json.loads((Path(run) / "summary.json").read_text()) for run in sys.argv[1:3])
runs = int(sys.argv[3])
assert dense["processes"] == sparse["processes"] == 2
assert dense["reductions"] == sparse["reductions"], (dense, sparse)
block = 16 * 16 * 4
stored, blocks = sparse["blocks_stored"], sparse["blocks"]
saved = dense["bytes_reduced"] - sparse["bytes_reduced"]
# What is sent of marked weights, if they are all of the difference.
values = blocks * block * runs - saved
print(f"{stored} of {blocks} blocks stored: {values / (blocks * block * runs):.4f} of the bytes of dense gradients")
assert values == stored * block * runs
# A half of the bytes is sent to be added, and a half as a mean; chunks are whole.
for run in (dense, sparse):
    assert run["bytes_reduced"] <= run["bytes_sent"] <= 1.01 * run["bytes_reduced"], run
