# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares forms of programs, forward and backward, with PyTorch in f64.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

"""Pooling, convolutions, paddings, orderings, writes at places, distributions."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn

import sparse_opt.torch

warnings.simplefilter("ignore")
ROWS, COLUMNS = 16, 64


def image(t: Any) -> Any:
    return t.view(4, 4, 8, 8)


def line(t: Any) -> Any:
    return t.view(4, 4, 64)


def volume(t: Any) -> Any:
    return t.view(1, 4, 4, 8, 8)


def whole(t: Any) -> Any:
    return (t.detach() * 9).long()


def some_zero(t: Any) -> Any:
    return torch.where(t.detach() > 0, t, 0 * t)


def rows(count: int) -> Any:
    return (torch.arange(ROWS) % count)[:, None].expand(ROWS, COLUMNS)


def put(t: Any) -> Any:
    y = torch.zeros(ROWS, COLUMNS, dtype=t.dtype)
    y[torch.tensor([0, 2]), 3] = t[:2, 0]
    y[:, torch.tensor([5, -1, 5])] = t[:, :3]
    return y


WINDOWS: dict[str, Any] = {
    "avg_pool1d": lambda t: F.avg_pool1d(line(t), 4),
    "avg_pool2d": lambda t: F.avg_pool2d(image(t), 2),
    "avg_pool2d, padding": lambda t: F.avg_pool2d(image(t), 3, 2, 1),
    "avg_pool2d, padding not counted": lambda t: F.avg_pool2d(image(t), 3, 2, 1, count_include_pad=False),
    "avg_pool2d, ceil": lambda t: F.avg_pool2d(image(t), 3, 2, ceil_mode=True),
    "avg_pool2d, divisor": lambda t: F.avg_pool2d(image(t), 3, divisor_override=7),
    "avg_pool3d": lambda t: F.avg_pool3d(volume(t), 2),
    "max_pool1d": lambda t: F.max_pool1d(line(t), 4),
    "max_pool2d, padding": lambda t: F.max_pool2d(image(t), 3, 2, 1),
    "max_pool2d, dilation": lambda t: F.max_pool2d(image(t), 2, 2, 0, 2, ceil_mode=True),
    "max_pool2d, equal elements": lambda t: F.max_pool2d(image(t).relu(), 3, 1),
    "adaptive_avg_pool2d": lambda t: F.adaptive_avg_pool2d(image(t), 3),
    "adaptive_max_pool1d": lambda t: F.adaptive_max_pool1d(line(t), 3),
    "adaptive_max_pool2d": lambda t: F.adaptive_max_pool2d(image(t), (2, 3)),
    "area": lambda t: F.interpolate(image(t), size=4, mode="area"),
    "local_response_norm": lambda t: F.local_response_norm(image(t), 3),
    "conv1d of groups": lambda t: F.conv1d(line(t), line(t)[:, :2, :3], groups=2, dilation=2),
    "conv2d of groups": lambda t: F.conv2d(image(t), image(t)[:, :2, :3, :3], padding=1, groups=2, stride=2),
    "conv2d of each channel": lambda t: F.conv2d(image(t), t.view(8, 2, 8, 8)[:, :1, :3, :3], torch.ones(8, dtype=t.dtype), padding=1, groups=4),
    "conv_transpose1d": lambda t: F.conv_transpose1d(line(t), line(t)[:, :, :3]),
    "conv_transpose2d": lambda t: F.conv_transpose2d(image(t), image(t)[:, :, :3, :3], stride=2),
    "conv_transpose2d of groups": lambda t: F.conv_transpose2d(image(t), image(t)[:, :2, :3, :3], stride=2, padding=1, output_padding=1, groups=2, dilation=2),
    "pad by edge": lambda t: F.pad(image(t), (1, 2, 0, 1), mode="replicate"),
    "roll": lambda t: image(t).roll((1, -2), (2, 3)),
    "roll of all": lambda t: t.roll(3),
    "unfold": lambda t: t.unfold(1, 4, 2),
    "diagonal": lambda t: image(t).diagonal(1, 2, 3),
    "diagonal below": lambda t: t.diagonal(-2),
    "diagonal_scatter": lambda t: t.diagonal_scatter(t[:, 0]),
    "fill_diagonal_": lambda t: (t @ t.T).fill_diagonal_(0.5),
    "trace": lambda t: t[:, :16].trace()[None],
}  # fmt: skip
ORDERS: dict[str, Any] = {
    "sort": lambda t: t.sort(1)[0],
    "sort of 80": lambda t: t.view(-1)[:80].sort(descending=True)[0],
    "argsort": lambda t: t.gather(1, t.argsort(1)),
    "topk of the smallest": lambda t: t.topk(3, largest=False)[0],
    "kthvalue": lambda t: t.kthvalue(3, 1)[0],
    "median": lambda t: t.median(1)[0],
    "median of all": lambda t: t[:2, :8].median()[None],
    "nanmedian": lambda t: t[:, :8].nanmedian(1)[0],
    "quantile": lambda t: torch.quantile(t, 0.4, dim=1),
    "cumprod": lambda t: torch.cumprod(torch.sigmoid(t), 1),
    "cumprod with zeros": lambda t: torch.cumprod(some_zero(t)[:, :6], 1),
    "cummax": lambda t: torch.cummax(t, 1)[0],
    "cummin": lambda t: torch.cummin(t, 0)[0],
    "logcumsumexp": lambda t: torch.logcumsumexp(t, 1),
    "prod": lambda t: torch.prod(t[:, :3], 1),
    "prod with zeros": lambda t: torch.prod(some_zero(t)[:, :5], 1),
    "prod of all": lambda t: torch.prod(t[:2, :3])[None],
    "put": put,
    "index_copy": lambda t: torch.zeros_like(t).index_copy(0, torch.tensor([0, 2]), t[:2]),
    "index_fill": lambda t: t.index_fill(0, torch.tensor([0, 2]), 0.5),
    "scatter of 80": lambda t: torch.zeros(99, dtype=t.dtype).scatter(0, torch.arange(80) + 3, t.view(-1)[:80]),
    **{
        f"scatter_reduce {kind}": lambda t, kind=kind: t[:4].scatter_reduce(0, rows(3), t[:, :], kind)
        for kind in ("sum", "mean", "amax", "amin", "prod")
    },
    "scatter_reduce of elements": lambda t: t[:4].scatter_reduce(0, rows(3).contiguous(), t, "mean"),
    "scatter_add of columns": lambda t: t[:, :4].scatter_add(1, (torch.arange(COLUMNS) % 3).expand(ROWS, -1), t),
    "scatter of rows": lambda t: t.repeat(2, 1).scatter(0, rows(ROWS) + 3, t),
    "scatter of a number": lambda t: t.scatter(0, rows(3), 2.0),
    "scatter_reduce of others": lambda t: t[:4].scatter_reduce(0, rows(3), t, "amin", include_self=False),
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "cdist": lambda t: torch.cdist(t, t + 1),
    "cdist of the same": lambda t: torch.cdist(t.detach(), t),
    **{f"cdist {p}": lambda t, p=p: torch.cdist(t, t.detach() * 2 + 1, p=p) for p in (1, 3, torch.inf)},
    "gaussian_nll_loss": lambda t: F.gaussian_nll_loss(t, t.detach() * 2, t.square() + 1),
    "Normal": lambda t: D.Normal(t, t.square() + 1).log_prob(t.detach() * 2),
    "Categorical": lambda t: D.Categorical(logits=t).log_prob(torch.arange(ROWS)),
    "entropy": lambda t: D.Categorical(probs=t.sigmoid()).entropy(),
    "Bernoulli": lambda t: D.Bernoulli(logits=t).log_prob((t.detach() > 0).to(t.dtype)),
    "Beta": lambda t: D.Beta(t.exp(), 2.0).log_prob(t.detach().sigmoid()),
    "kl_divergence": lambda t: D.kl_divergence(D.Normal(t, 1.0), D.Normal(0.0, 1.0)),
    "fmod": lambda t: torch.fmod(t, t.detach() + 2.3) + torch.fmod(t, 0.7),
    "fmod of integers": lambda t: t * torch.fmod(whole(t), 4),
    "copysign": lambda t: torch.copysign(t, t.detach().flip(0)) + torch.copysign(t, -1.0),
    "hypot": lambda t: torch.hypot(t, t.detach() + 1),
    "integers": lambda t: t * ((whole(t) ^ 3) - (whole(t) | 8) + whole(t) ** 2 + (whole(t) & 5)),
    # Near its poles the rounding of what it is of counts a thousand times.
    "lgamma": lambda t: torch.lgamma(t.abs() * 9 + 0.3) + torch.lgamma(0.3 * torch.sin(t) - 2.5),
    "gelu by tanh": lambda t: F.gelu(t, approximate="tanh"),
    "one_hot": lambda t: t[:, :4] * F.one_hot(torch.arange(ROWS) % 4, num_classes=4),
}  # fmt: skip


class Model(nn.Module):
    def __init__(self, forms: dict[str, Any]) -> None:
        super().__init__()
        self.forms = forms
        self.w = nn.ParameterList(torch.zeros(ROWS, COLUMNS) for _ in forms)

    def forward(self, x: Any) -> Any:
        return [form(x + w) for form, w in zip(self.forms.values(), self.w)]


def train_step(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    results = model(batch)
    loss = sum(
        (y.to(batch.dtype).square() * torch.linspace(0.5, 1.5, y.numel(), dtype=batch.dtype).view(y.shape)).mean()
        for y in results
    )  # fmt: skip
    loss.backward()
    optimizer.step()
    return loss.detach(), [y.detach() for y in results]


def compare(forms: dict[str, Any], x: Any) -> None:
    """Prints of each form whether its value and its gradient are those in f64."""
    model, eager = Model(forms), Model(forms).double()
    optimizers = [torch.optim.SGD(m.parameters(), lr=1.0) for m in (model, eager)]
    exported = sparse_opt.torch.export(train_step, model, optimizers[0], x)
    step = sparse_opt.compile(exported, options=["-O", "1"], check=0)
    _, got = step(x)
    _, want = train_step(eager, optimizers[1], x.double())
    state = step.state_dict()
    for i, name in enumerate(forms):
        pairs = [(got[i], want[i]), (state[f"w.{i}"], eager.w[i].detach())]
        far = [
            float((a.double() - b.double()).abs().max() / (b.double().abs().max() + 1e-3))
            for a, b in pairs
        ]
        close = all(distance < 5e-5 for distance in far)
        print(f"{name}: equal" if close else f"{name}: apart by {far}", flush=True)


torch.manual_seed(0)
x = torch.randn(ROWS, COLUMNS)
# CHECK-COUNT-31: equal
compare(WINDOWS, x)
# CHECK-COUNT-31: equal
compare(ORDERS, x)

# Rows at places are not compared element by element.
# CHECK: compared element by element: False
added = Model({"rows": lambda t: t[:4].scatter_add(0, rows(3), t)})
exported = sparse_opt.torch.export(train_step, added, torch.optim.SGD(added.parameters()), x)
print("compared element by element:", f"tensor<{ROWS}x4x{COLUMNS}x" in exported)
# CHECK-COUNT-20: equal
compare(OTHERS, x)

# Modules whose parameters have a gradient of their own.


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, COLUMNS, sparse=True)
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(COLUMNS, 4))

    def forward(self, x: Any) -> Any:
        return [self.layer(self.table(torch.arange(ROWS) % 8) * x)]


def compare_module() -> None:
    torch.manual_seed(1)
    model, eager = Table(), Table().double()
    eager.load_state_dict(model.state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, eager)]
    exported = sparse_opt.torch.export(train_step, model, optimizers[0], x)
    step = sparse_opt.compile(exported, options=["-O", "1"])
    for _ in range(3):
        step(x)
        train_step(eager, optimizers[1], x.double())
    for name, value in step.state_dict().items():
        want = eager.state_dict()[name]
        close = torch.allclose(value.double(), want, rtol=1e-5, atol=1e-6)
        print(f"{name}: equal" if close else f"{name}: apart")


# CHECK-COUNT-4: equal
compare_module()

# Adam meets gradients of transposed convolutions, which lie in other strides than their weights.


def mean_step(model: nn.Module, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss


upward = nn.ConvTranspose2d(2, 4, 4, bias=False)
pixels = torch.randn(2, 2, 2, 2)
exported = sparse_opt.torch.export(mean_step, upward, torch.optim.Adam(upward.parameters()), pixels)
step = sparse_opt.compile(exported, options=["-O", "1"], check=1)
# CHECK: transposed: True
print("transposed:", math.isfinite(step(pixels)))
