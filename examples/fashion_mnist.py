# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains sparse MLPs on Fashion-MNIST in PyTorch.

"""Trains an MLP on Fashion-MNIST whose hidden layers are sparse, in PyTorch's own loop.

    PYTHONPATH=python:examples python3 examples/fashion_mnist.py [--method dense|static|set|rigl|cht|chts]
        [--density D] [--block RxC] [--epochs N] [--hidden N] [--seed S] [--packages DIR]

The exercise of SET (Mocanu et al. 2018) and CHT (Zhang et al. 2024): three hidden layers of
1,024, of which 1, 5 or 10 % of the weights are stored, and a dense head. First values are those
of layers with as many inputs as a neuron has weights, on average (Evci et al. 2022). The images are
those of Debian's package dataset-fashion-mnist, 60,000 to train on and 10,000 to test.
Patterns change once a quarter of an epoch, until three quarters of training; Adam, a
cosine. Prints the loss and the accuracy on the test images after each epoch.
"""

from __future__ import annotations

import argparse
import gzip
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import methods
from sparse_opt import Group
from sparse_opt.torch import nn

BATCH = 128
OWN = {"cht": methods.CHT, "chts": methods.CHTs}


def read(packages: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images `[N, 784]` of mean 0 and deviation 1, and their classes; `packages` is where
    Debian's packages are unpacked. Ends the program without them."""
    folder = packages / "usr/share/datasets/fashion-mnist"
    if not folder.is_dir():
        sys.exit(f"error: expected the images of Debian's package dataset-fashion-mnist in '{folder}', but got none:"
                 " 'apt-get install dataset-fashion-mnist', or --packages with a folder of 'dpkg-deb -x'")
    arrays = []
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        data = gzip.decompress((folder / f"{name}-{kind}-ubyte.gz").read_bytes())
        arrays.append(np.frombuffer(data, np.uint8, offset=header))
    images = torch.from_numpy(arrays[0].reshape(len(arrays[1]), -1).astype(np.float32))
    # The mean and the deviation of the training images.
    return (images / 255 - 0.2860) / 0.3530, torch.from_numpy(arrays[1].astype(np.int64))


def make_model(options: argparse.Namespace, steps: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, nn.Sparsity | None]:
    """Returns the model, its optimizer and, if it is sparse, the updates of its patterns."""
    torch.manual_seed(options.seed)
    widths = [784, options.hidden, options.hidden, options.hidden]
    layers: list[torch.nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        layer = torch.nn.Linear(inputs, outputs)
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if options.method != "dense":
            layer.weight.data *= options.density**-0.5
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(options.hidden, 10))
    if options.method == "dense":
        return model, torch.optim.Adam(model.parameters(), lr=1e-3), None
    nn.sparsify(model, [rf"match=^[024]\.weight$ block={options.block} density={options.density}"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    method = OWN[options.method]() if options.method in OWN else options.method
    every = max(1, steps // (4 * options.epochs))
    group = Group(method=method) if method == "static" else Group(method=method, every=every, drop=0.3)
    return model, optimizer, nn.Sparsity(model, optimizer, [group], steps=steps)


def test(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    with torch.no_grad():
        result = model(images)
    return functional.cross_entropy(result, labels).item(), (result.argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains sparse MLPs on Fashion-MNIST.")
    parser.add_argument("--method", default="set", choices=["dense", "static", "set", "rigl", *OWN])
    parser.add_argument("--density", type=float, default=0.05)
    parser.add_argument("--block", default="1x1", metavar="RxC")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", type=Path, default=Path("/"), help="where Debian's packages are unpacked (/)")
    options = parser.parse_args()
    images, labels = read(options.packages, "train")
    held_out = read(options.packages, "t10k")

    steps = options.epochs * math.ceil(len(images) / BATCH)
    model, optimizer, sparsity = make_model(options, steps)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(options.seed)
    for epoch in range(options.epochs):
        start, pruned = time.perf_counter(), 0
        for chosen in torch.randperm(len(images), generator=generator).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            schedule.step()
            if sparsity:
                pruned += sparsity.update().get("pruned", 0)
        seconds = time.perf_counter() - start
        loss, accuracy = test(model, *held_out)
        print(f"epoch {epoch + 1}: {seconds:.1f} s, {pruned} blocks replaced, test loss {loss:.4f}, accuracy {accuracy:.2%}", flush=True)


if __name__ == "__main__":
    main()
