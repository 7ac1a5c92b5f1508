# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers in models of Equinox, beside a masked dense network.

# REQUIRES: equinox
# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s %src_root 2>&1 | FileCheck %s

import io
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import sparse_opt
from masked import BETAS, EPSILON, RATE, Masked, snippet
from refusals import refuse, refuse_without
from sparse_opt.jax import equinox as sparse
from sparse_opt.jax import nn


def network(key, dtype=None):
    keys = jax.random.split(key, 2)
    options = {"block": 8, "density": 0.25, "dtype": dtype}
    return eqx.nn.Sequential([
        sparse.Linear(32, 64, key=keys[0], **options), eqx.nn.Lambda(jnp.tanh), sparse.Linear(64, 32, key=keys[1], **options),
    ])  # fmt: skip


optimizer = optax.adam(RATE, *BETAS, eps=EPSILON)
first_state = lambda model: optimizer.init(eqx.filter(model, eqx.is_inexact_array))
traces = 0


@eqx.filter_jit
def train(model, state, x, target, scores):
    global traces
    traces += 1

    def loss(pair):
        model = pair[0] if pair[1] is None else sparse.with_scores(*pair)
        return jnp.mean((jax.vmap(model)(x) - target) ** 2)

    gradients, scores = eqx.filter_grad(loss)((model, scores))
    updates, state = optimizer.update(gradients, state, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), state, scores


# Training is that of the masked network: one trace for all updates of a method.
with jax.enable_x64(True):
    x = jax.random.normal(jax.random.key(1), (40, 32), jnp.float64)
    target = jax.random.normal(jax.random.key(2), (40, 32), jnp.float64)
    for method in ("set", "rigl"):
        model, traces = network(jax.random.key(0)), 0
        state, layers = first_state(model), lambda: (model[0], model[2])
        dense = lambda: [nn.to_dense(layer.values, layer.pattern) for layer in layers()]
        biases = lambda: [layer.bias for layer in layers()]
        other = Masked(dense(), biases(), [layer.pattern.mask() for layer in layers()], 8)
        zeros = sparse.scores_of(model) if method == "rigl" else None
        for i in range(24):
            model, state, scores = train(model, state, x, target, zeros)
            other.step(x, target)
            if i % 6 == 5 and i < 20:
                model, state = sparse.update_patterns(model, state, 0.3, method=method, scores=scores, seed=3)
                other.take([layer.pattern.mask() for layer in layers()], method, 0.3)
        difference = other.difference(dense(), biases())
        assert difference < 1e-12, (method, difference)
        assert model[0].values.dtype == "float64" and model[0].scores is None
        assert traces == 1 and int(model[0].pattern.updates) == 3, (traces, model[0].pattern.updates)
print("trains as masked")  # CHECK: trains as masked

# Vectors, leading dimensions, and what filters see.
x, target = x.astype(jnp.float32), target.astype(jnp.float32)
layer = sparse.Linear(32, 64, block=(8, 16), density=0.5, key=jax.random.key(0))
wanted = x @ nn.to_dense(layer.values, layer.pattern).T + layer.bias
for y in (jax.vmap(layer)(x), layer(x), layer(x.reshape(2, 20, 32)).reshape(40, 64), jnp.stack([layer(row, key=None) for row in x])):
    assert y.shape == (40, 64) and np.abs(y - wanted).max() < 1e-5
assert len(jax.tree.leaves(eqx.filter(layer, eqx.is_inexact_array))) == 2
assert sparse.Linear(32, 64, use_bias=False, dtype=jnp.bfloat16, key=jax.random.key(0)).bias is None
print("calls")  # CHECK: calls

# Files, from which a run goes on as it was.
model = network(jax.random.key(0))
state = first_state(model)


def run(model, state):
    model, state, _ = train(model, state, x, target, None)
    return sparse.update_patterns(model, state, seed=3)


model, state = run(model, state)
file = io.BytesIO()
eqx.tree_serialise_leaves(file, (model, state))
file.seek(0)
like = eqx.filter_eval_shape(lambda: (lambda model: (model, first_state(model)))(network(jax.random.key(1))))
again = eqx.tree_deserialise_leaves(file, like)
ends = [train(*run(*pair), x, target, None) for pair in ((model, state), again)]
assert eqx.tree_equal(*ends) and int(ends[1][0][2].pattern.updates) == 2
print("files")  # CHECK: files

# A stack of layers, as of a loop over them, is updated layer by layer.
make = lambda key: sparse.Linear(32, 32, block=8, density=0.5, key=key)
stack = eqx.filter_vmap(make)(jax.random.split(jax.random.key(0), 3))


def apply(stack, x):
    arrays, rest = eqx.partition(stack, eqx.is_array)
    return jax.lax.scan(lambda x, part: (jnp.tanh(eqx.combine(part, rest)(x)), None), x, arrays)[0]


def unstacked(x):
    for i in range(3):
        layer = jax.tree.map(lambda leaf: leaf[i], stack)
        x = jnp.tanh(x @ nn.to_dense(layer.values, layer.pattern).T + layer.bias)
    return x


momentum = optax.sgd(0.1, momentum=0.9)
gradients = eqx.filter_grad(lambda stack: jnp.mean(apply(stack, x) ** 2))(stack)
_, state = momentum.update(gradients, momentum.init(eqx.filter(stack, eqx.is_inexact_array)))
norms = sparse.scores_of(stack)
assert {n: s.shape for n, s in norms.items()} == {"values": (3, 4, 4)}
for options in ({}, {"method": "rigl", "scores": {"values": jnp.arange(48.0).reshape(3, 4, 4)}}):
    before = stack.pattern
    assert np.abs(apply(stack, x) - unstacked(x)).max() < 1e-6
    stack, state = sparse.update_patterns(stack, state, **options)
    assert (stack.pattern.indices != before.indices).any(1).all()
mask = [jax.tree.map(lambda leaf: leaf[i], stack.pattern).mask() for i in range(3)]
assert all(m[-1, -1] for m in mask) and stack.pattern.updates.tolist() == [2, 2, 2]
new = (stack.values == 0).all((2, 3))
assert (new.sum(1) > 0).all() and not state[0].trace.values[new].any() and state[0].trace.values[~new].any()
print("stacks")  # CHECK: stacks

# The page's snippet.
exec(snippet(sys.argv[1], "import equinox as sparse"), {})
print("page")  # CHECK: page


key = jax.random.key(0)
# CHECK: expected blocks that divide the weight, 30x48 (outputs by inputs), but got 16x16
refuse(sparse.Linear, 48, 30, key=key)
# CHECK: expected a density above 0, at most 1, but got 2
refuse(sparse.Linear, 48, 32, density=2, key=key)
# CHECK: expected activations [..., 32], but got [48]
refuse(layer, jnp.zeros(48))
# CHECK: expected a tree with patterns, but got none
refuse(sparse.update_patterns, eqx.nn.Linear(3, 4, key=key))
# CHECK: expected the gradient of 'values' for a method that scores all blocks, but got none
refuse(sparse.update_patterns, layer, method="rigl")
# CHECK: expected scores for all block-sparse layers and no others, as scores_of(model) makes them, but got other ones at 'layers.0.values'
refuse(sparse.with_scores, network(key), sparse.scores_of(layer))
# CHECK: expected equinox at least 0.13 and below 0.14, but got none: install 'sparse-opt[equinox]'
refuse_without("equinox", sparse)
# CHECK-NOT: accepted
