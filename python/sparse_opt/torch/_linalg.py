# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A graph of PyTorch operations becomes text that upstream MLIR reads.

"""From a graph to `linalg` on tensors, by way of torch-mlir.

torch-mlir is built against a newer LLVM: its bytecode is refused, its text is
accepted, except for the dialect `tm_tensor`, whose scatters become products
with one-hot matrices here, the form in which the compiler knows look-ups.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch_mlir.fx
from torch_mlir import ir, passmanager
from torch_mlir.compiler_utils import TorchMlirCompilerError
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import FxImporter

from sparse_opt import _progress
from sparse_opt._errors import ExportError
from sparse_opt._text import shorten_locations
from sparse_opt.torch import _calls, _nodes, _points
from sparse_opt.torch._capture import Capture
from sparse_opt.torch._interface import set_interface


def lower(
    capture: Capture, inits: Mapping[str, str], locations: bool
) -> str:
    """Returns the text of a captured step.

    Args:
      capture: the step.
      inits: `bsr.init` by the name of an argument.
      locations: keep the user's lines.
    """
    _progress.stage("import")
    graph = capture.graph
    assert graph is not None, "a step whose text was kept"
    _shorten_stacks(graph)
    _points.lower(graph)
    sites = _calls.cut(graph)
    module = _import(graph)
    _progress.stage("lower")
    with module.context, ir.Location.unknown():
        module.context.allow_unregistered_dialects = True
        _rewrite(module)
        _run(module, "inline,symbol-dce")
        _calls.splice(module, sites, _lowered)
        set_interface(module, capture, inits)
        _run(module, "canonicalize,cse")
        _require_upstream(module)
        _progress.stage("write")
        return _text(module, locations)


def _import(graph: torch.fx.GraphModule) -> ir.Module:
    """Returns the module that torch-mlir makes of a graph."""
    context = ir.Context()
    torch_dialect.register_dialect(context)
    messages: list[str] = []

    def note(diagnostic: Any) -> bool:
        messages.append(f"{diagnostic.location} {diagnostic.message}")
        return True

    handler = context.attach_diagnostic_handler(note)
    try:
        return torch_mlir.fx.stateless_fx_import(
            graph,
            output_type="linalg-on-tensors",
            fx_importer=FxImporter(context=context),
            model_name="step",
        )
    except (TorchMlirCompilerError, NotImplementedError, ValueError) as error:
        message = messages[0] if messages else str(error)
        raise ExportError(_explain(message, graph)) from error
    finally:
        handler.detach()


def _lowered(graph: torch.fx.GraphModule) -> ir.Module:
    """Returns the module of a function that a step calls."""
    _shorten_stacks(graph)
    module = _import(graph)
    with module.context, ir.Location.unknown():
        module.context.allow_unregistered_dialects = True
        _rewrite(module)
        _run(module, "inline,symbol-dce,canonicalize,cse")
    return module


def _run(module: ir.Module, pipeline: str) -> None:
    passmanager.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)


def _shorten_stacks(module: torch.fx.GraphModule) -> None:
    """Reduces each node's stack to the user's innermost line."""
    for node in module.graph.nodes:
        place = _nodes.place_of_node(node)
        node.meta["stack_trace"] = (
            f'File "{place[0]}", line {place[1]}, in step' if place else None
        )


_PLACE = re.compile(r'"([^"\s]+\.py)":(\d+)')


# What to write instead of an operation that has no form in linalg.
_INSTEAD = {
    "_linalg": "decompose matrices outside of the step",
    "embedding_renorm": "leave out max_norm, and scale the rows of the table",
    "grid_sampler": "use products with torch.relu(1 - (places - torch.arange(n)).abs()), the"
    " bilinear weights along one dimension of n",
    "index_reduce": "use scatter_reduce with an index for each element",
    "linalg": "decompose matrices outside of the step",
    "searchsorted": "use (x.unsqueeze(-1) > boundaries).sum(-1)",
}


def _instead(name: str) -> str:
    found = next((text for part, text in _INSTEAD.items() if name.startswith(part)), "")
    return found or "write it in terms of others"


def _explain(message: str, module: torch.fx.GraphModule) -> str:
    """Returns one sentence for torch-mlir's pages about an operation."""
    found = re.search(r"torch\.(?:aten|prims)\.(\w+)|aten[.:]+(\w+)", message)
    name = next((g for g in found.groups() if g), "") if found else ""
    place = _PLACE.search(message)
    where = f" at {place[1]}:{place[2]}" if place else ""
    if not where:
        for node in module.graph.nodes:
            if name and str(node.target).startswith(f"aten.{name}"):
                where = _nodes.line_of_node(node)
                break
    first = message.strip().splitlines()[0].rpartition(") ")[2]
    written = _written(place[1], int(place[2])) if place else ""
    got = f"'aten.{name}'" if name else f"'{written or first}'"
    return (
        f"expected operations that lower to linalg, but got {got}{where}: {_instead(name)}"
    )


def _written(file: str, line: int) -> str:
    """Returns a line of the user's program."""
    return linecache.getline(file, line).strip()


def _place(operation: Any) -> str:
    """Returns ` at FILE:LINE` of an operation, or ``."""
    found = _PLACE.search(str(operation.location))
    return f" at {found[1]}:{found[2]}" if found else ""


def _walk(operation: Any) -> Iterator[Any]:
    """Yields the operations below `operation`, inner ones first."""
    for region in operation.regions:
        for block in region:
            for child in list(block.operations):
                yield from _walk(child.operation)
                yield child.operation


def _rewrite(module: ir.Module) -> None:
    """Removes what upstream, or the compiler, has no use for."""
    scatters: dict[str, str] = {}
    for operation in list(_walk(module.operation)):
        if _points.is_mark(operation):
            _points.rewrite(operation)
        elif operation.name == "cf.assert":
            # The bounds of indices: a caller checks them at the border.
            operation.erase()
        elif operation.name == "arith.truncf":
            _fold_rounding(operation)
        elif operation.name == "tm_tensor.scatter":
            _replace_scatter(module, operation, scatters)


def _fold_rounding(operation: Any) -> None:
    """Rounds a constant: a Python number arrives in f64, inside every body."""
    source = operation.operands[0].owner
    if isinstance(source, ir.Block) or source.name != "arith.constant":
        return
    value = ir.FloatAttr(source.attributes["value"]).value
    type = operation.results[0].type
    with ir.InsertionPoint(operation):
        rounded = ir.Operation.create(
            "arith.constant",
            results=[type],
            attributes={"value": ir.FloatAttr.get(type, value)},
        )
    operation.results[0].replace_all_uses_with(rounded.result)
    operation.erase()


# Row n of the updates is added to the row of the sum that index n names; indices
# below 0 count from the end, as in the look-up whose gradient this is.
_SCATTER_ADD = """
func.func private @{name}(%indices: tensor<{N}x{K}x{I}>, %updates: tensor<{updates}x{T}>,
                          %init: tensor<{sum}x{T}>) -> tensor<{sum}x{T}> {{
  %zero = arith.constant 0.0 : {T}
  %one = arith.constant 1.0 : {T}
  %no_rows = tensor.empty() : tensor<{N}x{I}>
  %rows = linalg.generic {{
      indexing_maps = [{column_maps}, affine_map<(n) -> (n)>], iterator_types = ["parallel"]}}
      ins({columns} : {column_types}) outs(%no_rows : tensor<{N}x{I}>) {{
  ^bb0({column_arguments}, %out: {I}):
{linearize}
    linalg.yield %row : {I}
  }} -> tensor<{N}x{I}>
  %no_hits = tensor.empty() : tensor<{N}x{V}x{T}>
  %hits = linalg.generic {{
      indexing_maps = [affine_map<(n, v) -> (n)>, affine_map<(n, v) -> (n, v)>],
      iterator_types = ["parallel", "parallel"]}}
      ins(%rows : tensor<{N}x{I}>) outs(%no_hits : tensor<{N}x{V}x{T}>) {{
  ^bb0(%row: {I}, %out: {T}):
    %index = linalg.index 1 : index
    %v = arith.index_cast %index : index to {I}
    %equal = arith.cmpi eq, %v, %row : {I}
    %hit = arith.select %equal, %one, %zero : {T}
    linalg.yield %hit : {T}
  }} -> tensor<{N}x{V}x{T}>
{flatten}
  %sum = linalg.generic {{
      indexing_maps = [affine_map<(v, d, n) -> (n, v)>, affine_map<(v, d, n) -> (n, d)>,
                       affine_map<(v, d, n) -> (v, d)>],
      iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%hits, %flat : tensor<{N}x{V}x{T}>, tensor<{N}x{D}x{T}>)
      outs(%start : tensor<{V}x{D}x{T}>) {{
  ^bb0(%hit: {T}, %update: {T}, %acc: {T}):
    %product = arith.mulf %hit, %update : {T}
    %next = arith.addf %acc, %product : {T}
    linalg.yield %next : {T}
  }} -> tensor<{V}x{D}x{T}>
{unflatten}
  return %result : tensor<{sum}x{T}>
}}
"""


def _replace_scatter(
    module: ir.Module, operation: Any, functions: dict[str, str]
) -> None:
    """Replaces a scatter-add by a call of a product with a one-hot matrix."""
    body = [op.name for op in operation.regions[0].blocks[0].operations]
    mapped = list(ir.DenseI64ArrayAttr(operation.attributes["dimension_map"]))
    updates, indices, init = operation.operands
    if body != ["arith.addf", "tm_tensor.yield"] or mapped != list(range(len(mapped))):
        raise ExportError(
            "expected a scatter that adds floats along leading dimensions, but got"
            f" another one{_place(operation)}: use torch.where on the whole tensor"
        )
    text = _scatter_text(updates.type, indices.type, init.type)
    if text not in functions:
        functions[text] = f"scatter_add_{len(functions)}"
        function = ir.Operation.parse(
            text.replace("@NAME", f"@{functions[text]}"), context=module.context
        )
        for inner in _walk(function):
            inner.location = ir.Location.unknown(module.context)
        module.body.append(function)
    with ir.InsertionPoint(operation), operation.location:
        call = ir.Operation.create(
            "func.call",
            results=[init.type],
            operands=[indices, updates, init],
            attributes={"callee": ir.FlatSymbolRefAttr.get(functions[text])},
        )
    operation.results[0].replace_all_uses_with(call.result)
    operation.erase()


def _scatter_text(updates: Any, indices: Any, init: Any) -> str:
    updates, indices, init = (
        ir.RankedTensorType(t) for t in (updates, indices, init)
    )
    count, width = indices.shape
    shape = list(init.shape)
    lengths, rest = shape[:width], shape[width:]
    rows, columns = _product(lengths), _product(rest)
    element, index = str(init.element_type), str(indices.element_type)

    def sized(dims: list[int]) -> str:
        return "x".join(map(str, dims))

    # Index vectors count the leading dimensions row by row.
    linearize = []
    for i, length in enumerate(lengths):
        linearize += [
            f"    %l{i} = arith.constant {length} : {index}",
            f"    %n{i} = arith.cmpi slt, %c{i}, %none : {index}",
            f"    %e{i} = arith.addi %c{i}, %l{i} : {index}",
            f"    %i{i} = arith.select %n{i}, %e{i}, %c{i} : {index}",
        ]
        linearize += [
            f"    %m{i} = arith.muli %r{i - 1}, %l{i} : {index}",
            f"    %r{i} = arith.addi %m{i}, %i{i} : {index}",
        ] if i else [f"    %r0 = arith.addi %i0, %none : {index}"]
    linearize[0:0] = [f"    %none = arith.constant 0 : {index}"]
    last = f"%r{width - 1}"
    body = "\n".join(linearize).replace(last + " =", "%row =")
    to_flat = _reshape("%flat", "%updates", list(updates.shape), [count, columns], element)
    to_start = _reshape("%start", "%init", shape, [rows, columns], element)
    back = _reshape("%result", "%sum", [rows, columns], shape, element)
    return _SCATTER_ADD.format(
        name="NAME", N=count, K=width, I=index, T=element, V=rows, D=columns,
        updates=sized(list(updates.shape)), sum=sized(shape),
        column_maps=", ".join(f"affine_map<(n) -> (n, {i})>" for i in range(width)),
        columns=", ".join(["%indices"] * width),
        column_types=", ".join([f"tensor<{count}x{width}x{index}>"] * width),
        column_arguments=", ".join(f"%c{i}: {index}" for i in range(width)),
        linearize=body, flatten=to_flat + to_start, unflatten=back,
    )  # fmt: skip


def _product(lengths: list[int]) -> int:
    result = 1
    for length in lengths:
        result *= length
    return result


def _reshape(
    result: str, value: str, before: list[int], after: list[int], element: str
) -> str:
    """Returns the text that reshapes `value`, the dimensions of both in order."""
    old = f"tensor<{'x'.join(map(str, [*before, element]))}>"
    new = f"tensor<{'x'.join(map(str, [*after, element]))}>"
    if before == after:
        return f"  {result} = tensor.cast {value} : {old} to {new}\n"
    groups = _merge(before, after)
    if groups is not None:
        return f"  {result} = tensor.collapse_shape {value} {groups} : {old} into {new}\n"
    groups = _merge(after, before)
    if groups is not None:
        return (
            f"  {result} = tensor.expand_shape {value} {groups} output_shape {after} :"
            f" {old} into {new}\n"
        )
    name = result.removeprefix("%")
    return (
        f"  %{name}_shape = arith.constant dense<{after}> : tensor<{len(after)}xindex>\n"
        f"  {result} = tensor.reshape {value}(%{name}_shape) :"
        f" ({old}, tensor<{len(after)}xindex>) -> {new}\n"
    )


def _merge(long: list[int], short: list[int]) -> list[list[int]] | None:
    """Returns which dimensions of `long` are one of `short`, if each one is some."""
    groups: list[list[int]] = []
    rest = list(range(len(long)))
    for length in short:
        group = [rest.pop(0)] if rest else []
        while rest and _product([long[d] for d in group]) < length:
            group.append(rest.pop(0))
        if not group or _product([long[d] for d in group]) != length:
            return None
        groups.append(group)
    if not groups or any(long[d] != 1 for d in rest):
        return None
    groups[-1] += rest
    return groups


_UPSTREAM = {
    "affine", "arith", "builtin", "complex", "func", "linalg", "math", "scf", "tensor",
}  # fmt: skip


def _require_upstream(module: ir.Module) -> None:
    """Checks that no operation of a foreign dialect is left."""
    for operation in _walk(module.operation):
        if (
            operation.name.split(".")[0] not in _UPSTREAM
            and operation.name != _points.MARK
        ):
            place = _PLACE.search(str(operation.location))
            written = _written(place[1], int(place[2])) if place else ""
            raise ExportError(
                "expected operations that lower to linalg, but got"
                f" '{written or operation.name}'{_place(operation)}: write it in terms of"
                " others"
            )


def _text(module: ir.Module, locations: bool) -> str:
    for operation in _walk(module.operation):
        parent = operation.parent
        is_inner = parent is not None and parent.name.startswith("linalg.")
        if is_inner or operation.name == "func.func":
            operation.location = ir.Location.unknown()
    text = f"{module.operation.get_asm(enable_debug_info=locations)}\n"
    return shorten_locations(text) if locations else text
