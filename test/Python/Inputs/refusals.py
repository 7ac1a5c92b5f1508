# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints how something is refused, and makes a step wrong.

import importlib
import importlib.metadata
from typing import Any

import numpy as np
import sparse_opt


def refuse(action: Any, *arguments: Any, **options: Any) -> None:
    """Prints the sentence of a refusal, or that there was none."""
    try:
        action(*arguments, **options)
        print("accepted")
    except (sparse_opt.ExportError, sparse_opt.StepError, NotImplementedError) as error:
        print(error)


def refuse_without(package: str, module: Any) -> None:
    """Prints how a module is refused where a package is not installed."""
    version = importlib.metadata.version

    def none(name: str) -> str:
        if name == package:
            raise importlib.metadata.PackageNotFoundError
        return version(name)

    importlib.metadata.version = none
    try:
        refuse(importlib.reload, module)
    finally:
        importlib.metadata.version = version


def store_all(step: Any) -> None:
    """Has a step say that all entries of its weights are stored."""
    make = step._snapshot

    def snapshot() -> Any:
        made = make()
        stored = made.stored

        def all_of(name: str) -> Any:
            mask = stored(name)
            return None if mask is None else np.ones_like(mask)

        made.stored = all_of
        return made

    step._snapshot = snapshot
