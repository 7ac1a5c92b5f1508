# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Updates of layers that compare the blocks of all of them.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import pathlib
import sys

import numpy as np
import torch
from refusals import refuse
from sparse_opt.torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "examples"))
import methods  # noqa: E402

torch.manual_seed(0)


def model_of():
    model = torch.nn.Sequential(nn.Linear(64, 96, block=8, density=0.5), nn.Linear(96, 32, block=8, density=0.5))
    return model, torch.optim.SGD(model.parameters(), 0.1)


def norms_of(model):
    """The L1 norm of each stored block, by the layer and the number of the block."""
    found = {}
    for i, layer in enumerate(model):
        tiles = layer.dense_weight().detach().double().abs().numpy()
        grid = layer.mask().shape
        sums = tiles.reshape(grid[0], 8, grid[1], 8).sum((1, 3))
        found |= {(i, int(k)): sums.flat[k] for k in np.flatnonzero(layer.mask().numpy())}
    return found


# CHECK: layers: 4 updates by one threshold, 36 of 144 blocks, densities 0.{{[0-9]+}} apart
model, optimizer = model_of()
with torch.no_grad():
    model[1].weight *= 1.1
sparsity = nn.Sparsity(model, optimizer, {"method": "gmp", "distribution": "global", "density": 0.25, "every": 2, "end": 8}, steps=10)
updates = 0
for step in range(1, 11):
    norms = norms_of(model)
    if sparsity.update():
        left = int((0.25 + 0.25 * (1 - step / 8) ** 3) * 144 + 0.5)
        order = sorted(norms, key=lambda k: (norms[k], k))
        last = [max((k for k in order if k[0] == i), key=order.index) for i in (0, 1)]
        goes = [k for k in order if k not in last][: len(norms) - left]
        assert norms_of(model).keys() == set(norms) - set(goes), step
        updates += 1
densities = [layer.density for layer in model]
print(f"layers: {updates} updates by one threshold, {len(norms_of(model))} of 144 blocks, densities {abs(densities[0] - densities[1]):.2f} apart")

# A method of one's own sees all of them; slots that pruning has left are taken.
# CHECK-NEXT: DSR: 10 blocks, [{{[0-9]+, [0-9]+}}]
before = [int(layer.mask().sum()) for layer in model]
assert nn.update_patterns(model, optimizer, 0.28, method=methods.DSR()) == 10
after = [int(layer.mask().sum()) for layer in model]
assert sum(after) == sum(before) and after != before
print(f"DSR: 10 blocks, {after}")

# CHECK-NEXT: expected weights that were updated equally often for DSR, which compares their blocks, but got '0.weight' with 0 and '1.weight' with 1
# CHECK-NEXT: expected weights that were updated equally often for distribution global, which compares their blocks, but got '0.weight' with 0 and '1.weight' with 1
model, optimizer = model_of()
model[1].num_updates.fill_(1)
refuse(nn.update_patterns, model, optimizer, method=methods.DSR())
sparsity = nn.Sparsity(model, optimizer, {"method": "gmp", "distribution": "global", "density": 0.25, "every": 1}, steps=4)
refuse(sparsity.update)

# CHECK-NEXT: expected configuration key 'sparsity.score_steps' to be 1 for layers, but got 8: nn.keep_gradients(model) in front of several backward passes adds these up
refuse(nn.Sparsity, model, optimizer, {"method": methods.AccumulatedRigL(), "every": 1}, steps=4)
