# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Training runs of random models with block-sparse layers, beside dense ones whose weights are masked.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s %t 2>&1 | FileCheck %s --implicit-check-not=WRONG

"""Random models, optimizers, blocks and batches with updates of patterns, in float64, beside
the dense model times its masks; a long run with ten updates; a DataLoader whose workers are
forks that call layers; and the memory of many steps."""

from __future__ import annotations

import copy
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from refusals import refuse
from sparse_opt import Group, Mark
from sparse_opt.torch import nn

warnings.simplefilter("ignore")
BLOCKS = [(8, 8), (16, 16), (4, 4), (1, 8), (8, 1), (1, 1), (2, 4), (16, 8)]
OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
}


class Masked:
    """The dense model that layers stand for: weights, and what the optimizer keeps of them, are 0 where no block is stored."""

    def __init__(self, model: torch.nn.Module, make: Any) -> None:
        self.layers = {n: layer for n, layer in model.named_modules() if isinstance(layer, nn.Linear)}
        self.model = nn.densify(copy.deepcopy(model)).double()
        self.optimizer = make(self.model.parameters())
        self.weights = {n: self.model.get_submodule(n).weight for n in self.layers}
        self.masks = self.read()

    def read(self) -> dict[str, torch.Tensor]:
        return {n: layer.mask().repeat_interleave(layer.block[0], 0).repeat_interleave(layer.block[1], 1)
                for n, layer in self.layers.items()}  # fmt: skip

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        y = self.model(x.double())
        (y.square().sum() / max(1, y.numel())).backward()
        for name, weight in self.weights.items():
            weight.grad *= self.masks[name]
        self.optimizer.step()
        return y

    @torch.no_grad()
    def take_masks(self) -> None:
        """After an update: blocks that are new begin at 0."""
        for name, mask in self.read().items():
            weight, changed = self.weights[name], mask != self.masks[name]
            weight[changed] = 0
            for kept in self.optimizer.state[weight].values():
                if isinstance(kept, torch.Tensor) and kept.shape == weight.shape:
                    kept[changed] = 0
            self.masks[name] = mask


def step(model: torch.nn.Module, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    y: torch.Tensor = model(x)
    (y.square().sum() / max(1, y.numel())).backward()
    optimizer.step()
    return y


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / (want.norm() + 1e-12)) if want.numel() else 0.0


def run_random(seed: int) -> float:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    widths = [draw.choice([16, 48]) for _ in range(draw.randint(2, 3))]
    parts: list[torch.nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        parts.append(torch.nn.Linear(inputs, outputs, bias=draw.random() < 0.7, dtype=torch.double))
        if draw.random() < 0.6:
            parts.append(draw.choice([torch.nn.ReLU, torch.nn.GELU, torch.nn.SiLU, torch.nn.Tanh])())
        if draw.random() < 0.3:
            parts.append(torch.nn.LayerNorm(outputs, dtype=torch.double))
    model = torch.nn.Sequential(*parts)
    mark = Mark(r"[0-9]\.weight$", block=draw.choice(BLOCKS), density=draw.choice([0.05, 0.2, 0.5, 1.0]))
    nn.sparsify(model, [mark], pattern=draw.choice(["random", "largest"]), fuse_activations=draw.random() < 0.5)
    make = OPTIMIZERS[draw.choice(list(OPTIMIZERS))]
    optimizer, masked = make(model.parameters()), Masked(model, make)
    worst = 0.0
    for i in range(6):
        x = torch.randn(draw.choice([0, 1, 3, 17, 70]), widths[0], dtype=torch.double)
        x = x[None].expand(2, -1, -1) if draw.random() < 0.3 else x
        worst = max(worst, distance(step(model, optimizer, x), masked.step(x)))
        if i == 2:
            nn.update_patterns(model, optimizer, 0.4, method="set", seed=seed)
            masked.take_masks()
    return worst


# Kernels that are compiled ahead, for a step that compiles none then.
sparse = torch.nn.Sequential(*(nn.Linear(48, 48, block=16, density=0.5, activation=a) for a in ("", "gelu", "")))
kept = Path(sys.argv[1]) / "cache"
made = nn.compile_kernels(sparse, tokens=70)
count = len(list(kept.glob("*.so")))
sparse(torch.randn(70, 48, requires_grad=True)).sum().backward()
with torch.no_grad():
    sparse(torch.randn(3, 48))
print("ahead:", made, len(list(kept.glob("*.so"))) - count, nn.compile_kernels(sparse))
# CHECK: ahead: 14 0 7
# CHECK-NEXT: expected tokens to be an integer from 1
refuse(nn.compile_kernels, sparse, tokens=0)
# CHECK-NEXT: expected a dtype of float32, float64, bfloat16 or float16, but got torch.int32
refuse(nn.compile_kernels, sparse, dtype=torch.int32)

errors = {seed: run_random(seed) for seed in range(12)}
print("random models:", [seed for seed, error in errors.items() if not error < 1e-9] or "right")
# CHECK: random models: right

# Two hundred steps with ten updates.
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).double()
nn.sparsify(model, [Mark("weight$", block=16, density=0.25)])
make = OPTIMIZERS["AdamW"]
optimizer, masked = make(model.parameters()), Masked(model, make)
schedule = nn.Sparsity(model, optimizer, [Group(method="set", every=14, drop=0.3, schedule="constant")], steps=200)
worst, updates = 0.0, 0
for i in range(200):
    x = torch.randn(32, 64, dtype=torch.double)
    worst = max(worst, distance(step(model, optimizer, x), masked.step(x)))
    if schedule.update().get("pruned", 0):
        updates += 1
        masked.take_masks()
print("long run:", updates, "right" if worst < 1e-9 else f"WRONG {worst}")
# CHECK: long run: 10 right


class Rows(Dataset[torch.Tensor]):
    """Examples that a layer computes."""

    def __init__(self, layer: torch.nn.Module) -> None:
        self.layer = layer

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> torch.Tensor:
        with torch.no_grad():
            y: torch.Tensor = self.layer(torch.full((3, 64), float(i), dtype=torch.double))
        return y


rows = Rows(model)
want = torch.stack([rows[i] for i in range(8)])
loader = DataLoader(rows, batch_size=4, num_workers=2, multiprocessing_context="fork")
print("workers:", torch.equal(torch.cat(list(loader)), want))
# CHECK: workers: True


def resident() -> int:
    """Kilobytes of this process."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def run_many(count: int) -> None:
    own = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    nn.sparsify(own, [Mark("weight$", block=16, density=0.25)])
    own_optimizer = make(own.parameters())
    every = nn.Sparsity(own, own_optimizer, [Group(method="rigl", every=50)], steps=count)
    for _ in range(count):
        step(own, own_optimizer, torch.randn(64, 64))
        every.update()


run_many(200)
before = resident()
run_many(600)
grown = resident() - before
print("memory:", "WRONG" if grown > 4096 else "stays", grown if grown > 4096 else "")
# CHECK: memory: stays
