# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every operation of the dialect, compiled, against dense masked products in float64.

One step per block shape and element type holds all operations; it runs on every
pattern. Where an operation rounds, the error is bounded element by element: a sum
of n products taken with unit roundoff u differs from the exact one by at most
n u / (1 - n u) times the sum of magnitudes, and the rounding to the result's type
adds its own unit roundoff times the result. Everything else must be exact.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import step

GRID = (6, 5)
# Ragged ones, whole vectors of them, and more than a round of a kernel takes.
TOKENS = [(2, 20), (37,), (1,), (), (3, 24), (2, 512)]
BLOCKS = [(1, 1), (4, 4), (8, 8), (16, 16), (32, 32), (64, 64), (4, 8), (16, 1), (1, 16), (3, 6),
          (1, 2), (2, 1), (1, 8), (8, 1)]
CASES = [("f32", block) for block in BLOCKS]
CASES += [(kind, block) for kind in ("f16", "bf16", "f64") for block in [(4, 8), (8, 8)]]
CASES += [("bf16", block) for block in [(1, 1), (16, 16), (64, 64), (16, 1)]]
# A work item has several lines.
CASES += [("f32", (8, 16), (70, 40))]
# Instructions for pairs of bf16: blocks with and without pairs, and one of a line that is no tile.
if step.has_pairs():
    CASES = [("bf16", block) for block in
             [(1, 1), (2, 1), (1, 2), (4, 8), (8, 8), (16, 16), (64, 64), (16, 1), (6, 3), (10, 14)]]
# Tiles of bf16: blocks of one and of several, in rows and columns, two blocks in a tile, and blocks that are no tiles.
elif step.has_tiles():
    CASES = [("bf16", block) for block in
             [(16, 16), (32, 32), (64, 64), (16, 32), (32, 16), (48, 96), (16, 128), (24, 16)]]
    TOKENS = [(37,), (320,), (2, 128), (3, 100)]
# What other vectors do differently, every other case shows, and every other number of tokens.
elif "--vector-bits" in os.environ.get("BSR_COMPILE", ""):
    CASES, TOKENS = CASES[::2], [(2, 20), (1,), (2, 512)]
# And what other levels of optimization do, every other number of tokens.
if "-O1" in os.environ.get("BSR_COMPILE", "").split() and not step.has_tiles():
    TOKENS = TOKENS[1::2] if len(TOKENS) > 3 else TOKENS
# Plain loops are slow.
if step.is_scalar():
    TOKENS = [(2, 20), (1,), (2, 512)]
    CASES = [case for case in CASES if np.prod(case[1]) <= 64]
ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
TINIEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}
VOCABULARY, FEATURES = 11, 13


class Case:
    """A step with all operations on one pattern type, and what it computes."""

    def __init__(self, kind, block, grid=None):
        self.kind, self.block = kind, block
        # Small blocks: more of them. More rows than columns, or else fewer: kernels differ.
        lines = GRID[::-1] if block[0] < block[1] else GRID
        self.grid = grid or tuple(g * max(1, 4 // b) for g, b in zip(lines, block))
        self.only_vectors = grid is not None
        self.shape = tuple(g * b for g, b in zip(self.grid, block))
        self.slots = self.grid[0] * self.grid[1]
        self.pattern = (f"!bsr.pattern<{self.shape[0]}x{self.shape[1]}, "
                        f"block = {block[0]}x{block[1]}, slots = {self.slots}>")
        self.arguments, self.body, self.results, self.checks = [], [], [], []

    def tensor(self, shape, kind=None):
        return f"tensor<{''.join(f'{extent}x' for extent in shape)}{kind or self.kind}>"

    def argument(self, name, shape, kind=None):
        self.arguments.append(
            f'%{name}: {self.tensor(shape, kind)} {{bsr.name = "{name}", bsr.role = "batch"}}')
        return f"%{name}", self.tensor(shape, kind)

    def result(self, operation, operands, attributes, shape, check, kind=None):
        """Adds `operation` with a result of `shape` that `check` looks at."""
        name = f"r{len(self.results)}"
        to = self.tensor(shape, kind)
        types = ", ".join(type for _, type in operands)
        self.body.append(f"%{name} = bsr.{operation} {attributes} : {types} -> {to}")
        self.results.append((name, to))
        self.checks.append((name, f"{operation} {attributes}", check))

    def round(self, array):
        """`array` in float64, but with values of this element type."""
        if self.kind == "bf16":
            return step.from_bf16(step.to_bf16(array)).astype(np.float64)
        return array.astype(step.TYPES[self.kind]).astype(np.float64)

    def store(self, array):
        """`array` as a buffer of this element type."""
        return step.to_bf16(array) if self.kind == "bf16" else array.astype(step.TYPES[self.kind])

    def load(self, array):
        return step.from_bf16(array).astype(np.float64) if self.kind == "bf16" else array.astype(np.float64)

    def check_sum(self, got, want, magnitudes, terms, roundoff=None):
        """Checks a sum of `terms` products; in f64 the reference rounds as well."""
        u = roundoff or (ROUNDOFF["f64"] if self.kind == "f64" else ROUNDOFF["f32"])
        bound = terms * u / (1 - terms * u) * magnitudes * (2 if self.kind == "f64" else 1)
        bound += ROUNDOFF[self.kind] * (np.abs(want) + bound) + TINIEST[self.kind]
        error = np.abs(self.load(got) - want)
        assert (error <= bound).all(), f"error {np.max(error - bound)} above the bound"

    def check_exact(self, got, want):
        np.testing.assert_array_equal(self.load(got), self.load(self.store(want)))

    def add_products(self, random, pattern, values):
        biases = []
        for name, extent in zip(("bias_t", "bias"), self.shape):
            start = self.round(random.standard_normal(extent))
            self.arrays[name] = self.store(start)
            biases.insert(0, (start, self.argument(name, (extent,))))
        for number, tokens in enumerate(TOKENS):
            for feature in range(len(tokens) + 1):
                shapes = [tokens[:feature] + (extent,) + tokens[feature:] for extent in self.shape]
                data = [self.round(random.standard_normal(shape)) for shape in shapes]
                names = [f"{letter}{number}_{feature}" for letter in "xy"]
                x, y = (self.argument(name, shape) for name, shape in zip(names, shapes))
                self.arrays.update({n: self.store(d) for n, d in zip(names, data)})
                # Features last, as matrices of tokens.
                flat = [np.moveaxis(d, feature, -1).reshape(-1, d.shape[feature]) for d in data]
                for transpose in (False, True):
                    def spmm(got, dense, _, transpose=transpose, feature=feature, flat=flat):
                        w = dense.T if transpose else dense
                        a = flat[transpose]
                        got = np.moveaxis(got, feature, -1).reshape(-1, w.shape[1])
                        self.check_sum(got, a @ w, np.abs(a) @ np.abs(w), w.shape[0])
                    words = "transpose " if transpose else ""
                    operand = y if transpose else x
                    self.result("spmm", [pattern, values, operand],
                                f"%p, %w, {operand[0]} {words}feature_dim = {feature}",
                                shapes[not transpose], spmm)
                    start, bias = biases[transpose]

                    def spmm_bias(got, dense, _, transpose=transpose, feature=feature, flat=flat, start=start):
                        w = dense.T if transpose else dense
                        a = flat[transpose]
                        got = np.moveaxis(got, feature, -1).reshape(-1, w.shape[1])
                        self.check_sum(got, a @ w + start, np.abs(a) @ np.abs(w) + np.abs(start), w.shape[0] + 1)
                    if number in (0, 3, 5) and feature == 0:
                        self.result("spmm", [pattern, values, operand, bias],
                                    f"%p, %w, {operand[0]} bias {bias[0]} {words}feature_dim = {feature}",
                                    shapes[not transpose], spmm_bias)

                def sddmm(got, _, place, flat=flat):
                    a, b = flat
                    got, want, size = (place(got), a.T @ b, np.abs(a).T @ np.abs(b))
                    self.check_sum(self.store(np.where(np.isnan(got), want, got)), want, size, len(a))
                self.result("sddmm", [pattern, x, y], f"%p, {x[0]}, {y[0]} feature_dim = {feature}",
                            (self.slots,) + self.block, sddmm)

                blocks = tuple(s // b for s, b in zip(self.shape, self.block))
                norm = ("l1", "l2", "linf")[(number + feature) % 3]

                def scores(got, *_, norm=norm, flat=flat):
                    self.check_scores(got, *flat, norm)
                self.result("block_scores", [x, y], f"{norm} {x[0]}, {y[0]} feature_dim = {feature}",
                            blocks, scores, kind="f32")

    def check_scores(self, got, a, b, norm):
        """Checks norms of the blocks of the product of `a` and `b`, summed up in f32 (or f64)."""
        size, u = np.prod(self.block), ROUNDOFF["f64" if self.kind == "f64" else "f32"]
        bound = len(a) * u / (1 - len(a) * u) * (np.abs(a).T @ np.abs(b))
        take = {"l1": lambda m: np.abs(m).sum((1, 3)), "l2": lambda m: np.sqrt((m**2).sum((1, 3))),
                "linf": lambda m: np.abs(m).max((1, 3))}[norm]
        cut = lambda m: m.reshape(got.shape[0], self.block[0], got.shape[1], self.block[1])
        want, error = take(cut(a.T @ b)), take(cut(bound))
        error = 2 * error + (2 * size * u + ROUNDOFF["f32"]) * (want + error) + TINIEST["f32"]
        assert got.dtype == np.float32 and (np.abs(got - want) <= error).all(), f"{norm} of blocks off"

    def add_conversions(self, random, pattern, values):
        background = self.argument("background", ())
        self.arrays["background"] = self.store(np.float64(-2.5))
        for transpose in (False, True):
            words = " transpose" if transpose else ""
            shape = self.shape[::-1] if transpose else self.shape
            for with_background in (False, True):
                def to_dense(got, dense, place, transpose=transpose, back=-2.5 * with_background):
                    want = np.where(self.covered, dense, back)
                    self.check_exact(got, want.T if transpose else want)
                operands = [pattern, values] + [background] * with_background
                words_here = " background %background" * with_background + words
                self.result("to_dense", operands, f"%p, %w{words_here}", shape, to_dense)
            name = f"dense{transpose:d}"
            matrix = self.round(random.standard_normal(shape))
            self.arrays[name] = self.store(matrix)
            argument = self.argument(name, shape)

            def sample(got, _, place, matrix=matrix.T if transpose else matrix):
                got = place(got)
                self.check_exact(self.store(got[self.covered]), matrix[self.covered])
            self.result("sample", [pattern, argument], f"%p, {argument[0]}{words}",
                        (self.slots,) + self.block, sample)
        self.result("live", [pattern], "%p", (self.slots,),
                    lambda got, *_: np.testing.assert_array_equal(got, self.live), kind="i1")
        self.result("num_absent", [pattern], "%p", (),
                    lambda got, *_: self.check_exact(got, np.float64((~self.covered).sum())))

    def add_vectors(self, random, pattern, values):
        nan = self.argument("nan", ())
        self.arrays["nan"] = self.store(np.float64(np.nan))
        backgrounds = [(None, 0.0), (("%background", nan[1]), -2.5), (nan, np.nan)]
        for dim, extent in enumerate(self.shape):
            vec = self.round(random.standard_normal(extent))
            self.arrays[f"vec{dim}"] = self.store(vec)
            argument = self.argument(f"vec{dim}", (extent,))
            shape = [self.slots, *self.block]
            shape[2 - dim] = 1

            def sample_vec(got, _, place, vec=np.expand_dims(vec, 1 - dim)):
                got = place(np.broadcast_to(got, (self.slots, *self.block)))
                want = np.broadcast_to(vec, self.shape)
                self.check_exact(self.store(got[self.covered]), want[self.covered])
            self.result("sample_vec", [pattern, argument], f"%p, {argument[0]} dim = {dim}", shape, sample_vec)

            for background, number in backgrounds:
                def reduce_vec(got, dense, _, dim=dim, number=number):
                    absent = (~self.covered).sum(1 - dim)
                    extra = np.where(absent == 0, 0, absent * number)
                    assert (np.isnan(self.load(got)) == np.isnan(extra)).all(), "NaN only where entries are absent"
                    known = ~np.isnan(extra)
                    self.check_sum(got[known], (dense.sum(1 - dim) + extra)[known],
                                   (np.abs(dense).sum(1 - dim) + np.abs(extra))[known], self.shape[1 - dim] + 2)
                operands = [pattern, values] + [background] * (background is not None)
                word = f" background {background[0]}" if background else ""
                self.result("reduce_vec", operands, f"%p, %w{word} dim = {dim}", (extent,), reduce_vec)

    def add_scatters(self, random):
        for number, (kind, tokens, feature) in enumerate([("i32", (2, 20), 2), ("i64", (37,), 0), ("i32", (3, 5), 1)]):
            ids = random.integers(-2, VOCABULARY + 2, tokens)
            shape = tokens[:feature] + (FEATURES,) + tokens[feature:]
            updates = self.round(random.standard_normal(shape))
            self.arrays[f"ids{number}"], self.arrays[f"u{number}"] = ids.astype(step.TYPES[kind]), self.store(updates)
            operands = [self.argument(f"ids{number}", tokens, kind), self.argument(f"u{number}", shape)]

            def scatter(got, *_, ids=ids, flat=np.moveaxis(updates, feature, -1).reshape(-1, FEATURES)):
                hot = (ids.reshape(-1, 1) == np.arange(VOCABULARY)).astype(np.float64)
                terms = int(hot.sum(0).max())
                self.check_sum(got, hot.T @ flat, hot.T @ np.abs(flat), terms, ROUNDOFF[self.kind])
            self.result("scatter_add", operands,
                        f"%ids{number}, %u{number} feature_dim = {feature}", (VOCABULARY, FEATURES), scatter)

    def compile(self):
        random = np.random.default_rng(self.block)
        self.arrays = {}
        self.argument("w", (self.slots,) + self.block)
        self.arguments[0] = self.arguments[0].replace("}", ", bsr.pattern = 1 : i64}").replace("batch", "param")
        self.arguments.append(f'%p: {self.pattern} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 1.0}}')
        operands = ("%p", self.pattern), ("%w", self.tensor((self.slots,) + self.block))
        self.add_conversions(random, *operands)
        self.add_vectors(random, *operands)
        if not self.only_vectors:
            self.add_products(random, *operands)
            self.add_scatters(random)
        types = ", ".join(f'{type} {{bsr.name = "{name}"}}' for name, type in self.results)
        lines = self.body + [f"return {', '.join('%' + name for name, _ in self.results)} : "
                             f"{', '.join(type for _, type in self.results)}"]
        return step.compile(f"func.func @step({', '.join(self.arguments)}) -> ({types}) {{\n"
                            + "\n".join(lines) + "\n}")

    def check(self, compiled, random, label, mask, order):
        self.covered = np.kron(mask, np.ones(self.block)).astype(bool)
        self.live = np.zeros(self.slots, bool)
        self.live[order] = True
        dense = np.where(self.covered, self.round(random.standard_normal(self.shape)), 0)
        values = step.to_values(dense, mask, self.block, self.slots, order)
        arrays = {"w": self.store(values), **self.arrays}
        if self.kind == "bf16":
            arrays["w"][~self.live] = 0x7FC0
        runs = [compiled.run(arrays, {"w": mask}, {"w": order}, threads=threads) for threads in (1, 2, 5)]

        def place(got):
            """The matrix of stored blocks, NaN elsewhere."""
            placed = step.to_dense(self.load(got), mask, order)
            return np.where(self.covered, placed, np.nan)

        for name, operation, check in self.checks:
            where = f"{self.kind} {self.block} {label}: {operation}"
            for run in runs[1:]:
                assert run[name].tobytes() == runs[0][name].tobytes(), f"{where}: not the same bits"
            try:
                check(runs[0][name], dense, place)
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from error


def patterns(random, grid):
    """Masks of blocks, and the slots of the blocks in row order."""
    count = grid[0] * grid[1]
    scattered = random.random(grid) < 0.4
    holes = random.random(grid) < 0.6
    holes[1, :] = holes[:, 2] = False
    one = np.zeros(grid, bool)
    one[grid[0] - 1, 1] = True
    masks = {"random": scattered, "empty row and column": holes, "full": np.ones(grid, bool),
             "one block": one, "no block": np.zeros(grid, bool)}
    for label, mask in masks.items():
        yield label, mask, np.arange(mask.sum())
    yield "permuted slots", scattered, random.permutation(count)[:scattered.sum()]


cases = [Case(*case) for case in step.share(CASES)]
with ThreadPoolExecutor(2) as pool:
    for case, compiled in zip(cases, pool.map(Case.compile, cases)):
        random = np.random.default_rng(1)
        for label, mask, order in patterns(random, case.grid):
            case.check(compiled, random, label, mask, order)
