# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# stages_kill.py FOLDER: lets a process of a run in two stages be killed at a system call on the folder
# of its stage (scripts/faults.c), while it saves above all. Each run resumes to the bits of one that
# nothing happened to. FOLDER holds stage-0.so, stage-1.so, text.tok and faults.so, as stages-kill.test makes them.

import argparse
import os
import shutil
import subprocess
from pathlib import Path

INPUTS = Path(__file__).resolve().parent.parent / "Tools" / "Inputs"
STEPS = 3

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--kills", type=int, default=5, help="of each process, at calls that are evenly apart")
parser.add_argument("--every", type=int, help="at each so many-th call instead")
parser.add_argument("--keep", type=int, default=1)
parser.add_argument("--mpirun", default="mpirun")
args = parser.parse_args()
folder = args.folder.resolve()


def command(run, stage, *more):
    settings = {"step": folder / f"stage-{stage}.so", "tokens": folder / "text.tok", "run": run, "steps": STEPS,
                "sparsity.every": 2, "held_out.batches": 2, "held_out.every": 0, "checkpoint.every": 1,
                "checkpoint.keep": args.keep, "compile.options": '["--stages=2"]'}
    return ["sparse-train", "--config", INPUTS / "train.yaml",
            *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")), *more]


def job(run, *more, rank=None, **fault):
    """Trains in two stages; that of `rank` with a fault."""
    faults = {"LD_PRELOAD": folder / "faults.so", "FAULT_FOLDER": run / f"stage-{rank}", **fault}
    words = [args.mpirun]
    for stage in range(2):
        environment = ["env", *(f"{key}={value}" for key, value in faults.items())] if stage == rank else []
        words += [":"] * stage + ["-n", "1", *environment, *command(run, stage, *more)]
    return subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)


def checkpoints(run):
    return [sorted(int(path.name[11:20]) for path in (run / f"stage-{stage}").glob("checkpoint-*.safetensors"))
            for stage in range(2)]


def bits(run):
    return [(run / f"stage-{stage}" / f"checkpoint-{STEPS:09}.safetensors").read_bytes() for stage in range(2)]


whole, run = folder / "whole", folder / "struck"
shutil.rmtree(whole, ignore_errors=True)
done = job(whole)
assert done.returncode == 0, done.stderr
expected = bits(whole)
assert checkpoints(whole) == [list(range(STEPS - args.keep + 1, STEPS + 1))] * 2

kills = apart = 0
for rank in range(2):
    count = folder / "count"
    shutil.rmtree(run, ignore_errors=True)
    done = job(run, rank=rank, FAULT="none", FAULT_COUNT=count)
    assert done.returncode == 0, done.stderr
    calls = int(count.read_text())
    step = args.every or calls / args.kills
    for number in range(int(calls / step)):
        shutil.rmtree(run, ignore_errors=True)
        call = calls - int(number * step)
        done = job(run, rank=rank, FAULT="kill", FAULT_CALL=call)
        assert done.returncode != 0, (rank, call)
        left = checkpoints(run)
        apart += left[0] != left[1]
        again = job(run, "--resume") if (run / f"stage-{rank}" / "config.yaml").exists() else job(run, "--overwrite")
        assert again.returncode == 0, (rank, call, left, again.stderr[-2000:])
        assert bits(run) == expected, (rank, call, left)
        assert checkpoints(run) == checkpoints(whole), (rank, call, checkpoints(run))
        kills += 1
print(f"{kills} kills, {apart} of which left other checkpoints of one stage than of the other: all with the bits of the whole run")
