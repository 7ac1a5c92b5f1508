# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints modules with short locations.

"""Locations and text of a finished module."""

from __future__ import annotations

import re

from jaxlib.mlir import ir

from sparse_opt._build import (
    walk,
)

_SCOPE = re.compile(r'"([^"]*)"(?!:\d)')


def simplify_locations(module: ir.Module) -> None:
    """Reduces each location to the path of its scopes.

    JAX names an operation `jit(step)/jvp(layers.0)/dot_general`; the jitted
    function at the front is always the same. Inlining adds call sites, of
    which the deepest path is kept.
    """
    for operation in walk(module.operation):
        parent = operation.parent
        if parent is not None and parent.name.startswith("linalg."):
            operation.location = ir.Location.unknown()
            continue
        scopes = _SCOPE.findall(str(operation.location))
        scope = max(scopes, key=lambda s: s.count("/"), default="")
        scope = re.sub(r"^jit\([^()]*\)/?", "", scope)
        operation.location = ir.Location.name(scope) if scope else ir.Location.unknown()


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_ARGUMENT_LOCATION = re.compile(
    rf" loc\((?:{_QUOTED}|#loc\d*|[^()\"#]|\((?:#loc\d*|{_QUOTED})\))*\)"
)
_ALIAS = re.compile(r"^(#loc\d*) = (loc\(.*\))$", re.MULTILINE)


def print_module(module: ir.Module, locations: bool) -> str:
    """Returns the text of `module`, with locations on whole operations only.

    Those of block arguments and of the scalar code inside an operation say
    nothing new, and are most of the text.
    """
    text = f"{module.operation.get_asm(enable_debug_info=locations)}\n"
    if not locations:
        return text
    aliases = dict(_ALIAS.findall(text))
    lines = []
    for line in _ALIAS.sub("", text).splitlines():
        if line.lstrip().startswith(("^bb", "func.func")):
            line = _ARGUMENT_LOCATION.sub("", line)
        else:
            line = re.sub(
                r" loc\((#loc\d*)\)$",
                lambda m: "" if aliases[m[1]] == "loc(unknown)" else m[0],
                line,
            )
        if line:
            lines.append(line)
    body = "\n".join(lines) + "\n"
    used = set(re.findall(r" loc\((#loc\d*)\)$", body, re.MULTILINE))
    return body + "".join(
        f"{alias} = {location}\n"
        for alias, location in aliases.items()
        if alias in used
    )
