# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What an export of PyTorch has, and what marks of any form would make of it.

# RUN: %python -u %s | FileCheck %s --implicit-check-not=accepted

"""A model of matrices, an embedding, a norm and a convolution."""

from __future__ import annotations

import copy
import sys
import logging
from typing import Any

import torch
from torch import nn

import sparse_opt.torch
from refusals import refuse
from sparse_opt import Mark
from sparse_opt.torch import nn as sparse

logging.basicConfig(stream=sys.stdout, format="%(message)s")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.up = nn.Embedding(64, 16), nn.Linear(16, 32)
        self.norm, self.conv = nn.LayerNorm(32), nn.Conv1d(1, 4, 3)
        self.down, self.even = nn.Linear(32, 7), nn.Linear(32, 24)

    def forward(self, x: Any) -> Any:
        h = self.norm(self.up(self.table(x)))
        return self.down(h).sum() + self.conv(h[:, None]).sum() + self.even(h).square().sum()


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = model(batch) + model.even.weight.max()
    loss.backward()
    optimizer.step()
    return loss.detach()


def made(model: Any, **options: Any) -> sparse_opt.Export:
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    return sparse_opt.torch.export(train_step, model, optimizer, torch.arange(8), **options)


torch.manual_seed(0)
model = Model()
mark = Mark("weight$", block=8, density=0.5)
export = made(model, marks=mark)
assert export.marks == (mark,) == made(model, marks=vars(mark)).marks == made(model, marks=[str(mark)]).marks

# CHECK: <sparse_opt.Export of PyTorch: {{[0-9]+}} arguments, {{[0-9,]+}} characters of text (print shows it)
# CHECK-NEXT:   weights     11, of 2,671 parameters (export.weights lists them)
# CHECK-NEXT:   operations  {{[0-9,]+$}}
# CHECK-NEXT:   marks       Mark('weight$', block=8, density=0.5)>
print(repr(export))
assert len(repr(export)) < 1000 < len(export) == len(str(export))

# FLOPs are those of the products: forward, transposed for the gradient below, and the gradient.
weights = {w.name: w for w in export.weights}
assert weights.keys() == dict(model.named_parameters()).keys()
for name, parameter in model.named_parameters():
    weight = weights[name]
    assert weight.shape == tuple(parameter.shape) and weight.parameters == parameter.numel()
    assert weight.blocks == tuple(
        n for n in (1, 2, 4, 8, 16, 32, 64) if parameter.dim() == 2 and not any(s % n for s in parameter.shape)
    )
assert weights["up.weight"].flops == 3 * 2 * 8 * 16 * 32 and weights["table.weight"].flops == 0
assert weights["conv.weight"].flops is weights["norm.weight"].share is None
total = sum(w.share or 0 for w in export.weights)
assert 0.75 < total < 1, total  # the rest is the convolution's

# CHECK: weight        shape      blocks          parameters  share of FLOPs
# CHECK: norm.bias     [32]       -                       32               -
# CHECK: down.weight   [7, 32]    1                      224           {{1[0-9]\.[0-9]}}%
print(export.weights)

# CHECK: 3 of 11 weights are sparse
# CHECK-NEXT: table.weight  [64, 16]  8x8  8 of 16 blocks  1 gathered, 1 scattered
# CHECK-NEXT: up.weight     [32, 16]  8x8  4 of 8 blocks   1 spmm, 1 spmm transposed, 1 sddmm
# CHECK-NEXT: even.weight   [24, 32]  8x8  6 of 12 blocks  1 spmm, 1 spmm transposed, 1 sddmm
# CHECK-NEXT: dense, no matrix: 'up.bias' [32], 'norm.weight' [32], 'norm.bias' [32] and 4 more
# CHECK-NEXT: dense, not divided by blocks of 8x8: 'down.weight' [7, 32]
# CHECK-NEXT: left dense of 'even.weight': {{.*}}, which reads the whole matrix at {{.*}}explain.py:41
# CHECK:      bytes of weights   10,684   6,076
explained = sparse_opt.explain(export)
print(explained)
numel = {w.name: w.parameters for w in export.weights}
sparse_numel = sum(numel.values()) - sum(numel[w.name] // 2 for w in explained.weights if w.is_sparse)
assert explained.weight_bytes == (4 * sum(numel.values()), 4 * sparse_numel)
step = sparse_opt.compile(export, options=["-O", "0"], pattern="random", check=0)
assert explained.flops[1] == step.flops and [w.name for w in explained.weights if w.is_sparse] == list(step.patterns)
held = [b for b in step.buffers.values() if b.carried]
assert sum(explained.weight_bytes[1:] + explained.state_bytes[1:]) == sum(step.arrays[b.name].nbytes for b in held)
# CHECK: 'weight$' marks 3 of 6 weights

# Another mark for the same export.
# CHECK: 1 of 11 weights are sparse
# CHECK: dense, matched by no mark: 'table.weight' [64, 16], 'down.weight' [7, 32], 'even.weight' [24, 32]
print(sparse_opt.explain(export, {"match": "up", "block": (32, 16), "density": 1}))
# CHECK: expected 'conv|norm' to match matrices that blocks of 8x8 divide, but got 'norm.weight' [32], 'norm.bias' [32], 'conv.weight' [4, 1, 3] and 1 more: choose another block, or mark 'table.weight' [64, 16], 'up.weight' [32, 16], 'even.weight' [24, 32]
refuse(sparse_opt.explain, export, Mark("conv|norm", block=8))

# Layers have marks of their own, which are objects, too.
# CHECK: 3 layers have blocks now
layers = sparse.sparsify(copy.deepcopy(model), vars(mark))
# CHECK: [Mark('^table\\.weight$', block=8, density=0.5), Mark('^up\\.weight$', block=8, density=0.5), Mark('^even\\.weight$', block=8, density=0.5)]
print(sparse.marks_of(layers))
taken = sparse_opt.explain(made(layers))
assert [w.mark for w in taken.weights if w.is_sparse] == sparse.marks_of(layers)
assert taken.weight_bytes == explained.weight_bytes

# What matches no weight of a layer lists what could be marked, in whatever form.
# CHECK-COUNT-3: expected 'match=wieght' to match the weight of a layer that blocks of 8x8 divide, but got no match in 5 layers: mark 'table.weight' [64, 16], 'up.weight' [32, 16], 'even.weight' [24, 32]{{$}}
for form in (Mark("wieght", block=8), {"match": "wieght", "block": 8}, "match=wieght block=8x8"):
    refuse(sparse.sparsify, model, form)
# CHECK: but got up.weight (32x16, not of dims row,col,col) in 5 layers: choose another block
refuse(sparse.sparsify, model, Mark("up", dims="row,col,col"))
# CHECK: expected a mark of layers, by match, block, density and dims, but got 'attention=.
refuse(sparse.sparsify, model, "attention=.")
# CHECK: expected an option of sparsify, but got 'patern': the nearest is 'pattern'
refuse(sparse.sparsify, model, mark, patern="largest")
# CHECK: expected an option of update_patterns, but got 'droop': the nearest is 'drop'
refuse(sparse.update_patterns, layers, torch.optim.SGD(layers.parameters()), droop=0.3)
# CHECK: expected an option of Linear, but got 'blocks': the nearest is 'block'
refuse(sparse.Linear, 16, 16, blocks=4)
# CHECK: expected an option of export_function, but got 'train': the nearest is 'training'
refuse(sparse_opt.torch.export_function, model, model, torch.arange(8), train=True)
