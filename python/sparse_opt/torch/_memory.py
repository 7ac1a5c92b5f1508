# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Tensors as the runtime holds them.

"""Between PyTorch's tensors and the arrays of a step."""

from __future__ import annotations

import numpy as np
import torch

from sparse_opt._program import Array


def to_numpy(tensor: torch.Tensor) -> Array:
    """Returns the tensor's memory as the runtime holds it."""
    tensor = tensor.detach().cpu().resolve_neg()
    held = HELD_AS.get(tensor.dtype)
    return (tensor if held is None else tensor.view(held)).numpy()


def from_numpy(array: Array, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns a tensor on the array's memory."""
    tensor = torch.from_numpy(array)
    return tensor.view(dtype) if dtype in HELD_AS else tensor


# What the runtime holds as bits of another type: NumPy has no bf16, and MLIR no
# unsigned integers.
HELD_AS = {torch.bfloat16: torch.uint16, torch.uint8: torch.int8}
NUMPY_OF = {torch.uint16: np.uint16, torch.int8: np.int8}
