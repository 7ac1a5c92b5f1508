# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The command sparse-sweep.

"""Runs a grid of sparse-train, or of a program of yours, and compares what comes out.

    sparse-sweep GRID [--output DIR] [--set KEY=VALUE]... [--cores N]
                 [--threads N] [--memory SIZE] [--gpus N,...] [--list] [--tables]

Runs go side by side, each with N threads (1), within the budget of cores (all)
and memory (what is free now; 4G, 500M). Killed at any moment and called again,
it keeps what is done and resumes what is not. A run that fails is reported, the
others go on, and the exit status is 1. With --gpus each run has one of these GPUs
(as CUDA_VISIBLE_DEVICES names them) to itself, and memory is the host's. --set overrides a setting of all runs;
--list names the runs, --tables prints the tables of those that are done, also while
another sweep works; both train none.

DIR holds runs/ (a folder of sparse-train for each), compiled/, and the results,
named after the grid and renewed as runs finish: .csv (a row a run), .md (means
over seeds, their standard deviation, and what became of predictions), .svg
(loss against training FLOPs and time). Times are those of a machine that does
nothing else: of steps and updates as long as the fastest. Grids may share a DIR.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from sparse_opt._errors import StepError
from sparse_opt._tools import find_tool
from sparse_opt.experiments import predictions, results
from sparse_opt.experiments.grid import Grid, GridError, expect, matches
from sparse_opt.experiments.jobs import Budget, Job, Lock, Sweep, SweepError
from sparse_opt.experiments.pareto import plot


def find_train() -> str:
    try:
        return find_tool("sparse-train")
    except StepError as error:
        raise SweepError(str(error)) from None


def known_keys(train: Sequence[str]) -> list[str]:
    """Returns the keys of a configuration of sparse-train, or of a grid's program."""
    try:
        text = subprocess.run([*train, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SweepError(f"expected '{shlex.join(train)} --help' to say its keys, but got: {error}") from None
    return re.findall(r"^  ([a-z_]\w*(?:\.[a-z_]\w*)*): ", text, re.MULTILINE)


def parse_size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT])i?B?", text)
    if not match:
        raise SweepError(f"expected --memory to be a size as 4G or 500M, but got '{text}'")
    return int(float(match[1]) * 1024 ** (" KMGT".index(match[2])))


def parse_count(option: str, text: str) -> int:
    if not re.fullmatch("[1-9][0-9]*", text):
        raise SweepError(f"expected {option} to be a whole number above 0, but got '{text}'")
    return int(text)


def parse_gpus(text: str | None) -> list[str]:
    gpus = text.split(",") if text else []
    if "" in gpus or len(set(gpus)) < len(gpus):
        raise SweepError(f"expected --gpus to be different GPUs as 0,1, but got '{text}'")
    return gpus


def free_memory() -> int:
    """Returns the bytes that processes may take without swapping."""
    with open("/proc/meminfo") as info:
        return next(int(line.split()[1]) * 1024 for line in info
                    if line.startswith("MemAvailable:"))


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Report:
    """Says what happens: a line for each run, and on a terminal one that changes."""

    def __init__(self, grid: Grid, refresh: Callable[[], object]) -> None:
        self.total = len(grid.runs)
        self.refresh = refresh
        self.line, self.shown = "", 0.0

    def show(self, text: str) -> None:
        if self.line:
            print("\r\x1b[K", end="")
        self.line = ""
        print(text, flush=True)

    def status(self, sweep: Sweep) -> str:
        left = sweep.seconds_left()
        done = self.total - len(sweep.waiting) - len(sweep.going) - len(sweep.failed)
        text = f"{done}/{self.total} done, {len(sweep.going)} going"
        if sweep.failed:
            text += f", {len(sweep.failed)} failed"
        return text + (f", {duration(left)} left" if left is not None else "")

    def finished(self, sweep: Sweep, job: Job) -> None:
        measures = results.measure(job.folder) or {"held_out": math.nan}
        self.show(f"{job.folder.name}: held-out loss {measures['held_out']:.4f} in "
                  f"{duration(time.monotonic() - job.begin)}  [{self.status(sweep)}]")
        self.refresh()

    def failed(self, sweep: Sweep, job: Job) -> None:
        self.show(f"{job.folder.name}: {job.failure()}  [{self.status(sweep)}]")

    def progress(self, sweep: Sweep) -> None:
        if not sys.stdout.isatty() or time.monotonic() < self.shown + 1:
            return
        self.shown = time.monotonic()
        self.line = self.status(sweep)
        print(f"\r\x1b[K{self.line}", end="", flush=True)


def write(path: Path, text: str) -> None:
    """Replaces a file at once."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.rename(path)


class Results:
    """What a sweep writes: files named after the grid, renewed as runs finish."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        self.grid, self.folder = grid, folder
        self.stem = Path(grid.path).stem

    def path(self, suffix: str) -> Path:
        return self.folder / (self.stem + suffix)

    def write(self) -> str:
        """Writes the tables and the plot of the runs that are done; returns the
        tables."""
        groups, text = self.read()
        write(self.path(".csv"), results.table(self.grid, groups))
        write(self.path(".md"), text)
        if shown := [group for group in groups if matches(group.labels, self.grid.plot)]:
            write(self.path(".svg"), plot(shown))
        return text

    def read(self) -> tuple[list[results.Group], str]:
        """Returns the groups of the runs that are done, and the tables."""
        done = {}
        for run in self.grid.runs:
            if measures := results.measure(self.folder / "runs" / run.folder(), self.grid.measures):
                done[run] = measures
        groups = results.group(self.grid, done)
        text = results.markdown(self.grid, groups)
        if claims := predictions.table(self.grid, groups):
            text += "\n" + claims
        return groups, text


def read_budget(options: argparse.Namespace) -> Budget:
    cores = len(os.sched_getaffinity(0))
    return Budget(parse_count("--cores", options.cores) if options.cores else cores,
                  parse_count("--threads", options.threads),
                  parse_size(options.memory) if options.memory else free_memory(),
                  parse_gpus(options.gpus))


def command(program: Sequence[str]) -> list[str]:
    """Returns what trains a run: a grid's program, or sparse-train."""
    return list(program) or [find_train()]


def read_grid(options: argparse.Namespace) -> Grid:
    for setting in options.set:
        expect("=" in setting, "--set KEY=VALUE", f"'{setting}'")
    overrides = dict(setting.split("=", 1) for setting in options.set)
    grid = Grid(options.grid, lambda program: known_keys(command(program)), overrides)
    predictions.read(grid)
    return grid


def sweep(options: argparse.Namespace) -> int:
    grid = read_grid(options)
    if options.list:
        for run in grid.runs:
            print(run.folder())
        return 0
    output = options.output or grid.output
    if not output:
        raise GridError("expected the grid to have an 'output', or --output, but got none")
    folder = Path(output)
    outcome = Results(grid, folder)
    if options.tables:
        print(outcome.read()[1], end="")
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder)
    runs = Sweep(grid, folder, command(grid.program), read_budget(options), Report(grid, outcome.write))
    print(f"{len(grid.runs)} runs, {len(grid.runs) - len(runs.waiting)} done before; "
          f"{runs.jobs_at_once} at once, {runs.budget.memory >> 20} MiB", flush=True)
    runs.execute(lock)
    print(f"\n{outcome.write()}")
    print(f"table: {outcome.path('.csv')}, plot: {outcome.path('.svg')}")
    for job in runs.failed:
        print(f"{job.folder}: {job.failure()}", file=sys.stderr)
    return 1 if runs.failed else 0


def refuse(message: str) -> NoReturn:
    sys.exit(f"error: expected options of sparse-sweep (see --help), but got: {message}")


def main() -> NoReturn:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=argparse.SUPPRESS)
    parser.add_argument("grid", metavar="GRID")
    parser.add_argument("--output", metavar="DIR")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[])
    parser.add_argument("--cores", metavar="N")
    parser.add_argument("--threads", metavar="N", default="1")
    parser.add_argument("--memory", metavar="SIZE")
    parser.add_argument("--gpus", metavar="N,...")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--tables", action="store_true")
    parser.error = refuse  # type: ignore[method-assign]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(sweep(parser.parse_args()))
    except (GridError, SweepError) as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        what = f"'{error.filename}'" if error.filename else "the output"
        sys.exit(f"error: expected {what} to be accessible, but got: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
