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


def zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    """Returns what `torch.zeros_like` does. Where it is large, its memory is the system's,
    which has zeros in it and takes no time before somebody reads or writes them."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        return torch.zeros_like(tensor)
    like = torch.empty_like(tensor)
    if type(like) is not torch.Tensor or like.numel() < LARGE or like.layout != torch.strided:
        return torch.zeros_like(tensor)
    memory = torch.from_numpy(np.zeros(like.untyped_storage().nbytes(), np.uint8))
    # No view, which would hold the bytes as a tensor, too.
    empty = torch.empty(0, dtype=like.dtype)
    return empty.set_(memory.untyped_storage(), 0, like.shape, like.stride())


# As many numbers are worth a thought about their memory.
LARGE = 1 << 16

# What the runtime holds as bits of another type: NumPy has no bf16, and MLIR no
# unsigned integers.
HELD_AS = {torch.bfloat16: torch.uint16, torch.uint8: torch.int8}
NUMPY_OF = {torch.uint16: np.uint16, torch.int8: np.int8}
