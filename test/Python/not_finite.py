# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What is not finite stays where it is added, along every dimension.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

"""Scatter-adds of infinities and NaN, and gradients of look-ups, against JAX.

A scatter-add is written as a product with a one-hot matrix: taken as one, it
adds 0 times infinity to every row.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sparse_opt.jax
import step as steps

rng = np.random.default_rng(0)
IDS = np.array([[0, 3, 3], [4, 1, 3]], np.int32)


def numbers(*shape: int) -> np.ndarray:
    """Returns random numbers, two of which are none that are finite."""
    x = rng.normal(size=shape).astype(np.float32)
    x[np.unravel_index(3, shape)] = np.inf
    x[np.unravel_index(x.size - 2, shape)] = np.nan
    return x


def gradient(read: Any) -> Any:
    """Returns the gradient of a look-up by the table, for weights `u`."""
    return lambda t, u, i: jax.grad(lambda t: jnp.sum(read(t, i) * u))(t)


FORMS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "first dimension": (lambda t, u, i: t.at[i[0]].add(u), (5, 4), (3, 4)),
    "second dimension": (lambda t, u, i: t.at[:, i[0]].add(u), (4, 5), (4, 3)),
    "second of three": (
        lambda t, u, i: t.at[:, i[0]].add(u),
        (2, 5, 3),
        (2, 3, 3),
    ),
    "last of three": (lambda t, u, i: t.at[..., i].add(u), (2, 3, 5), (2, 3, 2, 3)),
    "a vector": (lambda t, u, i: t.at[i].add(u), (5,), (2, 3)),
    "entries": (lambda t, u, i: t.at[i % 2, i].add(u), (2, 5), (2, 3)),
    "entries of inner dimensions": (
        lambda t, u, i: t.at[:, i % 2, i].add(u),
        (3, 2, 5),
        (3, 2, 3),
    ),
    "to zeros": (
        lambda t, u, i: jnp.zeros_like(t).at[:, i[0]].add(u),
        (4, 5),
        (4, 3),
    ),
    "in batches": (
        lambda t, u, i: jax.vmap(lambda t, u, i: t.at[i].add(u))(t, u, i),
        (2, 5, 4),
        (2, 3, 4),
    ),
    "out of bounds, in batches": (
        lambda t, u, i: jax.vmap(lambda t, u, i: t.at[i].add(u, mode="drop"))(t, u, i),
        (2, 4, 4),
        (2, 3, 4),
    ),
    "gradient of rows": (gradient(lambda t, i: t[i]), (5, 4), (2, 3, 4)),
    "gradient of columns": (gradient(lambda t, i: t[:, i]), (4, 5), (4, 2, 3)),
    "gradient along the second": (
        gradient(lambda t, i: jnp.take_along_axis(t, i[..., None], 1)),
        (2, 5, 4),
        (2, 3, 4),
    ),
    "gradient along the last": (
        gradient(lambda t, i: jnp.take_along_axis(t, i[:, None], 2)),
        (2, 4, 5),
        (2, 4, 3),
    ),
}


def step(state: Any, ids: Any, batch: Any) -> Any:
    computed = {name: FORMS[name][0](t, u, ids) for name, (t, u) in batch.items()}
    constant = {name: FORMS[name][0](t, u, IDS) for name, (t, u) in batch.items()}
    return state, (jnp.sum(state), computed, constant)


batch = {
    name: (rng.normal(size=table).astype(np.float32), numbers(*update))
    for name, (_, table, update) in FORMS.items()
}
arguments = (np.ones(4, np.float32), IDS, batch)
want = jax.tree.leaves(jax.jit(step)(*arguments)[1][1:])
for options in (["-O1"], ["-O1", "--target=scalar"]):
    compiled = steps.compile(sparse_opt.jax.export(step, *arguments), options)
    names = [b["name"] for b in compiled.manifest["buffers"] if b["kind"] != "output"]
    given = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    got = compiled.run(dict(zip(names, given, strict=True)))
    results = list(got.values())[-len(want) :]
    for name, w, g in zip(sorted(FORMS) * 2, want, results, strict=True):
        same = np.allclose(w, g, rtol=1e-5, atol=1e-6, equal_nan=True)
        print(f"{name}: equal" if same else f"{name}: apart, {w} for {g}")

# CHECK-COUNT-56: equal
