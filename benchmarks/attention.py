#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, forward and backward: this project's kernels and those of PyTorch and JAX.

    benchmarks/attention.py [--filter REGEX] [--impl NAME,...] [--threads N] [--rounds N] [--csv FILE] [--memory]
    benchmarks/attention.py --goals

prints a table; docs/attention.md explains it. Everything runs in one process, in turn, and
each result is compared with float64 before it is timed; --memory runs each implementation
once more, in a process of its own. What is not installed is left out with a note. --goals
prints what is aimed at beside what was measured, in a few minutes.
"""

import argparse
import csv
import importlib.util
import itertools
import json
import math
import os
import re
import subprocess
import sys
import time
import typing

import harness

BLOCK, FEATURES = 64, 64
HEADS = {128: (8, 12), 256: (4, 12), 512: (2, 12), 1024: (1, 12), 2048: (1, 4), 4096: (1, 4), 8192: (1, 2)}
IMPLEMENTATIONS = ["ours", "sdpa", "eager", "jax"]
SEED = 0


class Case(typing.NamedTuple):
    pattern: str  # dense, causal, window, bigbird or random
    density: float  # of blocks, as asked for
    tokens: int
    batch: int
    heads: int

    def __str__(self):
        return f"{self.pattern}/{self.density:g}/{self.tokens}"


def all_cases():
    for tokens, (batch, heads) in HEADS.items():
        yield Case("dense", 1, tokens, batch, heads)
        yield Case("causal", 0.5, tokens, batch, heads)
    for tokens in (1024, 4096, 8192):
        for pattern, density in [("window", 0.12), ("bigbird", 0.12), *(("random", d) for d in (0.5, 0.2, 0.12, 0.05))]:
            yield Case(pattern, density, tokens, *HEADS[tokens])


def make_stored(case, random):
    """Which blocks of queries by keys are stored: the diagonal always."""
    n = case.tokens // BLOCK
    rows, cols = np.indices((n, n))
    stored = rows == cols
    if case.pattern == "dense":
        return np.ones((n, n), bool)
    if case.pattern == "causal":
        return rows >= cols
    wanted = max(n, round(case.density * n * n))
    if case.pattern == "window":
        # Both ways, as wide as the density allows.
        return abs(rows - cols) <= max(0, (wanted - n) // (2 * n))
    if case.pattern == "bigbird":
        # The first block sees all and is seen by all; a window of three blocks; the rest at random.
        stored = (abs(rows - cols) <= 1) | (rows == 0) | (cols == 0)
    order = [i for i in random.permutation(n * n) if not stored.flat[i]]
    stored.flat[order[:max(0, wanted - int(stored.sum()))]] = True
    return stored


class Problem:
    """The operands of a case: `[batch, heads, tokens, features]`."""

    def __init__(self, case):
        random = np.random.default_rng(SEED)
        self.case, self.stored = case, make_stored(case, random)
        shape = (case.batch, case.heads, case.tokens, FEATURES)
        self.q, self.k, self.v, self.dy = (random.standard_normal(shape, dtype=np.float32) for _ in range(4))
        # Products of the stored blocks: two forward, five more backward.
        product = 2 * case.batch * case.heads * int(self.stored.sum()) * BLOCK * BLOCK * FEATURES
        self.flops = {"forward": 2 * product, "both": 7 * product}

    def mask(self):
        """Which keys a query sees, or None for all of them."""
        if self.case.pattern == "dense":
            return None
        if self.case.pattern == "causal":
            return np.tril(np.ones((self.case.tokens,) * 2, bool))
        return np.kron(self.stored, np.ones((BLOCK, BLOCK), bool))

    def check(self, name, results):
        """Compares y, dq, dk and dv of the last head with float64."""
        import references

        operands = (x[-1, -1].astype(np.float64) for x in (self.q, self.k, self.v, self.dy))
        mask = self.mask()
        wanted = references.attention(*operands, scale=1 / math.sqrt(FEATURES), live=True if mask is None else mask)
        for what, got in zip(("y", "dq", "dk", "dv"), results):
            want = getattr(wanted, what)
            error = np.abs(got[-1, -1] - want).max() / np.abs(want).max()
            if not error < 1e-5:
                sys.exit(f"error: expected {what} of {name} as in float64, but got a relative error of {error:.1e}")


#===------------------------------------------------------------------------===#
# Implementations: functions that run `forward` or `both`, one for results, and
# bytes of results and workspace that are there before the first run
#===------------------------------------------------------------------------===#


def step_source(case, stored, backward):
    b, h, t = case.batch, case.heads, case.tokens
    x = f"tensor<{b}x{h}x{t}x{FEATURES}xf32>"
    lse = f"tensor<2x{b}x{h}x{t}xf32>"
    of = {"q": "i, d", "k": "j, d", "v": "j, e", "y": "i, e", "dy": "i, e", "dq": "i, d", "dk": "j, d", "dv": "j, e"}
    head, body, clauses, types, maps = "", "", "", "", []
    if case.pattern == "causal":
        seen = f"tensor<{t}x{t}xi1>"
        body = f"""%e = tensor.empty() : {seen}
  %mask = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      outs(%e : {seen}) {{
  ^bb0(%o: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sge, %i, %j : index
    linalg.yield %c : i1
  }} -> {seen}
  """
        clauses, types, maps = " mask %mask", f", {seen}", ["i, j"]
    if case.pattern != "dense":
        pattern = f"!bsr.pattern<{t}x{t}, block = {BLOCK}x{BLOCK}, slots = {int(stored.sum())}>"
        head = f', %p: {pattern} {{bsr.name = "p", bsr.role = "pattern"}}'
        clauses, types = clauses + " pattern %p", f"{types}, {pattern}"
    clauses += f" scale = {1 / math.sqrt(FEATURES):e}"

    def attention(op, operands, results):
        names = [f"affine_map<(b, h, i, j, d, e) -> (b, h, {of[name]})>" for name in (*operands, *results) if name in of]
        names += [f"affine_map<(b, h, i, j, d, e) -> ({m})>" for m in maps]
        values = ", ".join(f"%{name}" for name in operands)
        ins = ", ".join(lse if name == "lse" else x for name in operands)
        outs = ", ".join(lse if name == "lse" else x for name in results)
        return (f"{', '.join(f'%{name}' for name in results)} = bsr.{op}({values}){clauses}\n"
                f"      maps = [{', '.join(names)}] : ({ins}{types}) -> ({outs})\n  ")

    results = ["y", "dq", "dk", "dv"] if backward else ["y"]
    body += attention("attention", ["q", "k", "v"], ["y", "lse"])
    if backward:
        body += attention("attention_grad", ["q", "k", "v", "y", "lse", "dy"], ["dq", "dk", "dv"])
    arguments = ", ".join(f'%{name}: {x} {{bsr.name = "{name}"}}' for name in ("q", "k", "v", "dy"))
    named = ", ".join(f'{x} {{bsr.name = "{name}"}}' for name in results)
    return (f"func.func @step({arguments}{head}) -> ({named}) {{\n  {body}"
            f"return {', '.join(f'%{name}' for name in results)} : {', '.join(x for _ in results)}\n}}\n")


def make_ours(problem, threads):
    runs, kept, outputs, arena = {}, [], [], 0
    arrays = {"q": problem.q, "k": problem.k, "v": problem.v, "dy": problem.dy}
    patterns = {} if problem.case.pattern == "dense" else {"p": problem.stored}
    for what in ("forward", "both"):
        compiled = harness.compile_step(step_source(problem.case, problem.stored, what == "both"))
        buffers, runs[what] = compiled.bind(arrays, patterns)
        kept.append(buffers)
        if hasattr(compiled.library, "omp_set_num_threads"):
            compiled.library.omp_set_num_threads(threads)
        outputs = [b for d, b in zip(compiled.manifest["buffers"], buffers) if d["kind"] == "output"]
        arena = compiled.manifest["arena_bytes"]
    return runs, lambda: kept and outputs, sum(b.nbytes for b in outputs) + arena


def make_torch(problem, threads, attend):
    import torch

    torch.set_num_threads(threads)
    q, k, v = (torch.from_numpy(x).requires_grad_() for x in (problem.q, problem.k, problem.v))
    dy = torch.from_numpy(problem.dy)
    last = []

    def forward():
        with torch.no_grad():
            attend(q, k, v)

    def both():
        y = attend(q, k, v)
        last[:] = [y.detach(), *torch.autograd.grad(y, (q, k, v), dy)]

    return {"forward": forward, "both": both}, lambda: [x.numpy() for x in last], 0


def make_sdpa(problem, threads):
    import torch
    import torch.nn.functional as F

    causal = problem.case.pattern == "causal"
    mask = None if causal or problem.mask() is None else torch.from_numpy(problem.mask())
    return make_torch(problem, threads, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal))


def make_causal(problem, threads):
    """SDPA with its causal flag, whatever the case: less than all scores, and other results."""
    import torch.nn.functional as F

    return make_torch(problem, threads, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))[0], list, 0


def make_eager(problem, threads):
    import torch

    unseen = None if problem.mask() is None else torch.from_numpy(~problem.mask())

    def attend(q, k, v):
        x = q @ k.transpose(-2, -1) * (1 / math.sqrt(FEATURES))
        if unseen is not None:
            x = x.masked_fill(unseen, -math.inf)
        return x.softmax(-1) @ v

    return make_torch(problem, threads, attend)


def make_jax(problem, threads):
    os.environ["JAX_PLATFORMS"] = "cpu"
    if threads != os.cpu_count() and clock is time.perf_counter:
        raise ImportError("JAX takes as many threads as there are processors")
    import jax
    import jax.numpy as jnp

    # Token-major, as its function wants it.
    q, k, v, dy = (jnp.asarray(x.swapaxes(1, 2)) for x in (problem.q, problem.k, problem.v, problem.dy))
    causal = problem.case.pattern == "causal"
    mask = None if causal or problem.mask() is None else jnp.asarray(problem.mask())[None, None]

    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=causal)

    def gradients(q, k, v, dy):
        y, pull = jax.vjp(attend, q, k, v)
        return [y, *pull(dy)]

    last = []
    compiled = jax.jit(attend).lower(q, k, v).compile(), jax.jit(gradients).lower(q, k, v, dy).compile()

    def both():
        last[:] = jax.block_until_ready(compiled[1](q, k, v, dy))

    return ({"forward": lambda: jax.block_until_ready(compiled[0](q, k, v)), "both": both},
            lambda: [np.asarray(x).swapaxes(1, 2) for x in last], 0)


#===------------------------------------------------------------------------===#
# Times, memory and the table
#===------------------------------------------------------------------------===#


def dense_rate(threads):
    """A function that takes a sample of the best dense product's FLOP/s: float32, 1024 cubed, NumPy's or PyTorch's.
    The best of three: threads of what ran before may still spin during the first."""
    n = 1024
    x, y, z = (np.ones((n, n), np.float32) for _ in range(3))
    products = [lambda: np.matmul(x, y, out=z)]
    try:
        import torch

        torch.set_num_threads(threads)
        a, b, c = map(torch.from_numpy, (x, y, z))
        products.append(lambda: torch.mm(a, b, out=c))
    except ImportError:
        pass

    def sample():
        return max(2 * n**3 / measure(product) for product in products * 3)

    return sample


# Seconds of the wall, or of the processors on a machine that others use.
clock = time.perf_counter


def measure(run, seconds=0.03):
    """Seconds of one call, of as many in a row as take `seconds`."""
    start, calls = clock(), 0
    while calls == 0 or clock() - start < seconds:
        run()
        calls += 1
    return (clock() - start) / calls


def peak_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def make(name, problem, threads):
    try:
        return globals()[f"make_{name}"](problem, threads)
    except ImportError as error:
        harness.note(f"no {name}: {error}")
        return None


def measure_memory(name, case, threads):
    """MiB that forward and backward of an implementation need more than operands and libraries, in a process of
    their own."""
    answer = subprocess.run([sys.executable, __file__, "--worker", name, "--filter", f"^{re.escape(str(case))}$",
                             "--threads", str(threads)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(answer.splitlines()[-1])


def work(name, case, threads):
    small = Problem(case._replace(tokens=128, batch=1, heads=1))
    make(name, small, threads)[0]["both"]()
    problem = Problem(case)
    # Masks are operands.
    runs, results, held = make(name, problem, threads)
    before = peak_bytes()
    runs["both"]()
    results()
    print(json.dumps((held + peak_bytes() - before) / 2**20))


def run_case(case, options, sample_rate):
    problem = Problem(case)
    made = {}
    for name in options.impl:
        # Eager attention and JAX keep several matrices of scores of every head.
        if name in ("eager", "jax") and case.batch * case.heads * case.tokens**2 * 4 > options.limit * 2**30:
            continue
        if found := make(name, problem, options.threads):
            found[0]["forward"]()
            found[0]["both"]()
            problem.check(f"{name} of {case}", found[1]())
            made[name] = found  # with the buffers, whose addresses alone a step has
    times = {(name, what): [] for name in made for what in ("forward", "both")}
    rates, quiet = [], harness.Quiet()
    for _ in range(options.rounds):
        for _ in range(harness.RETRIES):
            quiet.restart()
            round = {(name, what): measure(made[name][0][what]) for name, what in times}
            rate = sample_rate()
            if quiet.was_quiet():
                break
        rates.append(rate)
        for key, seconds in round.items():
            times[key].append(seconds)
    best = harness.median(rates)
    for name in made:
        row = {"case": str(case), "impl": name, "stored": f"{problem.stored.mean():.3f}"}
        # Each round compares with itself: what slows a machine down slows both.
        row["faster"] = {other: harness.median([p / s for p, s in zip(times[other, "both"], times[name, "both"])])
                         for other in made}
        for what in ("forward", "both"):
            seconds = harness.median(times[name, what])
            # Each round compares with itself: what slows a machine down slows both.
            against = [p / s for p, s in zip(times.get(("sdpa", what), []), times[name, what])]
            row[f"{what}_ms"] = f"{seconds * 1e3:.2f}"
            row[f"{what}_E"] = f"{problem.flops[what] / seconds / best:.2f}"
            row[f"{what}_x"] = f"{harness.median(against):.2f}" if against else "-"
        row["MiB"] = f"{measure_memory(name, case, options.threads):.1f}" if options.memory else "-"
        yield row


def print_goals(options, cases, sample_rate):
    """What is aimed at (forward and backward) beside what was measured, for the cases that have a goal."""
    if not importlib.util.find_spec("torch"):
        sys.exit("error: expected PyTorch, which goals compare with, but got none")

    def show(case, what, got, goal, most=False):
        met = got <= goal if most else got >= goal
        print(f"{case!s:>22} {what:<28} {got:>7.2f} {'<=' if most else '>='} {goal:<5g} {'met' if met else 'missed'}", flush=True)

    for case in cases:
        whole = case.pattern in ("dense", "causal") and case.tokens in (128, 256, 512, 1024, 4096)
        if not whole and str(case) != "window/0.12/4096":
            continue
        options.impl, options.memory = (["ours", "sdpa"], True) if whole else (["ours", "causal", "eager"], False)
        ours, *others = run_case(case, options, sample_rate)
        if whole:
            show(case, "times as fast as SDPA", ours["faster"]["sdpa"], 1.5 if case.tokens <= 256 else 1)
            show(case, "memory of SDPA's", float(ours["MiB"]) / float(others[0]["MiB"]), 1.1, most=True)
        else:
            show(case, "times as fast as causal SDPA", ours["faster"]["causal"], 5)
            show(case, "times as fast as eager", ours["faster"]["eager"], 15)
        show(case, "E", float(ours["both_E"]), 0.8)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", metavar="REGEX", help="cases whose name matches (--list prints all)")
    parser.add_argument("--impl", default=",".join(IMPLEMENTATIONS), metavar="NAME,...", help="what takes part")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="samples of each, of which the median counts")
    parser.add_argument("--limit", type=float, default=1, metavar="GIB",
                        help="leave out eager attention and JAX where a matrix of scores takes more")
    parser.add_argument("--processor-time", action="store_true",
                        help="count seconds of the processors: fit for one thread on a machine that others use")
    parser.add_argument("--goals", action="store_true", help="print what is aimed at beside what was measured")
    parser.add_argument("--memory", action="store_true", help="measure memory as well")
    parser.add_argument("--csv", metavar="FILE", help="where to write the table")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--patience", type=float, default=harness.patience, metavar="SECONDS",
                        help="how long to wait, in all, for others to leave the machine alone")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    harness.patience = options.patience
    cases = [case for case in all_cases() if re.search(options.filter, str(case))]
    if options.list:
        return print(*cases, sep="\n")
    if options.worker:
        return work(options.worker, cases[0], options.threads)
    options.impl = options.impl.split(",")
    for name in options.impl:
        if name not in IMPLEMENTATIONS:
            parser.error(f"expected --impl to name {', '.join(IMPLEMENTATIONS)}, but got '{name}'")
    if not cases:
        parser.error(f"expected --filter to match a case, but got '{options.filter}'")
    if options.processor_time:
        global clock
        clock = time.process_time
        harness.patience = 0
    harness.describe_machine(options.threads)
    sample_rate = dense_rate(options.threads)
    if options.goals:
        return print_goals(options, cases, sample_rate)
    print(f"{'pattern/density/tokens':>22} {'impl':>6} {'stored':>6} {'fwd ms':>9} {'E':>5} {'x SDPA':>7} "
          f"{'both ms':>9} {'E':>5} {'x SDPA':>7} {'MiB':>7}")
    rows = []
    for case in cases:
        for row in run_case(case, options, sample_rate):
            print(f"{row['case']:>22} {row['impl']:>6} {row['stored']:>6} {row['forward_ms']:>9} {row['forward_E']:>5} "
                  f"{row['forward_x']:>7} {row['both_ms']:>9} {row['both_E']:>5} {row['both_x']:>7} {row['MiB']:>7}",
                  flush=True)
            rows.append(row)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, [key for key in rows[0] if key != "faster"], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


# Threads are counted before NumPy is loaded.
if __name__ == "__main__":
    threads = next((b for a, b in itertools.pairwise(sys.argv) if a == "--threads"), os.cpu_count())
    harness.set_threads(threads)
    import numpy as np

    main()
