# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Layers of blocks as dense matrices, and how far results may be apart.

import copy
from typing import Any

import torch

ROUNDOFF = {torch.float32: 2**-23, torch.float64: 2**-52, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def is_close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether numbers differ by roundings of sums that are at most as large as the largest."""
    return bool((got.detach().double() - want).abs().max() <= 8 * ROUNDOFF[dtype] * want.abs().max() + 1e-300)


def stored(layer: Any) -> torch.Tensor:
    """Where the dense matrix of a layer has entries of blocks."""
    return layer.mask().repeat_interleave(layer.block[0], 0).repeat_interleave(layer.block[1], 1)


def dense(layer: Any, blocks: torch.Tensor) -> torch.Tensor:
    """Blocks in a layer's slots, as a dense matrix in float64."""
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.weight.copy_(blocks)
    return other.dense_weight().double()
