# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A compiled step beside the program that it was exported of.

"""Which runs of a step are checked, and what they may be apart.

The program itself runs beside the first runs of a compiled step, on the values that
the step has then, and what both leave behind is compared. Where they are further apart
than a share of what the step changes, the program runs again, with a second computation
in float64 that roundings change at random, which tells what rounding makes of it.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_opt import _say
from sparse_opt._distance import NOWHERE, Distance, Sizes, at_most, distance, products, sizes
from sparse_opt._errors import StepError
from sparse_opt._snapshot import Snapshot

if TYPE_CHECKING:
    from sparse_opt._program import Program

Array = np.ndarray[Any, Any]

# How many times as far as rounding moves the program a compiled step may be from it:
# its sums are in other orders.
_TIMES = 32.0
# What it may be besides, as shares of what the step changes: of all entries together, and
# of one.
_SHARE, _SHARE_OF_ONE = 1e-3, 1e-2
# How often roundings change a program before a step is refused.
_ATTEMPTS = 3
# Seconds of a run that say how fast a step is: what Python adds to a call is a tenth of it.
_LEAST_TIMED = 2e-3


class Unchecked(Exception):
    """A program that cannot run beside its compiled step, and why."""


@dataclass(frozen=True)
class Call:
    """A call of a compiled step that has not run yet."""

    batch: Sequence[Any]
    rate: float | None  # that the call gives
    seed: int
    waits: bool  # for another micro-batch
    is_exact: bool  # whether to compute a second time what rounding explains
    state: Snapshot
    size: int  # bytes of the step
    attempt: int = 0  # which changes by roundings


Bounds = tuple[float, float, float]  # of all entries, of one, of one that is unsure
# What rounding makes of one entry at most, of all together, of one that is unsure.
Rounded = tuple[float, float, float]
# Of a tensor in a run: its rounding, its change, the coarsest type.
Noise = tuple[Rounded, float, float]


@dataclass
class Expected:
    """A tensor as the program has it after a run: its entries that a step stores."""

    name: str
    kind: str  # result, parameter, buffer, state
    value: Array
    exact: Array | None  # the same in float64, changed by roundings, if it was computed
    before: Array | None
    unsure: Array | None  # entries whose gradients are rounding alone; None: none
    epsilon: float  # of its type; 0 of integers
    coarsest: float | None  # of all types of the program; None: its own, as far as known
    is_marked: bool
    decode: Callable[[Array], Array]
    gradient: Array | None = None  # of a parameter, what the optimizer takes
    place: int = -1  # of a result
    noise: Rounded = (0.0, 0.0, 0.0)
    ignored: Array | None = None  # entries that may be anything; None: none
    got: Array | None = None  # what the step has
    distance: Distance = NOWHERE

    def __post_init__(self) -> None:
        """Takes from float64 what rounding explains, and forgets the rest of it."""
        if self.exact is None:
            return
        finite, is_exactly = np.isfinite(self.value), np.isfinite(self.exact)
        sure = finite & is_exactly
        if not sure.all():
            # Where rounding decides whether a number is one, anything may be.
            self.ignored = finite != is_exactly
        rest = np.zeros_like(sure) if self.unsure is None else sure & self.unsure
        with np.errstate(all="ignore"):
            apart = self.value - self.exact
            self.noise = (*sizes(apart[sure & ~rest]), sizes(apart[rest])[0])
        self.exact = None

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.value).all())

    def compare(self, array: Array) -> None:
        """Notes how far what a step has is from the program's."""
        self.got = self.decode(array)
        self.distance = distance(
            self.got, self.value, self.before, self.unsure, self.ignored
        )

    def share_of_one(self, bounds: Bounds) -> float:
        """Returns how much of what is allowed one entry is away, at most.

        Optimizers divide by what gradients were: an error of a gradient moves an entry
        by as much as that is smaller than the largest one more.
        """
        largest = _share(self.distance.sure[0], bounds[1])
        if largest <= 1 or self.gradient is None or self.got is None:
            return largest
        weighted, most = products(self.got, self.value, self.gradient, self.unsure)
        apart = self.distance.sure[0]
        allowed = max(_share(weighted, most * bounds[1]), _share(apart, bounds[2]))
        return allowed if allowed <= 1 else largest

    def take_noise(self, known: dict[str, Noise], is_exact: bool) -> None:
        """Takes what rounding makes of a tensor from a run before, or tells later ones."""
        if self.coarsest is None:
            self.coarsest = self.epsilon
        if is_exact:
            known[self.name] = self.noise, self.distance.change[1], self.coarsest
            return
        none = (0.0, 0.0, 0.0), 0.0, self.coarsest
        (one, every, rest), change, self.coarsest = known.get(self.name, none)
        times = 2 * max(1.0, self.distance.change[1] / change) if change else 2.0
        self.noise = times * one, times * every, times * rest

    def learn(self, other: Expected, is_first: bool) -> None:
        """Takes what rounding explains in another run, the first or one more."""
        if is_first:
            self.noise, self.coarsest = other.noise, other.coarsest
            self.unsure, self.ignored = other.unsure, other.ignored
            return
        one, every, rest = map(max, self.noise, other.noise)
        self.noise = one, every, rest
        self.unsure = _either(self.unsure, other.unsure)
        self.ignored = _either(self.ignored, other.ignored)

    @property
    def group(self) -> str:
        """What has numbers of one size: parameters, or one kind of state."""
        return self.name.rpartition(".")[2] if self.kind == "state" else self.kind


@dataclass
class Rerun:
    """What a program left behind, and what it did besides."""

    is_exact: bool = False  # whether what rounding explains is known
    has_random: bool = False
    draws_alike: bool = True
    expected: list[Expected] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # optimizers that stepped
    drawn: list[str] = field(default_factory=list)  # generators outside of the framework
    # Of a program that is a function: what else it reads, if a difference is of that.
    outside: Callable[[], str] | None = None
    # What the program's own step took, if that says how fast it is without a check.
    seconds: float | None = None
    doubt: str = ""  # why its gradients may be masked otherwise
    instead: str = ""  # how they are masked for sure

    def refine(self, exact: Rerun) -> None:
        """Takes what rounding explains from another run of the same call.

        The values stay those of this run: what a program keeps outside of its step
        may make them others in that one.
        """
        found = {e.name: e for e in exact.expected}
        for expected in self.expected:
            if (other := found.get(expected.name)) is not None:
                expected.learn(other, is_first=not self.is_exact)
        self.is_exact = True

    @property
    def is_finite(self) -> bool:
        """Whether the loss is a number: one that a metric is not says nothing of a step."""
        results = [e for e in self.expected if e.kind == "result"]
        losses = [e for e in results if e.name == "loss"]
        return all(e.is_finite for e in losses or results)


@dataclass
class Difference:
    """A tensor of a step that is not the program's."""

    expected: Expected
    distance: float
    bound: float

    def __str__(self) -> str:
        e = self.expected
        if np.isnan(self.distance):
            return f"NaN in '{e.name}', where the program has numbers"
        return (
            f"'{e.name}' {self.distance:.2g} away, of which rounding explains"
            f" {self.bound:.2g}"
        )


class Check:
    """Which runs are checked: the first ones, and the first after an update of patterns.

    Args:
      runs: how many of the first runs.
      program: what ran before the export.
      updates: whether to check the run after an update of patterns, too.
    """

    def __init__(self, runs: int, program: Program, updates: bool = True) -> None:
        self._program = program
        self._left, self._runs = runs, runs
        # 1 of an update that no run has followed, then 2
        self._patterns = 0 if updates else 2
        self._worst, self._seconds, self._done = 0.0, 0.0, 0
        self._times: list[tuple[float, float]] = []  # of the step, and of the program
        self._known: dict[str, Noise] = {}
        self._compared = False
        self._call: Call | None = None  # that has begun

    @property
    def is_done(self) -> bool:
        """Whether no later run will be checked."""
        return self._left == 0 and self._patterns == 2

    def patterns_change(self) -> None:
        """Notes an update of patterns."""
        self._patterns = self._patterns or 1

    def begin(self, call: Callable[[], Call]) -> Rerun | None:
        """Runs the program, if the coming run is to be checked."""
        if not self._left and self._patterns != 1:
            return None
        if self._patterns == 1:
            self._patterns = 2
        start = time.perf_counter()
        self._call = dataclasses.replace(call(), is_exact=False)
        rerun = self._run(self._call)
        self._seconds += time.perf_counter() - start
        return rerun

    def _run(self, call: Call) -> Rerun | None:
        """Runs the program; later runs are unchecked if that cannot be done."""
        try:
            rerun = self._program.rerun(call)
        except StepError:
            raise
        except Exception as error:
            # What the program does to be run beside its step may be new to us.
            reason = str(error) if isinstance(error, Unchecked) else _first_line(error)
            warnings.warn(f"the step runs unchecked: {reason}", stacklevel=6)
            rerun = None
        if rerun is None:
            self._left, self._patterns = 0, 2
            return None
        if not rerun.is_finite:
            rerun.expected.clear()  # The program itself has no numbers left.
        return rerun

    def end(
        self, rerun: Rerun, outputs: Sequence[Array], seconds: float | None = None
    ) -> None:
        """Raises `StepError` if a run of the step did not do what the program did.

        Of a run that took `seconds`, if that says how fast the step is.
        """
        start = time.perf_counter()
        self._done += 1
        if seconds is not None and rerun.seconds is not None:
            self._times.append((seconds, rerun.seconds))
        call, self._call = self._call, None
        assert call is not None
        self._compared |= bool(rerun.expected)
        share, differences = self._compare(rerun, outputs, call)
        for attempt in range(_ATTEMPTS):
            if not differences:
                break
            # What rounding explains decides.
            exact = self._run(dataclasses.replace(call, is_exact=True, attempt=attempt))
            if exact is None:
                return
            rerun.refine(exact)
            share, differences = self._compare(rerun, outputs, call)
        self._worst = max(self._worst, share)
        if differences and rerun.doubt and not (rerun.outside and rerun.outside()):
            warnings.warn(
                f"the step runs unchecked: {rerun.doubt}, and it has {differences[0]}:"
                f" {rerun.instead}",
                stacklevel=4,
            )
            self._left, self._patterns = 0, 2
            return
        if differences:
            raise StepError(_sentence(self._done, rerun, differences))
        self._left = max(self._left - 1, 0)
        self._seconds += time.perf_counter() - start
        self._report(is_last=self._left == 0)

    def _compare(
        self, rerun: Rerun, outputs: Sequence[Array], call: Call
    ) -> tuple[float, list[Difference]]:
        """Returns how much of what is allowed a step is from the program, and where it
        is more."""
        for expected in rerun.expected:
            place, name = expected.place, expected.name
            expected.compare(outputs[place] if place >= 0 else call.state.now(name))
            expected.take_noise(self._known, rerun.is_exact)
        worst = 0.0
        differences: list[Difference] = []
        for expected, bounds in _bounds(rerun.expected):
            share, difference = _difference(expected, bounds)
            worst = max(worst, share)
            if difference is not None:
                differences.append(difference)
        return worst, differences

    def _report(self, is_last: bool) -> None:
        """Says what the check cost, and that it held."""
        if not is_last or not self._compared:
            return
        runs = "first run" if self._done == 1 else f"first {self._done} runs"
        which = runs if self._done <= self._runs else "run behind an update of patterns"
        _say.line(
            f"the {which} did what the program does, at most {self._worst:.1%} of what"
            f" is allowed away from it; the check took {self._seconds:.2g} s{self._speed()}"
        )
        self._worst = self._seconds = 0.0
        self._times.clear()

    def _speed(self) -> str:
        """Says how fast the step was beside the program, of more runs than the first, which
        touches new memory."""
        if len(self._times) < 2:
            return ""
        own, other = map(min, zip(*self._times))
        if own < _LEAST_TIMED:
            return ""
        return (
            f"; the fastest of {len(self._times)} runs took {own:.2g} s, the program's own"
            f" with dense weights {other:.2g} s: {other / own:.2g} times as fast"
        )


def unsure(
    gradients: Mapping[str, Array],
    exact: Mapping[str, Array] | None,
    coarsest: float,
    noise: dict[str, float],
) -> dict[str, Array | None]:
    """Returns which entries of gradients are nothing but rounding; None: none.

    Args:
      gradients: of parameters, by name, the entries that are stored.
      exact: the same in float64, if they were computed.
      coarsest: the roundoff of the coarsest type of the program.
      noise: what is known of the gradients of earlier runs, and kept for later ones.
    """
    found: dict[str, Array | None] = {}
    known = {name: sizes(gradient) for name, gradient in gradients.items()}
    largest = max((size for size, _ in known.values()), default=0.0)
    for name, gradient in gradients.items():
        if exact is not None:
            with np.errstate(all="ignore"):
                apart = np.abs(exact[name] - gradient)
            # Below that, what an optimizer divides by its size is unsure.
            times = 4.0 if coarsest > 1e-4 else 1000.0
            noise[name] = times * sizes(apart)[1]
        # Until more is known: a hundredth of the others.
        least = noise[name] if name in noise else 0.01 * known[name][1]
        found[name] = at_most(gradient, max(least, 1e-6 * largest))
        if exact is not None:
            is_apart = apart >= 0.25 * np.abs(gradient)
            found[name] = is_apart if found[name] is None else is_apart | found[name]
    return found


def _bounds(expected: Sequence[Expected]) -> Iterator[tuple[Expected, Bounds]]:
    """Yields how far each tensor may be from the program's."""
    largest: dict[str, float] = {}
    changes: dict[str, float] = {}
    groups = [e.group for e in expected]
    for e, group in zip(expected, groups):
        largest[group] = max(largest.get(group, 0.0), e.distance.size)
        changes[group] = max(changes.get(group, 0.0), e.distance.change[0])
    for e, group in zip(expected, groups):
        coarsest = e.coarsest or 0.0
        if not e.epsilon:
            count = 1 + 0.05 * e.distance.size if coarsest > 1e-4 else 0.0
            one = 4 * e.noise[0] + count
            yield e, (one, one, one)
            continue
        share = max(_SHARE, 8 * coarsest)
        # The least that counts beside the largest of its kind.
        least = 8 * coarsest if e.kind == "result" else 8 * e.epsilon * largest[group]
        change = e.distance.change
        every = _TIMES * e.noise[1] + share * change[1] + least
        one = _TIMES * e.noise[0] + max(share, _SHARE_OF_ONE) * change[0] + least
        yield e, (every, one, one + 4 * changes[group] + _TIMES * e.noise[2])


def _difference(expected: Expected, bounds: Bounds) -> tuple[float, Difference | None]:
    """Returns how much of what is allowed a tensor is from the program's, and more."""
    found = expected.distance
    if not found.is_number:
        return float("inf"), Difference(expected, float("nan"), bounds[1])
    worst: tuple[float, Difference | None] = (0.0, None)
    for share, apart, bound in (
        (_share(found.sure[1], bounds[0]), found.sure[1], bounds[0]),
        (expected.share_of_one(bounds), found.sure[0], bounds[1]),
        (_share(found.unsure, bounds[2]), found.unsure, bounds[2]),
    ):
        if share > worst[0]:
            worst = (share, Difference(expected, apart, bound) if share > 1 else None)
    return worst


def _share(apart: float, bound: float) -> float:
    return apart / bound if bound else (float("inf") if apart else 0.0)


def _sentence(run: int, rerun: Rerun, differences: Sequence[Difference]) -> str:
    return (
        f"expected run {run} of the step to do what the program does, but got"
        f" {differences[0]}: {_cause(run, rerun, differences)}; check=0 trains without this"
        " comparison"
    )


_MISTAKE = "that is a mistake of sparse-opt: report the program"
_OUTSIDE = (
    "the program keeps state outside of its model and optimizer (a counter, an average,"
    " random numbers of Python), which the step has as it was at the"
    " export: make it a buffer of the model or a part of the batch"
)


def _cause(run: int, rerun: Rerun, differences: Sequence[Difference]) -> str:
    """Returns the kind of cause that fits."""
    if rerun.others:
        return (
            f"another optimizer ({rerun.others[0]}) steps in the program, which did not at"
            " the export: let it step each time, or export a step for each case"
        )
    if rerun.drawn:
        return (
            f"the program draws random numbers from {rerun.drawn[0]}, which the step has"
            " as they were at the export: put them into the batch, or use the framework's"
        )
    if not rerun.draws_alike:
        return (
            "the program draws other random numbers than it did at the export: let it"
            " draw the same ones in each step"
        )
    if rerun.outside is not None and (text := rerun.outside()):
        return text
    if any(np.isnan(d.distance) for d in differences):
        return _MISTAKE
    if rerun.outside is None and run > 1:
        return _OUTSIDE
    names = {d.expected.name for d in differences}
    agree = [e for e in rerun.expected if e.name not in names]
    is_of_marks = all(d.expected.is_marked for d in differences) or (
        differences[0].expected.kind == "result"
        and differences[0].expected.place > 0
        and any(e.is_marked for e in rerun.expected)
    )
    if is_of_marks and any(e.kind == "result" for e in agree):
        return (
            "a gradient of a marked weight is not masked as docs/optimizers.md defines it:"
            " take the mark from that weight, or report the program"
        )
    if rerun.outside is not None:
        return _MISTAKE
    if rerun.has_random:
        return (
            "random numbers of the step are of another source than the program's, or it"
            " keeps state outside of its model and optimizer: report the program if it"
            " does not"
        )
    return _OUTSIDE + ", or report the program if it has none"


def _either(one: Array | None, other: Array | None) -> Array | None:
    """Returns the entries that are in one of two arrays; None: none."""
    return other if one is None else one if other is None else one | other


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def require_memory(size: int) -> None:
    """Raises `Unchecked` if there is less memory free than a check takes."""
    try:
        with open("/proc/meminfo") as file:
            free = next(int(line.split()[1]) for line in file if "MemAvailable" in line) << 10
    except (OSError, StopIteration, ValueError):
        return
    if size > free:
        raise Unchecked(
            f"the check takes about {size / 2**30:.1f} GiB of memory, of which"
            f" {free / 2**30:.1f} are free"
        )
