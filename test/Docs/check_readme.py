# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks the README: its command turns its Before into its After, and every
# path that it, the pages beside it and those in docs/ name exists.

import re
import shlex
import subprocess
import sys
from pathlib import Path

root, opt = Path(sys.argv[1]), sys.argv[2]
readme = (root / "README.md").read_text()


def run(ir, *flags):
    done = subprocess.run([opt, *flags], input=ir, text=True, check=True, capture_output=True)
    return done.stdout


before, after = re.findall(r"```mlir\n(.*?)```", readme, re.S)
command = shlex.split(re.search(r"^    \$ (sparse-opt .*) step.mlir$", readme, re.M)[1])
got = run(before, *command[1:])
if got != run(after):
    sys.exit(f"expected the README's After, but got:\n{got}")

contribute = (root / "CONTRIBUTING.md").read_text()
section = contribute.split("## Map")[1].split("##")[0]
paths = re.findall(r"^    (\S+)  ", section, re.M) + re.findall(r"scripts/[\w-]+\.\w+", readme)
folders = "|".join(path.name for path in root.iterdir() if path.is_dir() and path.name != "build")
for page in [*root.glob("*.md"), *root.glob("docs/*.md")]:
    paths += re.findall(rf"`((?:{folders})/[\w./*-]+)`", page.read_text())
for path in paths:
    if not any(root.glob(path.rstrip("/"))):
        sys.exit(f"expected '{path}', which a page names, to exist")
