# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What sparse-train leaves in the folder of a run, for tests that compare runs."""

import json


def losses(run):
    """The losses of all steps, as NumPy's array."""
    import numpy as np  # which not all tests of runs need

    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return np.array([line["loss"] for line in lines if "loss" in line])


def checkpoints(run):
    """The paths of checkpoints, the oldest first."""
    return sorted(run.glob("checkpoint-*.safetensors"))
