#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long updates of the patterns of layers take, beside a step of their model.

    PYTHONPATH=python benchmarks/layer_updates.py [--layers N] [--tokens T] [--threads N] [--rounds N]

The model has layers of 768x3072 and 3072x768 in turn, a tenth of whose 16x16 blocks is stored. Prints medians of `rounds`
steps and updates, in seconds.
"""

import argparse
import statistics
import time

import harness
import torch
from sparse_opt.torch import nn


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("layers", 24), ("tokens", 1024), ("threads", 2), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shapes = [(768, 3072) if i % 2 == 0 else (3072, 768) for i in range(options.layers)]
    model = torch.nn.Sequential(*(torch.nn.Linear(*shape) for shape in shapes))
    nn.sparsify(model, ["match=weight$ block=16x16 density=0.1"])
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(options.tokens, 768)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    harness.describe_machine(options.threads)
    print("| | s |\n|---|---:|")
    print(f"| step | {statistics.median(timed(step) for _ in range(options.rounds)):.3f} |")
    for method in ("set", "rigl"):
        found = []
        for _ in range(options.rounds + 1):  # the first compiles
            nn.keep_gradients(model, on=method == "rigl")
            step()
            found.append(timed(lambda: nn.update_patterns(model, optimizer, 0.3, method=method)))
        print(f"| {method} | {statistics.median(found[1:]):.3f} |")


if __name__ == "__main__":
    main()
