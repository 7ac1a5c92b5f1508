# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Reads the run folders of sparse-train.

"""Reads run folders, of which every file may be cut, or still be written."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

Read = TypeVar("Read")
Line = dict[str, Any]
Points = list[tuple[float, float]]


def finite(text: str) -> float | None:
    """Returns the number, or None for one that is not finite, as a run writes it."""
    value = float(text)
    return value if math.isfinite(value) else None


def parse(text: str) -> Any:
    """Returns what `text`, JSON, says; members that are null say nothing."""
    def known(members: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in members.items() if value is not None}

    try:
        return json.loads(text, parse_float=finite, parse_constant=lambda name: None,
                          object_hook=known)
    except RecursionError:
        raise ValueError("values that are nested too deep") from None


def read_lines(path: Path) -> list[Line]:
    """Returns the objects of a file of JSON lines, but for a last one that is not
    whole: the run may be writing it."""
    lines = [parse(line) for line in path.read_text().split("\n")[:-1]]
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise ValueError(f"line {number} of {path.name}, which is no object with a step")
    return lines


class NoRun(Exception):
    """A sentence about why a folder holds no run that can be read."""


def read_all(paths: list[Path], read: Callable[[Path], Read]) -> list[Read]:
    """Returns what `read` makes of each folder, but for those without a run, such as
    one that failed before it began: a warning says which. Exits if none is left."""
    runs = []
    for path in paths:
        try:
            runs.append(read(path))
        except NoRun as reason:
            if len(paths) == 1:
                sys.exit(f"error: {reason}")
            print(f"warning: {reason}; it is left out", file=sys.stderr)
    if not runs:
        sys.exit(f"error: expected one of {len(paths)} folders to hold a run, but got none")
    return runs


def series(metrics: Iterable[Line], key: str, scale: float = 1) -> Points:
    """Returns the steps that know a measure, each with it."""
    return [(m["step"], m[key] * scale) for m in metrics if m.get(key) is not None]


def read_config(text: str) -> list[tuple[str, str]]:
    """Returns the keys and values of a configuration as sparse-train writes it:
    sections, and in them keys, or a list of groups of keys."""
    pairs, section, group = [], "", 0
    for line in text.splitlines():
        name, _, value = line.strip().partition(":")
        if not line.startswith(" "):
            section, group = "", 0
        if name.startswith("- "):
            name, group = name[2:], group + 1
        if value:
            place = f"{section}[{group}]" if group else section
            pairs.append((place + "." * bool(place) + name, value.strip().strip('"')))
        else:
            section = name
    return pairs
