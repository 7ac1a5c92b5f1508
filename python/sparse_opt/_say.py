# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the package says when all is well.

"""Lines on standard error, of the logger `sparse_opt`.

`logging.getLogger("sparse_opt").setLevel(logging.WARNING)` silences them. What is not
well is a warning, or an error.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
from typing import Any

_LOGGER = logging.getLogger("sparse_opt")
# Erases the line of a terminal that the cursor is in.
_ERASE = "\r\x1b[K"


class _Status:
    """The last line of a terminal, while it is one that changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_shown = False

    def show(self, text: str) -> None:
        with self._lock:
            if text or self._is_shown:
                width = shutil.get_terminal_size().columns - 1
                sys.stderr.write(_ERASE + text[:width])
                sys.stderr.flush()
            self._is_shown = bool(text)


_status = _Status()


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
    _status.show("")
    _LOGGER.info(text)


def status(text: str) -> bool:
    """Shows a line that the next one takes the place of, or none for ""; returns whether
    standard error is a terminal, elsewhere nothing is shown."""
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    is_shown = text and _LOGGER.level <= logging.INFO
    _status.show(f"{_LOGGER.name}: {text}" if is_shown else "")
    return True


def aside(text: str) -> None:
    """Says something on standard error that no log needs, unless the logger is silent."""
    if sys.stderr is not None and _LOGGER.level <= logging.INFO:
        print(f"{_LOGGER.name}: {text}", file=sys.stderr, flush=True)
