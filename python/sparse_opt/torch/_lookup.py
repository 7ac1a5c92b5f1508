# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The operators of block-sparse tables.

"""`sparse_opt::lookup`, rows of a block-sparse table, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparse_opt._errors import StepError
from sparse_opt._products import Matrix
from sparse_opt.torch import _gpu, _linear


def _places(
    indices: Tensor, weight: Tensor, pattern: Tensor, rows: int, cols: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns of each block that a row has, row after row: the number of the row among the
    indices, the block's column, its slot and the row within it."""
    matrix = _linear.matrix_of(weight, rows, cols)
    if _gpu.has(pattern):
        is_captured = _gpu.place_of(pattern).is_captured
        if is_captured:
            raise StepError(
                "expected an embedding of blocks outside of the capture of a graph, but got one"
                " within: how many blocks rows have is read then"
            )
        _gpu.require_pattern(matrix, pattern, is_captured)
    else:
        _linear.require_pattern(matrix, pattern)
    flat = indices.reshape(-1).to(torch.int64)
    if flat.numel() and not 0 <= int(flat.min()) <= int(flat.max()) < rows:
        raise StepError(
            f"expected indices below {rows} of a table of so many rows, but got"
            f" {int(flat.min())} to {int(flat.max())}"
        )
    row_ptr, col_idx, slot = matrix.rows_of(pattern)
    block_row, within = flat // matrix.block_rows, flat % matrix.block_rows
    first = row_ptr[block_row].to(torch.int64)
    counts = row_ptr[block_row + 1] - first
    number = torch.repeat_interleave(counts)
    order = torch.arange(number.numel(), device=number.device)
    position = order - (counts.cumsum(0) - counts)[number] + first[number]
    slots = slot[position].to(torch.int64)
    return number, col_idx[position].to(torch.int64), slots, within[number]


@torch.library.custom_op("sparse_opt::lookup", mutates_args=(), device_types=("cpu", "cuda"))
def lookup(indices: Tensor, weight: Tensor, pattern: Tensor, rows: int, cols: int) -> Tensor:
    """Returns rows of a table, `[..., cols]`, of indices `[...]`."""
    number, col, slot, within = _places(indices, weight, pattern, rows, cols)
    width = weight.shape[2]
    y = weight.new_zeros(indices.numel(), cols // width, width)
    y[number, col] = weight[slot, within]
    return y.reshape(*indices.shape, cols)


@lookup.register_fake
def _(indices: Tensor, weight: Tensor, pattern: Tensor, rows: int, cols: int) -> Tensor:
    return weight.new_empty(*indices.shape, cols)


@torch.library.custom_op(
    "sparse_opt::lookup_backward", mutates_args=(), device_types=("cpu", "cuda")
)
def lookup_backward(
    dy: Tensor, indices: Tensor, weight: Tensor, pattern: Tensor, rows: int, cols: int
) -> Tensor:
    """Returns the gradient of the blocks, sums in float32 at least."""
    kept = _linear.KEPT.get(pattern.data_ptr()) if _linear.KEPT else None
    if kept is not None:
        kept.append((indices.detach().clone(), dy.detach().clone()))
    number, col, slot, within = _places(indices, weight, pattern, rows, cols)
    total = torch.promote_types(weight.dtype, torch.float32)
    dw = weight.new_zeros(weight.shape, dtype=total)
    width = weight.shape[2]
    parts = dy.reshape(indices.numel(), cols // width, width)[number, col].to(total)
    # Of the order of tokens on a processor, whatever threads there are.
    dw.flatten(0, 1).index_add_(0, slot * weight.shape[1] + within, parts)
    return dw.to(weight.dtype)


@lookup_backward.register_fake
def _(
    dy: Tensor, indices: Tensor, weight: Tensor, pattern: Tensor, rows: int, cols: int
) -> Tensor:
    return torch.empty_like(weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    indices, weight, pattern, ctx.rows, ctx.cols = inputs
    ctx.save_for_backward(indices, weight, pattern)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return None, lookup_backward(dy, *ctx.saved_tensors, ctx.rows, ctx.cols), None, None, None


lookup.register_autograd(_backward, setup_context=_keep)
lookup_backward.register_autograd(
    _linear.refuse_second, setup_context=lambda ctx, inputs, output: None
)
lookup.register_vmap(_linear.refuse_vmap)
lookup_backward.register_vmap(_linear.refuse_vmap)


def scores(
    matrix: Matrix, kept: Sequence[tuple[Tensor, Tensor]]
) -> np.ndarray[Any, Any]:
    """Returns the L1 norms of all blocks of the gradient of the dense table, `[block rows,
    block columns]`, of indices and gradients of rows: of the rows alone that were read."""
    indices = torch.cat([indices.reshape(-1) for indices, _ in kept]).to(torch.int64)
    total = torch.promote_types(kept[0][1].dtype, torch.float32)
    dy = torch.cat([dy.reshape(-1, dy.shape[-1]) for _, dy in kept]).to(total)
    read, place = torch.unique(indices, return_inverse=True)
    gradient = dy.new_zeros(read.numel(), matrix.cols).index_add_(0, place, dy)
    norms = gradient.abs().reshape(read.numel(), matrix.grid[1], -1).sum(2)
    found = dy.new_zeros(matrix.grid).index_add_(0, read // matrix.block_rows, norms)
    return _gpu.host(found.to(torch.float32))
