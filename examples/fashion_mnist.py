# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains sparse MLPs and vision transformers on Fashion-MNIST in PyTorch.

"""Trains an MLP or a ViT on Fashion-MNIST whose layers are sparse, in PyTorch's own loop.

    PYTHONPATH=python:examples python3 examples/fashion_mnist.py [--model mlp|vit] [--method dense|static|set|rigl|cht|chts]
        [--density D] [--block RxC] [--epochs N] [--hidden N] [--depth N] [--seed S] [--packages DIR]

The MLP is the exercise of SET (Mocanu et al. 2018) and CHT (Zhang et al. 2024): three hidden
layers of 1,024, of which 1, 5 or 10 % of the weights are stored, and a dense head; Adam, a
cosine. The ViT (Dosovitskiy et al. 2021) has 16 tokens, patches of 7x7, four layers of width
256 with four heads, GELU in feed-forward layers of 1,024, LayerNorm in front, learnt positions and
the mean over tokens; all matrices of its layers are sparse; AdamW with a decay of 0.05, a warm-up of a twentieth and
a cosine.
First values are those of layers with as many inputs as a neuron has weights, on average
(Evci et al. 2022). The images are those of Debian's package dataset-fashion-mnist, 60,000 to
train on and 10,000 to test. Patterns change once a quarter of an epoch, until three quarters of
training. Prints what is stored and the floating-point operations of an image, forward and
backward, then the loss and the accuracy on the test images after each epoch.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

import fashion_images
import methods
from sparse_opt import Group
from sparse_opt.torch import nn

BATCH = 128
PATCH = 7
HEADS = 4
OWN = {"cht": methods.CHT, "chts": methods.CHTs}


def read(packages: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = fashion_images.read(packages, name)
    return torch.from_numpy(fashion_images.scale(images)), torch.from_numpy(labels)


def split(images: torch.Tensor) -> torch.Tensor:
    """Returns the patches of images `[N, 784]`, row by row: `[N, 16, 49]`."""
    return images.unflatten(1, (28 // PATCH, PATCH, 28 // PATCH, PATCH)).transpose(2, 3).flatten(3).flatten(1, 2)


class Layer(torch.nn.Module):
    """A layer of a ViT, of tokens `[images, tokens, width]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class ViT(torch.nn.Module):
    """A vision transformer of images `[N, 784]`."""

    tokens = (28 // PATCH) ** 2

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patches = torch.nn.Linear(PATCH * PATCH, width)
        self.positions = torch.nn.Parameter(0.02 * torch.randn(self.tokens, width))
        self.layers = torch.nn.Sequential(*(Layer(width) for _ in range(depth)))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.patches(split(images)) + self.positions)).mean(1))


def make_mlp(width: int) -> torch.nn.Module:
    widths = [784, width, width, width]
    layers: list[torch.nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        layer = torch.nn.Linear(inputs, outputs)
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))


def describe(model: torch.nn.Module) -> str:
    """Returns what is stored of a model, and the operations of products of an image: of a
    weight a multiplication and an addition in each of three passes, for each token."""
    flops = 0
    for layer in model.modules():
        if isinstance(layer, (torch.nn.Linear, nn.Linear)):
            is_once = not isinstance(model, ViT) or layer is model.head
            flops += 6 * layer.weight.numel() * (1 if is_once else model.tokens)
        elif isinstance(layer, Layer):
            flops += 12 * model.tokens**2 * layer.out.in_features
    stored = sum(p.numel() for p in model.parameters())
    return f"{stored:,} parameters stored, {flops / 1e6:.1f} MFLOP an image"


def make_model(options: argparse.Namespace, steps: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, nn.Sparsity | None]:
    """Returns the model, its optimizer and, if it is sparse, the updates of its patterns."""
    torch.manual_seed(options.seed)
    is_vit = options.model == "vit"
    model = ViT(options.hidden, options.depth) if is_vit else make_mlp(options.hidden)
    if options.method != "dense":
        name = re.compile(r"^layers\..*\.(qkv|out|up|down)\.weight$" if is_vit else r"^[024]\.weight$")
        for parameter in (p for n, p in model.named_parameters() if name.search(n)):
            parameter.data *= options.density**-0.5
        nn.sparsify(model, [f"match={name.pattern} block={options.block} density={options.density}"])
    optimizer: torch.optim.Optimizer
    if is_vit:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if options.method == "dense":
        return model, optimizer, None
    method = OWN[options.method]() if options.method in OWN else options.method
    every = max(1, steps // (4 * options.epochs))
    group = Group(method=method) if method == "static" else Group(method=method, every=every, drop=0.3)
    return model, optimizer, nn.Sparsity(model, optimizer, [group], steps=steps)


def test(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    with torch.no_grad():
        result = model(images)
    return functional.cross_entropy(result, labels).item(), (result.argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains sparse MLPs and ViTs on Fashion-MNIST.")
    parser.add_argument("--model", default="mlp", choices=["mlp", "vit"])
    parser.add_argument("--method", default="set", choices=["dense", "static", "set", "rigl", *OWN])
    parser.add_argument("--density", type=float, default=0.05)
    parser.add_argument("--block", default="1x1", metavar="RxC")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--hidden", type=int, help="of the MLP (1024), or the width of the ViT (256), whose heads divide it")
    parser.add_argument("--depth", type=int, default=4, help="of the ViT, its layers (4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", type=Path, default=Path("/"), help="where Debian's packages are unpacked (/)")
    options = parser.parse_args()
    options.hidden = options.hidden or (256 if options.model == "vit" else 1024)
    if options.model == "vit" and options.hidden % HEADS:
        sys.exit(f"error: expected a width that the {HEADS} heads of the ViT divide, but got {options.hidden}")
    images, labels = read(options.packages, "train")
    held_out = read(options.packages, "t10k")

    steps = options.epochs * math.ceil(len(images) / BATCH)
    model, optimizer, sparsity = make_model(options, steps)
    print(describe(model))
    warm_up = steps // 20 if options.model == "vit" else 0
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: (s + 1) / warm_up if s < warm_up else (1 + math.cos(math.pi * s / steps)) / 2)
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
