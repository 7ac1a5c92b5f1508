# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Whatever a JAX step uses gradients for, it sees those of w * mask, as JAX computes
# them in f64; and new blocks begin with what an optimizer's state began with.

# RUN: %python %s | FileCheck %s

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparse_opt
import sparse_opt.jax

rng = np.random.default_rng(0)
batch = {
    "x": rng.normal(size=(6, 8)).astype(np.float32),
    "y": rng.normal(size=(6, 8)).astype(np.float32),
    "ids": np.array([5], np.int32),
}
first = {n: (rng.normal(size=(8, 8)) / 3).astype(np.float32) for n in ("a", "b")}


def loss_of(p, b):
    return jnp.mean((jnp.tanh(b["x"] @ p["a"]) @ p["b"] - b["y"]) ** 2)


def squares(tree):
    return sum(jnp.sum(g * g) for g in jax.tree.leaves(tree))


def clipped(mask, p, b):
    gradient = jax.grad(lambda q: loss_of(mask(q), b))(p)
    return gradient, jnp.sqrt(squares(gradient))


def lasso(mask, p, b):
    def loss(q):
        return loss_of(mask(q), b) + 0.1 * jnp.sum(jnp.abs(mask(q)["a"]))

    gradient = jax.grad(loss)(p)
    return gradient, jnp.sqrt(squares(gradient))


def one_token(mask, p, b):
    def loss(q):
        return jnp.mean((mask(q)["a"][b["ids"]] @ q["b"] - b["y"][:1]) ** 2)

    gradient = jax.grad(loss)(p)
    return gradient, jnp.sqrt(squares(gradient))


def private(mask, p, b):
    def loss(q, x, y):
        return loss_of(mask(q), {"x": x[None], "y": y[None]})

    each = jax.vmap(jax.grad(loss), (None, 0, 0))(p, b["x"], b["y"])
    norms = jnp.sqrt(sum(jnp.sum(g.reshape(6, -1) ** 2, 1) for g in each.values()))
    scale = jnp.minimum(1.0, 0.5 / norms)
    return jax.tree.map(lambda g: jnp.tensordot(scale, g, 1), each), norms.mean()


def penalty(mask, p, b):
    def total(q):
        loss, gradient = jax.value_and_grad(lambda r: loss_of(mask(r), b))(q)
        return loss + jnp.sqrt(squares(gradient))

    value, gradient = jax.value_and_grad(total)(p)
    return gradient, value


def inner_step(mask, p, b):
    def total(q):
        gradient = jax.grad(lambda r: loss_of(mask(r), b))(q)
        q = jax.tree.map(lambda w, g: w - 0.5 * g, q, gradient)
        return loss_of(mask(q), {"x": b["y"], "y": b["x"]})

    value, gradient = jax.value_and_grad(total)(p)
    return gradient, value


def step_of(form, optimizer, mask):
    def step(state, batch):
        gradient, value = form(mask, state["params"], batch)
        updates, opt = optimizer.update(gradient, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, value

    return step


def stored(compiled, name):
    grid = np.zeros((2, 2))
    blocks = compiled.blocks(name)
    grid[blocks.rows, blocks.col_idx] = 1
    return np.kron(grid, np.ones((4, 4)))


def check(form, optimizer, weights="a"):
    state = {"params": first, "opt": optimizer.init(first)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = sparse_opt.compile(
            sparse_opt.jax.export(step_of(form, optimizer, lambda q: q), state, batch),
            [f"match=params.{w}$ block=4x4 density=0.5" for w in weights],
            pattern="random",
            options=["-O", "1"],
        )
    masks = {w: stored(compiled, f"state.params.{w}") for w in weights}

    def mask(q):
        return {n: v * masks[n] if n in masks else v for n, v in q.items()}

    with jax.enable_x64(True):
        wide = jax.tree.map(lambda v: v.astype(float) if v.dtype == np.float32 else v, first)
        right = {"params": mask(wide), "opt": optimizer.init(wide)}
        step = jax.jit(step_of(form, optimizer, mask))
        for _ in range(2):
            right, value = step(right, batch)
            got = compiled(batch)
            np.testing.assert_allclose(got, value, rtol=1e-4)
        after = compiled.state_dict()["params"]
        for n, expected in mask(right["params"]).items():
            np.testing.assert_allclose(after[n], expected, rtol=1e-3, atol=1e-4)
    print(form.__name__, weights, "as JAX")


def clip(optimizer):
    return optax.chain(optax.clip_by_global_norm(0.01), optimizer)


# A number that two weights share is none of their gradients.
# CHECK: clipped a as JAX
# CHECK-NEXT: clipped a as JAX
check(clipped, clip(optax.lamb(0.05, eps=1e-3)))
check(clipped, clip(optax.contrib.muon(0.05)))

# CHECK-NEXT: lasso a as JAX
# CHECK-NEXT: one_token a as JAX
# CHECK-NEXT: private ab as JAX
# CHECK-NEXT: penalty ab as JAX
# CHECK-NEXT: inner_step ab as JAX
check(lasso, clip(optax.sgd(1.0)))
check(one_token, clip(optax.sgd(1.0)))
check(private, optax.sgd(0.1), "ab")
check(penalty, optax.sgd(0.1), "ab")
check(inner_step, optax.sgd(0.1), "ab")


# FTRL divides by what it has added up, and begins with 0.1.
def ftrl(state, batch):
    loss, g = jax.value_and_grad(lambda w: loss_of({"a": w, "b": jnp.eye(8)}, batch))(state["params"])
    total = state["n"] + g * g
    z = state["z"] + g - (jnp.sqrt(total) - jnp.sqrt(state["n"])) / 0.1 * state["params"]
    return {"params": -z / (jnp.sqrt(total) / 0.1), "n": total, "z": z}, loss


# CHECK-NEXT: new blocks [0.1] in the text 1
state = {"params": first["a"], "n": np.full((8, 8), 0.1, np.float32), "z": np.zeros((8, 8), np.float32)}
export = sparse_opt.jax.export(ftrl, state, batch)
compiled = sparse_opt.compile(export, ["match=params$ block=4x4 density=0.5"], pattern="random", options=["-O", "1"])
compiled(batch)
before = stored(compiled, "state.params")
compiled.update_patterns(0.5)
new = (stored(compiled, "state.params") > before).astype(bool)
total = np.unique(compiled.state_dict()["n"][new])
assert np.isfinite(compiled(batch))
print("new blocks", [round(float(n), 6) for n in total], "in the text", str(export).count('bsr.init = "constant(0.1'))
