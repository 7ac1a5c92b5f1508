# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the compilers of a configuration of Compiler Explorer as it does.

    compiler-explorer.py <properties> <source> <folder>

The programs are looked up on PATH by their names. Of each compiler: its version, as
the regular expression finds it, and what kind of text it makes of the source by
`exe -o OUTPUT <options> SOURCE`, as the class MLIRCompiler has it.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

path, source, folder = sys.argv[1:]
values = {}
for line in Path(path).read_text().splitlines():
    if line.strip() and not line.startswith("#"):
        key, found, value = line.partition("=")
        assert found and key not in values, line
        values[key] = value


def get(compiler, group, name, default=""):
    """Returns a property of a compiler, of its group, or of all."""
    for key in (f"compiler.{compiler}.{name}", f"group.{group}.{name}", name):
        if key in values:
            return values[key]
    return default


used, seen = {"compilers", "defaultCompiler"}, []
for reference in values["compilers"].split(":"):
    group = reference.removeprefix("&")
    for compiler in values[f"group.{group}.compilers"].split(":"):
        seen.append(compiler)
        assert get(compiler, group, "compilerType") == "mlir"
        exe = Path(get(compiler, group, "exe"))
        assert exe.is_absolute(), exe
        version = subprocess.run([exe.name, get(compiler, group, "versionFlag")], check=True, capture_output=True, text=True)
        version = re.search(get(compiler, group, "versionRe", ".*"), version.stdout, re.M)
        target = Path(folder) / f"{compiler}.out.mlir"
        target.unlink(missing_ok=True)
        options = shlex.split(get(compiler, group, "options"))
        subprocess.run([exe.name, "-o", target, *options, source], check=True)
        text = target.read_text()
        kinds = {"PTX": ".visible .entry", "LLVM IR": "define ", "LLVM dialect": "llvm.func", "patterns": "bsr.spmm", "marks": "bsr.mark"}
        kind = next((name for name, mark in kinds.items() if mark in text), "nothing")
        print(f"{compiler}: {version and version[0].split()[0]}, {kind}")
assert values["defaultCompiler"] in seen
for key in values:
    kind, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    assert kind not in ("compiler", "group") or name in seen or f"&{name}" in values["compilers"].split(":"), key
