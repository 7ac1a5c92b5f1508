# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What people do to layers: right numbers, or a sentence.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s --implicit-check-not=accepted

import copy
import pickle
import warnings

import sparse_opt
import torch
from refusals import refuse
from sparse_opt import Group
from sparse_opt.torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import prune

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def grown(layer, gradient, count):
    """Whether RigL grows the blocks of the largest gradients."""
    scores = gradient.reshape(8, 8, 8, 8).abs().sum((1, 3))
    before = layer.mask()
    scores[before] = -1
    nn.update_patterns(layer, sgd(layer), 0.5, method="rigl")
    return torch.equal(layer.mask() & ~before, (scores >= scores.flatten().topk(count).values[-1]))


# Gradients of other types than the weight's: autocast, and a change of type before the update.
layer, x = nn.Linear(64, 64, block=8, density=0.25, bias=False), torch.randn(64, 64)
nn.keep_gradients(layer)
with torch.autocast("cpu", dtype=torch.bfloat16):
    y = layer(x)
dy = torch.randn_like(y)
y.backward(dy)
assert grown(layer, dy.double().T @ x.bfloat16().double(), 8)
nn.keep_gradients(layer)
y = layer(x)
y.backward(y.detach())
gradient = y.detach().double().T @ x.double()
layer.to(torch.float64)
assert grown(layer, gradient, 8)

# Inputs that are written after the backward pass, gradients that a hook changes: what the weight's gradient is made of counts.
layer, total, buffer = nn.Linear(64, 64, block=8, density=0.25), 0, torch.empty(16, 64)
nn.keep_gradients(layer)
for _ in range(2):
    buffer.copy_(torch.randn(16, 64))
    y = layer(buffer)
    y.register_hook(lambda g: g * torch.arange(64))
    dy = torch.randn_like(y)
    y.backward(dy)
    total = total + (dy * torch.arange(64)).double().T @ buffer.double()
buffer.zero_()
assert grown(layer, total, 8)
print("scores")  # CHECK: scores

# Weights of two layers, with biases of their own.
first, second = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
second.weight = first.weight
model, x = torch.nn.ModuleDict({"a": first, "b": second}), torch.randn(3, 32)
wanted = first(x), second(x)
nn.sparsify(model, ["match=weight$ block=8x8 density=1"])
assert all((model[n](x) - y).abs().max() < 1e-5 for n, y in zip("ab", wanted)) and model["a"].weight is model["b"].weight
second = torch.nn.Linear(32, 32)
model = torch.nn.ModuleDict({"a": torch.nn.Linear(32, 32), "b": second})
second.weight = model["a"].weight
nn.sparsify(model, ["match=weight$ block=8x8 density=0.5"])
assert nn.update_patterns(model, sgd(model), 0.5) == 4 and model["a"].pattern is model["b"].pattern

# Weights that are frozen meanwhile stay; later they go on by themselves.
model = torch.nn.Sequential(nn.Linear(32, 32, block=8, density=0.5), nn.Linear(32, 32, block=8, density=0.5))
sparsity = nn.Sparsity(model, sgd(model), [Group(method="set", every=1, drop=0.5)], steps=20)
model[0].weight.requires_grad_(False)
before = model[0].dense_weight()
assert sparsity.update()["pruned"] == 4 and torch.equal(before, model[0].dense_weight())
model[0].weight.requires_grad_(True)
assert sparsity.update()["pruned"] > 4 and [int(layer.num_updates) for layer in model] == [1, 2]

# Means of rows and columns of each block begin again, too.
layer = nn.Linear(64, 64, block=8, density=0.25)
optimizer = torch.optim.Adafactor(layer.parameters())
for _ in range(3):
    optimizer.zero_grad()
    layer(torch.randn(5, 64)).square().sum().backward()
    optimizer.step()
before = layer.matrix.blocks_of(layer.pattern.numpy())
nn.update_patterns(layer, optimizer, 0.5)
after = layer.matrix.blocks_of(layer.pattern.numpy())
changed = torch.from_numpy((before[0] != after[0]) | (before[1] != after[1]))
state = [v for v in optimizer.state[layer.weight].values() if v.dim() == 3]
assert len(state) == 2 and all(not v[changed].any() and v[~changed].all() for v in state)

# Autocast leaves float64 as it is.
with torch.autocast("cpu", dtype=torch.bfloat16):
    assert nn.Linear(32, 32, block=8, density=0.5, dtype=torch.float64)(torch.randn(2, 32).double()).dtype == torch.float64

# A step that a GradScaler skips: the update comes after the next one that counts.
model = torch.nn.Sequential(nn.Linear(64, 64, block=8, density=0.25), torch.nn.ReLU(), nn.Linear(64, 64, block=8, density=0.25))
optimizer, scaler, pruned = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0**16), []
sparsity = nn.Sparsity(model, optimizer, [Group(method="rigl", every=4, drop=0.5)], steps=100)
for _ in range(16):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(torch.randn(8, 64) * 10).float().square().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    pruned.append(sparsity.update().get("pruned", 0))
    if len(pruned) == 6:
        scaler.update(2.0**20)
late = next(i for i in range(8, 16) if pruned[i])
assert pruned[3] == 16 and pruned[late] == 16 and not any(pruned[4:late]), pruned
nn.keep_gradients(model)
(model(torch.randn(8, 64)) * float("inf")).sum().backward()
# CHECK: expected gradients that are numbers to score blocks by, but got infinities or NaN (a step that a GradScaler skips): update after another step
refuse(nn.update_patterns, model, optimizer, method="rigl")

# Keeping gradients breaks no graph.
model = torch.nn.Sequential(nn.Linear(64, 64, block=8, density=0.25))
whole, optimizer = torch.compile(model, fullgraph=True, backend="aot_eager"), sgd(model)
sparsity, pruned = nn.Sparsity(model, optimizer, [Group(method="rigl", every=2, drop=0.5)], steps=100), []
for _ in range(4):
    whole(torch.randn(4, 64)).square().sum().backward()
    optimizer.step()
    pruned.append(sparsity.update().get("pruned", 0))
assert pruned == [0, 8, 0, 8], pruned
# The names of a compiled model's layers are the model's.
one, two = copy.deepcopy(model), torch.compile(copy.deepcopy(model), backend="eager")
assert nn.update_patterns(one, sgd(one), 0.5) == nn.update_patterns(two, sgd(two), 0.5)
assert torch.equal(one[0].pattern, two._orig_mod[0].pattern)

# An encoder in inference, with padding.
encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0), 2).eval()
dense = copy.deepcopy(encoder)
nn.sparsify(encoder, ["match=linear block=8x8 density=1"])
padding, x = torch.zeros(2, 5, dtype=torch.bool), torch.randn(2, 5, 32)
padding[1, 3:] = True
with torch.no_grad():
    assert (encoder(x, src_key_padding_mask=padding) - dense(x, src_key_padding_mask=padding))[~padding].abs().max() < 1e-5
print("models")  # CHECK: models

layer, x = nn.Linear(32, 64, block=8, density=0.5), torch.randn(3, 32)
# CHECK: expected a block-sparse layer outside of forward-mode differentiation, but got one within: use loss.backward() or torch.autograd.grad, or densify the model
refuse(torch.func.jvp, layer, (x,), (x,))
# CHECK: expected a block-sparse layer outside of torch.func (grad), but got one within
refuse(torch.func.grad(lambda x: layer(x).sum()), x)
with forward_ad.dual_level():
    # CHECK: expected a block-sparse layer outside of forward-mode differentiation
    refuse(layer, forward_ad.make_dual(x, x))
# CHECK: expected the pattern of 'weight', 32x64 in blocks of 8x8, but got {{.*}}: the state is of another layer
refuse(nn.Linear(64, 32, block=8, density=0.5, bias=False).load_state_dict, nn.Linear(32, 64, block=8, density=0.5, bias=False).state_dict())
# CHECK: expected the pattern of 16 blocks of 8x8 in 64x32, but got float64 of shape [96]: a layer's weight and pattern belong together, and are neither averaged nor cast
refuse(copy.deepcopy(layer).type(torch.float64), x.double())
other = copy.deepcopy(layer)
nn.update_patterns(other, sgd(other), 0.5)
for p, q in zip(other.state_dict().values(), layer.state_dict().values()):
    p.copy_(0.9 * p + 0.1 * q)
# CHECK: expected the pattern of 16 blocks of 8x8 in 64x32, but got {{.*}}: a layer's weight and pattern belong together
refuse(other, x)
# A pattern that was right says nothing of another one at its address.
numbers = layer.pattern.numpy().copy()
first, whole = torch.from_numpy(numbers), layer(x)
given = x, layer.weight, layer.bias, first, 64, 32
assert torch.equal(torch.ops.sparse_opt.linear(*given), whole)
numbers[layer.matrix.offsets[1]] = 1 << 20
# CHECK: expected the pattern of 16 blocks of 8x8 in 64x32, but got {{.*}}: a layer's weight and pattern belong together
refuse(torch.ops.sparse_opt.linear, *given[:3], torch.from_numpy(numbers), *given[4:])
other = copy.deepcopy(layer)
other.weight.data = other.weight.data[:2].clone()
# CHECK: expected the pattern of 2 blocks of 8x8 in 64x32, but got 16 blocks in 2 slots
refuse(other, x)
# CHECK: expected the blocks of a weight, [slots, block rows, block columns] of float32, float64, bfloat16 or float16, but got [64, 32] of torch.float32
refuse(torch.func.functional_call, layer, {"weight": torch.randn(64, 32)}, x)
# CHECK: expected an optimizer that keeps state for each parameter, but got LBFGS, which keeps directions of all: update patterns under another
refuse(nn.update_patterns, layer, torch.optim.LBFGS(layer.parameters()))
# CHECK: expected an optimizer of torch.optim, or several, but got a NoneType
refuse(nn.update_patterns, layer, None)
# CHECK: expected a model, but got a NoneType
refuse(nn.update_patterns, None, sgd(layer))
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(30, 32))
# CHECK: expected 'match=1' to match the weight of a layer that blocks of 8x8 divide
refuse(nn.sparsify, model, ["match=0 block=8x8 density=.5", "match=1 block=8x8"])
assert type(model[0]) is torch.nn.Linear
# CHECK: expected masks by the names of weights that are replaced, but got 'typo': 0.weight
refuse(nn.sparsify, model, "match=0 block=8x8 density=.5", pattern={"typo": 1})
model[0].weight.register_post_accumulate_grad_hook(print)
# CHECK: expected a layer without hooks to replace, but got some on that of '0.weight'
refuse(nn.sparsify, model, "match=0 block=8x8 density=.5")

# Hooks of layers of blocks would be lost as well; those of a bias go with it.
model = torch.nn.Sequential(nn.Linear(32, 32, block=8), nn.Linear(32, 32, block=8))
handle = model[1].register_forward_pre_hook(print)
# CHECK: expected a layer without hooks to replace, but got some on that of '1.weight': register them after densify
refuse(nn.densify, model)
handle.remove()
handle = model[1].weight.register_hook(print)
# CHECK-NEXT: expected a layer without hooks to replace, but got some on that of '1.weight': register them after densify
# CHECK-NEXT: expected a layer without hooks to replace, but got some on that of 'weight': register them after densify
refuse(nn.densify, model)
refuse(nn.densify, model[1])
assert all(type(module) is nn.Linear for module in model)
handle.remove()
seen = []
model[1].bias.register_hook(seen.append)
nn.keep_gradients(model)
nn.densify(model)(torch.randn(2, 32)).sum().backward()
assert len(seen) == 1 and type(model[1]) is torch.nn.Linear

# Weights that are made of others in front of each call.
utilities = torch.nn.utils
KINDS = [
    utilities.parametrizations.weight_norm, utilities.parametrizations.spectral_norm,
    utilities.parametrizations.orthogonal, utilities.weight_norm, utilities.spectral_norm,
    lambda layer: prune.l1_unstructured(layer, "weight", 0.5), lambda layer: prune.identity(layer, "weight"),
]  # fmt: skip
# CHECK-COUNT-7: expected '0.weight' to be a plain parameter, but got weight_norm, spectral_norm, pruning or another parametrization of that layer: take it away first, as by torch.nn.utils.parametrize.remove_parametrizations or prune.remove
for kind in KINDS:
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
    kind(model[0])
    refuse(nn.sparsify, model, "match=weight block=8x8")
    assert type(model[1]) is torch.nn.Linear
# One that no mark is about stays.
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
utilities.parametrizations.weight_norm(model[0])
assert type(nn.sparsify(model, "match=^1 block=8x8")[1]) is nn.Linear
# CHECK-COUNT-12: expected '0.weight' to be a plain parameter, but got weight_norm
for kind in KINDS:
    if kind is utilities.parametrizations.orthogonal:
        continue
    model = torch.nn.Sequential(nn.Linear(32, 32, block=8, density=0.5))
    kind(model[0])
    refuse(nn.densify, model)
    with torch.no_grad():
        model(torch.zeros(1, 32))
    refuse(nn.update_patterns, model, sgd(model))

# Names in one line; marks have them without spaces.
model = torch.nn.Module()
model.add_module("a\nb", torch.nn.Linear(32, 32))
# CHECK: expected names of layers without control characters, but got 'a\nb.weight'
refuse(nn.sparsify, model, "match=weight block=8x8")
model.add_module("a\nb", nn.Linear(32, 32, block=8))
# CHECK-NEXT: expected names of layers without control characters, but got 'a\nb.weight'
# CHECK-NEXT: expected names of layers without control characters, but got 'a\nb.weight'
# CHECK-NEXT: expected names of layers without control characters, but got 'a\nb.weight'
# CHECK-NEXT: expected names of layers without control characters, but got 'a\nb.weight'
refuse(nn.marks_of, model)
refuse(nn.densify, model)
refuse(nn.update_patterns, model, sgd(model))
refuse(nn.Sparsity, model, sgd(model), Group(), steps=3)
tied = torch.nn.ModuleDict({"a\tb": torch.nn.Module(), "head": torch.nn.Linear(32, 32)})
tied["a\tb"].weight = tied["head"].weight
# CHECK-NEXT: expected weights that only marked layers have, but got 'a\tb.weight', which another module has, too
refuse(nn.sparsify, tied, "match=head block=8x8")
names = ["a b", 'c"d', "e\\f", "\u00fc\u4e2d", "x(y)[z]"]
model = torch.nn.ModuleDict({name: nn.Linear(32, 32, block=8, density=0.5) for name in names})
marks, dense = nn.marks_of(model), nn.densify(copy.deepcopy(model))
assert not any(" " in mark.match for mark in marks)
again = nn.sparsify(dense, marks, "largest")
assert all(torch.equal(again[name].mask(), model[name].mask()) for name in names)
assert nn.update_patterns(model, sgd(model), 0.5) == 5 * 4


class Mine(sparse_opt.Method):
    """SET that counts its updates."""

    def __init__(self):
        self.calls = 0

    def grow(self, weight, count):
        self.calls += 1
        return weight.random(count)


def stepped(model, optimizer, sparsity, steps):
    """How many blocks each of some steps prunes."""
    pruned = []
    for step in steps:
        model(torch.randn(8, 32, generator=torch.Generator().manual_seed(step))).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        pruned.append(sparsity.update().get("pruned", 0))
    return pruned


# Copies of a model, its optimizer and the schedule go on as these do, and leave them alone; here with gradients that the
# next update scores blocks by.
model = torch.nn.Sequential(*(nn.Linear(32, 32, block=8, density=0.5) for _ in range(2)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
groups = [
    Group(match="^0", method="rigl", every=2, drop=0.5, schedule="constant"),
    Group(match="^1", method=Mine(), every=3, drop=0.5, schedule="constant"),
]
parts = model, optimizer, nn.Sparsity(model, optimizer, groups, steps=20, seed=5)
assert stepped(*parts, range(5)) == [0, 4, 4, 4, 0]
copies = [copy.deepcopy(parts), pickle.loads(pickle.dumps(parts))]
pruned = stepped(*parts, range(5, 12))
assert sum(map(bool, pruned)) == 5, pruned
for others in copies:
    methods = [group.method for group in others[2].groups]
    assert others[2].done == 5 and methods[1].calls == 1 and methods[1] is not groups[1].method
    assert stepped(*others, range(5, 12)) == pruned and methods[1].calls == groups[1].method.calls == 4
    assert all(torch.equal(a, b) for a, b in zip(others[0].state_dict().values(), model.state_dict().values()))
# A model may have its schedule in an attribute.
model.sparsity = parts[2]
other = pickle.loads(pickle.dumps(copy.deepcopy(model)))
assert other.sparsity._model is other and other.sparsity.done == 12
print("copies")  # CHECK: copies

# What is kept for scores goes with the layer, whose memory another one may have afterwards.
def kept_ones():
    for _ in range(8):
        layer = nn.Linear(64, 64, density=0.5)
        nn.keep_gradients(layer)
        layer(torch.randn(4, 64)).sum().backward()
        assert len(layer.kept) == 1
        del layer
        other = nn.Linear(64, 64, density=0.5)
        other(torch.randn(4, 64)).sum().backward()
        yield len(other.kept)


print("kept of others:", sum(kept_ones()))  # CHECK: kept of others: 0

# Operators that nothing else has asked, by a trace or called by their names.
layer = nn.Linear(64, 32, block=8, density=0.5)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    traced = torch.jit.trace(layer, torch.randn(3, 64))
# CHECK-COUNT-2: expected activations [..., 64] of torch.float32, but got [3, {{50|64}}] of torch.float{{32|64}}
for x in (torch.randn(3, 50), torch.randn(3, 64).double()):
    try:
        traced(x)
        print("accepted")
    except RuntimeError as error:  # of TorchScript
        print(str(error).partition("StepError: ")[2].splitlines()[0])
operators, x = torch.ops.sparse_opt, torch.randn(3, 64)
own = layer.weight.detach(), layer.bias.detach(), layer.pattern, 32, 64
# CHECK-NEXT: expected a bias [32] of torch.float32, but got [3] of torch.float32
refuse(operators.linear, x, own[0], torch.randn(3), *own[2:])
# CHECK-NEXT: expected a bias [32] of torch.float32, but got [32] of torch.float64
refuse(operators.linear_activated, x, own[0], own[1].double(), *own[2:], "relu")
# CHECK-NEXT: expected the operands of a block-sparse product on 'cpu', where its weight is, but got one on 'meta'
refuse(operators.linear, x.to("meta"), *own)
# CHECK-NEXT: expected gradients [..., 32] of torch.float32, but got [3, 31] of torch.float32
refuse(operators.linear_backward, torch.randn(3, 31), x, own[0], *own[2:], True, True, True)
# CHECK-NEXT: expected gradients [3, 32] of activations [3, 64], but got [4, 32]
refuse(operators.linear_backward, torch.randn(4, 32), x, own[0], *own[2:], True, True, True)

# Views whose numbers are negated when they are read.
given, dy = torch._neg_view(torch.randn(3, 64)), torch._neg_view(torch.randn(3, 32))
dense = layer.dense_weight().detach()
assert torch.allclose(layer(given), given @ dense.T + layer.bias, atol=1e-5)
given = torch.randn(3, 64, requires_grad=True)
layer(given).backward(dy)
assert torch.allclose(given.grad, dy @ dense, atol=1e-5)
print("negated")  # CHECK-NEXT: negated
several = torch.randn(5, 3, 32)
found = torch.autograd.grad(layer(given), given, several, is_grads_batched=True)[0]
assert torch.allclose(found, several @ dense, atol=1e-5) and found.abs().max() > 0
print("batched")  # CHECK-NEXT: batched

# An optimizer that was made before trains nothing.
model = torch.nn.Sequential(torch.nn.Linear(32, 32, bias=False), torch.nn.MultiheadAttention(32, 2))
before, elsewhere = sgd(model), sgd(torch.nn.Linear(4, 4))
nn.sparsify(model, "match=weight block=8x8 density=0.5")
model[0](torch.randn(2, 32)).sum().backward()
# CHECK: expected an optimizer of the model's parameters, but got one with a dense '0.weight', which sparsify replaced: make it afterwards
refuse(before.step)
elsewhere.step()
optimizer = sgd(model)
held = model[0].weight.detach().clone()
optimizer.step()
assert not torch.equal(held, model[0].weight)
# CHECK-NEXT: expected activations [..., 32] of torch.float32 for the layer '0', but got [2, 31] of torch.float32
refuse(model[0], torch.randn(2, 31))
# CHECK-NEXT: expected a model whose layers are replaced, but got the Linear itself: put it into torch.nn.Sequential
refuse(nn.sparsify, torch.nn.Linear(32, 32), "match=weight block=8x8 density=0.5")
# CHECK-NEXT: expected 'match=weight' to match the weight of a layer that blocks of 8x8 divide, but got 0.weight (blocks already)
refuse(nn.sparsify, model, "match=weight block=8x8 density=0.5")
# CHECK-NEXT: expected 8 blocks of 8x8 for 'weight', but got 4 blocks of 8x8: the state is of a layer of another density or block
refuse(nn.Linear(32, 32, block=8, density=0.5).load_state_dict, nn.Linear(32, 32, block=8, density=0.25).state_dict())
