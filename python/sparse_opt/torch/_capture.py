# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Traces one whole training step into one functional graph.

"""One training step as one graph without side effects.

The user's own step runs once on tensors without values, with traced tensors in
the place of parameters, buffers and optimizer state. A second trace makes its
writes values and decomposes its operations.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.data
from torch.func import functionalize
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from sparse_opt import _source
from sparse_opt._errors import ExportError
from sparse_opt.torch import (
    _decompositions,
    _effects,
    _indices,
    _nodes,
    _optimizer,
    _private,
    _random,
)

aten = torch.ops.aten

# The roles of what a step may write.
_CARRIED = ("param", "state", "buffer", "constant")
_INPUTS = ("batch", "lr", "seed", "apply")

TrainStep = Callable[[torch.nn.Module, torch.optim.Optimizer, Any], Any]


@dataclass
class Argument:
    """A tensor that the step reads: its place, and where its next value is."""

    name: str
    role: str
    value: torch.Tensor
    aliases: Sequence[str] = ()
    result: int | None = None


@dataclass
class Capture:
    """A step as a graph, with what its arguments and results are."""

    graph: torch.fx.GraphModule
    arguments: list[Argument]
    results: list[tuple[str, str]]  # name and role
    unused: list[str]  # parameters that the step does not use
    returns: Any  # the structure of what the step returned
    output_types: list[torch.dtype]
    bounds: dict[str, _indices.Bound]  # of the integers of a batch tensor
    computed: _indices.Computed | None  # other indices
    counters: list[_optimizer.Counter]  # numbers in groups that are arguments


def capture(
    train_step: TrainStep,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any,
    accumulate: bool = False,
) -> Capture:
    """Traces `train_step(model, optimizer, batch)`; changes none of the three.

    With `accumulate` it becomes the step of a micro-batch.
    """
    _require_program(train_step, model, optimizer, batch)
    try:
        return _capture(train_step, model, optimizer, batch, accumulate, [])
    except _Counts as error:
        # Only a trace tells which numbers are no constants.
        return _capture(
            train_step, model, optimizer, batch, accumulate, error.counters
        )


class _Counts(ExportError):
    """A step changes numbers in an optimizer's groups."""

    def __init__(self, counters: list[_optimizer.Counter]) -> None:
        super().__init__(f"expected numbers that stay, but got {counters}")
        self.counters = counters


def _capture(
    train_step: TrainStep,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any,
    accumulate: bool,
    counters: list[_optimizer.Counter],
) -> Capture:
    arguments = list(_arguments(model, optimizer, batch, counters))
    if accumulate:
        arguments += _sums(model)
    _require_tensors(arguments)
    _require_distinct(arguments)
    trace = _Trace(train_step, model, optimizer, batch, arguments, counters)
    _private.keep_lines_of(train_step)
    with (
        sdpa_kernel(SDPBackend.MATH),
        _private.compiling(),
        _private.visible_buffer_writes(),
        _effects.undone(*model.modules(), optimizer),
    ):
        graph = _traced(trace.run, arguments)
        _erase_profiling(graph)
        bounds, computed = _index_bounds(graph, arguments)
        graph = _decomposed(graph, arguments, runs=2 if trace.changes else 1)
    graph.graph.eliminate_dead_code()
    graph = _private.merge_equal_nodes(graph)
    if trace.changes:
        _require_equal_runs(graph, trace.changes[0])
    _require_lowerable(graph)
    parameters = [a.name for a in arguments if a.role == "param"]
    results = _link(graph, arguments, len(trace.output_types))
    used = {a.name for a in arguments}
    if not any(role == "param" for _, role in results):
        raise ExportError(
            "expected a step that changes a parameter, but got one that changes none:"
            " call loss.backward() and optimizer.step() in it"
        )
    return Capture(
        graph,
        arguments,
        results,
        [name for name in parameters if name not in used],
        trace.returns,
        trace.output_types,
        bounds,
        computed,
        counters,
    )


def _arguments(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any,
    counters: Sequence[_optimizer.Counter],
) -> Iterator[Argument]:
    """Yields what the step reads, in the order of the graph's placeholders."""
    aliases = _aliases(model)
    for name, p in model.named_parameters():
        yield Argument(name, "param", p.detach(), aliases.get(name, ()))
    for name, tensors in _optimizer.initial_state(model, optimizer).items():
        for key, value in tensors.items():
            yield Argument(f"optimizer.{name}.{key}", "state", value)
    for name, value in _optimizer.counters_of(optimizer, counters).items():
        yield Argument(name, "state", value)
    saved = model.state_dict()
    for name, buffer in model.named_buffers():
        role = "buffer" if name in saved else "constant"
        yield Argument(name, role, buffer.detach())
    for name, (module, key) in _attributes(model).items():
        yield Argument(name, "constant", module.__dict__[key].detach())
    for name, value in batch_leaves(batch):
        if isinstance(value, torch.Tensor):
            yield Argument(name, "batch", value.detach())
    yield Argument("lr", "lr", torch.tensor(_optimizer.rate_of(optimizer)))
    yield Argument("seed", "seed", torch.tensor(0, dtype=torch.int32))


def _attributes(model: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, str]]:
    """Returns where tensors are that modules keep in plain attributes.

    A tensor with a gradient is computed, as by `weight_norm` in front of each
    forward pass; one that is a parameter or a buffer, too, is found as that.
    """
    known = {id(t) for t in itertools.chain(model.parameters(), model.buffers())}
    return {
        f"{path}.{key}" if path else key: (module, key)
        for path, module in model.named_modules()
        for key, value in module.__dict__.items()
        if type(value) is torch.Tensor
        and not value.requires_grad
        and id(value) not in known
        and value.layout == torch.strided
        and value.dtype in _DTYPES
        and not value.is_meta
        and value.numel()
    }


def unsaved_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the buffers that a `state_dict` leaves out, and plain attributes."""
    saved = model.state_dict()
    return {
        **{n: b for n, b in model.named_buffers() if n not in saved},
        **{n: m.__dict__[key] for n, (m, key) in _attributes(model).items()},
    }


def _sums(model: torch.nn.Module) -> Iterator[Argument]:
    """Yields what the step of a micro-batch has besides."""
    for name, p in model.named_parameters():
        if p.requires_grad:
            if p._post_accumulate_grad_hooks:
                raise ExportError(
                    "expected gradients that nothing changes before they are summed,"
                    f" but got a hook behind the accumulation of '{name}': remove it,"
                    " or export without accumulate"
                )
            yield Argument(f"{_SUM}{name}", "state", torch.zeros_like(p))
    yield Argument(_COUNT, "state", torch.tensor(0.0))
    yield Argument("apply", "apply", torch.tensor(True))


# The sum of a parameter's gradients, and how many micro-batches it is of.
_SUM, _COUNT = "gradient.", "gradients"


def flatten(batch: Any) -> tuple[list[Any], Any]:
    """Returns the leaves of a batch and its structure."""
    _know_mappings(batch)
    return pytree.tree_flatten(batch)


def _know_mappings(batch: Any) -> None:
    """Lets PyTorch take mappings apart that are no dictionaries, such as those that
    tokenizers return."""
    if isinstance(batch, Mapping):
        if type(batch) not in pytree.SUPPORTED_NODES and not isinstance(batch, dict):
            _private.know_mapping(type(batch))
        for value in batch.values():
            _know_mappings(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            _know_mappings(value)


def batch_leaves(batch: Any) -> list[tuple[str, Any]]:
    """Returns the leaves of a batch and their dotted names."""
    _know_mappings(batch)
    leaves, _ = pytree.tree_flatten_with_path(batch)
    names = []
    for path, value in leaves:
        parts = [
            str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))
            for key in path
        ]
        names.append((".".join(["batch", *parts]), value))
    return names


def _aliases(model: torch.nn.Module) -> dict[str, list[str]]:
    """Returns the other names of tied weights by their first one."""
    first: dict[int, str] = {}
    aliases: dict[str, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        if id(p) in first:
            aliases.setdefault(first[id(p)], []).append(name)
        else:
            first[id(p)] = name
    return aliases


def _require_program(
    train_step: Any, model: Any, optimizer: Any, batch: Any
) -> None:
    """Raises `ExportError` if an argument of `export` is of the wrong kind."""
    for value, is_right, expected in (
        (train_step, callable(train_step), "a function as train_step"),
        (model, isinstance(model, torch.nn.Module), "a module as the model"),
        (
            optimizer,
            isinstance(optimizer, torch.optim.Optimizer),
            "an optimizer of torch.optim",
        ),
    ):
        if not is_right:
            raise ExportError(
                f"expected {expected}, but got {_named(value)}: export(train_step,"
                " model, optimizer, batch)"
            )
    for name, p in model.named_parameters():
        if torch.nn.parameter.is_lazy(p):
            raise ExportError(
                f"expected parameters with shapes, but got '{name}' of a lazy module:"
                " run the model on a batch once"
            )
    for name, value in batch_leaves(batch):
        if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__next__"):
            raise ExportError(
                f"expected '{name}' to be a tensor, but got {_named(value)}: give an"
                " example of a batch, with torch.from_numpy for NumPy's arrays"
            )
    if isinstance(batch, torch.utils.data.DataLoader):
        raise ExportError(
            "expected an example of a batch, but got a DataLoader: give"
            " next(iter(loader))"
        )


def _named(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else (
        f"a {type(value).__name__}"
    )


def _require_tensors(arguments: Sequence[Argument]) -> None:
    """Raises `ExportError` if a tensor cannot be an argument of a compiled step."""
    for argument in arguments:
        tensor = argument.value
        if tensor.layout != torch.strided or tensor.is_nested:
            raise ExportError(
                f"expected dense tensors, but got '{argument.name}' of layout"
                f" {tensor.layout}: call its to_dense()"
            )
        if tensor.dtype not in _DTYPES:
            raise ExportError(
                f"expected '{argument.name}' of a type that compiled steps hold, but"
                f" got {tensor.dtype}: they hold {', '.join(map(str, _DTYPES))}"
            )
        if tensor.is_meta:
            raise ExportError(
                f"expected tensors with values, but got '{argument.name}' on the meta"
                " device: materialize it, as with model.to_empty(device='cpu')"
            )
        if not tensor.numel():
            raise ExportError(
                "expected tensors with elements, but got shape"
                f" {tuple(tensor.shape)} for '{argument.name}': leave it out"
            )


_DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64,
    torch.int32, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip


def _require_distinct(arguments: Sequence[Argument]) -> None:
    seen = set()
    for argument in arguments:
        if argument.name in seen:
            raise ExportError(
                f"expected distinct names, but got '{argument.name}' twice: rename"
                " a parameter, a buffer or another tensor of a module, or a part of"
                " the batch"
            )
        seen.add(argument.name)


class _Trace:
    """The user's step as a function of a flat list of tensors."""

    def __init__(
        self,
        train_step: TrainStep,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        batch: Any,
        arguments: Sequence[Argument],
        counters: Sequence[_optimizer.Counter],
    ) -> None:
        self.train_step = train_step
        self.model = model
        self.optimizer = optimizer
        self.batch = batch
        self.arguments = arguments
        self.numbers = {a.name for a in arguments if _optimizer.is_number(a.value)}
        self.output_types: list[torch.dtype] = []
        self.changes: list[_effects.Change] = []
        self.counts: list[_effects.Change] = []
        self.returns: Any = None
        self.names = _optimizer.parameter_names(model, optimizer)
        self.counters = {c: _optimizer.name_of(c) for c in counters}
        self.attributes = _attributes(model)
        # Those that are parameters or buffers as well.
        named = itertools.chain(model.named_parameters(), model.named_buffers())
        known = {id(tensor): name for name, tensor in named}
        self.same = [
            (module, key, known[id(value)])
            for module in model.modules()
            for key, value in module.__dict__.items()
            if id(value) in known
        ]

    def run(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Runs the step; returns the next values of what it may write, then its
        outputs.

        A step that changes attributes runs twice: the results of the second time,
        behind the others, tell whether it depends on them.
        """
        results = self._run_once(tensors)
        if not self.changes:
            return results
        changes = self.changes
        again = self._run_once(tensors)
        counts = {str(change) for change in self.counts}
        _effects.require_none([c for c in changes if str(c) in counts] or self.counts)
        self.changes = changes
        return [*results, *again]

    def _run_once(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        # A write must not reach an argument: the copy takes it.
        values = {
            a.name: t if a.role in _INPUTS else t.clone()
            for a, t in zip(self.arguments, tensors)
        }
        given = {a.name: t for a, t in zip(self.arguments, tensors)}
        named = {
            role: {a.name: values[a.name] for a in self.arguments if a.role == role}
            for role in ("param", "buffer", "constant")
        }
        params = named["param"]
        buffers = {**named["buffer"], **named["constant"]}
        for name, p in self.model.named_parameters():
            _take_place(params[name], p)
        totals = _summed(params, values) if "apply" in values else {}
        state = self._state(values)
        with (
            _private.tensors_of(self.model, {**params, **buffers}),
            _optimizer.swapped(
                self.optimizer,
                self.names,
                params,
                state,
                values["lr"],
                {c: values[name] for c, name in self.counters.items()},
            ),
            _watched(self.model, self.optimizer) as cleared,
            _optimizer.TensorFactors(),
        ):
            for name, (module, key) in self.attributes.items():
                module.__dict__[key] = values[name]
            for module, key, name in self.same:
                module.__dict__[key] = values[name]
            groups = [dict(group) for group in self.optimizer.param_groups]
            draws = _effects.random_states()
            before = _effects.Attributes(self.model, self.optimizer)
            returned = self.train_step(self.model, self.optimizer, self._batch(values))
            _effects.require_no_draws(draws)
            if counters := _optimizer.counted(self.optimizer, groups):
                raise _Counts(counters)
            for (i, key), name in self.counters.items():
                group = self.optimizer.param_groups[i]
                number = torch.as_tensor(group[key]).to(torch.float64)
                group[key], values[name] = values[name], number
            self._read_attributes(values)
            after_all = _effects.Attributes(self.model, self.optimizer)
            self.changes = list(before.changes(after_all))
            self.counts = list(before.counts(after_all))
            after = {
                name: dict(self.optimizer.state[params[name]])
                for name in state
            }
            # A buffer may be written, or another tensor put in its place.
            for name, buffer in self.model.named_buffers(remove_duplicate=False):
                if name in buffers:
                    values[name] = buffer
            left = [n for n, p in params.items() if p.grad is not None]
        if left and not cleared:
            raise ExportError(
                "expected a step that clears the gradients, but got those of"
                f" '{left[0]}' left over: call optimizer.zero_grad() in it"
            )
        if values["lr"]._version:
            raise ExportError(
                "expected a step that leaves the learning rate alone, but got one that"
                " changes it: call scheduler.step() behind the step"
            )
        outputs = self._outputs(returned)
        self.output_types = [output.dtype for output in outputs]
        next_values = dict(values)
        for name, tensors_after in after.items():
            for key, value in tensors_after.items():
                full = f"optimizer.{name}.{key}"
                if full in self.numbers:
                    value = torch.as_tensor(value).to(torch.float64)
                if full in values:
                    next_values[full] = value
        if "apply" in values:
            self._wait(given, next_values, totals)
        carried = [
            next_values[a.name].detach()
            for a in self.arguments
            if a.role in _CARRIED
        ]
        return [*carried, *outputs]

    def _read_attributes(self, values: dict[str, torch.Tensor]) -> None:
        """Takes the tensors that a step left in attributes for their next values.

        Where it left something else the attribute is none: another run of the
        step tells whether it reads what the one before it left.
        """
        for name, (module, key) in list(self.attributes.items()):
            old, new = values[name], module.__dict__.get(key)
            if (
                isinstance(new, torch.Tensor)
                and new.shape == old.shape
                and new.dtype == old.dtype
            ):
                module.__dict__[key], values[name] = old, new
            else:
                del self.attributes[name]

    def _wait(
        self,
        given: Mapping[str, torch.Tensor],
        next_values: dict[str, torch.Tensor],
        totals: Mapping[str, torch.Tensor],
    ) -> None:
        """Leaves what an optimizer changes alone until the last micro-batch."""
        apply = given["apply"]
        for argument in self.arguments:
            name = argument.name
            if argument.role not in ("param", "state"):
                continue
            if name == _COUNT:
                new, old = torch.zeros_like(given[name]), given[name] + 1
            elif name.removeprefix(_SUM) in totals and name.startswith(_SUM):
                old = totals[name.removeprefix(_SUM)]
                new = torch.zeros_like(old)
            else:
                new, old = next_values[name].detach(), given[name]
            next_values[name] = torch.where(apply, new, old)

    def _state(self, values: Mapping[str, torch.Tensor]) -> _optimizer.State:
        state: _optimizer.State = {}
        for name in self.names.values():
            prefix = f"optimizer.{name}."
            tensors = {
                key: value
                for full, value in values.items()
                if full.startswith(prefix)
                and "." not in (key := full.removeprefix(prefix))
            }
            if tensors:
                state[name] = tensors
        return state

    def _batch(self, values: Mapping[str, torch.Tensor]) -> Any:
        leaves = [values.get(name, leaf) for name, leaf in batch_leaves(self.batch)]
        return pytree.tree_unflatten(leaves, pytree.tree_structure(self.batch))

    def _outputs(self, returned: Any) -> list[torch.Tensor]:
        """Checks what the step returned: a loss, and perhaps metrics."""
        leaves, self.returns = pytree.tree_flatten(returned)
        for leaf in leaves or [None]:
            if not isinstance(leaf, torch.Tensor):
                raise ExportError(
                    "expected a step that returns its loss as a tensor, but got"
                    f" {type(leaf).__name__}: return loss.detach()"
                )
        if leaves[0].numel() != 1:
            raise ExportError(
                "expected a loss of shape (), but got"
                f" {tuple(leaves[0].shape)}: return its mean"
            )
        return [leaf.detach() for leaf in leaves]


def _summed(
    params: Mapping[str, Any], values: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Makes gradients the means over micro-batches; returns their sums, once they are
    known."""
    totals: dict[str, torch.Tensor] = {}
    count = values[_COUNT] + 1

    def add(name: str, p: torch.Tensor) -> None:
        if name in totals:
            raise ExportError(
                "expected one backward() in the step of a micro-batch, but got another"
                f" that reaches '{name}': add the losses"
            )
        assert p.grad is not None
        totals[name] = values[f"{_SUM}{name}"] + p.grad
        p.grad = (totals[name] / count).to(p.dtype)

    for name, p in params.items():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(functools.partial(add, name))
    return totals


def _take_place(traced: Any, p: torch.Tensor) -> None:
    """Gives a traced tensor what the parameter `p` has, its hooks too."""
    traced.requires_grad_(p.requires_grad)
    traced.__dict__.update(p.__dict__)
    for hook in (p._backward_hooks or {}).values():
        traced.register_hook(hook)
    for hook in (p._post_accumulate_grad_hooks or {}).values():
        traced.register_post_accumulate_grad_hook(hook)


class _watched:
    """Tells whether gradients were cleared while a step ran."""

    def __init__(self, *objects: Any) -> None:
        self.objects = objects
        self.calls: list[str] = []

    def __enter__(self) -> list[str]:
        for thing in self.objects:
            clear = thing.zero_grad

            def noted(*args: Any, _clear: Any = clear, **options: Any) -> None:
                self.calls.append("zero_grad")
                _clear(*args, **options)

            thing.__dict__["zero_grad"] = noted
        return self.calls

    def __exit__(self, *error: Any) -> None:
        for thing in self.objects:
            del thing.__dict__["zero_grad"]


def _traced(
    function: Callable[..., Any],
    arguments: Sequence[Argument],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> torch.fx.GraphModule:
    """Traces `function` of the arguments; errors name the user's line."""
    trace = _private.make_fx(
        function,
        decomposition_table=decompositions,
        tracing_mode="real",
        record_stack_traces=True,
    )
    with (
        torch.fx.traceback.preserve_node_meta(),
        _private.without_values([a.value for a in arguments]) as tensors,
    ):
        try:
            return trace(*tensors)
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(_explain(error)) from error


def _functional(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """Returns `module` with values for its writes, each node's line kept."""
    return functionalize(torch.fx.Interpreter(module).run, remove="mutations")


# Parts of a message of PyTorch's, what it means, and what to do instead.
_EXPLANATIONS = (
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
        ("nonzero", "dynamic shape", "DynamicOutputShape", "masked_select", "unique"),
        "shapes that do not depend on data",
        "an operation whose result depends on values",
        "use torch.where on the whole tensor",
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
    for parts, expected, got, instead in _EXPLANATIONS:
        if any(part in text for part in parts):
            return f"expected {expected}, but got {got}{line}: {instead}"
    first = text.splitlines()[0]
    return f"expected a step that PyTorch can trace, but got '{first}'{line}"


def _erase_profiling(module: torch.fx.GraphModule) -> None:
    """Erases the `record_function` around `optimizer.step`."""
    for node in reversed(list(module.graph.nodes)):
        if getattr(node.target, "namespace", "") == "profiler":
            module.graph.erase_node(node)


def _require_equal_runs(module: torch.fx.GraphModule, change: _effects.Change) -> None:
    """Raises `ExportError` if two runs of a step in one graph return different values.
    Keeps the results of the first."""
    numbers = _value_numbers(module)
    output = next(n for n in module.graph.nodes if n.op == "output")
    values = list(output.args[0])
    first, second = values[: len(values) // 2], values[len(values) // 2 :]
    if [numbers[n] for n in first] != [numbers[n] for n in second]:
        raise ExportError(
            "expected a step that does the same each time, but got one that depends on"
            f" {change}, which it sets: register it as a buffer of the module, or run"
            " the step once before the export if that sets it once and for all"
        )
    output.args = (first,)
    module.graph.eliminate_dead_code()


def _value_numbers(module: torch.fx.GraphModule) -> dict[torch.fx.Node, int]:
    """Returns a number for each node, equal where values are."""
    numbers: dict[torch.fx.Node, int] = {}
    known: dict[Any, int] = {}
    for node in module.graph.nodes:
        if node.op == "output":
            continue
        source = _uncopied(node)
        if source is not node:
            numbers[node] = numbers[source]
            continue
        key: Any = (node.op, node.target)
        if node.op == "call_function":
            arguments = torch.fx.map_arg(
                (node.args, node.kwargs), lambda n: ("node", numbers[n])
            )
            key = (node.target, repr(arguments))
        elif node.op == "get_attr":
            constant = getattr(module, str(node.target))
            key = (str(constant.dtype), repr(constant.tolist()))
        numbers[node] = known.setdefault(key, len(known))
    return numbers


def _decomposed(
    module: torch.fx.GraphModule, arguments: Sequence[Argument], runs: int
) -> torch.fx.GraphModule:
    """Makes writes values, and decomposes operations: random ones into arithmetic on
    the seed, equal in each of the runs of the step."""
    place = next(i for i, a in enumerate(arguments) if a.role == "seed")
    per_run = sum(map(_random.is_random, module.graph.nodes)) // runs
    numbers = [*range(1, per_run + 1)] * runs if runs > 1 else itertools.count(1)
    sites = iter(numbers)
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
                "expected random numbers from dropout, bernoulli, rand or randn,"
                f" but got '{node.target}'{_nodes.line_of_node(node)}:"
                " make them outside of the step and put them into the batch"
            )
    return graph


def _require_lowerable(module: torch.fx.GraphModule) -> None:
    """Raises `ExportError` for what torch-mlir accepts and then fails on."""
    for node in module.graph.nodes:
        name = str(node.target).partition(".default")[0]
        if node.target in _ORDERINGS:
            raise ExportError(
                "expected orderings of at most"
                f" {_decompositions.MOST_ORDERED} elements, but got '{name}'"
                f"{_nodes.line_of_node(node)}: do it outside of the step"
            )
        if node.target in _PRODUCTS:
            types = {
                operand.meta["val"].dtype
                for operand in node.args
                if isinstance(operand, torch.fx.Node)
            }
            if len(types) > 1:
                raise ExportError(
                    "expected factors of one type, but got"
                    f" {' and '.join(sorted(map(str, types)))} in '{name}'"
                    f"{_nodes.line_of_node(node)}: convert one with .to()"
                )


_ORDERINGS = {
    aten.sort.default, aten.sort.stable, aten.topk.default, aten.kthvalue.default,
}  # fmt: skip
_PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default}


def _index_bounds(
    module: torch.fx.GraphModule, arguments: Sequence[Argument]
) -> tuple[dict[str, _indices.Bound], _indices.Computed | None]:
    """Returns where the indices of look-ups have to lie."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    output = next(n for n in module.graph.nodes if n.op == "output")
    carried = [n for n, a in zip(placeholders, arguments) if a.role in _CARRIED]
    unchanged = {n for n, v in zip(carried, output.args[0]) if _uncopied(v) is n}
    names, constants = {}, {}
    for node, argument in zip(placeholders, arguments):
        if argument.role == "batch":
            names[node] = argument.name
        elif argument.role in ("buffer", "constant") and node in unchanged:
            constants[node] = argument.value
    return _indices.bounds_of(module, names, constants)


def _link(
    module: torch.fx.GraphModule, arguments: list[Argument], num_outputs: int
) -> list[tuple[str, str]]:
    """Links arguments to their next values; drops what the step does not use.

    A value that the step does not change is no result. An argument that it
    neither reads nor changes is none.
    """
    output = next(n for n in module.graph.nodes if n.op == "output")
    values = list(output.args[0])
    carried = [a for a in arguments if a.role in _CARRIED]
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    node_of = {a.name: n for a, n in zip(arguments, placeholders)}

    kept: list[torch.fx.Node] = []
    results: list[tuple[str, str]] = []
    for argument, value in zip(carried, values):
        if _uncopied(value) is node_of[argument.name]:
            continue
        argument.result = len(kept)
        kept.append(value)
        results.append((argument.name, argument.role))
    kept += values[len(carried) :]
    results.append(("loss", "loss"))
    results += [(f"metrics.{i}", "metric") for i in range(1, num_outputs)]
    output.args = (kept,)

    module.graph.eliminate_dead_code()
    for argument in list(arguments):
        node = node_of[argument.name]
        is_input = argument.role in ("lr", "batch")
        if not node.users and argument.result is None and not is_input:
            module.graph.erase_node(node)
            arguments.remove(argument)
    return results


def _uncopied(node: torch.fx.Node) -> torch.fx.Node:
    """Returns what `node` is a copy of."""
    copies = (aten.clone.default, aten.detach.default, aten.alias.default)
    while node.op == "call_function" and node.target in copies:
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        node = source
    return node


def structure_of(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    counters: Sequence[_optimizer.Counter],
) -> Any:
    """Returns what must not change after an export, comparable by `==`."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return (
        [(n, tuple(t.shape), t.dtype, t.requires_grad) for n, t in tensors],
        [m.training for m in model.modules()],
        copy.deepcopy(_optimizer.options_of(optimizer, counters)),
    )
