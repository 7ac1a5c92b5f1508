# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# stop-everywhere.py STEPS COMMAND...: runs COMMAND for STEPS steps, then resumes a
# copy of the run from each of them, and compares.

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import losses


def run(folder, threads, *options):
    subprocess.run(
        [*command, "--set", f"run={folder}", "--set", f"checkpoint.keep={steps}", *options],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)}, check=True,
        stdout=subprocess.DEVNULL)


def checkpoint(folder, step):
    return folder / f"checkpoint-{step:09}.safetensors"


def count_same(whole, part):
    run(whole, 1)
    trace = list(losses.read(whole))
    assert len(trace) == steps + 1
    same = 0
    for threads in (1, 2):
        for stop in range(steps):
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(whole, part)
            for step in range(stop + 1, steps + 1):
                checkpoint(part, step).unlink()
            run(part, threads, "--resume")
            same += list(losses.read(part)) == trace and all(
                checkpoint(part, step).read_bytes() == checkpoint(whole, step).read_bytes()
                for step in range(1, steps + 1))
    return same


steps, command = int(sys.argv[1]), sys.argv[2:]
# In memory, where it exists: nothing here is to survive a power cut.
memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
with tempfile.TemporaryDirectory(dir=memory) as folder:
    same = count_same(Path(folder, "whole"), Path(folder, "part"))
print(f"{2 * steps} interrupted runs, {same} with the bits of the whole one")
