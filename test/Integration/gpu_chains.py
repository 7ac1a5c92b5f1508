# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chains of reductions and element-wise operations in one launch, in the PTX interpreter, against float64.

    gpu_chains.py

Normalization with its sums over all tokens, softmax and its gradient: tokens last and first, rows that
threads divide and not, rows that registers do not hold, tokens that no thread block divides, one
item and one row, and all types.
"""

import os

import numpy as np
import references
import step
from gpu_epilogues import LARGE, NEGATE, SUM, affine, generic
from gpu_products import ROUNDOFF, check, load, round_to, store

os.environ["BSR_COMPILE"] = "--target=gpu"

# Type, extents, the dimension of the rows, launches. With tokens last, a launch takes all sums, and a
# second one adds the parts of those over all tokens; else these are read again.
CASES = [
    ("f32", (2, 96, 40), 1, 3),
    ("bf16", (3, 24, 70), 1, 3),
    ("f16", (64, 264), 0, 3),
    ("f32", (100, 36), 0, 3),
    # More rows than registers hold: by all threads alike, and not.
    ("f32", (2, 4096, 12), 1, 3),
    ("bf16", (3, 5, 128), 2, 5),
    ("f32", (7, 1000), 1, 5),
    ("f32", (2, 20011), 1, 5),
    ("f32", (33, 40), 1, 5),
]


def text(kind, extents, dim):
    dims = [f"d{i}" for i in range(len(extents))]
    rest = dims[:dim] + dims[dim + 1:]
    tensor = lambda used, type: "tensor<" + "".join(f"{extents[dims.index(d)]}x" for d in used) + f"{type}>"
    x, wide, t, f = tensor(dims, kind), tensor(dims, "f32"), tensor(rest, "f32"), tensor([dims[dim]], "f32")
    all, token, row = affine(dims, dims), affine(dims, rest), affine(dims, [dims[dim]])
    parallel, tokens = (", ".join(['"parallel"'] * len(d)) for d in (dims, rest))
    rows = ", ".join('"reduction"' if d == dims[dim] else '"parallel"' for d in dims)
    items = ", ".join('"parallel"' if d == dims[dim] else '"reduction"' for d in dims)
    one = affine(rest, rest)
    count = extents[dim]
    mean = f"    %count = arith.constant {1 / count} : f32\n    %out = arith.mulf %i0, %count : f32\n"
    square = "    %s0 = arith.mulf %i0, %i0 : f32\n    %out = arith.addf %o, %s0 : f32\n"
    scale = f"""    %count = arith.constant {1 / count} : f32
    %least = arith.constant 1.0e-3 : f32
    %s0 = arith.mulf %i0, %count : f32
    %s1 = arith.addf %s0, %least : f32
    %out = math.rsqrt %s1 : f32
"""
    times = "    %out = arith.mulf %i0, %i1 : f32\n"
    body = f"""
  %zt = arith.constant dense<0.0> : {t}
  %zf = arith.constant dense<0.0> : {f}
  %low = arith.constant dense<0xFF800000> : {t}
"""
    body += generic(("%sum", t), [("%x", x)], [all, token], rows, SUM, "%zt")
    body += generic(("%mean", t), [("%sum", t)], [one, one], tokens, mean)
    body += generic(("%c", wide), [("%x", x), ("%mean", t)], [all, token, all], parallel, "    %out = arith.subf %i0, %i1 : f32\n")
    body += generic(("%sq", t), [("%c", wide)], [all, token], rows, square, "%zt")
    body += generic(("%r", t), [("%sq", t)], [one, one], tokens, scale)
    body += generic(("%nw", wide), [("%c", wide), ("%r", t)], [all, token, all], parallel, times)
    body += generic(("%y", x), [("%nw", wide), ("%g", f)], [all, row, all], parallel, times)
    body += generic(("%nd", wide), [("%nw", wide), ("%d", x)], [all, all, all], parallel, times)
    body += generic(("%dg", f), [("%nd", wide)], [all, row], items, SUM, "%zf")
    # Softmax and its gradient.
    body += generic(("%m", t), [("%x", x)], [all, token], rows, "    %out = arith.maximumf %o, %i0 : f32\n", "%low")
    body += generic(("%e", wide), [("%x", x), ("%m", t)], [all, token, all], parallel,
                    "    %s0 = arith.subf %i0, %i1 : f32\n    %out = math.exp %s0 : f32\n")
    body += generic(("%es", t), [("%e", wide)], [all, token], rows, SUM, "%zt")
    body += generic(("%p", x), [("%e", wide), ("%es", t)], [all, token, all], parallel, "    %out = arith.divf %i0, %i1 : f32\n")
    body += generic(("%pw", wide), [("%p", x), ("%d", x)], [all, all, all], parallel, times)
    body += generic(("%pd", t), [("%pw", wide)], [all, token], rows, SUM, "%zt")
    body += generic(("%q", x), [("%p", x), ("%d", x), ("%pd", t)], [all, all, token, all], parallel,
                    "    %s0 = arith.subf %i1, %i2 : f32\n    %out = arith.mulf %s0, %i0 : f32\n")
    body += generic(("%n", LARGE), [("%l", LARGE)], [affine("de", "de")] * 2, '"parallel", "parallel"', NEGATE)
    names = {"%mean": t, "%y": x, "%dg": f, "%p": x, "%q": x, "%n": LARGE}
    return f"""
func.func @step(%x: {x} {{bsr.name = "x", bsr.role = "batch"}}, %d: {x} {{bsr.name = "d", bsr.role = "batch"}},
    %g: {f} {{bsr.name = "g", bsr.role = "batch"}}, %l: {LARGE} {{bsr.name = "l", bsr.role = "batch"}})
    -> ({", ".join(f'{t} {{bsr.name = "{n[1:]}"}}' for n, t in names.items())}) {{{body}  return {", ".join(names)} : {", ".join(names.values())}
}}"""


def run(kind, extents, dim, launches, random):
    compiled = step.compile(text(kind, extents, dim))
    x, d = (round_to(kind, random.standard_normal(extents)) for _ in range(2))
    g = round_to("f32", random.standard_normal(extents[dim]))
    arrays = {"x": store(kind, x), "d": store(kind, d), "g": store("f32", g), "l": np.zeros((256, 512), np.float32)}
    got, again = compiled.run(arrays), compiled.run(arrays)
    assert all(got[name].tobytes() == again[name].tobytes() for name in got), (kind, extents)
    count, along = extents[dim], tuple(i for i in range(len(extents)) if i != dim)
    total = lambda array: array.sum(dim, keepdims=True)
    mean = total(x) / count
    r = 1 / np.sqrt(total((x - mean) ** 2) / count + 1e-3)
    n = (x - mean) * r
    shape = [count if i == dim else 1 for i in range(len(extents))]
    # Errors of sums of few terms a thread, and of what is computed of them.
    terms = 64
    size = np.abs(n) + (np.abs(x) + total(np.abs(x)) / count) * r
    check("mean", load("f32", got["mean"]), np.squeeze(mean, dim), np.squeeze(total(np.abs(x)) / count, dim), terms, "f32")
    check("y", load(kind, got["y"]), n * g.reshape(shape), size * np.abs(g.reshape(shape)), terms, kind)
    check("dg", load("f32", got["dg"]), (n * d).sum(along), (size * np.abs(d)).sum(along), terms, "f32")
    p, _, _ = references.softmax(x, dim)
    check("p", load(kind, got["p"]), p, p * 4, terms, kind)
    p = load(kind, got["p"])
    size = p * (np.abs(d) + total(p * np.abs(d)))
    check("q", load(kind, got["q"]), references.softmax_gradient(p, d, dim), size, terms, kind)
    found = len(compiled.launches)
    assert found == launches, f"expected {launches} launches, but got {found}"
    print(kind, extents, dim, "ok", flush=True)


if __name__ == "__main__":
    random = np.random.default_rng(0)
    for case in CASES:
        run(*case, random)
