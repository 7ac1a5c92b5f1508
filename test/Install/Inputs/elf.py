# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks how programs and libraries are linked, and what those of the product are made of.

    elf.py FOLDER...

All ELF files of the folders are position-independent, make read-only what the loader has
relocated, before anything runs, and look for libraries in no current folder: an empty entry
of RUNPATH would be one. Those of the product have stack protection, string functions in their
checked forms alone and places that indirect jumps may go to, as Debian's hardening-check asks for.
"""

import re
import subprocess
import sys
from pathlib import Path

# Of what the product has. The compiler's tools hold little more than a call of it in a
# build for development, whose libraries have no protection.
PRODUCT = re.compile(r"sparse-(train|checkpoint)|libbsr_runtime\.so.*")
MARK = bytes.fromhex("f30f1efa")  # endbr64
# What writes without a bound is there in its checked form alone. What is told a bound is checked
# where the compiler knows what it writes to, and plain elsewhere.
UNBOUNDED = re.compile(r"\b(v?sprintf|st[rp]cpy|strcat|gets)@")
FEWEST_MARKS = 16  # the C library's start files have a few in every program


def read(path):
    command = ["llvm-readelf", "--file-header", "--program-headers", "--dynamic", "--dyn-syms", "--wide", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def faults(path):
    """Yields what is wrong with a file."""
    text = read(path)
    for paths in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text):
        if not all(paths.split(":")):
            yield f"a RUNPATH without empty entries, but got [{paths}]"
    if "DYN (" not in text:
        yield "a position-independent file, but got another"
    if "GNU_RELRO" not in text:
        yield "relocations that become read-only, but got none"
    if not re.search(r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*NOW|\(BIND_NOW\)", text):
        yield "symbols that are bound before anything runs, but got lazy ones"
    if not PRODUCT.fullmatch(path.name):
        return
    if "__stack_chk_fail" not in text:
        yield "stack protection, but got none"
    if found := UNBOUNDED.search(text):
        yield f"checked string functions, but got {found[1]}"
    if path.read_bytes().count(MARK) < FEWEST_MARKS:
        yield "places for indirect jumps, but got none"


def files(folder):
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF" and file.read(13)[12:] in (b"\2", b"\3"):  # EXEC, DYN
                    yield path


count, errors = 0, []
for folder in sys.argv[1:]:
    for path in files(folder):
        count += 1
        errors += [f"error: expected '{path}' to have {fault}" for fault in faults(path)]
print(f"{count} files")
sys.exit("\n".join(errors) or 0)
