# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiled kernels, exports and tuned schedules on disk.

"""Kernels that were compiled before, texts of exports, and what `sparse-compile --tune`
found, in a folder of the user's.

The folder is `$SPARSE_OPT_CACHE`, or `sparse-opt` in `$XDG_CACHE_HOME` or `~/.cache`.
A kernel in it belongs to the compiler and the processor that it was made with, an export to
all that it was made of (`SPARSE_OPT_CACHE_EXPORTS=0` keeps and takes none). Several
processes may use it at once. Where it exceeds `$SPARSE_OPT_CACHE_BYTES` (1 GiB), what was
not used for longest goes.

    python3 -m sparse_opt.cache           # where it is, and how large
    python3 -m sparse_opt.cache --clear   # empties it
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sparse_opt import _tools
from sparse_opt._errors import StepError

__all__ = ["clear", "folder"]

# When this package was loaded.
LOADED = time.time()
# How the names of exports end.
EXPORT = ".export.gz"
# And those of the runs that they were made of.
RUN = ".run.gz"
# And those of what `sparse-compile --tune` found, which it writes itself.
SCHEDULES = ".schedules"
_BYTES = 2**30


def folder() -> Path:
    """Returns the folder, which may not be there yet."""
    if given := os.environ.get("SPARSE_OPT_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sparse-opt"


def clear() -> int:
    """Removes every kernel, export and schedule; returns how many files there were."""
    files = _files()
    for path in files:
        path.unlink(missing_ok=True)
    return len(files)


def read(name: str) -> bytes | None:
    """Returns the content of a file; None: there is none that can be read."""
    path = folder() / name
    try:
        content = path.read_bytes()
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # It was used last.
    return content


def write(name: str, content: bytes) -> None:
    """Writes a file, if the folder can be written."""
    path = folder() / name
    try:
        _put(path, lambda made: made.write_bytes(content))
    except OSError:
        return
    _shrink(keep=path)


def library(
    text: str, options: Sequence[str], compile: Callable[[Path], object]
) -> Path:
    """Returns the library of a text that was compiled with options; `compile` makes one
    at a path where there is none."""
    path = folder() / f"{_key(text, options)}.so"
    try:
        os.utime(path)  # It was used last.
        return path
    except OSError:
        pass  # There is none; what is wrong with the folder, making it says.
    try:
        made = _scratch(path)
    except OSError as error:
        raise StepError(
            f"expected a folder for compiled kernels at '{path.parent}', but got"
            f" '{error}': set SPARSE_OPT_CACHE to another"
        ) from error
    _put(path, compile, made)
    _shrink(keep=path)
    return path


def _scratch(path: Path) -> Path:
    """Returns a folder beside a path in which nobody else writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="making-", dir=path.parent))


def _put(path: Path, make: Callable[[Path], object], folder: Path | None = None) -> None:
    """Has a file made in a folder, and puts it to its path, where others see all of it."""
    made = folder or _scratch(path)
    try:
        make(made / path.name)
        # The first one wins; both made the same.
        os.replace(made / path.name, path)
    finally:
        for rest in made.iterdir():
            rest.unlink(missing_ok=True)
        os.rmdir(made)


def _files(ends: Sequence[str] = (".so", EXPORT, RUN, SCHEDULES)) -> list[Path]:
    return [path for end in ends for path in folder().glob(f"*{end}")]


def _limit() -> int:
    text = os.environ.get("SPARSE_OPT_CACHE_BYTES", str(_BYTES))
    if not text.isdecimal():
        raise StepError(
            f"expected SPARSE_OPT_CACHE_BYTES to be a number of bytes, but got '{text}'"
        )
    return int(text)


def _shrink(keep: Path) -> None:
    """Removes the files that were not used for longest until the rest fits."""
    known = []
    for path in _files():
        try:
            status = path.stat()
        except FileNotFoundError:  # Another process removed it.
            continue
        known.append((status.st_mtime, status.st_size, path))
    size, limit = sum(bytes for _, bytes, _ in known), _limit()
    for _, bytes, path in sorted(known):
        if size <= limit:
            return
        if path != keep:
            path.unlink(missing_ok=True)
            size -= bytes


def _key(text: str, options: Sequence[str]) -> str:
    parts = (*_compiler(_tools.find_tool("sparse-compile")), _processor(), *options, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@functools.cache
def _compiler(path: str) -> tuple[str, ...]:
    status = os.stat(path)
    return path, _tools.commit(), str(status.st_mtime_ns), str(status.st_size)


@functools.cache
def _processor() -> str:
    """Returns what the compiler goes by: the processor's name and what it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    names = ("vendor_id", "cpu family", "model", "flags")
    return " ".join(found.get(name, "") for name in names)


def _main(arguments: Sequence[str]) -> str:
    if list(arguments) == ["--clear"]:
        shown = _shown()
        clear()
        return f"removed {shown} from {folder()}"
    if arguments:
        sys.exit(f"error: expected --clear or nothing, but got '{arguments[0]}'")
    size = sum(path.stat().st_size for path in _files())
    return f"{_shown()} of {size / 2**20:.1f} MiB in {folder()}"


def _shown() -> str:
    """Returns how much there is of each."""
    names = {"kernels": ".so", "exports": EXPORT, "tuned schedules": SCHEDULES}
    counts = {name: len(_files([end])) for name, end in names.items()}
    return " and ".join(
        f"{count} {name}" for name, count in counts.items() if count or name == "kernels"
    )


if __name__ == "__main__":
    print(_main(sys.argv[1:]))
