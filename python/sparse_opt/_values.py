# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The values of a compiled step, by the names of the exported program.

"""Values in the forms that they have: dense, stored blocks, parts of a stack, masks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Literal

import numpy as np

from sparse_opt import _blocks, _description, _runtime, _say, _source
from sparse_opt._description import Blocks, Buffer, Origin, Pattern
from sparse_opt._errors import StepError
from sparse_opt._exclusive import Use, changing, exclusive
from sparse_opt._program import Array, Program
from sparse_opt._ranks import Ranks
from sparse_opt._snapshot import Snapshot

Choice = Literal["random", "largest", "mask"]


class Values:
    """What a step has in memory; `Step` has the attributes' meaning."""

    _program: Program

    def __init__(
        self, step: _runtime.Step, session: _runtime.Session, ranks: Ranks | None
    ) -> None:
        self._step, self._session, self._ranks = step, session, ranks
        self._use = Use()
        self._is_made = False  # until the step has its first values
        self._has_said = False  # that it took what was written
        self._first_std: dict[str, float] = {}  # of weights in blocks
        self.buffers: Mapping[str, Buffer] = {
            b.name: b for b in self._step.buffers if b.kind in ("dense", "values")
        }
        self.arrays: Mapping[str, Array] = {
            name: self._session.array(b) for name, b in self.buffers.items()
        }
        self.patterns: Mapping[str, Pattern] = {
            p.name: p for p in self._step.patterns
        }
        self.origins: Mapping[str, Origin] = self._step.origins
        self._masks = {
            mask.name: (pattern, mask)
            for pattern in self._step.patterns
            for mask in pattern.masks
        }
        whole = {part: n for n, o in self.origins.items() for part in o.parts}
        self._whole = whole
        self._mask_names = {whole.get(name, name) for name in self._masks}

    @exclusive
    def blocks(self, name: str) -> Blocks:
        """Returns which blocks of the weight `name` are stored, and where."""
        self._take_changes(name)
        return self._current_blocks(name)

    def _current_blocks(self, name: str) -> Blocks:
        return self._session.blocks(self._pattern(name))

    @changing
    def set_blocks(
        self, name: str, row_ptr: Array, col_idx: Array, slot: Array | None = None
    ) -> None:
        """Makes these blocks of the weight `name` the stored ones."""
        self._session.set_blocks(self._pattern(name), row_ptr, col_idx, slot)

    def _take_changes(self, of: str | None = None) -> None:
        """Takes what was written into the program's own objects; patterns stay, but those
        of layers. With `of` an array's name, only if that is among it."""
        values, patterns = self._program.changes(of and self._whole.get(of, of))
        if not values:
            return
        self._write_all(values.items(), patterns)
        if not self._has_said:
            self._has_said = True
            first = min(values, key=lambda name: name.startswith("optimizer."))
            more = len(values) - 1
            _say.line(
                f"the step goes on with what was written into its program: '{first}'"
                f"{f' and {more} more' if more else ''}; an eager loop that is to stay apart"
                " trains a copy.deepcopy() of the model, with an optimizer of its own"
            )

    @exclusive
    def read(self, name: str) -> Array:
        """Returns a dense copy of an array; absent blocks are zeros.

        A mask of the exported program is what the pattern is now.
        """
        self._take_changes(name)
        return self._current(name)

    def _current(self, name: str) -> Array:
        if origin := self.origins.get(name):
            return origin.join({part: self._read(part) for part in origin.parts})
        return self._read(name)

    def _read(self, name: str) -> Array:
        """Returns a dense copy of what the step has, or had, under this name."""
        if name in self._masks:
            pattern, mask = self._masks[name]
            return _blocks.to_mask(pattern, self._session.blocks(pattern), mask)
        buffer = self._buffer(name)
        self._require_whole(buffer)
        array = self.arrays[name]
        if buffer.kind != "values":
            return array.copy()
        pattern = self._pattern_of(buffer)
        return _blocks.to_dense(pattern, self._session.blocks(pattern), array)

    @exclusive
    def to_scipy_bsr(self, name: str, copy: bool = True) -> Any:
        """Returns a weight in blocks, or what the optimizer keeps of one, as a
        `scipy.sparse.bsr_array`.

        Args:
          name: of an array of f32 or f64 that the step stores in blocks.
          copy: without, the array's `data` are the step's own memory where its blocks lie
            row by row, as they do until an update of the pattern moves them.
        """
        try:
            from scipy.sparse import bsr_array  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise StepError("expected SciPy to be installed, but got no module 'scipy'") from None
        self._take_changes(name)
        buffer = self._buffer(name)
        self._require_whole(buffer)
        if buffer.kind != "values" or buffer.type not in ("f32", "f64"):
            raise StepError(
                "expected the name of an array of f32 or f64 that is stored in blocks, but got"
                f" '{name}'" + ("" if buffer.kind != "values" else f", which is of {buffer.type}")
            )
        pattern = self._pattern_of(buffer)
        blocks = self._session.blocks(pattern)
        data = _blocks.by_rows(blocks, self.arrays[name], copy)
        shape = (pattern.rows, pattern.cols)
        return bsr_array((data, blocks.col_idx, blocks.row_ptr), shape)

    @changing
    def take_scipy_bsr(self, name: str, matrix: Any) -> None:
        """Makes the blocks of a `scipy.sparse.bsr_array` the stored ones of a weight, with
        their values; what the optimizer keeps of a block that stays goes with it.

        Args:
          name: of a weight in blocks, in blocks of the same size.
          matrix: at most as many blocks as there are slots, none of them twice.
        """
        pattern = self._pattern(name)
        data: Array = np.asarray(getattr(matrix, "data", 0))
        block = (pattern.block_rows, pattern.block_cols)
        shape = getattr(matrix, "shape", None)
        if shape != (pattern.rows, pattern.cols) or data.shape[1:] != block:
            got = f"blocks of {'x'.join(map(str, data.shape[1:]))} in {shape}"
            raise StepError(
                f"expected a scipy.sparse.bsr_array of {pattern.rows}x{pattern.cols} in blocks of"
                f" {block[0]}x{block[1]}, but got "
                + (got if data.ndim == 3 else type(matrix).__name__)
            )
        blocks = Blocks(matrix.indptr, matrix.indices, np.arange(len(data)))
        order = np.lexsort((blocks.col_idx, blocks.rows))
        blocks = Blocks(blocks.row_ptr, blocks.col_idx[order], blocks.slot)
        indices = (blocks.row_ptr.astype(np.int32), blocks.col_idx.astype(np.int32))
        self._session.check_blocks(pattern, *indices)
        dense = _blocks.spread(pattern, blocks, data[order])
        dtype = self._step.buffers[pattern.weight].dtype
        self._write_all([(name, dense.astype(dtype))], {name: indices})

    def _snapshot(self) -> Snapshot:
        """Returns what keeps arrays as they are now, from when they are asked for."""
        return Snapshot(self)

    @changing
    def write(self, name: str, value: Array) -> None:
        """Writes a dense array; what lies in no stored block is dropped.

        A mask of the exported program becomes the pattern.
        """
        self._write_all([(name, value)])

    def _write_all(
        self,
        values: Iterable[tuple[str, Array]],
        patterns: Mapping[str, tuple[Array, Array]] = {},
    ) -> None:
        """Writes dense arrays as `write` does, all or none, and patterns before them."""
        parts = [
            part
            for name, value in values
            for part in self._split(name, _description.plain(name, value))
        ]
        for name, entries in parts:
            self._check_dense(name, entries)
        for name, (row_ptr, col_idx) in patterns.items():
            self._session.check_blocks(self._pattern(name), row_ptr, col_idx)
        for name, (row_ptr, col_idx) in patterns.items():
            self._move_blocks(self._pattern(name), row_ptr, col_idx)
        # Weights lie in the blocks that their masks keep.
        for are_masks in (True, False):
            for name, entries in parts:
                if (name in self._masks) == are_masks:
                    self._write_dense(name, entries)

    def _move_blocks(self, pattern: Pattern, row_ptr: Array, col_idx: Array) -> None:
        """Makes these blocks the stored ones; what is kept of a block goes with it."""
        kept = [b for b in self.buffers.values() if b.kind == "values"]
        dense = {b.name: self._read(b.name) for b in kept if b.pattern == pattern.index}
        slots = pattern.slots
        were_stored = _blocks.to_dense(
            pattern.of_counts, self._session.blocks(pattern), np.ones((slots, 1, 1), np.bool_)
        )
        self._session.set_blocks(pattern, row_ptr, col_idx, None)
        for name, value in dense.items():
            if self.buffers[name].init == "ones" and self.buffers[name].role == "count":
                value = np.where(were_stored, value, np.float32(1))
            self._write_dense(name, value)

    def _check_dense(self, name: str, value: Array) -> None:
        """Raises `StepError` for what `_write_dense` does not take."""
        if name in self._masks:
            self._blocks_of_mask(name, value)
            return
        buffer = self._buffer(name)
        if buffer.kind == "values":
            _require_like(self._pattern_of(buffer), buffer, value)
        else:
            _description.require(name, buffer.whole, np.dtype(buffer.dtype), value)

    def _write_dense(self, name: str, value: Array) -> None:
        """Writes a dense array into what the step has, or had, under this name."""
        self._check_dense(name, value)
        if name in self._masks:
            self._write_mask(name, value)
            return
        buffer = self._buffer(name)
        rank = self._ranks.rank if self._ranks else 0
        if buffer.kind != "values":
            self._write(name, buffer.shard_of(value, rank) if buffer.is_shard else value)
            return
        pattern = self._pattern_of(buffer)
        blocks = self._session.blocks(pattern)
        if not buffer.is_shard:
            _blocks.from_dense(pattern, blocks, value, self.arrays[name])
            return
        whole = np.zeros(buffer.whole, buffer.dtype)
        _blocks.from_dense(pattern, blocks, value, whole)
        self.arrays[name][...] = buffer.shard_of(whole, rank)

    def _require_whole(self, buffer: Buffer) -> None:
        """Raises `StepError` for what other processes have a share of."""
        if buffer.is_shard:
            raise StepError(
                f"expected an array that each process has all of, but got '{buffer.name}',"
                " of which it has a share: save() writes all of it"
            )

    @changing
    def write_weight(
        self, name: str, value: Array, pattern: Literal["largest", "keep"]
    ) -> None:
        """Writes a dense array, and chooses anew which of its blocks are stored."""
        for part, entries in self._split(name, value):
            if pattern == "keep":
                self._write_dense(part, entries)
            else:
                self._take_largest(part, entries)

    def _is_dynamic(self, pattern: Pattern) -> bool:
        """Whether updates change a pattern: that of a weight that the step trains."""
        return not pattern.is_static and self._step.buffers[pattern.weight].carried

    def _keep_patterns(self, patterns: Mapping[str, Blocks]) -> None:
        """Goes on with the patterns of another step where the program's weights, which
        it has trained, are zero off them."""
        own = {n for n, p in self.patterns.items() if not p.is_static} - self._of_layers
        if not (kept := own & set(patterns)):
            return
        values = self._program_values()
        for name in kept:
            before, blocks = self._current_blocks(name), patterns[name]
            self.set_blocks(name, blocks.row_ptr, blocks.col_idx)
            self._write_dense(name, values[name])
            if not np.array_equal(self._current(name), values[name]):
                self.set_blocks(name, before.row_ptr, before.col_idx)
        for name, value in values.items():
            if name in self.buffers:
                self._write_dense(name, value)
        self._begin_counts()

    def _counts(self) -> Iterator[tuple[Buffer, Any]]:
        """Yields the numbers that each block has of its own, with what they are of a block
        as old as its matrix: a number that the step has of that, or the end of a ramp."""
        for buffer in self.buffers.values():
            if buffer.role == "count":
                weight = self._step.patterns[buffer.pattern].name
                if length := re.fullmatch(r"constant\((\d+)\)", buffer.init):
                    yield buffer, np.float32(length[1])
                else:
                    yield buffer, self.arrays[buffer.name.removesuffix(f" of {weight}")]

    def _begin_counts(self, known: Set[str] = frozenset()) -> None:
        """Makes blocks as old as their matrices, but for counts whose names are known."""
        for buffer, number in self._counts():
            if buffer.name not in known:
                self.arrays[buffer.name][...] = number

    def _has_young_blocks(self) -> bool:
        """Returns whether some blocks have made fewer steps than their matrices."""
        for buffer, number in self._counts():
            # Of products, the bits may differ.
            if buffer.init != "ones":
                blocks = self._session.blocks(self._step.patterns[buffer.pattern])
                ages = self.arrays[buffer.name][blocks.slot]
                if (ages != number.astype(np.float32)).any():
                    return True
        return False

    def _pattern_of(self, buffer: Buffer) -> Pattern:
        """Returns the pattern of a buffer of blocks, or of numbers of blocks."""
        pattern = self._step.patterns[buffer.pattern]
        return pattern.of_counts if buffer.role == "count" else pattern

    def _take_largest(self, name: str, value: Array) -> None:
        """Writes a dense array; the largest of its blocks become the stored ones."""
        chosen = self.patterns.get(name)
        if chosen is None or chosen.is_static:
            self._write_dense(name, value)
            return
        weight = self._step.buffers[chosen.weight]
        _require_like(chosen, weight, value)
        self._session.take_largest(chosen, value, weight.type)

    @exclusive
    def native_state(self) -> dict[str, Array]:
        """Returns weights and state as they are stored, by name.

        A weight in blocks is three arrays: `<name>.bsr.row_ptr`,
        `<name>.bsr.col_idx` and `<name>.bsr.values`, the blocks row by row.
        """
        state: dict[str, Array] = {}
        for name, buffer in self.buffers.items():
            if not is_kept(buffer):
                continue
            self._require_whole(buffer)
            if buffer.kind != "values":
                state[name] = self.arrays[name].copy()
                continue
            blocks = self._session.blocks(self._step.patterns[buffer.pattern])
            state[f"{name}.bsr.row_ptr"] = blocks.row_ptr
            state[f"{name}.bsr.col_idx"] = blocks.col_idx
            state[f"{name}.bsr.values"] = self.arrays[name][blocks.slot]
        return state

    @changing
    def load_native_state(self, state: Mapping[str, Array]) -> None:
        """Takes what `native_state` returns, patterns too, all or none."""
        patterns, arrays = self._check_native_state(state)
        for pattern, row_ptr, col_idx in patterns:
            if not pattern.is_static:
                self._session.set_blocks(pattern, row_ptr, col_idx, None)
        for name, value in arrays.items():
            buffer = self.buffers[name]
            if buffer.kind != "values":
                self._write(name, value)
                continue
            blocks = self._session.blocks(self._step.patterns[buffer.pattern])
            self.arrays[name][...] = 0
            self.arrays[name][blocks.slot] = value

    def _check_native_state(
        self, state: Mapping[str, Array]
    ) -> tuple[list[tuple[Pattern, Array, Array]], dict[str, Array]]:
        """Returns the patterns and the arrays of a state; raises `StepError`."""
        patterns = []
        for pattern in self._step.patterns:
            row_ptr, col_idx = (
                state.get(f"{pattern.name}.bsr.{part}")
                for part in ("row_ptr", "col_idx")
            )
            if row_ptr is None or col_idx is None:
                raise StepError(
                    f"expected '{pattern.name}.bsr.row_ptr' and '.col_idx' in the"
                    " state, but got neither"
                )
            if pattern.is_static:
                col_idx = self._session.blocks(pattern).col_idx
            else:
                self._session.check_blocks(pattern, row_ptr, col_idx)
            patterns.append((pattern, row_ptr, col_idx))
        arrays = {}
        for name, buffer in self.buffers.items():
            if not is_kept(buffer):
                continue
            self._require_whole(buffer)
            stored = buffer.kind == "values"
            key = f"{name}.bsr.values" if stored else name
            if key not in state:
                raise StepError(f"expected '{key}' in the state, but got none")
            shape = buffer.shape
            if stored:
                shape = (len(patterns[buffer.pattern][2]), *buffer.shape[1:])
            arrays[name] = _description.plain(key, state[key])
            _description.require(key, shape, np.dtype(buffer.dtype), arrays[name])
        return patterns, arrays

    def _take_values(self, choice: Choice | None) -> None:
        """Takes the program's first values, weights before their moments."""
        values = self._program_values()
        for pattern in self._step.patterns:
            if pattern.name in values and not self._step.buffers[pattern.weight].init:
                self._first_std[pattern.name] = _root_mean_square(values[pattern.name])
        if choice == "largest":
            for pattern in self._step.patterns:
                if pattern.name in self._of_layers:
                    continue
                dense = values.get(pattern.name)
                if dense is None:
                    raise StepError(
                        "expected an export that has values for its weights, but got"
                        f" none for '{pattern.name}': use pattern='random'"
                    )
                self._take_largest(pattern.name, dense)
        if choice == "mask":
            examples = {
                part: entries
                for name, value in self._program.examples()
                if name in self._mask_names
                for part, entries in self._split(name, value)
            }
            self._take_masks({**examples, **values})
        if layers := self._program.layers:
            for name, row_ptr, col_idx in layers.blocks():
                self.set_blocks(name, row_ptr, col_idx)
            self._session.count_updates(layers.updates)
        for name, value in values.items():
            if name in self.buffers:
                self._write_dense(name, value)
        self._begin_counts()
        if choice is None:
            self._warn_of_dropped(values)

    @property
    def _of_layers(self) -> Set[str]:
        """The weights that layers of the program have in blocks."""
        layers = self._program.layers
        return layers.marks.keys() if layers else set()

    def _program_values(self) -> dict[str, Array]:
        """Returns what the program has, by the names of the step's arrays."""
        return {
            part: entries
            for name, value in self._program.values()
            for part, entries in self._split(name, value)
        }

    def _warn_of_dropped(self, values: Mapping[str, Array]) -> None:
        """Warns of weights that random blocks leave out: they may be trained."""
        for pattern in self._step.patterns:
            weight = values.get(pattern.name)
            if weight is None or not weight.any():
                continue
            stored = np.count_nonzero(self.arrays[pattern.name])
            if stored < np.count_nonzero(weight):
                warnings.warn(
                    f"the blocks of '{pattern.name}' that are stored are random, and"
                    " what its weights hold elsewhere is dropped: say"
                    " pattern='largest' for trained weights, pattern='random' for new"
                    " ones",
                    stacklevel=_source.user_level(),
                )
                return

    def _split(self, name: str, value: Array) -> Iterator[tuple[str, Array]]:
        """Yields the parts of an argument of the exported step, or itself."""
        origin = self.origins.get(name)
        if origin is None:
            yield name, value
            return
        first, _ = self._matrix(next(iter(origin.parts)))
        _description.require(name, origin.shape, np.dtype(first), value)
        for part, entries in origin.split(value):
            yield part, entries.reshape(self._matrix(part)[1])

    def _matrix(self, name: str) -> tuple[type, tuple[int, ...]]:
        """Returns type and shape of a matrix of a pattern, or of its mask."""
        if name in self._masks:
            _, mask = self._masks[name]
            return mask.dtype, mask.shape
        buffer = self.buffers[name]
        pattern = self._step.patterns[buffer.pattern]
        return buffer.dtype, (pattern.rows, pattern.cols)

    def _take_masks(self, values: Mapping[str, Array]) -> None:
        """Makes the masks that the program has the patterns."""
        for pattern in self._step.patterns:
            found = [m for m in pattern.masks if m.name in values]
            if not found and not pattern.is_static and pattern.name not in self._of_layers:
                raise StepError(
                    f"expected a mask of '{pattern.name}' with values to take its"
                    " pattern from, but got none: mark it with mask=<names of masks>"
                )
            for mask in found:
                self._write_mask(mask.name, values[mask.name])

    def _write_mask(self, name: str, value: Array) -> None:
        """Makes a mask the pattern; values stay in their slots."""
        pattern, _ = self._masks[name]
        row_ptr, col_idx = self._blocks_of_mask(name, value)
        if not pattern.is_static:
            self._session.set_blocks(pattern, row_ptr, col_idx, None)

    def _blocks_of_mask(self, name: str, value: Array) -> tuple[Array, Array]:
        """Returns the blocks that a mask keeps, as the pattern can have them."""
        pattern, mask = self._masks[name]
        _description.require(name, mask.shape, np.dtype(mask.dtype), value)
        row_ptr, col_idx = _blocks.from_mask(pattern, mask, value)
        if pattern.is_static:
            blocks = self._session.blocks(pattern)
            if not np.array_equal(row_ptr, blocks.row_ptr) or not np.array_equal(
                col_idx, blocks.col_idx
            ):
                raise StepError(
                    f"expected mask '{name}' to be the static pattern of"
                    f" '{pattern.name}', but got another"
                )
        return row_ptr, col_idx

    def _buffer(self, name: str) -> Buffer:
        if name not in self.buffers:
            raise StepError(
                f"expected the name of an argument, but got '{name}'; the step has"
                f" {', '.join(sorted(self.buffers))}"
            )
        return self.buffers[name]

    def _pattern(self, name: str) -> Pattern:
        if name not in self.patterns:
            raise StepError(
                f"expected the name of a weight in blocks, but got '{name}'; the step"
                f" has {', '.join(sorted(self.patterns)) or 'none'}"
            )
        return self.patterns[name]

    def _write(self, name: str, value: Array) -> None:
        target = self.arrays.get(name)
        if target is None:
            self._buffer(name)
            return
        if value.shape != target.shape or value.dtype != target.dtype:
            _description.require(name, target.shape, target.dtype, value)
        target[...] = value


def is_kept(buffer: Buffer) -> bool:
    """Returns whether a buffer is a part of the state: not of one batch."""
    return buffer.carried or buffer.role in ("param", "buffer")


def _root_mean_square(values: Array) -> float:
    flat = values.reshape(-1)
    total = np.einsum("i,i->", flat, flat, dtype=np.float64)
    return float(np.sqrt(total / max(flat.size, 1)))


def _require_like(pattern: Pattern, buffer: Buffer, dense: Array) -> None:
    """Raises `StepError` if `dense` is not the matrix of a pattern."""
    shape = (pattern.rows, pattern.cols)
    _description.require(buffer.name, shape, np.dtype(buffer.dtype), dense)
