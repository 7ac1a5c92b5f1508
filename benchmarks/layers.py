#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block-sparse layers beside torch.nn.Linear, forward and backward.

    benchmarks/layers.py [--threads N] [--runs N] [--filter REGEX]

prints a table (docs/layers.md). All are called in turn in one process; times are medians.
Each result is compared with the dense layer of the same weight before it is timed. Beside
blocks of 1x1 stand SparseLab, SparseProp and torch.sparse, where they are installed
(benchmarks/install-peers.sh): how many times as fast as torch.nn.Linear each is.
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


class TorchSparse(torch.nn.Module):
    """A linear layer by torch.sparse: the gradient of its weight is made of the stored entries."""

    def __init__(self, dense):
        super().__init__()
        self.weight = torch.nn.Parameter(dense.weight.detach().to_sparse_csr())
        self.bias = torch.nn.Parameter(dense.bias.detach().clone())

    def forward(self, x):
        return torch.sparse.mm(self.weight, x.t()).t() + self.bias


def peers(dense, density):
    """Yields other layers of single weights, by name, each with the dense layer of the same weight."""
    rows, cols = dense.weight.shape
    try:
        import sparselab

        layer = sparselab.SparseLinear(cols, rows, sparsity=1 - density)
        twin = torch.nn.Linear(cols, rows)
        with torch.no_grad():
            twin.weight.copy_(torch.as_tensor(layer._csr.to_dense()))
            twin.bias.copy_(layer.bias)
        yield "SparseLab", layer, twin
    except ImportError:
        pass
    try:
        import sparseprop
        from sparseprop.modules import SparseLinear

        sparseprop.set_num_threads(torch.get_num_threads())
        yield "SparseProp", SparseLinear.from_dense(dense), dense
    except ImportError:
        pass
    yield "torch.sparse", TorchSparse(dense), dense


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
                others = list(peers(dense, density)) if block == 1 else []
                for layer, twin in [(sparse, dense), *((layer, twin) for _, layer, twin in others)]:
                    check(layer, twin, x, gradient)
                layers = [sparse, dense, *(layer for _, layer, _ in others)]
                times = [[measure(layer, x, gradient) for layer in layers] for _ in range(options.runs)]
                medians = [
                    [statistics.median(run[number][part] for run in times) * 1e3 for part in range(2)]
                    for number in range(len(layers))
                ]
                (forward, backward), (first, second) = medians[:2]
                beside = "".join(
                    f"   {peer} {(first + second) / sum(own):.2f}" for (peer, *_), own in zip(others, medians[2:])
                )
                ratio = (first + second) / (forward + backward)
                print(
                    f"{name:26} {forward:12.2f} {first:8.2f} {backward:13.2f} {second:8.2f} {ratio:6.2f}{beside}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
