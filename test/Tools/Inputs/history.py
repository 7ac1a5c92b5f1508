# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Works out from checkpoints what a run says of its patterns.

"""history.py RUN STEP...: of the checkpoints after each STEP, of which the first
is from before the first update, compares with what the metrics of that step say,
and prints a line for each. The pattern is state.w: 4 x 4 blocks."""

import json
import subprocess
import sys
from pathlib import Path

run, steps = Path(sys.argv[1]), list(map(int, sys.argv[2:]))
lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
metrics = {line["step"]: line for line in lines}


def tensor(step, name):
    path = run / f"checkpoint-{step:09}.safetensors"
    script = Path(__file__).parent / "tensor.py"
    text = subprocess.run([sys.executable, script, path, f"state.w.bsr.{name}"],
                          check=True, capture_output=True, text=True).stdout
    return list(map(int, text.split()))


used, fresh, before = set(), set(), None
for step in steps:
    row_ptr, col_idx = tensor(step, "row_ptr"), tensor(step, "col_idx")
    stored = {(row, col) for row in range(4) for col in col_idx[row_ptr[row]:row_ptr[row + 1]]}
    used |= stored
    sizes = [sum(row == r for row, _ in stored) for r in range(4)]
    expected = {"density": len(stored) / 16, "used": len(used) / 16,
                "imbalance": max(sizes) * 4 / len(stored)}
    if before is not None:
        gone = before - stored
        if fresh:
            expected["lost"] = len(gone & fresh) / len(fresh)
        fresh = stored - before
        expected |= {"pruned": len(gone), "regrown": len(fresh)}
    at = metrics[step if before is not None else 0]
    for name, value in expected.items():
        assert at[name] == value, (step, name, at[name], value)
        assert at[f"weight_{name}"] == {"state.w": value}, (step, name)
    assert ("lost" in at) == ("lost" in expected), step
    before = stored
    print(step, *(f"{name} {value:g}" for name, value in sorted(expected.items())))
