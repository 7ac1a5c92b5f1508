# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The masks that loops of one's own multiply weights by.

"""Masks of dense weights, chosen as compiled steps and layers choose blocks.

A loop that multiplies weights by these masks trains the same blocks as a compiled step
whose weights have the same names, values and seed, so that runs of both can be compared:

    masks = sparse_opt.masks.first({"w": (768, 3072)}, block=16, density=0.1, seed=1)
    ...
    masks = sparse_opt.masks.update(weights, masks, 0.3, block=16, number=0, seed=1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sparse_opt import _description, _given, _pattern_updates, _products, _runtime
from sparse_opt._errors import StepError
from sparse_opt._method import Method
from sparse_opt._pattern_updates import Array, Weight
from sparse_opt._products import Matrix

_TYPES = {"float32": "f32", "float64": "f64"}


def first(
    shapes: Mapping[str, tuple[int, int]], *, block: Any, density: float, seed: int = 0
) -> dict[str, Array]:
    """Returns the random masks that a compiled step begins with.

    Args:
      shapes: rows and columns of weights, by their names in the step.
      block: rows and columns of a block, one number where they are equal.
      density: the share of the blocks of each weight that is stored.
      seed: that of `sparse_opt.compile`.

    Returns:
      Masks, true for what is stored, of the shapes of the weights.
    """
    matrices = {n: _products.matrix_of(shape, block, density) for n, shape in shapes.items()}
    step = _pattern_updates.compiled(matrices)
    session = _runtime.Session(step, "cpu", _given.seed(seed))
    found = {}
    for pattern in step.patterns:
        session.make_pattern(pattern, pattern.slots)
        blocks = session.blocks(pattern)
        found[pattern.name] = _mask(matrices[pattern.name], blocks.rows, blocks.col_idx)
    return {name: found[name] for name in shapes}


def update(
    weights: Mapping[str, Any],
    masks: Mapping[str, Any],
    drop: float = 0.3,
    *,
    block: Any,
    number: int,
    seed: int = 0,
    method: str | Method = "set",
    norm: str = "l1",
    density: float | None = None,
    allow_return: bool = False,
    gradients: Mapping[str, Any] | None = None,
) -> dict[str, Array]:
    """Returns the masks after an update of all of them, as `Step.update_patterns` makes it.

    Args:
      weights: arrays of float32 or float64, dense, all of a run by their names in the step.
      masks: theirs, which keep or drop whole blocks.
      drop: the share of the blocks of each weight to prune.
      block: rows and columns of a block, one number where they are equal.
      number: how many updates there were before this one, by which choices are keyed.
      seed: that of the step.
      method, norm, density, allow_return: as `Step.update_patterns` has them.
      gradients: of the whole weights, for methods that score absent blocks.

    Returns:
      Masks, true for what is stored. What a loop keeps of regrown blocks, weights and
      moments, it sets to zero itself.
    """
    number, seed = _given.integer("number", number), _given.seed(seed)
    taken = {}
    for name, value in weights.items():
        if name not in masks:
            raise StepError(f"expected a mask of '{name}', but got those of {sorted(masks)}")
        taken[name] = _take(name, value, masks[name], block, number)
    due = _pattern_updates.due_of(
        {name: weight.matrix for name, weight in taken.items()},
        method, drop, norm=norm, density=density, allow_return=allow_return,
    )  # fmt: skip
    scores = {}
    for name, weight in taken.items():
        if _pattern_updates.needs_scores(due[name]):
            given = None if gradients is None else gradients.get(name)
            given = _pattern_updates.require_scores(name, given, "pass gradients=")
            tiles = _tiles(weight.matrix, np.abs(_dense(name, given)))
            scores[name] = tiles.sum((1, 3), dtype=np.float32)
    _pattern_updates.update(taken, due, scores, seed)
    found = {}
    for name, weight in taken.items():
        rows, cols = weight.matrix.blocks_of(weight.pattern)
        found[name] = _mask(weight.matrix, rows[rows >= 0], cols[rows >= 0])
    return found


def _take(name: str, value: Any, mask: Any, block: Any, number: int) -> Weight:
    """Returns a weight with the blocks that its mask keeps."""
    dense = _dense(name, value)
    kept = _given.mask(f"a mask of '{name}'", mask)
    if kept.shape != dense.shape:
        raise StepError(
            f"expected a mask of shape {list(dense.shape)} for '{name}', but got {list(kept.shape)}"
        )
    whole = _products.matrix_of(dense.shape, block, 1.0)
    tiles = _tiles(whole, kept)
    stored = np.asarray(tiles.any((1, 3)))
    if (stored & ~tiles.all((1, 3))).any() or not stored.any():
        raise StepError(
            f"expected the mask of '{name}' to keep whole blocks of {whole.block_rows}x"
            f"{whole.block_cols}, one at least, but got "
            + ("a part of one" if stored.any() else "none")
        )
    matrix = replace(whole, slots=int(stored.sum()), type=_TYPES[dense.dtype.name])
    rows, cols = np.nonzero(stored)
    values = np.ascontiguousarray(_tiles(matrix, dense)[rows, :, cols, :])
    return Weight(matrix, matrix.pattern_of(stored), values, number)


def _dense(name: str, value: Any) -> Array:
    dense = np.asarray(_description.plain(name, value))
    if dense.ndim != 2 or dense.dtype.name not in _TYPES:
        raise StepError(
            f"expected a matrix of float32 or float64 for '{name}', but got {dense.dtype.name}"
            f" of shape {list(dense.shape)}"
        )
    return dense


def _tiles(matrix: Matrix, dense: Array) -> Array:
    """Returns a view by block row, row, block column and column."""
    rows, cols = matrix.grid
    return dense.reshape(rows, matrix.block_rows, cols, matrix.block_cols)


def _mask(matrix: Matrix, rows: Array, cols: Array) -> Array:
    """Returns the mask of blocks."""
    mask = np.zeros((matrix.rows, matrix.cols), np.bool_)
    _tiles(matrix, mask)[rows, :, cols, :] = True
    return mask
