# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Arguments of layers that are none: a sentence each, and nothing has changed.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s --implicit-check-not=accepted --implicit-check-not=Traceback

import copy

import numpy as np
import sparse_opt
import torch
from refusals import refuse
from sparse_opt import Group
from sparse_opt.torch import nn

torch.set_num_threads(1)


def network():
    return torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(30, 32))


# Integers and numbers of NumPy and of tensors are as good as those of Python.
layer = nn.Linear(np.int64(32), torch.tensor(64), np.True_, block=np.int32(8), density=np.float32(0.5))
assert layer.weight.shape == (16, 8, 8) and layer.block == (8, 8) and type(layer.in_features) is int
assert nn.Linear(32, 64, block=[np.int64(16), 8], density=1).weight.shape == (16, 16, 8)
assert nn.Linear(32, 64, bias=0, block=8, pattern=[[1, 0, 0, 1]] * 8).weight.shape == (16, 8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
assert nn.update_patterns(layer, optimizer, np.float64(0.5), seed=np.int64(3), allow_return=np.False_) == 8
sparse_opt.torch.nn.Sparsity(layer, optimizer, Group(method="set", every=np.int64(2)), steps=np.int64(4), seed=2**64 - 1)

# CHECK: expected block to be an integer from 1, or two (rows and columns), but got '8x8'
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got (8,)
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got (8, 8, 8)
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got 8.0
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got True
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got 0
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got (8, -8)
# CHECK-NEXT: expected block to be an integer from 1, or two (rows and columns), but got None
for block in ("8x8", (8,), (8, 8, 8), 8.0, True, 0, (8, -8), None):
    refuse(nn.Linear, 32, 32, block=block)
# CHECK-NEXT: expected a density above 0, at most 1, but got None
# CHECK-NEXT: expected a density above 0, at most 1, but got '0.1'
# CHECK-NEXT: expected a density above 0, at most 1, but got nan
# CHECK-NEXT: expected a density above 0, at most 1, but got True
# CHECK-NEXT: expected a density above 0, at most 1, but got 1.5
for density in (None, "0.1", float("nan"), True, 1.5):
    refuse(nn.Linear, 32, 32, density=density)
# CHECK-NEXT: expected in_features to be an integer from 1, but got 0
# CHECK-NEXT: expected in_features to be an integer from 1, but got -3
# CHECK-NEXT: expected in_features to be an integer from 1, but got 1.5
# CHECK-NEXT: expected in_features to be an integer from 1, but got '32'
# CHECK-NEXT: expected in_features to be an integer from 1, but got None
# CHECK-NEXT: expected in_features to be an integer from 1, but got False
for features in (0, -3, 1.5, "32", None, False):
    refuse(nn.Linear, features, 32)
# CHECK-NEXT: expected out_features to be an integer from 1, but got a Tensor
# CHECK-NEXT: expected out_features to be an integer from 1 to 2147483647, but got 2147483648
refuse(nn.Linear, 32, torch.ones(3, 3))
refuse(nn.Linear, 32, 2**31)
# CHECK-NEXT: expected the pattern 'random' or a mask, but got None
# CHECK-NEXT: expected the pattern 'random' or a mask, but got 'most'
# CHECK-NEXT: expected the pattern 'random' or a mask, but got 3
# CHECK-NEXT: expected the pattern 'random' or a mask, but got {{\[\[}}1], [1, 2]]
# CHECK-NEXT: expected the pattern 'random' or a mask, but got a Tensor
for pattern in (None, "most", 3, [[1], [1, 2]], torch.ones(2, 2, device="meta", requires_grad=True) / 3):
    refuse(nn.Linear, 32, 32, pattern=pattern)
# CHECK-NEXT: expected bias to be True or False, but got 'no'
refuse(nn.Linear, 32, 32, "no")
# CHECK-NEXT: expected Linear to have values of float32, float64, bfloat16 or float16, but got 'float32'
# CHECK-NEXT: expected Linear to have values of float32, float64, bfloat16 or float16, but got []
refuse(nn.Linear, 32, 32, dtype="float32")
refuse(nn.Linear, 32, 32, dtype=[])
# CHECK-NEXT: expected a device of PyTorch, but got 'gpu'
# CHECK-NEXT: expected a device of PyTorch, but got 1.5
refuse(nn.Linear, 32, 32, device="gpu")
refuse(nn.Linear, 32, 32, device=1.5)
# CHECK-NEXT: expected activations [..., 32], but got None
# CHECK-NEXT: expected activations [..., 32], but got a ndarray
refuse(layer, None)
refuse(layer, np.zeros((30, 32), np.float32))
# CHECK-NEXT: expected a weight of 64x32, but got a ndarray
# CHECK-NEXT: expected a weight of 64x32, but got one number
refuse(layer.take_dense, np.zeros((64, 32)))
refuse(layer.take_dense, torch.tensor(1.0))

# Models, and what is done to them.
# CHECK-NEXT: expected a model, but got a NoneType
# CHECK-NEXT: expected a model, but got a list
# CHECK-NEXT: expected a model, but got a str
# CHECK-NEXT: expected a model, but got a type
# CHECK-NEXT: expected a model, but got a NoneType
# CHECK-NEXT: expected a model, but got a generator
refuse(nn.sparsify, None, "match=w block=8x8")
refuse(nn.densify, [layer])
refuse(nn.marks_of, "model")
refuse(nn.keep_gradients, torch.nn.Linear)
refuse(nn.broadcast_patterns, None)
refuse(nn.Sparsity, layer.modules(), optimizer, Group(), steps=3)
# CHECK-NEXT: expected on to be True or False, but got 'yes'
refuse(nn.keep_gradients, layer, on="yes")
# CHECK-NEXT: expected a list of marks, but got None
# CHECK-NEXT: expected a list of marks, but got array(5)
# CHECK-NEXT: expected a mark, or a text or a dictionary of its keys, as 'match=weight$ block=16x16', but got 5
for marks in (None, np.array(5), [5]):
    refuse(nn.sparsify, network(), marks)
# CHECK-NEXT: expected the pattern 'random', 'largest' or masks by the names of weights, but got None
# CHECK-NEXT: expected the pattern 'random', 'largest' or masks by the names of weights, but got a ndarray
# CHECK-NEXT: expected the pattern 'random' or a mask, but got 'smallest'
# CHECK-NEXT: expected masks by the names of weights that are replaced, but got 5: 0.weight
# CHECK-NEXT: expected the pattern 'random' or a mask, but got None
for pattern in (None, np.ones((4, 4)) / 3, "smallest", {5: np.ones((4, 4))}, {"0.weight": None}):
    refuse(nn.sparsify, network(), "match=0 block=8x8", pattern)
# What is wrong with one layer leaves all as they are.
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
# CHECK-NEXT: expected a mask of 4x4 blocks, of which one is stored at least, but got 4 of 2x2
refuse(nn.sparsify, model, "match=weight block=8x8", {"1.weight": np.ones((2, 2))})
assert all(type(module) is torch.nn.Linear for module in model)

# CHECK-NEXT: expected drop to be a number from 0 to 1, but got 'x'
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got 2
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got nan
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got -1
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got None
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got nan
before = copy.deepcopy(layer.state_dict())
for drop in ("x", 2, float("nan"), -1, None):
    refuse(nn.update_patterns, layer, optimizer, drop)
refuse(nn.update_patterns, layer, optimizer, float("nan"), method=sparse_opt.Method())
# CHECK-NEXT: expected seed to be an integer from 0, but got -1
# CHECK-NEXT: expected seed to be an integer from 0, but got 1.5
# CHECK-NEXT: expected seed to be an integer from 0, but got None
# CHECK-NEXT: expected seed to be an integer from 0 to 18446744073709551615, but got 18446744073709551616
for seed in (-1, 1.5, None, 2**64):
    refuse(nn.update_patterns, layer, optimizer, seed=seed)
# CHECK-NEXT: expected one of static, set, rigl, gmp, but got None
# CHECK-NEXT: expected one of static, set, rigl, gmp, but got ['set']
# CHECK-NEXT: expected one of l1, l2, linf, mean, but got 2
# CHECK-NEXT: expected density to be a number from 0 to 1, but got 'half'
# CHECK-NEXT: expected allow_return to be True or False, but got None
# CHECK-NEXT: expected an optimizer of torch.optim, or several, but got a str
# CHECK-NEXT: expected an optimizer of torch.optim, or several, but got a NoneType
refuse(nn.update_patterns, layer, optimizer, method=None)
refuse(nn.update_patterns, layer, optimizer, method=["set"])
refuse(nn.update_patterns, layer, optimizer, norm=2)
refuse(nn.update_patterns, layer, optimizer, method="gmp", density="half")
refuse(nn.update_patterns, layer, optimizer, allow_return=None)
refuse(nn.update_patterns, layer, "SGD")
refuse(nn.update_patterns, layer, [optimizer, None])
assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def scheduled(groups=Group(method="set", every=2), steps=10, **options):
    return nn.Sparsity(layer, options.pop("optimizer", optimizer), groups, steps=steps, **options)


# CHECK-NEXT: expected steps to be an integer from 0, but got None
# CHECK-NEXT: expected steps to be an integer from 0, but got -1
# CHECK-NEXT: expected steps to be an integer from 0, but got 1.5
# CHECK-NEXT: expected seed to be an integer from 0, but got '7'
# CHECK-NEXT: expected an optimizer of torch.optim, or several, but got a NoneType
for steps in (None, -1, 1.5):
    refuse(scheduled, steps=steps)
refuse(scheduled, seed="7")
refuse(scheduled, optimizer=None)
# CHECK-NEXT: expected groups of weights, or maps of their keys, but got None
# CHECK-NEXT: expected groups of weights, or maps of their keys, but got 'set'
# CHECK-NEXT: expected groups of weights, or maps of their keys, but got 5
# CHECK-NEXT: expected groups of weights, or maps of their keys, but got 'set'
for groups in (None, "set", [5], ["set"]):
    refuse(scheduled, groups)
# CHECK-NEXT: expected configuration key 'sparsity.every' to be {{.*}}, but got 'x'
# CHECK-NEXT: expected configuration key 'sparsity.every' to be {{.*}}, but got '1.5'
# CHECK-NEXT: expected configuration key 'sparsity.match' to be {{.*}}, but got '5'
# CHECK-NEXT: expected configuration key 'sparsity.drop' to be {{.*}}, but got 'nan'
# CHECK-NEXT: expected texts, numbers, booleans and dictionaries in a group, but got a list as 'method'
# CHECK-NEXT: expected texts, numbers, booleans and dictionaries in a group, but got a type as 'method'
for keys in ({"every": "x"}, {"every": 1.5}, {"match": 5}, {"drop": float("nan")}, {"method": ["set"]}, {"method": sparse_opt.Method}):
    refuse(scheduled, Group(**{"method": "set", "every": 2, **keys}))
# Layers have their first blocks of sparsify.
# CHECK-NEXT: expected configuration key 'sparsity.init' to be left out for layers, but got 'largest': sparsify chooses what they begin with
# CHECK-NEXT: expected configuration key 'sparsity[1].init' to be left out for layers, but got 'file'
refuse(scheduled, Group(init="largest"))
refuse(scheduled, [Group(match="none"), {"init": {"type": "file", "file": "x"}}])
# CHECK-NEXT: expected what state_dict() of a Sparsity returned, but got None
# CHECK-NEXT: expected what state_dict() of a Sparsity returned, but got {}
# CHECK-NEXT: expected 'done' to be an integer from 0, but got 'all'
# CHECK-NEXT: expected a list of the states of methods, but got None
for state in (None, {}, {"done": "all", "methods": []}, {"done": 0, "methods": None}):
    refuse(scheduled().load_state_dict, state)

# Compiled steps have the same checks.
text = """func.func @step(%w: tensor<32x32xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64}) -> tensor<32x32xf32> {
  return %w : tensor<32x32xf32>
}"""
# CHECK-NEXT: expected seed to be an integer from 0, but got -1
# CHECK-NEXT: expected a list of marks, but got 5
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got '0.3'
# CHECK-NEXT: expected drop to be a number from 0 to 1, but got 2
refuse(sparse_opt.compile, text, ["match=w block=8x8"], seed=-1)
refuse(sparse_opt.compile, text, 5)
step = sparse_opt.compile(text, ["match=w block=8x8"], seed=np.int64(3))
refuse(step.update_patterns, "0.3")
refuse(step.update_patterns, 2, method=sparse_opt.Method())
