# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One thread at a time.

"""What a thread does to a step, no other does meanwhile: it is refused.

A call of a step writes a batch into memory, runs, and reads: of two at once, one would
train on the batch of the other.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from sparse_opt._errors import StepError

F = TypeVar("F", bound=Callable[..., Any])


class Use:
    """The one user of a step."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._looks: set[object] = set()  # of threads that look at what it has

    def __enter__(self) -> None:
        """Raises `StepError`, instead of waiting, if another thread is in it, but for one
        that looks."""
        for _ in range(2):  # A look may be over when it is asked for.
            if self._lock.acquire(blocking=False):
                return
            if self._looks:
                self._lock.acquire()
                return
        raise StepError(
            "expected one thread at a time to use a step, but got a second before the"
            " first was done: let threads wait for each other, or give each a step of"
            " its own"
        )

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextlib.contextmanager
    def behind_others(self) -> Iterator[None]:
        """Waits for another thread that is in it, and lets others wait for a look."""
        look = object()
        self._looks.add(look)
        try:
            with self._lock:
                yield
        finally:
            self._looks.discard(look)


def changing(method: F) -> F:
    """As `exclusive`, a method that changes what a step has: what was written into the
    program's own objects comes first, and these are old behind it."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._use:
            if not self._is_made:
                return method(self, *args, **kwargs)
            self._take_changes()
            try:
                return method(self, *args, **kwargs)
            finally:
                self._program.outdated(self)

    return cast(F, guarded)


def exclusive(method: F) -> F:
    """Lets one thread at a time into a method of something with a `_use`."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._use:
            return method(self, *args, **kwargs)

    return cast(F, guarded)
