# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the user's objects have while a compiled step trains.

"""Warnings, once each, of values that are not those of a compiled step.

A model and an optimizer have, from a run of the step to `step.store()`, what they had
before it: who looks at them then sees old values, and what is written into them no
step reads. Nothing of this is left on a model whose values are current.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.optim.swa_utils import AveragedModel

from sparse_opt import _source

_BEFORE = "the weights of before the compiled step"
_SENTENCES = {
    "call": f"the model has {_BEFORE}: call step.store() first",
    "state": f"model.state_dict() has {_BEFORE}: take step.state_dict(), or call"
    " step.store() first",
    "copy": f"a copy of the model has {_BEFORE}: call step.store() first",
    "average": f"an average takes {_BEFORE}: call step.store() first",
    "optimizer": "optimizer.state_dict() has what the optimizer had before the compiled"
    " step: call step.store() first",
    "loaded": "optimizer.load_state_dict() changes nothing of the compiled step: load it"
    " in front of the export, or a checkpoint by step.load(path)",
    "written": "'{}' was written behind the compilation, and the compiled step goes on"
    " with its own: step.load_state_dict(model.state_dict()) or step.write('{}', ...) gives"
    " it to the step",
}


class Stale:
    """Knows whether a model and its optimizer have what a step has."""

    def __init__(
        self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]
    ) -> None:
        self._model, self._optimizers = model, optimizers
        self._modules = set(model.modules())
        self._said: set[str] = set()
        self._handles: list[Any] = []
        self._loads: list[Any] = []
        self._runs = 0
        self._seen: dict[str, tuple[torch.Tensor, Any, int]] = {}

    def take(self) -> None:
        """Notes what the step takes, or gives back."""
        named = (*self._model.named_parameters(), *self._model.named_buffers())
        self._seen = {n: (t, _version(t), _fingerprint(t)) for n, t in named}
        if not self._loads:
            loaded = functools.partial(_when, weakref.ref(self), "loaded")
            for optimizer in self._optimizers:
                register: Any = optimizer.register_load_state_dict_post_hook
                self._loads.append(register(loaded))

    def look(self) -> None:
        """Warns if the model was written since, in front of a run."""
        if "written" in self._said:
            return
        # What is written by way of .data leaves versions alone.
        is_thorough = not self._runs & (self._runs - 1)
        self._runs += 1
        for name, (tensor, version, fingerprint) in self._seen.items():
            now = _version(tensor)
            if now == version and not is_thorough:
                continue
            if _fingerprint(tensor) != fingerprint:
                self.say("written", name)
                self._said.add("state")
                return
            self._seen[name] = tensor, now, fingerprint

    def is_written(self) -> bool:
        """Whether an operation has written a parameter or a buffer."""
        return any(_version(t) != version for t, version, _ in self._seen.values())

    def trained(self) -> None:
        """Notes that the step has run: the objects are old."""
        if self._handles:
            return
        when = functools.partial(functools.partial, _when, weakref.ref(self))
        if "call" not in self._said:
            called = functools.partial(_when_called, weakref.ref(self))
            self._handles.append(torch_module.register_module_forward_pre_hook(called))
        if not {"state", "copy"} <= self._said:
            hook = _Saved(self)
            modules: Any = self._modules
            self._handles += [m.register_state_dict_pre_hook(hook) for m in modules]
        if "optimizer" not in self._said:
            for optimizer in self._optimizers:
                register: Any = optimizer.register_state_dict_pre_hook
                self._handles.append(register(when("optimizer")))
        if "average" not in self._said:
            _STALE.add(self)

    def current(self) -> None:
        """Notes that the objects, or who asks, have what the step has."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        _STALE.discard(self)

    def end(self) -> None:
        """Leaves nothing of the step's."""
        self.current()
        for handle in self._loads:
            handle.remove()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Lets the package itself look at, and write, the objects."""
        was_stale = bool(self._handles)
        self.current()
        try:
            yield
        finally:
            for name, (tensor, _, fingerprint) in self._seen.items():
                self._seen[name] = tensor, _version(tensor), fingerprint
            if was_stale:
                self.trained()

    def has(self, module: torch.nn.Module) -> bool:
        return module in self._modules

    def say(self, what: str, *names: str) -> None:
        """Warns, if it has not said that before."""
        if what not in self._said:
            self._said.add(what)
            text = _SENTENCES[what].format(*names * 2)
            warnings.warn(text, stacklevel=_source.user_level())


# Those whose objects are old.
_STALE: weakref.WeakSet[Stale] = weakref.WeakSet()


def _when(stale: weakref.ref[Stale], what: str, *_: Any) -> None:
    if (held := stale()) is not None:
        held.say(what)


def _when_called(stale: weakref.ref[Stale], module: torch.nn.Module, _: Any) -> None:
    held = stale()
    if held is not None and held.has(module) and not torch.compiler.is_compiling():
        held.say("call")


class _Saved:
    """The hook of a model whose `state_dict` is taken, or that is copied itself."""

    def __init__(self, stale: Stale) -> None:
        self._stale = weakref.ref(stale)

    def __call__(self, *_: Any) -> None:
        stale = self._stale()
        # What was written is not old: it is on its way to the step.
        if stale is not None and not stale.is_written():
            stale.say("state")

    def __reduce__(self) -> Any:
        # A copy, in memory or in a file, is nobody's: it has something of Python's own
        # that takes as many arguments and does nothing.
        _when(self._stale, "copy")
        return getattr, ("", "format")


def _watch_averages() -> None:
    """Lets averages of models know of compiled steps."""
    own = AveragedModel.update_parameters

    @functools.wraps(own)
    def update_parameters(self: AveragedModel, model: torch.nn.Module) -> None:
        for stale in list(_STALE):
            if any(map(stale.has, model.modules())):
                stale.say("average")
        own(self, model)

    setattr(AveragedModel, "update_parameters", update_parameters)


_watch_averages()


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _fingerprint(tensor: torch.Tensor) -> int:
    """Returns a number that is another one, but for chance, if values are."""
    held = tensor.detach().contiguous().view(_INTEGERS[tensor.element_size()])
    return int(held.sum(dtype=torch.int64)) if held.numel() else 0


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
