# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What results of layers with an activation were made of.

"""A layer with an activation keeps what that is applied to, for its gradient. A layer that reads
its result keeps the same tensor, and not the result, which its backward pass computes again."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from torch import Tensor


class Origin(NamedTuple):
    """What an activation was applied to."""

    z: Tensor
    activation: str


class _Known(NamedTuple):
    y: weakref.ref[Tensor]
    version: int
    z: weakref.ref[Tensor]
    activation: str


# By the results' identities, for as long as these are there.
_KNOWN: dict[int, _Known] = {}


def note(y: Tensor, z: Tensor, activation: str) -> None:
    """Keeps that `y` is an activation of `z`, neither of which stays for that."""
    key = id(y)

    def forget(gone: weakref.ref[Tensor]) -> None:
        known = _KNOWN.get(key)
        if known is not None and known.y is gone:
            del _KNOWN[key]

    if not y.is_inference():
        _KNOWN[key] = _Known(weakref.ref(y, forget), y._version, weakref.ref(z), activation)


def origin(x: Tensor) -> Origin | None:
    """Returns what `x` was made of, if a layer made it and nothing has written to it."""
    known = _KNOWN.get(id(x))
    if known is None or known.y() is not x or known.version != x._version:
        return None
    z = known.z()
    # What autograd has given back cannot be written to, but may be gone.
    return None if z is None or z._version else Origin(z, known.activation)
