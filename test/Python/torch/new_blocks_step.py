# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What regrown blocks of compiled steps begin with: values and moments.

# RUN: rm -rf %t && mkdir %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s %t | FileCheck %s --implicit-check-not=accepted --implicit-check-not=Traceback

import sys

import dense_adam
import numpy as np
import sparse_opt
import sparse_opt.torch
import torch
from refusals import refuse
from sparse_opt.torch import nn

torch.set_num_threads(1)
ROWS, COLS, LR, DECAY = 32, 48, 1e-2, 0.1
rng = np.random.default_rng(0)
batches = [(rng.normal(size=(24, COLS)), rng.normal(size=(24, ROWS))) for _ in range(12)]


def train_step(model, optimizer, batch):
    x, target = batch
    loss = (model(x) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def gradient_of(w, x, target):
    return 2 / target.size * (x @ w.T - target).T @ x


def tensors(batch):
    return tuple(torch.from_numpy(a).float() for a in batch)


def made(block):
    torch.manual_seed(0)
    model = torch.nn.Linear(COLS, ROWS, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)
    export = sparse_opt.torch.export(train_step, model, optimizer, tensors(batches[0]))
    mark = sparse_opt.Mark("weight$", block=block, density=0.5)
    return sparse_opt.compile(export, mark, pattern="random", seed=3), model


for block in (4, (16, 8)):
    for values, state in dense_adam.STARTS:
        step, model = made(block)
        first = model.weight.detach().numpy().std()
        own = dense_adam.Adam(step, "weight", LR, DECAY, gradient_of)
        apart, new = 0.0, 0
        for i, batch in enumerate(batches):
            step(tensors(batch))
            own.step(*batch)
            apart = max(apart, np.abs(dense_adam.dense(step, "weight", "weight") - own.w).max())
            if i % 3 == 2:
                step.update_patterns(0.4, new_values=values, new_state=state)
                new += own.regrow(step, values, state)
        drawn = np.std(own.random) / first if own.random else 0
        print(f"{block} {values} {state}: {new > 0} {apart < 2e-5} {0.9 < drawn < 1.1}")
# CHECK: 4 zero first: True True False
# CHECK-NEXT: 4 zero mean: True True False
# CHECK-NEXT: 4 zero kept: True True False
# CHECK-NEXT: 4 random first: True True True
# CHECK-NEXT: 4 random mean: True True True
# CHECK-NEXT: 4 random kept: True True True
# CHECK-NEXT: (16, 8) zero first: True True False
# CHECK-NEXT: (16, 8) zero mean: True True False
# CHECK-NEXT: (16, 8) zero kept: True True False
# CHECK-NEXT: (16, 8) random first: True True True
# CHECK-NEXT: (16, 8) random mean: True True True
# CHECK-NEXT: (16, 8) random kept: True True True


# A schedule, and one that stops in between and goes on, have the same bits. So has a method of
# one's own.
class AsSet(sparse_opt.Method):
    pass


for method in ("set", AsSet()):
    keys = {"method": method, "every": 3, "end": 100, "drop": 0.4}
    group = {**keys, "regrow": {"values": "random", "state": "mean", "std": 0.02}}
    runs = []
    for stops in (False, True):
        step, _ = made(4)
        sparsity = sparse_opt.Sparsity(step, group, steps=200)
        for i, batch in enumerate(batches):
            if stops and i == 7:
                sparsity.save(f"{sys.argv[1]}/checkpoint")
                step, _ = made(4)
                sparsity = sparse_opt.Sparsity(step, group, steps=200)
                sparsity.load(f"{sys.argv[1]}/checkpoint")
            step(tensors(batch))
            sparsity.update()
        runs.append({name: np.array(value) for name, value in step.arrays.items()})
    same = all(np.array_equal(runs[0][name], runs[1][name]) for name in runs[0])
    print("same", same, step.counters.blocks_regrown > 0, sparsity.groups[0].new_state)
# CHECK-NEXT: same True True mean
# CHECK-NEXT: same True True mean

refuse(step.update_patterns, new_values="ones")
refuse(step.update_patterns, new_state="zero")
refuse(step.update_patterns, new_values="random", new_std=-1)
refuse(step.update_patterns, new_std=0.5)
refuse(sparse_opt.Sparsity, step, {"new_std": 0.5}, steps=3)
# CHECK-NEXT: expected one of zero, random, but got 'ones'
# CHECK-NEXT: expected one of first, mean, kept, but got 'zero'
# CHECK-NEXT: expected new_std to be a number of at least 0, but got -1
# CHECK-NEXT: expected no new_std without new_values 'random', but got 0.5
# CHECK-NEXT: expected configuration key 'sparsity.new_std' to be left out unless new_values is random, but got 0.5

# Of a weight that begins as zeros, nobody knows how random ones are.
torch.nn.init.zeros_((model := torch.nn.Linear(COLS, ROWS, bias=False)).weight)
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
export = sparse_opt.torch.export(train_step, model, optimizer, tensors(batches[0]))
step = sparse_opt.compile(export, sparse_opt.Mark("weight$", block=4, density=0.5), pattern="random")
refuse(step.update_patterns, new_values="random")
# CHECK-NEXT: expected a standard deviation (new_std) of the random values of new blocks, but got a weight that does not begin by normal(s) for pattern 'weight'

layer = nn.Linear(16, 16, block=4, density=0.5)
sgd = torch.optim.SGD(layer.parameters(), lr=LR)
refuse(nn.Sparsity, layer, sgd, {"new_state": "mean"}, steps=3)
# CHECK-NEXT: expected configuration key 'sparsity.new_state' to be left out for layers, but got 'mean': nn.Sparsity has arguments of these names
