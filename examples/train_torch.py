# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains a small classifier in PyTorch; docs/python.md makes it sparse.

"""A training script as PyTorch's users write it."""

import torch
from torch import nn


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch["x"]), batch["label"])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def batches(count):
    """Points on a sphere; a label says in which of eight directions one lies."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(8, 64, generator=generator)
    for _ in range(count):
        x = torch.randn(32, 64, generator=generator)
        yield {"x": x, "label": (x @ directions.T).argmax(1)}


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)

for i, batch in enumerate(batches(300)):
    loss = train_step(model, optimizer, batch)
    scheduler.step()
    if i % 100 == 99:
        print(f"step {i + 1}: loss {float(loss):.3f}")

print(f"norm of the first weight: {float(model[0].weight.norm()):.2f}")
