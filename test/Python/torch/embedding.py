# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse embeddings, alone, tied to a linear layer, and updated, beside dense ones that are masked.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import copy

import numpy as np
import torch
import torch.nn.functional as F
from blocks import ROUNDOFF, dense, stored
from refusals import refuse
from sparse_opt.torch import nn

torch.manual_seed(0)

count = 0
for shape, (rows, cols), block, density, dtype in [
    ((7,), (64, 48), 16, 0.4, torch.float32),
    ((3, 50), (64, 48), (8, 16), 0.4, torch.float32),
    ((), (64, 48), 4, 0.3, torch.float32),
    ((40,), (30, 9), (1, 3), 0.4, torch.float32),
    ((40,), (30, 9), 1, 0.3, torch.float32),
    ((9,), (64, 48), 16, 1.0, torch.float64),
    ((200,), (64, 48), 16, 0.4, torch.bfloat16),
    ((200,), (64, 48), 16, 0.4, torch.float16),
    ((0,), (64, 48), 16, 0.4, torch.float32),
]:
    layer = nn.Embedding(rows, cols, block=block, density=density, dtype=dtype)
    indices = torch.randint(0, rows, shape, dtype=torch.int32 if count % 2 else torch.int64)
    y = layer(indices)
    weight = layer.dense_weight().double().requires_grad_()
    want = F.embedding(indices, weight)
    assert y.dtype == dtype and torch.equal(y.double(), want), (shape, dtype)
    dy = torch.randn_like(y)
    y.backward(dy)
    want.backward(dy.double())
    # Sums are taken in float32 and rounded once.
    error = (dense(layer, layer.weight.grad) - weight.grad * stored(layer)).abs().max()
    assert error <= 4 * ROUNDOFF[dtype] * weight.grad.abs().max() + 1e-300, (shape, dtype, error)
    count += 1
print(count, "tables")  # CHECK: 9 tables

# Rows without a block, and a row without a gradient.
layer = nn.Embedding(48, 32, 17, block=16, pattern=[[1, 0], [1, 1], [0, 0]])
assert not layer(torch.tensor([40])).any() and not layer(torch.tensor([17])).any()
layer(torch.tensor([17, 18, 40])).sum().backward()
gradient = dense(layer, layer.weight.grad)
assert not gradient[17].any() and gradient[18].all() and gradient.sum() == 32
print(layer)  # CHECK: Embedding(48, 32, padding_idx=17, block=16x16, density=0.5)
indices = torch.randint(0, 48, (3, 5))
y = layer(indices)
assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(indices), y)
assert torch.equal(torch.export.export(layer, (indices,)).module()(indices), y)
plain = nn.densify(layer)
assert type(plain) is torch.nn.Embedding and plain.padding_idx == 17 and torch.equal(plain(indices), y)
other = nn.Embedding(48, 32, 17, block=16, density=0.5)
other.load_state_dict(layer.state_dict())
assert torch.equal(other(indices), y)
other.load_state_dict(torch.nn.Embedding(48, 32).state_dict())
print("compiled, exported, loaded")  # CHECK: compiled, exported, loaded


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(64, 32)
        self.middle = torch.nn.Linear(32, 32)
        self.head = torch.nn.Linear(32, 64, bias=False)
        self.head.weight = self.table.weight

    def forward(self, indices):
        return self.head(torch.tanh(self.middle(self.table(indices))))


def masks_of(model):
    return {"table.weight": stored(model.table), "middle.weight": stored(model.middle)}


def train(model, masks=None):
    """The losses of 25 steps, and the masks in front of each and after the last: of layers whose patterns are
    updated, or of a dense model whose weights are masked."""
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    generator = torch.Generator().manual_seed(1)
    losses, history = [], [masks_of(model)] if masks is None else masks
    for step in range(25):
        batch = torch.randint(0, 64, (40,), generator=generator)
        loss = F.cross_entropy(model(batch), batch.roll(1))
        loss.backward()
        losses.append(loss.item())
        named = dict(model.named_parameters())
        for name, mask in history[step].items():
            if masks is not None:
                named[name].grad *= mask
        optimizer.step()
        optimizer.zero_grad()
        if masks is None:
            if step % 5 == 4:
                nn.update_patterns(model, optimizer, 0.3, seed=3)
            history.append(masks_of(model))
            continue
        with torch.no_grad():
            for name, mask in history[step + 1].items():
                named[name] *= mask
                for key in ("exp_avg", "exp_avg_sq"):
                    optimizer.state[named[name]][key] *= mask * history[step][name]
    return losses, history


torch.manual_seed(2)
model = nn.sparsify(Tied(), ["match=weight$ block=8x8 density=0.4"])
assert model.head.weight is model.table.weight and model.head.pattern is model.table.pattern
# CHECK: 2 layers have blocks now
print(*nn.marks_of(model))
# CHECK-NEXT: match=^table\.weight$ block=8x8 density=0.40625 match=^middle\.weight$ block=8x8 density=0.375
twin = nn.densify(copy.deepcopy(model))
assert twin.head.weight is twin.table.weight
losses, history = train(model)
want, _ = train(twin, history)
assert np.abs(np.array(losses) - want).max() < 1e-5, (losses, want)
assert torch.allclose(model.table.dense_weight(), twin.table.weight, atol=1e-5)
assert not torch.equal(history[0]["table.weight"], history[-1]["table.weight"])
print("trained", len(losses))  # CHECK: trained 25

# Scores of blocks are those of the dense gradient.
table = nn.Embedding(64, 32, block=8, density=0.4)
nn.keep_gradients(table)
weight = table.dense_weight().requires_grad_()
for _ in range(2):
    indices, dy = torch.randint(0, 64, (9,)), torch.randn(9, 32)
    table(indices).backward(dy)
    F.embedding(indices, weight).backward(dy)
norms = weight.grad.abs().reshape(8, 8, 4, 8).sum((1, 3))
assert np.allclose(table.scores(table.kept), norms, atol=1e-5)
optimizer = torch.optim.SGD(table.parameters(), 0.1)
absent = norms.masked_fill(table.mask(), -1)
pruned = nn.update_patterns(table, optimizer, 0.3, method="rigl")
grown = table.mask() & (absent >= 0)
assert pruned == grown.sum() > 0 and absent[grown].min() >= absent[~grown].max()
print("scored")  # CHECK: scored

nn.keep_gradients(model)
model(torch.arange(9)).sum().backward()


refuse(nn.update_patterns, model, torch.optim.SGD(model.parameters(), 0.1), method="rigl")
# CHECK: expected a weight that only linear layers or only embeddings have, to score its blocks by gradients, but got 'table.weight', which both have: update it by set or gmp
refuse(table, torch.tensor([0, 64]))  # CHECK: expected indices below 64 of a table of so many rows, but got 0 to 64
refuse(table, torch.tensor([-1]))  # CHECK: expected indices below 64 of a table of so many rows, but got -1 to -1
refuse(table, torch.randn(3))  # CHECK: expected indices, a tensor of int32 or int64, but got
refuse(nn.Embedding, 64, 32, 64)  # CHECK: expected padding_idx to be an integer from -64 to 63, but got 64
refuse(nn.Embedding, 60, 32)  # CHECK: expected blocks that divide the weight of Embedding, 60x32, but got 16x16
options = torch.nn.ModuleDict({
    "limited": torch.nn.Embedding(64, 32, max_norm=1.0), "counted": torch.nn.Embedding(64, 32, scale_grad_by_freq=True),
    "sparse": torch.nn.Embedding(64, 32, sparse=True), "plain": torch.nn.Embedding(64, 32),
})  # fmt: skip
nn.sparsify(options, ["match=weight block=16x16 density=0.5"])
# CHECK: 1 layer has blocks now, 1,024 of 2,048 numbers ({{.*}}); dense as they are: limited.weight (max_norm), counted.weight (scale_grad_by_freq), sparse.weight (sparse)
