# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Updates of the patterns of layers: methods, schedules, beside compiled steps.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import copy
import pickle

import numpy as np
import sparse_opt
import sparse_opt.torch
import torch
from refusals import refuse
from sparse_opt.torch import _updates, nn
from torch.utils.checkpoint import checkpoint
from twins import mse_step

torch.manual_seed(0)
MARK = "match=weight$ block=8x8 density=0.25"


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))


def block_norms(gradient, block):
    rows, cols = gradient.shape
    return gradient.reshape(rows // block[0], block[0], cols // block[1], block[1]).abs().sum((1, 3))


# Scores of all blocks, of several backward passes, against the dense gradient in float64.
for shape, (cols, rows), block, dtype in [
    ((5, 7), (64, 48), (8, 8), torch.float32),
    ((1,), (64, 48), (8, 16), torch.float64),
    ((300,), (32, 32), (4, 4), torch.bfloat16),
    ((9,), (9, 15), (5, 3), torch.float32),
    ((0,), (16, 16), (16, 16), torch.float32),
]:
    layer = nn.Linear(cols, rows, block=block, density=0.3, dtype=dtype)
    nn.keep_gradients(layer)
    for _ in range(2):
        y = layer(torch.randn(*shape, cols, dtype=dtype))
        y.backward(torch.randn_like(y))
    gradient = sum(dy.double().reshape(-1, rows).T @ x.double().reshape(-1, cols) for x, dy in layer.kept)
    wanted = block_norms(gradient, block)
    got = torch.from_numpy(_updates._scores("w", layer))
    assert got.shape == wanted.shape and (got - wanted).abs().max() <= 1e-6 * wanted.max() + 1e-30, (shape, dtype)
    assert pickle.loads(pickle.dumps(layer)).kept == [] and copy.deepcopy(layer).kept == []
print("scores")  # CHECK: scores

# Dropped and recomputed activations are kept once.
layer = nn.Linear(32, 32, block=8, density=0.5)
nn.keep_gradients(layer)
checkpoint(layer, torch.randn(4, 32, requires_grad=True), use_reentrant=False).sum().backward()
assert len(layer.kept) == 1
with torch.no_grad():
    layer(torch.randn(4, 32))
assert len(layer.kept) == 1
print("kept once")  # CHECK: kept once

# RigL, SET, GMP and a method of one's own choose what a compiled step of the same names, seed and values does.


class Last(sparse_opt.Method):
    """Drops the blocks of the smallest largest magnitude, and grows those of the largest gradients."""

    needs_scores = True

    def __init__(self):
        self.calls = 0

    def score(self, weight):
        return weight.norms("linf")

    def grow(self, weight, count):
        self.calls += 1
        return weight.largest_scores(count)

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


def blocks_of(step, name):
    blocks = step.blocks(name)
    order = blocks.slot.argsort()
    return blocks.rows[order], blocks.col_idx[order], np.sort(blocks.slot)


def is_alike(step, model):
    for index in (0, 2):
        slots, rows, cols = model[index]._places()
        wanted = blocks_of(step, f"{index}.weight")
        if not all(np.array_equal(a, b.numpy()) for a, b in zip(wanted, (rows, cols, slots))):
            return False
    return True


def twins(batch, density="0.25"):
    """A model with layers and the compiled step of the same dense model, of the same patterns."""
    model = network()
    make = lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9)
    other = network()
    export = sparse_opt.torch.export(mse_step, other, make(other.parameters()), batch)
    mark = MARK.replace("0.25", density)
    step = sparse_opt.compile(export, [mark], pattern="random", seed=7, options=["--score-norm=l1"])
    nn.sparsify(model, [mark])
    for index in (0, 2):
        layer = model[index]
        blocks = step.blocks(f"{index}.weight")
        held = layer.matrix.pattern_from(blocks.row_ptr, blocks.col_idx, blocks.slot)
        layer.pattern.copy_(torch.from_numpy(held))
        layer.take_dense(torch.from_numpy(step.read(f"{index}.weight")))
    return model, make(model.parameters()), step


def train(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()


batches = [torch.randn(50, 64) for _ in range(4)]
for options in ({"method": "set"}, {"method": "rigl"}, {"method": "rigl", "norm": "l2"}, {"method": "gmp"}, {"method": Last()}):
    model, optimizer, step = twins(batches[0])
    for i in range(3):
        if options["method"] == "gmp":
            options["density"] = 0.2 - 0.05 * i
        drop = () if options["method"] == "gmp" else (0.4,)
        nn.keep_gradients(model)
        train(model, optimizer, batches[i])
        step(batches[i], scores=True)
        pruned = nn.update_patterns(model, optimizer, *drop, seed=7, **options)
        assert pruned == step.update_patterns(*drop, **options) > 0, (options, pruned)
        assert is_alike(step, model), options
        for index in (0, 2):
            assert not model[index].kept
            error = np.abs(model[index].dense_weight().numpy() - step.read(f"{index}.weight")).max()
            assert error < 1e-5, (options, error)
print("methods of a compiled step")  # CHECK: methods of a compiled step

# Slots without a block stay zeros, and count for nothing.
layer = model = nn.Linear(64, 64, block=8, density=0.5)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
nn.update_patterns(model, optimizer, method="gmp", density=0.1)
assert layer.density == layer.mask().double().mean() and abs(layer.density - 0.1) < 0.01
x = torch.randn(20, 64, requires_grad=True)
y = layer(x)
y.backward(y.detach())
wanted = x.double() @ layer.dense_weight().double().T + layer.bias.double()
assert (y - wanted).abs().max() < 1e-5
assert (x.grad - wanted @ layer.dense_weight().double()).abs().max() < 1e-4
optimizer.step()
slots, *_ = layer._places()
empty = torch.ones(layer.weight.shape[0], dtype=torch.bool)
empty[slots] = False
assert empty.any() and not layer.weight[empty].any() and not layer.weight.grad[empty].any()
again = nn.Linear(64, 64, block=8, density=0.5)
again.load_state_dict(layer.state_dict())
assert torch.equal(again.dense_weight(), layer.dense_weight())
dense = nn.densify(copy.deepcopy(torch.nn.Sequential(layer)))[0]
assert torch.equal(dense.weight, layer.dense_weight())
print("empty slots")  # CHECK: empty slots

# Schedules: those of a compiled step, and of a run that is resumed.
own = Last()
groups = [
    {"match": "^0", "method": "rigl", "every": 3, "drop": 0.4},
    {"match": "^2", "method": own, "every": 4, "drop": 0.3, "schedule": "constant"},
]
model, optimizer, step = twins(batches[0])
theirs = sparse_opt.Sparsity(step, groups, steps=24)
ours = nn.Sparsity(model, optimizer, groups, steps=24, seed=7)
counts = []
for i in range(24):
    if i == 13:
        saved = pickle.dumps((model.state_dict(), optimizer.state_dict(), ours.state_dict()))
    train(model, optimizer, batches[i % 4])
    step(batches[i % 4], scores=theirs.needs_scores)
    kept = [bool(model[index].kept) for index in (0, 2)]
    entry = ours.update()
    counts.append(entry)
    before = own.calls
    assert entry == theirs.update(), i
    own.calls = before
    assert is_alike(step, model), i
assert sum(map(bool, counts[:13])) == 6 and any(counts[13:]), counts
assert any(0 < entry.get("lost", 0) < 1 for entry in counts) and counts[-1].get("used", 1) > 0.25, counts
again = nn.sparsify(network(), [MARK])
optimizer = torch.optim.SGD(again.parameters(), lr=0.05, momentum=0.9)
resumed = nn.Sparsity(again, optimizer, groups, steps=24, seed=7)
parts = pickle.loads(saved)
for part, state in zip((again, optimizer, resumed), parts):
    part.load_state_dict(state)
assert own.calls == parts[2]["methods"][0]["calls"]
for i in range(13, 24):
    train(again, optimizer, batches[i % 4])
    assert resumed.update() == counts[i], i
assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), model.state_dict().values()))
print("schedules")  # CHECK: schedules

# A whole step of a dense model goes on with the blocks of layers by marks.
model = nn.sparsify(network(), [MARK])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
train(model, optimizer, batches[0])
nn.update_patterns(model, optimizer, 0.4)
train(model, optimizer, batches[1])
marks, dense = nn.marks_of(model), nn.densify(copy.deepcopy(model))
assert list(map(str, marks)) == ["match=^0\\.weight$ block=8x8 density=0.25", "match=^2\\.weight$ block=8x8 density=0.25"], marks
export = sparse_opt.torch.export(mse_step, dense, torch.optim.SGD(dense.parameters(), lr=0.05), batches[0])
step = sparse_opt.compile(export, marks, pattern="largest")
for i in range(4):
    wanted = model(batches[i]).square().mean().item()
    train(model, optimizer, batches[i])
    assert abs(step(batches[i]).item() - wanted) < 1e-5 * wanted, i
for index in (0, 2):
    assert (torch.from_numpy(step.read(f"{index}.weight")) - model[index].dense_weight()).abs().max() < 1e-5
print("a whole step")  # CHECK: a whole step

# A compiled model keeps gradients, too.
model = nn.sparsify(network(), [MARK])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fast = torch.compile(model, backend="aot_eager")
for i in range(3):
    if i == 1:
        nn.keep_gradients(model)
    train(fast, optimizer, batches[i])
    assert [len(model[index].kept) for index in (0, 2)] == [i == 1] * 2
    if i == 1:
        assert nn.update_patterns(model, optimizer, method="rigl") > 0
print("compiled")  # CHECK: compiled


# CHECK: expected the gradient of '0.weight' for a method that scores all blocks, but got none: call keep_gradients(model) in front of the backward pass
refuse(nn.update_patterns, model, optimizer, method="rigl")
# CHECK: expected one of static, set, rigl, gmp, but got 'prune'
refuse(nn.update_patterns, model, optimizer, method="prune")
# CHECK: expected a density for the method gmp and for no other, but got None for gmp
refuse(nn.update_patterns, model, optimizer, method="gmp")
# CHECK: expected a density for the method gmp and for no other, but got 0.5 for set
refuse(nn.update_patterns, model, optimizer, density=0.5)
# CHECK: expected the state of 0 methods in Python, but got that of 1
refuse(nn.Sparsity(model, optimizer, {"method": "set", "every": 5}, steps=10).load_state_dict, parts[2])
# CHECK: expected '0.weight' to begin with 13 blocks, as its group says, but got 32: give sparsify that density
fresh = nn.sparsify(network(), [MARK])
sgd = torch.optim.SGD(fresh.parameters(), lr=0.1)
refuse(nn.Sparsity, fresh, sgd, {"method": "set", "every": 5, "density": 0.1}, steps=10)
# CHECK: expected an optimizer that has '0.weight', but got none that does: make it after sparsify
refuse(nn.Sparsity, fresh, optimizer, {"method": "set", "every": 5}, steps=10)
# CHECK-NOT: accepted
