# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the user's objects have while a compiled step trains.

"""A model and an optimizer that have what a compiled step has, whenever somebody looks.

A step trains in memory of its own. From a run of it on, the tensors of the model and of
the optimizer wait: the first operation that reads or writes one of them brings all of
them up to date, and after that they are plain tensors until the next run. What is written
into them goes to the step in front of what it does next. A loop that looks at nothing
copies nothing.

A tensor that waits is one of a subclass that sees all that PyTorch does with it
(`__torch_function__`); it is the same object before and after.
"""

from __future__ import annotations

import copy
import functools
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo import callback as dynamo_callback
from torch._dynamo.eval_frame import OptimizedModule
from torch.utils import _pytree as pytree

from sparse_opt import _source
from sparse_opt._errors import StepError
from sparse_opt.torch import _arguments
from sparse_opt.torch._optimizers import Optimizers

ALL_STATE = "the state of all parameters"
"""Stands for its names in what was written: an optimizer has loaded it."""

plain: Callable[[], Any] = torch._C.DisableTorchFunctionSubclass
"""Lets PyTorch, and this package, look at tensors that wait without bringing them."""


class Waiting:
    """A tensor whose values are those of before a run."""

    _owner: Objects

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _OF_NO_VALUES:
            with plain():
                return func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs))
        for leaf in leaves:
            if isinstance(leaf, Waiting):
                leaf._owner.bring()
        if any(isinstance(leaf, Waiting) for leaf in leaves):  # it could not, and said so
            with plain():
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    # These take the type of what they copy before they look at its values.

    def __deepcopy__(self, memo: Any) -> Any:
        owner = self._owner
        owner.bring()
        with owner.paused():
            return copy.deepcopy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        owner = self._owner
        owner.bring()
        with owner.paused():
            return self.__reduce_ex__(protocol)


_TENSOR: Any = torch.Tensor


def _getters(*names: str) -> Iterator[Any]:
    for name in names:
        if hasattr(_TENSOR, name):  # some come and go with versions
            yield getattr(_TENSOR, name).__get__


_OF_NO_VALUES = {
    *_getters(
        "_base", "_backward_hooks", "_grad", "_version", "device", "dtype", "grad", "grad_fn",
        "is_cpu", "is_cuda", "is_leaf", "is_meta", "is_mps", "is_nested", "is_quantized",
        "is_sparse", "is_sparse_csr", "itemsize", "layout", "names", "nbytes", "ndim", "requires_grad",
        "retains_grad", "shape",
    ),
    _TENSOR.grad.__set__, _TENSOR.requires_grad.__set__,
    torch.Tensor.__len__, torch.Tensor.dim, torch.Tensor.element_size,
    torch.Tensor.get_device, torch.Tensor.is_complex, torch.Tensor.is_contiguous,
    torch.Tensor.is_floating_point, torch.Tensor.is_inference, torch.Tensor.nelement,
    torch.Tensor.numel, torch.Tensor.register_hook,
    torch.Tensor.register_post_accumulate_grad_hook, torch.Tensor.requires_grad_,
    torch.Tensor.size, torch.Tensor.stride,
}  # fmt: skip


class Objects:
    """The tensors of a model and of its optimizers.

    Args:
      model: whose parameters and buffers the step may have.
      optimizers: whose state it may have.
      store: copies what a step has into all of them.

    Attributes:
      hooks: of the optimizers, which `remove` takes away.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Optimizers,
        store: Callable[[Any], None],
    ) -> None:
        self._model, self._optimizers = model, optimizers
        self._store = weakref.WeakMethod(store)
        self._step: Any = None  # whose values they wait for
        self._is_refused = False
        self._waiting: list[tuple[torch.Tensor, type]] = []
        self._places: list[_Place] = []
        self.hooks: list[Any] = []
        self._seen: dict[str, tuple[torch.Tensor, int, int]] = {}
        self._were_plain, self._runs, self._is_loaded = True, 0, False
        for optimizer in optimizers.parts:
            register: Any = optimizer.register_state_dict_pre_hook
            self.hooks.append(register(functools.partial(_asked, weakref.ref(self))))
            register = optimizer.register_load_state_dict_post_hook
            self.hooks.append(register(functools.partial(_loaded, weakref.ref(self))))
        _ALL.add(self)

    def begin(self) -> None:
        """Notes what the first step takes."""
        if not self._seen:
            self.take()

    def take(self) -> None:
        """Notes that a step has what the tensors have."""
        with plain():
            self._seen = {n: (t, _version(t), _fingerprint(t)) for n, t in self._tensors()}
        self._is_loaded = False

    def written(self) -> set[str]:
        """Returns the names of what was written since; the next step takes it."""
        # What is written by way of .data leaves versions alone. Tensors that have waited
        # all along were written by nobody but who had their memory before.
        is_thorough = self._were_plain or not self._runs & (self._runs - 1)
        self._runs += 1
        names = set()
        with plain():
            for name, (tensor, version, fingerprint) in self._seen.items():
                now = _version(tensor)
                if now == version and not is_thorough:
                    continue
                if _fingerprint(tensor) != fingerprint:
                    names.add(name)
                else:
                    self._seen[name] = tensor, now, fingerprint
            if self._is_loaded:
                names.add(ALL_STATE)
            elif self._were_plain:
                # The optimizer may have made tensors.
                names |= {
                    name
                    for name, tensor in self._tensors()
                    if name not in self._seen or self._seen[name][0] is not tensor
                }
        self._were_plain = False
        return names

    def wait(self, step: Any) -> None:
        """Notes that `step` has other values than the tensors, which then wait for them, but
        for those of other types than PyTorch's own: these bring all of them now."""
        if self._waiting and self._step is step:
            return
        if not self._begin_to_wait(step):
            self.bring()

    def _begin_to_wait(self, step: Any) -> bool:
        """Returns whether all tensors do."""
        self.end()
        self._step, self._is_refused = step, False
        all_wait = True
        with plain():
            for _, tensor in self._tensors():
                if isinstance(tensor, Waiting):  # for a step of another export
                    tensor._owner.end()
                own = type(tensor)
                if own not in (torch.nn.Parameter, torch.Tensor):
                    all_wait = False
                    continue
                tensor.__class__ = self._class_of(own)
                self._waiting.append((tensor, own))
        self._places = [
            (held, name, tensor)
            for module in self._model.modules()
            for held in (module._parameters, module._buffers)
            for name, tensor in held.items()
        ]
        _OF_NOW.add(self)
        return all_wait

    def bring(self) -> None:
        """Copies what the step has into the tensors, if they wait for it. Warns if the
        program has changed so that it cannot.

        Raises:
          StepError: another thread is in the step.
        """
        step, store = self._step, self._store()
        if step is None or store is None or self._is_refused:
            return
        with step._use:
            places = self._places
            self.end()
            try:
                with _filled(places):
                    step._take_changes()  # as of an optimizer that has loaded its state
                    self._were_plain = True
                    store(step)
            except StepError as error:
                warnings.warn(
                    f"the model has the weights of before the compiled step: {error}",
                    stacklevel=_source.user_level(),
                )
                self._begin_to_wait(step)
                self._is_refused = True  # until the next run

    def stored(self) -> None:
        """Notes that the tensors have what a step has."""
        self.end()
        self.take()
        for other in list(_ALL):
            if other is not self and other._seen:
                other._note(self._seen)

    def _note(self, seen: Mapping[str, tuple[torch.Tensor, int, int]]) -> None:
        """Takes what another export's step has written into tensors of both for no write."""
        known = {id(noted[0]): noted for noted in seen.values()}
        for name, (tensor, *_) in self._seen.items():
            if id(tensor) in known:
                self._seen[name] = known[id(tensor)]

    def end(self) -> None:
        """Leaves plain tensors."""
        for tensor, own in self._waiting:
            tensor.__class__ = own
        self._waiting, self._places, self._step = [], [], None
        _OF_NOW.discard(self)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Lets the package itself look at, and write, the tensors as they are."""
        step = self._step
        self.end()
        try:
            yield
        finally:
            with plain():
                for name, (tensor, _, fingerprint) in self._seen.items():
                    self._seen[name] = tensor, _version(tensor), fingerprint
            if step is not None:
                self.wait(step)

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        named = {**_arguments.unsaved_tensors(self._model), **dict(self._model.named_buffers())}
        yield from {**named, **dict(self._model.named_parameters())}.items()
        names = {id(p): name for name, p in self._model.named_parameters()}
        for optimizer, p in self._optimizers.owned():
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, torch.Tensor) and id(p) in names:
                    yield f"optimizer.{names[id(p)]}.{key}", value

    def _class_of(self, own: type) -> type:
        if own not in self._classes:
            self._classes[own] = type(own.__name__, (Waiting, own), {"_owner": self})
        return self._classes[own]

    @functools.cached_property
    def _classes(self) -> dict[type, type]:
        return {}


# Where a module has a tensor: among its parameters or its buffers, by a name.
_Place = tuple[dict[str, Any], str, Any]


@contextmanager
def _filled(places: Sequence[_Place]) -> Iterator[None]:
    """Gives modules the tensors that they had: a `functional_call` lends them others."""
    lent = [(held, name, held[name]) for held, name, _ in places if name in held]
    for held, name, tensor in places:
        if name in held:
            held[name] = tensor
    try:
        yield
    finally:
        for held, name, tensor in lent:
            held[name] = tensor


_ALL: weakref.WeakSet[Objects] = weakref.WeakSet()
# Those with tensors that wait. A step that nobody has any more lives on by its tensors.
_OF_NOW: weakref.WeakSet[Objects] = weakref.WeakSet()


def remove(hooks: Sequence[Any]) -> None:
    """Leaves nothing of a step's on optimizers."""
    for hook in hooks:
        hook.remove()


def _asked(objects: weakref.ref[Objects], *_: Any) -> None:
    if (held := objects()) is not None:
        held.bring()


def _loaded(objects: weakref.ref[Objects], *_: Any) -> None:
    if (held := objects()) is not None:
        held._is_loaded = True


def _bring_all(*_: Any) -> None:
    for objects in list(_OF_NOW):
        objects.bring()


def _watch_compilations() -> None:
    """Lets functions that `torch.compile` makes, which look at memory, know of steps."""
    dynamo_callback.callback_handler.register_start_callback(_bring_all)
    own = OptimizedModule.__call__

    @functools.wraps(own)
    def called(self: OptimizedModule, *args: Any, **kwargs: Any) -> Any:
        _bring_all()
        return own(self, *args, **kwargs)

    setattr(OptimizedModule, "__call__", called)


_watch_compilations()


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _fingerprint(tensor: torch.Tensor) -> int:
    """Returns a number that is another one, but for chance, if values are."""
    held = tensor.detach().contiguous().view(_INTEGERS[tensor.element_size()])
    return int(held.sum(dtype=torch.int64)) if held.numel() else 0


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
