# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What StableHLO's own lowering leaves or hides comes out in one form.

# RUN: %python %s | FileCheck %s --implicit-check-not=stablehlo --implicit-check-not=unrealized

import jax
import jax.numpy as jnp
import numpy as np

from sparse_opt.jax import export

table = np.ones((7, 4), np.float32)
ids = np.zeros((2, 3), np.int32)


def show(title, step, *arguments):
    print(title, export(step, *arguments, locations=False), sep="\n")


def descend(loss):
    def step(state, *batch):
        value, gradient = jax.value_and_grad(loss)(state, *batch)
        return state - gradient, value

    return step


# A look-up is an address, its gradient a product with a one-hot matrix.

# CHECK-LABEL: rows
# CHECK-DAG: #[[S_SV:.*]] = affine_map<(d0, d1) -> (d0)>
# CHECK-DAG: #[[SV:.*]] = affine_map<(d0, d1) -> (d0, d1)>
# CHECK-DAG: #[[HOT:.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
# CHECK-DAG: #[[UPDATES:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
# CHECK-DAG: #[[SUM:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
# CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
# CHECK: @step(%[[TABLE:.*]]: tensor<7x4xf32>
# CHECK-DAG: %[[ONE:.*]] = arith.constant 1.0{{.*}} : f32
# CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.0{{.*}} : f32
# CHECK: linalg.generic {indexing_maps = [#[[SUM]], #[[ROWS]]], iterator_types = ["parallel", "parallel", "parallel"]} ins(%{{.*}} : tensor<2x3xi32>) outs(%{{.*}} : tensor<2x3x4xf32>)
# CHECK-NEXT: ^bb0(%[[ID:.*]]: i32, %{{.*}}: f32):
# CHECK-NEXT: %[[ROW:.*]] = arith.index_cast %[[ID]] : i32 to index
# CHECK-NEXT: %[[COL:.*]] = linalg.index 2 : index
# CHECK-NEXT: %[[X:.*]] = tensor.extract %[[TABLE]][%[[ROW]], %[[COL]]] : tensor<7x4xf32>
# CHECK-NEXT: linalg.yield %[[X]] : f32
# CHECK: %[[ONE_HOT:.*]] = linalg.generic {indexing_maps = [#[[S_SV]], #[[SV]]], iterator_types = ["parallel", "parallel"]} ins(%{{.*}} : tensor<6xi32>)
# CHECK-NEXT: ^bb0(%[[ID:.*]]: i32, %{{.*}}: f32):
# CHECK-NEXT: %[[I:.*]] = linalg.index 1 : index
# CHECK-NEXT: %[[V:.*]] = arith.index_cast %[[I]] : index to i32
# CHECK-NEXT: %[[EQUAL:.*]] = arith.cmpi eq, %[[V]], %[[ID]] : i32
# CHECK-NEXT: %[[X:.*]] = arith.select %[[EQUAL]], %[[ONE]], %[[ZERO]] : f32
# CHECK-NEXT: linalg.yield %[[X]] : f32
# CHECK: linalg.generic {indexing_maps = [#[[HOT]], #[[UPDATES]], #[[SUM]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[ONE_HOT]], %{{.*}} : tensor<6x7xf32>, tensor<6x4xf32>)
# CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %[[OUT:.*]]: f32):
# CHECK-NEXT: %[[AB:.*]] = arith.mulf %[[A]], %[[B]] : f32
# CHECK-NEXT: %[[X:.*]] = arith.addf %[[OUT]], %[[AB]] : f32
# CHECK-NEXT: linalg.yield %[[X]] : f32
show("rows", descend(lambda t, i: jnp.sin(t[i]).sum()), table, ids)

# The gradient of picking one entry a row sums nothing.

# CHECK-LABEL: entries
# CHECK: ^bb0(%[[ID:.*]]: i32, %[[UPDATE:.*]]: f32, %{{.*}}: f32):
# CHECK-NEXT: %[[I:.*]] = linalg.index 1 : index
# CHECK-NEXT: %[[V:.*]] = arith.index_cast %[[I]] : index to i32
# CHECK-NEXT: %[[EQUAL:.*]] = arith.cmpi eq, %[[V]], %[[ID]] : i32
# CHECK-NEXT: %[[X:.*]] = arith.select %[[EQUAL]], %[[UPDATE]], %{{.*}} : f32
# CHECK-NEXT: linalg.yield %[[X]] : f32
show(
    "entries",
    descend(lambda t, i: jnp.sin(jnp.take_along_axis(t, i, 1)).sum()),
    table,
    np.zeros((7, 1), np.int32),
)

# What is there already is added to.

# CHECK-LABEL: accumulated
# CHECK: @step(%[[TABLE:[^:]*]]:
# CHECK: %[[SUM:.*]] = linalg.generic {{.*}}"reduction"]}
# CHECK: linalg.generic {{.*}} ins(%[[TABLE]], %[[SUM]] :
show("accumulated", lambda s, i: (s.at[i].add(1.0), 0.0), table, ids)

# A concatenation is a chain of slices: of parts, and as the gradient of a split.

# CHECK-LABEL: parts
# CHECK: %[[EMPTY:.*]] = tensor.empty() : tensor<14x4xf32>
# CHECK: %[[FIRST:.*]] = tensor.insert_slice %{{.*}} into %[[EMPTY]][0, 0] [7, 4] [1, 1] : tensor<7x4xf32> into tensor<14x4xf32>
# CHECK: tensor.insert_slice %{{.*}} into %[[FIRST]][7, 0] [7, 4] [1, 1] : tensor<7x4xf32> into tensor<14x4xf32>
show("parts", lambda s, x: (s, jnp.tanh(jnp.concatenate([s, x])).sum()), table, table)


# CHECK-LABEL: split
# CHECK: tensor.insert_slice %{{.*}}[0, 0] [7, 2] [1, 1] : tensor<7x2xf32> into tensor<7x4xf32>
# CHECK: tensor.insert_slice %{{.*}}[0, 2] [7, 2] [1, 1] : tensor<7x2xf32> into tensor<7x4xf32>
def product(s):
    left, right = jnp.split(s, 2, 1)
    return (left * right).sum()


show("split", descend(product), table)

# A counted loop is a loop of scf, from where and in what stride it counts.

# CHECK-LABEL: counted
# CHECK-DAG: %[[FROM:.*]] = arith.constant 2 : index
# CHECK-DAG: %[[TO:.*]] = arith.constant 9 : index
# CHECK-DAG: %[[BY:.*]] = arith.constant 3 : index
# CHECK: scf.for %{{.*}} = %[[FROM]] to %[[TO]] step %[[BY]] iter_args(%{{.*}} = %{{.*}}) -> (tensor<7x4xf32>)
# CHECK: arith.sitofp
# CHECK: scf.yield
show(
    "counted",
    lambda s: (
        jax.lax.while_loop(
            lambda loop: loop[0] < 9,
            lambda loop: (loop[0] + 3, loop[1] * loop[0]),
            (2, s),
        )[1],
        0.0,
    ),
    table,
)

# Another ends when its condition says so.

# CHECK-LABEL: until
# CHECK: scf.while (%[[X:.*]] = %{{.*}}) : (tensor<7x4xf32>) -> tensor<7x4xf32> {
# CHECK: %[[GOING:.*]] = tensor.extract %{{.*}}[] : tensor<i1>
# CHECK: scf.condition(%[[GOING]]) %[[X]] : tensor<7x4xf32>
# CHECK: } do {
# CHECK: scf.yield %{{.*}} : tensor<7x4xf32>
show(
    "until",
    lambda s: (jax.lax.while_loop(lambda x: x.sum() < 100, lambda x: 2 * x, s), 0.0),
    table,
)

# What checkpointing computes again is not merged with what it repeats.


# CHECK-LABEL: checkpointed
# CHECK-COUNT-5: math.sin
# CHECK-NOT: math.sin
@jax.checkpoint
def twice(x):
    return jnp.cos(jnp.sin(jnp.sin(x)))


show("checkpointed", descend(lambda s: twice(s).sum()), table)

# A scan that takes all its steps at once leaves none over.

# CHECK-LABEL: unrolled
# CHECK-NOT: tensor<0x
# CHECK-COUNT-3: linalg.matmul
show(
    "unrolled",
    descend(lambda w: jax.lax.scan(lambda x, w: (x @ w, None), w[0], w, unroll=3)[0].sum()),
    np.ones((3, 4, 4), np.float32),
)

# Unsigned integers have no signedness left, and keep their meaning.

# CHECK-LABEL: unsigned
# CHECK: tensor<4xi32>
# CHECK: arith.divui
# CHECK: arith.uitofp
show(
    "unsigned",
    lambda s, u: (s, (u // jnp.uint32(3)).astype(jnp.float32).sum()),
    table,
    np.zeros((4,), np.uint32),
)
