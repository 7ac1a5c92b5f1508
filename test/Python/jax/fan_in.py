# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# First values of JAX's layers for the fan-in that is stored, beside their definition.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache OMP_NUM_THREADS=1 JAX_ENABLE_X64=1 %python -u %s 2>&1 | FileCheck %s

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from refusals import refuse
from sparse_opt.jax import equinox, flax, nn


def scaled(dense, mask, block):
    """The values of a matrix, [outputs, inputs], of which a mask of blocks is stored, each drawn for the inputs of its output."""
    found = np.zeros(dense.shape)
    for output in range(dense.shape[0]):
        inputs = np.repeat(mask[output // block[0]], block[1])
        if inputs.any():
            found[output, inputs] = dense[output, inputs] * np.sqrt(len(inputs) / inputs.sum())
    return found


def check(pattern, plain, values):
    before, after = (np.asarray(nn.to_dense(v, pattern)).astype(np.float64) for v in (plain, values))
    epsilon = float(jnp.finfo(values.dtype).eps)
    assert values.dtype == plain.dtype and np.allclose(after, scaled(before, pattern.mask(), pattern.block), rtol=epsilon, atol=0)


# CHECK: 16 weights
count = 0
for dtype in (jnp.float32, jnp.float64, jnp.bfloat16, jnp.float16):
    for block, density in ((1, 0.3), ((4, 8), 0.05), (16, 0.25), (8, 1.0)):
        keys = jax.random.split(jax.random.key(count))
        pattern = nn.random_pattern(keys[0], (64, 48), block=block, density=density)
        plain = nn.init(keys[1], pattern, dtype)
        values = nn.init(keys[1], pattern, dtype, fan_in="rows")
        check(pattern, plain, values)
        # Within jit, where the pattern is traced, and vmap.
        made = jax.jit(lambda keys: (p := nn.random_pattern(keys[0], (64, 48), block=block, density=density), nn.init(keys[1], p, dtype, fan_in="rows")))
        assert (made(keys)[1] == values).all()
        batch = jax.vmap(lambda key: nn.init(key, pattern, dtype, fan_in="rows"))(keys)
        assert (batch[1] == values).all()
        count += 1
print(f"{count} weights")

# CHECK-NEXT: flax and equinox
layers = [flax.Linear(32, 64, block=8, density=0.3, rngs=nnx.Rngs(2), **o) for o in ({}, {"fan_in": "rows"})]
check(layers[0].pattern, *(layer.values[...] for layer in layers))
layers = [equinox.Linear(32, 64, block=8, density=0.3, key=jax.random.key(2), **o) for o in ({}, {"fan_in": "rows"})]
check(layers[0].pattern, *(layer.values for layer in layers))
assert eqx.filter_jit(equinox.Linear)(32, 64, block=8, density=0.3, fan_in="rows", key=jax.random.key(2)).values.shape == layers[1].values.shape
print("flax and equinox")

# CHECK-NEXT: expected fan_in 'dense' or 'rows' of a layer, whose weight is [outputs, inputs], but got 'columns'
refuse(nn.init, jax.random.key(0), layers[0].pattern, fan_in="columns")
