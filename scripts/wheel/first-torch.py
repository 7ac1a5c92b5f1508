# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The first sparse step of a PyTorch model, as a user of the wheel writes it."""

import sparse_opt.torch
import torch
from torch import nn


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch["x"]), batch["label"])
    loss.backward()
    optimizer.step()
    return loss.detach()


model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8))
optimizer = torch.optim.AdamW(model.parameters())
batch = {"x": torch.randn(32, 64), "label": torch.randint(8, (32,))}
export = sparse_opt.torch.export(train_step, model, optimizer, batch)
step = sparse_opt.compile(export, ["match=weight$ block=8x8 density=0.5"], pattern="largest")
first = float(step(batch))
for _ in range(20):
    last = float(step(batch))
assert step.products["spmm"] and last < first, (step.products, first, last)
print(f"loss {first:.3f}, then {last:.3f}; {step}")
