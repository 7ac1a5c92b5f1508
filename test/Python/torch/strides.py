# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Gradients that lie in memory otherwise than their parameters.

# RUN: %python %s | FileCheck %s

"""The check of first runs steps as the program does: PyTorch's fused Adam would not."""

from __future__ import annotations

import math
from typing import Any

import torch

import sparse_opt.torch


def train_step(model: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    model.weight.grad = model.weight.grad.t().contiguous().t()
    optimizer.step()
    return loss


torch.manual_seed(0)
model, x = torch.nn.Linear(8, 4), torch.randn(16, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
exported = sparse_opt.torch.export(train_step, model, optimizer, x)
step = sparse_opt.compile(exported, options=["-O", "1"], check=2)
# CHECK: all finite True
print("all finite", all(math.isfinite(step(x)) for _ in range(3)))
