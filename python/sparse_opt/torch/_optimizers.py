# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The optimizers of one step.

"""All optimizers that a step trains with.

Their groups count as one list, those of the first one in front. A parameter is in the
groups of one of them, so that its state has the same name whichever that is. The rate
of the first optimizer is the step's; those of the others are options that a schedule
changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from sparse_opt._errors import ExportError


class Optimizers:
    """The optimizers of a step, each one behind what wraps it.

    Args:
      given: what the step is called with: an optimizer, or several in a list, a tuple or
        a dictionary.
      found: others that step, which the step has by other ways.
    """

    def __init__(self, given: Any, found: Sequence[torch.optim.Optimizer] = ()) -> None:
        self.given = given
        self.found = found
        self._outer = [*listed(given), *found]
        # One may be given twice.
        self.parts = list({id(o): o for o in map(_unwrapped, self._outer)}.values())

    def with_another(self, other: torch.optim.Optimizer) -> Optimizers:
        """Returns these optimizers and one more, which a step was seen to use."""
        return Optimizers(self.given, [*self.found, other])

    @property
    def first(self) -> torch.optim.Optimizer:
        """The optimizer whose rate is that of the step."""
        return self.parts[0]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all optimizers, which they go on with."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def others(self) -> Iterator[int]:
        """The places of the groups that do not follow the step's rate."""
        yield from range(len(self.first.param_groups), len(self.param_groups))

    @property
    def objects(self) -> list[torch.optim.Optimizer]:
        """All objects: optimizers, what is around them, and what they call."""
        inner = [innermost(part) for part in self.parts]
        return list({id(o): o for o in (*self._outer, *self.parts, *inner)}.values())

    def owned(self) -> Iterator[tuple[torch.optim.Optimizer, torch.Tensor]]:
        """Yields each parameter, as the groups have it now, with its optimizer."""
        for part in self.parts:
            for group in part.param_groups:
                for p in group["params"]:
                    yield part, p

    def owners(self) -> dict[int, torch.optim.Optimizer]:
        """Returns the optimizer of each parameter by the parameter's identity."""
        return {id(p): part for part, p in self.owned()}

    def note_step(self) -> None:
        """Has the optimizers' schedulers know that these step, as PyTorch notes it; they
        warn of a step of theirs in front of the first one."""
        for part in self.parts:
            if hasattr(part.step, "_wrapped_by_lr_sched"):
                setattr(part, "_opt_called", True)


def listed(given: Any) -> list[Any]:
    """Returns the optimizers in a structure, or what is there instead."""
    if isinstance(given, Mapping):
        return list(given.values())
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Returns the optimizer that one calls which has no state of its own, as those of
    accelerate and Fabric."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        if "state" in vars(optimizer):
            break
        optimizer = getattr(optimizer, "optimizer")
    return optimizer


def innermost(optimizer: Any) -> Any:
    """Returns the optimizer that another one calls at last."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def require_no_windows(given: Any) -> None:
    """Raises `ExportError` if an optimizer of accelerate steps in some calls alone."""
    for optimizer in listed(given):
        windows = getattr(optimizer, "gradient_state", None)
        if (count := getattr(windows, "num_steps", 1)) != 1:
            raise ExportError(
                "expected an Accelerator with gradient_accumulation_steps=1, but got"
                f" {count}, of which one step is exported: leave out"
                " accelerator.accumulate() and export with accumulate=True, for"
                " step(batch, apply=...)"
            )


def parameter_names(model: torch.nn.Module, optimizers: Optimizers) -> dict[int, str]:
    """Returns the name of each parameter by its identity.

    Raises:
      ExportError: an optimizer steps a tensor that the model does not have, or two step
        one.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    owners: dict[int, torch.optim.Optimizer] = {}
    for part in optimizers.parts:
        for i, group in enumerate(part.param_groups):
            for p in group["params"]:
                if id(p) not in names:
                    raise ExportError(_unknown(optimizers, part, i, p))
                if owners.setdefault(id(p), part) is not part:
                    raise ExportError(
                        "expected each parameter in one optimizer, but got"
                        f" '{names[id(p)]}' in two,"
                        f" {type(owners[id(p)]).__name__} and {type(part).__name__}:"
                        " give it to one of them; an optimizer that steps another one"
                        " takes its groups and leaves it no state"
                    )
    return names


def _unknown(
    optimizers: Optimizers, part: torch.optim.Optimizer, group: int, p: torch.Tensor
) -> str:
    tensor = f"a tensor of shape {tuple(p.shape)} in group {group}"
    if part is optimizers.first:
        return (
            f"expected an optimizer of the model's parameters, but got {tensor} that the"
            " model does not have: make the optimizer of model.parameters()"
        )
    return (
        f"expected optimizers of the model's parameters, but got {tensor} of another one"
        f" ({type(part).__name__}) that the model does not have: export both models as"
        " one, as torch.nn.ModuleList([model, other])"
    )
