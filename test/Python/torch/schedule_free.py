# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Schedule-free optimizers, which branch on what they count, as their authors wrote
# them: compiled steps against masked eager ones, past the end of the warm-up.

# REQUIRES: schedulefree
# RUN: %python %s | FileCheck %s --implicit-check-not=apart

import copy

import numpy as np
import torch
from schedulefree import AdamWScheduleFree, RAdamScheduleFree, SGDScheduleFree
from torch import nn

import sparse_opt.torch
from twins import mse_step

MARKS = ["match=weight$ block=4x4 density=0.5"]
COUNTED = ("k", "lr_max", "weight_sum", "scheduled_lr")


def apart(got, want):
    return (got - want).abs().max().item() / (want.abs().max().item() + 1e-3)


def compare(name, make_optimizer, make_scheduler=None):
    """Trains 12 steps on half of the blocks; prints whether all is as in PyTorch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
    masked = copy.deepcopy(model)
    batches = [torch.randn(4, 16) for _ in range(12)]
    optimizers = [make_optimizer(model), make_optimizer(masked)]
    schedulers = [make_scheduler(o) for o in optimizers] if make_scheduler else []
    for optimizer in optimizers:
        optimizer.train()
    exported = sparse_opt.torch.export(mse_step, model, optimizers[0], batches[0])
    step = sparse_opt.compile(exported, MARKS, pattern="largest", options=["-O", "1"])
    masked.load_state_dict(step.state_dict())
    for key, p in masked.named_parameters():
        if not key.endswith("weight"):
            continue
        blocks = step.blocks(key)
        grid = np.zeros((p.shape[0] // 4, p.shape[1] // 4), np.float32)
        grid[blocks.rows, blocks.col_idx] = 1
        mask = torch.tensor(np.kron(grid, np.ones((4, 4), np.float32)))
        p.register_hook(lambda g, mask=mask: g * mask)

    differences = []
    for batch in batches:
        got, want = step(batch), mse_step(masked, optimizers[1], batch)
        differences.append(apart(got, want))
        for scheduler in schedulers:
            scheduler.step()
    step.store()
    got, want = (o.param_groups for o in optimizers)
    for key in COUNTED:
        numbers = zip(*([float(group[key]) for group in o] for o in (got, want)))
        differences += [abs(a - b) / (abs(b) + 1e-9) for a, b in numbers]
    steps = {group["k"] for group in got}
    # The averages: what a user evaluates.
    for optimizer in optimizers:
        optimizer.eval()
    for p, q in zip(model.parameters(), masked.parameters()):
        differences.append(apart(p.detach(), q.detach()))
        z, want_z = optimizers[0].state[p]["z"], optimizers[1].state[q]["z"]
        differences.append(apart(z, want_z))
    worst = np.max(differences)  # NaN is apart
    products = step.products
    print(f"{name}: {'equal' if worst < 2e-6 else f'apart by {worst:.1e}'}", end=", ")
    print(f"{steps} steps, {products['sddmm']} sampled, {products['left_dense']} dense")


# CHECK: AdamW: equal, {12} steps, 2 sampled, 0 dense
compare("AdamW", lambda m: AdamWScheduleFree(m.parameters(), lr=0.01, warmup_steps=5))

# CHECK: weighted: equal, {12} steps, 2 sampled, 0 dense
compare(
    "weighted",
    lambda m: AdamWScheduleFree(
        m.parameters(), lr=0.01, warmup_steps=3, r=0.5, weight_decay=0.1
    ),
)

# CHECK: SGD: equal, {12} steps, 2 sampled, 0 dense
compare("SGD", lambda m: SGDScheduleFree(m.parameters(), lr=0.1, warmup_steps=5))

# It divides by its second moment after a few steps only: its ways differ in more
# than numbers.

# CHECK: RAdam: equal, {12} steps, 2 sampled, 0 dense
compare("RAdam", lambda m: RAdamScheduleFree(m.parameters(), lr=0.01))

# CHECK: RAdam from SGD: equal, {12} steps, 2 sampled, 0 dense
compare(
    "RAdam from SGD",
    lambda m: RAdamScheduleFree(m.parameters(), lr=0.01, silent_sgd_phase=False),
)


def groups(model):
    weights, biases = (
        [p for key, p in model.named_parameters() if key.endswith(end)]
        for end in ("weight", "bias")
    )
    decayed = {"params": weights, "lr": 0.02, "weight_decay": 0.1, "warmup_steps": 3}
    return AdamWScheduleFree([decayed, {"params": biases, "lr": 0.01}], warmup_steps=6)


# CHECK: groups: equal, {12} steps, 2 sampled, 0 dense
compare("groups", groups)

# A rate of 0 makes its sum of weights 0, by which it divides in a `try`.


def from_zero(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, i / 4))


# CHECK: rates from 0: equal, {12} steps, 2 sampled, 0 dense
compare("rates from 0", lambda m: AdamWScheduleFree(m.parameters(), lr=0.01), from_zero)

# A step is of the optimizer's mode.

# CHECK: expected optimizer options as they were exported, but got train_mode False instead of True: export the step again
model = nn.Linear(8, 8)
optimizer = AdamWScheduleFree(model.parameters())
optimizer.train()
batch = torch.randn(4, 8)
step = sparse_opt.compile(
    sparse_opt.torch.export(mse_step, model, optimizer, batch), options=["-O", "1"]
)
optimizer.eval()
try:
    step(batch)
except sparse_opt.StepError as error:
    print(error)
