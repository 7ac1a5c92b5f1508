# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Texts that were made of StableHLO, kept on disk.

"""Texts of exports, by all that they are made of.

An export always traces the step, twice, and has its StableHLO, with all constants and
places. What follows is a function of that, of the attributes of arguments and results, of
what JAX is configured to, and of the versions of what computes it.
"""

from __future__ import annotations

import enum
import functools
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
from jax._src import config as jax_config

from sparse_opt import _export_cache, cache
from sparse_opt.jax import _stablehlo

Attributes = Sequence[Mapping[str, str | int]]


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text


def lower(
    text: str,
    arguments: Attributes,
    results: Attributes,
    locations: bool | Literal["scopes"],
) -> str:
    """Returns what `_stablehlo.lower` does, or did."""
    key = _key_of(text, arguments, results, locations)
    kept = _export_cache.read(key, cache.EXPORT, _Text)
    if kept is not None:
        return kept.text
    made = _stablehlo.lower(text, arguments, results, locations)
    _export_cache.write(key, cache.EXPORT, {"text": made})
    return made


def _key_of(text: str, *others: Any) -> str | None:
    if _export_cache.is_off():
        return None
    try:
        return _export_cache.key_of(("jax", _versions(), tuple(_settings()), others, text))
    except _export_cache.Unknown:
        return None


@functools.cache
def _versions() -> tuple[Any, ...]:
    """Returns what computes a text."""
    return (
        _export_cache.own_version(),
        jax.__version__,
        jax.__file__,
        importlib.metadata.version("jaxlib"),
        _export_cache.libraries_of("jaxlib"),
    )


def _settings() -> Iterator[tuple[str, Any]]:
    """Yields what JAX is configured to, in this thread: rewrites trace functions of their
    own."""
    values = {**jax.config.values}
    values |= {name: state.value for name, state in jax_config.config_states.items()}
    for name, value in sorted(values.items()):
        if isinstance(value, enum.Enum):
            value = value.name
        if type(value) not in (type(None), bool, int, float, str):
            raise _export_cache.Unknown
        yield name, value
