# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The names and attributes of a step's arguments and results.

"""Writes what each argument and result of an exported step is."""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir

from sparse_opt.torch._arguments import Argument
from sparse_opt.torch._capture import Capture

def set_interface(
    module: ir.Module, capture: Capture, inits: Mapping[str, str]
) -> None:
    """Gives the arguments and results of the step their attributes."""
    for name in [a.name for a in module.operation.attributes]:
        del module.operation.attributes[name]
    function = next(
        op for op in module.body.operations
        if ir.StringAttr(op.attributes["sym_name"]).value == "step"
    )  # fmt: skip
    i64 = ir.IntegerType.get_signless(64)

    def describe(argument: Argument) -> ir.Attribute:
        attributes: dict[str, ir.Attribute] = {
            "bsr.name": ir.StringAttr.get(argument.name),
            "bsr.role": ir.StringAttr.get(argument.role),
        }
        if argument.result is not None:
            attributes["bsr.result"] = ir.IntegerAttr.get(i64, argument.result)
        if argument.aliases:
            attributes["bsr.aliases"] = ir.ArrayAttr.get(
                [ir.StringAttr.get(name) for name in argument.aliases]
            )
        if argument.name in inits:
            attributes["bsr.init"] = ir.StringAttr.get(inits[argument.name])
        return ir.DictAttr.get(attributes)

    if capture.unused:
        function.attributes["bsr.unused"] = ir.ArrayAttr.get(
            [ir.StringAttr.get(name) for name in capture.unused]
        )
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(
        [describe(a) for a in capture.arguments]
    )
    function.attributes["res_attrs"] = ir.ArrayAttr.get(
        [
            ir.DictAttr.get(
                {
                    "bsr.name": ir.StringAttr.get(name),
                    "bsr.role": ir.StringAttr.get(role),
                }
            )
            for name, role in capture.results
        ]
    )
