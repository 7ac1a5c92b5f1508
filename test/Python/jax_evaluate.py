# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Functions of a JAX state run on what a compiled step trains.

# RUN: %python -u %s | FileCheck %s

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparse_opt
import sparse_opt.jax
from refusals import refuse

optimizer = optax.adamw(1e-2)


def model(params, x, key=None):
    h = jnp.tanh(x @ params["a"])
    for i in range(2):
        h = h + jnp.tanh(h @ params["layers"][i])
    if key is not None:
        h = h * jax.random.bernoulli(key, 0.5, h.shape)
    return h @ params["b"]


@jax.jit
def step(state, batch, key):
    def loss(params):
        return jnp.mean((model(params, batch["x"], key) - batch["y"]) ** 2)

    value, gradient = jax.value_and_grad(loss)(state["params"])
    updates, opt = optimizer.update(gradient, state["opt"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, value


def predict(state, x):
    y = model(state["params"], x)
    return {"y": y, "largest": jnp.argmax(y, -1)}


keys = jax.random.split(jax.random.PRNGKey(0), 6)
params = {
    "a": jax.random.normal(keys[0], (16, 32)),
    "b": jax.random.normal(keys[1], (32, 16)),
    "layers": jax.random.normal(keys[2], (2, 32, 32)),
}
state = {"params": params, "opt": optimizer.init(params)}
batch = {"x": jax.random.normal(keys[3], (8, 16)), "y": jnp.ones((8, 16))}
marks = [
    "match=params.layers$ block=8x8 density=0.5 dims=stack,row,col",
    "match=params.[ab]$ block=4x4 density=0.25",
]
compiled = sparse_opt.compile(
    sparse_opt.jax.export(step, state, batch, keys[4]), marks, options=["-O", "1"],
    pattern="random",
)  # fmt: skip
few = jax.random.normal(keys[5], (3, 16))
predicted = compiled.bind(sparse_opt.jax.export_function(predict, state, few))

# CHECK-COUNT-3: values True, places True, the step's loss True
for i in range(3):
    got, want = predicted(few), predict(compiled.state_dict(), few)
    key = jax.random.PRNGKey(i)
    before = compiled.evaluate(batch, key)
    print(
        f"values {np.allclose(got['y'], want['y'], atol=1e-4)},"
        f" places {np.array_equal(got['largest'], want['largest'])},"
        f" the step's loss {bool(before == compiled(batch, key))}"
    )
    compiled.update_patterns(0.5)

# The state is known by the names of the step's.

# CHECK: expected 'params.a', which step 'step' takes, to be of the state of step 'step', but it is not
refuse(lambda: compiled.bind(
    sparse_opt.jax.export_function(lambda params, x: model(params, x), params, few)))
# CHECK: expected a function that returns arrays, but got nothing
refuse(lambda: sparse_opt.jax.export_function(lambda state, x: None, state, few))
# CHECK: expected 'x' of shape [3, 16], but got [8, 16]: a compiled step has one shape, export the step again for another
refuse(lambda: predicted(batch["x"]))
