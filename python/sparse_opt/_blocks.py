# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Between stored blocks and dense matrices.

"""Dense matrices to blocks and back, for one pattern."""

from __future__ import annotations

import numpy as np

from sparse_opt._runtime import Array, Blocks, Pattern


def to_dense(pattern: Pattern, blocks: Blocks, values: Array) -> Array:
    """Returns the matrix, zero where no block is stored."""
    grid = _grid(np.zeros((pattern.rows, pattern.cols), values.dtype), pattern)
    grid[blocks.rows, :, blocks.col_idx, :] = values[blocks.slot]
    return grid.reshape(pattern.rows, pattern.cols)


def from_dense(pattern: Pattern, blocks: Blocks, dense: Array, values: Array) -> None:
    """Writes the blocks of a matrix into `values`; what is in none is dropped."""
    values[...] = 0
    values[blocks.slot] = _grid(dense, pattern)[blocks.rows, :, blocks.col_idx, :]


def _grid(dense: Array, pattern: Pattern) -> Array:
    """Returns a view by block row, row, block column and column."""
    return dense.reshape(
        pattern.rows // pattern.block_rows,
        pattern.block_rows,
        pattern.cols // pattern.block_cols,
        pattern.block_cols,
    )
