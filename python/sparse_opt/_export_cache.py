# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What exports keep on disk, whatever the framework.

"""Parts of exports, kept under hashes of all that they are made of.

What a key has is said by whoever keeps: all inputs of what is computed, and the versions of
what computes it. `SPARSE_OPT_CACHE_EXPORTS=0` keeps nothing and takes nothing.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import json
import os
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sparse_opt import cache

T = TypeVar("T")


class Unknown(Exception):
    """Something has a content that is not known."""


def is_off() -> bool:
    """Returns whether nothing is kept."""
    return os.environ.get("SPARSE_OPT_CACHE_EXPORTS") == "0"


def key_of(parts: Any) -> str:
    """Returns what is kept under parts, which have representations of their own."""
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def read(key: str | None, end: str, make: Callable[..., T]) -> T | None:
    """Returns what was kept under a key; None: nothing, or it was damaged."""
    content = cache.read(f"{key}{end}") if key else None
    if content is None:
        return None
    try:
        return make(**json.loads(gzip.decompress(content)))
    except (OSError, EOFError, zlib.error, ValueError, TypeError):
        return None  # It is written again.


def write(key: str | None, end: str, parts: Mapping[str, Any]) -> None:
    """Keeps something under a key, where there is one and the folder can be written."""
    if key:
        cache.write(f"{key}{end}", gzip.compress(json.dumps(parts).encode(), 1, mtime=0))


@functools.cache
def own_version() -> tuple[str, ...]:
    """Returns what this package is, by its place and its content, and Python's version."""
    own = Path(__file__).parent
    sources = hashlib.sha256()
    for path in sorted(own.rglob("*.py")):
        if path.stat().st_mtime > cache.LOADED:
            raise Unknown  # What runs is what it was before.
        sources.update(f"{path.relative_to(own)}\0".encode())
        sources.update(hashlib.sha256(path.read_bytes()).digest())
    return str(own), sources.hexdigest(), sys.version


@functools.cache
def libraries_of(package: str) -> tuple[tuple[str, int, int], ...]:
    """Returns the libraries of a package, with their times and sizes; it is not imported."""
    found = importlib.util.find_spec(package)
    libraries = []
    for folder in (found and found.submodule_search_locations) or ():
        for path in sorted(Path(folder).rglob("*.so")):
            status = path.stat()
            libraries.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(libraries)
