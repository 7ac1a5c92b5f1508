# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Reproducible inputs from a counter, the same in every language.

"""Numbers that depend on a name and a counter only.

With 64-bit unsigned arithmetic that wraps,

    bits(name, i) = mix(fnv1a(name) + (i + 1) * 0x9E3779B97F4A7C15)

where `fnv1a` is the 64-bit FNV-1a hash of the bytes of the name and `mix` the
finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). `i` counts the
elements of a tensor in row-major order. Of these bits are made, in float32,

    centered(i) = ((bits >> 40) * 2^-24 - 0.5) * scale      one rounding
    gain(i)     = 1 + centered(i)                           one more
    below(i)    = bits mod n                                integers
    coin(i)     = 0 if bits mod 8 = 0, else 1
"""

from __future__ import annotations

from typing import Any

import numpy as np


def bits(name: str, count: int) -> np.ndarray:
    """Returns the first `count` numbers of `name`, as uint64."""
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(key)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def tensor(name: str, spec: dict[str, Any]) -> np.ndarray:
    """Returns the tensor `name`, of the `shape` and `kind` that `spec` says."""
    shape, kind = tuple(spec["shape"]), spec["kind"]
    z = bits(name, int(np.prod(shape))).reshape(shape)
    if kind == "zero":
        return np.zeros(shape, spec["type"])
    if kind == "below":
        return (z % np.uint64(spec["n"])).astype(np.int32)
    if kind == "coin":
        return (z % np.uint64(8) != 0).astype(np.float32)
    unit = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    centered = (unit - np.float32(0.5)) * np.float32(spec["scale"])
    return np.float32(1) + centered if kind == "gain" else centered
