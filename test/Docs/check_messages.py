# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a test has each message.

A message is a string literal of C++ that begins with "expected ", with the literals
that the statement goes on with, those of a choice (?:) apart. Of these the longest
counts: its first 24 characters have to stand in a test, since what is between literals
differs from case to case. So of messages that have these in common, one has a test for
sure. What assertions say is no message.

    check_messages.py <source root>
"""

import re
import sys
from pathlib import Path

SOURCES = ["include", "lib", "ptx", "runtime", "support", "tools"]
TESTS = ["ptx/check", "runtime/check", "test", "unittests"]
# What no test leads to, with the reason.
UNTESTED = {
    "a sum to be read where t": "no plan that is known leads there; without it, a zero would stand for the sum",
}
COUNT = 24

TOKEN = re.compile(r"""(?P<skip>//[^\n]*|/\*.*?\*/|\s+)|(?P<raw>R"(?P<mark>\w*)\((?P<in>.*?)\)(?P=mark)")"""
                   r"""|"(?P<text>(?:\\.|[^"\\\n])*)"|(?P<other>'(?:\\.|[^'\\\n])+'|\w+|.)""", re.S)


def is_test(path):
    return path.is_file() and "__pycache__" not in path.parts


def read_tests(root):
    """All text of tests; literals that a line break separates are one."""
    texts = []
    for folder in TESTS:
        for path in sorted((root / folder).rglob("*")):
            if is_test(path) and path.suffix != ".gz":
                texts.append(path.read_text(errors="replace"))
    return re.sub(r'"\s*\n[\s#]*f?"', "", "\n".join(texts)).replace("\\", "")


def messages(text):
    """Yields the line and the literals of each message of a file of C++."""
    line, parts = 1, []
    is_assertion, is_choice, last = False, False, ""
    for match in TOKEN.finditer(text):
        token = match[0]
        literal = match["in"] if match["raw"] else match["text"]
        if literal is not None:
            if last != '"':
                is_choice = last in ("?", ":")
            if last == '"' and parts and not is_choice:
                parts[-1] += literal
            elif literal.startswith(("expected ", "error: expected ")) and not is_assertion:
                if parts:
                    yield number, parts
                number, parts, is_choice = line, [literal.removeprefix("error: ")], False
            elif parts and not is_choice:
                parts.append(literal)
            last = '"'
        elif not match["skip"]:
            if token in (";", "assert", "llvm_unreachable"):
                if parts:
                    yield number, parts
                parts, is_assertion = [], token != ";"
            last = token
        line += token.count("\n")


def longest(parts):
    """The longest literal between what is put into a message later, or by printf."""
    parts = [parts[0].removeprefix("expected "), *parts[1:]]  # which some tests leave out
    pieces = [piece for part in parts for piece in re.split(r"%\.?[0-9.*]*(?:ll?|z)?[sdugfx]|\{\d[^}]*\}|\\n", part)]
    return max(pieces, key=len).replace("\\", "").strip(" '\",.:(")


def main():
    root = Path(sys.argv[1])
    tests, errors, unused = read_tests(root), [], set(UNTESTED)
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix not in (".c", ".cpp", ".h", ".td") or name.startswith(("runtime/check/", "ptx/check/", "ptx/FakeDriver/")):  # of tests
                continue
            for line, parts in messages(path.read_text()):
                piece = longest(parts)[:COUNT]
                unused.discard(piece)
                if piece not in tests and piece not in UNTESTED:
                    errors.append(f"{name}:{line}: expected a test of the message '{'...'.join(parts)}', but none has '{piece}'")
    errors += [f"expected a message with '{piece}', which UNTESTED has, but got none" for piece in sorted(unused)]
    return "\n".join(errors) or 0


if __name__ == "__main__":
    sys.exit(main())
