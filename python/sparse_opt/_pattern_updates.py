# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Updates of the patterns of layers, of any framework.

"""Lets the runtime update the patterns of layers, as it does those of compiled steps.

A step that has the weights of the layers, and leaves them as they are, is compiled once.
At an update a session of it takes their patterns and values, and gives back what it makes
of them.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparse_opt import _compiler, _given, _library, _method, _runtime, cache
from sparse_opt._errors import StepError
from sparse_opt._library import PatternStatistics, PatternUpdate
from sparse_opt._method import Method
from sparse_opt._products import Matrix
from sparse_opt._sparsity import updates_of

Array = np.ndarray[Any, Any]

_OPTIONS = ["-O1"]

# By the names of weights: an update of the runtime's, or a method and a share of blocks.
Due = Mapping[str, PatternUpdate | tuple[Method, float]]


@dataclass
class Weight:
    """A block-sparse weight.

    Attributes:
      pattern: as `Matrix.pattern_of` makes it.
      values: `[slots, block rows, block columns]`; of bfloat16, which NumPy has not, bits.
      updates: how often the pattern was updated.
      changed: which slots hold another block, or none, after an update.
      pruned, regrown: which slots lost a block by it, and which have got one.
      statistics: what is counted of it after an update, without the history of the run.
    """

    matrix: Matrix
    pattern: Array
    values: Array
    updates: int
    changed: Array | None = None
    pruned: Array | None = None
    regrown: Array | None = None
    statistics: PatternStatistics = field(default_factory=PatternStatistics)


def due_of(
    matrices: Mapping[str, Matrix],
    method: str | Method,
    drop: float,
    *,
    norm: str = "l1",
    density: float | None = None,
    allow_return: bool = False,
) -> Due:
    """Returns an update of weights by their names, all by one method."""
    if isinstance(method, Method):
        drop = _given.share("drop", drop)
        return {name: (method, drop) for name in matrices}
    patterns = compiled(matrices).patterns
    updates = updates_of(patterns, method, norm, drop, density, allow_return)
    return {p.name: update for p, update in zip(patterns, updates)}


def needs_scores(due: PatternUpdate | tuple[Method, float]) -> bool:
    """Returns whether an update reads the scores of all blocks."""
    if isinstance(due, PatternUpdate):
        return _library.reads_scores(due)
    return bool(due[0].needs_scores)


def compiled(matrices: Mapping[str, Matrix], scored: Sequence[str] = ()) -> _runtime.Step:
    """Returns the step of weights by their names; it is given the scores of some."""
    text = _text(matrices, scored)
    path = cache.library(
        text, _OPTIONS, lambda path: _compiler.run(text, path, [], _OPTIONS)
    )
    return _runtime.Step(str(path))


def update(
    weights: Mapping[str, Weight], due: Due, scores: Mapping[str, Array], seed: int
) -> int:
    """Updates the patterns of weights in place; returns how many blocks were pruned. The
    choices are those of a compiled step with the same names and seed.

    Args:
      weights: all of a model, by their names.
      due: what is updated; the others stay as they are, and count it.
      scores: of each that is updated by them, the norms of all blocks of its gradient.
    """
    alike: dict[int, dict[str, Weight]] = {}
    for name, weight in weights.items():
        alike.setdefault(weight.updates, {})[name] = weight
    _require_together(weights, due)
    return sum(
        _update(group, count, due, {n: s for n, s in scores.items() if n in group}, seed)
        for count, group in sorted(alike.items())
    )


def _require_together(weights: Mapping[str, Weight], due: Due) -> None:
    """Raises `StepError` where a method compares blocks of weights that are not updated in
    one session, since they were updated unequally often."""
    seen: dict[str, str] = {}
    for name, weight in weights.items():
        update = due.get(name)
        if isinstance(update, tuple) and _method.compares_weights(update[0]):
            which, called = f"method {id(update[0])}", type(update[0]).__name__
        elif isinstance(update, PatternUpdate) and update.together:
            which, called = f"group {update.together}", "distribution global"
        else:
            continue
        first = seen.setdefault(which, name)
        if weights[first].updates != weight.updates:
            raise StepError(
                f"expected weights that were updated equally often for {called}, which compares"
                f" their blocks, but got '{first}' with {weights[first].updates} and '{name}' with"
                f" {weight.updates}"
            )


def _update(
    weights: Mapping[str, Weight],
    count: int,
    due: Due,
    scores: Mapping[str, Array],
    seed: int,
) -> int:
    """Updates weights that were updated equally often."""
    step = compiled({name: weight.matrix for name, weight in weights.items()}, list(scores))
    session = _runtime.Session(step, "cpu", seed)
    stays = PatternUpdate()
    # Choices are keyed by how many updates there were.
    session.count_updates(count)
    buffers = {b.name: b for b in step.buffers if b.kind == "dense"}
    for pattern in step.patterns:
        weight = weights[pattern.name]
        session.set_blocks(pattern, *weight.matrix.rows_of(weight.pattern))
        session.write(step.buffers[pattern.weight], np.ascontiguousarray(weight.values))
    for name, found in scores.items():
        session.write(buffers[_score_name(name)], np.ascontiguousarray(found))
    if scores:
        session.run_scores()
    # Scores are gone with the first update: methods that read them come first.
    own = [(p, d) for p in step.patterns if isinstance(d := due.get(p.name), tuple)]
    arrays = {p.name: session.array(step.buffers[p.weight]) for p, _ in own}
    seen: Any = types.SimpleNamespace(_session=session, arrays=arrays, buffers={})
    _method.apply(seen, [(p, method, share) for p, (method, share) in own])
    native = [
        d if isinstance(d := due.get(p.name), PatternUpdate) else stays for p in step.patterns
    ]
    if any(d.method for d in native):
        session.update(native)
    for pattern in step.patterns:
        weight = weights[pattern.name]
        before = weight.matrix.blocks_of(weight.pattern)
        blocks = session.blocks(pattern)
        weight.pattern = weight.matrix.pattern_from(
            blocks.row_ptr, blocks.col_idx, blocks.slot
        )
        after = weight.matrix.blocks_of(weight.pattern)
        weight.changed = (before[0] != after[0]) | (before[1] != after[1])
        weight.pruned = weight.changed & (before[0] >= 0)
        weight.regrown = weight.changed & (after[0] >= 0)
        weight.values = np.array(session.array(step.buffers[pattern.weight]))
        weight.statistics = session.statistics(pattern)
        weight.updates = max(count + 1, int(session.counters().pattern_updates))
    return int(session.counters().blocks_pruned)


def require_scores(name: str, scores: Array | None, how: str) -> Array:
    """Returns scores that are there; `how` says how to have them."""
    if scores is None:
        raise StepError(
            f"expected the gradient of '{name}' for a method that scores all blocks, but got"
            f" none: {how}"
        )
    return scores


def _text(matrices: Mapping[str, Matrix], scored: Sequence[str]) -> str:
    """Returns a step that has these weights, and leaves them as they are."""
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
        given = json.dumps(_score_name(name), ensure_ascii=False)
        inputs.append(f"%s{number}: {grid} {{bsr.name = {given}}}")
        # The magnitude of a norm is the norm.
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
    return f"scores of {name}"
