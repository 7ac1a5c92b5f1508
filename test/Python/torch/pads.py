# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Paddings of both signs and their gradients, and what is not finite in look-ups.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

"""Compares forms of padding, and of adding at indices, with PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import sparse_opt.torch

FORMS: dict[str, Any] = {
    "one side": lambda x, u: F.pad(x, (1, 0)),
    "both sides, a value": lambda x, u: F.pad(x, (1, 2), value=0.3),
    "a crop": lambda x, u: F.pad(x, (-1, -1)),
    "a crop of two dimensions": lambda x, u: F.pad(x, (-1, 0, 0, -2)),
    "a shift": lambda x, u: F.pad(x, (0, 0, 1, -1)),
    "a crop that is padded again": lambda x, u: F.pad(F.pad(x, (-2, 0)), (2, 0)),
    "causal": lambda x, u: F.conv1d(F.pad(x, (2, 0)), torch.ones(4, 4, 3)),
    "added at indices": lambda x, u: x.index_add(0, torch.tensor([1, 1]), u),
    "put at indices": lambda x, u: x.index_put(
        (torch.tensor([1, 1]),), u, accumulate=True
    ),
}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.ParameterDict(
            {str(i): torch.zeros(2, 4, 8) for i in range(len(FORMS))}
        )

    def forward(self, x: Any, u: Any) -> Any:
        return [form(x + self.w[str(i)], u) for i, form in enumerate(FORMS.values())]


def train_step(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    results = model(*batch)
    # Not of what is not finite.
    loss = sum(
        (y * torch.arange(1.0, y.numel() + 1).view(y.shape)).mean()
        for y in results[:-2]
    )
    loss.backward()
    optimizer.step()
    return loss.detach(), [y.detach() for y in results]


torch.manual_seed(0)
x, u = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
u[0, 1, 2], u[1, 3, 3] = torch.inf, torch.nan
eager, model = Model(), Model()
optimizers = [torch.optim.SGD(m.parameters(), lr=1.0) for m in (model, eager)]
exported = sparse_opt.torch.export(train_step, model, optimizers[0], (x, u))
step = sparse_opt.compile(exported, options=["-O", "1"])
_, got = step((x, u))
_, want = train_step(eager, optimizers[1], (x, u))
state = step.state_dict()
for i, name in enumerate(FORMS):
    value = torch.allclose(got[i], want[i], rtol=1e-5, atol=1e-5, equal_nan=True)
    w = state[f"w.{i}"]
    gradient = torch.allclose(w, eager.w[str(i)], rtol=1e-5, atol=1e-5)
    print(f"{name}: equal" if value and gradient else f"{name}: apart")

# CHECK-COUNT-9: equal
