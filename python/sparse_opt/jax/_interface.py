# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The names and attributes of a step's arguments and results.

"""Writes what each argument and result of an exported step is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxlib.mlir import ir

def set_interface(
    module: ir.Module,
    arguments: Sequence[Mapping[str, str | int]],
    results: Sequence[Mapping[str, str | int]],
) -> None:
    """Names the step and gives its arguments and results their attributes."""
    for name in list(module.operation.attributes):
        del module.operation.attributes[name]
    function = module.body.operations[0]
    function.attributes["sym_name"] = ir.StringAttr.get("step")
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(
        [_dictionary(a) for a in arguments]
    )
    function.attributes["res_attrs"] = ir.ArrayAttr.get(
        [_dictionary(r) for r in results]
    )


def _dictionary(attributes: Mapping[str, str | int]) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    return ir.DictAttr.get(
        {
            name: ir.StringAttr.get(value)
            if isinstance(value, str)
            else ir.IntegerAttr.get(i64, value)
            for name, value in attributes.items()
        }
    )
