# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""BERT-tiny with dropout, exported and compiled block-sparse, against JAX with masks.

The key is carried, as a user's step would: each step splits it, so the masks of
every step are JAX's own or the losses differ.
"""

import re
from unittest import mock

import generate
import jax
import jax.numpy as jnp
import numpy as np
import optax
import sparse_opt.jax
import step

CONFIG = generate.CONFIGS["tiny"]
RATE = np.float32(1e-3)


def with_dropout(layer, keys):
    def dropped(*arguments):
        y = layer(*arguments)
        return jnp.where(jax.random.bernoulli(next(keys), 0.9, y.shape), y / 0.9, 0.0)

    return dropped


def loss(params, masks, key, batch):
    params = params if masks is None else jax.tree.map(jnp.multiply, params, masks)
    keys = iter(jax.random.split(key, 2 * CONFIG.layers))
    layers = {name: with_dropout(getattr(generate, name), keys) for name in ("attention", "feed_forward")}
    with mock.patch.multiple(generate, **layers):
        return generate.loss(params, batch, CONFIG)


def train(state, batch, lr, masks=None):
    params = state["params"]
    key, used = jax.random.split(state["key"])
    value, gradient = jax.value_and_grad(loss)(params, masks, used, batch)
    updates, opt = generate.optimizer(lr, CONFIG).update(gradient, state["opt"], params)
    return {"params": optax.apply_updates(params, updates), "opt": opt, "key": key}, value


random = np.random.default_rng(0)
state, batch, lr = generate.step_arguments(CONFIG)
state["key"] = jax.ShapeDtypeStruct((2,), jnp.uint32)
text = sparse_opt.jax.export(train, state, batch, lr)
compiled = step.compile(text, ["--mark=match=layers.*_w$ block=16x16 density=0.1"])
products = compiled.manifest["products"]
assert [products[kind] for kind in ("spmm", "spmm_transposed", "sddmm")] == [8, 8, 8], products
assert compiled.manifest["left_dense"] == 0

blocks = {}
for pattern in compiled.manifest["patterns"]:
    grid = [extent // 16 for extent in pattern["shape"]]
    chosen = np.zeros(grid[0] * grid[1], bool)
    chosen[random.permutation(chosen.size)[:pattern["slots"]]] = True
    blocks[pattern["name"]] = chosen.reshape(grid)
dense_masks = {name: np.kron(mask, np.ones((16, 16), np.float32)) for name, mask in blocks.items()}


def start(name, leaf):
    if leaf.dtype == jnp.uint32:
        return np.array([7, 123456789], np.uint32)
    if re.search(r"params\..*(_w|embedding)$", name):
        return random.normal(0, 0.02, leaf.shape).astype(np.float32) * dense_masks.get(name, 1)
    return (np.ones if name.endswith("_gain") else np.zeros)(leaf.shape, leaf.dtype)


names = sparse_opt.jax.leaf_names("state", state)
leaves, tree = jax.tree.flatten(state)
values = {name: start(name, leaf) for name, leaf in zip(names, leaves)}
state = jax.tree.unflatten(tree, values.values())
masks = jax.tree.unflatten(tree, [dense_masks.get(name, 1) for name in names])["params"]
data = {name: random.integers(0, 64, leaf.shape).astype(leaf.dtype) for name, leaf in batch.items()}

of_pattern = {buffer["name"]: compiled.manifest["patterns"][buffer["pattern"]]["name"]
              for buffer in compiled.manifest["buffers"] if buffer["kind"] == "values"}
arrays = {f"batch.{name}": array for name, array in data.items()} | values | {"lr": RATE}
arrays["state.key"] = values["state.key"].view(np.int32)
for name, pattern in of_pattern.items():
    arrays[name] = step.to_values(values[name], blocks[pattern], (16, 16))

reference = jax.jit(train)
for _ in range(3):
    state, want = reference(state, data, RATE, masks)
    outputs = compiled.run(arrays, blocks, threads=2)
    arrays |= {name: array for name, array in outputs.items() if name in arrays}
    np.testing.assert_allclose(outputs["loss"], want, rtol=1e-5)
for name, want in zip(names, jax.tree.leaves(state)):
    got = outputs[name].view(want.dtype)
    if name in of_pattern:
        mask = of_pattern[name]
        got, want = step.to_dense(got, blocks[mask]), want * dense_masks[mask]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5, err_msg=name)
