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
(`__torch_function__`); it is the same object before and after. Tensors that lie on the
step's memory themselves would be no simpler: a weight in blocks has no dense memory there,
so that it has to wait all the same, and other memory under a parameter is what views of
it, graphs that hold it and whoever keeps its address do not see.
"""

from __future__ import annotations

import copy
import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from sparse_opt import _source
from sparse_opt._errors import ExportError, StepError
from sparse_opt.torch import _arguments, _optimizer, _private
from sparse_opt.torch._optimizers import Optimizers

ALL_STATE = "the state of all parameters"
"""Stands for its names in what was written: an optimizer has loaded it."""

plain: Callable[[], Any] = _private.without_subclasses
"""Lets PyTorch, and this package, look at tensors that wait without bringing them."""


class Waiting:
    """A tensor whose values are those of before a run."""

    _owner: Objects
    _own_type: type  # what it is when it does not wait

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
      counters: the numbers in their groups that it changes.
      store: copies what a step has into all of them.

    Attributes:
      hooks: of the optimizers, which `remove` takes away.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Optimizers,
        counters: Sequence[_optimizer.Counter],
        store: Callable[[Any], None],
    ) -> None:
        self._model, self._optimizers, self._counters = model, optimizers, counters
        self._store = weakref.WeakMethod(store)
        self._step: Any = None  # whose values they wait for
        self._is_refused = False
        self._waiting: list[tuple[torch.Tensor, type]] = []
        self._places: list[_Place] = []
        self._watched: list[torch.Tensor] = []
        self._versions: list[int] = []
        self.hooks: list[Any] = []
        self._seen: dict[str, _Noted] = {}
        self._numbers: dict[str, Any] = {}
        self._runs, self._is_loaded = 0, False
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
        self._numbers = dict(self._counted())
        self._is_loaded = False

    def written(self) -> set[str]:
        """Returns the names of what was written since; the next step takes it.

        Raises:
          StepError: something was written past tensors that wait: with what they had before.
        """
        self._runs += 1
        with plain():
            if self._waiting:
                names = self._written_while_waiting()
            else:
                names = self._written_while_plain()
            if self._is_loaded:
                names.add(ALL_STATE)
        return names

    def has_written(self, names: Set[str]) -> bool:
        """Returns whether one of these was written since. Of tensors that wait, whether there
        is another one in its place: what writes into one brings all."""
        if self._is_loaded:
            return True
        if self._waiting:
            names = {ALL_STATE, *names}
            return any(p.held.get(p.key) is not p.tensor for p in self._places if p.name in names)
        with plain():
            return not names.isdisjoint(self._written_while_plain(names))

    def _written_while_plain(self, among: Set[str] | None = None) -> set[str]:
        # What is written by way of .data leaves versions alone.
        names = {n for n, number in self._counted() if self._numbers.get(n) != number}
        for name, tensor in self._tensors():  # the optimizer may have made some
            if among is not None and name not in among:
                continue
            noted = self._seen.get(name)
            if noted is None or noted[0] is not tensor or _fingerprint(tensor) != noted[2]:
                names.add(name)
        return names

    def _written_while_waiting(self) -> set[str]:
        """Looks at places and versions alone, and now and then at values: an operation on
        one of the tensors would have brought all."""
        is_thorough = not self._runs & (self._runs - 1)
        is_in_place = all(held.get(key) is t for held, key, t, _ in self._places)
        if is_in_place and not is_thorough and _versions_of(self._watched) == self._versions:
            return set()
        names = {p.name for p in self._places if p.held.get(p.key) is not p.tensor}
        for name, (tensor, version, fingerprint) in self._seen.items():
            if not is_thorough and _version(tensor) == version or name in names:
                continue
            now = _fingerprint(tensor)
            self._seen[name] = tensor, _version(tensor), now
            self._versions = _versions_of(self._watched)
            if now != fingerprint:
                raise StepError(
                    f"expected '{name}' to be written by the model's own tensor, but got"
                    " another tensor or array of its memory, which had the values of before"
                    " the step's last run: take it from the model again behind each run"
                )
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
        self._places = list(self._found_places())
        with plain():
            self._watched = [t for t, *_ in self._seen.values() if not t.is_inference()]
            self._versions = _versions_of(self._watched)
        _OF_NOW.add(self)
        _watch_compilations()
        return all_wait

    def _found_places(self) -> Iterator[_Place]:
        for path, module in self._model.named_modules():
            prefix = f"{path}." if path else ""
            for held in (module._parameters, module._buffers):
                for key, tensor in held.items():
                    yield _Place(held, key, tensor, prefix + key)
        for name, (module, key) in _arguments.attributes_of(self._model).items():
            yield _Place(module.__dict__, key, module.__dict__[key], name)
        for optimizer in self._optimizers.parts:
            if vars(optimizer).get("state") is optimizer.state:
                yield _Place(vars(optimizer), "state", optimizer.state, ALL_STATE)
            for p, held in optimizer.state.items():
                yield _Place(optimizer.state, p, held, ALL_STATE)
                for key, value in held.items():
                    yield _Place(held, key, value, ALL_STATE)

    def bring(self) -> bool:
        """Copies what the step has into the tensors, and returns whether they waited for it.
        Warns if the program has changed so that it cannot. Another thread's run, or look,
        comes first."""
        step, store = self._step, self._store()
        if step is None or store is None or self._is_refused:
            return False
        with step._use.behind_others():
            if self._step is not step:  # another thread has brought them
                return True
            places = self._places
            try:
                with _filled(places):
                    step._take_changes()  # as of an optimizer that has loaded its state
                    store(step)
            except (ExportError, StepError) as error:
                warnings.warn(
                    f"the model has the weights of before the compiled step: {error}",
                    stacklevel=_source.user_level(),
                )
                self._begin_to_wait(step)
                self._is_refused = True  # until the next run
        return True

    def stored(self) -> None:
        """Notes that the tensors have what a step has."""
        self.end()
        self.take()
        for other in list(_ALL):
            if other is not self and other._seen:
                other._note(self._seen)

    def _note(self, seen: Mapping[str, _Noted]) -> None:
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

    def _counted(self) -> Iterator[tuple[str, Any]]:
        """Yields the numbers that optimizers keep, by the names of their arguments."""
        names = {id(p): name for name, p in self._model.named_parameters()}
        for optimizer, p in self._optimizers.owned():
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, (int, float)) and id(p) in names:
                    yield f"optimizer.{names[id(p)]}.{key}", value
        groups = self._optimizers.param_groups
        for i, key in self._counters:
            yield _optimizer.name_of((i, key)), groups[i][key]

    def _class_of(self, own: type) -> type:
        if own not in self._classes:
            more = {"_owner": self, "_own_type": own}
            self._classes[own] = type(own.__name__, (Waiting, own), more)
        return self._classes[own]

    @functools.cached_property
    def _classes(self) -> dict[type, type]:
        return {}


class _Place(NamedTuple):
    """Where a module or an optimizer has a tensor."""

    held: Any  # a dictionary
    key: Any
    tensor: Any
    name: str  # of the argument, or ALL_STATE


# A tensor with its version and its fingerprint when a step had what it has.
_Noted = tuple[torch.Tensor, int, int]


@contextmanager
def _filled(places: Sequence[_Place]) -> Iterator[None]:
    """Gives modules the parameters and buffers that they had: a `functional_call` lends them
    others."""
    places = [p for p in places if p.name != ALL_STATE and p.key in p.held]
    lent = [(place, place.held[place.key]) for place in places]
    for place in places:
        place.held[place.key] = place.tensor
    try:
        yield
    finally:
        for place, tensor in lent:
            place.held[place.key] = tensor


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


def _bring_all() -> bool:
    """Returns whether anything waited."""
    return any([objects.bring() for objects in list(_OF_NOW)])


# A process that is forked has what its parent had, and no step that could be asked.
os.register_at_fork(before=_bring_all)


class _Compiled(threading.local):
    """What a thread does with functions that `torch.compile` makes."""

    entered: Any = None  # of what compiles the function that was called last
    is_bringing = False


_compiled = _Compiled()
# How often what compiles a function did so while tensors waited.
_COMPILED: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


@functools.cache
def _watch_compilations() -> None:
    """Lets functions that `torch.compile` makes, which look at memory, know of steps.

    Tensors that wait have another class, so that such a function is compiled again for
    them, and a compilation brings them. The second time it is known that the function
    looks at them, and they are brought when it is called: nothing is compiled any more.
    """

    def begun() -> None:
        _compiled.is_bringing = True
        try:
            compiler = _compiled.entered and _compiled.entered()
            if _bring_all() and compiler is not None:
                _COMPILED[compiler] = _COMPILED.get(compiler, 0) + 1
        finally:
            _compiled.is_bringing = False

    def entered(compiler: Any) -> bool:
        if _compiled.is_bringing:  # A compilation holds a lock that another one takes.
            return False
        if callable(compiler):
            _compiled.entered = weakref.ref(compiler)
            if _OF_NOW and _COMPILED.get(compiler, 0) > 1:
                _bring_all()
        return True

    _private.watch_compilations(begun, entered)


def _versions_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [tensor._version for tensor in tensors]


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _fingerprint(tensor: torch.Tensor) -> int:
    """Returns a number that is another one, but for chance, if values are."""
    held = tensor.detach().contiguous().view(_INTEGERS[tensor.element_size()])
    return int(held.sum(dtype=torch.int64)) if held.numel() else 0


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
