# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Random numbers that are functions of uniform ones.

# RUN: %python %s | FileCheck %s --implicit-check-not=False

"""Draws of a compiled step: what they are, and that its program computes the same of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn

import sparse_opt.torch

COUNT = 4096


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        mixed = x[torch.randperm(16)] + torch.zeros_like(x).uniform_(-0.1, 0.1)
        y = self.layer(mixed)
        y = F.gumbel_softmax(y) + D.Normal(y, 0.1).rsample()
        picked = D.Categorical(logits=y.detach()).sample()
        steps = torch.randint(0, 8, (16, 1))
        return y.gather(1, steps) + picked[:, None]


def train_step(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    weights = torch.tensor([0.0, 1.0, 3.0])
    draws = {
        "uniform": torch.empty(COUNT).uniform_(2, 5),
        "exponential": torch.empty(COUNT).exponential_(2.0),
        "randint": torch.randint(-3, 4, (COUNT,)),
        "randint_like": torch.randint_like(torch.zeros(COUNT), 7),
        "randperm": torch.randperm(100),
        "multinomial": torch.multinomial(weights, COUNT, replacement=True),
        "without replacement": torch.multinomial(weights, 2),
        "normal": torch.normal(torch.ones(COUNT), 2.0),
    }
    return loss.detach(), draws


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
batch = torch.randn(16, 8)
exported = sparse_opt.torch.export(train_step, model, optimizer, batch)
# The first runs are compared with the program itself, on the step's own numbers.
step = sparse_opt.compile(exported, options=["-O", "1"], check=2)
_, draws = step(batch)
_, others = step(batch)


def near(value: Any, expected: float, far: float) -> bool:
    return abs(float(value) - expected) < far


u, e, n = draws["uniform"], draws["exponential"], draws["normal"]
# CHECK: uniform True True
print("uniform", bool(u.min() >= 2 and u.max() < 5), near(u.mean(), 3.5, 0.05))
# CHECK: exponential True True
print("exponential", bool(e.min() >= 0 and e.isfinite().all()), near(e.mean(), 0.5, 0.03))
# CHECK: normal True True
print("normal", near(n.mean(), 1, 0.15), near(n.std(), 2, 0.15))
# CHECK: randint {{\[}}-3, -2, -1, 0, 1, 2, 3] [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
print("randint", draws["randint"].unique().tolist(), draws["randint_like"].unique().tolist())
# CHECK: randperm True True
perm = draws["randperm"]
print("randperm", perm.sort()[0].tolist() == list(range(100)), perm.tolist() != list(range(100)))
# CHECK: multinomial {{\[}}1, 2] True [1, 2]
picked = draws["multinomial"]
share = (picked == 2).float().mean()
both = draws["without replacement"]
print("multinomial", picked.unique().tolist(), near(share, 0.75, 0.03), both.sort()[0].tolist())
# CHECK: others True
print("others", all(not torch.equal(draws[k], others[k]) for k in draws if k != "without replacement"))
# CHECK: again True
step.load_state_dict(model.state_dict())
first, second = step(batch, seed=3)[1], step(batch, seed=3)[1]
print("again", all(torch.equal(first[k], second[k]) for k in first))
