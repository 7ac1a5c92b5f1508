# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of rows with the matrices of their groups, compiled, against float64.

All forms of both operations in a step, on rows that are spread over groups in all ways: evenly, all in
one group, in one of a few rows each, in none at all; groups without rows; numbers that are no group's.
A row of NaN or of infinity stays in its own row and group. The error of a sum of n products is bounded
element by element, n u / (1 - n u) times the sum of magnitudes, and the bits are those of any number of
threads, and of any other rows in the same groups.
"""

import os

import numpy as np
import step

random = np.random.default_rng(0)
ROUNDOFF = {"f32": 2.0**-24, "f64": 2.0**-53}
# Rows, groups, and the features of both sides: ragged ones, vectors and tiles of them, more than a block
# of features or of rows that a kernel packs, and single ones.
SIZES = [
    (37, 3, 13, 22), (64, 8, 32, 64), (1, 4, 16, 16), (300, 2, 80, 144), (50, 64, 24, 40),
    (70, 5, 600, 33), (200, 3, 100, 272), (9, 1, 1, 1), (33, 2, 5, 9), (16, 7, 7, 16),
]
CASES = [("f32", "f32", index, size) for index, size in zip(["i64", "i32"] * 5, SIZES)]
CASES += [(x, w, "i64", size) for (x, w), size in zip(
    [("f64", "f64"), ("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32"), ("f32", "f64"), ("f16", "bf16"), ("f64", "f16")],
    [*SIZES[:4], *SIZES[5:8]])]
if step.is_scalar() or step.is_gpu():
    CASES = [case for case in CASES if np.prod(case[3]) < 200_000]


def rounded(kind, array):
    """`array` with values of an element type, as a buffer and in float64."""
    buffer = step.to_bf16(array) if kind == "bf16" else array.astype(step.TYPES[kind])
    return buffer, (step.from_bf16(buffer) if kind == "bf16" else buffer).astype(np.float64)


def routings(rows, groups):
    """Ways in which rows are spread over groups."""
    yield "even", random.integers(0, groups, rows)
    yield "all in one", np.full(rows, groups // 2)
    yield "in order", np.sort(random.integers(0, groups, rows))
    skewed = np.minimum(random.geometric(0.6, rows) - 1, groups - 1)
    yield "skewed", groups - 1 - skewed
    yield "no group's", random.choice([-1, groups, groups + 7, -(2**31), 2**31 - 1], rows)
    yield "some no group's", random.integers(-1, groups + 1, rows)


def text(x, w, index, size):
    rows, groups, features, cols = size
    out = "f64" if "f64" in (x, w) else "f32"
    types = {
        "x": f"tensor<{rows}x{features}x{x}>", "dy": f"tensor<{rows}x{cols}x{x}>",
        "w": f"tensor<{groups}x{features}x{cols}x{w}>", "v": f"tensor<{rows}x{cols}x{w}>",
        "groups": f"tensor<{rows}x{index}>", "y": f"tensor<{rows}x{cols}x{out}>",
        "dx": f"tensor<{rows}x{features}x{out}>", "dw": f"tensor<{groups}x{features}x{cols}x{out}>",
    }
    arguments = ", ".join(
        f'%{n}: {types[n]} {{bsr.name = "{n}", bsr.role = "batch"}}' for n in ("x", "dy", "w", "v", "groups"))
    results = ", ".join(f'{types[n]} {{bsr.name = "{n}"}}' for n in ("y", "dx", "dw"))
    return f"""func.func @step({arguments}) -> ({results}) {{
  %y = bsr.grouped_matmul %x, %w, %groups : {types["x"]}, {types["w"]}, {types["groups"]} -> {types["y"]}
  %dx = bsr.grouped_matmul %dy, %w, %groups transpose : {types["dy"]}, {types["w"]}, {types["groups"]} -> {types["dx"]}
  %dw = bsr.grouped_outer %x, %v, %groups : {types["x"]}, {types["v"]}, {types["groups"]} -> {types["dw"]}
  return %y, %dx, %dw : {types["y"]}, {types["dx"]}, {types["dw"]}
}}"""


def reference(of_group, x, dy, w, v):
    """What a step returns, in float64: each group computes its own rows."""
    y, dx = np.zeros((len(x), w.shape[2])), np.zeros(x.shape)
    dw = np.zeros(w.shape)
    for group in range(len(w)):
        own = of_group == group
        y[own], dx[own] = x[own] @ w[group], dy[own] @ w[group].T
        dw[group] = x[own].T @ v[own]
    return {"y": y, "dx": dx, "dw": dw}


def check(case, name, got, data, of_group):
    x, w, _, (rows, _, features, cols) = case
    kind = "f64" if "f64" in (x, w) else "f32"
    want = reference(of_group, *data)
    size = reference(of_group, *(np.abs(d) for d in data))
    for key, terms in {"y": features, "dx": cols, "dw": rows}.items():
        # In f64 the reference rounds as well.
        bound = 2 * terms * ROUNDOFF[kind] / (1 - terms * ROUNDOFF[kind]) * size[key] + 1e-300
        error = np.abs(got[key] - want[key])
        assert got[key].shape == want[key].shape and (error <= bound).all(), (case, name, key, np.max(error - bound))


def run(case):
    x, w, index, size = case
    rows, groups, features, cols = size
    compiled = step.compile(text(*case))
    first = {}
    for name, of_group in routings(rows, groups):
        pairs = [rounded(kind, random.standard_normal(shape)) for kind, shape in [
            (x, (rows, features)), (x, (rows, cols)), (w, (groups, features, cols)), (w, (rows, cols))]]
        arrays = {n: buffer for n, (buffer, _) in zip(("x", "dy", "w", "v"), pairs)}
        arrays["groups"] = of_group.astype(step.TYPES[index])
        data = [d for _, d in pairs]
        got = compiled.run(arrays, threads=1)
        check(case, name, got, data, of_group)
        again = compiled.run(arrays, threads=3)
        for key in got:
            assert got[key].tobytes() == again[key].tobytes(), (case, name, key, "other bits by three threads")
        if name != "even" or rows < 2:
            continue
        # What one row has no other row sees, and but for its own group no matrix.
        spoiled = dict(arrays)
        for n, value in (("x", np.nan), ("dy", np.inf)):
            array = data[0 if n == "x" else 1].copy()
            array[0] = value
            spoiled[n] = rounded(x, array)[0]
        after = compiled.run(spoiled)
        others = np.arange(groups) != of_group[0]
        for key, kept in (("y", slice(1, None)), ("dx", slice(1, None)), ("dw", others)):
            assert after[key][kept].tobytes() == got[key][kept].tobytes(), (case, key, "what one row has is in others")
        assert np.isnan(after["y"][0]).all() and np.isnan(after["dw"][of_group[0]]).all(), case
        # Alone in its group, a row has the same bits.
        moved = of_group.copy()
        moved[1:] = (of_group[0] + 1) % groups if groups > 1 else -1
        alone = compiled.run({**arrays, "groups": moved.astype(step.TYPES[index])})
        for key in ("y", "dx"):
            assert alone[key][0].tobytes() == got[key][0].tobytes(), (case, key, "other bits of a row alone")


for case in step.share(CASES):
    run(case)
