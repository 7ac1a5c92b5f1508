# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Finds the line of the user's program that a node came from, and erases nodes.

"""Source lines of traced nodes, and nodes that nothing uses."""

from __future__ import annotations

import re

import torch

from sparse_opt._source import is_user_file

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def erase_unused(graph: torch.fx.Graph) -> None:
    """Erases nodes that nothing uses and that have no effect. Unlike
    `eliminate_dead_code` this asks only those without users whether they have one."""
    for node in reversed(graph.nodes):
        if not node.users and not node.is_impure():
            graph.erase_node(node)


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
