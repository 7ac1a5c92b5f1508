# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# torch.fx traces a model around its block-sparse layers, which the graph calls as it calls those of torch.nn; TorchScript is refused.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s --implicit-check-not=accepted

import copy

import torch
import torch.nn.functional as F
from refusals import refuse
from sparse_opt import Mark
from sparse_opt.torch import nn

torch.manual_seed(0)


class Network(torch.nn.Module):
    """Every kind of layer, one of them called twice, between functions of tensors."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(32, 64)
        self.attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
        self.convolution = torch.nn.Conv1d(64, 64, 3, padding=1)
        self.mix = torch.nn.Linear(64, 64)

    def forward(self, indices):
        x = self.words(indices)
        x = x + self.attention(query=x, key=x, value=F.silu(x), need_weights=False)[0]
        x = F.relu(self.convolution(x.transpose(1, 2))).transpose(1, 2)
        return self.mix(F.gelu(self.mix(x))).mean(1)


model = nn.sparsify(
    Network(),
    [Mark("convolution.weight$", block=16, density=0.5, dims="row,col,col"), Mark("weight$", block=16, density=0.5)],
)
kept = copy.deepcopy(model)
indices = torch.randint(0, 32, (3, 7))
traced = torch.fx.symbolic_trace(model)
called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
print("calls", *called)  # CHECK: calls words attention convolution mix mix
y, want = traced(indices), kept(indices)
y.square().sum().backward()
want.square().sum().backward()
assert torch.equal(y, want)
for (name, parameter), other in zip(model.named_parameters(), kept.parameters()):
    assert torch.equal(parameter.grad, other.grad), name

# Other batches, an update of the patterns that both see, and a copy of the graph.
optimizer = torch.optim.AdamW(traced.parameters())
assert nn.update_patterns(traced, optimizer, 0.5, seed=3) > 0
indices = torch.randint(0, 32, (1, 4))
y = traced(indices)
assert torch.equal(y, model(indices)) and torch.equal(copy.deepcopy(traced)(indices), y)
print("updated")  # CHECK: updated

# CHECK: expected a model for torch.export or torch.compile, but got one with a Linear for TorchScript: sparse_opt.torch.nn.densify makes it dense
refuse(torch.jit.script, torch.nn.Sequential(nn.Linear(32, 32)))
torch.jit.script(torch.nn.Sequential(nn.densify(torch.nn.Sequential(nn.Linear(32, 32)))))
print("dense")  # CHECK: dense
