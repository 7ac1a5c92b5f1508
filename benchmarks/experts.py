#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of a layer of experts that each compute their own tokens, beside PyTorch's.

    PYTHONPATH=python benchmarks/experts.py [--threads N] [--runs N] [--tokens T] [--experts E]...

prints a table (docs/benchmarks.md). A step is the forward pass of a layer of gated experts as transformers
has them, 256 features and 512 within an expert, two experts a token, the gradients of its input and of its
weights, and SGD of both. Experts are drawn uniformly, or in proportion to 1, 1/2, 1/3, ... Compared are
the step in which each expert computes its own tokens; the one in which each computes all tokens, as those
with marks do; PyTorch's loop over experts; and the product of groups that transformers takes by default. All are
called in turn in one process; times are medians, ratios those of neighbours. Losses are compared with the
loop's in float64 before anything is timed.
"""

import argparse
import copy
import statistics
import time
import types

import harness

FEATURES, INNER, TOP = 256, 512, 2


def make_layer(experts, implementation):
    import torch
    from transformers.integrations import moe

    @moe.use_experts_implementation
    class Experts(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.num_experts, self.act_fn = experts, torch.nn.functional.silu
            self.gate_up_proj = torch.nn.Parameter(torch.randn(experts, 2 * INNER, FEATURES) * 0.05)
            self.down_proj = torch.nn.Parameter(torch.randn(experts, FEATURES, INNER) * 0.05)

        def forward(self, x, index, weights):
            result = torch.zeros_like(x)
            for expert in torch.unique(index):
                tokens, places = torch.where(index == expert)
                h = torch.nn.functional.linear(x[tokens], self.gate_up_proj[expert])
                h = torch.nn.functional.linear(self._apply_gate(h), self.down_proj[expert])
                result.index_add_(0, tokens, h * weights[tokens, places, None])
            return result

    return Experts(types.SimpleNamespace(_experts_implementation=implementation))


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = (model.experts(model.x, batch["index"], batch["weights"]) * batch["target"]).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


def make(experts, tokens, implementation="eager"):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Module()
    model.experts = make_layer(experts, implementation)
    model.x = torch.nn.Parameter(torch.randn(tokens, FEATURES))
    return model, torch.optim.SGD(model.parameters(), lr=1e-4)


def make_batch(experts, tokens, is_skewed):
    import torch

    shares = 1 / torch.arange(1, experts + 1) if is_skewed else torch.ones(experts)
    index = torch.multinomial(shares.expand(tokens, -1), TOP)
    return {"index": index, "weights": torch.rand(tokens, TOP), "target": torch.randn(tokens, FEATURES)}


def require_equal(name, got, model, optimizer, batch):
    wide = copy.deepcopy(model).double()
    exact = {key: tensor.double() if tensor.is_floating_point() else tensor for key, tensor in batch.items()}
    want = float(train_step(wide, type(optimizer)(wide.parameters(), lr=1e-4), exact))
    if abs(got - want) > 1e-5 * float(exact["target"].norm()):
        raise SystemExit(f"error: expected the loss of the loop over experts, {want}, but got {got} by {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--experts", type=int, action="append", metavar="E")
    options = parser.parse_args()
    harness.set_threads(options.threads)
    import sparse_opt.torch
    import torch

    torch.set_num_threads(options.threads)
    names = ("own tokens", "all tokens", "loop", "grouped_mm")
    print(f"{'experts':16} " + " ".join(f"{name + ', ms':>15}" for name in names) + "   times " + ", ".join(names[1:]))
    for experts in options.experts or (8, 64):
        batches = {name: make_batch(experts, options.tokens, name == "skewed") for name in ("uniform", "skewed")}
        model, optimizer = make(experts, options.tokens)
        export = sparse_opt.torch.export(train_step, model, optimizer, batches["uniform"])
        calls = []
        for exported in (export, export.fitted([], alone=False)):
            step = sparse_opt.compile(exported, check=0)
            calls.append(lambda batch, step=step: float(step(batch)))
        for implementation in ("eager", "grouped_mm"):
            other = make(experts, options.tokens, implementation)
            calls.append(lambda batch, other=other: float(train_step(*other, batch)))
        model, optimizer = make(experts, options.tokens)
        for name, call in zip(names, calls):
            require_equal(name, call(batches["uniform"]), model, optimizer, batches["uniform"])
        for routing, batch in batches.items():
            times = [[] for _ in calls]
            for _ in range(options.runs):
                for own, call in zip(times, calls):
                    start = time.perf_counter()
                    call(batch)
                    own.append(time.perf_counter() - start)
            medians = [statistics.median(own) * 1e3 for own in times]
            ratios = [statistics.median(b / a for a, b in zip(times[0], own)) for own in times[1:]]
            print(f"{experts:3} {routing:12} " + " ".join(f"{m:15.2f}" for m in medians) + " " * 9 +
                  ", ".join(f"{r:.2f}" for r in ratios), flush=True)


if __name__ == "__main__":
    main()
