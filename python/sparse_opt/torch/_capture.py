# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Traces one whole training step into one functional graph.

"""One training step as one graph without side effects.

The user's own step runs once on tensors without values, with traced tensors in
the place of parameters, buffers and optimizer state. A second trace makes its
writes values and decomposes its operations.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch.func import functionalize
from torch.nn.attention import SDPBackend, sdpa_kernel

from sparse_opt import _progress, _say, _source
from sparse_opt._errors import ExportError
from sparse_opt._outside import Outside
from sparse_opt.torch import (
    _arguments,
    _branches,
    _effects,
    _function,
    _gradients,
    _graph,
    _indices,
    _nodes,
    _optimizer,
    _optimizers,
    _private,
    _random,
    _recording,
)
from sparse_opt.torch.rewrites import _bytes, _constants, _decompositions, _orderings


@dataclass
class Recorded:
    """A step that has run once."""

    arguments: list[_arguments.Argument]
    known: _Known
    function: _function.StepFunction
    recording: _recording.Recording  # what the step did
    is_step: bool

    @property
    def optimizers(self) -> _optimizers.Optimizers:
        return self.known.optimizers

    @property
    def runs(self) -> int:
        """How often a graph has the step."""
        return 2 if self.function.changes else 1


@dataclass
class Traced:
    """A step as the graph of all that it did, writes and random numbers among it."""

    graph: torch.fx.GraphModule
    recorded: Recorded
    lookups: _indices.Lookups


@dataclass
class Capture:
    """A step as a graph, with what its arguments and results are."""

    graph: torch.fx.GraphModule | None  # None: its text was kept
    arguments: list[_arguments.Argument]
    results: list[tuple[str, str]]  # name and role
    unused: list[str]  # parameters that the step does not use
    returns: Any  # the structure of what the step returned
    output_types: list[torch.dtype]
    bounds: dict[str, _indices.Bound]  # of the integers of a batch tensor
    computed: _indices.Computed | None  # other indices
    counters: Sequence[_optimizer.Counter]  # numbers in groups that are arguments
    draws: int  # random operations
    scheduled: list[_optimizer.Scheduled]  # options that are arguments
    optimizers: _optimizers.Optimizers


def record(
    train_step: _function.TrainStep,
    model: torch.nn.Module,
    optimizer: Any,
    batch: Any,
    accumulate: bool = False,
    scheduled: Sequence[str] = (),
) -> Recorded:
    """Runs `train_step(model, optimizer, batch)` without values; changes none of the three.

    With `accumulate` it becomes the step of a micro-batch. The options that are
    `scheduled` become arguments.
    """
    known = _Known(_optimizers.Optimizers(optimizer), scheduled)
    if not all(map(_optimizer.is_own, known.optimizers.parts)):
        # A run of the whole step takes longer than what the optimizers do.
        known = _settled(functools.partial(_try, model, batch), known)[1]
    run = functools.partial(_record, train_step, model, batch, accumulate)
    return _settled(run, known)[0]


def record_function(function: Any, model: torch.nn.Module, batch: Any) -> Recorded:
    """Runs `function(model, batch)` without values and gradients; changes neither.

    An optimizer that does nothing is in the place of one.
    """
    optimizer = torch.optim.SGD(list(model.parameters()), lr=0.0)

    @functools.wraps(function, updated=())
    def run(model: torch.nn.Module, _: Any, batch: Any) -> Any:
        with torch.no_grad():
            return function(model, batch)

    _private.keep_lines_of(function)
    again = functools.partial(_record, run, model, batch, False, is_step=False)
    return _settled(again, _Known(_optimizers.Optimizers(optimizer)))[0]


@contextlib.contextmanager
def in_mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    """Has a model in the mode of training, or of evaluation, for a while."""
    modes = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@dataclass
class _Known:
    """What is known of a step, some of it by runs of it alone."""

    optimizers: _optimizers.Optimizers
    keys: Sequence[str] = ()  # of options that change between steps
    counters: Sequence[_optimizer.Counter] = ()  # numbers that are no constants
    branches: bool = False

    @functools.cached_property
    def scheduled(self) -> list[_optimizer.Scheduled]:
        """The options that change between steps."""
        return _optimizer.scheduled_of(self.optimizers, self.keys)


T = TypeVar("T")


def _settled(run: Callable[[_Known], T], known: _Known) -> tuple[T, _Known]:
    """Runs until nothing more comes to be known."""
    while True:
        try:
            return run(known), known
        except _function.Counted as error:
            known = replace(known, counters=[*known.counters, *error.counters])
        except _branches.Branched:
            known = replace(known, branches=True)
        except _effects.Another as error:
            another = known.optimizers.with_another(error.optimizer)
            known = replace(known, optimizers=another)


def _try(model: torch.nn.Module, batch: Any, known: _Known) -> None:
    """Runs what optimizers do, without a trace; a later one says what fails."""

    def train_step(model: torch.nn.Module, _: Any, batch: Any) -> torch.Tensor:
        for part in known.optimizers.parts:
            part.zero_grad()
            for group in part.param_groups:
                for p in group["params"]:
                    p.grad = torch.zeros_like(p) if p.requires_grad else None
            part.step()
        return torch.zeros(())

    function = _function_of(train_step, model, batch, known)
    with (
        _suppressed(),
        _private.compiling(),
        _effects.undone(*model.modules(), *known.optimizers.parts),
        _private.without_values([a.value for a in function.arguments]) as tensors,
    ):
        function.run(*tensors)


def _function_of(
    train_step: _function.TrainStep,
    model: torch.nn.Module,
    batch: Any,
    known: _Known,
    accumulate: bool = False,
    is_step: bool = True,
) -> _function.StepFunction:
    """Returns a step as a function of its arguments."""
    optimizers, counters, scheduled = known.optimizers, known.counters, known.scheduled
    arguments = list(
        _arguments.arguments_of(model, optimizers, batch, counters, scheduled)
    )
    if accumulate:
        arguments += _arguments.sums_of(model)
    _arguments.require_tensors(arguments)
    _arguments.require_distinct(arguments)
    return _function.StepFunction(
        train_step, model, optimizers, batch, arguments, counters, known.branches, is_step,
        scheduled,
    )  # fmt: skip


def _record(
    train_step: _function.TrainStep,
    model: torch.nn.Module,
    batch: Any,
    accumulate: bool,
    known: _Known,
    is_step: bool = True,
) -> Recorded:
    function = _function_of(train_step, model, batch, known, accumulate, is_step)
    arguments = list(function.arguments)  # Those that the step uses, in the end.
    _private.keep_lines_of(train_step)
    recording = _recording.Recording()
    _run_recorded(function, recording)
    return Recorded(arguments, known, function, recording, is_step)


def _run_recorded(
    function: _function.StepFunction, recording: _recording.Recording
) -> None:
    """Runs a step as a trace of it does, without a graph."""
    with _uncollected(), _ready(function), _private.as_traced(), recording:
        _run(recording.of(function.run), function.arguments)


def traced(recorded: Recorded) -> Traced:
    """Runs a step once more, for its graph. Raises `ExportError` if it does something
    else."""
    recording = _recording.Recording(is_traced=True)
    results = recorded.recording.results

    def run(function: _function.StepFunction) -> torch.fx.GraphModule:
        try:
            with _uncollected(), _ready(function), recording:
                own = recording.of(function.run)
                return _traced(own, function.arguments, results=results)
        except ExportError:
            require_alike(recorded)  # Where that has no error, it is one of the graph.
            raise

    graph = _again(recorded, recording, run)
    _graph.erase_profiling(graph)
    return Traced(graph, recorded, _graph.lookups_of(graph, recorded.arguments))


def decomposed(traced: Traced) -> Capture:
    """Makes what was traced a graph that lowers, linked with the step's arguments."""
    _progress.stage("decompose")
    recorded = traced.recorded
    arguments, function = recorded.arguments, recorded.function
    with _uncollected(), _ready(function):
        numbers = recorded.recording.numbers
        graph = _decomposed(traced.graph, arguments, numbers, recorded.runs)
    _nodes.erase_unused(graph.graph)
    if function.changes:
        _graph.require_equal_runs(graph, function.changes[0])
    _constants.fold(graph)
    _bytes.widen(graph)
    _graph.require_lowerable(graph)
    used = list(arguments)
    results = _graph.link(graph, used, len(function.output_types), recorded.is_step)
    changed = [name for name, role in results if role in _arguments.CARRIED]
    if changed and not recorded.is_step:
        raise ExportError(
            "expected a function that changes nothing of its model, but got one that"
            f" changes '{changed[0]}': leave out training=True"
        )
    if recorded.is_step and not any(role == "param" for _, role in results):
        raise ExportError(
            "expected a step that changes a parameter, but got one that changes none:"
            " call loss.backward() and optimizer.step() in it"
        )
    return capture_of(recorded, used, results, traced.lookups, graph)


def capture_of(
    recorded: Recorded,
    used: list[_arguments.Argument],
    results: list[tuple[str, str]],
    lookups: _indices.Lookups,
    graph: torch.fx.GraphModule | None,
) -> Capture:
    """Returns a step whose results are known, and which of its arguments it uses."""
    function, names = recorded.function, {a.name for a in used}
    for line in function.apart:
        _say.line(line)
    return Capture(
        graph,
        used,
        results,
        [a.name for a in recorded.arguments if a.role == "param" and a.name not in names],
        function.returns,
        function.output_types,
        lookups.bounds,
        lookups.computed,
        recorded.known.counters,
        len(recorded.recording.numbers) // recorded.runs,
        recorded.known.scheduled,
        recorded.optimizers,
    )


@contextlib.contextmanager
def _ready(function: _function.StepFunction) -> Iterator[None]:
    """Has a step run as it is traced, and leaves all that it changes as it was."""
    model, optimizers = function.model, function.optimizers
    with (
        sdpa_kernel(SDPBackend.MATH),
        _private.compiling(),
        _private.visible_buffer_writes(),
        _effects.undone(*model.modules(), *optimizers.objects),
        _gradients.kept(model),
        torch.random.fork_rng(devices=()),
    ):
        yield


def require_alike(recorded: Recorded) -> None:
    """Raises `ExportError` if a step does something else when it is traced again, by what
    it keeps outside of its model and optimizers. Warns of what it changes there."""
    recording = _recording.Recording(recorded.recording)

    def run(function: _function.StepFunction) -> None:
        try:
            _run_recorded(function, recording)
        except ExportError as error:
            raise ExportError(
                "expected a step that does the same each time, but got an error when it is"
                f" traced again: {error}"
            ) from error

    _again(recorded, recording, run)


def _again(
    recorded: Recorded,
    recording: _recording.Recording,
    run: Callable[[_function.StepFunction], T],
) -> T:
    """Runs a step again, and compares what it did."""
    known = torch.nn.Module, torch.optim.Optimizer
    before = Outside(recorded.function.train_step, known)
    with _effects.nothing_kept():
        function = recorded.function.again()
        result = run(function)
    line = _recording.place_of_difference(recorded.recording.trace, recording.trace)
    after = Outside(function.train_step, known)
    before.require_alike(after, line, "a buffer of the model or a part of the batch")
    return result


@contextlib.contextmanager
def _suppressed() -> Iterator[None]:
    """Ends quietly in an error that says nothing of numbers."""
    try:
        yield
    except (_function.Counted, _effects.Another):
        raise
    except Exception:
        pass


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps the garbage collector from walking over a growing graph again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _traced(
    function: Callable[..., Any],
    arguments: Sequence[_arguments.Argument],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    results: _private.Results | None = None,
) -> torch.fx.GraphModule:
    """Traces `function` of the arguments; errors name the user's line."""
    return _run(
        lambda *tensors: _private.traced(function, decompositions, tensors, results),
        arguments,
    )


def _run(
    function: Callable[..., T], arguments: Sequence[_arguments.Argument]
) -> T:
    """Runs `function` of the arguments without their values; errors name the user's line."""
    with _private.without_values([a.value for a in arguments]) as tensors:
        try:
            return function(*tensors)
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(_explain(error)) from error


def _functional(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """Returns `module` with values for its writes, each node's line kept."""
    return functionalize(_decompositions.Gradients(module).run, remove="mutations")


# Parts of a message of PyTorch's, what it means, and what to do instead.
_EXPLANATIONS = (
    (
        ("one_hot without",),
        "shapes that do not depend on data",
        "one_hot without a number of classes",
        "write F.one_hot(x, num_classes=n)",
    ),
    (
        (
            "aten._local_scalar_dense", "data-dependent", "aten.equal", "item()",
            "__format__", ".numpy() is not supported",
        ),
        "a step whose control flow does not depend on data",
        "a tensor read as a number",
        "keep it a tensor (torch.where instead of if, loss.detach() instead of"
        " loss.item())",
    ),
    (
        ("_pack_padded_sequence",),
        "shapes that do not depend on data",
        "pack_padded_sequence",
        "run the layer on padded sequences, and drop what is behind their ends with"
        " torch.where; a direction that begins at the ends needs a layer on"
        " sequences that are turned around",
    ),
    (
        ("_ctc_loss",),
        "shapes that do not depend on data",
        "ctc_loss",
        "write its sums over alignments, step by step of time, with torch.logaddexp",
    ),
    (
        ("nonzero", "dynamic shape", "DynamicOutputShape", "masked_select", "unique"),
        "shapes that do not depend on data",
        "an operation whose result depends on values",
        "use torch.where on the whole tensor: torch.where(mask, x, 0).sum() for"
        " x[mask].sum(), divided by mask.sum() for a mean",
    ),
    (
        ("does not require grad",),
        "a loss that depends on trained parameters",
        "one without a gradient",
        "take no_grad() and detach() away from it",
    ),
    (
        ("found at least two devices",),
        "all tensors on one device",
        "two",
        "move the model and the example of a batch there before the export, and"
        " nothing in the step",
    ),
    (
        ("convert all Tensors to FakeTensors",),
        "a step that reads only its model, optimizer and batch",
        "another tensor",
        "register it as a buffer of the model (another model, as a teacher or an"
        " average of weights, as a submodule) or put it into the batch",
    ),
)


def _explain(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    line = _source.line_of_error(error.__traceback__)
    if nested := _nested_function(error.__traceback__):
        return (
            f"expected dense tensors, but got {nested}{line}: pad sequences to one length,"
            " as torch.nn.utils.rnn.pad_sequence does, and mask what is padded"
        )
    for parts, expected, got, instead in _EXPLANATIONS:
        if any(part in text for part in parts):
            return f"expected {expected}, but got {got}{line}: {instead}"
    first = text.splitlines()[0]
    return f"expected a step that PyTorch can trace, but got '{first}'{line}"


def _nested_function(trace: TracebackType | None) -> str:
    """Returns the function of `torch.nested` that an error is of, or ''. Each of them
    fails in its own way without values."""
    for frame, _ in traceback.walk_tb(trace):
        if frame.f_code.co_filename == torch.nested.__file__:
            return f"torch.nested.{frame.f_code.co_name}"
    return ""


def _decomposed(
    module: torch.fx.GraphModule,
    arguments: Sequence[_arguments.Argument],
    numbers: Sequence[int],
    runs: int,
) -> torch.fx.GraphModule:
    """Makes writes values, and decomposes operations: random ones into arithmetic on
    the seed and their `numbers`, which are those of the first run in each of the runs
    of the step."""
    place = next(i for i, a in enumerate(arguments) if a.role == "seed")
    count = sum(map(_random.is_random, module.graph.nodes))
    if len(numbers) != count:  # In the branches of a condition are others.
        numbers = range(1, count + 1)
    sites = itertools.cycle(numbers[: count // runs])
    random = _random.decompositions(arguments[place].value, sites)

    # Random numbers need the traced seed, which exists only inside the trace.
    traced: dict[Any, Callable[..., Any]] = {}

    def run(*tensors: torch.Tensor) -> Any:
        traced.update(_random.decompositions(tensors[place], sites))
        return _functional(module)(*tensors)

    def deferred(operation: Any) -> Callable[..., Any]:
        return lambda *args, **options: traced[operation](*args, **options)

    table = {**_decompositions.table(), **{op: deferred(op) for op in random}}
    graph = _traced(run, arguments, table)
    for node in graph.graph.nodes:
        if _random.is_random(node):
            raise ExportError(
                "expected random numbers that are functions of uniform ones (dropout,"
                " rand, randn, randint, randperm of at most"
                f" {_orderings.MOST_ORDERED}, exponential, multinomial), but got"
                f" '{node.target}'{_nodes.line_of_node(node)}:"
                " make them outside of the step and put them into the batch"
            )
    return graph
