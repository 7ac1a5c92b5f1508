# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Replaces operations by what functions of JAX compute.

"""Calls, inlined, and operations in terms of a function that JAX traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import jax_mlir_ext  # type: ignore[attr-defined]
from jaxlib.mlir import ir

from sparse_opt.jax._build import Value, rewrite_all, walk

_TYPES = [
    jnp.dtype(name)
    for name in (
        *("float32", "bfloat16", "float16", "float64", "bool"),
        *("int32", "int8", "int64", "int16", "uint8", "uint16", "uint32", "uint64"),
    )
]


def struct_of(value: Value) -> Any:
    """Returns the shape and type of a value, as JAX has them."""
    type = ir.RankedTensorType(value.type)
    dtype = next(
        t for t in _TYPES if jax_mlir.dtype_to_ir_type(t) == type.element_type
    )
    return jax.ShapeDtypeStruct(tuple(type.shape), dtype)  # type: ignore[no-untyped-call]


def replace(
    function: Callable[..., Any], operation: ir.Operation, operands: Sequence[Value]
) -> list[Value]:
    """Returns what `function` computes of `operands`, in front of `operation`."""
    structs = [struct_of(operand) for operand in operands]
    # All operands stay, those that it does not read as well.
    lowered = jax.jit(function, keep_unused=True).trace(*structs).lower()
    module = ir.Module.parse(lowered.as_text())
    inline_calls(module)
    main = next(f for f in module.body.operations if _name(f) == "main")
    return list(_inlined(main.operation, operands, operation))


def _name(function: Any) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def _inlined(
    callee: ir.Operation, operands: Sequence[Value], call: ir.Operation
) -> Sequence[Value]:
    """Puts what `callee` does in front of an operation; returns the results."""
    arguments = callee, list(operands)
    inline: Any = jax_mlir_ext.inlined_func_call
    if "block: " not in (inline.__doc__ or ""):  # since 0.10.2
        return cast(Sequence[Value], inline(*arguments, call.location))
    operations = call.block.operations
    count = len(operations)
    values = cast(Sequence[Value], inline(*arguments, call.block, call.location))
    for operation in list(operations)[count:]:
        operation.move_before(call)
    return values


def inline_calls(module: ir.Module) -> None:
    """Inlines every call; JAX calls functions of one block only."""
    functions = {_name(f): f.operation for f in module.body.operations}

    def inline(call: ir.Operation) -> Sequence[Value]:
        callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        return _inlined(functions[callee], list(call.operands), call)

    while any(op.name == "func.call" for op in walk(functions["main"])):
        rewrite_all(module, "func.call", inline)
