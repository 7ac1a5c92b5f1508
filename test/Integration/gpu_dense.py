# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense products, of 16-bit numbers on tensor cores, of f32 on arithmetic units, in the PTX interpreter, against float64.

    gpu_dense.py <chip> [<rows>x<columns>[/tf32] [<case>...]]

A case is an einsum: batches, either operand either way round, sums over several dimensions, lengths
that no tile divides, rows that begin at multiples of 4 or 8 bytes only, and sums taken in parts.
The tile of products of f32 is 64x64, or the given one; the cases are all, or those of
the given numbers. With tf32, those of f32 with an even number of columns are on tensor cores.
"""

import os
import re
import sys

import numpy as np
import step
from gpu_products import check, is_tf32, load, round_to, round_to_tf32, store

chip, tile, *numbers = [*sys.argv[1:], "64x64"] if len(sys.argv) == 2 else sys.argv[1:]
os.environ["BSR_COMPILE"] = f"--target=gpu --chip={chip} --tile={tile.replace('/', ' --')}"

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
    ("f32", "bhdq,bhdk->bhqk", dict(b=2, h=3, d=64, q=40, k=136), 1),
    ("f32", "bhqk,bhdk->bhdq", dict(b=2, h=2, d=72, q=24, k=56), 1),
    ("f32", "bhqk,bhdk->bhqd", dict(b=1, h=2, d=16, q=200, k=32), 1),
    ("f32", "btf,of->bto", dict(b=2, t=30, f=96, o=264), 1),
    # Results in pairs and alone, rows that begin anywhere.
    ("f32", "btf,fo->bto", dict(b=3, t=50, f=39, o=66), 1),
    ("f32", "btf,of->bto", dict(b=3, t=61, f=37, o=65), 1),
    ("f32", "bto,btf->of", dict(b=4, t=33, f=138, o=151), 1),
    # Batches that are between.
    ("f32", "boq,bkq->obk", dict(b=3, o=20, q=64, k=140), 1),
    ("f32", "bto,of->btf", dict(b=2, t=20, f=72, o=1100), 2),
    ("f32", "tm,tn->mn", dict(t=2000, m=35, n=31), 2),
    # A weight for all batches, in whose result tokens are last.
    ("bf16", "oi,bit->bot", dict(b=3, o=72, i=40, t=24), 1),
    ("bf16", "oi,bot->bit", dict(b=2, o=136, i=72, t=40), 1),
    ("f32", "oi,bit->bot", dict(b=3, o=70, i=37, t=36), 1),
]


def text(kind, equation, extents):
    left, right, result = (list(part) for part in equation.replace("->", ",").split(","))
    loops = result + sorted((set(left) | set(right)) - set(result))
    dims = ", ".join(loops)
    maps = ", ".join(f"affine_map<({dims}) -> ({', '.join(part)})>" for part in (left, right, result))
    kinds = ", ".join('"parallel"' if loop in result else '"reduction"' for loop in loops)
    types = ["tensor<" + "".join(f"{extents[d]}x" for d in part) + f"{t}>"
             for part, t in ((left, kind), (right, kind), (result, "f32"))]
    widened = [f"    %{i} = arith.extf {x} : {kind} to f32\n" for i, x in enumerate(["%x", "%y"])] if kind != "f32" else []
    x, y = ("%0", "%1") if widened else ("%x", "%y")
    return f"""
func.func @step(%a: {types[0]} {{bsr.name = "a", bsr.role = "batch"}}, %b: {types[1]} {{bsr.name = "b", bsr.role = "batch"}})
    -> ({types[2]} {{bsr.name = "c"}}) {{
  %zero = arith.constant dense<0.0> : {types[2]}
  %c = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins(%a, %b : {types[0]}, {types[1]}) outs(%zero : {types[2]}) {{
  ^bb0(%x: {kind}, %y: {kind}, %sum: f32):
{"".join(widened)}    %2 = arith.mulf {x}, {y} : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  }} -> {types[2]}
  return %c : {types[2]}
}}"""


for number, (kind, equation, extents, launches) in enumerate(CASES):
    if numbers and str(number) not in numbers:
        continue
    random = np.random.default_rng(0)
    compiled = step.compile(text(kind, equation, extents))
    isRounded = is_tf32(kind) and extents[equation[-1]] % 2 == 0
    sign = "cp.async" if kind == "f32" and not isRounded else "mma.sync"
    assert sign in compiled.ptx, f"{equation}: expected {sign}"
    found = len(compiled.launches)
    assert found == launches, f"{equation}: expected {launches} launches, but got {found}"
    left, right, result = equation.replace("->", ",").split(",")
    a, b = (round_to(kind, random.standard_normal([extents[d] for d in part])) for part in (left, right))
    got = compiled.run({"a": store(kind, a), "b": store(kind, b)})["c"]
    if isRounded:
        a, b = round_to_tf32(a), round_to_tf32(b)
    terms = int(np.prod([extents[d] for d in set(left) - set(result)]))
    check(equation, load("f32", got), np.einsum(equation, a, b), np.einsum(equation, abs(a), abs(b)), terms, "f32")
    print(number, kind, equation, extents, "ok", flush=True)


PIECES = """
#left = affine_map<(b, h, q, d, k) -> (b, h, q, k)>
#right = affine_map<(b, h, q, d, k) -> (b, h, d, k)>
#out = affine_map<(b, h, q, d, k) -> (b, h, d, q)>
func.func @step(%a: tensor<2x3x40x24xf32> {bsr.name = "a", bsr.role = "batch"}, %b: tensor<2x96x24xf32> {bsr.name = "b", bsr.role = "batch"})
    -> (tensor<2x96x40xf32> {bsr.name = "c"}) {
  %zero = arith.constant dense<0.0> : tensor<2x3x16x40xf32>
""" + "".join(f"""
  %part{i} = tensor.extract_slice %b[0, {first}, 0] [2, 48, 24] [1, 1, 1] : tensor<2x96x24xf32> to tensor<2x48x24xf32>
  %cut{i} = tensor.expand_shape %part{i} [[0], [1, 2], [3]] output_shape [2, 3, 16, 24] : tensor<2x48x24xf32> into tensor<2x3x16x24xf32>
  %c{i} = linalg.generic {{indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}}
      ins(%a, %cut{i} : tensor<2x3x40x24xf32>, tensor<2x3x16x24xf32>) outs(%zero : tensor<2x3x16x40xf32>) {{
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  }} -> tensor<2x3x16x40xf32>
  %flat{i} = tensor.collapse_shape %c{i} [[0], [1, 2], [3]] : tensor<2x3x16x40xf32> into tensor<2x48x40xf32>""" for i, first in enumerate([48, 0])) + """
  %c = tensor.concat dim(1) %flat0, %flat1 : (tensor<2x48x40xf32>, tensor<2x48x40xf32>) -> tensor<2x96x40xf32>
  return %c : tensor<2x96x40xf32>
}"""

if not numbers:
    # Operands are parts of a buffer, and so are results: heads of attention.
    compiled = step.compile(PIECES)
    assert compiled.ptx.count(".entry") == 2 == len(re.findall("entry(?:(?!entry).)*?cp.async", compiled.ptx, re.S)), "pieces"
    random = np.random.default_rng(0)
    a, b = (round_to("f32", random.standard_normal(shape)) for shape in ((2, 3, 40, 24), (2, 96, 24)))
    got = compiled.run({"a": store("f32", a), "b": store("f32", b)})["c"]
    if is_tf32("f32"):
        a, b = round_to_tf32(a), round_to_tf32(b)

    def multiply(a, b):
        parts = (b[:, 48:].reshape(2, 3, 16, 24), b[:, :48].reshape(2, 3, 16, 24))
        return np.concatenate([np.einsum("bhqk,bhdk->bhdq", a, part).reshape(2, 48, 40) for part in parts], 1)
    check("pieces", load("f32", got), multiply(a, b), multiply(abs(a), abs(b)), 24, "f32")
    print("pieces ok", flush=True)
