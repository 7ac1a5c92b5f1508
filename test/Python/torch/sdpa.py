# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# scaled_dot_product_attention stays one operation: numbers of it and of its gradient.

# RUN: %python %s 2>&1 | FileCheck %s --implicit-check-not=WRONG

"""Compares attention that arrives as one operation, and the same program taken apart, with
formulas in float64: each mask, scale, dropout, shared keys, lengths, sizes and types."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import references
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend
from twins import twin

import sparse_opt.torch

warnings.simplefilter("ignore")


@dataclass
class Case:
    """What attends to what; `mask` makes one of the shape of the scores."""

    options: dict[str, Any]
    mask: Callable[[Any], Any] | None = None
    shape: tuple[int, ...] = (2, 4)  # of the batch
    shared: int | None = None  # heads of keys
    queries: int = 32
    keys: int = 32
    features: int = 8
    values: int = 8
    dtype: torch.dtype = torch.float32
    trains: bool = True
    twice: bool = False


def random_bits(shape: Any) -> Any:
    """A mask with a row that sees nothing, and one that sees all."""
    mask = torch.rand(shape) < 0.6
    mask[..., 3, :], mask[..., 5, :] = False, True
    return mask


def infinities(shape: Any) -> Any:
    return torch.randn(shape).masked_fill(~random_bits(shape), -torch.inf)


CASES = {
    "plain": Case({}),
    "causal": Case({"is_causal": True}, queries=64, keys=64),
    "causal, more keys": Case({"is_causal": True}, queries=32, keys=48),
    "causal, more queries": Case({"is_causal": True}, queries=48, keys=32),
    "bits": Case({}, random_bits),
    "bits of keys": Case({}, lambda shape: random_bits(shape)[:, :1, 5:6]),
    "bits of two dimensions": Case({}, lambda shape: random_bits(shape[-2:])),
    "added": Case({}, torch.randn),
    "added, infinities": Case({}, infinities),
    "scale": Case({"scale": -0.7}),
    "dropout": Case({"dropout_p": 0.25}, keys=24, values=24),
    "dropout, causal": Case({"dropout_p": 0.5, "is_causal": True}, values=32),
    "dropout, all": Case({"dropout_p": 1.0}, values=32),
    "shared": Case({"enable_gqa": True}, shared=2),
    "shared, causal": Case({"enable_gqa": True, "is_causal": True}, shared=1),
    "cross": Case({}, random_bits, queries=17, keys=40, features=12, values=20),
    "one query": Case({}, queries=1, keys=33, features=16),
    "three dimensions": Case({}, random_bits, shape=(3,)),
    "two dimensions": Case({}, shape=()),
    "five dimensions": Case({"is_causal": True}, shape=(2, 1, 3)),
    "64 features": Case({"is_causal": True}, queries=128, keys=128, features=64, values=64),
    "f64": Case({}, random_bits, dtype=torch.float64),
    "bf16": Case({"is_causal": True}, dtype=torch.bfloat16),
    "bf16, added": Case({}, infinities, dtype=torch.bfloat16),
    "f16": Case({}, random_bits, dtype=torch.float16),
    "f16, dropout": Case({"dropout_p": 0.25}, values=32, dtype=torch.float16),
    "no gradient": Case({"is_causal": True}, trains=False),
    "twice": Case({"is_causal": True}, twice=True),
}


class Model(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        few = (*case.shape[:-1], case.shared) if case.shared else case.shape
        self.case = case
        self.q = nn.Parameter(torch.randn(*case.shape, case.queries, case.features))
        self.k = nn.Parameter(torch.randn(*few, case.keys, case.features))
        self.v = nn.Parameter(torch.randn(*few, case.keys, case.values))
        if "dropout_p" in case.options:
            # What is dropped out is seen.
            self.v.data[:] = torch.eye(case.keys)
        with torch.no_grad():  # Rounded once and for all.
            for p in (self.q, self.k, self.v):
                p.copy_(p.to(case.dtype))
        self.to(torch.promote_types(case.dtype, torch.float32))

    def forward(self, mask: Any) -> Any:
        case = self.case
        q, k, v = (p.to(case.dtype) for p in (self.q, self.k, self.v))
        y = attend(q, k, v, mask, **case.options)
        return y + attend(q, k, v, mask, **case.options) if case.twice else y


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    y = model(batch["mask"] if "mask" in batch else None)
    loss = (y.to(model.q.dtype) * batch["dy"]).sum()
    loss.backward()
    optimizer.step()
    return loss.detach(), y.detach()


def evaluate(model: Any, batch: Any) -> Any:
    return model(batch["mask"] if "mask" in batch else None)


def reference(case: Case, values: Any, mask: Any, dy: Any, y: Any) -> Any:
    """Attention and its gradients in float64; what `y` is 0 in was dropped out."""
    q, k, v = (values[name] for name in "qkv")
    repeats = case.shape[-1] // case.shared if case.shared else 1
    if case.shared:
        k, v = (np.repeat(t, repeats, axis=-3) for t in (k, v))
    bias: Any = 0.0
    if case.options.get("is_causal"):
        mask = np.tri(case.queries, case.keys, dtype=bool)
    elif mask is None:
        mask = True
    elif mask.dtype != bool:
        mask, bias = True, mask
    rate = case.options.get("dropout_p", 0.0)
    factor = np.where(y != 0, 1 / max(1 - rate, 1e-9), 0) if rate else 1.0
    scale = case.options.get("scale", case.features**-0.5)
    got = references.attention(q, k, v, dy, scale, bias, mask, factor=factor, empty=0)
    dk, dv = got.dk, got.dv
    if case.shared:
        dk, dv = (
            t.reshape(*t.shape[:-3], case.shared, repeats, *t.shape[-2:]).sum(-3) for t in (dk, dv)
        )
    return got.y, {"q": got.dq, "k": dk, "v": dv}


def distance(got: Any, want: Any) -> float:
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-9))


def check(name: str, case: Case) -> None:
    torch.manual_seed(0)
    model = Model(case)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scores = (*case.shape, case.queries, case.keys)
    batch = {"dy": torch.randn(*case.shape, case.queries, case.values).to(model.q.dtype)}
    if case.mask:
        mask = case.mask(scores)
        batch["mask"] = mask if mask.dtype == torch.bool else mask.to(case.dtype)
    begin = copy.deepcopy(model.state_dict())
    values = {n: p.double().numpy() for n, p in begin.items()}
    mask = batch.get("mask")
    mask = mask if mask is None else (mask if mask.dtype == torch.bool else mask.double()).numpy()
    if case.trains:
        export = sparse_opt.torch.export(train_step, model, optimizer, batch)
    else:
        export = sparse_opt.torch.export_function(evaluate, model, batch)
    calls = str(export).count("call @attention")
    far = {torch.float32: 2e-6, torch.float64: 1e-13}.get(case.dtype, 1e-3 if case.dtype == torch.float16 else 8e-3)
    outputs = []
    for options in (["--attention-keys=1"], ["--find-attention=false"]):
        # The first run is compared with PyTorch. Each one trains the model.
        model.load_state_dict(begin)
        step = sparse_opt.compile(export, options=[*options, "-O0"])
        if case.trains:
            y = step(batch)[1].double().numpy()
        else:
            y = step(batch).double().numpy()
        dy = batch["dy"].to(case.dtype).double().numpy()
        half = y / 2 if case.twice else y
        out, gradients = reference(case, values, mask, dy, half)
        worst = distance(half, out)
        for key, want in gradients.items() if case.trains else ():
            got = values[key] - step.read(key).astype(np.float64)
            worst = max(worst, distance(got / (2 if case.twice else 1), want))
        outputs.append(y)
        print(f"{'WRONG' if not worst < far else 'right'}: {name}, {options[0]}: {calls} calls, {worst:.1e}")
    if not distance(*outputs) < far:
        print("WRONG: two ways differ", distance(*outputs))


def penalized(model: Any) -> Any:
    """A function of the gradient of attention."""
    y = attend(model.q, model.k, model.v, is_causal=True)
    (g,) = torch.autograd.grad(y.square().sum(), model.q, create_graph=True)
    return g.square().mean() + y.mean()


# What PyTorch takes apart, all or the gradient.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "trained": lambda m: attend(m.q, m.k, m.v, m.q @ m.k.mT).square().mean(),
    "broadcast": lambda m: attend(m.q, m.k[:1], m.v[:1]).square().mean(),
    "vmap": lambda m: torch.func.vmap(attend)(m.q, m.k, m.v).square().mean(),
    "gradient": penalized,
}


def other_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = OTHERS[model.name](model) * batch
    loss.backward()
    optimizer.step()
    return loss.detach()


def check_other(name: str) -> None:
    torch.manual_seed(0)
    model = Model(Case({}))
    model.name = name
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    eager = twin(model, optimizer)
    batch = torch.ones(())
    export = sparse_opt.torch.export(other_step, model, optimizer, batch)
    step = sparse_opt.compile(export, options=["--attention-keys=1", "-O0"])
    got = [float(step(batch)) for _ in range(2)]
    with sdpa_kernel(SDPBackend.MATH):  # Others have no second derivative.
        want = [float(other_step(*eager, batch)) for _ in got]
    torch.testing.assert_close(got, want, rtol=1e-5, atol=0)
    print(f"{name}: {str(export).count('call @attention')} calls", flush=True)


# CHECK: right: plain, --attention-keys=1: 2 calls
# CHECK: right: no gradient, --find-attention=false: 1 calls
# CHECK: right: twice, --find-attention=false: 4 calls
# CHECK: scaled_dot_product_attention at {{.*}}sdpa.py:{{[0-9]+}} is taken apart: its mask is trained
# CHECK: trained: 0 calls
# CHECK: is taken apart: its batch dimensions are broadcast
# CHECK: broadcast: 0 calls
# CHECK: vmap: 0 calls
# CHECK: gradient: 2 calls
if __name__ == "__main__":
    import sys

    for name, case in CASES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            check(name, case)
            sys.stdout.flush()
    for name in OTHERS:
        if not sys.argv[1:] or name in sys.argv[1:]:
            check_other(name)
