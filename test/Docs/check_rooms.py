# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that rooms know of each other in one direction.

A room is a folder of lib/ with a library of CMake; its headers lie in the folder of
the same name under include/bsr. It includes headers of its own and of the rooms that
its library links, no room links itself over others, and what no other room includes
(a header in lib/) is included in its own folder alone. The runtime includes nothing
of the compiler, its rooms include those that RUNTIME has, support/, which all may
include, nothing of any other folder, and ptx/ nothing but support/.
The compiler knows one header of the runtime, the interface of a step, bsr/step.h.
Within rooms, too, includes lead one way: a header and the source of its name, taken
as one, include nothing that includes them again, over others neither. A class of a
namespace is in one header: two of one name would be one to the linker.

    check_rooms.py <source root>
"""

import graphlib
import os
import re
import sys
from pathlib import Path

root = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(root / "scripts"))
from rooms import read_libraries  # noqa: E402: found by the line above

rooms, links = read_libraries(root)
errors = []
# The folders of runtime/, which are one library, and those that each may include.
RUNTIME = {
    "base": [],
    "pattern": ["base"],
    "step": ["base", "pattern"],
    "device": ["base", "pattern", "step"],
    "comm": ["base"],
    "session": ["base", "pattern", "step", "device", "comm"],
    "threads": [],
    "check": ["base", "pattern", "step", "device", "comm", "session", "threads"],
}


def includes(path):
    """The quoted includes of a file, with their lines."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if found := re.match(r'#include "(.*)"', line):
            yield f"{path.relative_to(root)}:{number}", found[1]


def known(library, way=()):
    """The rooms that a library may include: its own and what it links, over others too."""
    if library in way:
        sys.exit(f"expected libraries to link in one direction, but got {' -> '.join((*way, library))}")
    return {rooms[library]}.union(*(known(other, (*way, library)) for other in links[library]))


if not rooms:
    sys.exit(f"expected libraries in {root / 'lib'}, but got none")
for library, room in rooms.items():
    allowed = known(library)
    files = [*(root / "lib" / room).glob("*.cpp"), *(root / "lib" / room).glob("*.h"),
             *(root / "include/bsr" / room).glob("*.h")]
    for path in files:
        for where, name in includes(path):
            if name.startswith("bsr/") and name != "bsr/step.h":
                other = name.removeprefix("bsr/").rpartition("/")[0]
                if other not in allowed:
                    errors.append(f"{where}: expected {room} to include rooms that {library} links, but got '{name}'")
            elif "/" not in name and not (path.parent / name).exists():
                errors.append(f"{where}: expected a header of the same folder, but got '{name}'")
    for path in (root / "include/bsr" / room).glob("*.h"):
        if path.name not in ("Passes.h", "BSR.h") and not (root / "lib" / room / f"{path.stem}.cpp").exists():
            # Without a source, a header holds types, templates and inline functions.
            text = re.sub(r"//.*", "", path.read_text())
            if re.search(r"^\w[\w:<>&* ]* \w+\([^;{}]*\);", text, re.M):
                errors.append(f"{path.relative_to(root)}: expected lib/{room}/{path.stem}.cpp to define its functions")
for path in (root / "runtime").rglob("*.[hc]*"):
    for where, name in includes(path):
        if re.match(r"(mlir|llvm|bsr/(Dialect|Analysis|Codegen|Transforms|Pipelines))/", name):
            errors.append(f"{where}: expected the runtime without the compiler, but got '{name}'")
for folder in sorted(path.name for path in (root / "runtime").iterdir() if path.is_dir() and path.name != "include"):
    for path in (root / "runtime" / folder).glob("*.[hc]*"):
        for where, name in includes(path):
            other = name.rpartition("/")[0]
            if other and other not in ("bsr", "support", *RUNTIME.get(folder, ())):
                errors.append(f"{where}: expected runtime/{folder} to include rooms that RUNTIME has for it, but got '{name}'")
            elif not other and not (path.parent / name).exists():
                errors.append(f"{where}: expected a header of the same folder, but got '{name}'")
for folder, others in (("support", ()), ("ptx", ("support/",))):
    for path in (root / folder).rglob("*.[hc]*"):
        for where, name in includes(path):
            if not (path.parent / name).exists() and not name.endswith(".inc") and not name.startswith((f"{folder}/", *others)):  # the build makes .inc
                errors.append(f"{where}: expected headers of {' and '.join([folder + '/', *others])}, but got '{name}'")


def unit(path):
    """A header and the source of its name, as one."""
    name = path.relative_to(root).with_suffix("").as_posix()
    return re.sub(r"^include/bsr/", "lib/", name)


def find(path, name):
    """The file that `path` includes as `name`, if it is one of the project's."""
    roots = (path.parent, root, root / "include", root / "runtime/include", root / "runtime")
    return next((Path(os.path.normpath(folder / name)) for folder in roots if (folder / name).exists()), None)


after = {}  # of each unit, those that it includes
for folder in ("lib", "include", "runtime", "support", "ptx", "tools"):
    for path in sorted((root / folder).rglob("*.[hc]*")):
        if path.is_file():
            found = {unit(file) for _, name in includes(path) if (file := find(path, name))}
            after.setdefault(unit(path), set()).update(found - {unit(path)})
try:
    tuple(graphlib.TopologicalSorter(after).static_order())
except graphlib.CycleError as error:
    errors.append(f"expected includes to lead one way, but got {' -> '.join(reversed(error.args[1]))}")

defined = {}  # where each class is, by its namespace and name
for folder in ("lib", "include", "runtime", "support", "ptx"):
    for path in sorted((root / folder).rglob("*.h")):
        namespace = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := re.match(r"namespace ([\w:]+) \{", line):
                namespace = found[1]
            elif found := re.match(r"(?:struct|class|enum class) (\w+)\b[^;]*$", line):
                name, where = f"{namespace}::{found[1]}", f"{path.relative_to(root)}:{number}"
                if (other := defined.setdefault(name, where)) != where:
                    errors.append(f"{where}: expected one class '{name}', but got that of {other}, too")
sys.exit("\n".join(errors) or 0)
