# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose kernels go through them as the program says, against float64.

Every walk that a product has, with other tiles, panels and distances of prefetches:
the bounds are those of operations.py. All kernels of a `bsr.spmm` sum up in one order,
and have the same bits; those of a `bsr.sddmm` need not.
"""

import os

import numpy as np
import step

U = 2.0**-24
OPTIONS = os.environ["BSR_COMPILE"]  # schedules.test gives registers
LANES = 16 if "--vector-bits=512" in OPTIONS else 8
GATHERS = [{}, {"rows": 4, "ahead": 1}, {"rows": 3, "panels": 2}, {"rows": 1, "panels": 5}, {"panels": 3, "ahead": 0},
           {"ahead": 64}]
# Tiles of half a panel, where that is whole cache lines.
if "--num-registers=32" in OPTIONS:
    GATHERS += [{"rows": 12}, {"rows": 8, "ahead": 2}]


def say(walk, numbers={}):
    entries = [f'walk = "{walk}"'] + [f"{name} = {number} : i64" for name, number in numbers.items()]
    return f"{{bsr.schedule = {{{', '.join(entries)}}}}}"


def gathers(*walks):
    return [say(walk, numbers) for walk in walks for numbers in GATHERS]


def walks(block):
    """The schedules of spmm, of its transpose and of sddmm, for whole panels of tokens; none comes first."""
    ordered, scatter = gathers("ordered_gather"), [say("scatter")]
    spmm = gathers("gather") + (ordered if block[0] == 1 else []) + (scatter if block[1] == 1 else [])
    transposed = gathers("gather") + (ordered if block[1] == 1 else []) + (scatter if block[0] == 1 else [])
    outer = max(block) % LANES == 0 if min(block) == 1 else block[1] % LANES == 0
    sddmm = [say("inner")] + ([say("outer")] if outer else [])
    single = [say("single_weights")] if block == (1, 1) else []
    return [[""] + schedules + single for schedules in (spmm, transposed, sddmm)]


def make(rows, cols, tokens, block):
    """A step with one product for each schedule, and the names of its results."""
    br, bc = block
    slots = rows // br * (cols // bc)
    pattern = f"!bsr.pattern<{rows}x{cols}, block = {br}x{bc}, slots = {slots}>"
    values, bias = f"tensor<{slots}x{br}x{bc}xf32>", f"tensor<{cols}xf32>"
    dims = "x".join(map(str, tokens))
    dim = len(tokens)
    x, y = f"tensor<{dims}x{rows}xf32>", f"tensor<{dims}x{cols}xf32>"
    spmm, transposed, sddmm = walks(block)
    lines = [(f"y{i}", y, f"bsr.spmm %p, %w, %x bias %b feature_dim = {dim} {s} : {pattern}, {values}, {x}, {bias} -> {y}")
             for i, s in enumerate(spmm)]
    lines += [(f"dx{i}", x, f"bsr.spmm %p, %w, %dy transpose feature_dim = {dim} {s} : {pattern}, {values}, {y} -> {x}")
              for i, s in enumerate(transposed)]
    lines += [(f"dw{i}", values, f"bsr.sddmm %p, %x, %dy feature_dim = {dim} {s} : {pattern}, {x}, {y} -> {values}")
              for i, s in enumerate(sddmm)]
    # An epilogue, whose partial sums are of panels: of tiles that take two.
    loops = ", ".join(f"d{i}" for i in range(dim + 1))
    kinds = ", ".join(['"reduction"'] * dim + ['"parallel"'])
    lines.append(("total", bias, f"""linalg.generic {{indexing_maps = [affine_map<({loops}) -> ({loops})>, affine_map<({loops}) -> (d{dim})>],
      iterator_types = [{kinds}]}} ins(%y3 : {y}) outs(%none : {bias}) {{
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  }} -> {bias}"""))
    body = f"  %none = arith.constant dense<0.0> : {bias}\n" + "\n".join(f"  %{name} = {line}" for name, _, line in lines)
    results = ", ".join(f'{type} {{bsr.name = "{name}"}}' for name, type, _ in lines)
    return [name for name, _, _ in lines], step.compile(f"""
func.func @step(%w: {values} {{bsr.name = "w", bsr.pattern = 4 : i64}}, %b: {bias} {{bsr.name = "b"}},
                %x: {x} {{bsr.name = "x"}}, %dy: {y} {{bsr.name = "dy"}},
                %p: {pattern} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 1.0}}) -> ({results}) {{
{body}
  return {", ".join("%" + name for name, _, _ in lines)} : {", ".join(type for _, type, _ in lines)}
}}""")


def masks(random, grid):
    mask = random.random(grid) < 0.4
    # A row and a column that are empty, and full ones.
    mask[0, :] = mask[:, 0] = True
    mask[-1, :] = mask[:, -1] = False
    one = np.zeros(grid, bool)
    one[-1, 1] = True
    return {"random": mask, "full": np.ones(grid, bool), "one block": one, "no block": np.zeros(grid, bool)}


def check(where, got, want, magnitudes, terms):
    bound = terms * U / (1 - terms * U) * magnitudes + 2.0**-126
    worst = np.abs(got.astype(np.float64) - want) - bound
    assert (worst <= 0).all(), f"{where}: off by {worst.max()} more than the bound"


random = np.random.default_rng(0)
for block, rows, cols, tokens in step.share([
        ((16, 16), 96, 64, (2, 128)), ((1, 1), 34, 26, (1024,)), ((8, 8), 96, 64, (128,)), ((8, 8), 40, 64, (2, 64)),
        ((1, 8), 21, 64, (2, 128)), ((8, 1), 64, 21, (256,)), ((5, 3), 40, 33, (256,)), ((16, 1), 48, 9, (128,)),
        ((1, 1), 26, 34, (256,)), ((4, 4), 36, 52, (2, 128)), ((2, 16), 48, 64, (1024,)), ((12, 4), 60, 24, (256,)),
        ((16, 16), 192, 192, (2, 512))]):
    names, compiled = make(rows, cols, tokens, block)
    grid = rows // block[0], cols // block[1]
    for label, mask in masks(random, grid).items():
        normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
        stored = np.kron(mask, np.ones(block, bool))
        dense, slots = normal(rows, cols) * stored, grid[0] * grid[1]
        order = random.permutation(slots)[: mask.sum()]
        arrays = {"w": step.to_values(dense, mask, block, slots, order), "b": normal(cols),
                  "x": normal(*tokens, rows), "dy": normal(*tokens, cols)}
        runs = [compiled.run(arrays, {"w": mask}, {"w": order}, threads=threads) for threads in (1, 3)]
        w, x, dy, b = (a.astype(np.float64) for a in (dense, arrays["x"], arrays["dy"], arrays["b"]))
        flat = lambda a: a.reshape(-1, a.shape[-1])
        for name in names:
            where = f"{block} {rows}x{cols} {tokens} {label}: {name}"
            got, again = (run[name][order] if name.startswith("dw") else run[name] for run in runs)
            assert got.tobytes() == again.tobytes(), f"{where}: not the same bits by more threads"
            if name.startswith("dw"):
                blocks = np.zeros(grid + block, np.float32)
                blocks[mask] = got
                check(where, blocks.swapaxes(1, 2).reshape(rows, cols), (flat(x).T @ flat(dy)) * stored,
                      (np.abs(flat(x)).T @ np.abs(flat(dy))) * stored, np.prod(tokens) + 1)
                continue
            if name == "total":
                everywhere = tuple(range(len(tokens)))
                check(where, got, (x @ w + b).sum(everywhere), (np.abs(x) @ np.abs(w) + np.abs(b)).sum(everywhere),
                      rows + 1 + np.prod(tokens))
                continue
            first = runs[0]["y0" if name.startswith("y") else "dx0"]
            assert got.tobytes() == first.tobytes(), f"{where}: not the bits of the kernel without a schedule"
            if name.startswith("y"):
                check(where, got, x @ w + b, np.abs(x) @ np.abs(w) + np.abs(b), rows + 1)
            else:
                check(where, got, dy @ w.T, np.abs(dy) @ np.abs(w.T), cols + 1)
