# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# trace.py RUN STEPS: checks the traces of two processes that traced STEPS runs of their step.

import json
import sys
from pathlib import Path

run, steps = Path(sys.argv[1]), int(sys.argv[2])
overlaps = 0
for rank in range(2):
    events = json.loads((run / f"trace-{rank}.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["ph"] == "M"]
    assert names == [f"rank {rank}", "step", "communication"], names
    spans = [event for event in events if event["ph"] == "X"]
    assert all(span["pid"] == rank and span["dur"] >= 0 for span in spans)
    kernels, means = ([span for span in spans if span["tid"] == row] for row in (0, 1))
    # A row is one thing after the other.
    for row in (kernels, means):
        for before, after in zip(row, row[1:]):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3, (before, after)
    assert [span["name"] for span in kernels].count("step") == steps
    starts = [span for span in kernels if span["name"] == "bsr.start_reduce"]
    waits = [span for span in kernels if span["name"] == "bsr.wait_reduce"]
    assert len(starts) == len(waits) == len(means) > steps, (len(starts), len(waits), len(means))
    assert sum(mean["args"]["bytes"] for mean in means) % steps == 0
    end = max(wait["ts"] + wait["dur"] for wait in waits)
    assert all(starts[0]["ts"] <= mean["ts"] and mean["ts"] + mean["dur"] <= end for mean in means)
    overlaps += sum(mean["ts"] < kernel["ts"] + kernel["dur"] and kernel["ts"] < mean["ts"] + mean["dur"]
                    for mean in means for kernel in kernels if kernel["cat"] != "communication")
assert overlaps, "no kernel ran while a mean was taken"
print("kernels run while means are taken")
