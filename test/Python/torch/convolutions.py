# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Convolutions are products of windows: dense ones, and weights in blocks.

# RUN: %python %s | FileCheck %s

"""Compares convolutions of 1 to 3 dimensions, and their gradients, with PyTorch's in float64:
strides, paddings, dilations, groups, windows side by side, transposed ones; then steps of
weights in blocks with the same steps on weights times masks."""

from __future__ import annotations

import math
import random
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

import sparse_opt.torch
from sparse_opt.torch.rewrites import _lines, _windows
from twins import twin

warnings.simplefilter("ignore")
aten = torch.ops.aten


def check_formulas(count: int, of_lines: bool = False) -> None:
    """What a convolution is rewritten to, beside PyTorch's; `of_lines`: of stride one."""
    draw = random.Random(0)
    torch.manual_seed(0)
    worst, seen, lines = 0.0, set(), 0
    while count:
        dims, groups = draw.randint(1, 3), draw.choice([1, 1, 2, 3])
        if of_lines:
            groups = 1
        ins, outs = groups * draw.randint(1, 3), groups * draw.randint(1, 3)
        kernel = [draw.randint(1, 4) for _ in range(dims)]
        strides = [1 if of_lines else draw.choice([1, 1, 2, 3, k]) for k in kernel]
        paddings = [draw.randint(0, 2) for _ in kernel]
        steps = [draw.choice([1, 1, 2]) for _ in kernel]
        transposed = not of_lines and draw.random() < 0.3
        extra = [draw.randint(0, s - 1) if transposed else 0 for s in strides]
        channels = (ins, outs // groups) if transposed else (outs, ins // groups)
        x = torch.randn(2, ins, *(draw.randint(7, 10) for _ in kernel), dtype=torch.double)
        weight = torch.randn(*channels, *kernel, dtype=torch.double)
        bias = torch.randn(outs, dtype=torch.double)
        sizes = (strides, paddings, steps, transposed, extra, groups)
        try:
            want = aten.convolution(x, weight, bias, *sizes)
        except RuntimeError:  # no window fits, or more output padding than a stride
            continue
        got = _windows._convolution(x, weight, bias, *sizes)
        dy = torch.randn_like(want)
        mask = [True, True, True]
        wanted = aten.convolution_backward(dy, x, weight, [outs], *sizes, mask)
        gradients = _windows._convolution_gradient(dy, x, weight, [outs], *sizes, mask)
        for a, b in zip((want, *wanted), (got, *gradients)):
            assert a.shape == b.shape, (a.shape, b.shape, sizes)
            worst = max(worst, float((a - b).abs().max()))
        seen.add((dims, groups > 1, transposed))
        if groups == 1 and not transposed:
            lines += _lines.find(x, weight, strides, paddings, steps) is not None
        count -= 1
    right = "right" if worst < 1e-12 else f"WRONG {worst}"
    print(f"formulas: {len(seen)} kinds, {lines} in lines, {right}")


check_formulas(300)
# CHECK: formulas: 12 kinds, {{[0-9]+}} in lines, right
usual, _lines.MOST_WASTE = _lines.MOST_WASTE, math.inf
check_formulas(200, of_lines=True)
# CHECK-NEXT: formulas: 3 kinds, {{[1-9][0-9]+}} in lines, right
_lines.MOST_WASTE = usual


class Net(nn.Module):
    """Each a block of its own size, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.point = nn.Conv2d(16, 32, 1)
        self.square = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.strided = nn.Conv2d(32, 16, 3, stride=2, padding=2, dilation=2)
        self.patches = nn.Conv2d(32, 8, 4, stride=4)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.wide = nn.Conv1d(16, 2, 257, padding=128)  # more places than become slices
        self.line = nn.Conv1d(16, 8, 5, padding=2)
        self.solid = nn.Conv3d(4, 8, (2, 3, 3), padding=1)
        self.up = nn.ConvTranspose2d(16, 4, 3, stride=2)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.point(torch.relu(self.first(x))))
        x = torch.relu(self.square(x)) + x
        y = self.grouped(torch.relu(self.strided(x)))
        z = self.line(y.flatten(2)).square().mean()
        z = z + self.wide(y.flatten(2)).square().mean()
        z = z + self.solid(y.unflatten(1, (4, 4))).square().mean()
        return z + self.patches(x).sin().mean() + self.up(y).cos().mean()


MARKS = [
    sparse_opt.Mark(f"^{name}.weight$", block=block, density=density, dims=dims)
    for name, block, density, dims in (
        ("point", (8, 16), 0.5, "row,col,col,col"),
        ("square", (16, 16), 0.3, "row,col,col,col"),
        ("strided", (4, 4), 0.4, "row,col,col,col"),
        ("patches", (8, 32), 0.5, "row,col,col,col"),
        ("line", (1, 1), 0.3, "row,col,col"),
        ("solid", (8, 1), 0.3, "row,col,col,col,col"),
    )
]


class Lines(nn.Module):
    """Images so large that products read windows in lines: `Net` copies those of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.square = nn.Conv2d(16, 32, 3, padding=1)
        self.same = nn.Conv2d(32, 16, (3, 5), padding=(2, 2), dilation=(2, 1), bias=False)
        self.narrow = nn.Conv2d(16, 8, (2, 3))
        self.line = nn.Conv1d(8, 16, 7, padding=3)
        self.solid = nn.Conv3d(2, 8, (2, 2, 3), padding=(1, 0, 1))

    def forward(self, x: Any) -> Any:
        y = self.narrow(self.same(torch.relu(self.square(x))))
        z = self.line(y.flatten(2))
        return z.square().mean() + self.solid(x.unflatten(1, (2, 8))).sin().mean()


LINES = [
    sparse_opt.Mark(f"^{name}.weight$", block=block, density=density, dims=dims)
    for name, block, density, dims in (
        ("square", (16, 16), 0.3, "row,col,col,col"),
        ("same", (8, 16), 0.3, "row,col,col,col"),
        ("narrow", (8, 1), 0.4, "row,col,col,col"),
        ("line", (1, 8), 0.3, "row,col,col"),
        ("solid", (1, 1), 0.3, "row,col,col,col,col"),
    )
]


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = (model(batch["x"]) - 3.0).square()
    loss.backward()
    optimizer.step()
    return loss.detach()


def check_steps(
    kind: Any, shape: Any, marks: Any, dtype: torch.dtype, bound: float
) -> None:
    """Steps with updates of the patterns, beside the same on weights times masks in float64."""
    torch.manual_seed(1)
    model = kind().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0625)
    reference, reference_optimizer = twin(model, optimizer)
    reference.double()
    batch = {"x": torch.randn(shape).to(dtype)}
    wide = {"x": batch["x"].double()}
    export = sparse_opt.torch.export(train_step, model, optimizer, batch)
    step = sparse_opt.compile(export, marks, check=0, options=["-O", "1"])
    weights = dict(reference.named_parameters())
    worst = 0.0
    for i in range(4):
        if i == 2 and marks:
            step.update_patterns(0.5)
        if i in (0, 2):
            for name, value in step.state_dict().items():
                weights[name].data = value.double()
        masks = {}
        for name, pattern in step.patterns.items():  # Blocks that have come are zeros.
            blocks = step.blocks(name)
            rows, columns = pattern.rows // pattern.block_rows, pattern.cols // pattern.block_cols
            stored = np.zeros((rows, columns), bool)
            stored[blocks.rows, blocks.col_idx] = True
            mask = stored.repeat(pattern.block_rows, 0).repeat(pattern.block_cols, 1)
            masks[name] = torch.from_numpy(mask).view(weights[name].shape)
        got = float(step(batch))
        want = float(train_step(reference, reference_optimizer, wide))
        for name, mask in masks.items():
            weights[name].data *= mask
        worst = max(worst, abs(got - want) / abs(want))
    for name, value in step.state_dict().items():
        weight = weights[name].detach()
        worst = max(worst, float((value.double() - weight).abs().max() / weight.abs().max()))
    products = {k: n for k, n in step.products.items() if n}
    right = "right" if worst < bound else "WRONG"
    print(f"{kind.__name__} {str(dtype)[6:]}: {right}, {worst:.1e}, {products}", flush=True)


def train_images(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    x = model.images
    for convolution in model.convolutions:
        x = convolution(torch.relu(x))
    loss = (x * batch).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


IMAGES: list[tuple[tuple[int, ...], ...]] = [  # size, window, padding, dilation, block
    ((13, 31), (3, 3), (1, 1), (1, 1), (1, 8)),
    ((7, 30), (1, 5), (0, 2), (1, 1), (16, 8)),
    ((15, 15), (3, 3), (1, 1), (1, 1), (8, 8)),
    ((14, 14), (3, 3), (2, 2), (2, 2), (2, 4)),
    ((62,), (5,), (2,), (1,), (8, 1)),
    ((63,), (2,), (1,), (1,), (1, 1)),
    ((62,), (3,), (2,), (1,), (8, 1)),
    ((6, 7, 7), (3, 2, 3), (1, 1, 1), (1, 1, 1), (4, 16)),
]


def check_images(count: int, dtype: torch.dtype, bound: float) -> None:
    """Gradients at images, after one convolution and after two: rows with their zeros are as long as
    a panel, or as several, or as no number of panels."""
    worst = 0.0
    for size, window, padding, dilation, block in IMAGES:
        torch.manual_seed(2)
        channels = 1 if block[1] == 1 else 16
        kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(size) - 1]
        model = nn.Module()
        model.convolutions = nn.ModuleList(
            kind(ins, 16, window, padding=padding, dilation=dilation, bias=count == 2)
            for ins in [channels, 16][:count]
        )
        model.images = nn.Parameter(torch.randn(2, channels, *size))
        model.to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0625)
        reference, reference_optimizer = twin(model, optimizer)
        reference.double()
        x = model.images
        for convolution in model.convolutions:
            x = convolution(x)
        batch = torch.randn_like(x)
        export = sparse_opt.torch.export(train_images, model, optimizer, batch)
        dims = "row" + ",col" * (1 + len(size))
        marks = [sparse_opt.Mark("convolutions.*weight$", block=block, density=0.3, dims=dims)]
        step = sparse_opt.compile(export, marks, check=0, options=["-O", "1"])
        before = {name: value.double() for name, value in step.state_dict().items()}
        reference.load_state_dict(before)
        step(batch)
        train_images(reference, reference_optimizer, batch.double())
        want, after = reference.images.detach(), step.state_dict()["images"].double()
        moved = (want - before["images"]).abs().max()
        worst = max(worst, float((after - want).abs().max() / moved))
    right = "right" if worst < bound else "WRONG"
    print(f"images, {count} {str(dtype)[6:]}: {right}, {worst:.1e}", flush=True)


check_images(1, torch.float32, 1e-5)
# CHECK-NEXT: images, 1 float32: right
check_images(2, torch.float32, 1e-5)
# CHECK-NEXT: images, 2 float32: right
check_images(2, torch.float64, 1e-12)
# CHECK-NEXT: images, 2 float64: right

for checked in ((Net, (2, 3, 12, 12), MARKS), (Lines, (2, 16, 25, 24), LINES)):
    check_steps(checked[0], checked[1], [], torch.float32, 1e-5)
    check_steps(*checked, torch.float32, 1e-5)
    check_steps(*checked, torch.float64, 1e-12)
    check_steps(*checked, torch.bfloat16, 2e-2)
# CHECK-NEXT: Net float32: right
# CHECK-NEXT: Net float32: right
# CHECK-NEXT: Net float64: right
# CHECK-NEXT: Net bfloat16: right
# CHECK-NEXT: Lines float32: right
# CHECK-NEXT: Lines float32: right
# CHECK-NEXT: Lines float64: right
# CHECK-NEXT: Lines bfloat16: right


def check_densities() -> None:
    """A density that is distributed by the extents of arrays, and of matrices, beside the
    formulas of Evci et al. 2020 and Mocanu et al. 2018."""
    model = nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.Flatten(), nn.Linear(64, 32, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0625)

    def train(model: Any, optimizer: Any, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    export = sparse_opt.torch.export(train, model, optimizer, torch.randn(2, 8, 4, 4))
    marks = [sparse_opt.Mark("0.weight", block=1, density=0.9, dims="row,col,col,col"),
             sparse_opt.Mark("2.weight", block=1, density=0.9)]  # fmt: skip
    step = sparse_opt.compile(export, marks, check=0, options=["-O", "1"])
    conv, linear = 16 * 8 * 9, 64 * 32
    for name, extents in (("erk", 16 + 8 + 3 + 3), ("er", 16 + 8 * 9)):
        group = sparse_opt.Group(density=0.3, distribution=name, method="set", every=10)
        sparse_opt.Sparsity(step, group, steps=100)
        scale = 0.3 * (conv + linear) / (extents + 64 + 32)
        want = [int(scale * extents + 0.5), int(scale * 96 + 0.5)]
        got = [len(step.blocks(weight).col_idx) for weight in ("0.weight", "2.weight")]
        print(name, got, got == want)


check_densities()
# CHECK-NEXT: erk [{{.*}}] True
# CHECK-NEXT: er [{{.*}}] True
