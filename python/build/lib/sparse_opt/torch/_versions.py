# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The versions of PyTorch and torch-mlir that were tested.

"""What is checked before anything is imported that promises nothing."""

from __future__ import annotations

import importlib.metadata

from sparse_opt._errors import ExportError

# Package, first version, first version that is not tested.
TESTED = (("torch", "2.15", "2.16"), ("torch-mlir", "20261001", "20261002"))


def require_tested_versions() -> None:
    """Raises `ExportError` if a package is of a version that was not tested."""
    for package, first, end in TESTED:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "none"
        if not _key(first) <= _key(version) < _key(end):
            raise ExportError(
                f"expected {package} at least {first} and below {end}, but got"
                f" {version}: install 'sparse-opt[torch]'"
            )


def _key(version: str) -> tuple[int, ...]:
    release = version.partition("+")[0].split(".")
    return tuple(int(part) for part in release if part.isdigit())
