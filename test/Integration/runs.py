# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What sparse-train leaves in the folder of a run, for tests that compare runs."""

import json

import numpy as np


def losses(run):
    """The losses of all steps."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return np.array([line["loss"] for line in lines if "loss" in line])


def checkpoints(run):
    """The paths of checkpoints, the oldest first."""
    return sorted(run.glob("checkpoint-*.safetensors"))
