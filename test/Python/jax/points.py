# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Gradients are masked where the program takes them, whatever it does with them.

# RUN: %python %s 2>&1 | FileCheck %s --implicit-check-not=apart\ by --implicit-check-not=warning

"""Steps that use gradients for more than an update, beside `w * mask` in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import flatten_util, tree_util

import sparse_opt
import sparse_opt.jax
from sparse_opt.jax import _points

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


w = {"a": normal(16, 24) / 4, "b": normal(1, 24)}
batches = [(normal(4, 16), normal(4, 24)) for _ in range(3)]


def loss(w, x, y):
    return jnp.mean((jnp.tanh(x @ w["a"]) * w["b"] - y) ** 2)



def less(w, rate, gradients):
    return tree_util.tree_map(lambda p, g: p - rate * g, w, gradients)


def rate_learned(f):
    """Two steps within the step, and the gradient of their rate."""

    def step(state, x, y):
        def outer(rate):
            w = less(state["w"], rate, jax.grad(f)(state["w"], x, y))
            w = less(w, rate, jax.grad(f)(w, x, y))
            return f(w, x, y), w

        (value, w), slope = jax.value_and_grad(outer, has_aux=True)(state["rate"])
        return {"w": w, "rate": state["rate"] - 0.1 * slope}, (value, slope)

    return step


def penalty(f):
    """The norm of the gradient in the loss, and a penalty that is not 0 at 0."""

    def total(w, x, y):
        w = tree_util.tree_map(lambda p: p, w)
        slopes = jax.grad(f)(w, x, y)
        return f(w, x, y) + 0.1 * sum(jnp.sum(g * g) for g in slopes.values())

    def step(state, x, y):
        value, g = jax.value_and_grad(total)(state["w"], x, y)
        return {**state, "w": less(state["w"], 0.05, g)}, (value, optax_norm(g))

    return step


def optax_norm(tree):
    return jnp.sqrt(sum(jnp.sum(g * g) for g in tree_util.tree_leaves(tree)))


def examples(f):
    """A gradient of each example, each divided by its norm."""

    def step(state, x, y):
        def of_one(x, y):
            g = jax.grad(f)(state["w"], x[None], y[None])
            return tree_util.tree_map(lambda p: p / (optax_norm(g) + 0.1), g), optax_norm(g)

        each, norms = jax.vmap(of_one)(x, y)
        g = tree_util.tree_map(lambda p: p.mean(0), each)
        return {**state, "w": less(state["w"], 0.05, g)}, (norms.sum(), norms)

    return step


def flat(f):
    """A gradient at one vector of all weights."""

    def step(state, x, y):
        vector, unravel = flatten_util.ravel_pytree(state["w"])
        value, g = jax.value_and_grad(lambda v: f(unravel(v), x, y))(vector)
        g = g / (jnp.linalg.norm(g) + 0.1)
        return {**state, "w": unravel(vector - 0.05 * g)}, (value, jnp.sum(g * g))

    return step


def tangent(f):
    """A derivative along another direction, which goes into the loss."""

    def step(state, x, y):
        def total(w):
            along = tree_util.tree_map(jnp.cos, w)
            value, slope = jax.jvp(lambda v: f(v, x, y), (w,), (along,))
            return value + 0.1 * slope**2

        value, g = jax.value_and_grad(total)(state["w"])
        return {**state, "w": less(state["w"], 0.05, g)}, (value, optax_norm(g))

    return step


def standardized(f):
    """Weights without their mean, in front of the product."""

    def total(w, x, y):
        return f({**w, "a": w["a"] - w["a"].mean(0)}, x, y)

    return total


def compare(name, make, change=lambda f: f):
    state = {"w": w, "rate": np.float32(0.1)}
    export = sparse_opt.jax.export(
        make(change(loss)), state, *batches[0], roles={r"^state\.w\.": "param"}
    )
    step = sparse_opt.compile(
        export, [r"match=w\.a block=4x4 density=0.5", r"match=w\.b block=1x4 density=0.5"],
        pattern="random", check=0, options=["-O", "1"],
    )  # fmt: skip
    mask = {n: np.float32(p != 0) for n, p in step.state_dict()["w"].items()}
    state["w"] = {n: p * mask[n] for n, p in w.items()}
    # The weights that a function is given are masked, then changed.
    own = lambda w, x, y: change(loss)(tree_util.tree_map(jnp.multiply, w, mask), x, y)
    reference = jax.jit(make(own))
    apart = 0.0
    for batch in batches:
        got = step(*batch)
        state, wanted = reference(state, *batch)
        for a, b in zip(tree_util.tree_leaves(got), tree_util.tree_leaves(wanted)):
            apart = max(apart, np.abs(np.asarray(a) - b).max() / (np.abs(b).max() + 1e-3))
    for n, p in step.state_dict()["w"].items():
        apart = max(apart, np.abs(p - state["w"][n]).max() / np.abs(state["w"][n]).max())
    print(f"{name}: right" if apart < 2e-5 else f"{name}: apart by {apart:.1e}")


def unmarked():
    """Without the names that it leans on, the export is as it was before."""
    own, _points.why_not = _points.why_not, lambda: "another version"
    text = str(sparse_opt.jax.export(rate_learned(loss), {"w": w, "rate": 0.1}, *batches[0]))
    _points.why_not = own
    return text.count("bsr.gradient")


# CHECK: rate_learned: right
# CHECK: penalty: right
# CHECK: examples: right
# CHECK: flat: right
# CHECK: tangent: right
for make in (rate_learned, penalty, examples, flat, tangent):
    compare(make.__name__, make)
# CHECK: standardized: right
compare("standardized", penalty, standardized)
# CHECK: without marks: 0
print("without marks:", unmarked())
