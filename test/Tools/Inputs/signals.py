# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# signals.py FOLDER SIGNAL... -- COMMAND: starts the run COMMAND, which writes FOLDER, sends it the signals
# and prints how it ended. "RANK:SIGNAL" goes to the process of that rank. Between signals, a number waits for
# that many seconds, and a path until that file is there.

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STEPS = 20  # before the first signal


def descendants(job):
    """The processes below `job`, and `job` itself."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    found = {job}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def process_of(job, rank):
    for pid in descendants(job):
        try:
            name, environment = Path(f"/proc/{pid}/comm").read_text(), Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if name == "sparse-train\n" and any(f"{key}={rank}".encode() in environment.split(b"\0")
                                            for key in ("OMPI_COMM_WORLD_RANK", "PMI_RANK")):
            return pid
    raise SystemExit(f"expected a process of rank {rank}, but got none")


# What this program ignores, as a job in the background does SIGINT, its children would.
for name in (signal.SIGINT, signal.SIGHUP):
    signal.signal(name, signal.SIG_DFL)
folder, words = Path(sys.argv[1]), sys.argv[2:]
command = words[words.index("--") + 1:]
job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
metrics = [folder / "metrics.jsonl", folder / "stage-0" / "metrics.jsonl"]


def wait(condition):
    while not condition():
        assert job.poll() is None, job.stderr.read()
        time.sleep(0.01)


wait(lambda: any(path.exists() and path.read_bytes().count(b"\n") > STEPS for path in metrics))
for word in words[:words.index("--")]:
    rank, _, name = word.rpartition(":")
    if name.replace(".", "").isdigit():
        time.sleep(float(name))
    elif "/" in name:
        wait(Path(name).exists)
    else:
        os.kill(process_of(job.pid, rank) if rank else job.pid, signal.Signals[f"SIG{name}"])
_, errors = job.communicate(timeout=120)
print(f"exit status {job.returncode}")
print(errors, end="")
