# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch: the words that programs of both frameworks use, and how a program runs."""

import contextlib

import numpy as np
import sparse_opt.torch
import torch
from sparse_opt.torch._rounding import Rounding
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from fuzz import framework

torch.set_num_threads(1)

# The words of both frameworks.

tanh, exp, sin, sqrt, where, einsum, log1p = torch.tanh, torch.exp, torch.sin, torch.sqrt, torch.where, torch.einsum, torch.log1p
absolute, argmax, argmin, cumsum, flip, roll, outer = (
    torch.abs, torch.argmax, torch.argmin, torch.cumsum, torch.flip, torch.roll, torch.outer)
maximum, minimum, tril, triu, transpose = torch.maximum, torch.minimum, torch.tril, torch.triu, torch.permute
relu, gelu, silu, sigmoid, softplus = (
    functional.relu, functional.gelu, functional.silu, torch.sigmoid, functional.softplus)
softmax, log_softmax, stack, concat = torch.softmax, torch.log_softmax, torch.stack, torch.cat
largest, smallest, logsumexp, total, mean, clip = torch.amax, torch.amin, torch.logsumexp, torch.sum, torch.mean, torch.clamp


def stop(x):
    return x.detach()


def pad(x, low, high, value=0.0):
    return functional.pad(x, [n for pair in zip(low[::-1], high[::-1]) for n in pair], value=value)


def take(table, ids):
    return table[ids.long()]


def one_hot(ids, count, like):
    return functional.one_hot(ids.long(), count).to(like.dtype)


def to_int(x):
    return torch.where(torch.isnan(x), 0.0, x).to(torch.int32)


def cast(x, name):
    return x.to(getattr(torch, name))


def real(x, like):
    return x.to(like.dtype)


def constant(numbers, like):
    return torch.tensor(numbers, dtype=like.dtype)


def arange(count):
    return torch.arange(count)


def zeros(shape, like):
    return torch.zeros(shape, dtype=like.dtype)


def norm(x):
    return torch.sqrt(torch.sum(x * x) + 1e-12)


def squares(tensors):
    return sum((g * g).sum() for g in tensors)


# The program.


class Model(nn.Module):
    """The weights of a program; with masks, those of the reference."""

    def __init__(self, arrays, masks=None, averages=False):
        super().__init__()
        for name, array in arrays.items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(array.copy())))
            if averages:
                self.register_buffer("average_" + name, torch.from_numpy(array.copy()))
        self.masks = masks

    def masked(self, p):
        """What the forward pass reads: the program as it is has no mask."""
        return p if self.masks is None else {n: a * self.masks[n].to(a.dtype) for n, a in p.items()}

    def weights(self):
        return self.masked(dict(self.named_parameters()))


def weight_names(program):
    return {name: name for name in program.WEIGHTS}


def first_values(program):
    return framework.draw(program.SEED, program.WEIGHTS)


def batches(program):
    return framework.draw(program.SEED + 1, program.BATCH)


def tensors(arrays):
    return {n: torch.from_numpy(np.array(a)) for n, a in arrays.items()}


def export(program):
    model = Model(first_values(program), averages=program.AVERAGES)
    return sparse_opt.torch.export(program.train_step, model, program.make(model.parameters()), tensors(batches(program)))


def begin(program, step, masks):
    state = step.state_dict()
    for name, array in first_values(program).items():
        kept = torch.from_numpy(array * masks[name])
        state[name] = kept
        if program.AVERAGES:
            state["average_" + name] = kept.clone()
    step.load_state_dict(state)


def flat(results):
    """Results by name: the loss, and metrics."""
    loss, metrics = results
    return {"loss": loss.numpy(), **{n: m.detach().numpy() for n, m in metrics.items()}}


def call(program, step):
    return flat(step(tensors(batches(program))))


def state_of(optimizer, model):
    """What an optimizer keeps, under the names that a compiled step has for it."""
    return {f"optimizer.{name}.{key}": value for name, p in model.named_parameters()
            for key, value in optimizer.state[p].items() if isinstance(value, torch.Tensor) and value.dim()}


def state(program, step):
    found = {name: tensor.numpy() for name, tensor in step.state_dict().items()}
    for name in {**step.buffers, **step.origins}:
        if name.startswith("optimizer.") and name.count(".") == 2 and np.ndim(step.read(name)):
            found[name] = step.read(name)
    return found


def kept(model, optimizer):
    """Weights, moments and copies, with the names of their weights."""
    for name, p in model.named_parameters():
        copies = [b for n, b in model.named_buffers() if n == "average_" + name]
        moments = [v for v in optimizer.state[p].values() if isinstance(v, torch.Tensor) and v.shape == p.shape]
        for tensor in [p, *copies, *moments]:
            yield name, tensor


@torch.no_grad()
def remask(model, optimizer, masks):
    """What is kept is 0 where no block is."""
    for name, tensor in kept(model, optimizer):
        tensor *= masks[name]


@torch.no_grad()
def store(model, optimizer, change):
    """What is kept from one step to the next is rounded: an update of nearly the same size whatever the gradient hides
    what roundings did before it."""
    for i, (name, tensor) in enumerate(kept(model, optimizer)):
        tensor.copy_(torch.from_numpy(np.asarray(change(f"{name}.{i}", tensor.numpy()))))


class Rounded(TorchDispatchMode):
    """Changes the results of operations in float64 as roundings of float32 may: where a function is next to its limit, what
    is left of it is 0 but for these, and an optimizer may divide by as much."""

    def __init__(self, run):
        super().__init__()
        self.rounding = Rounding(run)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:
            return result
        change = lambda r: self.rounding.moved(func, r, torch.float32) if isinstance(r, torch.Tensor) else r
        return type(result)(map(change, result)) if isinstance(result, (tuple, list)) else change(result)


def follow(program, seen, run, scale, kind):
    """One of the reference's runs."""
    roundings = Rounded(run) if kind is np.float64 and run and scale > 1 else contextlib.nullcontext()
    change = lambda name, array: framework.disturb(array, run, name, scale).astype(kind if array.dtype.kind == "f" else array.dtype)
    arrays = {n: change(n, a) for n, a in first_values(program).items()}
    batch = tensors({n: change(n, a) for n, a in batches(program).items()})
    masks = [{n: torch.from_numpy(m) for n, m in found.items()} for found in seen]
    model = Model(arrays, masks[0], averages=program.AVERAGES)
    optimizer, found = program.make(model.parameters()), []
    for now, count in zip(masks, program.STEPS):
        model.masks = now
        remask(model, optimizer, now)
        for _ in range(count):
            with roundings:
                results = program.train_step(model, optimizer, batch)
            found.append({n: a.copy() for n, a in flat(results).items()})
            remask(model, optimizer, now)
            if kind is np.float64:
                store(model, optimizer, lambda name, array: change(f"{name}.{len(found)}", array))
    values = {**{n: t.numpy() for n, t in model.state_dict().items()},
              **{n: t.numpy() for n, t in state_of(optimizer, model).items()}}
    return [*found, values]


def reference(program, seen, scale):
    """What each step returns, and the last state, with an axis of runs."""
    runs = [follow(program, seen, run, scale, np.float64) for run in range(framework.RUNS)]
    runs += [follow(program, seen, run, scale, np.float32) for run in range(framework.ROUNDED_RUNS)]
    return [{n: np.stack([np.asarray(part[n], np.float64 if part[n].dtype.kind == "f" else None) for part in parts]) for n in parts[0]}
            for parts in zip(*runs)]
