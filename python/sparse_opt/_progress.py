# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Says how far a long job is.

"""What an export or a compilation is at, once it has taken three seconds.

On a terminal one line says it, which changes; elsewhere, as in notebooks, a line for a
stage, five seconds after the one before or later. They are on standard error and in no
log, where they would be others each time. `SPARSE_OPT_PROGRESS=0` silences them, and so
does the logger `sparse_opt`, where it is silent.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from sparse_opt import _say

P = ParamSpec("P")
R = TypeVar("R")

# Seconds in which nothing is said, between two looks at what there is to say, and between
# two lines where they stay.
_QUIET, _LOOK, _PAUSE = 3.0, 0.5, 5.0


class _Job:
    """A job whose stages are known by their names."""

    def __init__(self, what: str, stages: Sequence[str]) -> None:
        self._what, self._stages = what, stages
        self._start = time.monotonic()
        self._ended = threading.Event()
        self.stage = stages[0]

    def __str__(self) -> str:
        place = f"{self._stages.index(self.stage) + 1} of {len(self._stages)}"
        seconds = time.monotonic() - self._start
        return f"{self._what}: {self.stage}, {place}, after {seconds:.0f} s"

    def watch(self) -> None:
        """Shows how far the job is, until it ends."""
        said, last, wait = "", -_PAUSE, _QUIET
        while not self._ended.wait(wait):
            wait, stage, now = _LOOK, self.stage, time.monotonic() - self._start
            if not _say.status(str(self)) and stage != said and now >= last + _PAUSE:
                _say.aside(str(self))
                said, last = stage, now

    def end(self) -> None:
        self._ended.set()


class _Jobs(threading.local):
    """The innermost job of each thread."""

    job: _Job | None = None
    is_quiet = False


_jobs = _Jobs()


@contextlib.contextmanager
def of(what: str, stages: Sequence[str]) -> Iterator[None]:
    """Says how far what is done within is, in the first of its stages at first. A job
    within another one takes its place meanwhile."""
    outer, job = _jobs.job, _Job(what, stages)
    if os.environ.get("SPARSE_OPT_PROGRESS") == "0" or _jobs.is_quiet:
        yield
        return
    watcher = threading.Thread(target=job.watch, name="sparse_opt progress", daemon=True)
    watcher.start()
    _jobs.job = job
    try:
        yield
    finally:
        _jobs.job = outer
        job.end()
        watcher.join()
        _say.status("")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Says nothing of jobs of this thread within: a thread that waits for them speaks."""
    was, _jobs.is_quiet = _jobs.is_quiet, True
    try:
        yield
    finally:
        _jobs.is_quiet = was


def job(what: str, stages: Sequence[str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator of a function that is such a job."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def said(*arguments: P.args, **named: P.kwargs) -> R:
            with of(what, stages):
                return function(*arguments, **named)

        return said

    return decorate


def stage(name: str) -> None:
    """Notes that the innermost job of this thread is at a stage of its own."""
    if _jobs.job is not None:
        _jobs.job.stage = name
