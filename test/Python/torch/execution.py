# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares compiled steps with the same steps in PyTorch.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart\ by

"""Runs three steps of one model under every optimizer, and of several models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn, optim

import sparse_opt.torch


class LAMB(optim.Optimizer):
    """A user's own optimizer, whose state comes with its first step."""

    def __init__(self, params: Any, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                state["step"] += 1
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                update = state["m"] / (state["v"].sqrt() + 1e-6) + 0.01 * p
                ratio = p.norm() / update.norm()
                ratio = torch.where(ratio.isfinite() & (ratio > 0), ratio, 1.0)
                p.sub_(group["lr"] * ratio * update)


def train_step(model: nn.Module, optimizer: optim.Optimizer, batch: Any) -> Any:
    x, y = batch
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss.detach()


def compare(
    name: str,
    model: nn.Module,
    make: Callable[[Any], optim.Optimizer],
    batches: Iterable[Any],
    step: Any = train_step,
    tolerance: float = 1e-4,
) -> None:
    batches = list(batches)
    eager = copy.deepcopy(model)
    optimizer, eager_optimizer = make(model.parameters()), make(eager.parameters())
    exported = sparse_opt.torch.export(step, model, optimizer, batches[0])
    compiled = sparse_opt.compile(exported, options=["-O", "1"])
    differences = []
    for batch in batches:
        got, want = compiled(batch), step(eager, eager_optimizer, batch)
        differences.append(abs(got - want).double() / abs(want))
    for key, want in eager.state_dict().items():
        got = compiled.state_dict()[key]
        difference = (got.double() - want.double()).abs().max()
        differences.append(difference / (want.double().abs().max() + 1e-3))
    worst = float(torch.stack(differences).max())  # NaN is apart
    print(f"{name}: equal" if worst < tolerance else f"{name}: apart by {worst:.1e}")


def mlp(*middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), *(middle or [nn.Tanh()]), nn.Linear(16, 6))


torch.manual_seed(1)
data = [(torch.randn(8, 12), torch.randn(8, 6)) for _ in range(3)]

# CHECK: AdamW: equal
# CHECK: Adam: equal
# CHECK: AMSGrad: equal
# CHECK: NAdam: equal
# CHECK: RAdam: equal
# CHECK: Adamax: equal
# CHECK: Adadelta: equal
# CHECK: Adagrad: equal
# CHECK: RMSprop: equal
# CHECK: SGD: equal
# CHECK: momentum: equal
# CHECK: Nesterov: equal
# CHECK: Adafactor: equal
# CHECK: ASGD: equal
# CHECK: Rprop: equal
# CHECK: LAMB: equal
for name, make in {
    "AdamW": lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "Adam": lambda p: optim.Adam(p, lr=0.01),
    "AMSGrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "NAdam": lambda p: optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: optim.RAdam(p, lr=0.01),
    "Adamax": lambda p: optim.Adamax(p, lr=0.01),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.5),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.05),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "SGD": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.01),
    "ASGD": lambda p: optim.ASGD(p, lr=0.01),
    "Rprop": lambda p: optim.Rprop(p, lr=0.01),
    "LAMB": lambda p: LAMB(p, lr=0.01),
}.items():
    compare(name, mlp(), make, data)


# What an optimizer counts is a number: 1 - 0.999**step has half of the digits of f32.


class Linear(nn.Module):
    """A weight whose gradient is what the batch has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum()


def linear_step(model: nn.Module, optimizer: optim.Optimizer, x: torch.Tensor) -> Any:
    optimizer.zero_grad()
    loss = model(x)
    loss.backward()
    optimizer.step()
    return loss.detach()


# CHECK-COUNT-7: counts of {{.*}}: exact
slopes = [torch.rand(8, 8) + 0.5 for _ in range(9)]
for name, make_counting in {
    "Adam": lambda p: optim.Adam(p, lr=1.0),
    "AdamW": lambda p: optim.AdamW(p, lr=1.0, weight_decay=0.1),
    "AMSGrad": lambda p: optim.Adam(p, lr=1.0, amsgrad=True),
    "NAdam": lambda p: optim.NAdam(p, lr=1.0),
    "RAdam": lambda p: optim.RAdam(p, lr=1.0),
    "Adamax": lambda p: optim.Adamax(p, lr=1.0),
    "ASGD": lambda p: optim.ASGD(p, lr=1.0),
}.items():
    model, exact = Linear(), Linear().double()
    optimizer, exact_optimizer = make_counting(model.parameters()), make_counting(exact.parameters())
    counting = sparse_opt.compile(sparse_opt.torch.export(linear_step, model, optimizer, slopes[0]))
    for x in slopes:
        counting(x)
        linear_step(exact, exact_optimizer, x.double())
    got = counting.state_dict()["weight"].double()
    error = float(((got - exact.weight) / exact.weight).detach().abs().max())
    print(f"counts of {name}: exact" if error < 1e-6 else f"counts of {name}: apart by {error:.1e}")


def two_groups(params: Any) -> optim.Optimizer:
    matrices, vectors = [], []
    for p in params:
        (matrices if p.dim() > 1 else vectors).append(p)
    return optim.AdamW(
        [
            {"params": matrices, "weight_decay": 0.1},
            {"params": vectors, "weight_decay": 0.0, "lr": 0.03},
        ],
        lr=0.01,
    )


# CHECK: groups: equal
compare("groups", mlp(), two_groups, data)

# Running statistics are buffers that a step writes.

# CHECK: BatchNorm: equal
compare("BatchNorm", mlp(nn.ReLU(), nn.BatchNorm1d(16)), optim.Adagrad, data)


def autocast_step(model: nn.Module, optimizer: optim.Optimizer, batch: Any) -> Any:
    x, y = batch
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


# bf16 has 8 bits of mantissa: sums in another order differ in the last ones.

# CHECK: autocast: equal
compare("autocast", mlp(), lambda p: optim.SGD(p, lr=0.1), data, autocast_step, 2e-2)


class Tagger(nn.Module):
    """An embedding that is the head too, and a frozen projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.frozen(self.embedding(ids))))


def tag_step(model: nn.Module, optimizer: optim.Optimizer, batch: Any) -> Any:
    optimizer.zero_grad()
    scores = model(batch["ids"])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch["tags"].flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


torch.manual_seed(2)
words = [
    {"ids": torch.randint(0, 20, (2, 5)), "tags": torch.randint(0, 20, (2, 5))}
    for _ in range(3)
]
words[1]["tags"][0, :3] = -100


class Sums(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1).tanh()


# CHECK: sums: equal
compare("sums", mlp(Sums()), lambda p: optim.SGD(p, lr=0.1), data)

# CHECK: tied: equal
compare("tied", Tagger(), lambda p: optim.AdamW(p, lr=0.01), words, tag_step)

# Dropout keeps the right share, differs from step to step, and repeats.

dropped = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.25))


def dropout_step(model: nn.Module, optimizer: optim.Optimizer, batch: Any) -> Any:
    optimizer.zero_grad()
    share = (model[1](batch) > 0).float().mean()
    model[0](batch[:, :1]).mean().backward()
    optimizer.step()
    return share


ones = torch.ones(100, 100)
step = sparse_opt.compile(
    sparse_opt.torch.export(
        dropout_step, dropped, optim.SGD(dropped.parameters(), lr=0.0), ones
    )
)
shares = [float(step(ones)) for _ in range(4)]
again = [float(step(ones, seed=i)) for i in range(4)]

# CHECK: dropout: right share, distinct True, repeated True
right = all(abs(share - 0.75) < 0.02 for share in shares)
print(
    f"dropout: {'right share' if right else shares},"
    f" distinct {len(set(shares)) == 4}, repeated {shares == again}"
)
