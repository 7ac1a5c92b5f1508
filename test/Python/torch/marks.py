# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A mark takes the matrices that its blocks divide, and says what it leaves.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

"""Marks on a model with norms, convolutions and matrices of odd sizes."""

from __future__ import annotations

import logging
import sys
from typing import Any

import torch
from torch import nn

import sparse_opt.torch
from refusals import refuse
from sparse_opt import Mark

logging.basicConfig(stream=sys.stdout, format="%(message)s")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 7)
        self.conv, self.even = nn.Conv1d(1, 4, 3), nn.Linear(32, 24)

    def forward(self, x: Any) -> Any:
        h = self.norm(self.up(x))
        return self.down(h).sum() + self.conv(x[:, None]).sum() + self.even(h).square().sum()


def train_step(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = model(batch)
    loss.backward()
    optimizer.step()
    return loss.detach()


model = Model()
optimizer = torch.optim.Adam(model.parameters(), 0.1)
exported = sparse_opt.torch.export(train_step, model, optimizer, torch.randn(4, 16))


def compile(mark: Any) -> sparse_opt.Step:
    return sparse_opt.compile(exported, [mark], options=["-O", "0"], pattern="random")


# CHECK: 'weight$' marks 2 of 5 weights, the matrices that blocks of 8x8 divide; dense stay 'norm.weight' [32], 'down.weight' [7, 32], 'conv.weight' [4, 1, 3]
# CHECK: ['up.weight', 'even.weight']
step = compile("match=weight$ block=8x8 density=0.5")
print(list(step.patterns))

# CHECK: evaluated True
batch = torch.randn(4, 16)
print("evaluated", bool(step.evaluate(batch) == step(batch)))

# What fits all says nothing.
# CHECK: ['even.weight']
print(list(compile("match=even.weight$ block=8x8").patterns))

# CHECK: expected 'norm|down' to match matrices that blocks of 8x8 divide, but got 'norm.weight' [32], 'norm.bias' [32], 'down.weight' [7, 32] and 1 more: choose another block, or mark 'up.weight' [32, 16], 'even.weight' [24, 32]
refuse(compile, "match=norm|down block=8x8")

# What is no matrix that its blocks divide is no candidate, in whatever form a mark is given.
# CHECK-COUNT-3: expected 'wieght$' to match the bsr.name of a weight, but got no match in 10 names: the nearest are 'up.weight' [32, 16], 'even.weight' [24, 32]{{$}}
refuse(compile, "match=wieght$ block=8x8")
refuse(compile, {"match": "wieght$", "block": 8})
refuse(compile, Mark("wieght$", block=8))
# CHECK: expected 'wieght$' to match the bsr.name of a weight, but got no match in 10 names: none is of matrices that blocks of 64x64 divide
refuse(compile, Mark("wieght$", block=64))

# CHECK: argument "up.weight": expected matrix 32x16 to be a multiple of block 64x64: pad it or choose another block
refuse(compile, "match=up.weight$ block=64x64")


# An export that is given marks checks them before it traces, and compile takes them.

traces = 0


def counted(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    global traces
    traces += 1
    return train_step(model, optimizer, batch)


def export(*marks: str) -> sparse_opt.Export:
    return sparse_opt.torch.export(counted, model, optimizer, batch, marks=marks)


# CHECK: expected 'wieght$' to match the bsr.name of a weight, but got no match in 10 names: the nearest are
refuse(export, "match=up.weight$", "match=wieght$ block=8x8")
# CHECK: argument "up.weight": expected matrix 32x16 to be a multiple of block 64x64: pad it or choose another block
refuse(export, "match=up.weight$ block=64x64")
# CHECK: expected 'norm|down' to match matrices that blocks of 8x8 divide, but got 'norm.weight' [32], 'norm.bias' [32]
refuse(export, "match=norm|down block=8x8")
# CHECK: expected a key of a mark, but got 'macth': the nearest is 'match'
refuse(export, "macth=up")
# CHECK: expected a list of marks, but got 5
refuse(sparse_opt.torch.export, counted, model, optimizer, batch, marks=5)
# CHECK: expected an option of export, but got 'mark': the nearest is 'marks'
refuse(sparse_opt.torch.export, counted, model, optimizer, batch, mark="match=up")
# CHECK: traces 0
print("traces", traces)

# Masks and attention are found by what a step does.
# CHECK: 'weight$' marks 2 of 5 weights
# CHECK: ['up.weight', 'even.weight'] [] True
taken = export("match=weight$ block=8x8 density=0.5")
step = sparse_opt.compile(taken, options=["-O", "0"], pattern="random")
plain = sparse_opt.compile(taken, [], options=["-O", "0"])
export("match=up.weight$ block=8x8 mask=none", "attention=. window=3 global=1 block=64x64")
print(list(step.patterns), list(plain.patterns), traces > 0)
