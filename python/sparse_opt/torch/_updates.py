# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Updates of the patterns of layers.

"""Lets the runtime update the patterns of layers, as it does those of compiled steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparse_opt import _compiler, _library, _runtime, cache
from sparse_opt._errors import StepError
from sparse_opt._products import VIEWS, Matrix

_OPTIONS = ["-O1"]


def _text(matrices: Mapping[str, Matrix]) -> str:
    """Returns a step that has these weights, and leaves them as they are."""
    arguments, results = [], []
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
    return (
        f"func.func @step({', '.join(arguments)}) -> ({', '.join(r[2] for r in results)}) {{\n"
        f"  return {', '.join(r[0] for r in results)} : {', '.join(r[1] for r in results)}\n}}\n"
    )


def _numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Returns a tensor's memory; of bfloat16, which NumPy has not, its bits."""
    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def update(
    layers: Mapping[str, Any],
    optimizers: Sequence[torch.optim.Optimizer],
    drop: float,
    norm: str,
    allow_return: bool,
    seed: int,
) -> int:
    """Prunes blocks of layers by their norm and regrows random ones (SET); returns how
    many. The numbers are those of a compiled step with the same names and seed."""
    counts = {int(layer.num_updates) for layer in layers.values()}
    if len(counts) > 1:
        raise StepError(
            "expected layers whose patterns were updated equally often, but got"
            f" {sorted(counts)} updates: update those of one model together"
        )
    matrices = {name: layer.matrix for name, layer in layers.items()}
    text = _text(matrices)
    path = cache.library(
        text, _OPTIONS, lambda path: _compiler.run(text, path, [], _OPTIONS)
    )
    step = _runtime.Step(str(path))
    session = _runtime.Session(step, "cpu", seed)
    stays = _library.PatternUpdate()
    for _ in range(counts.pop()):
        session.update([stays] * len(step.patterns))
    for pattern in step.patterns:
        layer = layers[pattern.name]
        views = _views(layer)
        session.set_blocks(pattern, views["row_ptr"], views["col_idx"], views["slot"])
        weight = step.buffers[pattern.weight]
        session.write(weight, np.ascontiguousarray(_numpy(layer.weight)))
    method = _library.METHODS.index("set")
    update = _library.PatternUpdate(
        method, _library.NORMS.index(norm), drop, 0, allow_return
    )
    session.update([update] * len(step.patterns))
    for pattern in step.patterns:
        _take(step, session, pattern, layers[pattern.name], optimizers)
    return session.counters().blocks_pruned


def _views(layer: Any) -> dict[str, np.ndarray[Any, Any]]:
    matrix, pattern = layer.matrix, layer.pattern.numpy()
    return {
        name: pattern[start : start + length]
        for name, start, length in zip(VIEWS, matrix.offsets, matrix.lengths)
    }


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
    values = session.array(step.buffers[pattern.weight])
    with torch.no_grad():
        given = torch.from_numpy(values)
        if layer.weight.dtype == torch.bfloat16:
            given = given.view(torch.bfloat16)
        layer.weight.copy_(given)
        layer.pattern.copy_(torch.from_numpy(held))
        layer.num_updates += 1
        if layer.weight.grad is not None:
            layer.weight.grad[changed] = 0
        for optimizer in optimizers:
            _begin_again(optimizer, layer.weight, changed)


def _begin_again(
    optimizer: torch.optim.Optimizer, weight: torch.nn.Parameter, changed: Tensor
) -> None:
    """Gives what an optimizer keeps of new blocks the values that it began with."""
    group = next(
        (g for g in optimizer.param_groups if any(p is weight for p in g["params"])), {}
    )
    first = {"sum": group.get("initial_accumulator_value", 0.0)}
    if isinstance(optimizer, torch.optim.Rprop):
        first["step_size"] = float(group.get("lr", 0.0))
    for key, value in optimizer.state.get(weight, {}).items():
        if isinstance(value, Tensor) and value.shape == weight.shape:
            value[changed.to(value.device)] = first.get(key, 0.0)
