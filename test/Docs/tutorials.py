# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the Python of a page as one script; what it prints stands in the page.

    tutorials.py [--write] PAGE

A block of text behind blocks of Python is what these print. --write puts there what they print now.
"""

import contextlib
import io
import re
import sys

FENCE = re.compile(r"```(python|text)\n(.*?)```\n", re.S)


def main(page, write):
    with open(page) as file:
        text = file.read()
    names, printed, wrong = {"__name__": "__main__"}, io.StringIO(), []

    def run(match):
        kind, body = match.groups()
        if kind == "python":
            # Lines of the page, where an error names one.
            before = text[:match.start(2)].count("\n")
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * before + body, page, "exec"), names)
            return match[0]
        got = printed.getvalue()
        printed.seek(0), printed.truncate()
        if got != body:
            wrong.append(f"expected the page to have what its Python prints:\n{got}but got:\n{body}")
        return f"```text\n{got}```\n"

    result = FENCE.sub(run, text)
    if printed.getvalue():
        wrong.append(f"expected a block of text behind the last Python, but got none: {printed.getvalue()}")
    if write:
        with open(page, "w") as file:
            file.write(result)
    elif wrong:
        sys.exit("\n".join(wrong))


main(sys.argv[-1], "--write" in sys.argv)
