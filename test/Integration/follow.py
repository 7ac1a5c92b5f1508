# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What follows products in their work items, compiled, against float64.

One step per block shape, or shape of a dense matrix, and element type holds products
over several shapes of activations, each with what may follow it: element-wise operations that read other
activations, sums over tokens, a value that another operation makes after the
product, results of another type. Errors are bounded as in operations.py.
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
# Dense matrices: summands in one go, in chunks, of halves.
DENSE_CASES = [("f32", (24, 20)), ("f32", (9, 33)), ("f32", (700, 40)), ("bf16", (64, 48))]
ROUNDOFF = {"bf16": 2.0**-8, "f32": 2.0**-24}


class Case:
    def __init__(self, kind, block, grid):
        self.kind, self.operand_kind, self.block = kind, kind, block
        self.grid = tuple(g * max(1, 4 // b) for g, b in zip(grid, block))
        self.shape = tuple(g * b for g, b in zip(self.grid, block))
        self.slots = self.grid[0] * self.grid[1]
        self.arguments, self.body, self.results, self.arrays, self.checks = [], [], [], {}, []
        self.random = np.random.default_rng(block)

    # Kernels without a product of this kind: of the step itself, and for its peak of memory.
    alone = 3

    def is_alone(self, kernel):
        return not kernel["kind"].startswith("spmm")

    def tensor(self, shape, kind=None):
        return f"tensor<{''.join(f'{extent}x' for extent in shape)}{kind or self.kind}>"

    def store(self, array, kind=None):
        return step.to_bf16(array) if (kind or self.kind) == "bf16" else array.astype(np.float32)

    def load(self, array):
        array = step.from_bf16(array) if array.dtype == np.uint16 else array
        return array.astype(np.float64)

    def argument(self, name, shape, kind=None):
        """An argument of random entries: its name, its type and its entries in float64."""
        stored = self.store(self.random.standard_normal(shape), kind)
        self.arrays[name] = stored
        self.arguments.append(f'%{name}: {self.tensor(shape, kind)} {{bsr.name = "{name}", bsr.role = "batch"}}')
        return f"%{name}", self.tensor(shape, kind), self.load(stored)

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

    def multiply(self, tag, x, bias, type, feature, transpose):
        """The product of `x`, started from `bias` if there is one."""
        operand = f" bias {bias[0]}" if bias else ""
        self.body.append(
            f"%y{tag} = bsr.spmm %p, %w, {x[0]}{operand}{' transpose' if transpose else ''} feature_dim = {feature} : "
            f"{self.pattern}, {self.weight}, {x[1]}{', ' + bias[1] if bias else ''} -> {type}")
        return f"%y{tag}", type

    def follow(self, number, tokens, feature, transpose):
        """A product and what follows it, which depends on `number`."""
        tag = f"{number}{'t' if transpose else ''}"
        rows, cols = self.shape[::-1] if transpose else self.shape
        at = lambda features: tokens[:feature] + (features,) + tokens[feature:]
        x = self.argument(f"x{tag}", at(rows), self.operand_kind)
        h, b = (self.argument(f"{letter}{tag}", shape) for letter, shape in (("h", at(cols)), ("b", (cols,))))
        flat = lambda array: np.moveaxis(array, feature, -1).reshape(-1, array.shape[feature])
        kind, type = self.kind, h[1]
        bias = b if number % 2 else None
        y = self.multiply(tag, x, bias, type, feature, transpose)
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

    def declare_weight(self):
        self.pattern = (f"!bsr.pattern<{self.shape[0]}x{self.shape[1]}, "
                        f"block = {self.block[0]}x{self.block[1]}, slots = {self.slots}>")
        self.weight = self.tensor((self.slots,) + self.block)
        return [f'%w: {self.weight} {{bsr.name = "w", bsr.pattern = 1 : i64, bsr.role = "param"}}',
                f'%p: {self.pattern} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 1.0}}']

    def compile(self):
        arguments = self.declare_weight()
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
        types = ", ".join(f'{type} {{bsr.name = "{name}"}}' for name, type in self.results)
        lines = self.body + [f"return {', '.join('%' + name for name, _ in self.results)} : "
                             f"{', '.join(type for _, type in self.results)}"]
        return step.compile(f"func.func @step({', '.join(arguments + self.arguments)}) -> ({types}) {{\n"
                            + "\n".join(lines) + "\n}", ["--timers"])

    def compare(self, compiled, where, dense, *bound):
        """Runs the step on 1 and 2 threads, and compares it with what `dense` makes."""
        runs = [compiled.run(*bound, threads=threads) for threads in (1, 2, 2)]
        for name, check in self.checks:
            for run in runs[1:]:
                assert run[name].tobytes() == runs[0][name].tobytes(), f"{where}: {name}: not the same bits"
            try:
                check(runs[0][name], dense)
            except AssertionError as error:
                raise AssertionError(f"{where}: {name}: {error}") from error

    def run(self, compiled):
        random = np.random.default_rng(1)
        scattered = random.random(self.grid) < 0.4
        scattered[1, :] = scattered[:, 2] = False
        for label, mask, order in [("random", scattered, random.permutation(self.slots)[:scattered.sum()]),
                                   ("full", np.ones(self.grid, bool), np.arange(self.slots)),
                                   ("no block", np.zeros(self.grid, bool), np.arange(0))]:
            self.run_pattern(compiled, label, mask, order)

    def run_pattern(self, compiled, label, mask, order):
        covered = np.kron(mask, np.ones(self.block)).astype(bool)
        dense = np.where(covered, self.load(self.store(self.random.standard_normal(self.shape) / 4)), 0)
        values = step.to_values(dense, mask, self.block, self.slots, order)
        arrays = {"w": self.store(values), **self.arrays}
        self.compare(compiled, f"{self.kind} {self.block} {label}", dense, arrays, {"w": mask}, {"w": order})


class DenseCase(Case):
    """A dense matrix; halves are multiplied with sums of f32, as frameworks do."""

    def __init__(self, kind, shape):
        super().__init__("f32", (1, 1), (1, 1))
        self.operand_kind, self.shape = kind, shape

    alone = 2

    def is_alone(self, kernel):
        return kernel["kind"] != "dense"

    def declare_weight(self):
        self.name, self.weight, self.dense = self.argument("w", self.shape, self.operand_kind)
        return []

    def multiply(self, tag, x, bias, type, feature, transpose):
        # Loops: those of the result, and the summands.
        rank = type.count("x")
        result = [f"d{i}" for i in range(rank)]
        summand = f"d{rank}"
        operand = result[:feature] + [summand] + result[feature + 1:]
        matrix = [result[feature], summand] if transpose else [summand, result[feature]]
        kind = self.operand_kind
        widen = "" if kind == "f32" else f"%c = arith.extf %a : {kind} to f32\n%e = arith.extf %b : {kind} to f32\n"
        a, b = ("%a", "%b") if kind == "f32" else ("%c", "%e")
        y = self.generic(f"y{tag}", [", ".join(m) for m in (operand, matrix, result)],
                         ['"parallel"'] * rank + ['"reduction"'], [x[:2], (self.name, self.weight)], type,
                         f"{widen}%m = arith.mulf {a}, {b} : f32\n%r = arith.addf %m, %o : f32")
        if not bias:
            return y
        return self.generic(f"z{tag}", [", ".join(result), result[feature], ", ".join(result)],
                            ['"parallel"'] * rank, [y, bias[:2]], type, "%r = arith.addf %a, %b : f32")

    def run(self, compiled):
        self.compare(compiled, f"dense {self.operand_kind} {self.shape}", self.dense, self.arrays)


cases = [Case(*case) for case in CASES] + [DenseCase(*case) for case in DENSE_CASES]
with ThreadPoolExecutor(2) as pool:
    for case, compiled in zip(cases, pool.map(Case.compile, cases)):
        alone = [kernel["operands"] for kernel in compiled.manifest["timers"] if case.is_alone(kernel)]
        # Plain loops have an operation each.
        assert step.is_scalar() or len(alone) == case.alone, \
            f"expected what follows products in their kernels, but got kernels of {alone}"
        case.run(compiled)
