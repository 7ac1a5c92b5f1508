# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Where the tools and the runtime are: in the package, or on the path.

import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from sparse_opt._errors import StepError

# A wheel that carries the compiler (scripts/wheel.sh) has this folder.
BUNDLE = Path(__file__).parent / "bundle"
RUNTIME = "libbsr_runtime.so.1"
THREADS = "libbsr_threads.so.1"


def find_tool(name: str) -> str:
    """Returns the path of a tool of this project."""
    bundled = BUNDLE / "bin" / name
    if bundled.exists():
        _require_system()
        return str(bundled)
    path = shutil.which(name)
    if path is None:
        raise StepError(
            f"expected {name} in this package or on PATH, but got none: install the"
            " wheel that carries the compiler, or build it and add build/dev/bin to PATH"
        )
    return path


def _require_system() -> None:
    """Raises `StepError` if the wheel's programs cannot run here.

    pip refuses such a wheel, but a folder may have been copied.
    """
    path = BUNDLE / "platform"
    text = path.read_text() if path.exists() else ""
    tag = re.match(r"manylinux_(\d+)_(\d+)_(\w+)", text)
    if tag is None:
        return
    needed = int(tag[1]), int(tag[2])
    library, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if library == "glibc" and numbers >= needed and platform.machine() == tag[3]:
        return
    found = f"{library or 'another C library'} {version}".strip()
    raise StepError(
        f"expected a system of {tag[3]} with glibc {tag[1]}.{tag[2]} or later, which"
        f" this wheel is for, but got {platform.machine()} with {found}: build from source"
    )


def find_library(name: str) -> str:
    """Returns a library beside the tools, or the name that the system looks for."""
    path = BUNDLE / "bin" / "sparse-compile"
    if path.exists():
        _require_system()
    if not path.exists():
        path = Path(os.path.realpath(shutil.which("sparse-compile") or ""))
    beside = path.parent.parent / "lib" / name
    return str(beside) if beside.exists() else name


def commit() -> str:
    """Returns the commit of a wheel that carries the compiler, else an empty text."""
    path = BUNDLE / "commit"
    return path.read_text().strip() if path.exists() else ""


def run() -> NoReturn:
    """Is the tool that the command is named after: the wheel's commands."""
    name = os.path.basename(sys.argv[0])
    # One program of the wheel is two tools, by the name that it is called by.
    try:
        tool = find_tool("sparse-compile" if name == "sparse-opt" else name)
    except StepError as error:
        sys.exit(f"error: {error}")
    os.execv(tool, [name, *sys.argv[1:]])
