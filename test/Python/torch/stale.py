# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What PyTorch's objects have behind compiled steps: the step's values, or a warning.

# RUN: %python %s %t.pt | FileCheck %s --implicit-check-not=accepted

import copy
import pickle
import subprocess
import sys
import warnings

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import sparse_opt
import sparse_opt.torch
from refusals import refuse
from twins import mse_step

torch.manual_seed(0)
x = torch.randn(4, 8)


def compiled(model, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    export = sparse_opt.torch.export(mse_step, model, optimizer, x)
    marks = ["match=0.weight$ block=4x4 density=1"]
    return sparse_opt.compile(export, marks, pattern="largest", options=["-O", "1"])


def warned(action):
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        action()
    places = {m.filename == __file__ for m in messages}
    print(", ".join(str(m.message) for m in messages) or "no warning", places - {True} or "")


def network():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


# What is old warns, once each, at the user's line.

model = network()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
average = AveragedModel(model)
step = compiled(model, optimizer)
other = network()

# CHECK: no warning
warned(lambda: (model(x), model.state_dict(), optimizer.state_dict(), copy.deepcopy(model)))
step(x), step(x)
# CHECK-NEXT: no warning
warned(lambda: (other(x), other.state_dict(), average.update_parameters(other)))
# CHECK-NEXT: model.state_dict() has the weights of before the compiled step: take step.state_dict(), or call step.store() first
warned(model.state_dict)
# CHECK-NEXT: the model has the weights of before the compiled step: call step.store() first
warned(lambda: model[0](x))
# CHECK-NEXT: a copy of the model has the weights of before the compiled step: call step.store() first
warned(lambda: copy.deepcopy(model))
# CHECK-NEXT: an average takes the weights of before the compiled step: call step.store() first
warned(lambda: average.update_parameters(model))
# CHECK-NEXT: optimizer.state_dict() has what the optimizer had before the compiled step: call step.store() first
warned(optimizer.state_dict)
step(x)
# CHECK-NEXT: no warning
warned(lambda: (model(x), model[2].state_dict(), pickle.dumps(model), optimizer.state_dict()))

# Behind store() all is current, and nothing of the step's is in the model.

# CHECK-NEXT: current True, hooks 0, scripted True, read elsewhere 0
step.store()
state = step.state_dict()
current = all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
hooks = sum(len(m._forward_pre_hooks) + len(m._state_dict_pre_hooks) for m in model.modules())
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    scripted = torch.jit.script(model)(x)
torch.save(model, sys.argv[1])
code = f"import sys; sys.modules['sparse_opt'] = None; import torch; torch.load({sys.argv[1]!r}, weights_only=False)"
read = subprocess.run([sys.executable, "-c", code]).returncode
print(f"current {current}, hooks {hooks}, scripted {torch.equal(scripted, model(x))}, read elsewhere {read}")

# A copy of an old model is nobody's: it works, and it says no more.

# CHECK-NEXT: no warning
old = network()
again = compiled(old)
again(x)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    held = pickle.loads(pickle.dumps(copy.deepcopy(old)))
warned(lambda: (held(x), held.state_dict()))

# What is written into the model no step reads: by an operation, by .data, and by a file.


def written(write):
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    step = compiled(model, optimizer)
    step(x), step(x)
    warned(lambda: (write(model, optimizer), step(x), step(x), step(x)))
    return step, model


def cleared(model, optimizer):
    with torch.no_grad():
        model[2].weight.zero_()


# CHECK-NEXT: '2.weight' was written behind the compilation, and the compiled step goes on with its own: step.load_state_dict(model.state_dict()) or step.write('2.weight', ...) gives it to the step
written(cleared)
# CHECK-NEXT: '0.weight' was written behind the compilation
written(lambda model, optimizer: model[0].weight.data.clamp_(-0.1, 0.1))
# CHECK-NEXT: '0.weight' was written behind the compilation
step, model = written(lambda model, optimizer: model.load_state_dict(network().state_dict()))
# CHECK-NEXT: no warning
warned(lambda: (step.load_state_dict(model.state_dict()), step(x)))
# CHECK-NEXT: optimizer.load_state_dict() changes nothing of the compiled step: load it in front of the export, or a checkpoint by step.load(path)
fresh = torch.optim.AdamW(network().parameters(), 0.1).state_dict()
written(lambda model, optimizer: optimizer.load_state_dict(fresh))
# CHECK-NEXT: no warning
written(lambda model, optimizer: model[0].weight.data.mul_(1.0))

# Models whose hooks rename what a state_dict has, or that keep more than tensors in it.


class Renamed(nn.Sequential):
    """As models of wrappers are: the names of its state_dict are those of what it wraps."""

    def __init__(self):
        super().__init__(nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.register_state_dict_post_hook(self.rename)
        self.register_load_state_dict_pre_hook(self.back)

    @staticmethod
    def rename(module, state, prefix, metadata):
        for name in list(state):
            state[f"old.{name}"] = state.pop(name)

    @staticmethod
    def back(module, state, *_):
        for name in list(state):
            state[name.removeprefix("old.")] = state.pop(name)


class Extra(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 8))
        self.extra = {"scale": [1.5]}

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def carried(make):
    """Trains, stores, loads another state; says whether all of it is right."""
    torch.manual_seed(0)
    model = make()
    eager = copy.deepcopy(model)
    optimizer = torch.optim.SGD(eager.parameters(), 0.1, momentum=0.9)
    step = compiled(model)
    for _ in range(3):
        step(x), mse_step(eager, optimizer, x)

    def near(state, other):
        tensors = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
        return state.keys() == other.keys() and all(
            torch.allclose(v, other[k], atol=1e-5) for k, v in tensors.items()
        )

    said = [near(step.state_dict(), eager.state_dict())]
    step.store()
    said.append(near(model.state_dict(), eager.state_dict()))
    other = make().state_dict()
    step.load_state_dict(other)
    said.append(near(step.state_dict(), other))
    print(make.__name__, *said)
    return step


# CHECK: Renamed True True True
step = carried(Renamed)
# CHECK: expected a state_dict that the exported model takes, but got 'size mismatch for 0.bias{{.*}}'
state = step.state_dict()
refuse(step.load_state_dict, {**state, "old.0.bias": torch.zeros(3)})
# CHECK: Extra True True True
step = carried(Extra)
# CHECK: {'scale': [1.5]}
print(step.state_dict()["_extra_state"])

# Names of one tensor have one value.


class Tied(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 8), nn.Linear(8, 8))
        self[1].weight = self[0].weight


# CHECK: Tied True True True
step = carried(Tied)
# CHECK: expected one value of '0.weight' and '1.weight', which the model ties, but got two: give both the one that is to count
state = step.state_dict()
refuse(step.load_state_dict, {**state, "1.weight": state["1.weight"] + 1})
