#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What finding attention is worth in a step: time and memory with and without it.

    benchmarks/attention_steps.py STEP.mlir.gz ... [--density D] [--rounds N]

compiles each step of examples/ (or of examples/generate.py --tokens T) twice and runs both in
turn, on one thread; it prints seconds of the processor, their ratio round by round, and the arena.
"""

import argparse
import gzip
import time

import harness

VARIANTS = {"with": "--attention-keys=1", "without": "--find-attention=false"}


def make_run(source, density, option):
    """A function that runs the step once, and the bytes of its arena."""
    marks = [rf"--mark=match=layers\..*_w$ block=16x16 density={density}"] if density < 1 else []
    compiled = harness.compile_step(source, *marks, option)
    random, arrays, patterns = np.random.default_rng(0), {}, {}
    for buffer in compiled.manifest["buffers"]:
        if buffer["kind"] in ("dense", "values"):
            kind = step.TYPES[buffer["type"]]
            # Numbers of the size of weights; labels and positions are 0.
            values = random.standard_normal(buffer["shape"], dtype=np.float32) * 0.02
            arrays[buffer["name"]] = values if kind == np.float32 else np.zeros(buffer["shape"], kind)
    for pattern in compiled.manifest["patterns"]:
        if not pattern["static"]:
            grid = [extent // size for extent, size in zip(pattern["shape"], pattern["block"])]
            mask = np.zeros(grid, bool)
            mask.flat[random.permutation(mask.size)[:pattern["slots"]]] = True
            patterns[pattern["name"]] = mask
    return compiled.bind(arrays, patterns), compiled.manifest["arena_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="+", metavar="STEP", help="a compressed step")
    parser.add_argument("--density", type=float, default=0.1, metavar="D", help="of the encoder's matrices")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each, of which the median counts")
    options = parser.parse_args()
    harness.describe_machine(1)
    print(f"{'with ms':>9} {'without':>9} {'ratio':>6} {'with MiB':>9} {'without':>9}  step")
    for path in options.steps:
        with gzip.open(path, "rt") as file:
            source = file.read()
        made = {name: make_run(source, options.density, option) for name, option in VARIANTS.items()}
        times = {name: [] for name in made}
        for number in range(options.rounds + 1):
            for name, ((_, run), _) in made.items():
                start = time.process_time()
                run()
                if number > 0:
                    times[name].append(time.process_time() - start)
        ratio = harness.median([a / b for a, b in zip(times["with"], times["without"])])
        ms = [harness.median(times[name]) * 1e3 for name in VARIANTS]
        arenas = [made[name][1] / 2**20 for name in VARIANTS]
        print(f"{ms[0]:9.1f} {ms[1]:9.1f} {ratio:6.2f} {arenas[0]:9.1f} {arenas[1]:9.1f}  {path}", flush=True)


# Threads are counted before NumPy is loaded.
if __name__ == "__main__":
    harness.set_threads(1)
    import numpy as np
    import step

    main()
