# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The products of layers on GPUs.

"""Launches the products of layers on PyTorch's device and current stream."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from sparse_opt import _gpu_products, _library
from sparse_opt._errors import StepError
from sparse_opt._gpu_products import Place, Plans
from sparse_opt._products import Matrix, Wanted


def has(tensor: Tensor) -> bool:
    """Returns whether a tensor lies on a GPU that kernels can be compiled for."""
    return tensor.is_cuda and torch.version.hip is None


_target = functools.cache(_library.target)


def place_of(tensor: Tensor) -> Place:
    """Returns where PyTorch computes next of a tensor on a GPU."""
    index: int = tensor.device.index
    with torch.cuda.device(index):
        is_captured = torch.cuda.is_current_stream_capturing()
    stream = torch.cuda.current_stream(index).cuda_stream
    device = f"cuda:{index}"
    return Place(device, _target(device), stream, is_captured)


def is_captured() -> bool:
    """Returns whether a graph records the current stream of the current GPU."""
    cuda: Any = torch.cuda  # which has no types for all of it
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def allocate(like: Tensor, bytes: int) -> tuple[int, Any]:
    """Takes memory where `like` lies; PyTorch gives it to others in the order of the
    stream."""
    held = torch.empty(bytes, dtype=torch.uint8, device=like.device)
    return held.data_ptr(), held


def address_of(tensor: Tensor) -> int:
    return tensor.data_ptr()


@dataclass
class _Known:
    """What is known of a pattern.

    Attributes:
      version: of the tensor, when the rest was found; -1 for what is to be found again.
      count: how many blocks it has.
      plans: by what is computed of it, and the stream.
    """

    version: int = -1
    matrix: Matrix | None = None
    count: int = 0
    plans: dict[tuple[Wanted, Place], Plans] = field(default_factory=dict)


# By the tensors themselves: another one at the same address is another pattern.
_KNOWN: Any = WeakTensorKeyDictionary()


def require_pattern(matrix: Matrix, pattern: Tensor, is_captured: bool) -> _Known:
    """Returns what is known of a pattern; raises `StepError` for one that would have kernels
    read other memory."""
    known: _Known | None = _KNOWN.get(pattern)
    if known is None:
        known = _KNOWN[pattern] = _Known()
    version = -1 if pattern.is_inference() else pattern._version
    if version >= 0 and (known.version, known.matrix) == (version, matrix):
        return known
    if is_captured:
        raise StepError(
            "expected a call of the layer in front of the capture of a graph, but got the first"
            " one, or the first one with this pattern, within it"
        )
    indices = host(pattern)
    require_indices(matrix, indices)
    known.version, known.matrix = version, matrix
    known.count = int(matrix.rows_of(indices)[0][-1])
    for plans in known.plans.values():
        plans.forget()
    return known


def require_indices(matrix: Matrix, indices: np.ndarray[Any, Any]) -> None:
    if reason := matrix.obstacle(indices):
        raise StepError(
            f"expected the pattern of {matrix.slots} blocks of {matrix.block_rows}x"
            f"{matrix.block_cols} in {matrix.rows}x{matrix.cols}, but got {reason}: a"
            " layer's weight and pattern belong together, and are neither averaged nor cast"
        )


def host(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Returns the numbers of a tensor of any device."""
    return tensor.detach().cpu().numpy()


def run(matrix: Matrix, wanted: Wanted, tokens: int, given: dict[str, Tensor], key: Tensor) -> None:
    """Launches what is wanted, as `_products.run` computes it, of tensors by name.

    Args:
      key: the pattern as callers keep it, whose version says whether it has changed.
    """
    place = place_of(key)
    known = require_pattern(matrix, key, place.is_captured)
    # Plans of one stream are not there yet for another.
    kept = wanted, Place(place.device, place.target, place.stream)
    plans = known.plans.get(kept)
    if plans is None:
        plans = known.plans[kept] = _gpu_products.plans_of(matrix, wanted, place)
    addresses = {name: address_of(tensor) for name, tensor in given.items()}
    plans.run(tokens, addresses, place, functools.partial(allocate, key))
    if "dw" in given and (place.is_captured or known.count < matrix.slots):
        _clear_rest(matrix, key, given["dw"])


def _clear_rest(matrix: Matrix, pattern: Tensor, dw: Tensor) -> None:
    """Zeros the gradient in slots without a block, of which kernels leave anything; without
    the host, so that a graph does it of the pattern as it is."""
    count = pattern[matrix.offsets[0] + matrix.grid[0]]
    first = matrix.offsets[2]
    slots = pattern[first : first + matrix.slots].long()
    order = torch.arange(matrix.slots, device=pattern.device)
    rest = torch.ones(matrix.slots + 1, dtype=torch.bool, device=pattern.device)
    rest[torch.where(order < count, slots, matrix.slots)] = False
    dw.masked_fill_(rest[: matrix.slots, None, None].to(dw.device), 0)


def scores(matrix: Matrix, norm: str, x: Tensor, dy: Tensor) -> np.ndarray[Any, Any]:
    """Returns the norms of all blocks of the gradient of the dense weight, `[block rows, block
    columns]`, which is made nowhere, of all rows of x and dy."""
    tokens = x.shape[0]
    found = torch.zeros(matrix.grid, dtype=torch.float32, device=x.device)
    if tokens:
        # A norm is one of the sum over all tokens: a launch has them all, and zeros.
        size = max(_gpu_products.SIZES[-1], 1 << (tokens - 1).bit_length())
        place = place_of(x)
        plans = _gpu_products.plans_of(matrix, Wanted(scores=norm), place, (size,))
        given = {"scores": found, "x": x, "dy": dy}
        addresses = {name: address_of(tensor) for name, tensor in given.items()}
        plans.run(tokens, addresses, place, functools.partial(allocate, x))
    return host(found)
