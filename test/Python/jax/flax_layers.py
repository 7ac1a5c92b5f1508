# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers in models of flax.nnx, beside a masked dense network.

# REQUIRES: flax
# RUN: rm -rf %t && mkdir %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s %src_root %t 2>&1 | FileCheck %s

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint
import sparse_opt
from flax import nnx
from masked import BETAS, EPSILON, RATE, Masked, snippet
from refusals import refuse, refuse_without
from sparse_opt.jax import flax as sparse
from sparse_opt.jax import nn

root, folder = sys.argv[1:]


class Net(nnx.Module):
    def __init__(self, rngs, dtype=jnp.float32):
        options = {"block": 8, "density": 0.25, "param_dtype": dtype, "rngs": rngs}
        self.up = sparse.Linear(32, 64, **options)
        self.down = sparse.Linear(64, 32, **options)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


def optimizer_of(model):
    return nnx.Optimizer(model, optax.adam(RATE, *BETAS, eps=EPSILON), wrt=nnx.Param)


def dense(layers):
    return [nn.to_dense(layer.values[...], layer.pattern) for layer in layers]


traces = 0
WRT = nnx.Any(nnx.Param, sparse.BlockScores)


@nnx.jit
def train(model, optimizer, x, target):
    global traces
    traces += 1
    loss = lambda model: jnp.mean((model(x) - target) ** 2)
    gradients = nnx.grad(loss, argnums=nnx.DiffState(0, WRT))(model)
    scores, gradients = nnx.split_state(gradients, sparse.BlockScores, ...)
    optimizer.update(model, gradients)
    return scores


# Training is that of the masked network: one trace for all updates of a method.
with jax.enable_x64(True):
    x = jax.random.normal(jax.random.key(1), (40, 32), jnp.float64)
    target = jax.random.normal(jax.random.key(2), (40, 32), jnp.float64)
    for method in ("set", "rigl"):
        model, traces = Net(nnx.Rngs(0), jnp.float64), 0
        optimizer, layers = optimizer_of(model), (model.up, model.down)
        sparse.keep_scores(model, method == "rigl")
        biases = lambda: [layer.bias[...] for layer in layers]
        other = Masked(dense(layers), biases(), [p.pattern.mask() for p in layers], 8)
        for i in range(24):
            scores = train(model, optimizer, x, target)
            other.step(x, target)
            if i % 6 == 5 and i < 20:
                given = scores if method == "rigl" else None
                sparse.update_patterns(model, optimizer, 0.3, method=method, scores=given, seed=3)
                other.take([layer.pattern.mask() for layer in layers], method, 0.3)
        difference = other.difference(dense(layers), biases())
        assert difference < 1e-12, (method, difference)
        assert traces == 1 and int(model.up.updates[...]) == 3, (traces, model.up.updates)
print("trains as masked")  # CHECK: trains as masked

# Types are those of nnx.Linear.
x, target = x.astype(jnp.float32), target.astype(jnp.float32)
for options, dtype in (({}, "float32"), ({"dtype": jnp.bfloat16}, "bfloat16"), ({"param_dtype": jnp.bfloat16}, "float32")):
    layer = sparse.Linear(32, 64, block=(8, 16), rngs=nnx.Rngs(0), **options)
    plain = nnx.Linear(32, 64, rngs=nnx.Rngs(0), **options)
    y = layer(x.reshape(2, 20, 32))
    assert y.dtype == plain(x).dtype == dtype and y.shape == (2, 20, 64), options
    wanted = x @ nn.to_dense(layer.values[...], layer.pattern).astype(jnp.float32).T
    assert np.abs(y.reshape(40, 64) - wanted).max() < (1e-5 if dtype == "float32" else 0.05)
assert sparse.Linear(32, 64, use_bias=False, rngs=nnx.Rngs(0)).bias is None
print("types")  # CHECK: types

# Splitting, making in jit and in eval_shape, and checkpoints, from which a run goes on as it was.
model = Net(nnx.Rngs(0))
optimizer = optimizer_of(model)
run = lambda model, optimizer: (train(model, optimizer, x, target), sparse.update_patterns(model, optimizer, seed=3))
run(model, optimizer)
graph, params, patterns = nnx.split(model, nnx.Param, sparse.BlockPattern)
assert {v.dtype for v in jax.tree.leaves(patterns)} == {np.dtype(np.int32)} and len(jax.tree.leaves(params)) == 4
assert np.array_equal(nnx.merge(graph, params, patterns)(x), model(x))
pair = nnx.state((model, optimizer))
checkpointer = orbax.checkpoint.StandardCheckpointer()
checkpointer.save(f"{folder}/saved", nnx.to_pure_dict(pair))
checkpointer.wait_until_finished()
made = nnx.eval_shape(lambda: Net(nnx.Rngs(1)))
again = nnx.jit(lambda: Net(nnx.Rngs(1)))()
assert made.up.indices.shape == again.up.indices.shape and not np.array_equal(again.up.indices[...], model.up.indices[...])
assert np.array_equal(again.up.indices[...], Net(nnx.Rngs(1)).up.indices[...])
resumed = optimizer_of(again)
state = nnx.state((again, resumed))
nnx.replace_by_pure_dict(state, checkpointer.restore(f"{folder}/saved", nnx.to_pure_dict(state)))
nnx.update((again, resumed), state)
for pair in ((model, optimizer), (again, resumed)):
    run(*pair), train(*pair, x, target)
states = [nnx.state(pair) for pair in ((model, optimizer), (again, resumed))]
assert all(map(np.array_equal, *map(jax.tree.leaves, states))) and int(model.up.updates[...]) == 2
print("checkpoints")  # CHECK: checkpoints

# A stack of layers, as of a loop over them, is updated layer by layer.
create = nnx.vmap(lambda key: sparse.Linear(32, 32, block=8, density=0.25, rngs=nnx.Rngs(key)), in_axes=0, out_axes=0)
stack = create(jax.random.split(jax.random.key(0), 3))


@nnx.jit
def apply(stack, x):
    def body(x, layer):
        return jnp.tanh(layer(x)), None

    return nnx.scan(body, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))(x, stack)[0]


def unstacked(x):
    for i in range(3):
        member = nn.Pattern(stack.indices[...][i], stack.updates[...][i], stack.shape, stack.block, stack.slots)
        x = jnp.tanh(x @ nn.to_dense(stack.values[...][i], member).T + stack.bias[...][i])
    return x


momentum = nnx.Optimizer(stack, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)
momentum.update(stack, nnx.grad(lambda stack: jnp.mean(apply(stack, x) ** 2))(stack))
for _ in range(2):
    before = np.asarray(stack.indices[...])
    assert np.abs(apply(stack, x) - unstacked(x)).max() < 1e-6
    sparse.update_patterns(stack, momentum)
    assert (np.asarray(stack.indices[...]) != before).any(1).all()
assert stack.updates[...].tolist() == [2, 2, 2]
trace = nnx.to_pure_dict(nnx.state(momentum))["opt_state"][0]["trace"]["values"]
new = (stack.values[...] == 0).all((2, 3))
assert new.sum(1).tolist() == [1, 1, 1] and not trace[new].any() and trace[~new].any()
print("stacks")  # CHECK: stacks

# The page's snippet.
exec(snippet(root, "import flax as sparse"), {})
print("page")  # CHECK: page


# CHECK: expected blocks that divide the weight, 30x48 (outputs by inputs), but got 16x16
refuse(sparse.Linear, 48, 30, rngs=nnx.Rngs(0))
# CHECK: expected a density above 0, at most 1, but got 2
refuse(sparse.Linear, 48, 32, density=2, rngs=nnx.Rngs(0))
# CHECK: expected activations [..., 32], but got [4, 48]
refuse(model, jnp.zeros((4, 48)))
# CHECK: expected a tree with patterns, but got none
refuse(sparse.update_patterns, nnx.Linear(3, 4, rngs=nnx.Rngs(0)))
# CHECK: expected the gradient of 'down.values' for a method that scores all blocks, but got none
refuse(sparse.update_patterns, model, method="rigl")
# CHECK: expected flax at least 0.12 and below 0.13, but got none: install 'sparse-opt[flax]'
refuse_without("flax", sparse)
# CHECK-NOT: accepted
