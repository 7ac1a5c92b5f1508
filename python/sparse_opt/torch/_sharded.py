# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Tensors that may be sharded over processes.

"""Reads and writes all of a tensor, of FSDP2's too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """Returns all of a tensor; of one that is sharded, all processes call this."""
    held: Any = tensor
    found: Tensor = held.full_tensor() if is_sharded(tensor) else tensor
    return found.detach()


def take_whole(tensor: Tensor, given: Tensor) -> None:
    """Writes all of a tensor; each process its own shard."""
    if not is_sharded(tensor):
        tensor.copy_(given)
        return
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(tensor, DTensor)
    # All have the same numbers: nothing is sent.
    parted = distribute_tensor(given, tensor.device_mesh, tensor.placements, src_data_rank=None)
    tensor.to_local().copy_(parted.to_local())


def reshard(model: torch.nn.Module) -> None:
    """Lets FSDP2 give back what it gathered for a forward pass that had no backward pass."""
    for module in model.modules():
        if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
            module.reshard()  # type: ignore[operator]


def local(tensor: Tensor) -> Tensor:
    """Returns the part of a tensor that this process has."""
    held: Any = tensor
    part: Tensor = held.to_local() if is_sharded(tensor) else tensor
    return part.detach()


def local_slots(tensor: Tensor) -> Tensor | None:
    """Returns which slots this process has, or None for all."""
    if not is_sharded(tensor):
        return None
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(tensor, DTensor)
    numbers = torch.arange(tensor.shape[0])
    return distribute_tensor(
        numbers, tensor.device_mesh, tensor.placements, src_data_rank=None
    ).to_local()
