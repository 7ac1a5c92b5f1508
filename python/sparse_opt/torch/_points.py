# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Gradients in a trace, and what they are gradients at.

"""Traces of a step that show where it differentiates, and at what.

While a step is traced, the gradient of each parameter, and of what `functional_call` puts
in the place of one, goes through `GRADIENT`, which has the value as its second operand and
does nothing. torch-mlir has no form for it: `lower` makes an operation of it that no
program writes there, known by its place, and `rewrite` makes `bsr.gradient` of that.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch_mlir import ir

from sparse_opt.torch import _private

_LIBRARY: Any = torch.library.Library("sparse_opt", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define("gradient(Tensor gradient, Tensor at) -> Tensor")
_LIBRARY.impl("gradient", lambda g, _: g.clone(), "CompositeExplicitAutograd")
GRADIENT: Any = torch.ops.sparse_opt.gradient.default

MARK = "bsr.gradient"
_PLACE = "sparse_opt.gradient"
_STAND_IN: Any = torch.ops.aten.atan2.default


def _in_front(dims: Sequence[int | None], size: int, *tensors: Any) -> list[Any]:
    """Returns tensors with the dimension of `vmap` in front."""
    return [
        t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)
        for dim, t in zip(dims, tensors)
    ]


class _Gradient(torch.autograd.Function):
    """A gradient, and what it is one at."""

    @staticmethod
    def forward(gradient: Any, at: Any) -> Any:
        return GRADIENT(gradient, at)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Gradient.apply(gradient, *ctx.saved_tensors), None

    @staticmethod
    def jvp(ctx: Any, gradient: Any, _: Any) -> Any:
        return _Gradient.apply(gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, dims: Any, gradient: Any, at: Any) -> Any:
        inputs = _in_front(dims, info.batch_size, gradient, at)
        return _Gradient.apply(*inputs), 0


class _Argument(torch.autograd.Function):
    """A value that a function is differentiated at."""

    @staticmethod
    def forward(value: Any) -> Any:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Gradient.apply(gradient, *ctx.saved_tensors)

    @staticmethod
    def jvp(ctx: Any, gradient: Any) -> Any:
        return _Gradient.apply(gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, dims: Any, value: Any) -> Any:
        return _Argument.apply(value), dims[0]


@contextlib.contextmanager
def marked(
    model: torch.nn.Module, parameters: Mapping[str, torch.Tensor]
) -> Iterator[None]:
    """Has the gradients of a model's parameters marked, which are `parameters` meanwhile."""
    handles = [
        p.register_hook(functools.partial(_mark, p))  # type: ignore[no-untyped-call]
        for p in parameters.values()
        if p.requires_grad and p.is_floating_point()
    ]
    try:
        with _private.changed_calls(model, _argument):
            yield
    finally:
        for handle in handles:
            handle.remove()


def _mark(value: torch.Tensor, gradient: torch.Tensor) -> Any:
    return _Gradient.apply(gradient, value)


def _argument(_: torch.Tensor, tensor: torch.Tensor) -> Any:
    if not tensor.is_floating_point():
        return tensor
    return _Argument.apply(tensor)


def lower(graph: torch.fx.GraphModule) -> None:
    """Replaces marks by what torch-mlir has a form for."""
    place = ""  # that of the last node with one that is no mark
    for node in graph.graph.nodes:
        if node.target is GRADIENT:
            node.target = _STAND_IN
            node.meta["stack_trace"] = f'File "{_PLACE}", line 1, in step'
        else:
            # torch-mlir gives a node without a place that of the node in front.
            place = node.meta.get("stack_trace") or place
            node.meta["stack_trace"] = place


def is_mark(operation: Any) -> bool:
    """Returns whether torch-mlir made an operation of a mark."""
    return (
        operation.name == "linalg.generic"
        and f'"{_PLACE}"' in str(operation.location)
        and any(inner.name == "math.atan2" for inner in operation.regions[0].blocks[0])
    )


def rewrite(operation: Any) -> None:
    """Makes `bsr.gradient` of what stands in for it."""
    rank = ir.RankedTensorType(operation.results[0].type).rank
    maps = [ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))] * len(operation.operands)
    operation.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)
    block = operation.regions[0].blocks[0]
    # An operand that is there twice is one.
    gradient, at = block.arguments[0], block.arguments[len(block.arguments) - 2]
    *old, end = list(block.operations)
    with ir.InsertionPoint(end), ir.Location.unknown():
        mark = ir.Operation.create(
            MARK, results=[gradient.type], operands=[gradient, at]
        )
    end.operation.operands[0] = mark.result
    for other in reversed(old):
        other.operation.erase()
    operation.location = ir.Location.unknown()
