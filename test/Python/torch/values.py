# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Constants, infinities and NaN, the ends of types, and bounds of columns.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart --implicit-check-not=accepted

"""Compares values at which operations differ with PyTorch, bit for bit where it can be."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import sparse_opt.torch
from refusals import refuse
from twins import twin

nan, inf = float("nan"), float("inf")
special = torch.tensor([nan, inf, -inf, 0.0, 1.0])
signs = torch.tensor([0.0, -0.0, 1.0, -1.0, -inf])
numbers = torch.tensor([1.0, 2.0, 3.0, 4.0])
shares = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
bytes_ = torch.arange(-4, 5, dtype=torch.int8)

CONSTANTS: dict[str, Any] = {
    "== 0": lambda x: torch.where(torch.zeros(4) == 0, 5.0, x),
    "!= 0": lambda x: torch.where(torch.zeros(4) != 0, 5.0, x),
    "< 1": lambda x: x.masked_fill(torch.zeros(4) < 1, 5.0),
    "== 1": lambda x: x * (torch.ones(4) == 1),
    "== 0.1": lambda x: x * (torch.full((4,), 0.1) == 0.1),
    ">= 0": lambda x: x * (torch.zeros(4) >= 0),
    "== 3": lambda x: x * (torch.full((4,), 3) == 3),
    "of a sum": lambda x: x * (torch.ones(4) + torch.ones(4)[:1] > 1.5),
    "of a list": lambda x: x * (torch.tensor([2, 2, 2, 2]) > 1),
    "// 2": lambda x: x + torch.full((4,), -7) // 2,
    "% 4": lambda x: x + torch.full((4,), -7) % 4,
    "7 //": lambda x: x + 7 // torch.full((4,), 2),
}
SPECIAL: dict[str, Any] = {
    "isfinite": lambda t: torch.isfinite(t).float(),
    "isfinite, all": lambda t: torch.isfinite(t).all()[None].float(),
    "where isfinite": lambda t: torch.where(torch.isfinite(t), t, 0.0),
    "isnan": lambda t: torch.isnan(t).float(),
    "clamp": lambda t: t.clamp(-1, 1),
    "clamp by tensors": lambda t: t.clamp(torch.tensor(-1.0), torch.tensor(0.5)),
    "clamp below": lambda t: t.clamp(min=0),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "maximum": lambda t: torch.maximum(t, torch.zeros(5)),
    "minimum": lambda t: torch.minimum(torch.zeros(5), t),
    "amax": lambda t: t.amax()[None],
    "max_pool1d": lambda t: F.max_pool1d(t[None, None], 2, 1),
    "argmax": lambda t: t.argmax()[None].float(),
    "argmin": lambda t: t[None].argmin(1).float(),
    "place of max": lambda t: t[None].max(1)[1].float(),
    "place of min": lambda t: t[None].min(1, keepdim=True)[1].float(),
    "sort": lambda t: t.sort()[0],
    "sort, descending": lambda t: t.sort(descending=True)[1].float(),
    "topk of the smallest": lambda t: t.topk(3, largest=False)[0],
    "median": lambda t: t.median(0)[1][None].float(),
    "nanmedian": lambda t: t.nanmedian()[None],
    "cummax": lambda t: t.flip(0).cummax(0)[1].float(),
    "cummin": lambda t: t.flip(0).cummin(0)[0],
    "hypot": lambda t: torch.hypot(t, t),
}
SIGNS: dict[str, Any] = {
    "signbit": lambda t: torch.signbit(t).float(),
    "copysign": lambda t: torch.copysign(torch.ones(5), t),
}
SHARES: dict[str, Any] = {
    "xlogy": lambda t: torch.xlogy(t, t),
    "kl_div": lambda t: F.kl_div(torch.full((2, 4), 0.25).log(), t, reduction="none"),
    "entr": torch.special.entr,
}
BYTES: dict[str, Any] = {
    "clamp": lambda t: t.clamp(-300, 2).float(),
    "clamp by far bounds": lambda t: t.clamp(-300, 300).float(),
    "clamp by fractions": lambda t: t.clamp(-1.5, 1.5),
}


def train_step(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = model.weight.sum()
    loss.backward()
    optimizer.step()
    return loss.detach(), [form(batch) for form in model.forms.values()]


def compare(forms: dict[str, Any], batch: Any) -> None:
    model = nn.Linear(2, 2)
    model.forms = forms
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    exported = sparse_opt.torch.export(train_step, model, optimizer, batch)
    step = sparse_opt.compile(exported, options=["-O", "1"], check=0)
    for name, form, got in zip(forms, forms.values(), step(batch)[1]):
        close = torch.allclose(got, form(batch), rtol=1e-6, atol=0, equal_nan=True)
        print(f"{name}: equal" if close else f"{name}: apart, {got} for {form(batch)}")


# CHECK-COUNT-12: equal
compare(CONSTANTS, numbers)
# CHECK-COUNT-25: equal
compare(SPECIAL, special)
# CHECK-COUNT-2: equal
compare(SIGNS, signs)
# CHECK-COUNT-3: equal
compare(SHARES, shares)
# CHECK-COUNT-3: equal
compare(BYTES, bytes_)

# Columns of one tensor look into tables of different sizes.


class Tables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Embedding(4, 8), nn.Embedding(7, 8)

    def forward(self, x: Any) -> Any:
        return self.a(x[:, 0]) + self.b(x[:, 1])


def look_up(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


model = Tables()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
batch = torch.tensor([[0, 6], [3, 5], [1, 4]])
eager = twin(model, optimizer)
step = sparse_opt.compile(
    sparse_opt.torch.export(look_up, model, optimizer, batch), options=["-O", "1"]
)
# CHECK: columns: equal
print("columns: equal" if abs(step(batch) - look_up(*eager, batch)) < 1e-6 else "apart")
# CHECK: expected indices from 0 to 3 at {{.*}}values.py:[[#]], but got 4
refuse(step, torch.tensor([[0, 6], [4, 5], [1, 4]]))
# CHECK: expected indices from 0 to 6 at {{.*}}values.py:[[#]], but got 7
refuse(step, torch.tensor([[0, 6], [3, 7], [1, 4]]))

# Halves as PyTorch's default type: rates have more bits.
# CHECK-COUNT-2: losses: equal
for dtype in (torch.bfloat16, torch.float16):
    torch.set_default_dtype(dtype)
    losses = []
    for is_compiled in (True, False):
        torch.manual_seed(0)
        layer = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(layer.parameters(), 0.05)
        ones = torch.ones(4, 8)
        run: Any = look_up
        if is_compiled:
            exported = sparse_opt.torch.export(look_up, layer, optimizer, ones)
            step = sparse_opt.compile(exported, options=["-O", "1"])
            run = lambda layer, optimizer, batch: step(batch)
        losses.append([float(run(layer, optimizer, ones)) for _ in range(4)])
    close = torch.allclose(*map(torch.tensor, losses), rtol=0.05) and losses[0][-1] < losses[0][0]
    print("losses: equal" if close else f"losses: apart, {losses}")
    torch.set_default_dtype(torch.float32)
