# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Integers and truth values that are the same everywhere.

"""Folds what a program computes of constants, in PyTorch.

torch-mlir folds comparisons and integer arithmetic of tensors that hold one number to
other values.
"""

from __future__ import annotations

from typing import Any

import torch

from sparse_opt.torch import _nodes

aten = torch.ops.aten

_FILLED: dict[Any, int | None] = {
    aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0,
    aten.zeros.default: None, aten.zeros_like.default: None,
    aten.ones.default: None, aten.ones_like.default: None,
}  # fmt: skip
_RESHAPED = {
    aten.view.default, aten.reshape.default, aten.expand.default, aten.clone.default,
    aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.slice.Tensor, aten.select.int, aten.permute.default, aten.transpose.int,
    aten.alias.default, aten.detach.default, aten.t.default, aten._unsafe_view.default,
}  # fmt: skip


def fold(module: torch.fx.GraphModule) -> None:
    """Replaces integers and truth values that are one number by that number."""
    known: dict[torch.fx.Node, torch.Tensor] = {}
    for node in list(module.graph.nodes):
        if node.target is aten.eq.Tensor and node.args[0] is node.args[1]:
            _keep_nan(module.graph, node)
        value = _value_of(module, node, known)
        if value is None:
            continue
        known[node] = value
        if value.dtype.is_floating_point or node.op == "get_attr" or node.target in _FILLED:
            continue
        shape = list(node.meta["val"].shape)
        with module.graph.inserting_before(node):
            constant = module.graph.call_function(
                aten.full.default, (shape, value.item()), {"dtype": value.dtype}
            )
        constant.meta = dict(node.meta)
        known[constant] = value
        node.replace_all_uses_with(constant)
    _nodes.erase_unused(module.graph)


def _keep_nan(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Makes `x == x` the opposite of `x != x`, which torch-mlir does not fold."""
    with graph.inserting_after(node):
        opposite = graph.call_function(aten.logical_not.default, (node,))
    opposite.meta = dict(node.meta)
    node.replace_all_uses_with(opposite, lambda user: user is not opposite)
    node.target = aten.ne.Tensor


def _value_of(
    module: torch.fx.GraphModule, node: torch.fx.Node, known: dict[torch.fx.Node, torch.Tensor]
) -> torch.Tensor | None:
    """Returns the number that all elements of a node are, one element per dimension."""
    if node.op == "get_attr":
        return _number_of(getattr(module, str(node.target)))
    like = node.meta.get("val")
    if node.op != "call_function" or not isinstance(like, torch.Tensor):
        return None
    shape, dtype = [1] * like.dim(), like.dtype
    if node.target in _FILLED:
        return _filled(node, shape, dtype)
    inputs = node.all_input_nodes
    if not inputs or any(n not in known for n in inputs):
        return None
    if node.target in _RESHAPED:
        return known[inputs[0]].reshape(shape)
    if node.target is aten._to_copy.default:
        return known[inputs[0]].to(dtype)
    tags = getattr(node.target, "tags", ())
    if torch.Tag.pointwise not in tags or torch.Tag.nondeterministic_seeded in tags:
        return None
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: known[n])
    operation: Any = node.target
    result = operation(*args, **kwargs)
    is_like = isinstance(result, torch.Tensor) and result.dtype == dtype
    return result if is_like else None


def _filled(
    node: torch.fx.Node, shape: list[int], dtype: torch.dtype
) -> torch.Tensor | None:
    place = _FILLED[node.target]
    number: Any = int("ones" in str(node.target)) if place is None else node.args[place]
    return torch.full(shape, number, dtype=dtype) if not isinstance(number, torch.fx.Node) else None


def _number_of(constant: Any) -> torch.Tensor | None:
    if not isinstance(constant, torch.Tensor) or not constant.numel():
        return None
    first = constant.reshape(-1)[0]
    is_one = bool((constant == first).all())
    return first.reshape([1] * constant.dim()).clone() if is_one else None
