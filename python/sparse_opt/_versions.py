# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Frameworks of versions that were tested, and of others.

"""What is said before anything is imported that promises nothing."""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from collections.abc import Sequence

from sparse_opt import _source
from sparse_opt._errors import ExportError

# Package, first version, first version that is not tested.
Tested = Sequence[tuple[str, str, str]]


def load(extra: str, tested: Tested, modules: Sequence[str], *, warns: bool = True) -> None:
    """Imports modules that lean on names which other versions may not have.

    If it `warns`, it does of a package that is of another version than those that were
    tested.

    Raises:
      ExportError: a package is not there, or it is of another version and lacks a
        name.
    """
    install = f"install 'sparse-opt[{extra}]'"
    outside = []
    for package, first, end in tested:
        expected = f"expected {package} at least {first} and below {end}, but got"
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise ExportError(f"{expected} none: {install}") from None
        if not _key(first) <= _key(version) < _key(end):
            outside.append(f"{expected} {version}")
    try:
        for module in modules:
            importlib.import_module(module)
    except (ImportError, AttributeError) as error:
        if not outside:
            raise
        raise ExportError(
            f"{outside[0]}, which lacks what is needed ({error}): {install}"
        ) from error
    for sentence in outside if warns else ():
        warnings.warn(
            f"{sentence}, which was not tested: it has the names that are"
            f" needed, so it goes on; else {install}",
            stacklevel=_source.user_level(),
        )


def _key(version: str) -> tuple[int, ...]:
    release = version.partition("+")[0].split(".")
    return tuple(int(part) for part in release if part.isdigit())
