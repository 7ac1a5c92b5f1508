#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler takes: processor seconds to lower steps, and which passes.

    benchmarks/compile_time.py [--steps NAME[:SIZE],...] [--growth LIMIT | --exponents]

A step is an example (tiny, mini, base), a file, a model of examples/generate.py (large,
4.9b) with a number of layers, which needs JAX, or a shape with a number of operations: `loop` (products one after the other with one weight, as an unrolled
loop), `stack` (one product with each matrix of a stack), `weights` (a layer, its
gradient and its update for each of many weights), `clip` (the norm of all gradients,
which every update reads), `chain` (element-wise operations) and `outputs` (a product
for each of many results). With --growth, the time of each shape may grow by LIMIT
from a size to four times as many: linear is 4, quadratic 16. With --exponents, each
pass has the power of the step's operations that its time grows with: the slope of a line
through the logarithms of both, for steps of one name and several sizes.
"""

import argparse
import functools
import gzip
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = {"tiny": "bert_tiny", "mini": "bert_mini", "base": "bert_base"}
SQUARE = "tensor<8x8xf32>"
BOTH, SCALAR = "affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> ()>"


def pointwise(result, inputs, body, init, kind="parallel", out=SQUARE):
    """The lines of an element-wise operation or sum over 8x8 matrices and scalars."""
    types = [SQUARE if type == BOTH else "tensor<f32>" for _, type in inputs]
    maps = ", ".join([map for _, map in inputs] + [BOTH if out == SQUARE else SCALAR])
    arguments = ", ".join(f"%i{i}: f32" for i in range(len(inputs)))
    return [
        f'  {result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["{kind}", "{kind}"]}}',
        f"      ins({', '.join(name for name, _ in inputs)} : {', '.join(types)}) outs({init} : {out}) {{",
        f"  ^bb0({arguments}, %o: f32):",
        *(f"    {line}" for line in body),
        f"  }} -> {out}",
    ]


def product(result, a, b, maps=""):
    return [
        f"  {result} = linalg.matmul {maps}ins({a}, {b} : {SQUARE}, {SQUARE})"
        f" outs(%zeros : {SQUARE}) -> {SQUARE}"
    ]


def step(arguments, results, lines, weight=SQUARE):
    """A step: names and types of what it carries, then of what it only takes."""
    carried, taken = arguments
    signature = [
        f'%{name}: {type} {{bsr.name = "{name}", bsr.result = {i} : i64}}'
        for i, (name, type) in enumerate(carried)
    ] + [f'%{name}: {type} {{bsr.name = "{name}"}}' for name, type in taken]
    values = [value for value, _ in results]
    types = [type for _, type in carried] + [type for _, type in results[len(carried) :]]
    outputs = [type for _, type in carried] + [
        f'{type} {{bsr.name = "out{i}"}}' for i, (_, type) in enumerate(results[len(carried) :])
    ]
    return "\n".join(
        [
            f"func.func @step({', '.join(signature)}) -> ({', '.join(outputs)}) {{",
            f"  %zeros = arith.constant dense<0.0> : {SQUARE}",
            "  %zero = arith.constant dense<0.0> : tensor<f32>",
            *lines,
            f"  return {', '.join(values)} : {', '.join(types)}",
            "}",
        ]
    )


def loop(size):
    return f"""
func.func @step(%w: {SQUARE} {{bsr.name = "w", bsr.result = 0 : i64}}, %x: {SQUARE} {{bsr.name = "x"}})
    -> ({SQUARE}, {SQUARE} {{bsr.name = "y"}}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant {size} : index
  %zeros = arith.constant dense<0.0> : {SQUARE}
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%h = %x) -> {SQUARE} {{
    %0 = linalg.matmul ins(%h, %w : {SQUARE}, {SQUARE}) outs(%zeros : {SQUARE}) -> {SQUARE}
    scf.yield %0 : {SQUARE}
  }}
  return %w, %y : {SQUARE}, {SQUARE}
}}"""


def stack(size):
    w, x = f"tensor<{size}x8x8xf32>", f"tensor<{size}x4x8xf32>"
    return f"""
func.func @step(%w: {w} {{bsr.name = "w", bsr.result = 0 : i64}}, %x: {x} {{bsr.name = "x"}})
    -> ({w}, {x} {{bsr.name = "y"}}) {{
  %zeros = arith.constant dense<0.0> : {x}
  %y = linalg.batch_matmul ins(%x, %w : {x}, {w}) outs(%zeros : {x}) -> {x}
  return %w, %y : {w}, {x}
}}"""


def weights(size):
    last, lines = "%x", []
    for i in range(size):
        lines += product(f"%h{i}", last, f"%w{i}")
        last = f"%h{i}"
    gradient = last
    maps = "affine_map<(d0, d1, d2) -> ({})>".format
    sampled = f"indexing_maps = [{maps('d2, d0')}, {maps('d2, d1')}, {maps('d0, d1')}] "
    transposed = f"indexing_maps = [{maps('d0, d2')}, {maps('d1, d2')}, {maps('d0, d1')}] "
    update = ["%0 = arith.mulf %i1, %i2 : f32", "%1 = arith.subf %i0, %0 : f32", "linalg.yield %1 : f32"]
    for i in reversed(range(size)):
        lines += product(f"%g{i}", f"%h{i - 1}" if i else "%x", gradient, sampled)
        lines += product(f"%d{i}", gradient, f"%w{i}", transposed)
        lines += pointwise(f"%n{i}", [(f"%w{i}", BOTH), (f"%g{i}", BOTH), ("%rate", SCALAR)], update, "%zeros")
        gradient = f"%d{i}"
    carried = [(f"w{i}", SQUARE) for i in range(size)]
    results = [(f"%n{i}", SQUARE) for i in range(size)] + [(last, SQUARE)]
    return step((carried, [("x", SQUARE), ("rate", "tensor<f32>")]), results, lines)


def clip(size):
    total, lines = "%zero", []
    square = ["%0 = arith.mulf %i0, %i0 : f32", "%1 = arith.addf %o, %0 : f32", "linalg.yield %1 : f32"]
    for i in range(size):
        lines += pointwise(f"%s{i}", [(f"%g{i}", BOTH)], square, total, "reduction", "tensor<f32>")
        total = f"%s{i}"
    update = ["%0 = math.sqrt %i2 : f32", "%1 = arith.divf %i1, %0 : f32", "%2 = arith.subf %i0, %1 : f32", "linalg.yield %2 : f32"]
    for i in range(size):
        lines += pointwise(f"%n{i}", [(f"%w{i}", BOTH), (f"%g{i}", BOTH), (total, SCALAR)], update, "%zeros")
    carried = [(f"w{i}", SQUARE) for i in range(size)]
    taken = [(f"g{i}", SQUARE) for i in range(size)]
    return step((carried, taken), [(f"%n{i}", SQUARE) for i in range(size)], lines)


def chain(size):
    last, lines = "%x", []
    for i in range(size):
        operation = ("addf", "mulf", "maximumf")[i % 3]
        body = [f"%0 = arith.{operation} %i0, %i1 : f32", "linalg.yield %0 : f32"]
        lines += pointwise(f"%v{i}", [(last, BOTH), ("%w" if i % 3 else "%x", BOTH)], body, "%zeros")
        last = f"%v{i}"
    return step(([("w", SQUARE)], [("x", SQUARE)]), [("%w", SQUARE), (last, SQUARE)], lines)


def outputs(size):
    lines = []
    for i in range(size):
        lines += product(f"%v{i}", f"%x{i}", "%w")
    taken = [(f"x{i}", SQUARE) for i in range(size)]
    results = [("%w", SQUARE)] + [(f"%v{i}", SQUARE) for i in range(size)]
    return step(([("w", SQUARE)], taken), results, lines)


PAIRS = 8  # at most, of a size and four times as many

SHAPES = {f.__name__: f for f in (loop, stack, weights, clip, chain, outputs)}
# What examples/generate.py writes with any number of layers.
MODELS = ("large", "4.9b")
DEFAULT = "tiny,mini,base,loop:250,loop:1000,loop:5000,stack:750,stack:3000,weights:250,weights:1000"


EXPONENTS = "4.9b:6,4.9b:12,4.9b:24,4.9b:48,4.9b:96"
ROUNDS = 3  # of which the least counts


def generate(name, layers):
    """Returns the text of a model's step."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "generate.py", "--layers", str(layers), "--output-dir", folder, name],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])},
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            sys.exit(f"error: expected examples/generate.py to write {name}, but got '{last}'")
        return gzip.decompress((pathlib.Path(folder) / f"bert_{name}.mlir.gz").read_bytes()).decode()


@functools.cache
def read(name, size):
    """Returns the text of a step and its mark."""
    if name in MODELS:
        return generate(name, size), r"match=layers\..*_w$ block=16x16 density=0.1"
    if name in EXAMPLES:
        path = ROOT / "examples" / f"{EXAMPLES[name]}.mlir.gz"
        return gzip.decompress(path.read_bytes()).decode(), r"match=layers\..*_w$ block=16x16 density=0.1"
    if name in SHAPES:
        dims = " dims=stack,row,col" if name == "stack" else ""
        return SHAPES[name](size), f"match=^w block=4x4 density=0.5{dims}"
    return pathlib.Path(name).read_text(), r"match=weight$|_w$ block=16x16 density=0.1"


def measure(name, size):
    """Returns the processor seconds of lowering a step, and those of each pass."""
    text, mark = read(name, size)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "step.mlir"
        path.write_text(text)
        before = os.times()
        done = subprocess.run(
            ["sparse-compile", path, f"--mark={mark}", "--emit=mlir", "--pass-times", "-o", os.devnull],
            capture_output=True, text=True,
        )  # fmt: skip
        after = os.times()
    if done.returncode:
        # Remarks come before it; what a signal ends says nothing.
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        got = f"'{errors[0]}'" if errors else f"exit status {done.returncode}"
        sys.exit(f"error: expected step '{name}' to compile, but got {got}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    rows = re.findall(r"^ +([\d.]+) s  (\S+)$", done.stderr, re.MULTILINE)
    return spent, {pass_: float(seconds) for seconds, pass_ in rows}


def slope(points):
    """Returns the slope of the line through points with the least squares."""
    x, y = (sum(values) / len(points) for values in zip(*points))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def exponents(names):
    """Prints how the time of each pass grows with the operations of a step."""
    times, counts = [], []
    for name, size in names:
        text, _ = read(name, size)
        counts.append(size if name in SHAPES else len(re.findall(r"^ +%\S+ = ", text, re.MULTILINE)))
        runs = [measure(name, size) for _ in range(ROUNDS)]
        least = {pass_: min(seconds[pass_] for _, seconds in runs) for pass_ in runs[0][1]}
        times.append({"all": min(spent for spent, _ in runs), **least})
    print(f"| pass | {' | '.join(f'{count:,}' for count in counts)} | exponent |\n|---|{'---:|' * (len(counts) + 1)}")
    for pass_, last in times[-1].items():
        if last >= 0.005 * times[-1]["all"]:
            row = [each[pass_] for each in times]
            fit = slope([(math.log(count), math.log(max(spent, 1e-4))) for count, spent in zip(counts, row)])
            print(f"| {pass_} | {' | '.join(f'{spent:.3f}' for spent in row)} | {fit:.2f} |")


def grow(names, limit):
    """Checks that time grows with the size, not with its square."""
    for name, size in names:
        # What disturbs a run makes it longer: the least of several pairs counts, and
        # only a time that stays above the limit is measured more often.
        small = large = float("inf")
        for _ in range(PAIRS):
            small = min(small, measure(name, size)[0])
            large = min(large, measure(name, 4 * size)[0])
            if large <= limit * small:
                break
        print(f"{name}: {small:.2f} s for {size}, {large:.2f} s for {4 * size}", flush=True)
        if large > limit * small:
            sys.exit(f"error: expected {limit} times as long for {name}:{4 * size}, but got {large / small:.1f}")


def parse(steps):
    names = []
    for step in steps.split(","):
        name, _, size = step.partition(":")
        if name in (*SHAPES, *MODELS) and not size.isdigit():
            sys.exit(f"error: expected {name}:SIZE, but got '{step}'")
        if name not in (*SHAPES, *MODELS, *EXAMPLES) and not pathlib.Path(name).is_file():
            names_known = ", ".join([*EXAMPLES, *MODELS, *SHAPES])
            sys.exit(f"error: expected --steps to name {names_known} or a file, but got '{name}'")
        names.append((name, int(size or 0)))
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps")
    parser.add_argument("--growth", type=float, metavar="LIMIT")
    parser.add_argument("--exponents", action="store_true")
    options = parser.parse_args()
    names = parse(options.steps or (EXPONENTS if options.exponents else DEFAULT))
    if options.exponents:
        if len({name for name, _ in names}) != 1 or len({size for _, size in names}) < 2:
            sys.exit(f"error: expected steps of one name and several sizes, but got '{options.steps}'")
        exponents(names)
        return
    if options.growth:
        grow(names, options.growth)
        return
    load = os.getloadavg()[0]
    print(f"# {os.cpu_count()} processors, load {load:.1f}")
    print("| step | s of a processor | most of it |\n|---|---:|---|")
    for name, size in names:
        spent, passes = measure(name, size)
        most = sorted(passes, key=passes.get, reverse=True)[:3]
        passes = ", ".join(f"{pass_} {100 * passes[pass_] / spent:.0f} %" for pass_ in most)
        print(f"| {name}{f', {size:,}' if size else ''} | {spent:.2f} | {passes} |", flush=True)


if __name__ == "__main__":
    main()
