# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Arguments and results carry names, links, roles and inits.

# RUN: %python %s | FileCheck %s

import typing

import jax
import jax.numpy as jnp
import numpy as np

from sparse_opt.jax import export

matrix = np.ones((2, 3), np.float32)
scalar = np.float32(1)


class Pair(typing.NamedTuple):
    left: typing.Any
    right: typing.Any


# The leaves have one shape, and the results are computed the other way around:
# only the path tells that `a` is next to `a`.

# CHECK-LABEL: func.func public @step
# CHECK-SAME: %[[A:.*]]: tensor<2x3xf32> {bsr.init = "ones", bsr.name = "state.a", bsr.result = 0 : i64, bsr.role = "state"}
# CHECK-SAME: %[[B:.*]]: tensor<2x3xf32> {bsr.init = "ones", bsr.name = "state.b", bsr.result = 1 : i64, bsr.role = "state"}
# CHECK-SAME: -> (tensor<2x3xf32> {bsr.name = "state.a"}, tensor<2x3xf32> {bsr.name = "state.b"}, tensor<f32> {bsr.name = "loss", bsr.role = "loss"})
# CHECK-DAG: %[[NEXT_A:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[B]] :
# CHECK-DAG: %[[NEXT_B:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[A]] :
# CHECK: return %[[NEXT_A]], %[[NEXT_B]],
print(
    export(
        lambda state, x: ({"b": 3 * state["a"], "a": 2 * state["b"]}, x),
        {"a": matrix, "b": matrix},
        scalar,
    )
)

# Names come from every kind of path, roles from the place and the name.

# CHECK-LABEL: func.func public @step
# CHECK-SAME: {bsr.init = "ones", bsr.name = "state.opt.left.0", bsr.result = 0 : i64, bsr.role = "state"}
# CHECK-SAME: {bsr.name = "state.params.w", bsr.result = 1 : i64, bsr.role = "param"}
# CHECK-SAME: {bsr.name = "batch.ids", bsr.role = "batch"}
# CHECK-SAME: {bsr.name = "lr", bsr.role = "lr"}
# CHECK-SAME: {bsr.name = "seed", bsr.role = "seed"}
# CHECK-SAME: {bsr.name = "step", bsr.role = "step"}
# CHECK-SAME: {bsr.name = "apply", bsr.role = "apply"}
# CHECK-SAME: -> ({{.*}}, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}, tensor<f32> {bsr.name = "metrics.1.norm"})
print(
    export(
        lambda state, batch, lr, seed, step, apply: (state, lr, {"norm": 2 * lr}),
        {"params": {"w": matrix}, "opt": Pair([matrix], None)},
        {"ids": np.zeros((4,), np.int32)},
        scalar,
        np.zeros((2,), np.uint32),
        np.int32(0),
        np.bool_(True),
    )
)

# Several arguments can be the state; patterns choose roles and inits.

# CHECK-LABEL: func.func public @step
# CHECK-SAME: {bsr.init = "normal(0.02)", bsr.name = "weights.0", bsr.result = 0 : i64, bsr.role = "param"}
# CHECK-SAME: {bsr.init = "constant(1e-3)", bsr.name = "weights.1", bsr.result = 1 : i64, bsr.role = "param"}
# CHECK-SAME: {bsr.init = "ones", bsr.name = "moments.0", bsr.result = 2 : i64, bsr.role = "state"}
# CHECK-SAME: {bsr.init = "ones", bsr.name = "moments.1", bsr.result = 3 : i64, bsr.role = "state"}
# CHECK-SAME: {bsr.name = "x", bsr.role = "batch"}
print(
    export(
        lambda weights, moments, x: (weights, moments, x.sum()),
        [matrix, matrix],
        [matrix, matrix],
        matrix,
        carried=2,
        roles={"^weights": "param"},
        inits={r"weights\.0": "normal(0.02)", "^weights": "constant(1e-3)"},
    )
)


# Locations are the path of scopes, without the jitted function, and the user's line.


# CHECK: module {
# CHECK: math.tanh %{{.*}} : f32{{$}}
# CHECK: } -> tensor<2x3xf32> loc([[SCOPE:#loc[0-9]*]])
# CHECK: [[LINE:#loc[0-9]*]] = loc("{{.*}}interface.py":[[@LINE+6]]:{{[0-9]+}})
# CHECK: [[SCOPE]] = loc("jvp(layer)/tanh"([[LINE]]))
@jax.jit
def step(state, x):
    def loss(w):
        with jax.named_scope("layer"):
            return jnp.tanh(w * x).sum()

    value, gradient = jax.value_and_grad(loss)(state)
    return state - gradient, value


print(export(step, matrix, matrix))

# CHECK: module {
# CHECK-NOT: .py
# CHECK: loc("jvp(layer)/tanh")
print(export(step, matrix, matrix, locations="scopes"))

# CHECK: module {
# CHECK-NOT: loc(
print(export(step, matrix, matrix, locations=False))
