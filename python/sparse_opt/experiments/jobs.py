# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs what is to be run within a budget of cores and memory.

"""A run is a process of sparse-train, or of the grid's program, in a folder of its own.

The folder is the only state. One with a summary is done; one with a checkpoint
is resumed; any other begins again. So a sweep that was killed at any moment
goes on when it is called again. A lock, which the processes inherit, keeps two
sweeps apart, and a sweep from the processes of a killed one; those end with it
where `setpriv` (util-linux) is at hand.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sparse_opt.experiments.grid import Grid, Model, Run, Settings

POLL = 0.1
LOCK_WAIT = 3.0  # seconds in which the processes of a killed sweep end


class SweepError(Exception):
    """A sentence about why a sweep cannot go on."""


class Lock:
    def __init__(self, folder: Path) -> None:
        self.file = open(folder / "lock", "w")
        end = time.monotonic() + LOCK_WAIT
        while True:
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    raise SweepError(f"expected no other sweep to work in '{folder}', "
                                     f"but got one") from None
                time.sleep(POLL)


def peak_memory(pid: int) -> int:
    """Returns the most bytes that a process has held; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def is_done(folder: Path) -> bool:
    return (folder / "summary.json").exists()


def steps_done(folder: Path) -> int:
    """Returns how many steps the metrics of a run speak of."""
    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().split(b"\n")
        return max(int(json.loads(line)["step"]) for line in lines[-3:-1])
    except (OSError, ValueError, KeyError):
        return 0


def sections(settings: Settings) -> Settings:
    """Returns settings with dots as sections; but where a section is a list, of
    groups of weights, those with dots stay: they are for all groups."""
    nested: Settings = {}
    for key, value in settings.items():
        section, dot, name = key.partition(".")
        if dot and not isinstance(settings.get(section), list):
            nested.setdefault(section, {})[name] = value
        else:
            nested[key] = value
    return nested


class Job:
    """A run that is going."""

    def __init__(self, run: Run, folder: Path, gpu: str | None) -> None:
        self.run, self.folder, self.gpu = run, folder, gpu
        self.steps = int(run.settings["steps"])
        self.begin = time.monotonic()
        self.first: tuple[float, int] | None = None  # when some steps were done, and how many
        self.memory = 0
        self.killed: str | None = None

    def start(self, train: Sequence[str], settings: Settings, threads: int, lock: Lock) -> None:
        """Begins the run, or resumes it, with these settings beside its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        resume = any(self.folder.glob("checkpoint-*.safetensors"))
        settings = {**self.run.options(), "run": str(self.folder), **settings}
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        if self.gpu is not None:
            # The only one that the run sees: it may go on with another.
            settings["device"] = "cuda"
            environment["CUDA_VISIBLE_DEVICES"] = self.gpu
        config = self.folder / "sweep.yaml"  # JSON is YAML
        config.write_text(json.dumps(sections(settings), indent=2, ensure_ascii=False) + "\n")
        command = [*train, "--config", str(config), "--resume" if resume else "--overwrite"]
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with open(self.folder / "log.txt", "w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=environment, pass_fds=[lock.file.fileno()])

    def watch(self) -> int:
        """Takes note of the memory and the steps so far."""
        self.memory = max(self.memory, peak_memory(self.process.pid))
        steps = steps_done(self.folder)
        if self.first is None and steps:
            self.first = (time.monotonic(), steps)
        return steps

    def seconds_left(self) -> float | None:
        """Returns an estimate from the steps so far; none before there is one."""
        steps = self.watch()
        if self.first is None or steps <= self.first[1]:
            return None
        pace = (time.monotonic() - self.first[0]) / (steps - self.first[1])
        return pace * (self.steps - steps)

    def kill(self, reason: str) -> None:
        self.killed = reason
        self.process.kill()

    def failure(self) -> str:
        """Returns why the run failed, in one line."""
        if self.killed:
            return self.killed
        lines = (self.folder / "log.txt").read_text(errors="replace").splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        if errors:
            return errors[0]
        code = self.process.returncode
        return f"error: expected the run to succeed, but got " + (
            f"signal {-code}" if code < 0 else f"exit status {code}")


@dataclass(frozen=True)
class Budget:
    """What runs may take together, and the threads of each."""

    cores: int
    threads: int
    memory: int
    gpus: list[str]  # each for one run at a time; or none

    def jobs_at_once(self) -> int:
        jobs = max(1, self.cores // self.threads)
        return min(jobs, len(self.gpus)) if self.gpus else jobs


class Report(Protocol):
    """Receives the progress of a sweep."""

    def finished(self, sweep: Sweep, job: Job) -> None: ...
    def failed(self, sweep: Sweep, job: Job) -> None: ...
    def progress(self, sweep: Sweep) -> None: ...


class Sweep:
    """All runs of a grid, and what is known about how they go."""

    def __init__(self, grid: Grid, folder: Path, train: Sequence[str], budget: Budget, report: Report) -> None:
        self.grid, self.folder, self.train, self.budget, self.report = grid, folder, train, budget, report
        self.jobs_at_once = budget.jobs_at_once()
        self.going: list[Job] = []
        self.failed: list[Job] = []
        self.peaks: dict[str, int] = {}  # by kind
        self.seconds: dict[str, float] = {}
        self.waiting = [run for run in grid.runs if not is_done(self.path(run))]
        for run in grid.runs:
            if run not in self.waiting:
                summary = json.loads((self.path(run) / "summary.json").read_text())
                # A program may say neither.
                if peak := summary.get("peak_memory"):
                    self.peaks[run.kind()] = peak
                if pace := summary.get("median_step_time"):
                    self.seconds[run.kind()] = pace * summary["steps"]

    def path(self, run: Run) -> Path:
        return self.folder / "runs" / run.folder()

    def step(self, model: Model) -> dict[str, str]:
        """Returns the model's step as a setting of sparse-train; a program has its own."""
        if model.step is None:
            return {}
        if model.step.suffix != ".gz":
            return {"step": str(model.step)}
        path = self.folder / "steps" / f"{model.digest}-{model.step.stem}"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(model.content)
            temporary.rename(path)
        return {"step": str(path)}

    def need(self, run: Run) -> int:
        """Returns the memory that a run needs: what one of its kind took, or an
        equal share of the budget where none has run."""
        return self.peaks.get(run.kind(), self.budget.memory // self.jobs_at_once)

    def next_run(self) -> Run | None:
        """Returns the first waiting run that may start now."""
        if len(self.going) >= self.jobs_at_once:
            return None
        held = sum(max(job.memory, self.need(job.run)) for job in self.going)
        # Of runs that compile the same step, one goes first.
        compiling = {job.run.kind() for job in self.going if job.first is None}
        for run in self.waiting:
            fits = held + self.need(run) <= self.budget.memory or not self.going
            if fits and run.kind() not in compiling:
                return run
        return None

    def seconds_left(self) -> float | None:
        """Returns an estimate of the time to the end; none before there is one."""
        if not self.seconds:
            return None
        mean = sum(self.seconds.values()) / len(self.seconds)
        total = sum(self.seconds.get(run.kind(), mean) for run in self.waiting)
        for job in self.going:
            left = job.seconds_left()
            total += self.seconds.get(job.run.kind(), mean) if left is None else left
        return total / self.jobs_at_once

    def finish(self, job: Job) -> None:
        self.going.remove(job)
        kind = job.run.kind()
        self.peaks[kind] = max(job.memory, self.peaks.get(kind, 0))
        if job.process.returncode == 0 and is_done(job.folder):
            self.seconds[kind] = time.monotonic() - job.begin
            self.report.finished(self, job)
        else:
            self.failed.append(job)
            self.report.failed(self, job)

    def start(self, run: Run, lock: Lock) -> None:
        taken = {job.gpu for job in self.going}
        gpu = next((gpu for gpu in self.budget.gpus if gpu not in taken), None)
        job = Job(run, self.path(run), gpu)
        job.start(self.train, {**self.step(run.model), "compile.cache": str(self.folder / "compiled")},
                  self.budget.threads, lock)
        self.waiting.remove(run)
        self.going.append(job)

    def look_at(self, job: Job) -> None:
        """Takes note of how a run goes, or went."""
        if job.process.poll() is not None:
            self.finish(job)
            return
        job.watch()
        if job.memory > self.budget.memory:
            job.kill(f"error: expected the run to fit into the memory budget of "
                     f"{self.budget.memory >> 20} MiB, but got {job.memory >> 20} MiB")

    def execute(self, lock: Lock) -> None:
        """Runs everything; returns once all is done or has failed."""
        try:
            while self.waiting or self.going:
                while run := self.next_run():
                    self.start(run, lock)
                time.sleep(POLL)
                for job in list(self.going):
                    self.look_at(job)
                self.report.progress(self)
        finally:
            for job in self.going:
                job.process.kill()
            for job in self.going:
                job.process.wait()
