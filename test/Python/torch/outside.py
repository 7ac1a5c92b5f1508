# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step keeps outside of its model and optimizer is seen by tracing it twice.

# RUN: %python %s | FileCheck %s

import itertools
import warnings

import torch
from torch import nn

import sparse_opt.torch
from refusals import refuse
from twins import sgd

x = torch.ones(8, 16)


def check(name, use, make=lambda: None):
    """Exports a step that uses an object; prints why not, or what a warning says."""
    helper = make()

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        loss = use(helper, (model(batch) ** 2).mean())
        loss.backward()
        optimizer.step()
        return loss.detach()

    model = nn.Linear(16, 16)
    print(name, end=": ")
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        try:
            sparse_opt.torch.export(step, model, sgd(model.parameters()), x)
            print("exported", *(f"with {m.message}, there {m.filename == __file__}" for m in messages))
        except sparse_opt.ExportError as error:
            print(error)


class Meter:
    def __init__(self):
        self.n = 0

    def count(self, loss):
        self.n += 1
        return loss

    def __call__(self, loss):
        return self.count(loss) * self.n


count = 0


def of_global(_, loss):
    global count
    count += 1
    return loss / count


def of_default(_, loss, calls=[0]):
    calls[0] += 1
    return loss * calls[0]


def of_nonlocal():
    n = 0

    def scale(loss):
        nonlocal n
        n += 1
        return loss * 2 if n > 1 else loss

    return scale


# Operations and numbers that differ:

# CHECK: global: expected a step that does the same each time, but got one that computes something else when it is traced again at {{.*}}outside.py:[[#]], by the global 'count', from 1 to 2: make it a buffer of the model or a part of the batch
check("global", of_global)
# CHECK: default: expected a step that does the same each time, {{.*}}, by the default of 'calls' of of_default: make it
check("default", of_default)
# CHECK: nonlocal: expected a step that does the same each time, {{.*}}, by 'n', which scale closes over, from 1 to 2: make it
check("nonlocal", lambda scale, loss: scale(loss), of_nonlocal)
# CHECK: iterator: expected a step that does the same each time, {{.*}}, by 'helper', which step closes over: make it
check("iterator", lambda numbers, loss: loss * next(numbers), lambda: iter([1.0, 2.0, 3.0]))
# CHECK: count: expected a step that does the same each time, {{.*}}, by 'helper', which step closes over: make it
check("count", lambda numbers, loss: loss * torch.tensor(next(numbers)), lambda: itertools.count(1))
# CHECK: generator: expected a step that does the same each time, {{.*}}, by 'helper', which step closes over: make it
check("generator", lambda numbers, loss: loss * next(numbers), lambda: (i for i in range(5)))
# CHECK: object: expected a step that does the same each time, {{.*}}, by 'helper', which step closes over: make it
check("object", lambda meter, loss: meter(loss), Meter)
# CHECK: method: expected a step that does the same each time, {{.*}}, by 'helper', which step closes over: make it
check("method", lambda call, loss: call(loss), lambda: Meter().__call__)
# CHECK: short: expected a step that does the same each time, but got an error when it is traced again: expected a step that PyTorch can trace, but got 'StopIteration: '
check("short", lambda numbers, loss: loss * next(numbers), lambda: iter([1.0]))

# What changes without a difference yet is said at the user's line:


def rarely(_, loss):
    global count
    count += 1
    return loss * 2 if count % 100 == 0 else loss


# CHECK: rarely: exported with expected a step that changes nothing outside of its arguments, but got one that changes the global 'count', from 3 to 4, each time that it runs: the compiled step leaves that as it is, there True
check("rarely", rarely)
# CHECK: meter: exported with expected a step that changes nothing {{.*}} changes 'helper', which step closes over, each time
check("meter", lambda meter, loss: meter.count(loss), Meter)
# CHECK: list: exported with expected a step that changes nothing {{.*}} from a list of 1 to a list of 2, each time
check("list", lambda values, loss: (values.append(1), loss)[1], list)

# What is set once and for all is nobody's business, and neither is the rest of the program.


def configure(settings, loss):
    return loss * settings.setdefault("scale", 2.0)


# CHECK: once: exported{{ *$}}
check("once", configure, dict)
# CHECK: none: exported{{ *$}}
check("none", lambda _, loss: loss)


# A function that trains nothing, too.


def validate(model, batch):
    return of_global(None, model(batch).mean())


# CHECK: expected a step that does the same each time, {{.*}}, by the global 'count', from 5 to 6
refuse(sparse_opt.torch.export_function, validate, nn.Linear(16, 16), x)
