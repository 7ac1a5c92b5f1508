# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Loops that end when their condition says so, compiled and in JAX.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import sparse_opt.jax

rng = np.random.default_rng(0)
weights = {"params": {"w": rng.standard_normal((16, 16)).astype(np.float32)}}
x = rng.standard_normal((4, 16)).astype(np.float32)


def norm(g):
    return jnp.sqrt(jnp.sum(g * g))


def backtracking(w, g):
    """Reads the gradient in its condition, which is the same in each round."""
    return lax.while_loop(lambda r: r * norm(g) > 0.05, lambda r: r * 0.5, jnp.float32(1))


def counter(w, g):
    """Carries what does not change, and what nobody reads behind it."""
    return lax.while_loop(
        lambda s: (s[0] < s[3]) & (s[1] > 0.01),
        lambda s: (s[0] + 1, s[1] * 0.7, s[1], s[3]),
        (0, norm(g), jnp.float32(0), 37),
    )[2]


def swap(w, g):
    """Values change places."""
    a, b, n = lax.while_loop(
        lambda s: s[2] * s[0].sum() < 500.0,
        lambda s: (s[1], s[0] * 1.3, s[2] + 1),
        (jnp.abs(x[0]), jnp.abs(x[1]), 0),
    )
    return a[3] + b[2] * 0.1 + n


def keys(w, g):
    """Draws random numbers until their sum is enough."""

    def draw(s):
        key, used = jax.random.split(s[0])
        return key, s[1] + jax.random.uniform(used)

    return lax.while_loop(lambda s: s[1] < 5, draw, (jax.random.key(3), norm(g) * 0))[1]


def nested(w, g):
    def inner(s):
        doubled = lax.while_loop(lambda t: t < s[1], lambda t: 2 * t, 0.1 * s[1])
        return s[0] + doubled, 1.1 * s[1]

    return lax.while_loop(lambda s: s[0] < 3, inner, (norm(g) * 0, jnp.float32(0.3)))[0]


def compare(scale, marks=()):
    def step(state, x, mask):
        def loss(params):
            return jnp.mean((x @ (params["w"] * mask)) ** 2)

        w = state["params"]["w"]
        value, g = jax.value_and_grad(loss)(state["params"])
        rate = scale(w, g["w"])
        return {"params": {"w": w - 0.1 * rate * g["w"]}}, (value, rate)

    mask = np.ones((16, 16), np.float32)
    compiled = sparse_opt.compile(
        sparse_opt.jax.export(lambda s, x: step(s, x, mask), weights, x), list(marks), options=["-O", "1"]
    )
    if marks:
        mask = (compiled.read("s.params.w") != 0).astype(np.float32)
    state = {"params": {"w": weights["params"]["w"] * mask}}
    worst = 0.0
    for _ in range(3):
        got = compiled(x)
        state, want = jax.jit(step)(state, x, mask)
        worst = max(worst, *(abs(float(a) - float(b)) / (abs(float(b)) + 1e-3) for a, b in zip(got, want)))
    print(scale.__name__, "sparse:" if marks else "dense:", "equal" if worst < 1e-4 else f"apart by {worst}")


# CHECK: backtracking dense: equal
# CHECK: counter dense: equal
# CHECK: swap dense: equal
# CHECK: keys dense: equal
# CHECK: nested dense: equal
for scale in (backtracking, counter, swap, keys, nested):
    compare(scale)

# CHECK: backtracking sparse: equal
compare(backtracking, ["match=w block=4x4 density=0.5"])


def products(w, g):
    return lax.while_loop(lambda y: norm(y) < 100, lambda y: y @ w, jnp.ones((4, 16)))[0, 0]


# CHECK: expected operations on a pattern outside of loops, but got 'bsr.spmm' in a loop of unknown length: give it a constant number of steps at {{.*}}loops.py:[[@LINE-3]]
try:
    compare(products, ["match=w block=4x4 density=0.5"])
except ValueError as error:
    print(error)
