# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Arguments of JAX's layers that are none: a sentence each.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache OMP_NUM_THREADS=1 %python -u %s 2>&1 | FileCheck %s --implicit-check-not=accepted --implicit-check-not=Traceback

import jax
import jax.numpy as jnp
import numpy as np
import sparse_opt
from refusals import refuse
from sparse_opt.jax import nn

key = jax.random.key(0)

# Integers of NumPy are as good as those of Python.
pattern = nn.random_pattern(key, [np.int64(32), np.int32(48)], block=np.int64(8), density=np.float32(0.5))
assert pattern.shape == (32, 48) and pattern.block == (8, 8) and all(type(n) is int for n in (*pattern.shape, *pattern.block))
assert nn.pattern_of([[1, 0], [0, 1]], [np.int64(16), 8]).block == (16, 8)
values, x = nn.init(key, pattern), jnp.zeros((3, 48))

# CHECK: expected block to be an integer from 1, or two (rows and columns), but got '8x8'
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got (8,)
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got 8.0
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got True
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got 0
for block in ("8x8", (8,), 8.0, True):
    refuse(nn.random_pattern, key, (32, 48), block=block)
refuse(nn.pattern_of, np.ones((2, 2)), 0)
# CHECK-NEXT: expected a density above 0, at most 1, but got None
# CHECK-NEXT: expected a density above 0, at most 1, but got '0.1'
# CHECK-NEXT: expected a density above 0, at most 1, but got nan
for density in (None, "0.1", float("nan")):
    refuse(nn.random_pattern, key, (32, 48), density=density)
# CHECK-NEXT: expected the shape of a weight, (outputs, inputs), but got None
# CHECK-NEXT: expected the shape of a weight, (outputs, inputs), but got (32,)
# CHECK-NEXT: expected outputs to be an integer from 1, but got 0
# CHECK-NEXT: expected inputs to be an integer from 1, but got 1.5
for shape in (None, (32,), (0, 48), (32, 1.5)):
    refuse(nn.random_pattern, key, shape)
# CHECK-NEXT: expected a mask of two dimensions, but got None
# CHECK-NEXT: expected a mask of two dimensions, but got 'random'
# CHECK-NEXT: expected a mask of two dimensions of which one block is stored at least, but got 2 of [2]
for mask in (None, "random", np.ones(2)):
    refuse(nn.pattern_of, mask, 8)
# CHECK-NEXT: expected a pattern that random_pattern or pattern_of returned, but got None
# CHECK-NEXT: expected a pattern that random_pattern or pattern_of returned, but got a ndarray
# CHECK-NEXT: expected a pattern that random_pattern or pattern_of returned, but got 'random'
# CHECK-NEXT: expected a pattern that random_pattern or pattern_of returned, but got None
refuse(nn.init, key, None)
refuse(nn.to_dense, values, pattern.mask())
refuse(nn.from_dense, jnp.zeros((32, 48)), "random")
refuse(nn.linear, values, None, x)
# CHECK-NEXT: expected values of float32, float64, bfloat16, float16, but got 'int8'
# CHECK-NEXT: expected values of float32, float64, bfloat16, float16, but got 'x'
refuse(nn.init, key, pattern, "int8")
refuse(nn.init, key, pattern, "x")
# CHECK-NEXT: expected values to be an array, but got None
# CHECK-NEXT: expected values of [12, 8, 8], but got [12, 8, 4]
# CHECK-NEXT: expected weight to be an array, but got 3
# CHECK-NEXT: expected x to be an array, but got [1.0, 2.0]
# CHECK-NEXT: expected a bias to be an array, but got 1.0
# CHECK-NEXT: expected a bias of [32], but got [1, 32]
# CHECK-NEXT: expected scores to be an array, but got 'l1'
# CHECK-NEXT: expected values [12, 8, 8] and activations of one floating-point type, but got [2] of key<fry> and float32
refuse(nn.to_dense, None, pattern)
refuse(nn.to_dense, values[..., :4], pattern)
refuse(nn.from_dense, 3, pattern)
refuse(nn.linear, values, pattern, [1.0, 2.0])
refuse(nn.linear, values, pattern, x, 1.0)
refuse(nn.linear, values, pattern, x, jnp.zeros((1, 32)))
refuse(nn.linear, values, pattern, x, scores="l1")
refuse(nn.linear, jax.random.split(key), pattern, x)


def updated(held=values, name="w", drop=0.3, **options):
    return nn.update_patterns({name: held}, {name: pattern}, None, drop, **options)


assert int(updated(drop=np.float32(0.5), seed=np.int64(3), allow_return=np.True_)[1]["w"].updates) == 1
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got 'x'
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got 2
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got nan
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got -1
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got None
for drop in ("x", 2, float("nan"), -1):
    refuse(updated, drop=drop)
refuse(updated, drop=None, method=sparse_opt.Method())
# CHECK-NEXT: expected seed to be an integer from 0, but got -1
# CHECK-NEXT: expected seed to be an integer from 0, but got 1.5
# CHECK-NEXT: expected seed to be an integer from 0, but got None
for seed in (-1, 1.5, None):
    refuse(updated, seed=seed)
# CHECK-NEXT: expected one of static, set, rigl, gmp, but got None
# CHECK-NEXT: expected allow_return to be True or False, but got 'no'
# CHECK-NEXT: expected 'w' to be an array, but got 3
# CHECK-NEXT: expected 'w' of [12, 8, 8], but got [12, 64]
# CHECK-NEXT: expected 'w' of float32, float64, bfloat16, float16, but got int32
# CHECK-NEXT: expected scores of [4, 6], but got [6, 4]
# CHECK-NEXT: expected scores to be an array, but got 'l1'
# CHECK-NEXT: expected names of layers without control characters, but got 'a\nb'
refuse(updated, method=None)
refuse(updated, allow_return="no")
refuse(updated, 3)
refuse(updated, values.reshape(12, 64))
refuse(updated, jnp.zeros(values.shape, jnp.int32))
refuse(updated, method="rigl", scores={"w": jnp.zeros((6, 4))})
refuse(updated, method="rigl", scores={"w": "l1"})
refuse(updated, name="a\nb")
