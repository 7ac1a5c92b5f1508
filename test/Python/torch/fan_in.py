# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# First values of layers for the fan-in that is stored, beside their definition, and what cannot have them.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import copy
import pickle

import numpy as np
import sparse_opt
import torch
from refusals import refuse
from sparse_opt.torch import nn

torch.set_num_threads(1)


def scaled(dense, mask, block):
    """The values of a matrix, [outputs, inputs], of which a mask of blocks is stored, each drawn for the inputs of its output."""
    rows, cols = block
    found = np.zeros(dense.shape)
    for output in range(dense.shape[0]):
        inputs = np.repeat(mask[output // rows], cols)
        if inputs.any():
            found[output, inputs] = dense[output, inputs] * np.sqrt(len(inputs) / inputs.sum())
    return found


def check(layer, dense):
    want = torch.from_numpy(scaled(dense.double().numpy(), layer.mask().numpy(), layer.block))
    assert torch.equal(layer.dense_weight(), want.to(layer.weight.dtype))


# Of new layers: the values of one for all inputs, by the same draws, scaled; biases are the same.
# CHECK: 20 layers, {{[1-9][0-9]*}} with an empty row
count = empty = 0
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    for block, density in ((1, 0.3), ((4, 8), 0.2), (16, 0.25), (8, 1.0), ((8, 1), 0.01)):
        made = {}
        for fan_in in ("dense", "rows"):
            torch.manual_seed(3)
            made[fan_in] = nn.Linear(48, 64, block=block, density=density, dtype=dtype, fan_in=fan_in)
        plain, layer = made["dense"], made["rows"]
        assert torch.equal(plain.mask(), layer.mask()) and torch.equal(plain.bias, layer.bias)
        check(layer, plain.dense_weight())
        assert density < 1 or torch.equal(layer.weight, plain.weight)
        empty += not layer.mask().any(1).all()
        count += 1
print(f"{count} layers, {empty} with an empty row")

# The standard deviation of an output is then that of a dense layer, whatever is stored.
# CHECK: standard deviations of outputs: 0.58 dense, 0.18 for all inputs, 0.58 for those stored
x = torch.randn(2000, 1024)
deviations = []
for options in ({"density": 1.0}, {"density": 0.1}, {"density": 0.1, "fan_in": "rows"}):
    torch.manual_seed(0)
    layer = nn.Linear(1024, 64, bias=False, block=(1, 16), **options)
    stored = layer.mask().any(1)
    deviations.append(float((x @ layer.dense_weight().detach().T)[:, stored].std()))
print("standard deviations of outputs: {:.2f} dense, {:.2f} for all inputs, {:.2f} for those stored".format(*deviations))

# A layer begins again as it began, and copies and pickles know how.
layer = nn.Linear(48, 64, block=8, density=0.3, fan_in="rows")
for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
    torch.manual_seed(5)
    other.reset_parameters()
    torch.manual_seed(5)
    layer.reset_parameters()
    assert torch.equal(other.weight, layer.weight)
del vars(other)["fan_in"]  # as of a layer that was pickled before
torch.manual_seed(5)
other.reset_parameters()
check(layer, other.dense_weight())

# Of dense layers, random blocks and masks.
# CHECK: sparsify: 4 layers
sparsified = 0
for pattern in ("random", "mask"):
    torch.manual_seed(1)
    dense = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32, bias=False))
    before = [dense[i].weight.detach().clone() for i in (0, 2)]
    masks = {"0.weight": np.arange(32).reshape(8, 4) % 3 == 0, "2.weight": np.arange(32).reshape(4, 8) < 9}
    model = nn.sparsify(dense, "match=weight block=8x8 density=0.3", pattern if pattern == "random" else masks, fan_in="rows")
    for i, weight in zip((0, 2), before):
        check(model[i], weight)
        assert pattern == "random" or (model[i].mask().numpy() == masks[f"{i}.weight"]).all()
        sparsified += 1
print(f"sparsify: {sparsified} layers")

# CHECK-NEXT: expected fan_in 'dense' or 'rows' of a layer, whose weight is [outputs, inputs], but got 'columns'
# CHECK-NEXT: expected fan_in 'dense' or 'rows' of a layer, whose weight is [outputs, inputs], but got None
# CHECK-NEXT: expected fan_in 'dense' for the largest blocks of a trained layer, but got 'rows'
# CHECK-NEXT: expected linear layers for fan_in 'rows', but got the embedding '0.weight', whose rows are looked up: sparsify it by a call of its own
# CHECK-NEXT: expected configuration key 'sparsity.fan_in' to be left out for layers, but got 'rows': sparsify chooses what they begin with
mark = "match=weight block=8x8 density=0.5"
refuse(nn.Linear, 16, 16, block=8, fan_in="columns")
refuse(nn.sparsify, torch.nn.Sequential(torch.nn.Linear(16, 16)), mark, fan_in=None)
refuse(nn.sparsify, torch.nn.Sequential(torch.nn.Linear(16, 16)), mark, "largest", fan_in="rows")
refuse(nn.sparsify, torch.nn.Sequential(torch.nn.Embedding(16, 16)), mark, fan_in="rows")
model = torch.nn.Sequential(nn.Linear(16, 16, block=8, density=0.5, fan_in="rows"))
refuse(nn.Sparsity, model, torch.optim.SGD(model.parameters(), 0.1), {"fan_in": "rows"}, steps=3)

# A step goes on with the values of layers, which its groups leave as they are.
# CHECK-NEXT: expected fan_in dense for '0.weight', the weight of a layer, which has its values, but got rows: give it to the layer or to sparsify
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def train_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


step = sparse_opt.compile(sparse_opt.torch.export(train_step, model, optimizer, torch.randn(8, 16)))
refuse(sparse_opt.Sparsity, step, {"fan_in": "rows"}, steps=3)

# A step of a dense model has what a model would have that is scaled in front of it.
# CHECK-NEXT: a step of PyTorch: as defined
model = torch.nn.Sequential(torch.nn.Linear(32, 64, bias=False))
weight = model[0].weight.detach().clone()
optimizer = torch.optim.SGD(model.parameters(), 0.0)
step = sparse_opt.compile(
    sparse_opt.torch.export(train_step, model, optimizer, torch.randn(8, 32)), "match=weight block=8x8 density=0.4", pattern="random"
)
sparse_opt.Sparsity(step, {"density": 0.3, "fan_in": "rows"}, steps=3)
(name,) = step.patterns
held = step.blocks(name)
mask = np.zeros((8, 4), bool)
mask[held.rows, held.col_idx] = True
found = np.zeros((8, 4, 8, 8), np.float32)
found[held.rows, held.col_idx] = np.array(step.arrays[name])[held.slot]
want = scaled(weight.double().numpy(), mask, (8, 8))
assert mask.sum() == 10 and np.allclose(found.swapaxes(1, 2).reshape(64, 32), want, rtol=2e-7, atol=0)
print("a step of PyTorch: as defined")
