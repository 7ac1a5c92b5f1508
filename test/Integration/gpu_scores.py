# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms of all blocks of a gradient, as the PTX interpreter runs them, against float64: on tensor cores, in f32, and by plain
kernels what neither takes. With the numbers of cases, those alone.

    gpu_scores.py <chip> [<number of a case>]...
"""

import os
import re
import sys

import numpy as np
import step
from gpu_products import ROUNDOFF, round_to, round_to_tf32, store

NORMS = {"l1": lambda blocks: np.abs(blocks).sum((1, 3)), "l2": lambda blocks: np.sqrt((blocks**2).sum((1, 3))),
         "linf": lambda blocks: np.abs(blocks).max((1, 3))}
# The type, a block, blocks of the grid, tokens with batches in front, and what tells the kernel.
TENSOR, LANES, PLAIN = r"mma\.sync", r"(?s)cp\.async.*fma\.rn", r"(?s)\A(?!.*cp\.async).*fma\.rn"
CASES = [
    ("bf16", (16, 16), (9, 17), (40,), TENSOR), ("f16", (64, 64), (3, 4), (2, 72), TENSOR), ("bf16", (8, 4), (5, 50), (3, 24), TENSOR),
    ("bf16", (1, 1), (30, 20), (16,), TENSOR), ("f16", (32, 2), (3, 60), (136,), TENSOR), ("bf16", (2, 64), (70, 2), (8,), TENSOR),
    ("tf32", (16, 16), (9, 10), (44,), TENSOR), ("tf32", (4, 32), (40, 3), (2, 36), TENSOR),
    ("f32", (16, 16), (17, 9), (2, 100), LANES), ("f32", (64, 32), (3, 5), (260,), LANES), ("f32", (1, 8), (130, 20), (132,), LANES),
    ("bf16", (48, 16), (2, 3), (16,), PLAIN), ("f32", (16, 16), (3, 2), (2, 9), PLAIN), ("bf16", (16, 16), (3, 2), (12,), PLAIN),
]


def run_case(kind, block, grid, tokens, sign, random):
    type = "f32" if kind == "tf32" else kind
    # Of so few sums, elements of threads take less time.
    more = " --tf32" if kind == "tf32" else " --tile=64x128" if sign == LANES else ""
    os.environ["BSR_COMPILE"] = f"--target=gpu --chip={sys.argv[1]}{more}"
    shape = [g * b for g, b in zip(grid, block)]
    lead, dim = "".join(f"{extent}x" for extent in tokens[:-1]), len(tokens) - 1
    x, g = (f"tensor<{lead}{extent}x{tokens[-1]}x{type}>" for extent in shape)
    scores = f"tensor<{grid[0]}x{grid[1]}xf32>"
    results = ", ".join(f'{scores} {{bsr.name = "{norm}"}}' for norm in NORMS)
    body = "".join(f"  %{norm} = bsr.block_scores {norm} %x, %g feature_dim = {dim} : {x}, {g} -> {scores}\n" for norm in NORMS)
    compiled = step.compile(f"""
func.func @step(%x: {x} {{bsr.name = "x", bsr.role = "batch"}}, %g: {g} {{bsr.name = "g", bsr.role = "batch"}}) -> ({results}) {{
{body}  return {", ".join(f"%{norm}" for norm in NORMS)} : {", ".join([scores] * len(NORMS))}
}}""")
    kernels = [part for part in compiled.ptx.split(".entry")[1:] if re.search(sign, part)]
    assert len(kernels) == len(NORMS), f"expected {len(NORMS)} kernels with {sign}, but got {len(kernels)}"
    for size in 1, 0:
        # Zeros have norms of zero.
        a, b = (round_to(type, size * random.standard_normal((*tokens[:-1], extent, tokens[-1]))) for extent in shape)
        got = compiled.run({"x": store(type, a), "g": store(type, b)}, {}, {})
        if kind == "tf32":
            a, b = round_to_tf32(a), round_to_tf32(b)
        a, b = (np.moveaxis(array, -2, 0).reshape(array.shape[-2], -1) for array in (a, b))
        blocked = (grid[0], block[0], grid[1], block[1])
        gradient, magnitudes = (a @ b.T).reshape(blocked), (np.abs(a) @ np.abs(b).T).reshape(blocked)
        terms = a.shape[1] + block[0] * block[1] + 4
        for norm, take in NORMS.items():
            wrong = np.abs(got[norm] - take(gradient)) - terms * ROUNDOFF["f32"] * take(magnitudes) * 2
            assert (wrong <= 1e-30).all(), f"{norm}: off by {wrong.max()} more than rounding"
    # NaN wins in its blocks, and reaches no others.
    a[0, 0] = np.nan
    lost = np.zeros(grid, bool)
    lost[0] = True
    array = np.moveaxis(a.reshape(shape[0], *tokens), 0, -2)
    got = compiled.run({"x": store(type, array), "g": store(type, np.moveaxis(b.reshape(shape[1], *tokens), 0, -2))}, {}, {})
    for norm in NORMS:
        assert (np.isnan(got[norm]) == lost).all(), f"{norm}: expected NaN in the blocks of one row"


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    for number, case in enumerate(CASES):
        if len(sys.argv) == 2 or str(number) in sys.argv[2:]:
            run_case(*case, generator)
            print(number, *case[:-1], "ok", flush=True)
