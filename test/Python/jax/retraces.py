# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A program that is traced again is compared with what it was.

# RUN: %python %s | FileCheck %s

"""Two traces of functions that have functions within."""

import itertools

import jax
import jax.numpy as jnp
from jax import lax

from sparse_opt.jax import _points, _retraces

x = jnp.ones((4, 4))


@jax.custom_vjp
def halved(x):
    return x / 2


halved.defvjp(lambda x: (x / 2, None), lambda _, g: (g / 2,))
count = itertools.count()

FUNCTIONS = {
    "relu": jax.nn.relu,
    "silu, gelu": lambda x: jax.nn.silu(x) + jax.nn.gelu(x),
    "softmax": jax.nn.softmax,
    "custom_vjp": halved,
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(jax.nn.relu6(x))),
    "scan": lambda x: lax.scan(lambda c, y: (jax.nn.elu(c + y), c), x[0], x)[1],
    "cond": lambda x: lax.cond(x[0, 0] > 0, jax.nn.relu, jnp.sin, x),
    "counter": lambda x: x * next(count),
    "counter in a branch": lambda x: lax.cond(
        x[0, 0] > 0, lambda x: x * next(count), jnp.sin, x
    ),
}


def is_alike(function):
    def step(x):
        return jax.value_and_grad(lambda x: jnp.sum(function(x)))(x)

    first, second = (_points.trace(step, (x,)) for _ in range(2))
    return _retraces.difference(first, second) is None


# CHECK: relu: True
# CHECK-NEXT: silu, gelu: True
# CHECK-NEXT: softmax: True
# CHECK-NEXT: custom_vjp: True
# CHECK-NEXT: checkpoint: True
# CHECK-NEXT: scan: True
# CHECK-NEXT: cond: True
# CHECK-NEXT: counter: False
# CHECK-NEXT: counter in a branch: False
for name, function in FUNCTIONS.items():
    print(f"{name}:", is_alike(function))
