#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block-sparse layers beside torch.nn.Linear, forward and backward.

    benchmarks/layers.py [--threads N] [--runs N] [--filter REGEX]

prints a table (docs/layers.md). Both are called in turn in one process; times are medians.
Each result is compared with the dense layer of the same weight before it is timed.
"""

import argparse
import re
import statistics
import time

import torch
from sparse_opt.torch import nn

SHAPES = [(768, 3072), (3072, 768), (768, 768)]  # inputs, outputs
KINDS = [(16, 0.1), (32, 0.1), (8, 0.1), (4, 0.1), (1, 0.1), (16, 0.05)]  # blocks, densities
TOKENS = [1024, 32, 1]


def measure(layer, x, gradient):
    """Returns the seconds of a forward and a backward pass."""
    start = time.perf_counter()
    y = layer(x)
    between = time.perf_counter()
    y.backward(gradient)
    return between - start, time.perf_counter() - between


def check(sparse, dense, x, gradient):
    """Raises an error if a layer does not compute what the dense one does with its weight."""
    found = []
    for layer in (sparse, dense):
        x.grad = None
        y = layer(x)
        y.backward(gradient)
        found.append((y.detach(), x.grad))
    for got, want in zip(*found):
        error = float((got - want).abs().max() / want.abs().max())
        if error > 1e-5:
            raise SystemExit(f"error: expected results within 1e-5, but got {error:.2g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--filter", default="", help="of cases like 768x3072/16x16/0.1/1024")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{'case':26} {'forward, ms':>12} {'dense':>8} {'backward, ms':>13} {'dense':>8} {'ratio':>6}")
    for cols, rows in SHAPES:
        for block, density in KINDS:
            for tokens in TOKENS:
                name = f"{cols}x{rows}/{block}x{block}/{density}/{tokens}"
                if not re.search(options.filter, name):
                    continue
                torch.manual_seed(0)
                sparse = nn.Linear(cols, rows, block=block, density=density)
                dense = nn.densify(sparse)
                x, gradient = torch.randn(tokens, cols, requires_grad=True), torch.randn(tokens, rows)
                check(sparse, dense, x, gradient)
                times = [[measure(layer, x, gradient) for layer in (sparse, dense)] for _ in range(options.runs)]
                (forward, backward), (first, second) = (
                    [statistics.median(run[number][part] for run in times) * 1e3 for part in range(2)]
                    for number in range(2)
                )
                ratio = (first + second) / (forward + backward)
                print(f"{name:26} {forward:12.2f} {first:8.2f} {backward:13.2f} {second:8.2f} {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()
