# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step reads and writes: the tensors of its program, by their names.

"""The arguments of a step.

They are tensors of the model, the optimizer and the batch, each with a name that
no other has and a role that says who holds its next value.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.data
from torch.utils import _pytree as pytree

from sparse_opt import _marks
from sparse_opt._errors import ExportError
from sparse_opt.torch import _optimizer, _optimizers, _private

# The roles of what a step may write.
CARRIED = ("param", "state", "buffer", "constant")
INPUTS = ("batch", "lr", "seed", "apply")


@dataclass
class Argument:
    """A tensor that the step reads: its place, and where its next value is."""

    name: str
    role: str
    value: torch.Tensor
    aliases: Sequence[str] = ()
    result: int | None = None


def arguments_of(
    model: torch.nn.Module,
    optimizers: _optimizers.Optimizers,
    batch: Any,
    counters: Sequence[_optimizer.Counter],
    scheduled: Sequence[_optimizer.Scheduled] = (),
) -> Iterator[Argument]:
    """Yields what the step reads, in the order of the graph's placeholders."""
    aliases = _aliases(model)
    for name, p in model.named_parameters():
        yield Argument(name, "param", p.detach(), aliases.get(name, ()))
    for name, tensors in _optimizer.initial_state(model, optimizers).items():
        for key, value in tensors.items():
            yield Argument(f"optimizer.{name}.{key}", "state", value)
    for name, value in _optimizer.counters_of(optimizers, counters).items():
        yield Argument(name, "state", value)
    for name, number in _optimizer.schedule_of(optimizers, scheduled).items():
        yield Argument(name, "constant", _optimizer.tensor_of(number))
    saved = _private.saved_buffers(model)
    for name, buffer in model.named_buffers():
        role = "buffer" if name in saved else "constant"
        yield Argument(name, role, buffer.detach())
    for name, (module, key) in attributes_of(model).items():
        yield Argument(name, "constant", module.__dict__[key].detach())
    for name, value in batch_leaves(batch):
        if isinstance(value, torch.Tensor):
            yield Argument(name, "batch", value.detach())
    yield Argument("lr", "lr", torch.tensor(_optimizer.rate_of(optimizers), dtype=_real()))
    yield Argument("seed", "seed", torch.tensor(0, dtype=torch.int32))


def weights_of(model: torch.nn.Module) -> Iterator[_marks.Weight]:
    """Yields what may be marked of a model."""
    for name, p in model.named_parameters():
        yield _marks.Weight(name, tuple(p.shape), str(p.dtype).removeprefix("torch."))


def _real() -> torch.dtype:
    """Returns the type of numbers that a call gives: the default, of 32 bits at least."""
    default = torch.get_default_dtype()
    return default if default.itemsize >= 4 else torch.float32


def attributes_of(model: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, str]]:
    """Returns where tensors are that modules keep in plain attributes.

    A tensor with a gradient is computed, as by `weight_norm` in front of each
    forward pass; one that is a parameter or a buffer, too, is found as that.
    """
    known = {id(t) for t in itertools.chain(model.parameters(), model.buffers())}
    return {
        f"{path}.{key}" if path else key: (module, key)
        for path, module in model.named_modules()
        for key, value in module.__dict__.items()
        # One that waits for what a step has is of another type meanwhile.
        if getattr(type(value), "_own_type", type(value)) is torch.Tensor
        and not value.requires_grad
        and id(value) not in known
        and value.layout == torch.strided
        and value.dtype in _DTYPES
        and not value.is_meta
        and value.numel()
    }


def unsaved_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the buffers that a `state_dict` leaves out, and plain attributes."""
    saved = _private.saved_buffers(model)
    return {
        **{n: b for n, b in model.named_buffers() if n not in saved},
        **{n: m.__dict__[key] for n, (m, key) in attributes_of(model).items()},
    }


def sums_of(model: torch.nn.Module) -> Iterator[Argument]:
    """Yields what the step of a micro-batch has besides."""
    for name, p in model.named_parameters():
        if p.requires_grad:
            if p._post_accumulate_grad_hooks:
                raise ExportError(
                    "expected gradients that nothing changes before they are summed,"
                    f" but got a hook behind the accumulation of '{name}': remove it,"
                    " or export without accumulate"
                )
            yield Argument(f"{SUM}{name}", "state", torch.zeros_like(p))
    yield Argument(COUNT, "state", torch.tensor(0.0, dtype=_real()))
    yield Argument("apply", "apply", torch.tensor(True))


# The sum of a parameter's gradients, and how many micro-batches it is of.
SUM, COUNT = "gradient.", "gradients"


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


def require_program(
    train_step: Any, model: Any, optimizer: Any, batch: Any
) -> None:
    """Raises `ExportError` if an argument of `export` is of the wrong kind."""
    rules = _optimizers.listed(optimizer) or [optimizer]
    for value, is_right, expected in (
        (train_step, callable(train_step), "a function as train_step"),
        (model, isinstance(model, torch.nn.Module), "a module as the model"),
        *(
            (rule, isinstance(rule, torch.optim.Optimizer), "an optimizer of torch.optim")
            for rule in rules
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


def require_function(function: Any, model: Any, batch: Any) -> None:
    """Raises `ExportError` if an argument of `export_function` is of the wrong kind."""
    for value, is_right, expected in (
        (function, callable(function), "a function"),
        (model, isinstance(model, torch.nn.Module), "a module as the model"),
    ):
        if not is_right:
            raise ExportError(
                f"expected {expected}, but got {_named(value)}:"
                " export_function(function, model, batch)"
            )
    if not any(True for _ in model.parameters()):
        raise ExportError("expected a model with parameters, but got one without any")
    if not any(isinstance(value, torch.Tensor) for _, value in batch_leaves(batch)):
        raise ExportError("expected a batch with tensors, but got one without any")


def _named(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else (
        f"a {type(value).__name__}"
    )


def require_tensors(arguments: Sequence[Argument]) -> None:
    """Raises `ExportError` if a tensor cannot be an argument of a compiled step."""
    for argument in arguments:
        tensor = argument.value
        if tensor.is_nested:
            raise ExportError(
                f"expected dense tensors, but got '{argument.name}', a nested one: give"
                " torch.nested.to_padded_tensor(x, 0.0), and a mask of what is padded"
            )
        if tensor.layout != torch.strided:
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


def require_distinct(arguments: Sequence[Argument]) -> None:
    seen = set()
    for argument in arguments:
        if argument.name in seen:
            raise ExportError(
                f"expected distinct names, but got '{argument.name}' twice: rename"
                " a parameter, a buffer or another tensor of a module, or a part of"
                " the batch"
            )
        seen.add(argument.name)


def structure_of(
    model: torch.nn.Module,
    optimizers: _optimizers.Optimizers,
    moving: Sequence[_optimizer.Counter | _optimizer.Scheduled],
) -> Any:
    """Returns what must not change after an export, comparable by `==`."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return (
        [(n, tuple(t.shape), t.dtype, t.requires_grad) for n, t in tensors],
        [m.training for m in model.modules()],
        copy.deepcopy(_optimizer.options_of(optimizers, moving)),
    )
