# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# kill.py FOLDER: kills (SIGKILL) or stops (SIGSTOP) a random process of a run of
# several at a random moment. A job whose process is killed ends, and resumes to the bits of a run that
# nothing happened to; a job whose process is stopped ends with a sentence that
# names it. FOLDER holds step.so and text.tok, as driver.test makes them.

import argparse
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

INPUTS = Path(__file__).resolve().parent.parent / "Tools" / "Inputs"
STEPS, TIMEOUT = 200, 2  # seconds of silence

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--kills", type=int, default=2)
parser.add_argument("--stops", type=int, default=1)
parser.add_argument("--processes", type=int, default=2)
parser.add_argument("--mpirun", default="mpirun")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
numbers = random.Random(args.seed)
hung = 0 # times that an mpirun stayed behind


def command(run, *more):
    settings = {"step": args.folder / "step.so", "tokens": args.folder / "text.tok", "run": run, "accumulate": args.processes,
                "steps": STEPS, "sparsity.every": 20, "held_out.batches": 2, "checkpoint.every": 10}
    return [args.mpirun, "-n", str(args.processes), "sparse-train", "--config", INPUTS / "train.yaml",
            *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")), *more]


def processes(job):
    """The ranks of `job` and their process numbers."""
    parents, names, states = {}, {}, {}
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")
            states[int(entry.name)], parent = fields[2].split()[:2]
            parents[int(entry.name)] = int(parent)
            names[int(entry.name)] = fields[0].partition("(")[2]
        except (OSError, ValueError):
            continue
    found = {}
    for number, name in names.items():
        above = number
        while above in parents and above != job.pid:
            above = parents[above]
        if above == job.pid and name == "sparse-train" and states[number] != "Z":
            try:
                environment = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            for entry in environment:
                key, _, value = entry.partition(b"=")
                if key in (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"):
                    found[int(value)] = number
    return found


def strike(run, kind, latest):
    """Starts a run, and sends `kind` to one of its processes at a random moment."""
    environment = {**os.environ, "BSR_COMMUNICATION_TIMEOUT": str(TIMEOUT)}
    job = subprocess.Popen(command(run), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    rank, moment = numbers.randrange(args.processes), numbers.uniform(0, latest)
    time.sleep(moment)
    number = None
    while job.poll() is None and number is None:
        number = processes(job).get(rank)
    if number is not None:
        try:
            os.kill(number, kind)
        except ProcessLookupError:
            pass
    try:
        _, errors = job.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        # Open MPI 4.1 at times hangs in PMIx_server_finalize, when all processes are gone.
        assert not processes(job), "expected the end of all processes"
        global hung
        hung += 1
        job.kill()
        _, errors = job.communicate()
    return rank, moment, job.returncode, errors


whole = args.folder / "whole"
shutil.rmtree(whole, ignore_errors=True)
begin = time.monotonic()
subprocess.run(command(whole), check=True, stdout=subprocess.DEVNULL)
length = time.monotonic() - begin
name = f"checkpoint-{STEPS:09}.safetensors"
expected = (whole / name).read_bytes()
run = args.folder / "struck"

killed = resumed = 0
for _ in range(args.kills):
    shutil.rmtree(run, ignore_errors=True)
    rank, moment, status, errors = strike(run, signal.SIGKILL, length)
    killed += status != 0
    resumed += len(list(run.glob("checkpoint-*"))) > 0 and status != 0
    # Killed before it was a run, it begins; else it goes on.
    more = ["--resume"] if (run / "config.yaml").exists() else ["--overwrite"]
    again = subprocess.run(command(run, *more), capture_output=True, text=True)
    assert again.returncode == 0, (rank, moment, again.stderr[-2000:])
    assert (run / name).read_bytes() == expected, (rank, moment)
print(f"{args.kills} kills, {killed} in time, {resumed} behind a checkpoint: {args.kills} with the bits of the whole run")

stopped = 0
for _ in range(args.stops):
    shutil.rmtree(run, ignore_errors=True)
    rank, moment, status, errors = strike(run, signal.SIGSTOP, length)
    if status == 0:
        continue # It was done.
    sentences = (f"expected a sign of life from rank {rank} every {TIMEOUT} s (BSR_COMMUNICATION_TIMEOUT), but got none",
                 f"expected MPI to start all processes in {TIMEOUT} s (BSR_COMMUNICATION_TIMEOUT), but got no answer")
    assert any(sentence in errors for sentence in sentences), (rank, moment, errors[-2000:])
    stopped += 1
print(f"{args.stops} stops, {stopped} in time: each of these ended with a sentence")
if hung:
    print(f"{hung} times mpirun stayed behind when its processes were gone")
