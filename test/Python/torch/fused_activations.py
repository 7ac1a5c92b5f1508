# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Activations that sparsify finds behind layers, which compute them, beside the same blocks with the activations where they were.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import copy
import pickle

import torch
from refusals import refuse
from sparse_opt.torch import nn

MARK = "match=weight$ block=8x8 density=0.5"


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.act = torch.nn.GELU("tanh")


class Lines(Layers):
    def forward(self, x):
        if x.numel():
            x = self.up(x)
            x = self.act(x)
        return self.down(x)


class Nested(Layers):
    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class Kept(Layers):
    """The result of the layer is read beside the activation's."""

    def forward(self, x):
        h = self.up(x)
        y = self.act(h)
        return self.down(y + h)


class Twice(Layers):
    def forward(self, x):
        return self.down(self.act(self.act(self.up(x))))


class Elsewhere(Lines):
    """Another method reads the activation."""

    def probe(self, x):
        return self.act(x)


class Between(Layers):
    def forward(self, x):
        x = self.up(x)
        x = x + 1
        x = self.act(x)
        return self.down(x)


class More(Layers):
    """The activation is applied to another number."""

    def forward(self, x):
        h = self.up(x)
        h = self.act(x).repeat(1, 2) + h
        return self.down(h)


def sequence(*more):
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16), torch.nn.SiLU(), *more)


def hooked():
    model = sequence()
    model[1].register_forward_hook(lambda *_: None)
    return model


def tied():
    model = sequence()
    model.append(torch.nn.Linear(16, 16))
    model.append(model[1])
    return model


def compare(kind, count):
    torch.manual_seed(0)
    plain = kind()
    masks = {f"{name}.weight": torch.rand(m.weight.shape[0] // 8, m.weight.shape[1] // 8) < 0.6
             for name, m in plain.named_modules() if isinstance(m, torch.nn.Linear)}
    models = [plain, copy.deepcopy(plain)]
    for model, fuse in zip(models, (False, True)):
        nn.sparsify(model, MARK, masks, fuse_activations=fuse)
    layers = [m for m in models[1].modules() if isinstance(m, nn.Linear)]
    assert sum(bool(layer.activation) for layer in layers) == count, (kind.__name__, models[1])
    assert list(models[1].state_dict()) == list(models[0].state_dict())
    x = torch.randn(7, 16)
    copies = [models[1], copy.deepcopy(models[1]), nn.densify(copy.deepcopy(models[1]))]
    if kind is not hooked:
        copies.append(pickle.loads(pickle.dumps(models[1])))
    found = []
    for model in [models[0], *copies]:
        given = x.clone().requires_grad_()
        y = model(given)
        y.square().sum().backward()
        found.append([y, given.grad, *(p.grad for p in model.parameters() if p.dim() == 1 and p.grad is not None)])
    for other in found[1:]:
        for a, b in zip(found[0], other):
            assert torch.allclose(a, b, atol=1e-5), kind.__name__
    assert str(nn.densify(models[1])) == str(nn.densify(models[0])), models
    print(kind.__name__, count)


# CHECK: 3 layers have blocks now, {{.*}} numbers ({{.*}}){{$}}
# CHECK: 3 layers have blocks now, {{.*}} numbers ({{.*}}), and 1 activations
# CHECK: Lines 1
# CHECK: Nested 1
# CHECK: Kept 0
# CHECK: Twice 0
# CHECK: Elsewhere 0
# CHECK: Between 0
# CHECK: More 0
# CHECK: sequence 2
# CHECK: hooked 1
# CHECK: tied 1
for kind, count in ((Lines, 1), (Nested, 1), (Kept, 0), (Twice, 0), (Elsewhere, 0), (Between, 0), (More, 0), (sequence, 2),
                    (hooked, 1), (tied, 1)):
    compare(kind, count)

# What calls the layers is another function.
model = Lines()
model.forward = lambda x: model.act(model.down(model.up(x)))
assert isinstance(nn.sparsify(model, MARK, fuse_activations=True).act, torch.nn.GELU)

# CHECK: expected fuse_activations to be True or False, but got 2
refuse(nn.sparsify, sequence(), MARK, fuse_activations=2)
