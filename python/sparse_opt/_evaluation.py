# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Programs without updates, on the state of a training step.

"""Forward-only programs.

They run on the memory of a training step, its patterns too: what they compute is
of the values that the step has then, without a copy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sparse_opt import _description, _runtime
from sparse_opt._errors import StepError
from sparse_opt._exclusive import Use, exclusive
from sparse_opt._program import Array, NamedArrays, Program
from sparse_opt._description import Buffer

if TYPE_CHECKING:
    from sparse_opt._step import Step


class Evaluation:
    """A compiled function of a step's parameters and of a batch.

    Attributes:
      arrays: the memory of each argument by its name; that of parameters is the
        step's own.
      report: what the compiler made sparse, what it left dense, and why.
    """

    report = ""

    def __init__(
        self,
        library: str | os.PathLike[str],
        program: Program | None,
        source: Step,
    ) -> None:
        self._step = _runtime.Step(os.fspath(library))
        self._source = source
        self._session = _runtime.Session(self._step, "", 0, source._session)
        self._program = program or NamedArrays([])
        self.buffers: Mapping[str, Buffer] = {
            b.name: b for b in self._step.buffers if b.kind in ("dense", "values")
        }
        self.arrays: Mapping[str, Array] = {
            name: self._session.array(b) for name, b in self.buffers.items()
        }
        self._outputs = [
            self._session.array(b) for b in self._step.buffers if b.kind == "output"
        ]
        self._seed = next((n for n, b in self.buffers.items() if b.role == "seed"), "")
        self._missing = {
            n for n, b in self.buffers.items() if b.role in ("batch", "")
        }
        # What the step has no use for, and so does not have.
        for name, value in self._program.values():
            buffer = self.buffers.get(name)
            if buffer and buffer.role in ("buffer", "constant"):
                if name not in source.buffers:
                    self._write(name, value)

    def __repr__(self) -> str:
        return (
            f"<sparse_opt.Evaluation '{self._step.name}' of {self._source!r}>"
        )

    def __reduce__(self) -> NoReturn:
        raise StepError(
            "expected something that can be copied or pickled, but got a compiled"
            " program: bind it to another step"
        )

    @property
    def _use(self) -> Use:
        return self._source._use

    @exclusive
    def __call__(self, *batch: Any, seed: int = 0, **named: Any) -> Any:
        """Returns what the exported function does, of the step's values as they are.

        Args:
          *batch: what the function takes behind the state.
          seed: of dropout, where the function has any.
          **named: arguments by name, for a program that came as text.

        Raises:
          StepError: the batch differs from the exported one in its structure, its
            shapes or its types.
        """
        self._source._take_changes()
        given = set()
        for name, value in self._program.inputs(batch, named):
            given.add(name)
            if name in self._source._mask_names:
                self._source._require_same_mask(name, value)
            elif name in self.arrays:
                self._write(name, value)
            elif name not in self._source.arrays:
                raise StepError(
                    f"expected the name of an argument, but got '{name}'; the program"
                    f" has {', '.join(sorted(self.buffers))}"
                )
        if missing := self._missing - given:
            raise StepError(f"expected an array for '{min(missing)}', but got none")
        self._missing = set()
        if self._seed and self._seed not in given:
            self.arrays[self._seed][...] = seed & 0x7FFFFFFF
        self._session.run()
        return self._program.outputs(self._outputs)

    @property
    def products(self) -> dict[str, int]:
        """How many products of each kind a run computes, and what stayed dense."""
        return self._step.products

    def _write(self, name: str, value: Array) -> None:
        target = self.arrays[name]
        if self.buffers[name].role not in ("batch", "", "buffer", "constant", "seed"):
            raise StepError(
                f"expected an argument of the batch, but got '{name}', which is of the"
                " step's state: write() of the step changes it"
            )
        if value.shape != target.shape or value.dtype != target.dtype:
            _description.require(name, target.shape, np.dtype(target.dtype), value)
        target[...] = value
