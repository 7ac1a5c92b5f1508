# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lowers StableHLO, as JAX exports it, to `linalg` on tensors.

"""StableHLO to linalg, for whole training steps.

Upstream's `stablehlo-legalize-to-linalg` does most of it. What it has no
lowering for, or one that hides what the compiler must see, is rewritten here
first. Each rewrite states its result.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Literal

from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from sparse_opt._errors import ExportError
from sparse_opt._source import is_user_file
from sparse_opt._text import shorten_locations
from sparse_opt.jax import _points
from sparse_opt.jax._build import (
    Value,
    create,
    empty,
    generic,
    is_unsigned,
    place_of,
    rewrite_all,
    tensor_type,
    walk,
)
from sparse_opt.jax._control import (
    lower_case,
    lower_concatenate,
    lower_pad,
    lower_while,
    move_empty_slice,
)
from sparse_opt.jax._interface import set_interface
from sparse_opt.jax._lookups import lower_gather, lower_scatter
from sparse_opt.jax._scatters import lower_any_scatter
from sparse_opt.jax._sorts import lower_reduce, lower_sort
from sparse_opt.jax._top_k import lower_top_k
from sparse_opt.jax._traced import inline_calls

_SCOPE = re.compile(r'"([^"]*)"(?!:\d)')
_LINE = re.compile(r'"([^"]*)":(\d+):(\d+)')

# The dialects that may be left.
_UPSTREAM = {"arith", "builtin", "func", "linalg", "math", "scf", "tensor"}
# Where the program computes something again, and where it differentiates.
_BARRIER, _GRADIENT = "bsr.barrier", "bsr.gradient"

# Whoever looks at an operation makes MLIR's bindings import a module of its dialect,
# and try again each time if there is none: most of an export's time without this.
for _dialect in (*_UPSTREAM, "bsr"):
    _module = f"jaxlib.mlir.dialects.{_dialect}"
    if importlib.util.find_spec(_module) is None:
        sys.modules.setdefault(_module, types.ModuleType(_module))


def lower(
    text: str,
    arguments: Sequence[Mapping[str, str | int]],
    results: Sequence[Mapping[str, str | int]],
    locations: bool | Literal["scopes"],
) -> str:
    """Returns the step `text`, a StableHLO module, as linalg on tensors.

    Args:
      text: the module, whose function `main` is the step.
      arguments: the attributes of the arguments of the step.
      results: the attributes of its results.
      locations: whether to keep the names of scopes, and lines, as locations.

    Raises:
      ExportError: an operation has no lowering.
    """
    has_lines = locations != "scopes"
    stablehlo.register_stablehlo_passes()
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        # A run of the pass loads the dialects that the rewrites build.
        _run(ir.Module.create(), "func.func(stablehlo-legalize-to-linalg)")
        module = ir.Module.parse(text)
        inline_calls(module)
        _simplify_locations(module, has_lines)
        rewrite_all(module, "chlo.top_k", lower_top_k)
        _run(module, "symbol-dce,func.func(chlo-legalize-to-stablehlo)")
        rewrite_all(module, "stablehlo.case", lower_case)
        rewrite_all(module, "stablehlo.while", lower_while)
        rewrite_all(module, "stablehlo.sort", lower_sort)
        rewrite_all(module, "stablehlo.scatter", lower_scatter)
        rewrite_all(module, "stablehlo.scatter", lower_any_scatter)
        rewrite_all(module, "stablehlo.gather", lower_gather)
        rewrite_all(module, "stablehlo.reduce", lower_reduce)
        rewrite_all(module, "stablehlo.pad", lower_pad)
        rewrite_all(module, "stablehlo.slice", move_empty_slice)
        rewrite_all(module, "stablehlo.concatenate", lower_concatenate)
        _run(module, "func.func(stablehlo-legalize-to-linalg)")
        _make_signless(module)
        module.context.allow_unregistered_dialects = True
        rewrite_all(module, "stablehlo.optimization_barrier", _lower_barrier)
        rewrite_all(module, "stablehlo.custom_call", _lower_gradient)
        rewrite_all(module, "sdy.sharding_constraint", _operands_of)
        _run(module, "canonicalize,cse,symbol-dce")
        _drop_meshes(module)
        _require_upstream(module)
        set_interface(module, arguments, results)
        _simplify_locations(module, has_lines)
        text = f"{module.operation.get_asm(enable_debug_info=bool(locations))}\n"
        return shorten_locations(text) if locations else text


def _run(module: ir.Module, pipeline: str) -> None:
    manager = passmanager.PassManager.parse(f"builtin.module({pipeline})")
    try:
        manager.run(module.operation)
    except ir.MLIRError as error:
        raise ExportError(_explain(error)) from error


_FAILED = re.compile(r'"([^"]*)"\("([^"]*)":(\d+):\d+')


def _explain(error: ir.MLIRError) -> str:
    """Returns one sentence for a pass that failed."""
    text = str(error)
    found = _FAILED.search(text)
    where = f" at {found[2]}:{found[3]}" if found else ""
    got = found[1].rpartition("/")[2] if found else text.splitlines()[0]
    return (
        f"expected operations that lower to linalg, but got '{got}'{where}: write it in"
        " terms of others, or do it outside of the step"
    )


def _drop_meshes(module: ir.Module) -> None:
    """Drops the devices that a program names; a step runs on one."""
    for operation in list(module.body.operations):
        if operation.operation.name == "sdy.mesh":
            operation.operation.erase()


def _simplify_locations(module: ir.Module, has_lines: bool) -> None:
    """Reduces each location to the path of its scopes and the user's line.

    JAX names an operation `jit(step)/jvp(layers.0)/dot_general`; the jitted
    function at the front is always the same. Inlining adds call sites, of
    which the deepest path is kept, and the innermost line, which comes first.
    """
    for operation in walk(module.operation):
        parent = operation.parent
        if parent is not None and parent.name.startswith("linalg."):
            operation.location = ir.Location.unknown()
            continue
        scopes = _SCOPE.findall(str(operation.location))
        scope = max(scopes, key=lambda s: s.count("/"), default="")
        scope = re.sub(r"^jit\([^()]*\)/?", "", scope)
        place: ir.Location = ir.Location.unknown()
        for file, line, column in _LINE.findall(str(operation.location)):
            if has_lines and is_user_file(file):
                place = ir.Location.file(file, int(line), int(column))
                break
        operation.location = ir.Location.name(scope, place) if scope else place


def _operands_of(operation: ir.Operation) -> list[Value]:
    return list(operation.operands)


def _lower_barrier(operation: ir.Operation) -> list[Value]:
    """Returns the operands through barriers that the compiler drops in the end."""

    def keep(value: Value) -> Value:
        type = ir.RankedTensorType(value.type)
        dims = range(type.rank)
        init = empty(type.shape, type.element_type)

        def barrier(kept: Value, _: Value) -> Value:
            return create(_BARRIER, [kept.type], [kept]).result

        return generic([value], init, [dims, dims], 0, barrier)

    return [keep(value) for value in operation.operands]


def _lower_gradient(operation: ir.Operation) -> list[Value] | None:
    """Returns the gradient that a call says is one."""
    if ir.StringAttr(operation.attributes["call_target_name"]).value != _points.CALLED:
        return None
    gradient, value = operation.operands
    type = ir.RankedTensorType(gradient.type)
    dims = range(type.rank)

    def mark(gradient: Value, value: Value, _: Value) -> Value:
        return create(_GRADIENT, [gradient.type], [gradient, value]).result

    init = empty(type.shape, type.element_type)
    return [generic([gradient, value], init, [dims, dims, dims], 0, mark)]


def _make_signless(module: ir.Module) -> None:
    """Retypes what is left of unsigned integers, and drops the casts between."""

    def retype(value: Value) -> None:
        type = value.type
        if isinstance(type, ir.RankedTensorType) and is_unsigned(type.element_type):
            width = ir.IntegerType(type.element_type).width
            value.set_type(tensor_type(type.shape, ir.IntegerType.get_signless(width)))

    for operation in walk(module.operation):
        for value in operation.results:
            retype(value)
        for region in operation.regions:
            for block in region:
                for argument in block.arguments:
                    retype(argument)
    for operation in walk(module.operation):
        if operation.name == "func.func":
            block = operation.regions[0].blocks[0]
            inputs = [a.type for a in block.arguments]
            outputs = [v.type for v in list(block.operations)[-1].operands]
            type = ir.FunctionType.get(inputs, outputs)
            operation.attributes["function_type"] = ir.TypeAttr.get(type)
    rewrite_all(module, "builtin.unrealized_conversion_cast", _drop_cast)


def _drop_cast(operation: ir.Operation) -> list[Value] | None:
    same = operation.operands[0].type == operation.result.type
    return list(operation.operands) if same else None


def _require_upstream(module: ir.Module) -> None:
    """Checks that no operation of a foreign dialect is left."""

    def is_foreign(operation: ir.Operation | None) -> bool:
        if operation is None:
            return False
        if operation.name == "builtin.unrealized_conversion_cast":
            return True
        return (
            operation.name.split(".")[0] not in _UPSTREAM
            and operation.name not in (_BARRIER, _GRADIENT)
        )

    for operation in walk(module.operation):
        if is_foreign(operation) and not is_foreign(operation.parent):
            called = operation.attributes
            target = (
                f" of {called['call_target_name']}"
                if "call_target_name" in called
                else ""
            )
            if "lapack" in target:
                raise ExportError(
                    "expected operations that lower to linalg, but got a decomposition"
                    f" of a matrix{place_of(operation)}: decompose matrices (jnp.linalg)"
                    " outside of the step"
                )
            raise ExportError(
                "expected operations that lower to linalg, but got"
                f" '{operation.name}'{target}{place_of(operation)}: write it in terms"
                " of others, or do it outside of the step"
            )
