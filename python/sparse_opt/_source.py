# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Finds the line of the user's program that something came from.

"""Source lines of the user."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from types import TracebackType
from typing import Any


def _places() -> tuple[str, ...]:
    """Returns where this package and the frameworks lie, without importing them."""
    places = [os.path.dirname(os.path.abspath(__file__))]
    for name in ("jax", "jaxlib", "optax", "torch"):
        spec = importlib.util.find_spec(name)
        places += (spec and spec.submodule_search_locations) or ()
    return tuple(place + os.sep for place in places)


_NOT_THE_USERS = ("<", *_places())


def is_user_file(name: str) -> bool:
    """Returns whether a file is neither ours nor a framework's."""
    return not name.startswith(_NOT_THE_USERS)


def user_level() -> int:
    """Returns how far up the user's code is, for whom who calls this warns."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back and not is_user_file(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level


def line_of_error(trace: TracebackType | None) -> str:
    """Returns ` at FILE:LINE: CODE` for the user's innermost frame, or ``."""
    for frame in reversed(traceback.extract_tb(trace)):
        if is_user_file(frame.filename):
            return f" at {frame.filename}:{frame.lineno}: {frame.line}"
    return ""
