# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Programs without updates run on the values and patterns of a step.

# RUN: rm -rf %t && mkdir %t
# RUN: %numpy_python -u %s %t | FileCheck %s

import gc
import pickle
import sys

import numpy as np

import sparse_opt
from refusals import refuse
from text_step import TEXT

OPTIONS = ["-O", "1"]
rng = np.random.default_rng(0)
w, x = rng.normal(size=(2, 16, 16)).astype(np.float32)


def equal_bits(before, after):
    return all(np.array_equal(before[name], after[name]) for name in before)


# The loss of an evaluation is that of the step, of the same memory, for every size of
# blocks, and nothing changes; after updates of values and patterns, too.

# CHECK-COUNT-6: equal True, like dense True, unchanged True, shared True
for block, density in ((1, 0.3), (2, 0.5), (4, 0.5), (8, 0.25), (16, 1), (8, 1)):
    marks = [f"match=^w$ block={block}x{block} density={density}"]
    step = sparse_opt.compile(TEXT, marks, seed=block, options=OPTIONS, pattern="random")
    step.write("w", w)
    equal = like_dense = unchanged = True
    for _ in range(3):
        before = step.native_state()
        got = step.evaluate(x=x)
        unchanged &= equal_bits(before, step.native_state()) and got == step.evaluate(x=x)
        want = np.square(x.astype(np.float64) @ step.read("w").astype(np.float64)).sum()
        like_dense &= bool(np.isclose(got, want, rtol=1e-5))
        equal &= got == step(x=x, lr=0.001)
        step.update_patterns(0.5)
    shared = np.shares_memory(step.arrays["w"], step._evaluations[()].arrays["w"])
    print(f"equal {equal}, like dense {like_dense}, unchanged {unchanged}, shared {shared}")

# A row or all of a matrix without blocks is zeros.

# CHECK: empty rows equal True, empty 0.0
marks = ["match=^w$ block=4x4 density=0.5"]
step = sparse_opt.compile(TEXT, marks, options=OPTIONS, pattern="random")
step.set_blocks("w", [0, 4, 4, 6, 6], [0, 1, 2, 3, 0, 3])
step.write("w", w)
want = np.square(x.astype(np.float64) @ step.read("w")).sum()
equal = np.isclose(step.evaluate(x=x), want, rtol=1e-5)
step.set_blocks("w", [0, 0, 0, 0, 0], [])
print(f"empty rows equal {equal}, empty {step.evaluate(x=x)}")

# A function of the caller's own, with another batch.


def function(name="w", columns=16, type="f32"):
    y = f"tensor<3x{columns}x{type}>"
    return f"""
func.func @product(%x: tensor<3x16x{type}> {{bsr.name = "few", bsr.role = "batch"}},
                   %w: tensor<16x{columns}x{type}> {{bsr.name = "{name}", bsr.role = "param"}})
    -> ({y} {{bsr.name = "y"}}) {{
  %zero = arith.constant dense<0.0> : {y}
  %y = linalg.matmul ins(%x, %w : tensor<3x16x{type}>, tensor<16x{columns}x{type}>)
                     outs(%zero : {y}) -> {y}
  return %y : {y}
}}
"""

# CHECK: product True, products {'spmm': 1, 'spmm_transposed': 0, 'sddmm': 0, 'dense': 0, 'left_dense': 0}
# CHECK: <sparse_opt.Evaluation 'product' of <sparse_opt.Step 'step': 3 arrays
step.set_blocks("w", [0, 2, 3, 6, 8], [0, 3, 1, 0, 1, 2, 2, 3])
step.write("w", w)
product = step.bind(function(), library=f"{sys.argv[1]}/product.so")
equal = np.allclose(product(few=x[:3]), x[:3] @ step.read("w"), atol=1e-5)
step(x=x, lr=0.01)
equal &= np.allclose(product(few=x[:3]), x[:3] @ step.read("w"), atol=1e-5)
print(f"product {equal}, products {product.products}")
print(product)

# It holds the step that it is of.

# CHECK: alone True
want = x[:3] @ step.read("w")
state = step.native_state()
del step
gc.collect()
print("alone", np.allclose(product(few=x[:3]), want, atol=1e-5))

# Elsewhere its library needs the arrays alone.

# CHECK: inference True
np.savez(f"{sys.argv[1]}/arrays.npz", **state)
alone = sparse_opt.Step(f"{sys.argv[1]}/product.so")
alone.load_native_state(np.load(f"{sys.argv[1]}/arrays.npz"))
print("inference", np.array_equal(alone(few=x[:3]), product(few=x[:3])))

# What does not fit is one sentence.

step = sparse_opt.compile(TEXT, marks, options=OPTIONS, pattern="random")
# CHECK: expected 'v', which step 'product' takes, to be of the state of step 'step', but it is not
refuse(lambda: step.bind(function(name="v")))
# CHECK: expected 'w' of 8x4x4 f32, as the source has it, but got 'w' of 8x4x4 f64
refuse(lambda: step.bind(function(type="f64")))
# CHECK: expected the pattern of 'w', 16x16 in blocks of 4x4 with 8 slots, as the source has it, but got that of 'w', 16x8 in blocks of 4x4 with 4 slots
refuse(lambda: step.bind(function(columns=8)))
# CHECK: expected what sparse_opt.torch.export or sparse_opt.jax.export returned, but got a int
refuse(lambda: step.bind(3))
# CHECK: expected a step that sparse_opt.compile made, to evaluate, but got one of a library: compile the export again
refuse(lambda: alone.evaluate(few=x[:3]))
# CHECK: expected an array for 'x', but got none
refuse(lambda: step.evaluate())
# CHECK: expected 'x' of shape [16, 16], but got [3, 16]: a compiled step has one shape, export the step again for another
refuse(lambda: step.evaluate(x=x[:3]))
# CHECK: expected an argument of the batch, but got 'w', which is of the step's state: write() of the step changes it
refuse(lambda: step.evaluate(x=x, w=w))
# CHECK: expected the name of an argument, but got 'z'; the program has w, x
refuse(lambda: step.evaluate(x=x, z=w))
# CHECK: expected something that can be copied or pickled, but got a compiled program: bind it to another step
refuse(lambda: pickle.dumps(product))
