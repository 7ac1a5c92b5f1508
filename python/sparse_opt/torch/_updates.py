# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Updates of the patterns of layers.

"""Updates the layers of a model, what optimizers keep of them, and all processes.

Values may be sharded (FSDP): an update gathers them, and each rank does the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from sparse_opt import _pattern_updates, _products, _runtime
from sparse_opt._errors import StepError
from sparse_opt._pattern_updates import Due, Weight, needs_scores, require_scores


def trained(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the layers that a model trains, by the names of their weights."""
    from sparse_opt.torch.nn import Linear

    layers = {
        f"{name}.weight".lstrip("."): module
        for name, module in model.named_modules()
        if isinstance(module, Linear) and module.weight.requires_grad
    }
    if not layers:
        raise StepError("expected a model with block-sparse layers to train, but got none")
    return layers


def optimizers_of(
    layers: Mapping[str, Any],
    given: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
) -> list[torch.optim.Optimizer]:
    """Returns optimizers, one of which has each weight."""
    optimizers = [given] if isinstance(given, torch.optim.Optimizer) else list(given)
    held = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
    for name, layer in layers.items():
        if id(layer.weight) not in held:
            raise StepError(
                f"expected an optimizer that has '{name}', but got none that does: make it after"
                " sparsify"
            )
    return optimizers


def compiled(layers: Mapping[str, Any]) -> _runtime.Step:
    """Returns the step of layers by the names of their weights."""
    return _pattern_updates.compiled({name: layer.matrix for name, layer in layers.items()})


def update(
    layers: Mapping[str, Any],
    optimizers: Sequence[torch.optim.Optimizer],
    due: Due,
    seed: int,
) -> int:
    """Updates the patterns of layers, of a model's all, by the names of their weights;
    returns how many blocks were pruned."""
    _require_alike(layers)
    scored = [name for name in layers if name in due and needs_scores(due[name])]
    scores = {name: _scores(name, layers[name]) for name in scored}
    weights = {
        name: Weight(layer.matrix, layer.pattern.numpy(), _numpy(_whole(layer.weight)))
        for name, layer in layers.items()
    }
    count = int(next(iter(layers.values())).num_updates)
    pruned, count = _pattern_updates.update(weights, count, due, scores, seed)
    with torch.no_grad():
        for name, layer in layers.items():
            layer.num_updates.fill_(count)
            _take(weights[name], layer, optimizers)
    return pruned


def _whole(tensor: Tensor) -> Tensor:
    """Returns all of a tensor, which may be sharded over processes."""
    whole = getattr(tensor, "full_tensor", None)
    return tensor.detach() if whole is None else whole().detach()


def _take_whole(tensor: Tensor, whole: Tensor) -> None:
    """Writes all of a tensor; each process its own shard."""
    if not hasattr(tensor, "full_tensor"):
        tensor.copy_(whole)
        return
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(tensor, DTensor)
    # All have the same numbers: nothing is sent.
    given = distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None)
    tensor.to_local().copy_(given.to_local())


def _numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Returns a tensor's memory; of bfloat16, which NumPy has not, its bits."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _require_alike(layers: Mapping[str, Any]) -> None:
    """Raises `StepError` unless layers were updated equally often, on all ranks."""
    counts = {int(layer.num_updates) for layer in layers.values()}
    if len(counts) > 1:
        raise StepError(
            "expected layers whose patterns were updated equally often, but got"
            f" {sorted(counts)} updates: update those of one model together"
        )
    if not _is_distributed():
        return
    hashes = {name: zlib.crc32(layer.pattern.numpy()) for name, layer in layers.items()}
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, (counts.pop(), hashes))
    for rank, (count, others) in enumerate(found):
        apart = [name for name in hashes if others.get(name) != found[0][1].get(name)]
        if apart or count != found[0][0]:
            what = f"another pattern of '{apart[0]}'" if apart else f"{count} updates"
            raise StepError(
                f"expected the patterns of rank 0 on all ranks, but got {what} on rank"
                f" {rank}: give them by broadcast_patterns(model), and update them with one"
                " seed"
            )


def _is_distributed() -> bool:
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def broadcast(layers: Mapping[str, Any]) -> None:
    """Gives the patterns of rank 0 to all."""
    if not _is_distributed():
        return
    for layer in layers.values():
        for buffer in (layer.pattern, layer.num_updates):
            distributed.broadcast(buffer, 0)


def _scores(name: str, layer: Any) -> np.ndarray[Any, Any]:
    """Returns the L1 norms of all blocks of a layer's gradient; of several processes their
    mean."""
    if not layer.kept:
        how = "call keep_gradients(model) in front of the backward pass"
        require_scores(name, None, how)
    x, dy = (
        torch.cat([part.reshape(-1, part.shape[-1]) for part in parts]).contiguous()
        for parts in zip(*layer.kept)
    )
    found = _products.scores(
        layer.matrix, "l1", x.shape[0], x.data_ptr(), dy.data_ptr(), torch.get_num_threads()
    )
    if _is_distributed():
        shared = torch.from_numpy(found)
        distributed.all_reduce(shared)
        shared /= distributed.get_world_size()
    return found


def _take(
    weight: Weight, layer: Any, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Gives a layer its pattern and values as they are now, and what is kept of slots that
    changed what it began with."""
    given = torch.from_numpy(weight.values)
    if layer.weight.dtype == torch.bfloat16:
        given = given.view(torch.bfloat16)
    _take_whole(layer.weight, given)
    layer.pattern.copy_(torch.from_numpy(weight.pattern))
    changed = torch.from_numpy(weight.changed)
    if layer.weight.grad is not None:
        _fill(layer.weight.grad, changed, 0.0)
    for tensor, first in _kept_by(optimizers, layer.weight):
        _fill(tensor, changed, first)


def _fill(tensor: Tensor, changed: Tensor, value: float) -> None:
    """Gives slots that changed a value."""
    whole = _whole(tensor)
    is_sharded = hasattr(tensor, "full_tensor")
    whole[changed.to(whole.device)] = value
    if is_sharded:
        _take_whole(tensor, whole)


def _kept_by(
    optimizers: Sequence[torch.optim.Optimizer], weight: torch.nn.Parameter
) -> Iterator[tuple[Tensor, float]]:
    """Yields what optimizers keep of a weight, and the value that it began with."""
    for optimizer in optimizers:
        group = next(
            (g for g in optimizer.param_groups if any(p is weight for p in g["params"])), {}
        )
        first = {"sum": group.get("initial_accumulator_value", 0.0)}
        if isinstance(optimizer, torch.optim.Rprop):
            first["step_size"] = float(group.get("lr", 0.0))
        for key, value in optimizer.state.get(weight, {}).items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                yield value, first.get(key, 0.0)
