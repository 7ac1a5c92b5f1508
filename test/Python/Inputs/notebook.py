# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the cells of a notebook, and compares what they print with what it holds.

    notebook.py FILE

Numbers with a point may differ by a twentieth of 1 and of themselves: sums depend on the processor.
"""

import ast
import contextlib
import io
import json
import re
import sys

NUMBER = re.compile(r"\d+\.\d+")


def run(source, path, scope):
    """What a cell prints, and whether its last line is a figure."""
    tree, printed = ast.parse(source), io.StringIO()
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, path, "exec"), scope)
        value = eval(compile(last, path, "eval"), scope) if last else None
    svg = getattr(value, "_repr_svg_", None)
    if svg is not None:
        assert svg().startswith("<svg"), "a figure that is SVG"
        return printed.getvalue(), True
    return printed.getvalue() + (repr(value) if value is not None else ""), False


def held(outputs):
    texts = (o.get("text", o.get("data", {}).get("text/plain", [])) for o in outputs)
    return "".join("".join(text) for text in texts), any("image/svg+xml" in o.get("data", {}) for o in outputs)


def is_alike(got, want):
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (got, want)]
    return NUMBER.sub("#", got) == NUMBER.sub("#", want) and all(
        abs(a - b) <= 0.05 + 0.05 * abs(b) for a, b in zip(*numbers)
    )


path, scope = sys.argv[1], {}
with open(path) as file:
    cells = [cell for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]
for number, cell in enumerate(cells):
    got, want = run("".join(cell["source"]), path, scope), held(cell["outputs"])
    if got[1] != want[1] or not (want[1] or is_alike(got[0], want[0])):
        sys.exit(f"error: expected cell {number} of '{path}' to print\n{want[0]}\nbut got\n{got[0]}")
print(len(cells), "cells")
