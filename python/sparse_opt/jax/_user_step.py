# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The user's own step, run beside a compiled one.

"""One step of JAX on the weights and the state of a compiled step.

The function that was exported is traced again and evaluated with `w * mask` in the place
of weights, and gradients masked where they are computed, as docs/optimizers.md defines it:
in its own types, and for what rounding makes of it in float64.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from sparse_opt import _source
from sparse_opt._check import (
    Array,
    Call,
    Expected,
    Rerun,
    Unchecked,
    require_memory,
    unsure,
)
from sparse_opt._errors import StepError
from sparse_opt.jax import _arrays, _points, _reference, _retraces, _supports
from sparse_opt.jax._supports import NONE, Support


@dataclass(frozen=True)
class Parts:
    """What a step of JAX takes and returns, by name."""

    step: Callable[..., Any]
    args: Sequence[Any]
    state: Sequence[tuple[str, Any]]
    batch: Sequence[tuple[str, Any]]
    results: Sequence[str]
    parameters: frozenset[str]


# The checked program runs a few times: it need not be fast. XLA's simplifier makes 0 of
# 0 * NaN.
_QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_disable_hlo_passes": "algsimp",
}


class UserStep:
    """Runs a step as its author wrote it, with masks."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._like = [leaf for _, leaf in (*parts.state, *parts.batch)]
        self._args = jax.tree.map(_described, tuple(parts.args))
        self._owners = _owners(parts)
        self._traced: Any = None
        self._compiled: dict[bool, Any] = {}
        self._supports: list[Support] = []
        self._seen = _reference.Seen()
        self._noise: dict[str, float] = {}

    def run(self, call: Call) -> Rerun:
        """Returns what the step leaves behind.

        Raises:
          Unchecked: it cannot be run.
        """
        if (reason := _points.why_not()) is not None:
            raise Unchecked(reason)
        before = list(self._read(call))
        size = sum(leaf.nbytes for leaf in before if not _arrays.is_key(leaf))
        require_memory((6 if call.is_exact else 4) * size + 3 * call.size)
        first = self._traced
        # What rounding explains is of the trace that a run is compared with.
        if first is None or not call.is_exact:
            self._take_trace(self._trace())
        kept, masks = self._take_masks(call)
        values, gradients = self._evaluate(False, before, masks)
        exact, exact_gradients = None, None
        if call.is_exact:
            exact, exact_gradients = self._evaluate(True, before, masks, call.attempt)
        rerun = Rerun(outside=functools.partial(self._outside, first))
        work = _Work(self._parts, self._owners, call, kept, self._seen.epsilon, self._noise)
        work.look(gradients, exact_gradients)
        rerun.expected = list(work.expected(values, exact))
        rerun.doubt = self._doubt(kept, before, values)
        rerun.instead = (
            "take gradients by jax.grad at the weights themselves, or take the mark away"
        )
        return rerun

    def _trace(self) -> Any:
        """Returns the step as it is traced now."""
        try:
            return _points.trace(self._parts.step, self._args)
        except jax.errors.UnexpectedTracerError as error:
            raise _stale(_source.line_of_error(error.__traceback__)) from error
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            line = _source.line_of_error(error.__traceback__)
            raise Unchecked(f"the program's own step raises '{text}'{line}") from error

    def _take_trace(self, traced: Any) -> None:
        """Keeps what was compiled if it is of the same trace."""
        if self._traced is None or _retraces.difference(self._traced, traced) is not None:
            self._traced = traced
            self._compiled.clear()

    def _outside(self, first: Any) -> str:
        """Returns which line of the program another trace of it changes."""
        first = first or self._traced
        found = _retraces.difference(first, self._traced)
        if found is None:
            try:
                found = _retraces.difference(first, self._trace())
            except Unchecked:
                return ""
        if found is None:
            return ""
        return (
            "the program computes something else each time that it is traced"
            f"{_retraces.line_of(found) if found else ''}, by state outside of its arguments"
            " (a counter, an average, random numbers of Python or NumPy), which the step"
            " has as it was at the export: make it a part of the state or of the batch"
        )

    def _read(self, call: Call) -> Iterator[Any]:
        """Yields what the step has then, as arrays of JAX."""
        given = jax.tree.leaves(tuple(call.batch))
        names = [name for name, _ in (*self._parts.state, *self._parts.batch)]
        own = [leaf for _, leaf in self._parts.state]
        for name, like, value in zip(names, self._like, (*own, *given)):
            if name in call.state.names:
                yield _arrays.shown(call.state.read(name), like)
            elif isinstance(value, jax.ShapeDtypeStruct):
                raise Unchecked(f"the step has no value of '{name}'")
            else:
                yield _arrays.shown(_arrays.memory(name, value, like), like)

    def _take_masks(self, call: Call) -> tuple[dict[str, Array], list[Array]]:
        """Returns which entries of the state are stored, and each such mask once."""
        kept: dict[str, Array] = {}
        masks: dict[tuple[int, bytes], int] = {}
        seen: dict[int, int] = {}  # Arrays of one pattern have one mask.
        supports = []
        for name, like in self._parts.state:
            stored = call.state.stored(name) if name in call.state.names else None
            key = None
            shape = np.shape(like)
            if stored is not None:
                kept[name] = stored.reshape(shape)
                if id(stored) not in seen:
                    entries = stored.size, stored.tobytes()
                    seen[id(stored)] = masks.setdefault(entries, len(masks))
                key = seen[id(stored)]
            is_weight = stored is not None or name in self._parts.parameters
            supports.append(_supports.weight(name, shape, key) if is_weight else NONE)
        supports += [NONE] * len(self._parts.batch)
        if supports != self._supports:
            self._supports = supports
            self._compiled.clear()
        return kept, [np.frombuffer(entries, np.bool_) for _, entries in masks]

    def _evaluate(
        self,
        is_exact: bool,
        leaves: Sequence[Any],
        masks: Sequence[Array],
        attempt: int = 0,
    ) -> tuple[list[Any], dict[str, Any]]:
        """Returns what the step computes, and the gradients of its weights."""
        consts = self._traced.consts
        with jax.enable_x64(True) if is_exact else contextlib.nullcontext():
            # Each changes the bits of what is changed.
            number = np.uint64(attempt * 0x2545F491) if is_exact else np.uint32(0)
            if is_exact not in self._compiled:
                program = functools.partial(self._masked, is_exact)
                try:
                    lowered = jax.jit(program).lower(consts, leaves, masks, number)
                except _reference.Stale as error:
                    raise _stale(str(error)) from error
                self._compiled[is_exact] = lowered.compile(compiler_options=_options())
            run = self._compiled[is_exact]
            results, gradients = run(consts, leaves, masks, number)
            return [_arrays.numbers(x) for x in results], {
                name: _arrays.numbers(g) for name, g in gradients.items()
            }

    def _masked(
        self,
        is_exact: bool,
        consts: Sequence[Any],
        leaves: Sequence[Any],
        masks: Sequence[Any],
        attempt: Any,
    ) -> tuple[list[Any], dict[str, Any]]:
        """The step that is evaluated: its results, 0 where no block is."""
        known = dict(enumerate(masks))
        reference = _reference.Reference(known, is_exact, attempt if is_exact else None)
        traced = ClosedJaxpr(self._traced.jaxpr, consts)
        results = reference.run(traced, leaves, self._supports)
        for i, support in enumerate(self._supports):
            if support.is_marked:
                zero = jnp.zeros((), results[i].dtype)
                results[i] = jnp.where(support.mask(known), results[i], zero)
        if not is_exact:
            self._seen = reference.seen
        return results, reference.gradients

    def _doubt(
        self, kept: Mapping[str, Array], before: Sequence[Any], after: Sequence[Array]
    ) -> str:
        """Returns why a gradient may not be masked here, if it may not."""
        if self._seen.doubts:
            marked = [name for name in kept if name in self._parts.parameters]
            # Those that are differentiated at by themselves are followed.
            made = [n for n in marked if n not in self._seen.weights] or marked
            return (
                "what the program differentiates at is made of a marked weight"
                f" ({', '.join(map(repr, made))}) in a way that the check does not"
                f" follow{self._seen.doubts[0]}"
            )
        for (name, _), old, new in zip(self._parts.state, before, after):
            is_weight = name in kept and name in self._parts.parameters
            if not is_weight or name in self._seen.weights:
                continue
            if not np.array_equal(_arrays.numbers(old), new):
                return (
                    f"the program computes the gradient of '{name}' without jax.grad or"
                    " its kin"
                )
        return ""


class _Work:
    """What one run of the step is compared by."""

    def __init__(
        self,
        parts: Parts,
        owners: Mapping[str, str],
        call: Call,
        kept: Mapping[str, Array],
        coarsest: float,
        noise: dict[str, float],
    ) -> None:
        self._parts, self._owners, self._call, self._kept = parts, owners, call, kept
        self._coarsest, self._noise = coarsest, noise
        self._unsure: dict[str, Array | None] = {}
        self._gradients: dict[str, Array] = {}

    def look(
        self, gradients: Mapping[str, Array], exact: Mapping[str, Array] | None
    ) -> None:
        """Notes which gradients are nothing but rounding."""
        pack = self._call.state.pack
        found = {n: _flat(pack(n, g), False) for n, g in gradients.items()}
        others = None if exact is None else {n: pack(n, g) for n, g in exact.items()}
        self._unsure = unsure(found, others, self._coarsest, self._noise)
        self._gradients = found

    def expected(
        self,
        values: Sequence[Array],
        exact: Sequence[Array] | None,
    ) -> Iterator[Expected]:
        """Yields what the compiled step has to have after its run."""
        others: Sequence[Array | None] = exact or [None] * len(values)
        count = len(self._parts.state)
        for place, name in enumerate(self._parts.results):
            value, other = values[count + place], others[count + place]
            yield self._expect(name, "result", value, other, None, None, place)
        state = self._call.state
        for i, (name, like) in enumerate(self._parts.state):
            if name in state.names:
                old = _arrays.decoded(state.kept(name), _arrays.dtype_of(like))
                value, other = state.pack(name, values[i]), others[i]
                other = None if other is None else state.pack(name, other)
                yield self._expect(name, self._kind(name), value, other, old, like)

    def _kind(self, name: str) -> str:
        """Returns what has numbers of one size: parameters, or one moment of all."""
        if name in self._parts.parameters:
            return "parameter"
        owner = self._owners.get(name)
        return f"state {name[: -len(_shared(name, owner))]}" if owner else f"state {name}"

    def _expect(
        self,
        name: str,
        kind: str,
        value: Array,
        exact: Array | None,
        before: Array | None,
        like: Any,
        place: int = -1,
    ) -> Expected:
        owner = self._owners.get(name, name)
        unsure_entries = self._unsure.get(owner)
        dtype = value.dtype if like is None else _arrays.dtype_of(like)
        is_alike = unsure_entries is not None and unsure_entries.size == value.size
        gradient = self._gradients.get(name) if place < 0 else None
        has_gradient = gradient is not None and gradient.size == value.size
        is_whole = not _reference.epsilon_of(value.dtype)
        return Expected(
            name,
            kind,
            _flat(value, is_whole),
            None if exact is None else _flat(exact, is_whole),
            None if before is None else _flat(before, is_whole),
            unsure_entries if is_alike and place < 0 else None,
            epsilon=_reference.epsilon_of(value.dtype),
            coarsest=self._coarsest,
            is_marked=owner in self._kept,
            decode=lambda array: _flat(_arrays.decoded(array, dtype), is_whole),
            gradient=gradient if has_gradient else None,
            place=place,
        )


def _stale(line: str) -> StepError:
    return StepError(
        "expected a step that keeps its arrays in its arguments, but got one of the export"
        f" in another object{line}: make it a part of the state, or compute it outside of"
        " the step"
    )


def _flat(array: Array, is_whole: bool) -> Array:
    """Returns numbers in one line, of a type that NumPy computes with."""
    held = np.float64 if is_whole or array.dtype == np.float64 else np.float32
    return array.ravel().astype(held, copy=False)


def _described(leaf: Any) -> Any:
    """Returns shape and type of an argument, which may have been donated since."""
    if isinstance(leaf, (bool, int, float)):
        return leaf
    aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    weak = bool(getattr(aval, "weak_type", False))
    return jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
        aval.shape, aval.dtype, weak_type=weak
    )


def _options() -> dict[str, Any]:
    return dict(_QUICK) if jax.default_backend() == "cpu" else {}


def _owners(parts: Parts) -> dict[str, str]:
    """Returns the parameter that each array of the state is of, by path and shape."""
    shapes = {name: np.shape(leaf) for name, leaf in parts.state}
    owners = {}
    for name, shape in shapes.items():
        alike = [p for p in parts.parameters if shapes[p] == shape and p != name]
        best = max(sorted(alike), key=lambda p: len(_shared(name, p)), default="")
        if name in parts.parameters:
            owners[name] = name
        elif best and _shared(name, best):
            owners[name] = best
    return owners


def _shared(name: str, other: str | None) -> str:
    """Returns the end of a path that two names share."""
    count = 0
    one, two = name.split("."), (other or "").split(".")
    while count < min(len(one), len(two)) and one[-1 - count] == two[-1 - count]:
        count += 1
    return ".".join(one[len(one) - count :])
