# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains a sparse ResNet-18 on Fashion-MNIST as one compiled step.

"""Trains a ResNet-18 on Fashion-MNIST whose convolutions are sparse, as one compiled step.

    PYTHONPATH=python:examples python3 examples/resnet.py [--method dense|static|set|rigl] [--density D]
        [--distribution uniform|erk] [--block RxC] [--width N] [--epochs N] [--batch N] [--seed S]
        [--packages DIR]

The exercise of RigL (Evci et al. 2020) in small: all convolutions but the first one are sparse, a density is
distributed by erk, patterns change four times an epoch until three quarters of training; SGD
with momentum, a cosine. The network is ResNet-18 (He et al. 2016) for images of 28 x 28, whose stem
is a convolution of 3 x 3 without pooling, `--width` channels wide (64 there). The images are those of Debian's package
dataset-fashion-mnist. Prints the loss and the accuracy on the test images after each epoch.

`ResNet` and the numbers of blocks of `NETWORKS` are what benchmarks/convolutions.py measures, too.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import sparse_opt
import sparse_opt.torch
import torch
from torch import nn
from torch.nn import functional

import fashion_mnist

# Blocks of each stage, and whether a block is a bottleneck, a 1x1, a 3x3 and a 1x1 convolution.
NETWORKS = {"resnet18": ([2, 2, 2, 2], False), "resnet50": ([3, 4, 6, 3], True)}
# Convolutions but the first, as marks find them.
SPARSE = "stages.*conv[0-9]*.weight$"


class Block(nn.Module):
    """Convolutions beside a way around them."""

    def __init__(self, inputs: int, width: int, stride: int, is_bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if is_bottleneck else width
        sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        if not is_bottleneck:
            sizes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        self.count = len(sizes)
        for i, (ins, outs, window, step) in enumerate(sizes):
            self.add_module(f"conv{i}", nn.Conv2d(ins, outs, window, step, window // 2, bias=False))
            self.add_module(f"norm{i}", nn.BatchNorm2d(outs))
        if stride > 1 or inputs != outputs:
            self.conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        around = self.norm(self.conv(x)) if hasattr(self, "conv") else x
        for i in range(self.count):
            x = getattr(self, f"norm{i}")(getattr(self, f"conv{i}")(x))
            x = functional.relu(x + around if i + 1 == self.count else x)
        return x


class ResNet(nn.Module):
    """`blocks` of each of four stages, the first of `width` channels.

    Attributes:
      is_small: whether images are small: a stem of 3x3 without pooling, not one of 7x7 with it.
    """

    def __init__(
        self, blocks: list[int], is_bottleneck: bool, width: int = 64, channels: int = 3, classes: int = 1000, is_small: bool = False
    ) -> None:
        super().__init__()
        window, stride = (3, 1) if is_small else (7, 2)
        self.is_small = is_small
        self.stem = nn.Conv2d(channels, width, window, stride, window // 2, bias=False)
        self.norm = nn.BatchNorm2d(width)
        stages, inputs = [], width
        for stage, count in enumerate(blocks):
            own = width << stage
            for i in range(count):
                stages.append(Block(inputs, own, 2 if stage and not i else 1, is_bottleneck))
                inputs = 4 * own if is_bottleneck else own
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.stem(x)))
        if not self.is_small:
            x = functional.max_pool2d(x, 3, 2, 1)
        return self.head(self.stages(x).mean((2, 3)))


def train_step(model: Any, optimizer: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(batch["x"]), batch["label"])
    loss.backward()
    optimizer.step()
    return loss.detach()


def mark(block: str, density: float) -> sparse_opt.Mark:
    """The mark of all convolutions but the first."""
    return sparse_opt.Mark(SPARSE, block=block, density=density, dims="row,col,col,col")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a sparse ResNet-18 on Fashion-MNIST.")
    parser.add_argument("--method", default="rigl", choices=["dense", "static", "set", "rigl"])
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--distribution", default="erk", choices=["uniform", "erk"])
    parser.add_argument("--block", default="16x16", metavar="RxC")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", type=Path, default=Path("/"), help="where Debian's packages are unpacked (/)")
    options = parser.parse_args()
    images, labels = fashion_mnist.read(options.packages, "train")
    held_out, classes = fashion_mnist.read(options.packages, "t10k")

    torch.manual_seed(options.seed)
    model = ResNet(*NETWORKS["resnet18"], options.width, channels=1, classes=10, is_small=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    each = len(images) // options.batch  # What is left of an epoch is in the next one.
    steps = options.epochs * each
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    batch = {"x": images[: options.batch].view(-1, 1, 28, 28), "label": labels[: options.batch]}
    export = sparse_opt.torch.export(train_step, model, optimizer, batch)
    # By erk, small weights are denser than others: slots for all of their blocks.
    is_dense = options.method == "dense"
    updates = {"every": max(1, each // 4), "drop": 0.3} if options.method in ("set", "rigl") else {}
    group = sparse_opt.Group(
        method="static" if is_dense else options.method, density=options.density,
        distribution=options.distribution, **updates,
    )  # fmt: skip
    marks = [] if is_dense else [mark(options.block, 1.0)]
    step = sparse_opt.compile(export, marks, sparsity=None if is_dense else group, seed=options.seed)
    sparsity = None if is_dense else sparse_opt.Sparsity(step, group, steps=steps)

    generator = torch.Generator().manual_seed(options.seed)
    for epoch in range(options.epochs):
        start, replaced = time.perf_counter(), 0
        for chosen in torch.randperm(len(images), generator=generator)[: each * options.batch].split(options.batch):
            batch = {"x": images[chosen].view(-1, 1, 28, 28), "label": labels[chosen]}
            step(batch, scores=sparsity.needs_scores) if sparsity else step(batch)
            schedule.step()
            if sparsity:
                replaced += sparsity.update().get("pruned", 0)
        seconds = time.perf_counter() - start
        model.eval()
        with torch.no_grad():
            found = torch.cat([model(part.view(-1, 1, 28, 28)) for part in held_out.split(500)])
        model.train()
        loss, accuracy = functional.cross_entropy(found, classes), (found.argmax(1) == classes).float().mean()
        print(f"epoch {epoch + 1}: {seconds:.1f} s, {replaced} blocks replaced, test loss {loss:.4f}, accuracy {accuracy:.2%}", flush=True)


if __name__ == "__main__":
    main()
