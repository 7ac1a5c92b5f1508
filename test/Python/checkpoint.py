# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What jax.checkpoint computes again is computed again, and memory is saved.

# RUN: %python %s | FileCheck %s

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np

import sparse_opt.jax

rng = np.random.default_rng(0)
params = [
    {
        "up_w": rng.normal(0, 0.1, (32, 128)).astype(np.float32),
        "down_w": rng.normal(0, 0.1, (128, 32)).astype(np.float32),
    }
    for _ in range(6)
]
x = rng.normal(size=(256, 32)).astype(np.float32)


def layer(x: Any, p: Any) -> Any:
    for _ in range(3):
        x = x + jax.numpy.tanh(jax.nn.standardize(x) @ p["up_w"]) @ p["down_w"]
    return x


def run(layer: Any) -> tuple[sparse_opt.Step, float, Any]:
    """Trains three steps by descent; returns the step, its loss and its state."""

    def loss(params: Any, x: Any) -> Any:
        for p in params:
            x = layer(x, p)
        return (x**2).mean()

    def step(state: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(state["params"], x)
        new = jax.tree.map(lambda p, g: p - 0.01 * g, state["params"], gradient)
        return {"params": new}, value

    text = sparse_opt.jax.export(step, {"params": params}, x)
    compiled = sparse_opt.compile(
        text, ["match=_w$ block=8x8 density=0.5"], seed=1, options=["-O", "1"]
    )
    losses = [float(compiled(x)) for _ in range(3)]
    return compiled, losses[-1], compiled.state_dict()


def arena(step: sparse_opt.Step) -> float:
    found = re.search(r"^arena +([0-9.]+) MiB;", step.report, re.MULTILINE)
    assert found
    return float(found[1])


kept, kept_loss, kept_state = run(layer)
again, again_loss, again_state = run(jax.checkpoint(layer))

# Each layer's forward products are computed twice, but for the last one, whose
# result nothing in the layer needs.

# CHECK: forward 36 and 66, left dense 0 and 0
# CHECK: less memory True, same loss True, same weights True
a, b = kept.products, again.products
print(f"forward {a['spmm']} and {b['spmm']}, left dense", end=" ")
print(f"{a['left_dense']} and {b['left_dense']}")
same = jax.tree.all(
    jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-5), kept_state, again_state)
)
print(f"less memory {arena(again) < 0.6 * arena(kept)},", end=" ")
print(f"same loss {abs(kept_loss - again_loss) < 1e-5 * kept_loss}, same weights {same}")

# A checkpoint in a checkpoint: a barrier around a barrier.

# CHECK: nested: same loss True, same weights True
nested, nested_loss, nested_state = run(
    jax.checkpoint(lambda x, p: jax.checkpoint(layer)(jax.numpy.tanh(x), p))
)
flat, flat_loss, flat_state = run(lambda x, p: layer(jax.numpy.tanh(x), p))
same = jax.tree.all(
    jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-5), flat_state, nested_state)
)
print(f"nested: same loss {abs(flat_loss - nested_loss) < 1e-5 * flat_loss},", end=" ")
print(f"same weights {same}")
