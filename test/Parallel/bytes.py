# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# bytes.py DENSE SPARSE RUNS STEP: of two runs of STEP by two processes, each of which ran it
# RUNS times, checks that the first sent a gradient of each parameter and the loss, once, all f32,
# and the second as much less as its patterns leave out of marked weights in blocks of 16 x 16.

import json
import math
import re
import sys
from pathlib import Path

dense, sparse = (json.loads((Path(run) / "summary.json").read_text()) for run in sys.argv[1:3])
runs = int(sys.argv[3])
assert dense["processes"] == sparse["processes"] == 2
assert dense["reductions"] == sparse["reductions"], (dense, sparse)
arguments = re.findall(r"tensor<((?:\d+x)*)f32> \{([^}]*)\}", Path(sys.argv[4]).read_text())
sizes = [math.prod(map(int, shape.split("x")[:-1])) for shape, attributes in arguments if 'role = "param"' in attributes]
assert dense["reductions"] == (len(sizes) + 1) * runs, (dense, len(sizes))
assert dense["bytes_reduced"] == 4 * (sum(sizes) + 1) * runs, (dense, sum(sizes))
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
