# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What roundings explain of a step of JAX: results in float64 are moved as float32 may have them.

# RUN: %python %s 2>&1 | FileCheck %s --implicit-check-not=accepted

import jax
import jax.numpy as jnp
import numpy as np
import sparse_opt
import sparse_opt.jax
from refusals import refuse
from sparse_opt.jax import _rounding

rng = np.random.default_rng(0)


def moved(function, *arguments, attempt=1):
    """The last result of a function in float64, as float32 may have it, and what it is without roundings."""
    equation = jax.make_jaxpr(function)(*(jnp.asarray(a, jnp.float32) for a in arguments)).eqns[-1]
    with jax.enable_x64(True):
        exact = function(*(jnp.asarray(a, jnp.float64) for a in arguments))
        (found,) = _rounding.moved(equation, [exact], np.uint64(attempt * 0x2545F491))
        return np.asarray(found), np.asarray(exact)


x, y = rng.normal(size=(2, 1000))
EPSILON = 2.0**-23
for function in (jnp.add, jax.lax.div, jnp.dot, jnp.tanh, jnp.exp2):
    got, exact = moved(function, *((x,) if function in (jnp.tanh, jnp.exp2) else (x, y)))
    apart = np.abs(got - exact) / np.abs(exact)
    # By half an epsilon at most, half of that on average, and up as often as down.
    assert apart.max() <= EPSILON / 2 and apart.min() > 0, function
    if apart.size > 1:
        assert 0.2 < apart.mean() / EPSILON < 0.3 and abs((got > exact).mean() - 0.5) < 0.1, function
# Equal numbers move alike, and otherwise in another attempt.
got, _ = moved(jnp.add, np.repeat(x[:1], 5), np.repeat(y[:1], 5))
other, _ = moved(jnp.add, np.repeat(x[:1], 5), np.repeat(y[:1], 5), attempt=2)
assert (got == got[0]).all() and got[0] != other[0]
# What is a number of float32 was not rounded, unless it is a limit; what chooses or compares rounds nothing.
for function, operands, is_moved in (
    (jnp.add, (np.arange(9.0), np.ones(9)), False),
    (jnp.tanh, (np.full(9, 40.0),), True),
    (jnp.maximum, (x, y), False),
    (jnp.negative, (x,), False),
    (jax.lax.lt, (x, y), False),
):
    got, exact = moved(function, *operands)
    assert (got != exact).all() == (got != exact).any() == is_moved, function
print("roundings")  # CHECK: roundings

# A function s at its limit: s (1 - s) is 0 in float32 and in float64, and 2^-24 in a kernel whose s is a roundoff from 1.
# A program that multiplies it has a gradient of `d` that roundings make half of.
RATE, LARGE = 0.01, 2.0**20
batch = jnp.asarray(rng.normal(size=(8, 16)), jnp.float32)
SHAPES = {"a": (16, 16), "b": (16, 8), "c": 16, "d": 8}
params = {name: jnp.asarray(rng.normal(0, 0.1, shape), jnp.float32) for name, shape in SHAPES.items()}


def step(params, x):
    def loss_of(p):
        rest = jnp.mean((jnp.tanh(x @ p["a"] + p["c"]) @ p["b"]) ** 2)
        return rest + jnp.sum(LARGE * jax.nn.sigmoid(p["d"] + 40.0) + 0.1 * p["d"])

    loss, gradient = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda w, g: w - RATE * g, params, gradient), loss


def trained(name="d", roundoff=0.0):
    """Trains by kernels whose gradient of a vector has what a roundoff of s makes of it."""
    export = sparse_opt.jax.export(step, params, batch)
    compiled = sparse_opt.compile(export, ["match=a$ block=4x4 density=0.5"], pattern="random", options=["-O", "1"])
    run = compiled._session.run

    def run_otherwise():
        run()
        compiled.arrays[f"params.{name}"][...] -= RATE * LARGE * roundoff

    compiled._session.run = run_otherwise
    for _ in range(2):
        compiled(batch)


trained()
trained("d", EPSILON / 2)
print("honest")  # CHECK: honest
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'params.d' 0.{{[0-9]+}} away, of which rounding explains
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'params.c' 0.{{[0-9]+}} away, of which rounding explains
refuse(trained, "d", 64 * EPSILON)
refuse(trained, "c", EPSILON / 2)
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'params.d' 0.00{{[0-9]+}} away, of which rounding explains
_rounding.moved = lambda equation, results, attempt: list(results)
refuse(trained, "d", EPSILON / 2)
