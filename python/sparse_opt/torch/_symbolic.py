# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Layers in what torch.fx and TorchScript make of a model."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from sparse_opt._errors import StepError


def is_traced(value: Any) -> bool:
    """True of what stands for a tensor while torch.fx traces a model."""
    return isinstance(value, torch.fx.Proxy)


def call(module: torch.nn.Module, *inputs: Any, **named: Any) -> Any:
    """Returns what stands for the result of a module, which the graph that is traced calls as
    a whole, as it calls the modules of torch.nn."""
    values = (*inputs, *named.values())
    tracer: Any = next(value.tracer for value in values if is_traced(value))
    return tracer.create_proxy("call_module", tracer.path_of_module(module), inputs, named)


def refuse_script(module: torch.nn.Module) -> NoReturn:
    """Refuses TorchScript, which compiles the source of modules."""
    raise StepError(
        f"expected a model for torch.export or torch.compile, but got one with a"
        f" {type(module).__name__} for TorchScript: sparse_opt.torch.nn.densify makes it dense"
    )
