# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The shapes of batches that a step has code for.

"""One step, compiled for batches of several shapes.

Each shape has a library, results and a batch of its own, and all have the weights, the
patterns and the optimizer state of the first one: they are in memory once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sparse_opt import _compiler, _description, _runtime, _say
from sparse_opt._check import Check
from sparse_opt._description import Array, Buffer
from sparse_opt._errors import ExportError, StepError
from sparse_opt._program import Export, Program, Shapes
from sparse_opt._ranks import Ranks

# Arguments of a call that all shapes have: one that is not given is the last one.
_OF_CALLS = ("lr", "seed", "apply")


class Shape:
    """A step's code for batches of one shape, and what it has besides the state.

    Attributes:
      program: takes batches apart, and puts results together.
      inputs: the arguments that are of one batch.
      missing: those that no call has given yet.
      check: compares its runs with the program's; None: no more of them.
    """

    check: Check | None = None

    def __init__(
        self,
        step: _runtime.Step,
        session: _runtime.Session,
        program: Program,
        export: str = "",
    ) -> None:
        self.session, self.program, self.export = session, program, export
        self.buffers: Mapping[str, Buffer] = {
            b.name: b for b in step.buffers if b.kind in ("dense", "values")
        }
        self.arrays: Mapping[str, Array] = {
            name: session.array(b) for name, b in self.buffers.items()
        }
        self.outputs = [session.array(b) for b in step.buffers if b.kind == "output"]
        self.inputs = {
            b.name
            for b in self.buffers.values()
            if b.role in ("batch", "") and not b.carried
        }
        self.missing = set(self.inputs)

    def take_constants(self, first: Shape) -> None:
        """Takes what the program does not change, and the first shape has no use for."""
        missing = {
            name
            for name, b in self.buffers.items()
            if b.role in ("buffer", "constant") and name not in first.buffers
        }
        if missing:
            for name, value in self.program.values():
                if name in missing:
                    self.write(name, value)

    def require_calls(self, first: Shape) -> None:
        """Raises `StepError` if its calls take a number that those of the first do not."""
        for name, buffer in self.buffers.items():
            if buffer.role in _OF_CALLS and name not in first.buffers:
                raise StepError(
                    f"expected a step without '{name}', as that of the first shape is, but"
                    " got one with it"
                )

    def write(self, name: str, value: Array) -> None:
        """Writes an array of the batch."""
        target = self.arrays[name]
        if value.shape != target.shape or value.dtype != target.dtype:
            _description.require(name, target.shape, target.dtype, value)
        target[...] = value


class BatchShapes:
    """The code of a step for each shape of its batches, which is compiled when a batch of a
    new shape comes.

    Attributes:
      first: that of the exported batch.
      known: all of them, by the shapes of a batch.
      compilation: how the first was made; None of a library that was not made here.
      most: how many of them there may be.
      are_checked: whether the first run of each further one is compared with the program's.
      ranks: the processes that train together, for which there is one shape.
    """

    compilation: _compiler.Compilation | None = None
    most = 1
    are_checked = False

    def __init__(self, first: Shape, ranks: Ranks | None) -> None:
        self.first, self.ranks = first, ranks
        self.known: dict[Shapes, Shape] = {first.program.shapes: first}

    @property
    def others(self) -> list[Shape]:
        """Those behind the first."""
        return [shape for shape in self.known.values() if shape is not self.first]

    def prepare(self, batches: Sequence[Any]) -> None:
        """Compiles for the shapes of batches."""
        for batch in batches:
            self.of(self.first.program.call_of(batch), {})

    def of(self, batch: Sequence[Any], named: Mapping[str, Any]) -> Shape:
        """Returns the code for a batch, which is compiled if there is none."""
        shapes = self.first.program.shapes_of(batch, named)
        if (found := self.known.get(shapes)) is None:
            found = self._compile_for(batch, shapes)
            self.known[shapes] = found
        return found

    def export_of(
        self, batch: Sequence[Any], shapes: Shapes, known: Mapping[Shapes, Any]
    ) -> tuple[str, Program | None]:
        """Returns the text and the program of a batch of some shapes, exported again if there
        is none and `known` has room for one more."""
        if (shape := self.known.get(shapes)) is None:
            self._require_room(known, shapes)
            export = self._export_again(batch)
            return export, export.program
        if shape is self.first:
            return self.require_compilation("evaluate").export, shape.program
        return shape.export, shape.program

    def require_compilation(self, call: str) -> _compiler.Compilation:
        if self.compilation is None:
            raise StepError(
                f"expected a step that sparse_opt.compile made, to {call}, but got one"
                " of a library: compile the export again"
            )
        return self.compilation

    def _shown(self, shapes: Shapes) -> str:
        """Returns in words where shapes differ from the first ones."""
        known = dict(self.first.program.shapes)
        other = [f"'{n}' {list(shape)}" for n, shape in shapes if known.get(n) != shape]
        return ", ".join(other[:4]) + (", ..." if len(other) > 4 else "")

    def _compile_for(self, batch: Sequence[Any], shapes: Shapes) -> Shape:
        made = self.require_compilation("train on batches of another shape")
        text = self._shown(shapes)
        if self.ranks:
            raise StepError(
                f"expected batches of one shape for several processes, but got {text}: pad"
                " them"
            )
        self._require_room(self.known, shapes)
        start = time.perf_counter()
        export = self._export_again(batch)
        step = _runtime.Step(os.fspath(_compiler.of_shape(made, export)))
        try:
            session = _runtime.Session(step, "", 0, self.first.session, trains=True)
            shape = Shape(step, session, export.program or self.first.program, export)
            shape.require_calls(self.first)
        except StepError as error:
            raise StepError(
                f"{error}: the step for {text} has to have the weights, patterns and state of"
                " the first one, pad such a batch"
            ) from error
        shape.take_constants(self.first)
        if self.are_checked:
            shape.check = Check(1, shape.program, updates=False)
        _say.line(
            f"compiled the step for {text} in {time.perf_counter() - start:.2g} s, shape"
            f" {len(self.known) + 1} of at most {self.most}"
        )
        return shape

    def _require_room(self, known: Mapping[Shapes, Any], shapes: Shapes) -> None:
        if len(known) >= self.most:
            raise StepError(
                f"expected at most {self.most} shapes of batches, but got another one,"
                f" {self._shown(shapes)}: pad batches to a few lengths (buckets), or say"
                " compile(max_shapes=)"
            )

    def _export_again(self, batch: Sequence[Any]) -> Export:
        """Returns the program's export for a batch of another shape."""
        self.first.program.check()
        try:
            return self.first.program.again(batch)
        except ExportError as error:
            raise StepError(str(error)) from error
