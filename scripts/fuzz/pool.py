# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs random programs in processes that may crash or hang: what does ends a process, and not the run.

A fuzzer is a script that calls `main`: started with --worker, it runs the programs that are asked for on
its standard input.
"""

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from fuzz.report import Report

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900
RUNS = 200  # of a process, which then makes room for another


def find_tools(name):
    """Puts sparse-compile on the path: the one there, or that of this tree."""
    if not shutil.which("sparse-compile"):
        os.environ["PATH"] += f":{ROOT / 'build/dev/bin'}"
    if not shutil.which("sparse-compile"):
        sys.exit(f"{name}: expected sparse-compile to be on the path or built, but got none")


def make_parser(usage, classes):
    """The options that all fuzzers have; `classes` are the programs that --without leaves out, with a description."""
    lines = "\n".join(f"    {name:16}{text}" for name, text in classes.items())
    parser = argparse.ArgumentParser(usage=usage + "\n" + lines)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--without", action="append", default=[], choices=list(classes))
    parser.add_argument("--only", action="append", default=[], choices=list(classes))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--worker", action="store_true")
    return parser


def work(run):
    """Runs the programs that are asked for; `run(seed, variant)` adds to the result that it is given."""
    # What a program prints is no answer.
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    for line in sys.stdin:
        seed, variant = map(int, line.split())
        result = {"seed": seed, "variant": variant, "kind": "ok"}
        try:
            run(result)
        except Exception:
            result |= {"kind": "error", "message": traceback.format_exc(limit=-3)}
        print(json.dumps(result), file=answers, flush=True)


class Worker:
    """A process that runs programs."""

    def __init__(self, arguments, script=None):
        self.command = [sys.executable, script or sys.argv[0], "--worker", *arguments]
        self.process, self.left = None, 0

    def run(self, seed, variant):
        if not self.process or not self.left:
            self.close()
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)
            self.left = RUNS
        self.left -= 1
        self.process.stdin.write(f"{seed} {variant}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.process.kill()
        status = self.process.wait()
        self.process = None
        kind, message = ("crash", f"the step ended its process ({status})") if ready else \
            ("hang", f"expected to end within {SECONDS} s")
        return {"seed": seed, "variant": variant, "kind": kind, "message": message}

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def run_all(options, arguments, variants, passing=("ok",)):
    """Runs the programs of all seeds, each in its `variants(seed)`, in workers with these `arguments`; prints what
    fails, which is each kind of result that is not `passing`, and returns the report."""
    seeds = range(options.seed, options.seed + options.programs)
    waiting = ((seed, variant) for seed in seeds for variant in variants(seed))
    report, lock, start = Report(passing), threading.Lock(), time.monotonic()
    arguments = [f"--without={name}" for name in options.without] + arguments

    def note(result):
        report.add(result)
        if result["kind"] not in passing:
            print(f"seed {result['seed']}.{result['variant']}: {result['kind']}: {result['message']} "
                  f"{' '.join(result.get('classes', []))}".rstrip(), flush=True)
        if report.runs % 100 == 0:
            seconds = time.monotonic() - start
            print(f"{report.runs} compiled in {seconds:.0f} s, {len(report.failures)} failures", flush=True)

    def serve():
        worker = Worker(arguments)
        while not options.minutes or time.monotonic() - start < 60 * options.minutes:
            with lock:
                place = next(waiting, None)
            if place is None:
                break
            result = worker.run(*place)
            with lock:
                note(result)
        worker.close()

    jobs = [threading.Thread(target=serve) for _ in range(options.jobs)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    print(report.text(), flush=True)
    return report


def place_of(result):
    """The name of the folder of a failure."""
    return f"{result['seed']}.{result['variant']}"
