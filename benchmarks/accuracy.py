#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What single precision costs: an example BERT in f32 against the same step in f64.

    benchmarks/accuracy.py [--model tiny|mini|base] [--steps N[,N...]] [--seed N]

Compiles the example step as it is, and with f64 for every f32; both start from the same
random weights, blocks and batch. Prints, after N steps of AdamW, the relative error of
the loss, and of all parameters together (the norm of the difference over the norm).
"""

import argparse
import gzip
import re

import harness
import numpy as np
import step

MARK = r"--mark=match=layers\..*_w$ block=16x16 density=0.25"


def to_f64(text):
    """The same step in f64; bits of infinities and NaN are wider."""
    wide = {"0xFF800000": "0xFFF0000000000000", "0x7F800000": "0x7FF0000000000000",
            "0x7FC00000": "0x7FF8000000000000"}
    text = re.sub(r"0x[0-9A-F]{8}\b", lambda bits: wide[bits[0]], text)
    return re.sub(r"\bf32\b|(?<=x)f32\b", "f64", text)


def draw(manifest, random):
    """Arguments and patterns of a step, in f64: the same for both."""
    arrays, patterns = {}, {}
    for buffer in manifest["buffers"]:
        name, shape = buffer["name"], buffer["shape"]
        if buffer["kind"] in step.VIEWS:
            pattern = manifest["patterns"][buffer["pattern"]]
            if name not in patterns:
                grid = [extent // block for extent, block in zip(pattern["shape"], pattern["block"])]
                chosen = np.zeros(grid[0] * grid[1], bool)
                chosen[random.permutation(chosen.size)[:pattern["slots"]]] = True
                patterns[name] = chosen.reshape(grid)
        elif name == "lr":
            arrays[name] = np.array(1e-3)
        elif name == "batch.weights":
            arrays[name] = np.ones(shape)
        elif name == "batch.positions":
            arrays[name] = random.integers(0, 128, shape)
        elif name.startswith("batch."):
            arrays[name] = random.integers(0, 1000, shape)
        elif buffer["kind"] != "output":
            is_state = not name.startswith("state.params.")
            arrays[name] = np.zeros(shape) if is_state else random.standard_normal(shape) * 0.05
    return arrays, patterns


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--model", default="mini", choices=["tiny", "mini", "base"])
    parser.add_argument("--steps", default="1,10")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    text = gzip.decompress((harness.ROOT / "examples" / f"bert_{options.model}.mlir.gz").read_bytes()).decode()
    single, double = (step.compile(source, [MARK]) for source in (text, to_f64(text)))
    arrays, patterns = draw(single.manifest, np.random.default_rng(options.seed))
    # What f32 rounds at the start is no error of the step.
    arrays = {name: np.asarray(array, np.float32) if array.dtype == np.float64 else array
              for name, array in arrays.items()}
    print(f"{'steps':>5} {'loss':>10} {'of loss':>9} {'of parameters':>14}")
    for count in map(int, options.steps.split(",")):
        got, expected = (library.run(arrays, patterns, steps=count) for library in (single, double))
        loss = float(expected["loss"])
        names = [name for name in expected if name.startswith("state.params.")]
        error = sum(np.sum((got[name].astype(np.float64) - expected[name]) ** 2) for name in names)
        norm = sum(np.sum(expected[name] ** 2) for name in names)
        print(f"{count:>5} {loss:>10.6f} {abs(float(got['loss']) - loss) / abs(loss):>9.2g} "
              f"{np.sqrt(error / norm):>14.3g}", flush=True)


if __name__ == "__main__":
    main()
