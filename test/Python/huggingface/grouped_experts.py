# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Layers of experts of transformers whose routing is data: compiled steps, in which each expert
# computes its own tokens, against the same layers in f64 in PyTorch's loop over experts.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

import types

import numpy as np
import torch
from torch.nn import functional
from transformers.integrations import moe

import sparse_opt.torch

EXPERTS, FEATURES, INNER = 5, 24, 40


def layer(**form):
    """A class of experts of a form, with a loop over those that have tokens."""

    class Experts(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            torch.manual_seed(1)
            self.num_experts, self.act_fn = EXPERTS, functional.silu
            has_gate, has_bias = form.get("has_gate", True), form.get("has_bias", False)
            first = "gate_up_proj" if has_gate else "up_proj"
            for name, i, o in ((first, FEATURES, INNER * (1 + has_gate)), ("down_proj", INNER, FEATURES)):
                shape = (i, o) if form.get("is_transposed") else (o, i)
                self.register_parameter(name, torch.nn.Parameter(torch.randn(EXPERTS, *shape) * 0.2))
                if has_bias:
                    self.register_parameter(f"{name}_bias", torch.nn.Parameter(torch.randn(EXPERTS, o) * 0.2))
            if form.get("has_post_expert_norm"):
                self.post_expert_norm = torch.nn.LayerNorm(FEATURES)

        def forward(self, x, index, weights):
            result = torch.zeros_like(x)
            for expert in range(self.num_experts):
                tokens, places = torch.where(index == expert)
                if not len(tokens):
                    continue
                h = self._linear("gate_up_proj" if self.has_gate else "up_proj", expert, x[tokens])
                h = self._apply_gate(h) if self.has_gate else self.act_fn(h)
                h = self._linear("down_proj", expert, h)
                if self.has_post_expert_norm:
                    h = self.post_expert_norm(h)
                result.index_add_(0, tokens, h * weights[tokens, places, None])
            return result

        def _linear(self, name, expert, x):
            weight = getattr(self, name)[expert]
            bias = getattr(self, f"{name}_bias")[expert] if self.has_bias else None
            return functional.linear(x, weight.T if self.is_transposed else weight, bias)

    made = moe.use_experts_implementation(**form)(Experts)
    return made(types.SimpleNamespace(_experts_implementation=None))


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    # What a token has, and what its experts count, has a gradient as well.
    y = model.experts(batch["x"] * model.scale, batch["index"], batch["weights"] * model.share)
    loss = ((y - batch["target"]) ** 2).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Model(torch.nn.Module):
    def __init__(self, form):
        super().__init__()
        self.experts = layer(**form)
        self.scale = torch.nn.Parameter(torch.ones(FEATURES))
        self.share = torch.nn.Parameter(torch.ones(()))


def routings(tokens, k):
    random = np.random.default_rng(3)
    chosen = [random.permutation(EXPERTS)[:k] for _ in range(tokens)]
    yield "uniform", np.array(chosen)
    yield "one expert has all", np.tile(np.arange(k), (tokens, 1))
    yield "an expert twice", np.full((tokens, k), EXPERTS - 1)
    sentinels = np.array(chosen)
    sentinels[::2, 0] = EXPERTS
    yield "some are no expert's", sentinels


def compare(name, form, tokens=9, k=2, cast=None, options=(), tolerance=2e-5):
    model, wide = Model(form), Model(form).double()
    optimizer, exact = (torch.optim.SGD(m.parameters(), lr=1e-3) for m in (model, wide))
    generator = torch.Generator().manual_seed(5)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    batches = [
        {"x": draw(tokens, FEATURES), "index": torch.from_numpy(index), "weights": draw(tokens, k), "target": draw(tokens, FEATURES)}
        for _, index in routings(tokens, k)
    ]

    def run(model, optimizer, batch):
        with torch.autocast("cpu", dtype=cast or torch.bfloat16, enabled=cast is not None):
            return train_step(model, optimizer, batch)

    exported = sparse_opt.torch.export(run, model, optimizer, batches[0])
    calls = exported.count("call @grouped_")
    step = sparse_opt.compile(exported, options=["-O", "1", *options], check=0)
    differences = []
    for batch in batches:
        loss = step(batch)
        want = train_step(wide, exact, {n: t if n == "index" else t.double() for n, t in batch.items()})
        differences.append(abs(float(loss) / float(want) - 1))
    state = step.state_dict()
    for key, p in wide.named_parameters():
        difference = (state[key].double() - p.detach()).abs().max() / p.detach().abs().max()
        differences.append(float(difference))
    worst = np.max(differences)  # NaN is apart
    print(f"{name}: {'equal' if worst < tolerance else f'apart by {worst:.1e}'}, {calls} products of groups")


# CHECK: gated: equal, 6 products of groups
compare("gated", {})
# CHECK: biases, transposed: equal, 6 products of groups
compare("biases, transposed", {"has_bias": True, "is_transposed": True})
# CHECK: no gate, a norm: equal, 6 products of groups
compare("no gate, a norm", {"has_gate": False, "has_post_expert_norm": True})
# CHECK: one token: equal
compare("one token", {}, tokens=1)
# CHECK: all experts: equal
compare("all experts", {"has_bias": True}, tokens=4, k=5)
# CHECK: bf16: equal
compare("bf16", {}, cast=torch.bfloat16, tolerance=3e-2)
# What the functions of the export say themselves.
# CHECK: inlined: equal
compare("inlined", {}, options=["--mlir-debug-counter=bsr-import-groups-count=0"])
