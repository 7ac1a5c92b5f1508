# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One thread at a time.

"""What a thread does to a step, no other does meanwhile: it is refused.

A call of a step writes a batch into memory, runs, and reads: of two at once, one would
train on the batch of the other.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sparse_opt._errors import StepError

F = TypeVar("F", bound=Callable[..., Any])


class Use:
    """The one user of a step."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        """Raises `StepError`, instead of waiting, if another thread is in it."""
        if not self._lock.acquire(blocking=False):
            raise StepError(
                "expected one thread at a time to use a step, but got a second before the"
                " first was done: let threads wait for each other, or give each a step of"
                " its own"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def exclusive(method: F) -> F:
    """Lets one thread at a time into a method of something with a `_use`."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._use:
            return method(self, *args, **kwargs)

    return cast(F, guarded)
