# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with sparse weights whose lines are of very different lengths, in the PTX interpreter, against float64.

    gpu_long_groups.py <chip> [<outputs>x<tokens>[/<blocks>x<blocks>] <case>...]

As gpu_products.py has them, on patterns with a full row and a full column, with rows and columns as
a power law has them, and without a block. Groups of lines that have much more to do than others are
cut: what the plan says of parts is checked, that some are cut, and that results are the same bits
when the step runs again.
"""

import os
import re
import sys

import gpu
import gpu_products
import numpy as np
import step

# Type, type of results, block, grid of blocks, tokens with batches, slots for one in how many blocks.
CASES = [
    ("bf16", "bf16", (16, 16), (40, 44), (72,), 5),
    ("f16", "f32", (32, 32), (24, 20), (2, 40), 5),
    ("bf16", "bf16", (64, 64), (20, 18), (136,), 5),
    ("bf16", "f32", (8, 8), (80, 96), (40,), 5),
    ("f16", "f16", (4, 4), (136, 144), (24,), 16),
    ("f32", "f32", (16, 16), (20, 24), (36,), 5),
    ("f32", "f32", (4, 8), (60, 40), (2, 20), 5),
    ("bf16", "bf16", (1, 1), (220, 200), (40,), 5),
    ("f32", "f32", (2, 2), (120, 100), (28,), 5),
    ("f16", "f16", (64, 32), (9, 20), (264,), 5),
]


def masks(random, grid, inverse):
    """Patterns that store at most one of `inverse` blocks: name and mask."""
    rows, cols = grid
    lines = random.random(grid) < 0.35 / inverse
    lines[rows // 2], lines[:, cols // 3] = True, True
    yield "lines", lines
    power = np.add.outer(np.arange(1, rows + 1) ** -0.8, np.arange(1, cols + 1) ** -0.8)
    yield "power", random.random(grid) < power * power.size / power.sum() / inverse / 2
    yield "none", np.zeros(grid, bool)


class PlanHost(gpu.Host):
    """Checks what is cut, as soon as it is known, and counts it."""

    numCut = 0

    def launch(self, path, entry, extents, arguments, values, folder):
        super().launch(path, entry, extents, arguments, values, folder)
        if extents[1:3] != ["1,1,1", "32,1,1"] or len(arguments) != 4:
            return
        arrays = {tuple(gpu.shape_of(type)[0]): values[name].view(np.int32).reshape(gpu.shape_of(type)[0]) for name, type in arguments}
        assert len(arrays) >= 3, f"expected arrays of a plan, but got {arguments}"
        tables = sorted((array for shape, array in arrays.items() if len(shape) == 2), key=len)
        groups, items = tables[0], tables[-1]
        whole, parts = items[:len(groups)], items[len(groups):]
        assert (parts[:, 3] <= 1).all() and groups[:, 1].sum() == (parts[:, 3] == 1).sum() <= len(parts), "expected all parts to be there"
        assert (whole[:, 0] == np.arange(len(groups))).all() and (parts[parts[:, 3] == 0] == 0).all()
        chunks = self.chunks(arguments, values, len(groups))
        for number, (first, count, *_) in enumerate(groups):
            assert (count == 0) == (whole[number, 3] == 1), "expected a group or its parts"
            ranges = parts[first:first + count] if count else whole[number:number + 1]
            assert (ranges[:, 0] == number).all() and ranges[0, 1] == 0 and ranges[-1, 2] == chunks[number], "expected all chunks"
            assert (ranges[1:, 1] == ranges[:-1, 2]).all(), "expected parts that follow each other"
            assert count == 0 or (ranges[:, 1] < ranges[:, 2]).all(), "expected parts with chunks"
        PlanHost.numCut += (groups[:, 1] > 0).sum()

    @staticmethod
    def chunks(arguments, values, groups):
        """The numbers of chunks, of the two arrays of as many numbers as groups those that are smaller."""
        vectors = [values[name].view(np.int32) for name, type in arguments if gpu.shape_of(type)[0] == (groups,)]
        assert len(vectors) == 2, f"expected chunks and costs, but got {arguments}"
        return min(vectors, key=lambda vector: vector.sum())


def run_case(kind, out, block, grid, tokens, inverse, random):
    slots = grid[0] * grid[1] // inverse
    compiled = step.compile(gpu_products.text(kind, out, block, grid, tokens, slots))
    planned = compiled.interpret(PlanHost)
    sign, count = gpu_products.what_is_expected(kind, block, grid, tokens)
    kernels = [part for part in compiled.ptx.split(".entry") if re.search(sign, part)]
    assert len(kernels) == count, f"expected {count} kernels with {sign}, but got {len(kernels)}"
    shape = tuple(g * b for g, b in zip(grid, block))
    PlanHost.numCut = 0
    for name, mask in masks(random, grid, inverse):
        assert mask.sum() <= slots, f"expected at most {slots} blocks, but got {mask.sum()}"
        order = random.permutation(slots)[:mask.sum()]
        dense = gpu_products.round_to(kind, random.standard_normal(shape)) * np.kron(mask, np.ones(block))
        x, g = (gpu_products.round_to(kind, random.standard_normal((*tokens[:-1], extent, tokens[-1]))) for extent in shape)
        b = gpu_products.round_to(out, random.standard_normal(shape[1]))
        values = step.to_values(dense, mask, block, slots, order)
        given = {"w": values, "x": x, "g": g}
        given = {key: gpu_products.store(kind, array) for key, array in given.items()} | {"b": gpu_products.store(out, b)}
        stored = [planned.run(given, {"w": mask}, {"w": order}) for _ in range(2 if name == "lines" else 1)]
        got = {key: gpu_products.load(out, array) for key, array in stored[0].items()}
        y, size, start = dense.T @ x, np.abs(dense).T @ np.abs(x), b[:, None]
        gpu_products.check(f"{name} y", got["y"], y, size, shape[0], out)
        gpu_products.check(f"{name} z", got["z"], y + start, size + np.abs(start), shape[0] + 1, out)
        gpu_products.check(f"{name} dx", got["dx"], dense @ g, np.abs(dense) @ np.abs(g), shape[1], out)
        for key in ("y", "z", "dx"):
            assert (stored[0][key] == stored[-1][key]).all(), f"{name} {key}: expected the same bits"
    assert PlanHost.numCut, "expected groups to be cut"
    return PlanHost.numCut


if __name__ == "__main__":
    chip, tile, *numbers = [*sys.argv[1:], "0x0"] if len(sys.argv) == 2 else sys.argv[1:]
    tile, _, share = tile.partition("/")
    os.environ["BSR_COMPILE"] = f"--target=gpu --chip={chip} --tile={tile}" + (f" --share={share}" if share else "")
    random = np.random.default_rng(1)
    for number, case in enumerate(CASES):
        if not numbers or str(number) in numbers:
            cut = run_case(*case, random)
            print(number, *case, cut, "cut, ok", flush=True)
