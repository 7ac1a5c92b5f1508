# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Attention as PyTorch programs write it is found, forward and backward.

# RUN: %python %s | FileCheck %s

"""Counts what is found of each form of scaled_dot_product_attention, and runs some of them."""

from __future__ import annotations

import contextlib
import re
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attend
from torch.utils.checkpoint import checkpoint

import sparse_opt.torch
from twins import twin

warnings.simplefilter("ignore")
SEQUENCES, TOKENS, MEMORY, HEADS, SIZE = 2, 32, 48, 4, 8
FEATURES = HEADS * SIZE


@dataclass
class Form:
    """What attends; `shared` heads have keys; `tokens` are attended to."""

    attend: Callable[..., Any]
    shared: int = HEADS
    tokens: int = TOKENS
    narrow: bool = False
    runs: bool = False
    recomputes: bool = False


class Model(nn.Module):
    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form
        self.query, self.out = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.key, self.value = (nn.Linear(FEATURES, form.shared * SIZE) for _ in range(2))
        self.bias = nn.Parameter(torch.randn(HEADS, TOKENS, form.tokens))

    def mix(self, x: Any, memory: Any, mask: Any, scores: Any) -> Any:
        q, k, v = (
            layer(t).unflatten(-1, (-1, SIZE)).transpose(1, 2)
            for layer, t in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        return self.form.attend(q, k, v, mask, scores, self.bias)

    def forward(self, x: Any, *batch: Any) -> Any:
        y = checkpoint(self.mix, x, *batch, use_reentrant=False) if self.form.recomputes else self.mix(x, *batch)
        return self.out(y.transpose(1, 2).reshape(SEQUENCES, TOKENS, FEATURES))


def merged(run: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Attention of sequences times heads, in tensors of three dimensions."""

    def attend(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return run(*(t.reshape(-1, t.shape[2], SIZE) for t in (q, k, v)), **options).view(q.shape)

    return attend


def by_bmm(q: Any, k: Any, v: Any) -> Any:
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / SIZE**0.5, -1), v)


FORMS = {
    "plain": Form(lambda q, k, v, *_: attend(q, k, v)),
    "causal": Form(lambda q, k, v, *_: attend(q, k, v, is_causal=True)),
    "mask": Form(lambda q, k, v, mask, *_: attend(q, k, v, mask)),
    "padding": Form(lambda q, k, v, mask, *_: attend(q, k, v, mask[:, :, :1])),
    "added": Form(lambda q, k, v, mask, scores, _: attend(q, k, v, scores)),
    "trained": Form(lambda q, k, v, mask, scores, bias: attend(q, k, v, bias)),
    "dropout": Form(lambda q, k, v, *_: attend(q, k, v, dropout_p=0.25)),
    "dropout, mask": Form(lambda q, k, v, mask, *_: attend(q, k, v, mask, dropout_p=0.25)),
    "scale": Form(lambda q, k, v, *_: attend(q, k, v, scale=-0.3)),
    "shared": Form(lambda q, k, v, *_: attend(q, k, v, is_causal=True, enable_gqa=True), shared=2),
    "shared, dropout": Form(lambda q, k, v, *_: attend(q, k, v, dropout_p=0.25, enable_gqa=True), shared=2),
    "cross": Form(lambda q, k, v, mask, *_: attend(q, k, v, mask), tokens=MEMORY),
    "three": Form(merged(attend, is_causal=True), runs=True),
    "bmm": Form(merged(by_bmm), runs=True),
    "checkpoint": Form(lambda q, k, v, *_: attend(q, k, v, is_causal=True), recomputes=True),
    "bf16": Form(lambda q, k, v, *_: attend(q, k, v, is_causal=True), narrow=True),
    "bf16, mask": Form(lambda q, k, v, mask, *_: attend(q, k, v, mask), narrow=True, runs=True),
    "bf16, added": Form(lambda q, k, v, mask, scores, _: attend(q, k, v, scores.to(q.dtype)), narrow=True, runs=True),
}


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    *inputs, target = batch
    with torch.autocast("cpu", torch.bfloat16) if model.form.narrow else contextlib.nullcontext():
        y = model(*inputs)
    loss = (y.float() - target).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def count(text: str) -> str:
    """What the pass that finds attention makes of a step."""
    command = [
        "sparse-opt", "--bsr-to-cpu=attention-keys=1 target=#bsr.scalar",
        "--mlir-print-ir-after=bsr-find-attention", "-o", "/dev/null",
    ]  # fmt: skip
    passed = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stderr
    found = [len(re.findall(rf"bsr\.{op}\(", passed)) for op in ("attention", "attention_grad")]
    return f"{found[0]} forward, {found[1]} backward"


def check(form: Form) -> str:
    torch.manual_seed(0)
    model = Model(form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mask = torch.rand(SEQUENCES, 1, TOKENS, form.tokens) < 0.7
    mask[..., 0] = True
    x, memory, target = (torch.randn(SEQUENCES, n, FEATURES) for n in (TOKENS, form.tokens, TOKENS))
    batch = x, memory, mask, torch.randn(mask.shape), target
    text = sparse_opt.torch.export(train_step, model, optimizer, batch)
    if form.runs:
        # The first runs are compared with PyTorch.
        eager = twin(model, optimizer)
        step = sparse_opt.compile(text, options=["--attention-keys=1", "-O0"])
        got = [float(step(batch)) for _ in range(2)]
        want = [float(train_step(*eager, batch)) for _ in got]
        torch.testing.assert_close(got, want, rtol=1e-3 if form.narrow else 1e-5, atol=0)
    return count(text if isinstance(text, str) else text.text)


# CHECK: plain: 1 forward, 1 backward
# CHECK-NEXT: causal: 1 forward, 1 backward
# CHECK-NEXT: mask: 1 forward, 1 backward
# CHECK-NEXT: padding: 1 forward, 1 backward
# CHECK-NEXT: added: 1 forward, 1 backward
# CHECK-NEXT: trained: 1 forward, 1 backward
# CHECK-NEXT: dropout: 1 forward, 1 backward
# CHECK-NEXT: dropout, mask: 1 forward, 1 backward
# CHECK-NEXT: scale: 1 forward, 1 backward
# CHECK-NEXT: shared: 1 forward, 1 backward
# CHECK-NEXT: shared, dropout: 1 forward, 1 backward
# CHECK-NEXT: cross: 1 forward, 1 backward
# CHECK-NEXT: three: 1 forward, 1 backward
# CHECK-NEXT: bmm: 1 forward, 1 backward
# CHECK-NEXT: checkpoint: 1 forward, 1 backward
# CHECK-NEXT: bf16: 1 forward, 1 backward
# CHECK-NEXT: bf16, mask: 1 forward, 1 backward
# CHECK-NEXT: bf16, added: 1 forward, 1 backward
if __name__ == "__main__":
    for name, form in FORMS.items():
        print(f"{name}: {check(form)}", flush=True)
