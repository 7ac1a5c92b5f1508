# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sparse products of rows, whose results are rows, against numpy in f64.

What follows a product and has the features last is computed where its sums are, if blocks
divide squares of 16 features or these divide them; else by a kernel of its own. Tokens are
ragged, whole panels, and as many as features.
"""

import itertools

import numpy as np
import step

# Rows and columns of a block, of the grid, and whether the result is transposed by the product.
CASES = [((4, 4), (12, 20), True), ((8, 8), (6, 10), True), ((16, 16), (5, 3), True), ((32, 16), (2, 5), True),
         ((64, 64), (2, 2), True), ((16, 4), (3, 16), True), ((8, 1), (4, 32), False), ((1, 8), (32, 4), False),
         ((2, 2), (24, 24), False), ((3, 6), (16, 8), False)]
TOKENS = [5, 8, 37, 64, 96, 130, 256]
TARGETS = [(512, 32), (256, 16), (128, 16)]
ROUNDOFF = {"f32": 2.0**-24, "f64": 2.0**-53, "bf16": 2.0**-8, "f16": 2.0**-11}
# What rounding to a subnormal number is off by, at most; of other types nothing here is as small.
TINY = {"f16": 2.0**-25}


def tensor(kind, *shape):
    return f"tensor<{''.join(f'{extent}x' for extent in shape)}{kind}>"


def source(kind, block, shape, slots, tokens, transpose):
    """Rows of a product, and times another operand; rows of a second one, and columns of its negative.

    Most memory is live in front of both, in a product of two vectors: nothing waits for the peak.
    """
    made, read = shape if transpose else shape[::-1]
    pattern = f"!bsr.pattern<{shape[0]}x{shape[1]}, block = {block[0]}x{block[1]}, slots = {slots}>"
    w, x, y = tensor(kind, slots, *block), tensor(kind, tokens, read), tensor(kind, tokens, made)
    t = tensor(kind, made, tokens)
    return f"""
#tf = affine_map<(t, f) -> (t, f)>
#ft = affine_map<(t, f) -> (f, t)>
#f = affine_map<(t, f) -> (f)>
#ac = affine_map<(a, b, c) -> (a, c)>
#bc = affine_map<(a, b, c) -> (b, c)>
#ab = affine_map<(a, b, c) -> (a, b)>
func.func @step(%w: {w} {{bsr.name = "w", bsr.pattern = 1 : i64, bsr.role = "param"}},
                %p: {pattern} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 1.0}},
                %x: {x} {{bsr.name = "x"}}, %h: {y} {{bsr.name = "h"}}, %b: {tensor(kind, made)} {{bsr.name = "b"}}, %k: tensor<1024x2xf32> {{bsr.name = "k"}})
    -> (tensor<1024xf32> {{bsr.name = "q"}}, {y} {{bsr.name = "y"}}, {y} {{bsr.name = "z"}}, {y} {{bsr.name = "v"}}, {t} {{bsr.name = "c"}}) {{
  %zero = arith.constant 0.0 : f32
  %le = tensor.empty() : tensor<1024x1024xf32>
  %lz = linalg.fill ins(%zero : f32) outs(%le : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %l = linalg.generic {{indexing_maps = [#ac, #bc, #ab], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%k, %k : tensor<1024x2xf32>, tensor<1024x2xf32>) outs(%lz : tensor<1024x1024xf32>) {{
  ^bb0(%a: f32, %g: f32, %o: f32):
    %m = arith.mulf %a, %g : f32
    %n = arith.addf %m, %o : f32
    linalg.yield %n : f32
  }} -> tensor<1024x1024xf32>
  %me = tensor.empty() : tensor<1024xf32>
  %mz = linalg.fill ins(%zero : f32) outs(%me : tensor<1024xf32>) -> tensor<1024xf32>
  %q = linalg.generic {{indexing_maps = [#tf, #f], iterator_types = ["reduction", "parallel"]}}
      ins(%l : tensor<1024x1024xf32>) outs(%mz : tensor<1024xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %n = arith.maximumf %a, %o : f32
    linalg.yield %n : f32
  }} -> tensor<1024xf32>
  %y = bsr.spmm %p, %w, %x bias %b{" transpose" if transpose else ""} feature_dim = 1 : {pattern}, {w}, {x}, {tensor(kind, made)} -> {y}
  %u = bsr.spmm %p, %w, %x{" transpose" if transpose else ""} feature_dim = 1 : {pattern}, {w}, {x} -> {y}
  %e = tensor.empty() : {y}
  %z = linalg.generic {{indexing_maps = [#tf, #tf, #tf], iterator_types = ["parallel", "parallel"]}}
      ins(%y, %h : {y}, {y}) outs(%e : {y}) {{
  ^bb0(%a: {kind}, %g: {kind}, %o: {kind}):
    %m = arith.mulf %a, %g : {kind}
    linalg.yield %m : {kind}
  }} -> {y}
  %ce = tensor.empty() : {t}
  %c = linalg.generic {{indexing_maps = [#ft, #tf], iterator_types = ["parallel", "parallel"]}}
      ins(%u : {y}) outs(%ce : {t}) {{
  ^bb0(%a: {kind}, %o: {kind}):
    %n = arith.negf %a : {kind}
    linalg.yield %n : {kind}
  }} -> {t}
  return %q, %y, %z, %u, %c : tensor<1024xf32>, {y}, {y}, {y}, {t}
}}"""


def store(array, kind):
    if kind == "bf16":
        return step.to_bf16(array)
    return array.astype({"f32": np.float32, "f64": np.float64, "f16": np.float16}[kind])


def load(array, kind):
    return (step.from_bf16(array) if kind == "bf16" else array).astype(np.float64)


def check(kind, block, grid, isTransposed, tokens, bits, registers, transpose):
    shape = block[0] * grid[0], block[1] * grid[1]
    label = f"{kind} {block} {shape} {tokens} tokens, {bits} bits{', transpose' if transpose else ''}"
    mask = random.random(grid) < 0.4
    mask[1, :] = mask[:, 2 % grid[1]] = False
    slots = int(mask.sum()) + 1
    dense = random.standard_normal(shape) * np.kron(mask, np.ones(block))
    dense = load(store(dense, kind), kind)
    arrays = {"w": store(step.to_values(dense, mask, block, slots), kind)}
    made, read = shape if transpose else shape[::-1]
    for name, extents in {"x": (tokens, read), "h": (tokens, made), "b": (made,)}.items():
        arrays[name] = store(random.standard_normal(extents), kind)
    arrays["k"] = random.standard_normal((1024, 2)).astype(np.float32)
    x, h, b = (load(arrays[name], kind) for name in "xhb")
    compiled = step.compile(source(kind, block, shape, slots, tokens, transpose),
                            ["--timers", f"--vector-bits={bits}", f"--num-registers={registers}", "-O1"])
    one, two = (compiled.run(arrays, {"w": mask}, threads=threads) for threads in (1, 2))
    w = dense.T if transpose else dense
    exact, size = x @ w, np.abs(x) @ np.abs(w)
    sums = (read + 2) * 2 * ROUNDOFF["f64" if kind == "f64" else "f32"]
    error = sums * (size + np.abs(b)) + 2 * ROUNDOFF[kind] * np.abs(exact + b)
    plain = sums * size + 2 * ROUNDOFF[kind] * np.abs(exact)
    wanted = {"y": (exact + b, error), "v": (exact, plain), "c": (-exact.T, plain.T),
              "z": ((exact + b) * h, (error + TINY.get(kind, 0)) * np.abs(h) + 2 * ROUNDOFF[kind] * np.abs((exact + b) * h))}
    for name, (want, bound) in wanted.items():
        assert one[name].tobytes() == two[name].tobytes(), f"{label}: {name} depends on threads"
        assert (np.abs(load(one[name], kind) - want) <= bound + TINY.get(kind, 1e-30)).all(), f"{label}: {name} is wrong"
    # Those of the step, of its peak of memory, and where rows of x become panels.
    alone = [kernel["kind"] for kernel in compiled.manifest["timers"] if not kernel["kind"].startswith("spmm")]
    # Lines of few features of 16 bits have a kernel of their own for it.
    isTransposed = isTransposed and (kind not in ("bf16", "f16") or min(block) >= 16)
    if isTransposed and bits == 512 and not step.is_scalar() and not step.is_gpu():
        assert len(alone) == 4, f"{label}: expected what follows products in their kernels, but got kernels of {alone}"


random = np.random.default_rng(0)
cases = [("f32", *case, tokens, *target, transpose)
         for (target, transpose, case, tokens) in itertools.product(TARGETS, (False, True), CASES, TOKENS)]
# Some numbers of tokens of each case, other ones of the next.
cases = cases[::3]
cases += [(kind, *case, tokens, *TARGETS[0], True)
          for kind, case, tokens in itertools.product(("f64", "bf16", "f16"), CASES[:3], (8, 37, 64, 130))]
# As many tokens as features.
cases += [("f32", (16, 16), (4, 4), True, 64, *TARGETS[0], transpose) for transpose in (False, True)]
for case in step.share(cases):
    check(*case)
