# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From block-sparse layers to a compiled step and back: as if layers had trained throughout.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import copy
import io
import tempfile

import numpy as np
import sparse_opt
import sparse_opt.torch
import torch
from sparse_opt import Group
from sparse_opt.torch import nn
from torch.nn.parallel import DistributedDataParallel

MARKS = ["match=up.weight$ block=8x4 density=0.25", "match=down.weight$ block=8x8 density=0.3"]
torch.manual_seed(0)
BATCHES = [{"x": torch.randn(24, 32), "y": torch.randn(24, 16)} for _ in range(32)]


class Block(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.norm = torch.nn.LayerNorm(32, dtype=dtype)
        self.up = torch.nn.Linear(32, 64, dtype=dtype)
        self.down = torch.nn.Linear(64, 32, bias=False, dtype=dtype)
        self.out = torch.nn.Linear(32, 16, dtype=dtype)

    def forward(self, x):
        return self.out(x + self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = (model(batch["x"]) - batch["y"]).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def made(kind=torch.optim.AdamW, marks=MARKS, **options):
    torch.manual_seed(1)
    model = nn.sparsify(Block(), marks)
    return model, kind(model.parameters(), **{"lr": 1e-2, **options})


def compiled(model, optimizer, marks=None, step=train_step, batch=BATCHES[0], **options):
    return sparse_opt.compile(sparse_opt.torch.export(step, model, optimizer, batch), marks, **options)


def layers_of(model):
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}


def dense(layer, tensor):
    other = copy.deepcopy(layer)
    other.weight.data = tensor.detach().clone()
    return other.dense_weight()


def require_alike(one, other, bound=1e-5):
    """Two models with their optimizers: slots may be in another order."""
    (model, optimizer), (model2, optimizer2) = one, other
    layers, layers2 = layers_of(model), layers_of(model2)
    assert layers and layers.keys() == layers2.keys()
    for name, layer in layers.items():
        assert torch.equal(layer.mask(), layers2[name].mask()), name
        assert layer.num_updates == layers2[name].num_updates, name
    names = {f"{n}.weight": n for n in layers}
    for (name, p), p2 in zip(model.named_parameters(), model2.parameters()):
        assert p.shape == p2.shape and p.requires_grad == p2.requires_grad
        state, state2 = optimizer.state.get(p, {}), optimizer2.state.get(p2, {})
        assert state.keys() == state2.keys(), (name, list(state), list(state2))
        for key, a, b in [("", p, p2), *((k, state[k], state2[k]) for k in state)]:
            if name in names and torch.is_tensor(a) and a.dim():
                assert a.shape == b.shape == p.shape
                a, b = dense(layers[names[name]], a), dense(layers2[names[name]], b)
            apart = (torch.as_tensor(a) - torch.as_tensor(b)).detach().abs().max()
            assert apart <= bound, (name, key, apart)


def by_layers(pair, steps, update_after=None, **options):
    for i in steps:
        train_step(*pair, BATCHES[i])
        if i == update_after:
            assert nn.update_patterns(*pair, 0.4, **options) > 0


# Layers, a compiled step, layers: with updates of patterns in each, of which the second and
# the third choose by how many there were.
pair, twin = made(), made()
by_layers(pair, range(5), 2)
kept = train_step(*pair, BATCHES[5]), (pair[0](BATCHES[0]["x"]) ** 2).mean()
kept[1].backward()  # What a loop leaves: a graph of the layers' shapes, gradients.
before = {
    name: (id(t), t.data_ptr(), t.detach().clone(), None if t.grad is None else t.grad.clone())
    for name, t in (*pair[0].named_parameters(), *pair[0].named_buffers())
}
moments = copy.deepcopy(pair[1].state_dict())
export = sparse_opt.torch.export(train_step, *pair, BATCHES[0])
step = sparse_opt.compile(export)
# CHECK: 2 layers have blocks now
for name, t in (*pair[0].named_parameters(), *pair[0].named_buffers()):
    place, memory, value, gradient = before[name]
    assert (place, memory) == (id(t), t.data_ptr()) and torch.equal(value, t), name
    assert (t.grad is None) == (gradient is None) and (gradient is None or torch.equal(gradient, t.grad))
for a, b in zip(moments["state"].values(), pair[1].state_dict()["state"].values()):
    assert all(torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k])) for k in a)
assert {p.name for p in step.patterns.values()} == {"up.weight", "down.weight"}
assert step.products["spmm"] and not step.products["left_dense"], step.products
for i in range(6, 11):
    step(BATCHES[i])
    if i == 8:
        assert step.update_patterns(0.4) > 0
step.store()
by_layers(pair, range(11, 16), 13)
by_layers(twin, range(5), 2)
by_layers(twin, range(5, 11), 8)
by_layers(twin, range(11, 16), 13)
require_alike(pair, twin)
assert all(int(layer.num_updates) == 3 for layer in layers_of(pair[0]).values())
print("there and back")  # CHECK: the first 2 runs did what the program does
# CHECK: the run behind an update of patterns did what the program does
# CHECK: there and back

# The state of a step is that of the model, with patterns. Layers take it, and so do steps,
# which keep with each block what the optimizer has of it.
pair = made()
by_layers(pair, range(4), 2)
step = compiled(*pair, check=0)
step(BATCHES[4])
state = step.state_dict()
assert state.keys() == pair[0].state_dict().keys()
file = io.BytesIO()
torch.save(state, file)
file.seek(0)
fresh = made()
fresh[0].load_state_dict(torch.load(file))
own = step.read("optimizer.up.weight.exp_avg")
step.update_patterns(0.5)
moved = step.state_dict()
assert not torch.equal(moved["up.pattern"], state["up.pattern"])
again = {name: step.read(name) for name in ("up.weight", "optimizer.up.weight.exp_avg")}
step.load_state_dict(moved)
assert all(np.array_equal(step.read(name), value) for name, value in again.items())
step.load_state_dict(state)
now = step.read("optimizer.up.weight.exp_avg")
assert ((now == own) | (now == 0)).all() and (now != 0).any() and (now != own).any()
step.store()
for name, layer in layers_of(pair[0]).items():
    assert torch.equal(layer.dense_weight(), layers_of(fresh[0])[name].dense_weight())
    assert int(layer.num_updates) == 2 and int(layers_of(fresh[0])[name].num_updates) == 1
print("states")  # CHECK: states

# A checkpoint of the step has the number of updates, too; a loaded one is stored.
pair, twin = made(), made()
by_layers(pair, range(4), 2)
by_layers(twin, range(4), 2)
step = compiled(*pair, check=0)
step(BATCHES[4])
step.update_patterns(0.4)
with tempfile.TemporaryDirectory() as folder:
    step.save(f"{folder}/step.safetensors")
    other = compiled(*pair, check=0)
    del step
    other.load(f"{folder}/step.safetensors")
other(BATCHES[5])
other.store()
by_layers(twin, range(4, 6), 4)
require_alike(pair, twin)
print("checkpoints")  # CHECK: checkpoints

# Schedules go on where layers were: by scores, down to a density whose slots stay, and back.
for group in (
    Group(method="rigl", every=2, drop=0.4, schedule="cosine"),
    Group(method="gmp", every=2, density=0.1, initial_density=0.4, end=10),
):
    marks = [mark.replace("0.25", "0.4").replace("0.3", "0.4") for mark in MARKS] if group.method == "gmp" else MARKS
    pair, twin = made(marks=marks), made(marks=marks)
    rules, rules2 = (nn.Sparsity(*p, [group], steps=14, seed=5) for p in (pair, twin))
    for i in range(14):
        train_step(*twin, BATCHES[i])
        rules2.update()
    for i in range(5):
        train_step(*pair, BATCHES[i])
        rules.update()
    step = compiled(*pair, seed=5, options=["--score-norm=l1"], check=0)
    sparsity = sparse_opt.Sparsity(step, [group], steps=14, done=rules.done)
    for i in range(5, 10):
        step(BATCHES[i], scores=sparsity.needs_scores)
        sparsity.update()
    step.store()
    rules.load_state_dict({**rules.state_dict(), "done": 10})
    for i in range(10, 14):
        train_step(*pair, BATCHES[i])
        rules.update()
    require_alike(pair, twin)
    print(group.method)
# CHECK: rigl
# CHECK: gmp

# What optimizers keep: nothing yet, a number, momentum, sums that begin above zero.
for kind, options, first in (
    (torch.optim.AdamW, {"amsgrad": True}, 0),
    (torch.optim.SGD, {"momentum": 0.9}, 0),
    (torch.optim.SGD, {"momentum": 0.9}, 2),
    (torch.optim.Adagrad, {"initial_accumulator_value": 0.1}, 2),
    (torch.optim.Rprop, {}, 2),
):
    pair, twin = made(kind, **options), made(kind, **options)
    by_layers(pair, range(first))
    step = compiled(*pair)
    for i in range(first, 4):
        step(BATCHES[i])
    step.store()
    by_layers(pair, range(4, 6))
    by_layers(twin, range(6))
    require_alike(pair, twin, 1e-4 if kind is torch.optim.Rprop else 1e-5)
# New blocks of a step begin with what these began with, too, whatever it is now.
for kind, options in ((torch.optim.Adagrad, {"initial_accumulator_value": 0.1}), (torch.optim.Rprop, {"lr": 0.03})):
    pair, twin = made(kind, **options), made(kind, **options)
    by_layers(pair, range(2))
    step = compiled(*pair)
    step(BATCHES[2])
    assert step.update_patterns(0.4)
    step(BATCHES[3])
    step.store()
    by_layers(twin, range(3))
    assert nn.update_patterns(*twin, 0.4)
    by_layers(twin, range(3, 4))
    require_alike(pair, twin, 1e-4 if kind is torch.optim.Rprop else 1e-5)
print("optimizers")  # CHECK: optimizers


# Tied layers, one whose weight is [inputs, outputs], one that is frozen and one that the step
# does not use; beside them a dense weight with a mark of the user's own.
class Conv1D(torch.nn.Module):
    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(inputs, outputs) / 8)
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


Conv1D.__module__ = "transformers.pytorch_utils"


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
        self.second.weight = self.first.weight
        self.conv, self.frozen = Conv1D(48, 32), torch.nn.Linear(48, 32)
        self.frozen.weight.requires_grad_(False)
        self.unused = torch.nn.Linear(32, 32)
        self.out = torch.nn.Linear(32, 16)

    def forward(self, x):
        x = torch.tanh(self.second(torch.tanh(self.first(x))))
        return self.out(torch.tanh(self.frozen(self.conv(x))))


def mixed():
    torch.manual_seed(2)
    model = nn.sparsify(Mixed(), ["match=(first|second|conv|frozen|unused).weight$ block=8x16 density=0.4"])
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


pair, twin = mixed(), mixed()
assert [mark.block for mark in nn.marks_of(pair[0])] == [(8, 16)] * 4  # as sparsify had them, a shared weight once
by_layers(pair, range(3), 1)
step = compiled(*pair, ["match=out.weight$ block=4x4 density=1"], pattern="largest")
assert sorted(step.patterns) == ["conv.weight", "first.weight", "frozen.weight", "out.weight"]
for i in range(3, 7):
    step(BATCHES[i])
    if i == 4:
        step.update_patterns(0.4)  # A pattern of all blocks stays.
step.store()
model = pair[0]
assert model.second.weight is model.first.weight and model.second.pattern is model.first.pattern
assert [int(x.num_updates) for x in (model.first, model.conv, model.frozen)] == [2, 2, 0]
by_layers(pair, range(7, 9), 8)
by_layers(twin, range(3), 1)
by_layers(twin, range(3, 7), 4)
by_layers(twin, range(7, 9), 8)
for model in (pair[0], twin[0]):
    del model.unused  # The step has left it alone.
require_alike(pair, twin)
print("kinds of layers")  # CHECK: kinds of layers

# Sums over micro-batches, bf16, and functions of the model on the step's values.
pair, twin = made(), made()
by_layers(pair, range(2), 1)
by_layers(twin, range(2), 1)
export = sparse_opt.torch.export(train_step, *pair, BATCHES[0], accumulate=True)
step = sparse_opt.compile(export)
for i in range(2, 6):
    step(BATCHES[i], apply=i % 2 == 1)
step.store()
for i in (2, 4):
    twin[1].zero_grad()
    for batch in BATCHES[i : i + 2]:
        ((twin[0](batch["x"]) - batch["y"]).square().mean() / 2).backward()
    twin[1].step()
require_alike(pair, twin)
function = sparse_opt.torch.export_function(lambda model, batch: model(batch["x"]), pair[0], BATCHES[0])
for run in (step.bind(function), sparse_opt.compile(function)):
    assert (run(BATCHES[3]) - pair[0](BATCHES[3]["x"])).abs().max() < 1e-5
torch.manual_seed(3)
model = nn.sparsify(Block(torch.bfloat16), MARKS)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
half = {name: t.bfloat16() for name, t in BATCHES[0].items()}
losses = [train_step(model, optimizer, half)]
step = compiled(model, optimizer, batch=half)
losses += [step(half) for _ in range(3)]
step.store()
losses.append(train_step(model, optimizer, half))
assert all(after < before for before, after in zip(losses, losses[1:])), losses
print("forms")  # CHECK: forms


def refused(function, *arguments, **options):
    try:
        function(*arguments, **options)
        print("accepted")
    except (sparse_opt.ExportError, sparse_opt.StepError) as error:
        print(error)


# CHECK: expected marks of weights that no layer has in blocks, but got 'weight$', which matches 'up.weight': the step takes over the blocks of layers
pair = made()
export = sparse_opt.torch.export(train_step, *pair, BATCHES[0])
refused(sparse_opt.compile, export, ["match=weight$ block=8x8"])
# CHECK: expected marks of weights that no layer has in blocks, but got 'down', which matches 'down.weight'
refused(sparse_opt.torch.export, train_step, *pair, BATCHES[0], marks=["match=down block=8x8"])
# CHECK: expected match to be a regular expression, but got '[a': unterminated character set
refused(sparse_opt.compile, export, ["match=[a block=8x8"])

# CHECK: expected an optimizer that treats the entries of a weight in blocks one by one, as AdamW does, but got Adafactor for 'up.weight', whose update is of the whole matrix: give this weight to another one, or densify the model and make a new one
pair = made(torch.optim.Adafactor)
refused(sparse_opt.torch.export, train_step, *pair, BATCHES[0])
# CHECK: but got Adafactor
train_step(*pair, BATCHES[0])
refused(sparse_opt.torch.export, train_step, *pair, BATCHES[0])


class Rows(torch.optim.SGD):
    """Keeps a number of each row."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    scale = self.state[p].setdefault("rows", torch.ones(p.shape[:-1]))
                    scale.mul_(0.9).add_(p.grad.square().mean(-1))
                    p.data.sub_(group["lr"] * p.grad / scale.unsqueeze(-1).sqrt())


class Muon(torch.optim.SGD):
    """Keeps what has the shape of a weight, and mixes its rows."""


# CHECK: but got Rows for 'up.weight', whose 'rows' is of the whole matrix
pair = made(Rows)
refused(sparse_opt.torch.export, train_step, *pair, BATCHES[0])
# CHECK: but got Rows for 'up.weight', whose 'rows' is of the whole matrix
train_step(*pair, BATCHES[0])
refused(sparse_opt.torch.export, train_step, *pair, BATCHES[0])
assert all(layer.weight.dim() == 3 for layer in layers_of(pair[0]).values())
# CHECK: but got Muon for 'up.weight', whose update is of the whole matrix
refused(sparse_opt.torch.export, train_step, *made(Muon, momentum=0.9), BATCHES[0])

# CHECK: expected the weight of the layer 'up' to be a parameter that layers alone have, but got a computed one: untie it, or remove its parametrization
model, optimizer = made()
torch.nn.utils.parametrizations.weight_norm(model.up)
refused(sparse_opt.torch.export, train_step, model, optimizer, BATCHES[0])
# CHECK: expected the weight of the layer 'up' to be a parameter that layers alone have, but got that of 'copy': untie it
model, optimizer = made()
model.register_parameter("copy", model.up.weight)
refused(sparse_opt.torch.export, train_step, model, optimizer, BATCHES[0])
# CHECK: expected layers that share 'first.weight' to share its pattern, but got 'second' with another: give it pattern and num_updates, too
model, optimizer = mixed()
model.second.pattern = model.second.pattern.clone()
refused(sparse_opt.torch.export, train_step, model, optimizer, BATCHES[0])

# CHECK: expected the layers of one process, but got 'module.up' of a model that several have: export the model without DDP and FSDP, and compile it with comm=
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
model, optimizer = made()
refused(sparse_opt.torch.export, train_step, DistributedDataParallel(model), optimizer, BATCHES[0])
torch.distributed.destroy_process_group()

# CHECK: expected 'up.weight' to begin with 4 blocks, as its group says, but got 16: give sparsify that density
pair = made()
step = compiled(*pair)
refused(sparse_opt.Sparsity, step, [Group(method="set", every=2, density=0.06)], steps=9)
state = pair[0].state_dict()
# CHECK: expected the pattern of 'up.weight', 64x32 in blocks of 8x4, but got
refused(step.load_state_dict, {**state, "up.pattern": state["up.pattern"] + 1})
# CHECK: expected 'up.weight' of shape [16, 8, 4], but got [64, 32]
refused(step.load_state_dict, {**state, "up.weight": torch.zeros(64, 32)})
# CHECK-NOT: accepted
