# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A PyTorch model under torch.nn.utils.prune runs sparse from its own masks.

# RUN: %python %s | FileCheck %s

from typing import Any

import torch
from torch import nn
from torch.nn.utils import prune

import sparse_opt.torch


def train_step(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = ((model(batch) - batch) ** 2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss.detach()


def made():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    for layer in (model[0], model[2]):
        grid = torch.rand(layer.weight.shape[0] // 4, layer.weight.shape[1] // 4) > 0.5
        mask = grid.repeat_interleave(4, 0).repeat_interleave(4, 1).float()
        prune.custom_from_mask(layer, "weight", mask)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


model, optimizer = made()
eager = made()
batch = torch.randn(8, 16)
export = sparse_opt.torch.export(train_step, model, optimizer, batch)
step = sparse_opt.compile(
    export,
    ["match=weight_orig$ block=4x4 density=0.7 mask=weight_mask$"],
    pattern="mask",
    options=["-O", "1"],
)

# CHECK: left dense 0, sparse 5, masks in the state_dict True
products = step.products
sparse = products["spmm"] + products["spmm_transposed"] + products["sddmm"]
masks = {n: b for n, b in model.named_buffers()}
same = all(torch.equal(step.state_dict()[n], b) for n, b in masks.items())
print(f"left dense {products['left_dense']}, sparse {sparse}, masks in the", end=" ")
print(f"state_dict {same and len(masks) == 2}")

# CHECK: loss close True, weights close True
loss = 0.0
for _ in range(3):
    got, want = float(step(batch)), float(train_step(*eager, batch))
    loss = max(loss, abs(got - want) / want)
state = step.state_dict()
worst = 0.0
for name, p in eager[0].named_parameters():
    kept = masks.get(name.replace("_orig", "_mask"), torch.ones(()))
    worst = max(worst, float((state[name] - p.detach() * kept).abs().max()))
print(f"loss close {loss < 1e-5}, weights close {worst < 1e-4}")
