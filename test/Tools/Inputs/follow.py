# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# follow.py RUN: follows a run that is written meanwhile, a line cut in two, one
# written again by a resumed run.

import subprocess
import sys
import time
from pathlib import Path

run = Path(sys.argv[1])
(run / "config.yaml").write_text("steps: 4\n")
follower = subprocess.Popen(
    [sys.executable, "-u", "-m", "sparse_opt.experiments.wandb_import", "--follow", "--online", "--interval", "0.02", run],
    stdout=subprocess.PIPE, text=True,
)


def add(name, text, step=None):
    """Adds to a file, and waits until the step in it was taken."""
    with open(run / name, "a") as file:
        file.write(text)
    line = ""
    while step is not None and not line.startswith(f"{step} "):
        line = follower.stdout.readline()
        print(line, end="")


def picture(step, rows):
    return f'{{"step": {step}, "name": "w", "shape": [8, 8], "block": [4, 4], "cells": {rows}}}\n'


add("patterns.jsonl", picture(0, '["f0", "0f"]'))
add("metrics.jsonl", '{"step": 0, "held_out": 5, "density": 0.25, "weight_density": {"w": 0.25}}\n', 0)
add("metrics.jsonl", '{"step": 1, "loss": 4, "step_')
time.sleep(0.1)
add("metrics.jsonl", 'time": 0.1, "accuracy": 0.5}\n', 1)
add("metrics.jsonl", '{"step": 2, "loss": 3, "turnover": 0.5, "lr": null}\n', 2)
# Killed and resumed: the line of step 2 comes again.
text = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
(run / "metrics.jsonl").write_text("".join(text[:2]))
add("metrics.jsonl", '{"step": 2, "loss": 3}\n{"step": 3, "loss": 2.5}\n', 3)
add("patterns.jsonl", picture(4, '["ff", "ff"]'))
add("metrics.jsonl", '{"step": 4, "loss": 2, "held_out_accuracy": 1}\n')
# At once, as sparse-train does.
(run / "part").write_text('{"steps": 4, "loss_end": 2}')
(run / "part").replace(run / "summary.json")
print(follower.communicate(timeout=120)[0], end="")
sys.exit(follower.returncode)
