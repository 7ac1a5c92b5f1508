# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Updates of the patterns of layers.

"""Updates the layers of a model, what optimizers keep of them, and all processes.

Values may be sharded (FSDP): an update gathers them, and each rank does the same.
"""

from __future__ import annotations

import dataclasses
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.nn.utils import parametrize

from sparse_opt import _given, _pattern_updates, _products, _runtime
from sparse_opt._errors import StepError
from sparse_opt._pattern_updates import Due, Weight, needs_scores, require_scores
from sparse_opt._weight import generator
from sparse_opt.torch import _gpu, _linear, _sharded
from sparse_opt.torch._new_blocks import Ages, Start, is_by_slots


def name_of(path: str) -> str:
    """Returns the name of a layer's weight, without what wrappers put before it."""
    parts = [part for part in path.split(".") if part != "_orig_mod"]
    return ".".join([*parts, "weight"]).lstrip(".")


def require_model(model: Any) -> torch.nn.Module:
    if not isinstance(model, torch.nn.Module):
        raise StepError(f"expected a model, but got a {type(model).__name__}")
    return model


def require_parameter(name: str, layer: torch.nn.Module) -> None:
    """Raises `StepError` for a layer whose weight is made of others in front of each call."""
    own = dict(layer.named_parameters(recurse=False))
    if parametrize.is_parametrized(layer) or "weight" not in own:
        raise StepError(
            f"expected '{name}' to be a plain parameter, but got weight_norm, spectral_norm,"
            " pruning or another parametrization of that layer: take it away first, as by"
            " torch.nn.utils.parametrize.remove_parametrizations or prune.remove"
        )


def trained(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the layers that a model trains, by the names of their weights; each weight
    once."""
    from sparse_opt.torch._layers import Blocks

    _sharded.reshard(require_model(model))
    inner = model
    while isinstance(inner, torch.nn.parallel.DistributedDataParallel):
        inner = inner.module
    layers: dict[str, Any] = {}
    seen: set[int] = set()
    for path, module in inner.named_modules():
        if not isinstance(module, Blocks):
            continue
        name = _given.name(name_of(path))
        require_parameter(name, module)
        if module.weight.requires_grad:
            if id(module.weight) not in seen:
                layers[name] = module
            seen.add(id(module.weight))
    if not layers:
        raise StepError("expected a model with block-sparse layers to train, but got none")
    return layers


def optimizers_of(
    layers: Mapping[str, Any],
    given: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
) -> list[torch.optim.Optimizer]:
    """Returns optimizers, one of which has each weight."""
    listed = given if isinstance(given, (list, tuple)) else [given]
    for optimizer in listed:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise StepError(
                "expected an optimizer of torch.optim, or several, but got a"
                f" {type(optimizer).__name__}"
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise StepError(
                "expected an optimizer that keeps state for each parameter, but got LBFGS,"
                " which keeps directions of all: update patterns under another"
            )
    # ZeroRedundancyOptimizer has the state of its part in another.
    optimizers = [*listed, *(o.optim for o in listed if hasattr(o, "optim"))]
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


def keep(layer: Any, on: bool) -> None:
    """Lets a layer keep the inputs and gradients of backward passes, or forget them."""
    place = layer.pattern.data_ptr()
    _linear.KEPT.pop(place, None)
    if not on:
        return
    _linear.KEPT[place] = []
    known = _FORGETTING.get(place)
    if known is None or not known.alive:
        # Another pattern may have that address afterwards.
        found = _FORGETTING[place] = weakref.finalize(layer.pattern, _forget, place)
        found.atexit = False


# What forgets inputs and gradients that were kept, when the pattern at the address is gone.
_FORGETTING: dict[int, Any] = {}


def _forget(place: int) -> None:
    _linear.KEPT.pop(place, None)
    _FORGETTING.pop(place, None)


def update(
    layers: Mapping[str, Any],
    optimizers: Sequence[torch.optim.Optimizer],
    due: Due,
    seed: int,
    start: Start,
    ages: Ages | None = None,
) -> dict[str, Weight] | None:
    """Updates the patterns of layers, of a model's all, by the names of their weights;
    returns what they are then, or None if gradients that are to score blocks are no numbers:
    then nothing has changed."""
    require_alike(layers)
    scored = [name for name in layers if name in due and needs_scores(due[name])]
    scores = {name: _scores(name, layers[name]) for name in scored}
    if not all(np.isfinite(found).all() for found in scores.values()):
        return None
    weights = {
        name: Weight(
            layer.matrix,
            _gpu.host(layer.pattern),
            _numpy(_sharded.whole(layer.weight)),
            int(layer.num_updates),
        )
        for name, layer in layers.items()
    }
    _pattern_updates.update(weights, due, scores, seed)
    with torch.no_grad():
        for name, layer in layers.items():
            weight = weights[name]
            layer.num_updates.fill_(weight.updates)
            changed = torch.from_numpy(weight.changed)
            rows = torch.from_numpy(weight.matrix.blocks_of(weight.pattern)[0])
            new = changed & (rows >= 0)
            values = _values(weight, layer)
            if start.values == "random":
                rng = generator(seed, weight.updates, f"{name}\nvalues")
                values[new] = layer.first_values(rng, rows[new]).to(values.dtype)
            _sharded.take_whole(layer.weight, values)
            layer.pattern.copy_(torch.from_numpy(weight.pattern))
            if layer.weight.grad is not None:
                _fill(layer.weight.grad, changed, 0.0)
            others = (rows >= 0) & ~changed
            for tensor, first in _kept_by(optimizers, layer.weight):
                mean = first
                if start.state == "mean" and others.any():
                    mean = float(_sharded.whole(tensor)[others].double().mean())
                _fill(tensor, changed, first)
                if mean != first:
                    _fill(tensor, new, mean)
            if ages is not None:
                ages.begin(name, changed, new)
    return weights


def _numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Returns a tensor's memory, or a copy of that of a GPU; of bfloat16, which NumPy has not,
    its bits."""
    tensor = tensor.cpu()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def require_alike(layers: Mapping[str, Any]) -> None:
    """Raises `StepError` unless layers have the same patterns on all ranks."""
    if not _is_distributed():
        return
    own = {
        name: (zlib.crc32(_gpu.host(layer.pattern).tobytes()), int(layer.num_updates))
        for name, layer in layers.items()
    }
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, own)
    for rank, others in enumerate(found):
        apart = [name for name in found[0] if others.get(name) != found[0][name]]
        if apart or len(others) != len(found[0]):
            what = f"another pattern of '{apart[0]}'" if apart else "other layers"
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
    mean, of which one without a gradient has zeros."""
    kept = layer.kept
    found = np.zeros(layer.matrix.grid, np.float32)
    if len({x.is_floating_point() for x, _ in kept}) > 1:
        raise StepError(
            f"expected a weight that only linear layers or only embeddings have, to score its"
            f" blocks by gradients, but got '{name}', which both have: update it by set or gmp"
        )
    if kept:
        found = layer.scores(kept)
    device = layer.weight.device
    count = torch.tensor(float(bool(kept)), device=device)
    if _is_distributed():
        shared = torch.from_numpy(found).to(device)
        distributed.all_reduce(shared)
        found = _gpu.host(shared / distributed.get_world_size())
        distributed.all_reduce(count)
    if not count:
        how = "call keep_gradients(model) in front of the backward pass"
        require_scores(name, None, how)
    return found


def _values(weight: Weight, layer: Any) -> Tensor:
    """Returns the values of a weight after an update."""
    given = torch.from_numpy(weight.values)
    return given.view(torch.bfloat16) if layer.weight.dtype == torch.bfloat16 else given


def _fill(tensor: Tensor, changed: Tensor, value: float) -> None:
    """Gives slots that changed a value."""
    whole = _sharded.whole(tensor)
    whole[changed.to(whole.device)] = value
    if _sharded.is_sharded(tensor):
        _sharded.take_whole(tensor, whole)


def _kept_by(
    optimizers: Sequence[torch.optim.Optimizer], weight: torch.nn.Parameter
) -> Iterator[tuple[Tensor, float]]:
    """Yields what optimizers keep of each slot of a weight, and the value that it began
    with."""
    for optimizer in optimizers:
        for key, value in optimizer.state.get(weight, {}).items():
            if is_by_slots(weight, value):
                yield value, first_value(optimizer, weight, key)


def first_value(optimizer: torch.optim.Optimizer, weight: Tensor, key: str) -> float:
    """Returns what an optimizer begins with, of what it keeps of a weight under a key."""
    group = next(
        (g for g in optimizer.param_groups if any(p is weight for p in g["params"])), {}
    )
    if key == "sum":
        return float(group.get("initial_accumulator_value", 0.0))
    if key == "step_size" and isinstance(optimizer, torch.optim.Rprop):
        # A scheduler has changed the rate since.
        return float(group.get("initial_lr", group.get("lr", 0.0)))
    return 0.0
