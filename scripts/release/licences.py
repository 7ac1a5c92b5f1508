# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the licences of what a package holds of others.

    licences.py <build root> <output> [<folder>]

What programs of the build were linked with, whose headers have code that they were compiled
with, and, with <folder>, whose libraries are there, are packages of Debian, found as sbom.py
finds them. Each has a file /usr/share/doc/<name>/copyright. The output is a folder with one
file for each, or, if it is called `copyright`, a file with all of them behind the project's
own licence, as a package of Debian has it.
"""

import re
import sys
from pathlib import Path

import sbom

# Of which no code is in a package: the C library's interface and its empty archives, C++'s, whose
# licence makes an exception for headers, and headers of tests and of an MPI.
NO_CODE = re.compile(r"libc6-dev|linux-libc-dev|libstdc\+\+-\d+-dev|libgcc-\d+-dev|libg(test|mock)-dev|lib(openmpi|mpich)-dev")
TOOLS = ("sparse-checkpoint", "sparse-compile", "sparse-train")


def holders(build, folder=None):
    """Returns the packages whose code is in the programs of a build, or in a folder."""
    found = {name for name in sbom.linked(build, TOOLS) | sbom.compiled_in(build) if not NO_CODE.fullmatch(name)}
    if folder is not None:
        found |= set(sbom.owners(map(sbom.origin, sbom.foreign(folder))).values())
    return sorted(found)


def copyright_of(name):
    path = Path("/usr/share/doc") / name / "copyright"
    if not path.exists():
        sys.exit(f"error: expected the licence of '{name}' in '{path}', but got none")
    return path.read_text(errors="replace")


def main(build, target, folder=None):
    build, target = sbom.require_build(build), Path(target)
    names = holders(build, folder and Path(folder))
    if target.name != "copyright":
        for name in names:
            (target / name).mkdir(parents=True, exist_ok=True)
            (target / name / "copyright").write_text(copyright_of(name))
        return
    own = (Path(__file__).resolve().parent.parent.parent / "LICENSE").read_text()
    parts = [f"sparse-opt\n\n{own}"]
    parts += [f"Code of the package {name} of Debian\n\n{copyright_of(name)}" for name in names]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"\n{'=' * 80}\n\n".join(parts))


if __name__ == "__main__":
    main(*sys.argv[1:])
