# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Matrices in blocks and dense ones, as tensors of PyTorch.

"""Spreads stored blocks over a dense matrix, and gathers them from it: what
`sparse_opt/_blocks.py` does with arrays of NumPy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sparse_opt._products import Matrix
from sparse_opt.torch import _gpu


def tiles(dense: Tensor, block: tuple[int, int]) -> Tensor:
    """Returns a matrix as [block rows, block columns, rows, columns]."""
    rows, cols = dense.shape
    parts = dense.reshape(rows // block[0], block[0], cols // block[1], block[1])
    return parts.transpose(1, 2)


def places(matrix: Matrix, pattern: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the slots that have a block, and the block row and column of each."""
    rows, cols = matrix.blocks_of(_gpu.host(pattern))
    slots = np.flatnonzero(rows >= 0)
    return torch.from_numpy(slots), torch.from_numpy(rows[slots]), torch.from_numpy(cols[slots])


def spread(matrix: Matrix, pattern: Tensor, values: Tensor, rest: float = 0.0) -> Tensor:
    """Returns the dense matrix of blocks, with `rest` where none is stored."""
    blocks = values.new_full((*matrix.grid, matrix.block_rows, matrix.block_cols), rest)
    slots, rows, cols = places(matrix, pattern)
    blocks[rows, cols] = values[slots]
    return blocks.transpose(1, 2).reshape(matrix.rows, matrix.cols)


def gather(matrix: Matrix, pattern: Tensor, dense: Tensor) -> Tensor:
    """Returns the stored blocks of a dense matrix; slots without a block have zeros."""
    values = dense.new_zeros(matrix.slots, matrix.block_rows, matrix.block_cols)
    slots, rows, cols = places(matrix, pattern)
    values[slots] = tiles(dense, (matrix.block_rows, matrix.block_cols))[rows, cols]
    return values
