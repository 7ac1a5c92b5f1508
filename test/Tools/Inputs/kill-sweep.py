# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Kills a sweep, again and again, until it comes to its end.

"""kill-sweep.py FOLDER COMMAND...

Starts the command, kills it by SIGKILL once it has finished or saved one run
more than before, checks that no process of it remains, and starts it again
until it ends by itself. Prints how often that was.
"""

import subprocess
import sys
import time
from pathlib import Path

folder, command = Path(sys.argv[1]), sys.argv[2:]


def landmarks():
    return {str(path) for pattern in ["runs/*/summary.json", "runs/*/checkpoint-*.safetensors"]
            for path in folder.glob(pattern)}


def first_step(run):
    """Returns what a run's metrics say of its first step: its time is no other's."""
    with open(run / "metrics.jsonl") as file:
        return [file.readline(), file.readline()][1]


def users():
    """Returns the processes that were told a run folder of this sweep."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(b"run=") and str(folder).encode() in word for word in words):
            found.append(path.parent.name)
    return found


kills, done, saved = 0, {}, {}
while True:
    before = landmarks()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None and not landmarks() - before:
        time.sleep(0.005)
    if process.poll() is not None:
        assert process.returncode == 0, process.returncode
        break
    process.kill()
    process.wait()
    kills += 1
    deadline = time.monotonic() + 60
    while users() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not users(), "processes outlive their sweep"
    for path in folder.glob("runs/*/summary.json"):
        done.setdefault(path, path.stat().st_mtime_ns)
    for path in folder.glob("runs/*/checkpoint-*.safetensors"):
        saved.setdefault(path.parent, first_step(path.parent))

for path, written in done.items():
    assert path.stat().st_mtime_ns == written, f"{path} was done, and was done again"
for run, line in saved.items():
    assert first_step(run) == line, f"{run} had a checkpoint, and began again"
print(f"{kills} kills; {len(done)} runs were done, {len(saved)} saved, before the last")
