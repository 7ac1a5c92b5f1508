# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers in models of Keras, on both backends, beside a masked dense network.

# RUN: rm -rf %t && mkdir -p %t/jax %t/torch
# RUN: env SPARSE_OPT_CACHE=%t/cache KERAS_BACKEND=jax JAX_ENABLE_X64=1 %python -u %s %src_root %t/jax 2>&1 | FileCheck %s --check-prefixes=CHECK,JAX
# RUN: env SPARSE_OPT_CACHE=%t/cache KERAS_BACKEND=torch %python -u %s %src_root %t/torch 2>&1 | FileCheck %s --check-prefixes=CHECK,TORCH
# RUN: not env KERAS_BACKEND=numpy %python -c "import sparse_opt.keras" 2>&1 | FileCheck %s --check-prefix=BACKEND -DBACKEND=numpy
# RUN: not env -u KERAS_BACKEND %python -c "import sparse_opt.keras" 2>&1 | FileCheck %s --check-prefix=BACKEND -DBACKEND=tensorflow

# BACKEND: expected Keras on its backend jax or torch, but got '[[BACKEND]]': set the environment's KERAS_BACKEND before keras is imported

import sys
import types

import keras
import numpy as np
import sparse_opt
import sparse_opt.keras
from masked import BETAS, EPSILON, RATE, Masked, snippet
from refusals import refuse, refuse_without
from sparse_opt.keras import Dense, UpdatePatterns, update_patterns

root, folder = sys.argv[1:]
print(keras.backend.backend())
# JAX: jax
# TORCH: torch

random = np.random.default_rng(0)
x, target = random.standard_normal((2, 192, 32))
numbers = keras.ops.convert_to_numpy
state = lambda model: [numbers(v) for v in (*model.variables, *model.optimizer.variables)]


def network(seed=None, **options):
    options |= {"block": 8, "density": 0.25}
    seeds = (None, None) if seed is None else (seed, seed + 1)
    return keras.Sequential([
        keras.Input((32,)), Dense(64, activation="tanh", seed=seeds[0], **options), Dense(32, seed=seeds[1], **options),
    ])  # fmt: skip


def dense(layer):
    rows, cols = layer.matrix.blocks_of(numbers(layer.pattern))
    tiles = np.zeros((*layer.matrix.grid, *layer.values.shape[1:]), layer.values.dtype)
    tiles[rows, cols] = numbers(layer.values)
    return tiles.swapaxes(1, 2).reshape(layer.matrix.rows, layer.matrix.cols)


class Beside(keras.callbacks.Callback):
    """Trains the masked network on the batches of fit, in front of the callback that updates."""

    def on_train_begin(self, logs=None):
        layers = self.model.layers
        self.other = Masked(map(dense, layers), [numbers(q.bias) for q in layers], [q.mask() for q in layers], 8)

    def on_train_batch_begin(self, batch, logs=None):
        masks = [layer.mask() for layer in self.model.layers]
        if any((a != b).any() for a, b in zip(masks, self.other.masks)):
            self.other.take(masks, "set", 0.3)

    def on_train_batch_end(self, batch, logs=None):
        self.other.step(x[batch * 24 : batch * 24 + 24], target[batch * 24 : batch * 24 + 24])


# fit with three updates in 24 batches trains as the masked network does; it is traced once.
model, calls = network(0, dtype="float64"), 0


def tanh(x):
    global calls
    calls += 1
    return keras.ops.tanh(x)


model.layers[0].activation = tanh
adam = lambda **options: keras.optimizers.Adam(RATE, *BETAS, epsilon=EPSILON, **options)
model.compile(adam(), "mse")
beside = Beside()
model.fit(x, target, batch_size=24, epochs=3, shuffle=False, verbose=0, callbacks=[beside, UpdatePatterns(7, 0.3, seed=3)])
difference = beside.other.difference(map(dense, model.layers), [numbers(layer.bias) for layer in model.layers])
assert difference < 1e-6, difference  # Keras computes its rates in float32
assert [int(layer.num_updates) for layer in model.layers] == [3, 3]
assert calls <= 2 or keras.backend.backend() == "torch", calls
print("trains as masked")  # CHECK: trains as masked

# What is saved goes on as it was, from the middle of what the callback counts.
keras.utils.set_random_seed(1)
model = network()
model.compile(adam(), "mse")
fit = lambda model: model.fit(x, target, batch_size=24, shuffle=False, verbose=0, callbacks=[UpdatePatterns(5, seed=3)])
fit(model)
assert int(model.layers[0].num_updates) == 1
model.save(f"{folder}/model.keras")
model.save_weights(f"{folder}/model.weights.h5")
again = keras.saving.load_model(f"{folder}/model.keras")
assert all(map(np.array_equal, state(again), state(model)))
for part in (model, again):
    fit(part)
assert all(map(np.array_equal, state(again), state(model))) and int(again.layers[0].num_updates) == 3
other = network()
assert (other.layers[0].mask() != model.layers[0].mask()).any()
other.load_weights(f"{folder}/model.weights.h5")
assert int(other.layers[0].num_updates) == 1 and (other.layers[0].mask() != model.layers[0].mask()).any()
keras.utils.set_random_seed(1)
twin = network()
assert all(map(np.array_equal, map(numbers, twin.weights), map(numbers, network(twin.layers[0].seed).weights[:4])))
print("files")  # CHECK: files

# What optimizers keep of new blocks becomes what it began with.
optimizers = keras.optimizers
for optimizer, kept in (
    (optimizers.Adam(), [0, 0]),
    (optimizers.Adagrad(initial_accumulator_value=0.25), [0.25]),
    (optimizers.Adafactor(), [0, 0, 0]),
    (optimizers.SGD(0.01, momentum=0.9, use_ema=True, gradient_accumulation_steps=3), [0, 0, 0]),
):
    model = network()
    model.compile(optimizer, "mse")
    model.fit(x, target, batch_size=24, steps_per_epoch=8, verbose=0)
    layer = model.layers[0]
    assert update_patterns(model, 0.3) == 4
    found = list(sparse_opt.keras._kept_of(optimizer, layer.values))
    new = (numbers(layer.values) == 0).all((1, 2))
    assert new.sum() == 2 and [first for _, first in found] == kept, (optimizer.name, found)
    for variable, first in found:
        held = numbers(variable)
        assert (held[new] == first).all(), (optimizer.name, variable.path)
print("optimizers")  # CHECK: optimizers


# Layers in layers, functional models, several batches a call, types and frozen layers.
class Residual(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = Dense(32, block=(4, 8), density=0.5, use_bias=False)

    def call(self, x):
        return x + self.inner(x)


for policy in ("float32", "mixed_bfloat16", "mixed_float16", "bfloat16"):
    keras.config.set_dtype_policy(policy)
    inputs = keras.Input((6, 32))
    block = Residual()
    last = Dense(16, block=8, density=0.5, activation="relu", trainable=False)
    model = keras.Model(inputs, last(block(inputs)))
    assert model.output_shape == (None, 6, 16)
    model.compile("adam", "mse", steps_per_execution=2 if keras.backend.backend() == "jax" else 1)
    batch = random.standard_normal((32, 6, 32)).astype("float32")
    frozen, before = last.mask(), block.inner.mask()
    model.fit(batch, batch[..., :16], batch_size=4, epochs=2, verbose=0, callbacks=[UpdatePatterns(3)])
    assert int(block.inner.num_updates) == 5 and (block.inner.mask() != before).any(), block.inner.num_updates
    assert int(last.num_updates) == 0 and (last.mask() == frozen).all()
    y = numbers(block.inner(batch)).astype("float64")
    assert y.shape == batch.shape and keras.backend.standardize_dtype(block.inner(batch).dtype) == last.compute_dtype
    wanted = batch @ dense(block.inner).astype("float64").T
    assert np.abs(y - wanted).max() <= (1e-5 if policy == "float32" else 0.05), policy
keras.config.set_dtype_policy("float32")
print("models")  # CHECK: models

# First values for the inputs that are stored, which a file says again.
for policy in ("float32", "float16"):
    keras.config.set_dtype_policy(policy)
    plain, layer = (Dense(64, block=8, density=0.3, seed=5, **o) for o in ({}, {"fan_in": "rows"}))
    assert Dense.from_config(layer.get_config()).fan_in == "rows"
    for made in (plain, layer):
        made.build((None, 32))
    mask = layer.mask()
    by = np.sqrt(mask.shape[1] / np.maximum(mask.sum(1), 1)).repeat(8)[:, None]
    want = dense(plain).astype("float64") * by
    assert np.allclose(dense(layer).astype("float64"), want, rtol=2 * np.finfo(dense(layer).dtype).eps, atol=0)
    assert (layer.mask() == plain.mask()).all() and len(set(mask.sum(1))) > 1
keras.config.set_dtype_policy("float32")
print("fan-in")  # CHECK: fan-in

# The page's snippet.
exec(snippet(root, "sparse_opt.keras"), {"path": f"{folder}/page.keras"})
print("page")  # CHECK: page


class Scored(sparse_opt.Method):
    needs_scores = True


# CHECK: expected blocks that divide the weight, 30x32 (outputs by inputs), but got 16x16
refuse(Dense(30), x)
# CHECK: expected a density above 0, at most 1, but got 0
refuse(Dense(32, density=0), x)
# CHECK: expected fan_in 'dense' or 'rows' of a layer, whose weight is [outputs, inputs], but got 'columns'
refuse(Dense, 32, fan_in="columns")
# CHECK: expected a model with block-sparse layers to train, but got none
refuse(update_patterns, keras.Sequential([keras.layers.Dense(3)]))
# CHECK: expected one of static, set, rigl, gmp, but got 'prune'
refuse(update_patterns, twin, method="prune")
# CHECK: expected the gradient of '{{.*}}dense{{.*}}' for a method that scores all blocks, but got none: Keras keeps none, use the method set
refuse(update_patterns, twin, method="rigl")
# CHECK: expected the gradient of '{{.*}}dense{{.*}}' for a method that scores all blocks, but got none: Keras keeps none, use the method set
refuse(update_patterns, twin, method=Scored())
# CHECK: expected updates every 1 batch or more, but got 0
refuse(UpdatePatterns, 0)
# TORCH: expected a block-sparse layer and its input on a processor, but got 'cuda': set the environment's KERAS_TORCH_DEVICE=cpu before keras is imported
if keras.backend.backend() == "torch":
    import torch

    refuse(sparse_opt.keras._product, types.SimpleNamespace(device=torch.device("cuda")), None, None, None, twin.layers[0])
# CHECK: expected keras at least 3.15 and below 3.16, but got none: install 'sparse-opt[keras]'
refuse_without("keras", sparse_opt.keras)
# CHECK-NOT: accepted
