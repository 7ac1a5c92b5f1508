# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Shortens the locations in the text of a module.

"""Locations in text."""

from __future__ import annotations

import re

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_ARGUMENT_LOCATION = re.compile(
    rf" loc\((?:{_QUOTED}|[^()\"]|\((?:{_QUOTED}|[^()\"])*\))*\)"
)
_ALIAS = re.compile(r"^(#loc\d*) = (loc\(.*\))$", re.MULTILINE)


def shorten_locations(text: str) -> str:
    """Returns `text` with locations on whole operations only.

    Those of block arguments and of the scalar code inside an operation say
    nothing new, and are most of the text.
    """
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
    used = set(re.findall(r"#loc\d*", body))
    # A place in a function that was inlined is made of others.
    inner = list(used)
    while inner:
        parts = set(re.findall(r"#loc\d*", aliases[inner.pop()])) - used
        used |= parts
        inner += parts
    return body + "".join(
        f"{alias} = {location}\n"
        for alias, location in aliases.items()
        if alias in used
    )
