# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Between stored blocks and dense matrices.

"""Dense matrices and masks to blocks and back, for one pattern."""

from __future__ import annotations

import numpy as np

from sparse_opt._errors import StepError
from sparse_opt._description import Array, Blocks, Mask, Pattern


def to_dense(pattern: Pattern, blocks: Blocks, values: Array) -> Array:
    """Returns the matrix, zero where no block is stored."""
    return spread(pattern, blocks, by_rows(blocks, values, copy=False))


def spread(pattern: Pattern, blocks: Blocks, stored: Array) -> Array:
    """Returns the matrix of the stored blocks, which come row by row."""
    grid = _grid(np.zeros((pattern.rows, pattern.cols), stored.dtype), pattern)
    shape = (-1, pattern.block_rows, pattern.block_cols)
    grid[blocks.rows, :, blocks.col_idx, :] = stored.reshape(shape)
    return grid.reshape(pattern.rows, pattern.cols)


def gather(pattern: Pattern, blocks: Blocks, dense: Array) -> Array:
    """Returns the stored blocks of a matrix, row by row."""
    found: Array = _grid(dense, pattern)[blocks.rows, :, blocks.col_idx, :]
    return found


def from_dense(pattern: Pattern, blocks: Blocks, dense: Array, values: Array) -> None:
    """Writes the blocks of a matrix into `values`; what is in none is dropped."""
    values[...] = 0
    values[blocks.slot] = gather(pattern, blocks, dense)


def by_rows(blocks: Blocks, values: Array, copy: bool) -> Array:
    """Returns the stored blocks row by row: of `values` itself, without `copy`, where they
    lie so."""
    count = len(blocks.slot)
    if not copy and np.array_equal(blocks.slot, np.arange(count)):
        return values[:count]
    found: Array = values[blocks.slot]
    return found


def to_mask(pattern: Pattern, blocks: Blocks, mask: Mask) -> Array:
    """Returns the pattern as a mask of the exported step."""
    shape = (pattern.slots, pattern.block_rows, pattern.block_cols)
    dense = to_dense(pattern, blocks, np.full(shape, mask.one, mask.dtype))
    return (dense.T if mask.transpose else dense).reshape(mask.shape)


def from_mask(pattern: Pattern, mask: Mask, value: Array) -> tuple[Array, Array]:
    """Returns `row_ptr` and `col_idx` of the blocks that a mask keeps."""
    if not np.isin(value, (0, mask.one)).all():
        raise StepError(
            f"expected zeros and ones in mask '{mask.name}' of '{pattern.name}', but"
            " got another number"
        )
    kept = value != 0
    if mask.transpose:
        kept = kept.T
    grid = _grid(kept.reshape(pattern.rows, pattern.cols), pattern)
    stored = grid.any((1, 3))
    partly = stored & ~grid.all((1, 3))
    if partly.any():
        row, col = np.argwhere(partly)[0]
        raise StepError(
            f"expected mask '{mask.name}' to keep or drop whole blocks of"
            f" {pattern.block_rows}x{pattern.block_cols}, but got block ({row}, {col})"
            " kept in part"
        )
    count = int(stored.sum())
    if count > pattern.slots:
        raise StepError(
            f"expected at most {pattern.slots} blocks in mask '{mask.name}', as the"
            f" density {pattern.density:g} of '{pattern.name}' says, but got {count}:"
            f" mark it with density={count / stored.size:g}"
        )
    rows, cols = np.nonzero(stored)
    row_ptr = np.searchsorted(rows, np.arange(np.shape(stored)[0] + 1))
    return row_ptr.astype(np.int32), cols.astype(np.int32)


def _grid(dense: Array, pattern: Pattern) -> Array:
    """Returns a view by block row, row, block column and column."""
    return dense.reshape(
        pattern.rows // pattern.block_rows,
        pattern.block_rows,
        pattern.cols // pattern.block_cols,
        pattern.block_cols,
    )
