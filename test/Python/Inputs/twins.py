# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs a compiled step and the same step in PyTorch side by side.

"""Two models from one factory, one of them trained by a compiled step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn, optim

import sparse_opt.torch


def mse_step(model: nn.Module, optimizer: optim.Optimizer, batch: Any) -> Any:
    """A step whose batch is the input, and what comes out is to be zero."""
    optimizer.zero_grad()
    loss = (model(batch) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def twin(model: nn.Module, optimizer: optim.Optimizer) -> tuple[nn.Module, optim.Optimizer]:
    """Returns a copy of both for an eager loop: a compiled step trains the model that was
    exported."""
    return copy.deepcopy((model, optimizer))


def sgd(parameters: Any) -> optim.Optimizer:
    return optim.SGD(parameters, lr=0.1)


def compare(
    name: str,
    make_model: Callable[[], nn.Module],
    batches: Sequence[Any],
    make_optimizer: Callable[[Any], optim.Optimizer] = sgd,
    step: Callable[..., Any] = mse_step,
    tolerance: float = 1e-5,
    make_scheduler: Callable[[Any], Any] | None = None,
) -> sparse_opt.Step:
    """Prints whether losses, weights and buffers are equal after all batches."""
    programs = []
    for _ in range(2):
        torch.manual_seed(0)
        model = make_model()
        optimizer = make_optimizer(model.parameters())
        scheduler = make_scheduler(optimizer) if make_scheduler else None
        programs.append((model, optimizer, scheduler))
    (model, optimizer, scheduler), (eager, eager_optimizer, eager_scheduler) = programs
    exported = sparse_opt.torch.export(step, model, optimizer, batches[0])
    compiled = sparse_opt.compile(exported, options=["-O", "1"])
    differences = []
    for batch in batches:
        got, want = compiled(batch), step(eager, eager_optimizer, batch)
        difference = (got.double() - want.double()).abs() / (want.double().abs() + 1e-3)
        differences.append(difference.max())
        for s in (scheduler, eager_scheduler):
            if s is not None:
                s.step()
    state = compiled.state_dict()
    for key, value in eager.state_dict().items():
        if torch.equal(state[key], value):
            continue  # infinities too
        difference = (state[key].double() - value.double()).abs().max()
        differences.append(difference / (value.double().abs().max() + 1e-3))
    worst = float(torch.stack(differences).max())  # NaN is apart
    print(f"{name}: equal" if worst < tolerance else f"{name}: apart by {worst:.1e}")
    return compiled
