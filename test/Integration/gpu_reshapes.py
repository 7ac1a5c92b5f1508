# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose operands have other dimensions than their buffers, in the PTX interpreter, against float64.

    gpu_reshapes.py

Heads of what attention makes are features of what a product reads: dimensions that are merged; and others
that are cut.
"""

import os
import re

import gpu_products
import numpy as np
import step

#   type   result  block     grid      tokens     tile
CASES = [
    ("bf16", "bf16", (16, 16), (6, 9), (2, 72), "0x0"),
    ("bf16", "bf16", (64, 64), (3, 2), (136,), "128x256/2x2"),
    ("bf16", "f32", (32, 32), (4, 5), (72,), "256x64/2"),
    ("f32", "f32", (16, 16), (4, 6), (3, 40), "0x0"),
    ("bf16", "bf16", (8, 8), (6, 10), (2, 40), "0x0"),
]
HEADS = 2


def text(kind, out, block, grid, tokens):
    """The step of gpu_products, to which x comes in heads, and g in one dimension less or more."""
    rows, cols = (extent * size for extent, size in zip(grid, block))
    source = gpu_products.text(kind, out, block, grid, tokens)
    lead, last = list(tokens[:-1]), tokens[-1]
    n = len(lead)
    heads = [*lead, HEADS, rows // HEADS, last]
    merged = [[i] for i in range(n)] + [[n, n + 1], [n + 2]]
    flat = [cols, last] if not lead else [lead[0] * cols, last]
    tensor = lambda extents: f"tensor<{'x'.join(map(str, extents))}x{kind}>"
    source = source.replace("%x: !x", f"%xh: {tensor(heads)}").replace("%g: !y", f"%gf: {tensor(flat)}")
    reshapes = f"  %x = tensor.collapse_shape %xh {merged} : {tensor(heads)} into !x\n"
    if lead:
        extents = [*lead, cols, last]
        reshapes += f"  %g = tensor.expand_shape %gf [[0, 1], [2]] output_shape {extents} : {tensor(flat)} into !y\n"
    else:
        source = re.sub(r"%g\b", "%gf", source)
    return source.replace("  %y = ", reshapes + "  %y = ", 1), heads, flat


def run_case(kind, out, block, grid, tokens, tile, random):
    tile, _, share = tile.partition("/")
    os.environ["BSR_COMPILE"] = f"--target=gpu --chip=sm_90a --tile={tile}" + (f" --share={share}" if share else "")
    source, heads, flat = text(kind, out, block, grid, tokens)
    compiled = step.compile(source)
    # As many kernels of products as without reshapes.
    sign, count = gpu_products.what_is_expected(kind, block, grid, tokens)
    found = sum(bool(re.search(sign, part)) for part in compiled.ptx.split(".entry"))
    assert found >= count, f"expected {count} kernels with {sign}, but got {found}"
    slots, shape = grid[0] * grid[1], tuple(g * b for g, b in zip(grid, block))
    draw = lambda *extents: gpu_products.round_to(kind, random.standard_normal(extents))
    mask = random.random(grid) < 0.4
    mask[0], mask[:, 1] = False, True
    order = random.permutation(slots)[:mask.sum()]
    dense = draw(*shape) * np.kron(mask, np.ones(block))
    x, g = (draw(*tokens[:-1], extent, tokens[-1]) for extent in shape)
    b = gpu_products.round_to(out, random.standard_normal(shape[1]))
    given = {"w": step.to_values(dense, mask, block, slots, order), "x": x.reshape(heads), "g": g.reshape(flat)}
    given = {key: gpu_products.store(kind, array) for key, array in given.items()} | {"b": gpu_products.store(out, b)}
    got = {key: gpu_products.load(out, array) for key, array in compiled.run(given, {"w": mask}, {"w": order}).items()}
    gpu_products.check("y", got["y"], dense.T @ x, np.abs(dense).T @ np.abs(x), shape[0], out)
    gpu_products.check("dx", got["dx"], dense @ g, np.abs(dense) @ np.abs(g), shape[1], out)
    rows, cols = (np.moveaxis(array, -2, 0).reshape(array.shape[-2], -1) for array in (x, g))
    want, sizes = (step.to_values(array, mask, block, len(order), np.arange(len(order)))
                   for array in (rows @ cols.T, np.abs(rows) @ np.abs(cols).T))
    gpu_products.check("dw", got["dw"][order], want, sizes, rows.shape[1], out)


if __name__ == "__main__":
    random = np.random.default_rng(0)
    for case in CASES:
        run_case(*case, random)
        print(*case, "ok", flush=True)
