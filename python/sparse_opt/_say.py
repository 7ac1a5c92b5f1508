# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the package says when all is well.

"""Lines on standard error, of the logger `sparse_opt`.

`logging.getLogger("sparse_opt").setLevel(logging.WARNING)` silences them. What is not
well is a warning, or an error.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

_LOGGER = logging.getLogger("sparse_opt")


class _Handler(logging.StreamHandler[Any]):
    """Writes to what standard error is then."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def line(text: str) -> None:
    """Says something in one line."""
    if _LOGGER.level == logging.NOTSET:
        _LOGGER.setLevel(logging.INFO)
    if not _LOGGER.hasHandlers():
        handler = _Handler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        _LOGGER.addHandler(handler)
    _LOGGER.info(text)
