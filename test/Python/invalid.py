# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Each step that cannot be exported is refused in one sentence.

# RUN: %python %s | FileCheck %s --implicit-check-not=exported

import jax
import jax.numpy as jnp
import numpy as np

from sparse_opt.jax import ExportError, export

vector = np.ones((9,), np.float32)
ids = np.zeros((4,), np.int32)


def refuse(step, *arguments, **options):
    try:
        export(step, *arguments, **options)
        print("exported")
    except ExportError as error:
        print(error)


def descend(loss):
    def step(state, *batch):
        value, gradient = jax.value_and_grad(loss)(state, *batch)
        return state - gradient, value

    return step


# CHECK: expected an init of the form zeros, ones, constant(c) or normal(sd), but got 'uniform'
refuse(lambda s: (s, s.sum()), vector, inits={"": "uniform"})

# CHECK: expected arguments that the step accepts, but got 'missing a required argument: 'batch''
refuse(lambda state, batch: (state, batch), vector)

# CHECK: expected distinct names, but got 'state.a.b' twice
refuse(lambda state: (state, 0.0), {"a": {"b": vector}, "a.b": vector})

# CHECK: expected a step that returns 1 next states and a loss, but got 'PyTreeDef(*)'
refuse(lambda state: state, vector)

# CHECK: expected a step that returns 1 next states and a loss, but got 'PyTreeDef((*,))'
refuse(lambda state: (state,), vector)

# CHECK: expected a loss of shape (), but got (9,)
refuse(lambda state: (state, state), vector)

# CHECK: expected a loss of shape (), but got nothing
refuse(lambda state: (state, None), vector)

# CHECK: expected a next state of structure PyTreeDef(({'a': *},)), but got PyTreeDef(({'b': *},))
refuse(lambda state: ({"b": state["a"]}, 0.0), {"a": vector})

# CHECK: expected the next value of 'state.a' to be float32[9], but got float32[3]
refuse(lambda state: ({"a": state["a"][:3]}, 0.0), {"a": vector})

# CHECK: expected the next value of 'state.a' to be float32[9], but got int32[9]
refuse(lambda state: ({"a": state["a"].astype(int)}, 0.0), {"a": vector})


# CHECK: expected a scatter-add of whole rows, but got '#stablehlo.scatter<{{.*}}>' on tensor<9xf32> at loc("transpose(jvp(windows)){{.*}}/scatter-add")
@jax.named_scope("windows")
def windows(s, i):
    return jax.vmap(lambda start: jax.lax.dynamic_slice(s, (start,), (3,)))(i)


refuse(descend(lambda s, i: windows(s, i).sum()), vector, ids)

# CHECK: expected a scatter that adds, but got 'stablehlo.maximum' at loc("scatter-max")
refuse(lambda s, i: (s.at[i].max(1.0), 0.0), vector, ids)

# CHECK: expected a loop of a constant number of steps, but got one that depends on data at loc("while")
refuse(
    lambda s: (jax.lax.while_loop(lambda x: x.sum() < 100, lambda x: 2 * x, s), 0.0),
    vector,
)

# CHECK: expected operations that lower to linalg, but got 'stablehlo.sort' at loc("{{.*}}sort")
refuse(lambda s: (jnp.sort(s), 0.0), vector)

# CHECK: expected operations that lower to linalg, but got 'stablehlo.case' at loc("cond")
refuse(lambda s: (jax.lax.cond(s[0] > 0, jnp.sin, jnp.cos, s), 0.0), vector)
