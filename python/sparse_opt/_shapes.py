# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The shapes of batches that a step has code for.

"""One step, compiled for batches of several shapes.

Each shape has a library, results and a batch of its own, and all have the weights, the
patterns and the optimizer state of the first one: they are in memory once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparse_opt import _description, _runtime
from sparse_opt._description import Array, Buffer
from sparse_opt._errors import StepError
from sparse_opt._program import Program, Shapes

if TYPE_CHECKING:
    from sparse_opt._check import Check

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


def shown(shapes: Shapes, first: Shapes) -> str:
    """Returns in words where shapes differ from the first ones."""
    known = dict(first)
    other = [f"'{n}' {list(shape)}" for n, shape in shapes if known.get(n) != shape]
    return ", ".join(other[:4]) + (", ..." if len(other) > 4 else "")
