# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Operations of PyTorch, each computed a second time in float64.

"""What rounding makes of a program, from one run of it.

A mode of dispatch computes each operation twice: as the program asks, and in float64,
of what the earlier operations computed in float64, as roundings may change that. The
program runs once, and what its tensors are apart from their shadows is its rounding.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sparse_opt.torch import _private, _random
from sparse_opt.torch._rounding import Rounding

aten = torch.ops.aten


class Unknown(Exception):
    """Random numbers that the compiled step does not draw."""


@dataclass
class _Shadow:
    """The float64 twin of a storage: a flat tensor, entry by entry."""

    flat: torch.Tensor
    dtype: torch.dtype  # of the storage's entries
    reference: Any  # keeps the entry as long as the storage


class Shadows(_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes operations twice, and draws the random numbers of a compiled step.

    Args:
      seed: the argument `seed` of that step.
      follows: whether to compute a second time.
      attempt: which changes by roundings.
    """

    def __init__(self, seed: int, follows: bool, attempt: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._follows = follows
        self._rounding = Rounding(attempt)
        self._shadows: dict[int, _Shadow] = {}
        self.epsilon = 0.0  # the coarsest that the program computed with
        self.operations = 0
        self._types: set[torch.dtype] = set()
        self._numbers = _random.Numbering()
        self._random = _random.eager(
            torch.tensor(seed, dtype=torch.int32), iter(self._numbers.take, None)
        )

    @property
    def draws(self) -> int:
        """How many random operations there were."""
        return len(self._numbers.taken)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the shadow of a tensor: in float64, if it has a floating point."""
        shadow = self._known(tensor)
        if shadow is not None:
            return shadow
        return tensor.double() if tensor.is_floating_point() else tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self.operations += 1
        if _random.is_random_operation(func):
            if func not in self._random or kwargs.get("generator") is not None:
                raise Unknown(str(func))
            with self:
                return self._random[func](*args, **kwargs)
        if not self._follows:
            result = func(*args, **kwargs)
            self._note_types(result if isinstance(result, (tuple, list)) else (result,))
            return result
        inputs = _tensors((args, kwargs))
        is_real = any(t.is_floating_point() or self._known(t) is not None for t in inputs)
        written = _written(func, args, kwargs) if is_real else []
        for tensor in written:
            self._begin(tensor)
        result = func(*args, **kwargs)
        if is_real and not self._is_view(func, inputs, result):
            self._follow(func, args, kwargs, inputs, written, result)
        return result

    def _is_view(self, func: Any, inputs: Sequence[torch.Tensor], result: Any) -> bool:
        """Returns whether nothing is written, and all of a result lies in arguments."""
        results = _tensors(result)
        if not all(map(_is_plain, results)):
            return True  # Nothing that could be followed.
        places = set(map(_place, inputs))
        return not func._schema.is_mutable and all(_place(t) in places for t in results)

    def _follow(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        inputs: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor],
        result: Any,
    ) -> None:
        """Does to the shadows what was done to the tensors."""
        results = _tensors(result)
        self._note_types(results)
        try:
            shadow_args, shadow_kwargs = pytree.tree_map(self._argument, (args, kwargs))
            shadows = _tensors(func(*shadow_args, **shadow_kwargs))
        except Exception:
            # There is no such operation in float64.
            shadow_args, shadow_kwargs, shadows = (), {}, []
            for tensor in written:
                self.of(tensor).copy_(tensor)
        if len(shadows) != len(results):
            shadows = results
        elif not func._schema.is_mutable:
            shadows = [
                self._rounding.moved(func, shadow, tensor.dtype)
                for shadow, tensor in zip(shadows, results)
            ]
        places = set(map(_place, inputs))
        taken = places | set(map(_place, _tensors((shadow_args, shadow_kwargs, results))))
        for tensor, shadow in zip(results, shadows):
            if _place(tensor) not in places and shadow.shape == tensor.shape:
                self._add(tensor, shadow, _place(shadow) not in taken)

    def _note_types(self, results: Sequence[Any]) -> None:
        """Notes the types of tensors; an operation returns them alone or in lists."""
        for result in results:
            if isinstance(result, (tuple, list)):
                self._note_types(result)
            elif isinstance(result, torch.Tensor) and result.dtype not in self._types:
                self._types.add(result.dtype)
                if result.is_floating_point():
                    self.epsilon = max(self.epsilon, torch.finfo(result.dtype).eps)

    def _argument(self, value: Any) -> Any:
        """Returns what an operation takes in float64 in the place of an argument."""
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                self._begin(value)
            return self.of(value)
        return torch.float64 if value in _REAL_TYPES else value

    def _begin(self, tensor: torch.Tensor) -> None:
        """Makes sure that a tensor that is written has a shadow of its own."""
        if self._known(tensor) is None and _is_plain(tensor):
            entries = _entries(tensor)
            dtype = torch.float64 if entries.is_floating_point() else entries.dtype
            self._keep(tensor, entries.to(dtype, copy=True))

    def _add(self, tensor: torch.Tensor, shadow: torch.Tensor, is_free: bool) -> None:
        """Keeps the shadow of a new tensor, as it is if its memory `is_free`."""
        if not tensor.is_floating_point():
            if torch.equal(tensor, shadow):
                return
        elif not shadow.is_floating_point():
            return
        count = _count(tensor)
        is_alike = shadow.stride() == tensor.stride() and not tensor.storage_offset()
        if is_free and is_alike and _count(shadow) == count and not shadow.storage_offset():
            self._keep(tensor, _entries(shadow))
            return
        flat = shadow.new_empty(count)
        flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).copy_(shadow)
        self._keep(tensor, flat)

    def _keep(self, tensor: torch.Tensor, flat: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        place = storage._cdata
        forget = self._shadows.pop

        def gone(_: Any) -> None:
            forget(place, None)

        self._shadows[place] = _Shadow(flat, tensor.dtype, weakref.ref(storage, gone))

    def _known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if not _is_plain(tensor):
            return None
        shadow = self._shadows.get(_place(tensor))
        if shadow is None or shadow.dtype != tensor.dtype:
            return None
        if shadow.flat.numel() != _count(tensor):
            return None
        return shadow.flat.as_strided(
            tensor.size(), tensor.stride(), tensor.storage_offset()
        )


_REAL_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_meta


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if _is_plain(tensor) else -id(tensor)


def _entries(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all of a tensor's storage as a tensor of one dimension."""
    return tensor.detach().as_strided((_count(tensor),), (1,), 0)


def _count(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that an operation writes into."""
    if not func._schema.is_mutable:
        return []
    found: list[Any] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[i] if i < len(args) else kwargs.get(argument.name))
    return _tensors(found)
