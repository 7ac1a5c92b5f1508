# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a compiled step has at one time.

"""A step's arrays as they were, in the form that takes least: blocks, where it has blocks.

Arrays go by the names of the exported program. The entries of one that are stored are a
line: block by block, part by part of an argument that is in several arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparse_opt import _blocks
from sparse_opt._description import Array, Blocks, Pattern

if TYPE_CHECKING:
    from sparse_opt._values import Values


class Snapshot:
    """The arrays of a step when they are first asked for, and as they are now.

    Patterns stay while there is a snapshot.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        self.names = {*values.buffers, *values.origins, *values._mask_names}
        self._kept: dict[str, Array] = {}
        self._patterns: dict[str, tuple[int, Pattern, Blocks] | None] = {}
        self._blocks: dict[int, Blocks] = {}
        self._masks: dict[tuple[int, int], Array] = {}

    def now(self, name: str) -> Array:
        """Returns the stored entries of an array, which may be the step's own memory."""
        lines = [self._line(part) for part in self._parts(name)]
        return lines[0] if len(lines) == 1 else np.concatenate(lines)

    def kept(self, name: str) -> Array:
        """Returns the entries that were stored; not to be written."""
        if name not in self._kept:
            self._kept[name] = self.now(name).copy()
        return self._kept[name]

    def read(self, name: str) -> Array:
        """Returns an array that was, dense, with zeros where no block is.

        One without blocks is the memory that `kept` returns, another one is new.
        """
        line, end, parts = self.kept(name), 0, {}
        for part in self._parts(name):
            start, end = end, end + self._line(part).size
            parts[part] = self._spread(part, line[start:end])
        origin = self._values.origins.get(name)
        return origin.join(parts) if origin else parts[name]

    def pack(self, name: str, dense: Array) -> Array:
        """Returns the entries of a dense array that are stored: of all, its own memory."""
        origin = self._values.origins.get(name)
        parts = origin.split(dense.reshape(origin.shape)) if origin else [(name, dense)]
        lines = [self._gather(part, entries) for part, entries in parts]
        return lines[0] if len(lines) == 1 else np.concatenate(lines)

    def stored(self, name: str) -> Array | None:
        """Returns which entries of an array are stored; None: all."""
        parts = self._parts(name)
        if not any(self._pattern(part) for part in parts):
            return None
        kept = {part: self._mask(part) for part in parts}
        origin = self._values.origins.get(name)
        return origin.join(kept) if origin else kept[name]

    def _parts(self, name: str) -> list[str]:
        origin = self._values.origins.get(name)
        return list(origin.parts) if origin else [name]

    def _pattern(self, part: str) -> tuple[int, Pattern, Blocks] | None:
        """Returns the pattern of what lies in blocks, and its place."""
        if part not in self._patterns:
            self._patterns[part] = self._find_pattern(part)
        return self._patterns[part]

    def _find_pattern(self, part: str) -> tuple[int, Pattern, Blocks] | None:
        buffer = self._values.buffers.get(part)
        if buffer is None or buffer.kind != "values" or part in self._values._masks:
            return None
        place, pattern = buffer.pattern, self._values._pattern_of(buffer)
        if place not in self._blocks:
            self._blocks[place] = self._values._session.blocks(pattern)
        return place, pattern, self._blocks[place]

    def _line(self, part: str) -> Array:
        values = self._values
        if part in values._masks:
            return values._read(part).reshape(-1)
        array = values.arrays[part]
        if found := self._pattern(part):
            slot = found[2].slot
            # In their order, as they are until they are updated, without a copy.
            is_ordered = np.array_equal(slot, np.arange(len(slot)))
            array = array[: len(slot)] if is_ordered else array[slot]
        return array.reshape(-1)

    def _gather(self, part: str, dense: Array) -> Array:
        if found := self._pattern(part):
            dense = _blocks.gather(found[1], found[2], dense)
        return dense.reshape(-1)

    def _spread(self, part: str, line: Array) -> Array:
        if found := self._pattern(part):
            return _blocks.spread(found[1], found[2], line)
        values = self._values
        is_mask = part in values._masks
        shape = values._masks[part][1].shape if is_mask else values.arrays[part].shape
        return line.reshape(shape)

    def _mask(self, part: str) -> Array:
        """Returns which entries of a matrix are stored."""
        found = self._pattern(part)
        if found is None:
            return np.ones(self._values.buffers[part].shape, np.bool_)
        place, pattern, blocks = found
        if (key := (place, pattern.rows)) not in self._masks:
            count = len(blocks.slot) * pattern.block_rows * pattern.block_cols
            self._masks[key] = _blocks.spread(pattern, blocks, np.ones(count, np.bool_))
        return self._masks[key]
