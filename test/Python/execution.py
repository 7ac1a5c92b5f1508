# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares exported steps, run natively, with JAX.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart\ by

"""Runs exported steps and compares them with JAX.

By upstream's plain loops, and by the kernels that sparse-compile makes of them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import models
import native
import sparse_opt.jax
import step as steps

# The bounds that integer arguments stay below, by the name of the model.
_BOUNDS = {"gpt": 32, "mixer": 10}


def value(path: Any, leaf: jax.ShapeDtypeStruct, bound: int, rng: Any) -> np.ndarray:
    """Returns a random tensor; second moments must not be negative."""
    if leaf.dtype == np.float32:
        x = rng.normal(scale=0.1, size=leaf.shape).astype(np.float32)
        return np.abs(x) if "nu" in jax.tree_util.keystr(path) else x
    return rng.integers(0, bound, leaf.shape).astype(leaf.dtype)


def run_kernels(text: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """Returns what is carried, then the outputs: JAX's order."""
    compiled = steps.compile(text)
    names = [b["name"] for b in compiled.manifest["buffers"] if b["kind"] != "output"]
    return list(compiled.run(dict(zip(names, arguments, strict=True))).values())


def compare(name: str, step: Any, arguments: Any, bound: int = 100) -> None:
    rng = np.random.default_rng(0)
    arguments = jax.tree_util.tree_map_with_path(
        lambda path, leaf: (
            leaf if isinstance(leaf, np.ndarray) else value(path, leaf, bound, rng)
        ),
        arguments,
    )
    want = [np.array(x) for x in jax.tree.leaves(jax.jit(step)(*arguments))]
    text = sparse_opt.jax.export(step, *arguments)
    worst = 0.0
    for run in (native.run, run_kernels):
        # A step may overwrite its arguments.
        got = run(text, [np.array(x) for x in jax.tree.leaves(arguments)])
        for w, g in zip(want, got, strict=True):
            error = np.abs(w.astype(np.float64) - g).max() / (np.abs(w).max() + 1e-3)
            worst = max(worst, error)
    print(f"{name}: equal" if worst < 1e-5 else f"{name}: apart by {worst:.1e}")


def lookup(name: str, read: Any, table: tuple[int, ...], *indices: np.ndarray) -> None:
    """Compares a step that descends the gradient of a look-up."""

    def step(state: Any, weights: Any, *indices: Any) -> Any:
        def loss(table: Any) -> Any:
            return (jnp.sin(read(table, *indices)) * weights).sum()

        value, gradient = jax.value_and_grad(loss)(state)
        return state - gradient, value

    shape = jax.eval_shape(read, models.f32(*table), *indices).shape
    compare(name, step, (models.f32(*table), models.f32(*shape), *indices))


ids = np.array([[3, 0, 3], [6, 3, 1]], np.int32)
place = np.array([[1], [0]], np.int32)

# CHECK: one row: equal
lookup("one row", lambda t, i: t[i], (7, 4), np.array([[5]], np.int32))
# CHECK: rows: equal
lookup("rows", lambda t, i: t[i], (7, 4), ids)
# CHECK: rows from the end: equal
lookup("rows from the end", lambda t, i: t[i], (7, 4), ids - 7)
# CHECK: ids of fewer bits than rows need: equal
lookup(
    "ids of fewer bits than rows need",
    lambda t, i: t[i],
    (300, 4),
    ids.astype(np.uint8),
)
# CHECK: rows of heads: equal
lookup("rows of heads", lambda t, i: t[i], (7, 2, 3), ids)
# CHECK: columns: equal
lookup("columns", lambda t, i: t[:, i], (4, 7), ids)
# CHECK: rows of a batch: equal
lookup("rows of a batch", jax.vmap(lambda t, i: t[i]), (2, 7, 4), ids)
# CHECK: along the last dimension: equal
lookup(
    "along the last dimension",
    lambda t, i: jnp.take_along_axis(t, i[..., None], -1),
    (2, 3, 7),
    ids,
)
# CHECK: along a middle dimension: equal
lookup(
    "along a middle dimension",
    lambda t, i: jnp.take_along_axis(t, i[..., None], 1),
    (2, 7, 4),
    ids,
)
# CHECK: entries: equal
lookup("entries", lambda t, i, j: t[i, j], (2, 7), place, ids)
# CHECK: entries of inner dimensions: equal
lookup("entries of inner dimensions", lambda t, i, j: t[:, i, j], (3, 2, 7), place, ids)
# CHECK: entries of dimensions that are not neighbors: equal
lookup(
    "entries of dimensions that are not neighbors",
    lambda t, i, j: t[i, :, j],
    (2, 3, 7),
    place,
    ids,
)
# CHECK: rows out of bounds: equal
lookup(
    "rows out of bounds",
    lambda t, i: t.at[i].get(mode="fill", fill_value=0),
    (3, 4),
    ids,
)
# CHECK: entries out of bounds: equal
lookup(
    "entries out of bounds",
    lambda t, i, j: t.at[i, j].get(mode="fill", fill_value=0),
    (1, 5),
    place,
    ids,
)



def branch(state: Any, x: Any) -> Any:
    """Branches on data, one in another, and out of bounds."""

    def inner(x: Any) -> Any:
        return jax.lax.cond(x[0] > 0, jnp.cos, jnp.tanh, x)

    y = jax.lax.cond(x.sum() > 0, lambda x: x * jnp.sin(state), inner, x)
    branches = [jnp.sin, jnp.cos, lambda x: jax.lax.fori_loop(0, 3, lambda _, y: 2 * y, x)]
    return state + y + jax.lax.switch(x[1].astype(int), branches, x), x.sum()


def largest(state: Any, x: Any) -> Any:
    def loss(x: Any) -> Any:
        values, places = jax.lax.top_k(x.reshape(3, 4), 3)
        return (values * values * places).sum()

    value, gradient = jax.value_and_grad(loss)(x)
    return state + gradient, value


ones = np.ones(12, np.float32)
descending = np.arange(12, dtype=np.float32)[::-1] - 6
ties = np.float32([3, 1, 3, 3, -np.inf, -np.inf, 0, -np.inf, 2, 2, 2, 2])
# CHECK-COUNT-4: branch: equal
for x in (descending, -descending, 7 + descending, ones):
    compare("branch", branch, (ones, np.array(x)))
# CHECK-COUNT-2: top_k: equal
compare("top_k", largest, (ones, descending))
compare("top_k", largest, (ones, np.where(np.isinf(ties), np.float32(-1e30), ties)))
# CHECK: top_k of infinities: equal
compare(
    "top_k of infinities",
    lambda state, x: (state, jax.lax.top_k(x.reshape(3, 4), 3)[1].astype(float).sum()),
    (ones, ties),
)
# CHECK: top_k of numbers: equal
compare(
    "top_k of numbers",
    lambda state, x: (state + jax.lax.top_k(x, 12)[0], 0.0),
    (ones, np.int32([5, -3, 5, 0, 2**31 - 1, -(2**31), 7, 7, 1, 1, -1, 2])),
)

# CHECK: torch_style: equal
# CHECK: einsum_mixer: equal
# CHECK: scanned: equal
# CHECK: dropout: equal
# CHECK: mixer: equal
# CHECK: gpt: equal
for name in ("torch_style", "einsum_mixer", "scanned", "dropout", "mixer", "gpt"):
    compare(name, *models.MODELS[name](), bound=_BOUNDS.get(name, 100))
