# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose sums go through an epilogue on tensor cores, in the PTX interpreter, against float64.

    gpu_epilogues.py <chip> [<outputs>x<tokens>[/<blocks>x<blocks>]]

With tiles of dense products, these are of f32, on arithmetic units.
Behind a product with a sparse weight there are a bias, an activation, a residual and a mask of the
tokens, and the gradient of the bias; behind its transpose, which is not kept, a factor and a
residual; behind einsums a factor, a mask and a cast. Patterns and bounds are those of
gpu_products.py, and, of groups that are cut, those of gpu_long_groups.py; what is element by element is compared with what the step has of the product.
"""

import os
import sys

import gpu_long_groups
import numpy as np
import step
from gpu_products import ROUNDOFF, check, load, masks, round_to, store

# Type, type of results, block, grid of blocks, tokens with batches.
SPARSE = [
    ("bf16", "bf16", (16, 16), (20, 35), (200,)),
    ("bf16", "f32", (16, 16), (5, 3), (2, 3, 8)),
    ("f16", "f16", (16, 16), (9, 17), (136,)),
    ("bf16", "bf16", (32, 32), (9, 10), (2, 136)),
    ("bf16", "bf16", (64, 64), (5, 6), (264,)),
    ("f16", "f32", (32, 16), (6, 9), (3, 64)),
]
# The same, with slots for one in how many blocks: long groups are cut.
LONG = [
    ("bf16", "bf16", (16, 16), (40, 44), (72,), 5),
    ("f16", "f32", (32, 32), (24, 20), (2, 40), 5),
    ("bf16", "bf16", (64, 64), (20, 18), (136,), 5),
]
# Type, operands and result by their dimensions, extents, the dimension that sums keep, launches.
DENSE = [
    ("bf16", "bhdq,bhdk->bhqk", dict(b=2, h=3, d=64, q=40, k=136), None, 1),
    ("f16", "bhqk,bhdk->bhqd", dict(b=1, h=2, d=16, q=200, k=32), None, 1),
    ("bf16", "btf,fo->bto", dict(b=2, t=20, f=96, o=200), None, 1),
    ("bf16", "bof,bft->bot", dict(b=3, t=24, f=40, o=72), "o", 2),
    # The batches are between, which a warp has in other parts.
    ("bf16", "boq,bkq->obk", dict(b=3, o=20, q=64, k=140), "o", 2),
    # Few sums of many terms.
    ("bf16", "bto,of->btf", dict(b=2, t=20, f=72, o=1100), None, 2),
    # Not in fours: a product, and loops behind it.
    ("bf16", "btf,of->bto", dict(b=3, t=11, f=40, o=66), None, 2),
]
# On arithmetic units, where the tile is given.
LANES = [
    ("f32", "bhdq,bhdk->bhqk", dict(b=2, h=3, d=64, q=40, k=136), None, 1),
    ("f32", "bof,bft->bot", dict(b=3, t=84, f=40, o=72), "o", 2),
    ("f32", "boq,bkq->obk", dict(b=3, o=20, q=64, k=140), "o", 2),
    ("f32", "bto,of->btf", dict(b=2, t=20, f=72, o=1100), None, 2),
    ("f32", "btf,of->bto", dict(b=3, t=11, f=40, o=66), None, 2),
]
DENSE_TILES = "64x64", "128x256"


# What needs most memory is at the end: nothing joins a kernel across that.
LARGE = "tensor<256x512xf32>"


def generic(result, inputs, maps, kinds, body, init=None):
    """An operation of f32: `inputs` are values with types, `body` is on %i0, %i1, ... in f32."""
    names = ", ".join(name for name, _ in inputs)
    types = ", ".join(type for _, type in inputs)
    element = lambda type: type.removesuffix(">").split("x")[-1].split("<")[-1]
    arguments = ", ".join(f"%a{i}: {element(type)}" for i, (_, type) in enumerate(inputs))
    widen = "".join(f"    %i{i} = arith.extf %a{i} : {element(type)} to f32\n" if element(type) != "f32"
                    else f"    %i{i} = arith.addf %a{i}, %none : f32\n" for i, (_, type) in enumerate(inputs))
    out = element(result[1])
    narrow = f"    %narrow = arith.truncf %out : f32 to {out}\n" if out != "f32" else ""
    value = "%narrow" if narrow else "%out"
    start = init or f"{result[0]}_e"
    empty = "" if init else f"  {start} = tensor.empty() : {result[1]}\n"
    return f"""{empty}  {result[0]} = linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = [{kinds}]}}
      ins({names} : {types}) outs({start} : {result[1]}) {{
  ^bb0({arguments}, %o: {out}):
    %none = arith.constant -0.0 : f32
{widen}{body}{narrow}    linalg.yield {value} : {out}
  }} -> {result[1]}
"""


def affine(dims, used):
    return f"affine_map<({', '.join(dims)}) -> ({', '.join(used)})>"


SILU = """    %s0 = arith.addf %i0, %i1 : f32
    %s1 = arith.negf %s0 : f32
    %s2 = math.exp %s1 : f32
    %one = arith.constant 1.0 : f32
    %s3 = arith.addf %s2, %one : f32
    %s4 = arith.divf %s0, %s3 : f32
    %s5 = arith.addf %s4, %i2 : f32
    %out = arith.mulf %s5, %i3 : f32
"""
SCALE = """    %factor = arith.constant 0.5 : f32
    %s0 = arith.mulf %i0, %factor : f32
    %out = arith.addf %s0, %i1 : f32
"""
NEGATE = "    %out = arith.negf %i0 : f32\n"
SUM = "    %out = arith.addf %o, %i0 : f32\n"


def sparse_text(kind, out, block, grid, tokens, slots):
    rows, cols = (g * b for g, b in zip(grid, block))
    lead = "".join(f"{extent}x" for extent in tokens[:-1])
    dim = len(tokens) - 1
    p = f"!bsr.pattern<{rows}x{cols}, block = {block[0]}x{block[1]}, slots = {slots}>"
    v = f"tensor<{slots}x{block[0]}x{block[1]}x{kind}>"
    x, dx = (f"tensor<{lead}{rows}x{tokens[-1]}x{t}>" for t in (kind, out))
    g, y, wide = (f"tensor<{lead}{cols}x{tokens[-1]}x{t}>" for t in (kind, out, "f32"))
    b, m = f"tensor<{cols}xf32>", f"tensor<{lead}{tokens[-1]}xf32>"
    dims = [f"d{i}" for i in range(dim + 2)]
    all, feature, token = affine(dims, dims), affine(dims, [dims[dim]]), affine(dims, dims[:dim] + dims[-1:])
    parallel = ", ".join(['"parallel"'] * len(dims))
    summed = ", ".join('"parallel"' if d == dim else '"reduction"' for d in range(len(dims)))
    return f"""
func.func @step(%p: {p} {{bsr.name = "w", bsr.role = "pattern"}}, %w: {v} {{bsr.name = "w", bsr.pattern = 0 : i64}},
    %x: {x} {{bsr.name = "x", bsr.role = "batch"}}, %g: {g} {{bsr.name = "g", bsr.role = "batch"}},
    %b: {b} {{bsr.name = "b", bsr.role = "batch"}}, %r: {g} {{bsr.name = "r", bsr.role = "batch"}},
    %m: {m} {{bsr.name = "m", bsr.role = "batch"}}, %q: {x} {{bsr.name = "q", bsr.role = "batch"}},
    %l: {LARGE} {{bsr.name = "l", bsr.role = "batch"}})
    -> ({y} {{bsr.name = "y"}}, {y} {{bsr.name = "h"}}, {b} {{bsr.name = "db"}}, {x} {{bsr.name = "dx"}},
        {LARGE} {{bsr.name = "n"}}) {{
  %y = bsr.spmm %p, %w, %x feature_dim = {dim} : {p}, {v}, {x} -> {y}
""" + generic(("%a", wide), [("%y", y), ("%b", b), ("%r", g), ("%m", m)], [all, feature, all, token, all], parallel, SILU) \
        + generic(("%h", y), [("%a", wide)], [all, all], parallel, NEGATE) \
        + f"  %zero = arith.constant dense<0.0> : {b}\n" \
        + generic(("%db", b), [("%a", wide)], [all, feature], summed, SUM, "%zero") \
        + f"  %dy = bsr.spmm %p, %w, %g transpose feature_dim = {dim} : {p}, {v}, {g} -> {dx}\n" \
        + generic(("%dx", x), [("%dy", dx), ("%q", x)], [all, all, all], parallel, SCALE) \
        + generic(("%n", LARGE), [("%l", LARGE)], [affine("de", "de")] * 2, '"parallel", "parallel"', NEGATE) \
        + f"  return %y, %h, %db, %dx, %n : {y}, {y}, {b}, {x}, {LARGE}\n}}"


def count_launches(compiled, products, launches, signs=("mma.sync", "mma_async")):
    found = sum(any(sign in part for sign in signs) for part in compiled.ptx.split(".entry"))
    assert found == products, f"expected {products} kernels with {signs}, but got {found}"
    found = len(compiled.launches)
    assert found == launches, f"expected {launches} launches, but got {found}"


def run_sparse(kind, out, block, grid, tokens, inverse, random):
    slots = grid[0] * grid[1] // inverse
    compiled = step.compile(sparse_text(kind, out, block, grid, tokens, slots))
    isCut = inverse > 1
    planned = compiled.interpret(gpu_long_groups.PlanHost) if isCut else compiled
    gpu_long_groups.PlanHost.numCut = 0
    # Two plans of patterns, two products, the sum of the parts of db, and n; of groups that are cut
    # which ones are, and the sums of their parts.
    count_launches(compiled, 2, 10 if isCut else 6)
    shape = tuple(g * b for g, b in zip(grid, block))
    for name, mask in gpu_long_groups.masks(random, grid, inverse) if isCut else masks(random, grid):
        order = random.permutation(slots)[:mask.sum()]
        dense = round_to(kind, random.standard_normal(shape)) * np.kron(mask, np.ones(block))
        draw = lambda kind, *shape: round_to(kind, random.standard_normal(shape))
        x, q = (draw(kind, *tokens[:-1], shape[0], tokens[-1]) for _ in range(2))
        g, r = (draw(kind, *tokens[:-1], shape[1], tokens[-1]) for _ in range(2))
        b, m = draw("f32", shape[1]), draw("f32", *tokens)
        inputs = {"x": (kind, x), "q": (kind, q), "g": (kind, g), "r": (kind, r), "b": ("f32", b), "m": ("f32", m),
                  "l": ("f32", np.zeros((256, 512)))}
        values = step.to_values(dense, mask, block, slots, order)
        arrays = {"w": store(kind, values)} | {key: store(*array) for key, array in inputs.items()}
        got = planned.run(arrays, {"w": mask}, {"w": order})
        again = compiled.run(arrays, {"w": mask}, {"w": order})
        assert all(got[key].tobytes() == again[key].tobytes() for key in got), name
        y, h, db, dx = (load(k, got[key]) for key, k in (("y", out), ("h", out), ("db", "f32"), ("dx", kind)))
        check(f"{name} y", y, dense.T @ x, np.abs(dense).T @ np.abs(x), shape[0], out)
        s = y + b[:, None]
        a = (s / (1 + np.exp(-s)) + r) * m[..., None, :]
        size = (np.abs(s) + np.abs(r) + np.abs(y) + np.abs(b)[:, None]) * np.abs(m[..., None, :])
        check(f"{name} h", h, -a, size, 32, out)
        axes = tuple(d for d in range(a.ndim) if d != a.ndim - 2)
        check(f"{name} db", db, a.sum(axes), size.sum(axes), 32 + a[..., 0, :].size, "f32")
        # The product is rounded before it is read.
        want, size = dense @ g, np.abs(dense) @ np.abs(g)
        size = size / 2 + np.abs(q) + np.abs(want) * ROUNDOFF[out] / ROUNDOFF["f32"] / shape[1]
        check(f"{name} dx", dx, want / 2 + q, size, shape[1] + 4, kind)
    assert isCut == (gpu_long_groups.PlanHost.numCut > 0), "expected groups to be cut"


def dense_text(kind, equation, extents, kept):
    left, right, result = (list(part) for part in equation.replace("->", ",").split(","))
    loops = result + sorted((set(left) | set(right)) - set(result))
    kinds = ", ".join('"parallel"' if loop in result else '"reduction"' for loop in loops)
    tensor = lambda dims, type: "tensor<" + "".join(f"{extents[d]}x" for d in dims) + f"{type}>"
    a, b, c, h, m = tensor(left, kind), tensor(right, kind), tensor(result, "f32"), tensor(result, kind), tensor(result[-1], "f32")
    parallel = ", ".join(['"parallel"'] * len(result))
    text = f"""
  %zero = arith.constant dense<0.0> : {c}
""" + generic(("%c", c), [("%a", a), ("%b", b)], [affine(loops, part) for part in (left, right, result)], kinds,
              "    %s0 = arith.mulf %i0, %i1 : f32\n    %out = arith.addf %o, %s0 : f32\n", "%zero") \
        + generic(("%h", h), [("%c", c), ("%m", m)],
                  [affine(result, result), affine(result, result[-1]), affine(result, result)], parallel, SCALE)
    results = [("%h", h, "h"), ("%n", LARGE, "n")]
    if kept:
        s = tensor(kept, "f32")
        text += f"  %start = arith.constant dense<0.0> : {s}\n"
        summed = ", ".join('"parallel"' if d == kept else '"reduction"' for d in result)
        text += generic(("%t", s), [("%h", h)], [affine(result, result), affine(result, kept)], summed, SUM, "%start")
        results.append(("%t", s, "t"))
    text += generic(("%n", LARGE), [("%l", LARGE)], [affine("de", "de")] * 2, '"parallel", "parallel"', NEGATE)
    return f"""
func.func @step(%a: {a} {{bsr.name = "a", bsr.role = "batch"}}, %b: {b} {{bsr.name = "b", bsr.role = "batch"}},
    %m: {m} {{bsr.name = "m", bsr.role = "batch"}}, %l: {LARGE} {{bsr.name = "l", bsr.role = "batch"}})
    -> ({", ".join(f'{t} {{bsr.name = "{n}"}}' for _, t, n in results)}) {{
{text}  return {", ".join(v for v, _, _ in results)} : {", ".join(t for _, t, _ in results)}
}}"""


def run_dense(kind, equation, extents, kept, launches, random):
    compiled = step.compile(dense_text(kind, equation, extents, kept))
    count_launches(compiled, 1, launches + 1, *[("cp.async",)] * (kind == "f32"))
    left, right, result = equation.replace("->", ",").split(",")
    a, b = (round_to(kind, random.standard_normal([extents[d] for d in part])) for part in (left, right))
    m = round_to("f32", random.standard_normal(extents[result[-1]]))
    got = compiled.run({"a": store(kind, a), "b": store(kind, b), "m": store("f32", m),
                        "l": np.zeros((256, 512), np.float32)})
    terms = int(np.prod([extents[d] for d in set(left) - set(result)]))
    h = load(kind, got["h"])
    check(equation, h, np.einsum(equation, a, b) / 2 + m, np.einsum(equation, abs(a), abs(b)) + np.abs(m), terms + 2, kind)
    if kept:
        axes = tuple(i for i, d in enumerate(result) if d != kept)
        check(f"{equation} sum", load("f32", got["t"]), h.sum(axes), np.abs(h).sum(axes), h.size // extents[kept], "f32")


if __name__ == "__main__":
    chip, tile = [*sys.argv[1:], "0x0"][:2]
    size, _, share = tile.partition("/")
    os.environ["BSR_COMPILE"] = f"--target=gpu --chip={chip} --tile={size}" + (f" --share={share}" if share else "")
    random = np.random.default_rng(0)
    cases = LONG if tile == "0x64" else [(*case, 1) for case in SPARSE]
    for case in step.share(cases) if tile not in DENSE_TILES else []:
        run_sparse(*case, random)
        print(*case, "ok", flush=True)
    for case in DENSE if tile == "0x0" else step.share(LANES) if tile in DENSE_TILES else []:
        run_dense(*case, random)
        print(*case, "ok", flush=True)
