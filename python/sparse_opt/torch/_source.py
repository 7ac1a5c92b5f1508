# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Finds the line of the user's program that something came from.

"""Source lines of the user."""

from __future__ import annotations

import os
import re
import traceback
from types import TracebackType

import torch

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FRAMEWORK = os.path.dirname(os.path.abspath(torch.__file__))
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def is_user_file(name: str) -> bool:
    """Returns whether a file is neither ours nor PyTorch's."""
    return not name.startswith((_OWN + os.sep, _FRAMEWORK + os.sep, "<"))


def line_of_error(trace: TracebackType | None) -> str:
    """Returns ` at FILE:LINE: CODE` for the user's innermost frame, or ``."""
    for frame in reversed(traceback.extract_tb(trace)):
        if is_user_file(frame.filename):
            return f" at {frame.filename}:{frame.lineno}: {frame.line}"
    return ""


def line_of_node(node: torch.fx.Node) -> str:
    """Returns ` at FILE:LINE` for the user's innermost frame, or ``."""
    place = place_of_node(node)
    return f" at {place[0]}:{place[1]}" if place else ""


def place_of_node(node: torch.fx.Node) -> tuple[str, int] | None:
    """Returns the user's innermost file and line that made `node`."""
    for file, line in reversed(_FRAME.findall(node.stack_trace or "")):
        if is_user_file(file):
            return file, int(line)
    return None
