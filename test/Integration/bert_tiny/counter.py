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

import array
import math
import struct
from typing import Any

_MASK = 2**64 - 1

# The codes of the `array` module.
CODES = {"float32": "f", "int32": "i"}


def bits(name: str, count: int) -> list[int]:
    """Returns the first `count` numbers of `name`, of 64 bits."""
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 & _MASK
    numbers = []
    for i in range(1, count + 1):
        z = key + i * 0x9E3779B97F4A7C15 & _MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        numbers.append(z ^ z >> 31)
    return numbers


def tensor(name: str, spec: dict[str, Any]) -> array.array:
    """Returns the elements of the tensor `name`.

    Args:
      name: its name.
      spec: its `shape`, `type` and `kind`, with what the kind needs.
    """
    count, code, kind = math.prod(spec["shape"]), CODES[spec["type"]], spec["kind"]
    if kind == "zero":
        return array.array(code, bytes(4 * count))
    numbers = bits(name, count)
    if kind == "below":
        return array.array(code, [z % spec["n"] for z in numbers])
    if kind == "coin":
        return array.array(code, [float(z % 8 != 0) for z in numbers])
    # Products and sums of two float32 are exact in float64, so that each array
    # rounds once.
    (scale,) = struct.unpack("f", struct.pack("f", spec["scale"]))
    centered = array.array(
        code, [((z >> 40) * 2.0**-24 - 0.5) * scale for z in numbers]
    )
    if kind == "gain":
        return array.array(code, [1.0 + x for x in centered])
    return centered
