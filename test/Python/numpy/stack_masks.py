# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A program that multiplies a stack of weights by masks, one for each layer, runs
# sparse, and computes what it does as it is written.

# RUN: %numpy_python %s %src_root/test/Integration/Inputs/stack.mlir | FileCheck %s

import pathlib
import sys

import numpy as np

import sparse_opt
from refusals import refuse

# The step of stack.mlir with masks: in the loop over layers where the weights are
# read, and on the stack of gradients. Those of the loop backward lie transposed.
TEXT = pathlib.Path(sys.argv[1]).read_text()


def replace(old, new):
    global TEXT
    assert TEXT.count(old) == 1, old
    TEXT = TEXT.replace(old, new)


replace(
    "                %x: !x {bsr.name",
    """                %mask: !w {bsr.name = "mask", bsr.result = 2 : i64},
                %turned: !b {bsr.name = "turned", bsr.role = "batch"},
                %x: !x {bsr.name""",
)
replace("-> (!w, !w, tensor<f32> {", "-> (!w, !w, !w, tensor<f32> {")
replace("func.func", "!b = tensor<3x16x16xi1>\nfunc.func")
replace(
    "    %wi = tensor.collapse_shape %slice",
    """    %part = tensor.extract_slice %mask[%i, 0, 0] [1, 16, 16] [1, 1, 1] : !w to tensor<1x16x16xf32>
    %kept = tensor.collapse_shape %part [[0, 1], [2]] : tensor<1x16x16xf32> into !m
    %raw = tensor.collapse_shape %slice""",
)
replace(
    "    %a = linalg.matmul",
    """    %wi = linalg.mul ins(%raw, %kept : !m, !m) outs(%em : !m) -> !m
    %a = linalg.matmul""",
)
replace(
    "    %wi = tensor.extract_slice %w[%l, 0, 0] [1, 16, 16] [1, 1, 1] : !w to !m",
    """    %raw = tensor.extract_slice %w[%l, 0, 0] [1, 16, 16] [1, 1, 1] : !w to !m
    %kept = tensor.extract_slice %turned[%l, 0, 0] [1, 16, 16] [1, 1, 1] : !b to tensor<16x16xi1>
    %wi = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                          iterator_types = ["parallel", "parallel"]}
        ins(%raw, %kept : !m, tensor<16x16xi1>) outs(%em : !m) {
    ^bb0(%a: f32, %k: i1, %o: f32):
      %r = arith.select %k, %a, %zero : f32
      linalg.yield %r : f32
    } -> !m""",
)
replace(
    "  %squares = ",
    "  %gm = linalg.mul ins(%g#2, %mask : !w, !w) outs(%ew : !w) -> !w\n  %squares = ",
)
replace("ins(%g#2 : !w) outs(%none", "ins(%gm : !w) outs(%none")
replace("ins(%m, %g#2, %squares", "ins(%m, %gm, %squares")
replace("return %w_next, %m_next, %loss : !w, !w,", "return %w_next, %m_next, %mask, %loss : !w, !w, !w,")

rng = np.random.default_rng(0)
w = rng.normal(size=(3, 16, 16)).astype(np.float32) * 0.3
batch = {n: rng.normal(size=(4, 16)).astype(np.float32) for n in ("x", "t")}
batch["lr"] = np.float32(0.1)
MARKS = ["match=^w$ dims=stack,row,col block=4x4 density=0.5 mask=^(mask|turned)$"]
dense = sparse_opt.compile(TEXT, options=["-O", "1"])
step = sparse_opt.compile(TEXT, MARKS, seed=1, options=["-O", "1"])

# CHECK: products {'spmm': 3, 'spmm_transposed': 2, 'sddmm': 3, 'dense': 0, 'left_dense': 0}
# CHECK: arguments lr, m.0, m.1, m.2, t, w.0, w.1, w.2, x
print("products", step.products)
print("arguments", ", ".join(sorted(step.arrays)))

# The mask of each layer is its pattern, after an update too.

# CHECK: masks (3, 16, 16) float32 and bool, turned True, layers differ True
step.write("w", w)
mask, turned = step.read("mask"), step.read("turned")
lies = np.array_equal(turned.swapaxes(1, 2), mask != 0)
print(f"masks {mask.shape} {mask.dtype} and {turned.dtype}, turned {lies},", end=" ")
print("layers differ", not np.array_equal(mask[0], mask[1]))

# CHECK: loss apart False, weights apart False, moments apart False
dense.write("mask", mask)
dense.write("w", step.read("w"))
first, apart = turned, {"loss": 0.0, "w": 0.0, "m": 0.0}
for i in range(5):
    got = float(step(turned=first, **batch))
    want = float(dense(turned=turned, **batch))
    apart["loss"] = max(apart["loss"], abs(got - want) / want)
    if i == 2:
        step.update_patterns(0.5)
        mask, turned = step.read("mask"), step.read("turned")
        stayed = mask * dense.read("mask")
        dense.write("mask", mask)
        for name in ("w", "m"):
            dense.write(name, dense.read(name) * stayed)
for name in ("w", "m"):
    apart[name] = np.abs(step.read(name) - dense.read(name) * mask).max()
print(
    f"loss apart {apart['loss'] > 1e-5}, weights apart {apart['w'] > 1e-5},"
    f" moments apart {apart['m'] > 1e-5}"
)
# CHECK: expected mask 'turned' as the first call had it, but got another: update_patterns() updates patterns, write() takes a mask
refuse(lambda: step(turned=~first, **batch))

# A mask that is written becomes the patterns, each layer's its own.

# CHECK: taken True, weight True, blocks 1 2 3
mask = np.zeros((3, 16, 16), np.float32)
for i in range(3):
    mask[i, : 4 * (i + 1), 4 * i : 4 * (i + 1)] = 1
step.write("mask", mask)
step.write("w", w)
taken = np.array_equal(step.read("mask"), mask)
weight = np.array_equal(step.read("w"), w * mask)
counts = [len(step.blocks(f"w.{i}").col_idx) for i in range(3)]
print(f"taken {taken}, weight {weight}, blocks", *counts)

# CHECK: expected mask 'mask.1' to keep or drop whole blocks of 4x4, but got block (2, 2) kept in part
mask[1, 9, 9] = 1
refuse(lambda: step.write("mask", mask))
# CHECK: expected 'mask' of shape [3, 16, 16], but got [16, 16]
refuse(lambda: step.write("mask", mask[0]))
# CHECK: expected 'turned' of type bool, but got float32
refuse(lambda: step(turned=mask, **batch))
