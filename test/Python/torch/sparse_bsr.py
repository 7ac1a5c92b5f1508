# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Layers to PyTorch's own sparse_bsr tensors and back.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import torch
from refusals import refuse
from sparse_opt.torch import nn

torch.manual_seed(0)

layer = nn.Linear(64, 32, block=(8, 16), density=0.5)
assert layer.shape == (32, 64)
given = layer.to_sparse_bsr()
assert given.layout == torch.sparse_bsr and torch.equal(given.to_dense(), layer.dense_weight())
with torch.no_grad():
    layer.weight.mul_(2)
print("own memory", torch.equal(given.to_dense(), layer.dense_weight()))
# CHECK: own memory True

optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
layer(torch.randn(5, 64)).square().sum().backward()
optimizer.step()
for _ in range(3):
    nn.update_patterns(layer, optimizer, 0.5)
moved = layer.to_sparse_bsr()
assert torch.equal(moved.to_dense(), layer.dense_weight())
assert (moved.crow_indices()[-1], moved.col_indices().numel()) == (layer.weight.shape[0],) * 2

# Back: the same product, of all blocks, and of fewer.
x = torch.randn(7, 64)
other = nn.Linear(64, 32, block=(8, 16), density=0.5, bias=False)
other.take_sparse_bsr(moved)
assert torch.equal(other.dense_weight(), layer.dense_weight())
torch.testing.assert_close(other(x), x @ layer.dense_weight().T)
fewer = torch.zeros(32, 64)
fewer[8:16, 48:] = torch.randn(8, 16)
other.take_sparse_bsr(fewer.to_sparse_bsr((8, 16)))
assert torch.equal(other.dense_weight(), fewer) and other.density == 1 / 16
torch.testing.assert_close(other(x), x @ fewer.T)
data = torch.randn(3, 8, 16)
rows = torch.tensor([0, 2, 2, 3, 3])
other.take_sparse_bsr(torch.sparse_bsr_tensor(rows, torch.tensor([0, 3, 1]), data, (32, 64)))
want = torch.zeros(32, 64)
for block, (row, column) in zip(data, ((0, 0), (0, 48), (16, 16))):
    want[row : row + 8, column : column + 16] = block
assert torch.equal(other.dense_weight(), want)
torch.testing.assert_close(other(x), x @ want.T)
print("back")
# CHECK: back

half = nn.Linear(64, 32, block=(8, 16), density=0.5, dtype=torch.bfloat16)
half.take_sparse_bsr(moved)
assert torch.equal(half.dense_weight(), layer.dense_weight().bfloat16())

refuse(lambda: other.take_sparse_bsr(want))
# CHECK: expected a sparse_bsr tensor of 32x64 in blocks of 8x16, but got one of [32, 64], torch.strided
refuse(lambda: other.take_sparse_bsr(want.to_sparse_bsr((16, 16))))
# CHECK: expected a sparse_bsr tensor of 32x64 in blocks of 8x16, but got one of [32, 64] in 16x16
refuse(lambda: other.take_sparse_bsr(want.numpy()))
# CHECK: expected a sparse_bsr tensor of 32x64 in blocks of 8x16, but got {{.*}}ndarray
refuse(lambda: other.take_sparse_bsr(torch.ones(32, 64).to_sparse_bsr((8, 16))))
# CHECK: expected at most 8 blocks, but got 16
for columns in ([3, 0, 1], [0, 0, 1], [0, 4, 1]):
    refuse(other.take_sparse_bsr, torch.sparse_bsr_tensor(rows, torch.tensor(columns), data, (32, 64), check_invariants=False))
# CHECK-COUNT-3: expected a sparse_bsr tensor of 32x64 in blocks of 8x16, but got wrong indices: {{.+}}
assert torch.equal(other.dense_weight(), want)
