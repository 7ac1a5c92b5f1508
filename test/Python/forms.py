# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares forms of programs, forward and backward, with JAX.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

"""Writes at places, orderings, paddings between elements, scans, reductions of nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import sparse_opt
import sparse_opt.jax

i = np.array([1, 3])
key = jax.random.PRNGKey(0)

PLACES: dict[str, Any] = {
    "set a column": lambda y: y.at[:, 3].set(0.5),
    "set a row": lambda y: y.at[0].set(y[1] * 2),
    "set rows": lambda y: y.at[i].set(y[i] ** 2),
    "set outside": lambda y: y.at[np.array([1, 7, -9])].set(y[:3]),
    "set a window": lambda y: y.at[1:3, 2:5].set(y[:2, :3]),
    "set every second": lambda y: y.at[::2].set(0.25),
    "set a diagonal": lambda y: (y.T @ y).at[np.arange(8), np.arange(8)].set(0.0),
    "add a window": lambda y: y.at[2:4].add(y[:2]),
    "add windows": lambda y: jax.vmap(lambda s: lax.dynamic_slice(y, (s, 0), (2, 3)))(np.array([0, 1, 2])),
    "multiply": lambda y: y.at[0].mul(2.0),
    "maximum": lambda y: y.at[i].max(0.0),
    "minimum": lambda y: y.at[i].min(y[:2]),
    "segment_max": lambda y: jax.ops.segment_max(y, np.array([0, 1, 0, 1]), 2),
    "set in a loop": lambda y: lax.fori_loop(0, 4, lambda i, z: z.at[i].set(z[i] * 2), y),
}  # fmt: skip
ORDERS: dict[str, Any] = {
    "sort": lambda y: jnp.sort(y, axis=-1),
    "sort of columns": lambda y: jnp.sort(y, axis=0, descending=True),
    "argsort": lambda y: jnp.take_along_axis(y, jnp.argsort(y, axis=-1), -1),
    "sort by keys": lambda y: lax.sort_key_val(y, y * 2)[1],
    "lexsort": lambda y: y[jnp.lexsort((y[:, 0], y[:, 1] > 0))],
    "median": lambda y: jnp.median(y, axis=-1),
    "nanmedian": lambda y: jnp.nanmedian(y, axis=1),
    "quantile": lambda y: jnp.quantile(y, 0.3, axis=-1),
    "permutation": lambda y: y[jax.random.permutation(key, 4)] * jnp.arange(4.0)[:, None],
    "choice": lambda y: y * jax.random.choice(key, 8, (8,), replace=False),
    "sum over no axis": lambda y: jnp.sum(y, axis=()),
    "mean of a number": lambda y: jnp.mean(jnp.sum(y * y))[None],
    "maximum of a number": lambda y: jnp.max(jnp.sum(y * y))[None],
    "mean of numbers": lambda y: jax.vmap(lambda r: jnp.mean(r.sum()))(y),
}  # fmt: skip
SCANS: dict[str, Any] = {
    "pad by edge": lambda y: jnp.pad(y, ((0, 0), (1, 1)), mode="edge"),
    "pad by mean": lambda y: jnp.pad(y, ((0, 0), (1, 1)), mode="mean"),
    "pad between": lambda y: lax.pad(y, 0.5, [(1, 2, 1), (0, 1, 2)]),
    "pad and crop": lambda y: lax.pad(y, 0.5, [(-1, 1, 1), (1, -1, 0)]),
    "every second": lambda y: y[::2, 1::3],
    "backwards": lambda y: y[::-2, ::-1],
    **{
        f"cumlogsumexp of {n}": lambda y, n=n: lax.cumlogsumexp(y[:, :n], 1)
        for n in (2, 3, 4, 5)
    },
    "cummax": lambda y: lax.cummax(y, 1),
    "associative_scan": lambda y: lax.associative_scan(
        lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (jax.nn.sigmoid(y), jnp.tanh(y)), axis=0
    )[1],
    "associative_scan of 8": lambda y: lax.associative_scan(jnp.multiply, y, axis=1),
}  # fmt: skip


def compare(forms: dict[str, Any]) -> None:
    """Prints of each form whether its value and its gradient are JAX's."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(4, 8)).astype(np.float32))
    state = {"params": {name: jnp.zeros((4, 8)) for name in forms}}

    @jax.jit
    def step(state: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            total = 0.0
            for name, form in forms.items():
                y = form(x + params[name])
                total += (jnp.square(y) * jnp.linspace(0.5, 1.5, y.size).reshape(y.shape)).sum()
            return total

        value, gradient = jax.value_and_grad(loss)(state["params"])
        return {"params": jax.tree.map(jnp.subtract, state["params"], gradient)}, value

    compiled = sparse_opt.compile(sparse_opt.jax.export(step, state, x), options=["-O", "1"])
    want, loss = step(state, x)
    print("loss: equal" if abs(compiled(x) - loss) < 1e-5 * abs(loss) else "loss: apart")
    for name, got in compiled.state_dict()["params"].items():
        close = np.allclose(got, want["params"][name], rtol=2e-5, atol=2e-5)
        print(f"{name}: equal" if close else f"{name}: apart")


# CHECK-COUNT-15: equal
compare(PLACES)
# CHECK-COUNT-15: equal
compare(ORDERS)
# CHECK-COUNT-14: equal
compare(SCANS)
