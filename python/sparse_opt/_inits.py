# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# How the arguments of a step begin: `bsr.init`.

"""The rules that tell a driver without Python how to begin an argument."""

from __future__ import annotations

import re
from typing import Any

from sparse_opt._errors import ExportError

# So many numbers PyTorch looks at without other threads.
_PART = 1 << 15
_RULE = re.compile(r"zeros|ones|(normal|constant)\([-+]?[0-9.]+(e[-+]?[0-9]+)?\)")


def require(rule: str) -> None:
    """Raises an `ExportError` unless `rule` is one."""
    if not _RULE.fullmatch(rule):
        raise ExportError(
            "expected an init of the form zeros, ones, constant(c) or normal(sd),"
            f" but got '{rule}'"
        )


def of(values: Any) -> str | None:
    """Returns the rule of numbers that are all equal.

    Args:
      values: a tensor or an array of one dimension, with at least one number.
    """
    first = values[0]
    # Most differ at once; parts of a large weight stay in caches.
    if not bool((values[:64] == first).all()):
        return None
    for start in range(0, len(values), _PART):
        if not bool((values[start : start + _PART] == first).all()):
            return None
    number = float(first)
    if number in (0.0, 1.0):
        return "ones" if number else "zeros"
    rule = f"constant({number!r})"
    return rule if _RULE.fullmatch(rule) else None
