# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense products of 16-bit numbers on tensor cores, in the PTX interpreter, against float64.

    gpu_dense.py <chip>

A case is an einsum: batches, either operand either way round, sums over several dimensions, lengths
that no tile divides, rows that begin at multiples of 4 or 8 bytes only, and sums taken in parts.
"""

import os
import sys

import numpy as np
import step
from gpu_products import check, load, round_to, store

os.environ["BSR_COMPILE"] = f"--target=gpu --chip={sys.argv[1]}"

# Type, operands and result by their dimensions, extents, launches.
CASES = [
    ("bf16", "bhdq,bhdk->bhqk", dict(b=2, h=3, d=64, q=40, k=136), 1),
    ("bf16", "bhqk,bhdk->bhdq", dict(b=2, h=2, d=72, q=24, k=56), 1),
    ("f16", "bhqk,bhdk->bhqd", dict(b=1, h=2, d=16, q=200, k=32), 1),
    ("f16", "btf,fo->bto", dict(b=2, t=20, f=96, o=200), 1),
    ("bf16", "btf,of->bto", dict(b=3, t=11, f=40, o=66), 1),
    ("bf16", "btf,fo->bto", dict(b=8, t=20, f=40, o=264), 1),
    # A vocabulary that is even, and not a multiple of 4.
    ("bf16", "bto,btf->of", dict(b=2, t=20, f=136, o=150), 1),
    ("bf16", "bto,of->btf", dict(b=2, t=20, f=64, o=150), 1),
    ("f16", "bto,btf->of", dict(b=1, t=8, f=40, o=68), 1),
    # Few sums of many terms.
    ("bf16", "bto,of->btf", dict(b=2, t=20, f=72, o=1100), 2),
    ("bf16", "tm,tn->mn", dict(t=2000, m=16, n=24), 2),
]


def text(kind, equation, extents):
    left, right, result = (list(part) for part in equation.replace("->", ",").split(","))
    loops = result + sorted((set(left) | set(right)) - set(result))
    dims = ", ".join(loops)
    maps = ", ".join(f"affine_map<({dims}) -> ({', '.join(part)})>" for part in (left, right, result))
    kinds = ", ".join('"parallel"' if loop in result else '"reduction"' for loop in loops)
    types = ["tensor<" + "".join(f"{extents[d]}x" for d in part) + f"{t}>"
             for part, t in ((left, kind), (right, kind), (result, "f32"))]
    return f"""
func.func @step(%a: {types[0]} {{bsr.name = "a", bsr.role = "batch"}}, %b: {types[1]} {{bsr.name = "b", bsr.role = "batch"}})
    -> ({types[2]} {{bsr.name = "c"}}) {{
  %zero = arith.constant dense<0.0> : {types[2]}
  %c = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins(%a, %b : {types[0]}, {types[1]}) outs(%zero : {types[2]}) {{
  ^bb0(%x: {kind}, %y: {kind}, %sum: f32):
    %0 = arith.extf %x : {kind} to f32
    %1 = arith.extf %y : {kind} to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  }} -> {types[2]}
  return %c : {types[2]}
}}"""


for kind, equation, extents, launches in CASES:
    random = np.random.default_rng(0)
    compiled = step.compile(text(kind, equation, extents))
    assert "mma.sync" in compiled.host.ptx, equation
    found = sum("gpu.launch_func" in line for line in compiled.host.body)
    assert found == launches, f"{equation}: expected {launches} launches, but got {found}"
    left, right, result = equation.replace("->", ",").split(",")
    a, b = (round_to(kind, random.standard_normal([extents[d] for d in part])) for part in (left, right))
    got = compiled.run({"a": store(kind, a), "b": store(kind, b)})["c"]
    terms = int(np.prod([extents[d] for d in set(left) - set(result)]))
    check(equation, load("f32", got), np.einsum(equation, a, b), np.einsum(equation, abs(a), abs(b)), terms, "f32")
    print(kind, equation, extents, "ok", flush=True)
