# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Finds the line of the user's program that a node came from.

"""Source lines of traced nodes."""

from __future__ import annotations

import re

import torch

from sparse_opt._source import is_user_file

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def line_of_node(node: torch.fx.Node) -> str:
    """Returns ` at FILE:LINE` for the user's innermost frame, or ``."""
    return line_of_trace(node.stack_trace or "")


def line_of_trace(stack: str) -> str:
    """Returns ` at FILE:LINE` for the user's innermost frame of a stack, or ``."""
    place = _place(stack)
    return f" at {place[0]}:{place[1]}" if place else ""


def place_of_node(node: torch.fx.Node) -> tuple[str, int] | None:
    """Returns the user's innermost file and line that made `node`."""
    return _place(node.stack_trace or "")


def _place(stack: str) -> tuple[str, int] | None:
    for file, line in reversed(_FRAME.findall(stack)):
        if is_user_file(file):
            return file, int(line)
    return None
