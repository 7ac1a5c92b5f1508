# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of rows by index on a GPU, against numpy in f64: many updates of a row and none, indices
outside, features and tokens that fill no thread block, and NaN where it belongs."""

import os

import numpy as np
import step

os.environ["BSR_COMPILE"] = "--target=gpu"
random = np.random.default_rng(0)


def check(rows, features, tokens, index, type="f32"):
    """`tokens` are the extents of all dimensions but that of features, which is the last one."""
    count = int(np.prod(tokens))
    table, flat = f"tensor<{rows}x{features}x{type}>", f"tensor<{count}x{features}x{type}>"
    ids, row = f"tensor<{count}x{index}>", f"tensor<{features}x{type}>"
    text = f"""
func.func @step(%ids: {ids} {{bsr.name = "ids"}}, %u: {flat} {{bsr.name = "u"}}) -> ({table} {{bsr.name = "sums"}}) {{
  %zeros = arith.constant dense<0.0> : {table}
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant {count} : index
  %sums = scf.for %i = %c0 to %n step %c1 iter_args(%rows = %zeros) -> {table} {{
    %id = tensor.extract %ids[%i] : {ids}
    %at = arith.index_cast %id : {index} to index
    %new = tensor.extract_slice %u[%i, 0] [1, {features}] [1, 1] : {flat} to {row}
    %old = tensor.extract_slice %rows[%at, 0] [1, {features}] [1, 1] : {table} to {row}
    %sum = linalg.add ins(%old, %new : {row}, {row}) outs(%old : {row}) -> {row}
    %next = tensor.insert_slice %sum into %rows[%at, 0] [1, {features}] [1, 1] : {row} into {table}
    scf.yield %next : {table}
  }}
  return %sums : {table}
}}"""
    compiled = step.compile(text)
    assert compiled.ptx.count(".entry") == 2, "expected a launch that links tokens and one with a thread block for each row"
    at = (random.integers(0, rows, count) // random.integers(1, 5, count)).astype(step.TYPES[index])
    updates = random.standard_normal((count, features)).astype(step.TYPES[type])
    if count > 40:
        at[37], updates[37, 0] = at[5], np.nan
    want = np.zeros((rows, features))
    np.add.at(want, at, updates.astype(np.float64))
    got = compiled.run({"ids": at, "u": updates})["sums"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 if type == "f32" else 1e-12)


check(16, 24, [60], "i32")
check(40, 130, [300], "i64")
check(3, 128, [129], "i32", "f64")
check(2, 1, [40], "i32")
check(70, 5, [128], "i32")
print("5 sums of rows")
