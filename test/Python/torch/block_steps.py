# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Steps of each block: PyTorch's own optimizers in float64, of blocks that are parameters of
# their own, beside compiled steps whose blocks have counts of their own. And ramps, of any
# optimizer.

# RUN: rm -rf %t && mkdir %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s %t | FileCheck %s --implicit-check-not=accepted --implicit-check-not=Traceback

import sys
from types import SimpleNamespace

import dense_adam
import numpy as np
import sparse_opt
import sparse_opt.torch
import torch
from refusals import refuse

torch.set_num_threads(1)
ROWS, COLS, LR = 32, 48, 1e-2
rng = np.random.default_rng(0)
batches = [(rng.normal(size=(24, COLS)), rng.normal(size=(24, ROWS))) for _ in range(18)]
OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=LR, weight_decay=0.1),
    "AMSGrad": lambda p: torch.optim.Adam(p, lr=LR, amsgrad=True, weight_decay=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=LR),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=LR),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=LR),
}


def train_step(model, optimizer, batch):
    x, target = batch
    loss = (model(x) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def tensors(batch):
    return tuple(torch.from_numpy(a).float() for a in batch)


def made(make, block, before=0, **options):
    """Returns a step of a program that has made some steps itself."""
    torch.manual_seed(0)
    model = torch.nn.Linear(COLS, ROWS, bias=False)
    optimizer = make(model.parameters())
    for batch in batches[:before]:
        train_step(model, optimizer, tensors(batch))
    export = sparse_opt.torch.export(train_step, model, optimizer, tensors(batches[0]))
    mark = sparse_opt.Mark("weight$", block=block, density=0.5)
    options = {"pattern": "random", "seed": 3, "block_steps": True, **options}
    return sparse_opt.compile(export, mark, **options)


class Blocks:
    """The blocks of a step, each with an optimizer of its own."""

    def __init__(self, step, make, ramp=0):
        self.make, self.ramp, self.pattern, self.blocks = make, ramp, step.patterns["weight"], {}
        self.ages = {}
        self.follow(step)
        self.ages = {}  # the first blocks have no ramp

    def follow(self, step):
        """Drops what an update has pruned, and begins what it has brought."""
        places = dense_adam.slots_of(step, "weight")
        w = torch.from_numpy(dense_adam.dense(step, "weight", "weight"))
        old = self.blocks
        self.blocks = {place: old[place] for place in places if place in old}
        for place in places:
            if place not in old:
                block = torch.nn.Parameter(w[dense_adam.part(self.pattern, place)].clone())
                self.blocks[place], self.ages[place] = (block, self.make([block])), 0
        return len(places) - sum(place in old for place in places)

    def weight(self):
        w = torch.zeros(ROWS, COLS, dtype=torch.float64)
        for place, (block, _) in self.blocks.items():
            w[dense_adam.part(self.pattern, place)] = block.detach()
        return w

    def step(self, x, target):
        w, x, target = self.weight(), torch.from_numpy(x), torch.from_numpy(target)
        gradient = 2 / target.numel() * (x @ w.T - target).T @ x
        for place, (block, optimizer) in self.blocks.items():
            block.grad = gradient[dense_adam.part(self.pattern, place)].clone()
            before = block.detach().clone()
            optimizer.step()
            self.ages[place] = age = self.ages.get(place, self.ramp) + 1
            if age < self.ramp:
                block.data = before + age / self.ramp * (block.data - before)


CASES = [(name, make, block, {"block_steps": True}) for name, make in OPTIMIZERS.items() for block in (4, (16, 8))]
CASES += [
    ("SGD", lambda p: torch.optim.SGD(p, lr=20 * LR, momentum=0.9, weight_decay=0.1), 4, {"block_ramp": 6}),
    ("Rprop", lambda p: torch.optim.Rprop(p, lr=LR / 10), (16, 8), {"block_ramp": 3}),
    ("AdamW", OPTIMIZERS["AdamW"], 1, {"block_ramp": 5, "block_steps": True}),
]  # fmt: skip
for name, make, block, given in CASES:
    step = made(make, block, **{"block_steps": False, **given})
    own, apart, new = Blocks(step, make, given.get("block_ramp", 0)), 0.0, 0
    for i, batch in enumerate(batches):
        step(tensors(batch))
        own.step(*batch)
        found = dense_adam.dense(step, "weight", "weight")
        apart = max(apart, np.abs(found - own.weight().numpy()).max())
        if i % 4 == 3:
            step.update_patterns(0.4, method=dense_adam.Chance())
            new += own.follow(step)
    print(f"{name} {block}: {new > 0} {apart < LR / 20}")
# CHECK: AdamW 4: True True
# CHECK-NEXT: AdamW (16, 8): True True
# CHECK-NEXT: AMSGrad 4: True True
# CHECK-NEXT: AMSGrad (16, 8): True True
# CHECK-NEXT: NAdam 4: True True
# CHECK-NEXT: NAdam (16, 8): True True
# CHECK-NEXT: RAdam 4: True True
# CHECK-NEXT: RAdam (16, 8): True True
# CHECK-NEXT: Adamax 4: True True
# CHECK-NEXT: Adamax (16, 8): True True
# CHECK-NEXT: SGD 4: True True
# CHECK-NEXT: Rprop (16, 8): True True
# CHECK-NEXT: AdamW 1: True True

# Blocks of a program that is under way are as old as their matrix, so that nothing differs
# from a step without counts, until an update; its checks are made until then, too.
counts = "optimizer.weight.step of weight"
runs = []
for block_steps in (True, False):
    step = made(OPTIMIZERS["AdamW"], 4, before=5, block_steps=block_steps)
    for batch in batches[5:9]:
        step(tensors(batch))
    if block_steps:
        print("as old", step.arrays[counts].shape, np.unique(step.arrays[counts]))
    runs.append(np.array(step.arrays["weight"]))
print("alike", np.abs(runs[0] - runs[1]).max() < 1e-7)
# CHECK: as old (48, 1, 1) [9.]
# CHECK-NEXT: alike True

# A run that stops in between goes on with the same bits, and the ages of its blocks.
for name in ("AdamW", "NAdam"):
    runs = []
    for stops in (False, True):
        step = made(OPTIMIZERS[name], 4)
        for i, batch in enumerate(batches):
            if stops and i == 10:
                step.save(f"{sys.argv[1]}/checkpoint")
                step = made(OPTIMIZERS[name], 4)
                step.load(f"{sys.argv[1]}/checkpoint")
            step(tensors(batch))
            if i % 4 == 3:
                step.update_patterns(0.4, method=dense_adam.Chance())
        runs.append({name: np.array(value) for name, value in step.arrays.items()})
    same = all(np.array_equal(runs[0][name], runs[1][name]) for name in runs[0])
    print("same", same, sorted(set(runs[1][counts].ravel().tolist())))
# CHECK-NEXT: same True [2.0, {{.*}}, 18.0]
# CHECK-NEXT: same True [2.0, {{.*}}, 18.0]

# A checkpoint of a step without counts has none.
step = made(OPTIMIZERS["AdamW"], 4, block_steps=False)
step.save(f"{sys.argv[1]}/old")
step = made(OPTIMIZERS["AdamW"], 4)
refuse(step.load, f"{sys.argv[1]}/old")
# CHECK-NEXT: expected tensor 'optimizer.weight.step of weight' in checkpoint '{{.*}}old', but got none

# What the program knows is no age: all blocks are as old as their matrix then.
for batch in batches[:3]:
    step(tensors(batch))
step.update_patterns(0.4, method=dense_adam.Chance())
print("young", np.unique(step.arrays[counts]), step.read(counts).shape)
step.load_state_dict(step.state_dict())
print("old", np.unique(step.arrays[counts]))
# CHECK-NEXT: young [0. 3.] (8, 12)
# CHECK-NEXT: old [3.]

# Blocks that are set begin anew, others take their ages with them.
step.arrays[counts][...] = 7
before, blocks = step.read(counts), step.blocks("weight")
new = tuple(np.argwhere(before == 0)[0])
rows, cols = np.append(blocks.rows[1:], new[0]), np.append(blocks.col_idx[1:], new[1])
order = np.lexsort((cols, rows))
matrix = SimpleNamespace(
    shape=(ROWS, COLS),
    data=np.zeros((len(rows), 4, 4), np.float32),
    indptr=np.searchsorted(rows[order], np.arange(9)),
    indices=cols[order],
)
step.take_scipy_bsr("weight", matrix)
expected = before.copy()
expected[blocks.rows[0], blocks.col_idx[0]] = expected[new] = 0
print("set", np.array_equal(step.read(counts), expected))
# CHECK-NEXT: set True

# Groups say what their step is compiled with; a run that stops in a ramp goes on with it.
group = sparse_opt.Group(method="set", every=4, drop=0.4, until=1, new_step="block", new_ramp=6)
runs = []
for stops in (False, True):
    step = made(OPTIMIZERS["AdamW"], 4, block_steps=False, sparsity=group)
    sparsity = sparse_opt.Sparsity(step, group, steps=18)
    for i, batch in enumerate(batches):
        if stops and i == 10:
            step.save(f"{sys.argv[1]}/ramped")
            step = made(OPTIMIZERS["AdamW"], 4, block_steps=False, sparsity=group)
            step.load(f"{sys.argv[1]}/ramped")
            sparsity = sparse_opt.Sparsity(step, group, steps=18)
        step(tensors(batch))
        sparsity.update()
    runs.append({name: np.array(value) for name, value in step.arrays.items()})
ramps = "block ramp of weight"
same = all(np.array_equal(runs[0][name], runs[1][name]) for name in runs[0])
print("ramped", same, np.unique(runs[1][ramps]), np.unique(runs[1][counts]).size > 2)
step.load_state_dict(step.state_dict())
print("old", np.unique(step.arrays[ramps]))
# CHECK-NEXT: ramped True [{{.*}} 6.] True
# CHECK-NEXT: old [6.]

refuse(sparse_opt.Sparsity, made(OPTIMIZERS["AdamW"], 4), group, steps=18)
refuse(sparse_opt.Sparsity, made(OPTIMIZERS["AdamW"], 4, block_steps=False, block_ramp=6), group, steps=18)
refuse(made, OPTIMIZERS["AdamW"], 4, block_ramp=1)
refuse(made, OPTIMIZERS["AdamW"], 4, block_ramp=2.5)
# CHECK-NEXT: expected a step compiled with --block-ramp=6 for that new_ramp, but got one with --block-ramp=0 for pattern 'weight': compile it with sparsity=groups
# CHECK-NEXT: expected a step compiled with --block-steps for new_step block, but got one without for pattern 'weight': compile it with sparsity=groups
# CHECK-NEXT: expected a ramp of 2 to 16777216 steps, but got 1
# CHECK-NEXT: expected block_ramp to be an integer from 0, but got 2.5

step = made(OPTIMIZERS["AdamW"], 4)
refuse(step.update_patterns, new_state="mean")
refuse(made, lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9), 4)
refuse(made, OPTIMIZERS["AdamW"], 4, block_steps="yes")
# CHECK-NEXT: expected new_state first in a step that was compiled with --block-steps, which counts from it, but got mean for pattern 'weight'
# CHECK-NEXT: expected the update of weight "weight" to correct bias by 1 - beta^t, to count the steps of its blocks, but got none that does
# CHECK-NEXT: expected block_steps to be True or False, but got 'yes'
