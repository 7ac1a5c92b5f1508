# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# JAX programs that simulate sparsity with masks, in the forms that they take.

# RUN: %python %s | FileCheck %s

"""Compiles programs with masks and compares them with what JAX computes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparse_opt.jax
from refusals import refuse

rng = np.random.default_rng(0)
x = rng.normal(size=(8, 16)).astype(np.float32)
optimizer = optax.adamw(1e-2)


def blocks(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Returns a random mask of 4x4 blocks, half of them kept."""
    grid = np.arange(shape[0] * shape[1] // 16) % 2
    grid = np.random.default_rng(seed).permutation(grid)
    return np.kron(grid.reshape(shape[0] // 4, -1), np.ones((4, 4))).astype(np.float32)


params = {
    "up": rng.normal(0, 0.3, (16, 32)).astype(np.float32),
    "down": rng.normal(0, 0.3, (32, 16)).astype(np.float32),
}
masks = {"up": blocks((16, 32), 1), "down": blocks((32, 16), 2)}
MARKS = ["match=params block=4x4 density=0.5 mask=masks"]


def loss_of(up: Any, down: Any, batch: Any) -> Any:
    return ((jnp.tanh(batch @ up) @ down - batch) ** 2).mean()


def multiplied(params: Any, masks: Any, batch: Any) -> Any:
    return loss_of(params["up"] * masks["up"], params["down"] * masks["down"], batch)


def selected(params: Any, masks: Any, batch: Any) -> Any:
    up, down = (jnp.where(masks[n] > 0, params[n], 0.0) for n in ("up", "down"))
    return loss_of(up, down, batch)


def transposed(params: Any, masks: Any, batch: Any) -> Any:
    up, down = (params[n] * masks[n].T.astype(jnp.float32) for n in ("up", "down"))
    return loss_of(up, down, batch)


def pruned(params: Any, masks: Any, batch: Any) -> Any:
    up, down = (params[n] * (1.0 - masks[n]) for n in ("up", "down"))
    return loss_of(up, down, batch)


def train(loss: Any, state: Any, masks: Any, batch: Any, straight: bool = False) -> Any:
    """One step; a straight-through one masks weights after the update."""
    value, gradient = jax.value_and_grad(loss)(state["params"], masks, batch)
    updates, opt = optimizer.update(gradient, state["opt"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    if straight:
        params = jax.tree.map(jnp.multiply, params, masks)
    return {"params": params, "opt": opt}, value


def begin() -> Any:
    return {"params": params, "opt": optimizer.init(params)}


def compare(name: str, exported: Any, arguments: Any, kept: Any) -> None:
    """Runs `exported(*arguments)` three times, compiled and by JAX.

    The masks are an argument or a part of the state; `kept` are those that they
    stand for.
    """
    text = sparse_opt.jax.export(exported, *arguments)
    step = sparse_opt.compile(text, MARKS, pattern="mask", options=["-O", "1"])
    reference, rest = jax.jit(exported), arguments[1:]
    state, loss = arguments[0], 0.0
    for _ in range(3):
        state, want = reference(state, *rest)
        loss = max(loss, abs(float(step(*rest)) - float(want)) / float(want))
    worst = max(
        np.abs(step.state_dict()["params"][n] - state["params"][n] * kept[n]).max()
        for n in params
    )
    products = step.products
    print(
        f"{name}: {products['spmm'] + products['spmm_transposed']} and"
        f" {products['sddmm']} sparse, {products['dense']} dense,"
        f" {products['left_dense']} left, close {loss < 1e-5 and worst < 1e-4}"
    )


# CHECK: of the batch: 3 and 2 sparse, 0 dense, 0 left, close True
compare(
    "of the batch",
    lambda state, masks, batch: train(multiplied, state, masks, batch),
    (begin(), masks, x),
    masks,
)

# CHECK: booleans: 3 and 2 sparse, 0 dense, 0 left, close True
compare(
    "booleans",
    lambda state, masks, batch: train(selected, state, masks, batch),
    (begin(), jax.tree.map(lambda m: m > 0, masks), x),
    masks,
)

# CHECK: transposed bf16: 3 and 2 sparse, 0 dense, 0 left, close True
compare(
    "transposed bf16",
    lambda state, masks, batch: train(transposed, state, masks, batch),
    (begin(), jax.tree.map(lambda m: jnp.asarray(m.T, jnp.bfloat16), masks), x),
    masks,
)

# CHECK: straight through: 3 and 2 sparse, 0 dense, 0 left, close True
state = begin()
state["params"] = jax.tree.map(np.multiply, params, masks)
compare(
    "straight through",
    lambda state, masks, batch: train(
        lambda p, m, b: loss_of(p["up"], p["down"], b), state, masks, batch, True
    ),
    (state, masks, x),
    masks,
)


# In the state the masks are what the patterns are.


def carried(state: Any, batch: Any) -> Any:
    new, loss = train(multiplied, state, state["masks"], batch)
    return {**new, "masks": state["masks"]}, loss


# CHECK: carried: 3 and 2 sparse, 0 dense, 0 left, close True
compare("carried", carried, ({**begin(), "masks": masks}, x), masks)

# CHECK: masks taken True, followed True, loaded True
text = sparse_opt.jax.export(carried, {**begin(), "masks": masks}, x)
step = sparse_opt.compile(text, MARKS, pattern="mask", options=["-O", "1"])
first = step.state_dict()
taken = all(np.array_equal(first["masks"][n], masks[n]) for n in masks)
step.update_patterns(0.5)
now = step.state_dict()
followed = any(not np.array_equal(now["masks"][n], masks[n]) for n in masks)
step.load_state_dict(first)
again = step.state_dict()
loaded = jax.tree.all(jax.tree.map(np.array_equal, first, again))
print(f"masks taken {taken}, followed {followed}, loaded {loaded}")


# A mask that the step computes is the runtime's business, and one that is not a
# mask of blocks names its block.


def prune(state: Any, batch: Any) -> Any:
    new, loss = carried(state, batch)
    with jax.named_scope("prune"):
        masks = {n: (jnp.abs(new["params"][n]) > 0.1).astype(jnp.float32) for n in masks_of}
    return {**new, "masks": masks}, loss


masks_of = tuple(masks)
# CHECK: expected mask "state.masks.down" to stay as it is, but got one computed at {{.*}}masks.py:{{[0-9]+}}: patterns are updated between steps, by the runtime
text = sparse_opt.jax.export(prune, {**begin(), "masks": masks}, x)
refuse(sparse_opt.compile, text, MARKS)

odd = {**masks, "up": masks["up"].copy()}
odd["up"][0, 0] = 1 - odd["up"][0, 0]
text = sparse_opt.jax.export(carried, {**begin(), "masks": odd}, x)
# CHECK: expected mask 'state.masks.up' to keep or drop whole blocks of 4x4, but got block (0, 0) kept in part
refuse(sparse_opt.compile, text, MARKS, pattern="mask")

# CHECK: expected 'mask' to match the bsr.name of an argument that is multiplied with a weight entry by entry, but got none
text = sparse_opt.jax.export(
    lambda state, batch: train(lambda p, m, b: loss_of(p["up"], p["down"], b), state, 0, batch),
    begin(), x,
)  # fmt: skip
refuse(sparse_opt.compile, text, ["match=params block=4x4 mask=mask"])
