# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step says of itself.

"""The buffers, patterns and counters of a step, as the runtime describes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from sparse_opt._errors import StepError
from sparse_opt._library import DTYPES, TYPES

Array = np.ndarray[Any, Any]
Scalar: TypeAlias = "type[np.generic[Any]]"


@dataclass(frozen=True)
class Buffer:
    """A buffer of a step."""

    index: int
    name: str
    role: str
    init: str
    shape: tuple[int, ...]
    kind: str
    type: str
    dtype: Scalar
    carried: bool
    pattern: int
    whole: tuple[int, ...]

    @property
    def is_shard(self) -> bool:
        """Whether it is the share of one process, of an array of shape `whole`."""
        return self.shape != self.whole

    def shard_of(self, whole: Array, rank: int) -> Array:
        """Returns the share of a process in an array of shape `whole`."""
        dim = next((d for d, size in enumerate(self.whole) if size > 1), 0)
        rows = self.shape[dim]
        first = min(rank * rows, self.whole[dim] - rows)
        return whole[(slice(None),) * dim + (slice(first, first + rows),)]


@dataclass(frozen=True)
class Mask:
    """An argument of the exported step that a pattern has taken the place of."""

    name: str
    shape: tuple[int, ...]
    dtype: type
    one: float
    transpose: bool

    @classmethod
    def of(cls, entry: Any) -> Mask:
        type = entry["type"]
        return cls(
            entry["name"],
            tuple(entry["shape"]),
            DTYPES[TYPES.index(type)],
            0x3F80 if type == "bf16" else 1,
            entry["transpose"],
        )


@dataclass(frozen=True)
class Pattern:
    """A pattern of a step: which blocks of a matrix are stored."""

    index: int
    name: str
    rows: int
    cols: int
    extents: int
    block_rows: int
    block_cols: int
    slots: int
    density: float
    is_static: bool
    weight: int
    masks: tuple[Mask, ...] = ()

    @property
    def of_counts(self) -> Pattern:
        """The same pattern of the matrix that has a number for each block."""
        rows, cols = self.rows // self.block_rows, self.cols // self.block_cols
        return replace(self, rows=rows, cols=cols, block_rows=1, block_cols=1)

    @property
    def blocks(self) -> int:
        """How many blocks the matrix has."""
        return (self.rows // self.block_rows) * (self.cols // self.block_cols)


@dataclass(frozen=True)
class Origin:
    """An argument of the exported step that the compiler gave another form.

    Attributes:
      shape: what the program knows.
      parts: the buffers that it is in, each with the slice of it that the entries
        of the buffer's matrix are, row by row.
    """

    shape: tuple[int, ...]
    parts: Mapping[str, tuple[slice, ...]]

    def join(self, arrays: Mapping[str, Array]) -> Array:
        """Returns the argument; `arrays` are its parts as matrices."""
        first = arrays[next(iter(self.parts))]
        whole = np.zeros(self.shape, first.dtype)
        for name, place in self.parts.items():
            part = whole[place]
            part[...] = arrays[name].reshape(part.shape)
        return whole

    def split(self, whole: Array) -> Iterator[tuple[str, Array]]:
        """Yields the parts of the argument, in its dimensions."""
        for name, place in self.parts.items():
            yield name, whole[place]


@dataclass(frozen=True)
class Blocks:
    """The stored blocks of a matrix, row by row: where they are, in which slot."""

    row_ptr: Array
    col_idx: Array
    slot: Array

    @property
    def rows(self) -> Array:
        counts = np.diff(self.row_ptr)
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


@dataclass(frozen=True)
class Counters:
    """What a session has done."""

    seed: int
    steps: int
    pattern_updates: int
    blocks_pruned: int
    blocks_regrown: int
    allocations: int
    reallocations: int
    recompilations: int
    bytes: int


def plain(name: str, value: Any) -> Any:
    """Returns `value`; raises `StepError` if it is an array of which entries are masked."""
    if isinstance(value, np.ma.MaskedArray):
        raise StepError(
            f"expected an array without a mask for '{name}', but got a"
            " numpy.ma.MaskedArray: pass value.filled(0), or the mask beside it"
        )
    return value


def require_rank(name: str, shape: tuple[int, ...], rank: int) -> None:
    """Raises `StepError` if a batch of another shape has other dimensions, too."""
    if len(shape) != rank:
        raise StepError(
            f"expected '{name}' of {rank} dimensions, as it was exported, but got shape"
            f" {list(shape)}"
        )


def require(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], value: Array
) -> None:
    """Raises `StepError` if `value` is not of this shape and type."""
    if value.shape != shape:
        raise StepError(
            f"expected '{name}' of shape {list(shape)}, but got {list(value.shape)}:"
            " a compiled step has one shape, export the step again for another"
        )
    if value.dtype != dtype:
        kind = type(value)
        if kind.__module__ == "torch":
            raise StepError(
                f"expected a NumPy array for '{name}', but got a torch.{kind.__name__}:"
                " pass tensor.detach().numpy()"
            )
        raise StepError(f"expected '{name}' of type {dtype}, but got {value.dtype}")
