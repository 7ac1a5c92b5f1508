# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Activations of a model that its layers of blocks compute.

"""Finds where a module applies an activation to the result of a layer and to nothing else.

`torch.nn.Sequential` calls its modules in turn. Of other modules the source of `forward` says it:

    h = self.up(h)
    h = self.act(h)           # or self.act(self.up(h))

where nothing else in their classes reads `self.up` or `self.act`.
"""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sparse_opt.torch._layers import Blocks, Linear

# By the names of classes of transformers.activations: the same functions in several operations.
_TRANSFORMERS = {
    "GELUActivation": "gelu", "NewGELUActivation": "gelu_tanh", "FastGELUActivation": "gelu_tanh",
    "GELUTanh": "gelu_tanh", "SiLUActivation": "silu",
}  # fmt: skip


def _name_of(activation: Any) -> Any:
    """Returns the name that layers have for a module's function, or ''."""
    kind = type(activation)
    if kind is torch.nn.GELU:
        return "gelu" if activation.approximate == "none" else "gelu_tanh"
    if kind in (torch.nn.ReLU, torch.nn.SiLU):
        return str(kind.__name__.lower())
    return _TRANSFORMERS.get(kind.__name__, "") if kind.__module__ == "transformers.activations" else ""


class Fused(torch.nn.Module):
    """Stands where an activation was that a layer computes now, and returns what it is given."""

    def __init__(self, layer: Linear, activation: torch.nn.Module) -> None:
        super().__init__()
        # In a tuple, so that it has no modules: both are elsewhere, or were.
        self._both = layer, activation

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"{self._both[0].activation} is in the layer"


_HOOKS = (
    "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip


def has_hooks(module: torch.nn.Module) -> bool:
    """Returns whether something is called before or after a module."""
    return any(getattr(module, kind, None) for kind in _HOOKS)


def fuse(model: torch.nn.Module) -> int:
    """Lets the layers of a model compute the activations that are applied to their results;
    returns how many."""
    places = collections.Counter(id(m) for _, m in model.named_modules(remove_duplicate=False))
    count = 0
    for module in list(model.modules()):
        for first, second in _pairs(module):
            layer, activation = (module._modules.get(name) for name in (first, second))
            if (
                isinstance(layer, Linear)
                and not layer.activation
                and activation is not None
                and (name := _name_of(activation))
                and places[id(layer)] == places[id(activation)] == 1
                and not has_hooks(activation)
            ):
                layer.activation = name
                setattr(module, second, Fused(layer, activation))
                count += 1
    return count


def part(model: torch.nn.Module) -> None:
    """Gives a model the activations back."""
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if isinstance(child, Fused):
                layer, activation = child._both
                layer.activation = ""
                setattr(module, name, activation)


def _pairs(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """Yields the names of modules within one, the second of which is called with the result of
    the first, and nothing else is."""
    if type(module) is torch.nn.Sequential:
        names = list(module._modules)
        yield from zip(names, names[1:])
    elif "forward" not in vars(module) and any(isinstance(m, Blocks) for m in module.children()):
        kind: Any = type(module)
        yield from _pairs_of(kind)


@functools.cache
def _pairs_of(kind: Any) -> list[tuple[str, str]]:
    """Returns the pairs that the source of a class shows."""
    own = kind.__mro__[: kind.__mro__.index(torch.nn.Module)]
    try:
        trees = [ast.parse(textwrap.dedent(inspect.getsource(base))) for base in own]
        forward = ast.parse(textwrap.dedent(inspect.getsource(kind.forward)))
    except (AttributeError, OSError, TypeError, SyntaxError):
        return []
    reads = collections.Counter(
        name for tree in trees for node in ast.walk(tree) if (name := _attribute(node))
    )
    found = []
    for node in ast.walk(forward):
        if second := _called(node):
            # self.act(self.up(h))
            if first := _called(node.args[0]):  # type: ignore[attr-defined]
                found.append((first, second))
        for field in ("body", "orelse"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                found.extend(filter(None, map(_in_turn, statements, statements[1:])))
    return [pair for pair in found if all(reads[name] == 1 for name in pair)]


def _in_turn(one: ast.stmt, other: ast.stmt) -> tuple[str, str] | None:
    """Returns the pair of `h = self.up(...)` and `h = self.act(h)`."""
    if not isinstance(one, ast.Assign) or not isinstance(other, ast.Assign):
        return None
    first, second = _called(one.value), _called(other.value)
    targets = [*one.targets, *other.targets]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    if not first or not second or len(targets) != 2 or len(names) != 1:
        return None
    given = other.value.args[0]  # type: ignore[attr-defined]
    return (first, second) if isinstance(given, ast.Name) and given.id in names else None


def _called(node: Any) -> str:
    """Returns the attribute of `self` that an expression calls with one argument, or ''."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        return _attribute(node.func)
    return ""


def _attribute(node: Any) -> str:
    """Returns the attribute of `self` that an expression reads, or ''."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return node.attr
    return ""
