# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# PyTorch's Muon makes of gradients what it makes of masked ones.

# RUN: %python %s | FileCheck %s

import copy

import numpy as np
import torch
from torch import nn

import sparse_opt
import sparse_opt.torch


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = (model(batch) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def make(model):
    return torch.optim.Muon(model.parameters(), lr=0.02, weight_decay=0.1)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32, bias=False), nn.Tanh(), nn.Linear(32, 8, bias=False))
batch = torch.randn(24, 16)
marks = ["match=weight$ block=4x4 density=0.5"]
first, masked, dense = (copy.deepcopy(model) for _ in range(3))
exported = sparse_opt.torch.export(train_step, model, make(model), batch)
step = sparse_opt.compile(exported, marks, pattern="largest", options=["-O", "1"])

masks = []
for name, p in masked.named_parameters():
    blocks = step.blocks(name)
    grid = np.zeros((p.shape[0] // 4, p.shape[1] // 4), np.float32)
    grid[blocks.rows, blocks.col_idx] = 1
    masks.append(torch.tensor(np.kron(grid, np.ones((4, 4), np.float32))))
for other, hooked in ((masked, True), (dense, False)):
    optimizer = make(other)
    for p, mask in zip(other.parameters(), masks):
        p.data *= mask
        if hooked:
            p.register_hook(lambda g, mask=mask: g * mask)
    for _ in range(3):
        train_step(other, optimizer, batch)
        for p, mask in zip(other.parameters(), masks):
            p.data *= mask
for _ in range(3):
    step(batch)


def apart(other):
    """What of the weights' movement is otherwise than in `other`."""
    start = [p.detach() * mask for p, mask in zip(first.parameters(), masks)]
    got = [step.state_dict()[name] for name, _ in model.named_parameters()]
    return max(
        ((g - p).abs().max() / (p - s).abs().max()).item()
        for g, p, s in zip(got, other.parameters(), start)
    )


# Its products are in bf16, as PyTorch's are: 0.03 of what the weights move is theirs.
# CHECK: near True, other than without masks True
print(f"near {apart(masked) < 0.1}, other than without masks {apart(dense) > 0.5}")
