# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Updates of the patterns of layers.

"""Lets the runtime update the patterns of layers, as it does those of compiled steps.

A step that has the weights of the layers, and leaves them as they are, is compiled once.
At an update its session takes their patterns and values, and gives back what it makes of
them. Values may be sharded (FSDP): an update gathers them, and each rank does the same.
"""

from __future__ import annotations

import json
import types
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from sparse_opt import _compiler, _library, _method, _products, _runtime, cache
from sparse_opt._errors import StepError
from sparse_opt._library import PatternUpdate
from sparse_opt._method import Method
from sparse_opt._products import Matrix

_OPTIONS = ["-O1"]

# By the names of weights: an update of the runtime's, or a method and a share of blocks.
Due = Mapping[str, PatternUpdate | tuple[Method, float]]


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


def needs_scores(due: PatternUpdate | tuple[Method, float]) -> bool:
    """Returns whether an update reads the scores of all blocks."""
    if isinstance(due, PatternUpdate):
        return _library.METHODS[due.method] == "rigl"
    return bool(due[0].needs_scores)


def _text(matrices: Mapping[str, Matrix], scored: Sequence[str]) -> str:
    """Returns a step that has these weights, and leaves them as they are; it is given the
    scores of some."""
    arguments, results, inputs, outputs, body = [], [], [], [], []
    for number, (name, matrix) in enumerate(matrices.items()):
        label = f"bsr.name = {json.dumps(name, ensure_ascii=False)}"
        rows, cols = matrix.block_rows, matrix.block_cols
        type = f"tensor<{matrix.slots}x{rows}x{cols}x{matrix.type}>"
        arguments.append(
            f"%p{number}: !bsr.pattern<{matrix.rows}x{matrix.cols}, block = {rows}x{cols},"
            f' slots = {matrix.slots}> {{{label}, bsr.role = "pattern"}}'
        )
        arguments.append(
            f"%w{number}: {type} {{{label}, bsr.pattern = {2 * number} : i64,"
            f' bsr.result = {number} : i64, bsr.role = "param"}}'
        )
        results.append((f"%w{number}", type, f"{type} {{{label}}}"))
        if name not in scored:
            continue
        grid = f"tensor<{matrix.grid[0]}x{matrix.grid[1]}xf32>"
        inputs.append(f"%s{number}: {grid} {{bsr.name = {_score_name(name)}}}")
        # Of norms the magnitude is what they are.
        body.append(
            f"%e{number} = tensor.empty() : {grid}\n  %r{number} = linalg.abs"
            f" ins(%s{number} : {grid}) outs(%e{number} : {grid}) -> {grid}\n  "
        )
        outputs.append((f"%r{number}", grid, f'{grid} {{{label}, bsr.role = "scores"}}'))
    results += outputs
    norm = 'attributes {bsr.score_norm = "l1"} ' if scored else ""
    return (
        f"func.func @step({', '.join(arguments + inputs)})"
        f" -> ({', '.join(r[2] for r in results)}) {norm}{{\n  {''.join(body)}"
        f"return {', '.join(r[0] for r in results)} : {', '.join(r[1] for r in results)}\n}}\n"
    )


def _score_name(name: str) -> str:
    return json.dumps(f"scores of {name}", ensure_ascii=False)


def compiled(layers: Mapping[str, Any], scored: Sequence[str] = ()) -> _runtime.Step:
    """Returns the step of layers by the names of their weights."""
    text = _text({name: layer.matrix for name, layer in layers.items()}, scored)
    path = cache.library(
        text, _OPTIONS, lambda path: _compiler.run(text, path, [], _OPTIONS)
    )
    return _runtime.Step(str(path))


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


def update(
    layers: Mapping[str, Any],
    optimizers: Sequence[torch.optim.Optimizer],
    due: Due,
    seed: int,
) -> int:
    """Updates the patterns of layers; returns how many blocks were pruned. The choices are
    those of a compiled step with the same names and seed.

    Args:
      layers: all of a model, by the names of their weights.
      due: what is updated; the others stay as they are, and count it.
    """
    _require_alike(layers)
    scored = [name for name in layers if name in due and needs_scores(due[name])]
    scores = {name: _scores(name, layers[name]) for name in scored}
    step = compiled(layers, scored)
    session = _runtime.Session(step, "cpu", seed)
    stays = PatternUpdate()
    for _ in range(int(next(iter(layers.values())).num_updates)):
        session.update([stays] * len(step.patterns))
    buffers = {b.name: b for b in step.buffers if b.kind == "dense"}
    for pattern in step.patterns:
        layer = layers[pattern.name]
        session.set_blocks(pattern, *layer.matrix.rows_of(layer.pattern.numpy()))
        values = np.ascontiguousarray(_numpy(_whole(layer.weight)))
        session.write(step.buffers[pattern.weight], values)
    for name, found in scores.items():
        session.write(buffers[json.loads(_score_name(name))], found)
    if scores:
        session.run_scores()
    # Scores are gone with the first update: methods that read them come first.
    _apply_methods(step, session, layers, due)
    native = [d if isinstance(d := due.get(p.name), PatternUpdate) else stays for p in step.patterns]
    if any(d.method for d in native):
        session.update(native)
    for pattern in step.patterns:
        _take(step, session, pattern, layers[pattern.name], optimizers)
    return int(session.counters().blocks_pruned)


def _apply_methods(
    step: _runtime.Step, session: _runtime.Session, layers: Mapping[str, Any], due: Due
) -> None:
    """Does the updates by methods that are Python's."""
    own = [(p, d) for p in step.patterns if isinstance(d := due.get(p.name), tuple)]
    arrays = {p.name: session.array(step.buffers[p.weight]) for p, _ in own}
    seen = types.SimpleNamespace(_session=session, arrays=arrays, buffers={})
    _method.apply(seen, [(p, method, share) for p, (method, share) in own])  # type: ignore[arg-type]


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
        raise StepError(
            f"expected the gradient of '{name}' for a method that scores all blocks, but got"
            " none: call keep_gradients(model) in front of the backward pass"
        )
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
    step: _runtime.Step,
    session: _runtime.Session,
    pattern: Any,
    layer: Any,
    optimizers: Sequence[torch.optim.Optimizer],
) -> None:
    """Gives a layer its pattern and values as they are now, and what is kept of slots that
    changed what it began with."""
    matrix: Matrix = layer.matrix
    before = matrix.blocks_of(layer.pattern.numpy())
    blocks = session.blocks(pattern)
    held = matrix.pattern_from(blocks.row_ptr, blocks.col_idx, blocks.slot)
    after = matrix.blocks_of(held)
    changed = torch.from_numpy((before[0] != after[0]) | (before[1] != after[1]))
    with torch.no_grad():
        given = torch.from_numpy(session.array(step.buffers[pattern.weight]))
        if layer.weight.dtype == torch.bfloat16:
            given = given.view(torch.bfloat16)
        _take_whole(layer.weight, given)
        layer.pattern.copy_(torch.from_numpy(held))
        layer.num_updates.fill_(session.counters().pattern_updates)
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
