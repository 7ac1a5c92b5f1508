# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Gradients that one step leaves to the next.

"""Refuses steps that read gradients which the step before has left.

A trace begins without gradients. A parameter whose gradient the step reads before it
clears it, and that has one when the step ends, reads what the trace has not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from sparse_opt._errors import ExportError

_GET, _SET = (getattr(torch.Tensor.grad, name) for name in ("__get__", "__set__"))


class Gradients(TorchFunctionMode):
    """Notes where a step reads and clears the gradients of parameters.

    Args:
      params: the parameters of the trace by their names.
      objects: modules and optimizers, whose `zero_grad` clears.
    """

    def __init__(
        self, params: Mapping[str, torch.Tensor], objects: Iterable[Any]
    ) -> None:
        super().__init__()
        self._params, self._objects = params, list(objects)
        self._names = {id(p): name for name, p in params.items()}
        self._read: set[str] = set()
        # What took the place of the gradient, and how often it was written then.
        self._cleared: dict[str, tuple[torch.Tensor | None, int]] = {}
        self._is_clearing = False

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function == _GET or function == _SET:
            name = self._names.get(id(args[0]))
            if name is not None and function == _SET:
                self._clear(name, args[1])
            elif name is not None and name not in self._cleared and not self._is_clearing:
                self._read.add(name)
        return function(*args, **(kwargs or {}))

    def __enter__(self) -> Gradients:
        for thing in self._objects:
            thing.__dict__["zero_grad"] = self._noting(thing, thing.zero_grad)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for thing in self._objects:
            del thing.__dict__["zero_grad"]

    def require_none_left(self) -> None:
        """Raises `ExportError` if the next step would read what this one leaves."""
        for name, p in self._params.items():
            if name not in self._read or p.grad is None:
                continue
            cleared, version = self._cleared.get(name, (None, 0))
            if p.grad is not cleared or p.grad._version != version:
                raise ExportError(
                    "expected a step that clears the gradients, but got those of"
                    f" '{name}' left over: call optimizer.zero_grad() in it"
                )

    def _noting(self, thing: Any, zero_grad: Any) -> Any:
        def clear(*args: Any, **options: Any) -> None:
            self._is_clearing = True
            try:
                zero_grad(*args, **options)
                for p in _parameters_of(thing):
                    if (name := self._names.get(id(p))) is not None:
                        self._clear(name, p.grad)
            finally:
                self._is_clearing = False

        return clear

    def _clear(self, name: str, gradient: torch.Tensor | None) -> None:
        self._cleared[name] = gradient, 0 if gradient is None else gradient._version


@contextlib.contextmanager
def kept(model: torch.nn.Module) -> Iterator[None]:
    """Gives the parameters their gradients back: an optimizer that is not known yet
    clears those of the user's."""
    gradients = [(p, p.grad) for p in model.parameters()]
    try:
        yield
    finally:
        for p, gradient in gradients:
            p.grad = gradient


def _parameters_of(thing: Any) -> Iterable[Any]:
    if isinstance(thing, torch.nn.Module):
        return thing.parameters()
    return (p for group in thing.param_groups for p in group["params"])
