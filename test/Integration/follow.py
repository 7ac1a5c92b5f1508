# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What follows sparse products in their work items, compiled, against float64.

One step per block shape and element type holds products over several shapes of
activations, each with what may follow it: element-wise operations that read other
activations, sums over tokens, a value that another operation makes after the
product, results of another type. Errors are bounded as in kernels.py.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import step

GRID = (6, 5)
# Ragged ones, whole vectors of them, and more than a round of a kernel takes.
TOKENS = [((2, 20), 0), ((37,), 0), ((3, 24), 1), ((2, 80), 1), ((130,), 0)]
BLOCKS = [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (64, 64), (4, 8), (16, 1), (1, 16), (3, 6)]
CASES = [("f32", block, GRID) for block in BLOCKS]
# More blocks in a line than the cache holds.
CASES += [("f32", (16, 16), (40, 3)), ("bf16", (8, 8), GRID), ("bf16", (1, 4), GRID)]
ROUNDOFF = {"bf16": 2.0**-8, "f32": 2.0**-24}


class Case:
    def __init__(self, kind, block, grid):
        self.kind, self.block = kind, block
        self.grid = tuple(g * max(1, 4 // b) for g, b in zip(grid, block))
        self.shape = tuple(g * b for g, b in zip(self.grid, block))
        self.slots = self.grid[0] * self.grid[1]
        self.arguments, self.body, self.results, self.arrays, self.checks = [], [], [], {}, []
        self.random = np.random.default_rng(block)

    def tensor(self, shape, kind=None):
        return f"tensor<{''.join(f'{extent}x' for extent in shape)}{kind or self.kind}>"

    def store(self, array):
        return step.to_bf16(array) if self.kind == "bf16" else array.astype(np.float32)

    def load(self, array):
        array = step.from_bf16(array) if array.dtype == np.uint16 else array
        return array.astype(np.float64)

    def argument(self, name, shape):
        """An argument of random entries: its name, its type and its entries in float64."""
        stored = self.store(self.random.standard_normal(shape))
        self.arrays[name] = stored
        self.arguments.append(f'%{name}: {self.tensor(shape)} {{bsr.name = "{name}", bsr.role = "batch"}}')
        return f"%{name}", self.tensor(shape), self.load(stored)

    def generic(self, name, maps, kinds, operands, result, body):
        """An operation on (name, type) pairs; `result` is the type, `body` yields %r of %a, %b, ... and %o."""
        element, loops = result[result.rfind("x") + 1:-1], ", ".join(f"d{i}" for i in range(len(kinds)))
        maps = ", ".join(f"affine_map<({loops}) -> ({m})>" for m in maps)
        inits = f"%{name}_init"
        self.body.append(f"{inits}_e = tensor.empty() : {result}\n{name}_z = arith.constant 0.0 : {element}".replace(
            f"\n{name}_z", f"\n%{name}_z"))
        self.body.append(f"{inits} = linalg.fill ins(%{name}_z : {element}) outs({inits}_e : {result}) -> {result}")
        elements = [t[t.rfind("x") + 1:-1] for _, t in operands]
        block = ", ".join(f"%{chr(97 + i)}: {e}" for i, e in enumerate(elements))
        names, types = zip(*operands)
        self.body.append(
            f"%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{', '.join(kinds)}]}} "
            f"ins({', '.join(names)} : {', '.join(types)}) outs({inits} : {result}) {{\n"
            f"^bb0({block}, %o: {element}):\n{body}\nlinalg.yield %r : {element}\n}} -> {result}")
        return f"%{name}", result

    def result(self, value, check):
        name = value[0][1:]
        self.results.append((name, value[1]))
        self.checks.append((name, check))

    def follow(self, number, tokens, feature, transpose):
        """A product and what follows it, which depends on `number`."""
        tag = f"{number}{'t' if transpose else ''}"
        rows, cols = self.shape[::-1] if transpose else self.shape
        at = lambda features: tokens[:feature] + (features,) + tokens[feature:]
        x, h, b = (self.argument(f"{letter}{tag}", shape)
                   for letter, shape in (("x", at(rows)), ("h", at(cols)), ("b", (cols,))))
        flat = lambda array: np.moveaxis(array, feature, -1).reshape(-1, array.shape[feature])
        kind, type = self.kind, h[1]
        bias = f" bias {b[0]}" if number % 2 else ""
        self.body.append(
            f"%y{tag} = bsr.spmm %p, %w, {x[0]}{bias}{' transpose' if transpose else ''} feature_dim = {feature} : "
            f"{self.pattern}, {self.weight}, {x[1]}{', ' + b[1] if bias else ''} -> {type}")
        y = f"%y{tag}", type
        rank = len(tokens) + 1
        same, parallel = ", ".join(f"d{i}" for i in range(rank)), ['"parallel"'] * rank
        sums = ['"parallel"' if i == feature else '"reduction"' for i in range(rank)]
        # Made after the product, and read by what follows it.
        late = self.generic(f"l{tag}", [same, same], parallel, [h[:2]], type,
                            f"%s = math.tanh %a : {kind}\n%r = arith.negf %s : {kind}")
        r = self.generic(f"r{tag}", [same] * 4, parallel, [y, late, h[:2]], type,
                         f"%t = math.tanh %a : {kind}\n%m = arith.mulf %t, %c : {kind}\n"
                         f"%n = arith.addf %m, %a : {kind}\n%r = arith.addf %n, %b : {kind}")
        wider = {"bf16": "f32", "f32": "f64"}[kind]
        wide = self.generic(f"f{tag}", [same] * 2, parallel, [r], self.tensor(at(cols), wider),
                            f"%e = arith.extf %a : {kind} to {wider}\n%r = arith.mulf %e, %e : {wider}")
        widen, a = ("", "%a") if kind == "f32" else (f"%e = arith.extf %a : {kind} to f32\n", "%e")
        total = self.generic(f"s{tag}", [same, f"d{feature}"], sums, [r], self.tensor((cols,), "f32"),
                             f"{widen}%r = arith.addf {a}, %o : f32")

        def want(dense):
            w = dense.T if transpose else dense
            start = b[2] if bias else np.zeros(cols)
            u, terms, o = ROUNDOFF["f32"], w.shape[0] + 1, ROUNDOFF[kind]
            exact = flat(x[2]) @ w + start
            error = terms * u / (1 - terms * u) * (np.abs(flat(x[2])) @ np.abs(w) + np.abs(start)) + o * np.abs(exact)
            g = flat(h[2])
            value = np.tanh(exact) * g + exact - np.tanh(g)
            # Roundings of up to eight units each, of three terms and their sums.
            error = error * (np.abs(g) + 1) + 8 * o * (np.abs(g) + np.abs(exact) + 1) * 3
            return value, error

        def check_value(got, dense):
            value, error = want(dense)
            assert (np.abs(flat(self.load(got)) - value) <= error).all(), "element-wise operations are wrong"

        def check_wide(got, dense):
            value, error = want(dense)
            error = (2 * np.abs(value) + error) * error + ROUNDOFF["f32"] * value**2
            assert (np.abs(flat(self.load(got)) - value**2) <= error).all(), "results of another type are wrong"

        def check_total(got, dense):
            value, error = want(dense)
            bound = error.sum(0) + len(value) * 2 * ROUNDOFF["f32"] * np.abs(value).sum(0)
            assert (np.abs(self.load(got) - value.sum(0)) <= bound).all(), "sums over tokens are wrong"

        def check_product(got, dense):
            w = dense.T if transpose else dense
            exact = flat(x[2]) @ w + (b[2] if bias else 0)
            size = np.abs(flat(x[2])) @ np.abs(w) + np.abs(b[2])
            bound = (w.shape[0] + 1) * 2 * ROUNDOFF["f32"] * size + ROUNDOFF[kind] * 2 * np.abs(exact)
            assert (np.abs(flat(self.load(got)) - exact) <= bound).all(), "the product is wrong"

        # The product lies in its own buffer, in that of a result, or in memory of the kernel.
        kept = [(r, check_value), (total, check_total)]
        self_kept = [[(y, check_product)] + kept, kept, [(total, check_total)],
                     [(wide, check_wide), (total, check_total)], [(r, check_value)]]
        for value, check in self_kept[number % len(self_kept)]:
            self.result(value, check)

    def compile(self):
        self.pattern = (f"!bsr.pattern<{self.shape[0]}x{self.shape[1]}, "
                        f"block = {self.block[0]}x{self.block[1]}, slots = {self.slots}>")
        self.weight = self.tensor((self.slots,) + self.block)
        # Most memory is live before the products: nothing is computed again behind them.
        ends = [self.argument(name, (2, 2048)) for name in "uv"]
        outer = self.generic("outer", ["d2, d0", "d2, d1", "d0, d1"], ['"parallel"'] * 2 + ['"reduction"'],
                             [end[:2] for end in ends], self.tensor((2048, 2048)),
                             f"%m = arith.mulf %a, %b : {self.kind}\n%r = arith.addf %m, %o : {self.kind}")
        largest = self.generic("largest", ["d0, d1", "d1"], ['"reduction"', '"parallel"'], [outer],
                               self.tensor((2048,)), f"%r = arith.maximumf %a, %o : {self.kind}")
        self.result(largest, lambda got, _: np.testing.assert_array_less(-1, self.load(got)))
        for number, (tokens, feature) in enumerate(TOKENS):
            for transpose in (False, True):
                self.follow(number, tokens, feature, transpose)
        arguments = [f'%w: {self.weight} {{bsr.name = "w", bsr.pattern = 1 : i64, bsr.role = "param"}}',
                     f'%p: {self.pattern} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 1.0}}']
        types = ", ".join(f'{type} {{bsr.name = "{name}"}}' for name, type in self.results)
        lines = self.body + [f"return {', '.join('%' + name for name, _ in self.results)} : "
                             f"{', '.join(type for _, type in self.results)}"]
        return step.compile(f"func.func @step({', '.join(arguments + self.arguments)}) -> ({types}) {{\n"
                            + "\n".join(lines) + "\n}", ["--timers"])

    def check(self, compiled, label, mask, order):
        covered = np.kron(mask, np.ones(self.block)).astype(bool)
        dense = np.where(covered, self.load(self.store(self.random.standard_normal(self.shape) / 4)), 0)
        values = step.to_values(dense, mask, self.block, self.slots, order)
        arrays = {"w": self.store(values), **self.arrays}
        where = f"{self.kind} {self.block} {label}"
        runs = [compiled.run(arrays, {"w": mask}, {"w": order}, threads=threads) for threads in (1, 2, 2)]
        for name, check in self.checks:
            for run in runs[1:]:
                assert run[name].tobytes() == runs[0][name].tobytes(), f"{where}: {name}: not the same bits"
            try:
                check(runs[0][name], dense)
            except AssertionError as error:
                raise AssertionError(f"{where}: {name}: {error}") from error


cases = [Case(*case) for case in CASES]
with ThreadPoolExecutor(2) as pool:
    for case, compiled in zip(cases, pool.map(Case.compile, cases)):
        alone = [kernel["operands"] for kernel in compiled.manifest["timers"] if not kernel["kind"].startswith("spmm")]
        assert len(alone) == 3, f"expected what follows products in their kernels, but got kernels of {alone}"
        random = np.random.default_rng(1)
        scattered = random.random(case.grid) < 0.4
        scattered[1, :] = scattered[:, 2] = False
        for label, mask, order in [("random", scattered, random.permutation(case.slots)[:scattered.sum()]),
                                   ("full", np.ones(case.grid, bool), np.arange(case.slots)),
                                   ("no block", np.zeros(case.grid, bool), np.arange(0))]:
            case.check(compiled, label, mask, order)
