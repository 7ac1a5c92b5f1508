# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the ```mlir examples in the TableGen files are true.

Each example of an operation, a type or an attribute stands, up to spaces and
comments, in the dialect's round-trip test, and every operation has one. Each
pass has two examples, and the tool turns the first into the second: with the
options that the description shows in backquotes (`--bsr-x="..."`), if any.

    check_examples.py <source root> <sparse-opt>
"""

import pathlib
import re
import shlex
import subprocess
import sys
import textwrap


def definitions(path):
    """Yields the name and the text of every top-level `def` of a file."""
    for text in re.split(r"^def ", path.read_text(), flags=re.MULTILINE)[1:]:
        yield re.match(r"\w+", text)[0], text


def examples(text):
    return [
        textwrap.dedent(example)
        for example in re.findall(r"```mlir\n(.*?)```", text, re.DOTALL)
    ]


def normalize(text):
    return " ".join(re.sub(r"//.*", "", text).split())


def run(tool, flags, ir):
    done = subprocess.run([tool, *flags], input=ir, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(flags)} fails:\n{done.stderr}")
    return done.stdout


def check_dialect(root):
    tested = normalize((root / "test/Dialect/ops.mlir").read_text())
    for path in sorted((root / "include/bsr/Dialect").glob("*.td")):
        for name, text in definitions(path):
            if name.endswith("Op") and not examples(text):
                yield f"{name}: expected an example"
            for example in examples(text):
                if normalize(example) not in tested:
                    yield f"{name}: expected the example in test/Dialect/ops.mlir:\n{example}"


def check_passes(root, tool):
    stages = sorted((root / "include/bsr").glob("*/*/Passes.td"))
    for name, text in (definition for stage in stages for definition in definitions(stage)):
        flag = "--" + re.search(r'Pass<"(.*?)"', text)[1]
        if len(examples(text)) != 2:
            yield f"{name}: expected 2 examples, but got {len(examples(text))}"
            continue
        options = re.search(rf"`({flag}=.*?)`", text)
        flags = shlex.split(options[1]) if options else [flag]
        before, after = examples(text)
        got = run(tool, flags, before)
        if got != run(tool, [], after):
            yield f"{name}: expected its second example, but got:\n{got}"


def main():
    root, tool = pathlib.Path(sys.argv[1]), sys.argv[2]
    errors = [*check_dialect(root), *check_passes(root, tool)]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
