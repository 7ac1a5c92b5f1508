#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Kills training runs at random moments and at every system call, lets system calls
# fail, resumes, and compares with a run that nothing happened to.

import argparse
import errno
import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INPUTS = ROOT / "test" / "Tools" / "Inputs"
sys.path.insert(0, str(INPUTS))

import losses  # noqa: E402

# What goes wrong at a system call: see faults.c.
FAULTS = ("kill", "half", "short", "ENOSPC", "EIO", "EROFS")


class Bench:
    """A small training run that can be started again and again in `folder`."""

    def __init__(self, folder, binaries, model):
        self.run_folder = folder / "run"
        self.train_command = [binaries / "sparse-train"]
        tokens = folder / "text.tok"
        self.call(sys.executable, INPUTS / "write-text.py", folder / "text", "40")
        self.call(binaries / "sparse-train", "tokenize", "--vocabulary", "400",
                  "--output", tokens, folder / "text")
        settings = {"run": self.run_folder, "tokens": tokens, "checkpoint.every": 1,
                    "checkpoint.keep": 1}
        if model == "unigram":
            step = folder / "step.so"
            self.call(os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1",
                      "-I", ROOT / "runtime" / "include", INPUTS / "unigram-step.c", "-o", step, "-lm")
            self.train_command += ["--config", INPUTS / "train.yaml"]
            settings |= {"step": step, "sparsity.every": 2, "held_out.every": 5}
        else:
            text = folder / "step.mlir"
            text.write_bytes(gzip.open(ROOT / "examples" / f"bert_{model}.mlir.gz").read())
            step = folder / "step.so"
            self.call(binaries / "sparse-compile", text, "-o", step,
                      "--mark=match=layers.*_w$ block=16x16 density=0.25")
            self.train_command += ["--config", ROOT / "examples" / "bert.yaml"]
            settings |= {"step": step, "sparsity.every": 2, "held_out.every": 5,
                         "held_out.batches": 2, "rate.peak": 0.002}
        for key, value in settings.items():
            self.train_command += ["--set", f"{key}={value}"]

        self.faults = folder / "faults.so"
        self.call(os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-Wall", "-Werror",
                  ROOT / "scripts" / "faults.c", "-o", self.faults, "-ldl")
        self.count = folder / "count"

    @staticmethod
    def call(*command):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def begin(self, steps):
        """Makes the whole run of `steps` steps that the others are compared with."""
        self.steps = steps
        self.prepare(None)
        begin = time.monotonic()
        self.finish()
        self.duration = time.monotonic() - begin
        self.whole = self.bits()

    def start(self, resume, **fault):
        """Starts the run, or goes on with it."""
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        if fault:
            environment |= {"LD_PRELOAD": str(self.faults), "FAULT_FOLDER": str(self.run_folder),
                            "FAULT_COUNT": str(self.count),
                            # Under the address sanitizer the library is not the first.
                            "ASAN_OPTIONS": "verify_asan_link_order=0"}
            environment |= {key: str(value) for key, value in fault.items()}
        command = [*self.train_command, "--set", f"steps={self.steps}"]
        return subprocess.Popen(command + ["--resume"] * resume, env=environment, text=True,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def prepare(self, state):
        """Puts a copy of the folder `state`, or nothing, where the run lies."""
        shutil.rmtree(self.run_folder, ignore_errors=True)
        if state:
            shutil.copytree(state, self.run_folder)

    def has_begun(self):
        return (self.run_folder / "metrics.jsonl").exists()

    def finish(self):
        """Runs to the end. A checkpoint that is not intact would be warned of."""
        process = self.start(self.has_begun())
        _, errors = process.communicate()
        if process.returncode or errors:
            raise SystemExit(f"error: expected a run that ends in silence, but got exit status "
                             f"{process.returncode} and: {errors}")

    def bits(self):
        """The losses of every step, and the last checkpoint: weights, moments, patterns."""
        trace = list(losses.read(self.run_folder))
        assert len(trace) == self.steps + 1
        return trace, self.last_checkpoint().read_bytes()

    def last_checkpoint(self):
        return self.run_folder / f"checkpoint-{self.steps:09}.safetensors"

    def is_same(self):
        """Ends an interrupted run. Whether it then is the whole run, bit for bit."""
        self.finish()
        same = self.bits() == self.whole
        return same and list(self.run_folder.glob("checkpoint*")) == [self.last_checkpoint()]


def report(done, total, same, what):
    line = f"{what}: {done} of {total}, {same} with the bits of the whole run"
    end = "\r" if sys.stdout.isatty() and done < total else "\n"
    if done >= total or end == "\r" or done % max(1, total // 10) == 0:
        print(line, end=end, flush=True)


def kill_at_random(bench, kills, seed):
    """Starts a run, kills it, resumes it, which is killed in turn one time in three."""
    numbers = random.Random(seed)
    done = same = 0
    while done < kills:
        bench.prepare(None)
        killed = 0
        while not killed or numbers.random() < 1 / 3:
            process = bench.start(bench.has_begun())
            time.sleep(numbers.uniform(0, bench.duration))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode != -signal.SIGKILL:
                break  # it had ended
            killed += 1
        if killed:
            done += killed
            same += killed * bench.is_same()
            report(done, kills, same, "kills at random moments")
    return same == done


def fault_everywhere(bench, faults):
    """Lets every system call on the run folder go wrong, of a run and of a resumed one."""
    calls, fresh = fault_calls(bench, faults, None, "a run")
    half = bench.run_folder.with_name("half")
    bench.prepare(None)
    bench.start(False, FAULT_CALL=calls // 2, FAULT="kill").communicate()
    shutil.move(bench.run_folder, half)
    return fault_calls(bench, faults, half, "a resumed run")[1] and fresh


def fault_calls(bench, faults, state, what):
    """Does so to a run that goes on from the folder `state`. Returns how many calls there
    are, and whether all went well."""
    bench.prepare(state)
    process = bench.start(state is not None, FAULT="none")
    process.communicate()
    assert process.returncode == 0 and bench.bits() == bench.whole
    calls = int(bench.count.read_text())

    done = same = 0
    for fault in faults:
        for call in range(1, calls + 1):
            bench.prepare(state)
            process = bench.start(state is not None, FAULT_CALL=call,
                                  FAULT=getattr(errno, fault, fault))
            _, errors = process.communicate()
            good = is_orderly(process.returncode, errors, fault) and bench.is_same()
            if not good:
                print(f"{fault} at call {call} of {what}: exit status {process.returncode}, "
                      f"{errors!r}")
            done += 1
            same += good
            report(done, calls * len(faults), same, f"faults at each of {calls} calls of {what}")
    return calls, same == done


def is_orderly(status, errors, fault):
    """Whether a run to which `fault` happened ended as it should: in one sentence."""
    if fault in ("kill", "half"):
        return status == -signal.SIGKILL
    if status == 0:
        return not errors or errors.startswith("warning: ")
    return (status == 1 and fault != "short" and errors.count("\n") == 1 and
            errors.startswith("error: expected "))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="kills at random moments")
    parser.add_argument("--steps", type=int, default=40, help="steps of a run that is killed")
    parser.add_argument("--model", choices=("unigram", "tiny"), default="unigram",
                        help="a step in C, or the BERT of examples/")
    parser.add_argument("--calls", type=int, metavar="STEPS",
                        help="also let every system call of a run of so many steps go wrong")
    parser.add_argument("--faults", type=lambda text: text.split(","), default=FAULTS,
                        help="what goes wrong at them, of " + ",".join(FAULTS))
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    memory = Path("/dev/shm")
    parser.add_argument("--folder", type=Path, default=memory if memory.is_dir() else None,
                        help="where the runs lie; in memory, where that is possible")
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "dev" / "bin")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(Path(folder).resolve(), options.bin.resolve(), options.model)
        good = True
        if options.calls:
            bench.begin(options.calls)
            good &= fault_everywhere(bench, options.faults)
        if options.kills:
            bench.begin(options.steps)
            good &= kill_at_random(bench, options.kills, options.seed)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
