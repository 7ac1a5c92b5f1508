# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What an export keeps of the program that it came from.

"""Exports, and the programs behind them.

An export is text. What text cannot hold, the first values and the shape of the
user's own state and batches, stays with the program that was exported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from sparse_opt import _description, _device_arrays, _marks
from sparse_opt._check import Call, Rerun
from sparse_opt._description import Blocks, Counters
from sparse_opt._errors import StepError
from sparse_opt._marks import Mark, Marks

if TYPE_CHECKING:
    from sparse_opt._explain import Weights

Array = np.ndarray[Any, Any]
# Those of the arrays of a batch, by name.
Shapes: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"


class Limits(NamedTuple):
    """The bounds of the integers of an array; None where there is no bound."""

    least: int | None = None
    end: int | None = None  # the first number above them
    ignored: int | None = None  # counts as none, and may lie anywhere


class Write(Protocol):
    """Takes an array of a state, and of a weight in blocks `row_ptr` and `col_idx`."""

    def __call__(
        self, name: str, value: Array, blocks: tuple[Array, Array] | None = None, /
    ) -> None: ...


# Arrays by their names, and the blocks of weights that have a pattern of their own.
Changes = tuple[Mapping[str, Array], Mapping[str, tuple[Array, Array]]]


class Source(Protocol):
    """What a compiled step has, by the names of the exported program."""

    @property
    def counters(self) -> Counters: ...

    def _current(self, name: str) -> Array:
        """Returns a dense copy of an array, whatever was written into the program's own."""

    def _current_blocks(self, name: str) -> Blocks:
        """Returns which blocks of a weight are stored, and where."""


class Layers(Protocol):
    """The weights that a program has in blocks itself, as a compiled step sees them."""

    @property
    def marks(self) -> Mapping[str, Mark]:
        """What the compiler gets to know of each, by name."""

    @property
    def updates(self) -> int:
        """How often their patterns were updated."""

    def blocks(self) -> Iterable[tuple[str, Array, Array]]:
        """Returns `row_ptr` and `col_idx` of the blocks that are stored, by name."""


class Program(Protocol):
    """A training step of a framework, as a compiled step sees it."""

    framework: str  # by its name, as `PyTorch`

    @property
    def layers(self) -> Layers | None:
        """Its weights in blocks, if it may have any."""

    def check(self) -> None:
        """Raises `StepError` if the program has changed since the export."""

    def values(self) -> Iterable[tuple[str, Array]]:
        """Returns what arguments hold before the first step, by name."""

    def examples(self) -> Iterable[tuple[str, Array]]:
        """Returns what the exported call took behind the state, by name."""

    def limits_of(self, name: str) -> Limits:
        """Returns what the program says of the integers of an array of the batch."""

    def rate(self) -> float | None:
        """Returns the learning rate of the next step, if the program has one."""

    def inputs(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Iterable[tuple[str, Array]]:
        """Returns the arrays of one call, by name; raises `StepError`."""

    @property
    def shapes(self) -> Shapes:
        """The shapes of the exported batch; none of what has no program."""

    def shapes_of(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Shapes:
        """Returns the shapes of a call's batch, or those of the exported one where it
        cannot be exported again; raises `StepError` for another structure."""

    def call_of(self, batch: Any) -> Sequence[Any]:
        """Returns what a call takes of a batch that stands in a list."""

    def again(self, arguments: Sequence[Any]) -> Export:
        """Exports the program again, for a batch of other shapes and the same types."""

    def outputs(self, arrays: Sequence[Array]) -> Any:
        """Returns the loss, and metrics if there are any, in the user's form."""

    def state(self, step: Source) -> Any:
        """Returns the state in the user's form."""

    def load_state(self, state: Any, write: Write) -> None:
        """Takes a state apart that `state` has put together."""

    def store(self, step: Source) -> None:
        """Copies the state into the program's own objects, if it has any."""

    def changes(self, of: str | None = None) -> Changes:
        """Returns what was written into the program's own objects since a step took them or
        gave them back: arrays by their names, and the patterns of layers in blocks; with
        `of` nothing, unless it was written."""

    def outdated(self, step: Source) -> None:
        """Notes that a step has other values than the program's own objects."""

    def rerun(self, call: Call) -> Rerun | None:
        """Runs the program itself on what a step has, and returns what that leaves
        behind; None if there is nothing to run. Raises `Unchecked`."""

    def forget(self) -> None:
        """Drops what `rerun` keeps between runs."""


class Export(str):
    """The text of a step, and the program that it came from.

    It is the text itself, which `print` prints and a file may hold; `repr` says in a few
    lines what it is of.
    """

    program: Program | None = None
    marks: Sequence[Mark] = ()  # what it is to be compiled with
    _weights: Weights | None = None
    # The stacks of matrices of which operations take one for each row, and what exports the
    # program with products of their own.
    _stacks: Sequence[str] = ()
    _apart: Callable[[], Export] | None = None

    @classmethod
    def of(cls, text: str, program: Program, marks: Sequence[Mark] = ()) -> Export:
        export = cls(text)
        export.program = program
        export.marks = tuple(marks)
        return export

    def take_apart(self, stacks: Sequence[str], export: Callable[[], Export]) -> None:
        """Notes the names of weights, stacks of matrices of which an operation takes one for
        each row, and what exports the program again with products of each matrix."""
        if "bsr.grouped = " in self:
            self._stacks, self._apart = tuple(stacks), export

    def fitted(self, marks: Sequence[Mark], *, alone: bool = True) -> Export:
        """Returns the export for marks: where one is for a matrix of a stack, or where steps are
        not those of a processor `alone`, each matrix has products of its own."""
        is_marked = any(mark.matches(name) for mark in marks for name in self._stacks)
        if self._apart is None or (alone and not is_marked):
            return self
        other = self._apart()
        other.marks = self.marks
        return other

    @property
    def weights(self) -> Weights:
        """The weights that may be marked, with their shapes, the blocks that divide them,
        and their shares of the step's work.

        The first call takes as long as the compiler needs up to machine code, some
        seconds for BERT-Base. Where it is not there, or refuses the step, weights have no
        shares.
        """
        if self._weights is None:
            from sparse_opt import _explain  # which compiles exports

            self._weights = _explain.weights_of(self)
        return self._weights

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        marks: Marks | None = None,
        data: Mapping[Any, Any] | None = None,
        shapes: Sequence[Any] = (),
    ) -> None:
        """Writes all that `sparse-train` trains the step with, into a folder:

            step.mlir           the text
            values.safetensors  what its state begins with, by the names of its arguments
            data.safetensors    examples, an array for each of the batch
            patterns/           of block-sparse layers, and with masks: which blocks are stored
            train.yaml          a configuration, which says what each array is

        `sparse-train --config FOLDER/train.yaml` then trains, with the rate that the
        optimizer has now. Weights with marks begin with random blocks, as by `compile`, and
        those of block-sparse layers with the layers' own. With marks that name masks all
        begin with what the masks keep, as by `compile(pattern="mask")`. Both are known when
        the step is compiled, which is done for it.

        With `shapes`, batches of other lengths, as in `compile`, there is a text and a file
        of examples for each length, `step-<length>.mlir` and `data-<length>.safetensors`: a
        length is how long a dimension of the batch's arrays is that the batches differ in,
        behind that of examples, and where there are several the longest. The configuration
        trains with all of them, each for as many steps, the shortest first.

        Args:
          folder: is made if there is none.
          marks: which weights are block-sparse, as in `compile`; by default those that the
            export was given.
          data: the examples, an array `[N, ...]` for each one of the batch `[B, ...]`, by
            the last word of its name, and maybe `held_out.<name>`, those that losses are
            measured on. By default the exported batch is both, and to be replaced. With
            `shapes` a mapping of each length to that.
          shapes: batches of other lengths, beside the exported one.

        Raises:
          ExportError: the folder has a train.yaml; the export is no training step; an array
            of the batch has no examples, or integers that the program does not take; a
            weight has no mask where others have one; batches of `shapes` have no length
            that tells them apart.
        """
        from sparse_opt import _start  # which compiles exports

        _start.save(self, folder, marks, data, shapes)

    def __repr__(self) -> str:
        arguments = _marks.arguments_of(self)
        weights = [a for a in arguments.values() if a.is_weight]
        framework = self.program.framework if self.program else NamedArrays.framework
        lines = [
            f"<sparse_opt.Export of {framework}: {len(arguments)} arguments, {len(self):,}"
            " characters of text (print shows it)",
            f"  weights     {len(weights):,}, of {sum(a.size for a in weights):,} parameters"
            " (export.weights lists them)",
            f"  operations  {len(_OPERATION.findall(self)):,}",
        ]
        if self.marks:
            lines.append(f"  marks       {', '.join(map(repr, self.marks))}")
        return "\n".join(lines) + ">"


_OPERATION = re.compile(r'^ *(?:%[^=\n]*= *)?"?[a-z_]+\.[a-z_]', re.MULTILINE)


class NamedArrays:
    """The program of a step that came as text: everything goes by name."""

    framework = "text"
    layers: Layers | None = None
    shapes: Shapes = ()

    def __init__(self, carried: Sequence[str]) -> None:
        self._carried = carried

    def check(self) -> None:
        return None

    def values(self) -> Iterable[tuple[str, Array]]:
        return ()

    def examples(self) -> Iterable[tuple[str, Array]]:
        return ()

    def limits_of(self, name: str) -> Limits:
        return Limits()

    def rate(self) -> float | None:
        return None

    def inputs(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Iterable[tuple[str, Array]]:
        if len(arguments) > 1 or not all(isinstance(a, Mapping) for a in arguments):
            raise StepError(
                "expected one mapping from names to arrays, but got"
                f" {len(arguments)} arguments"
            )
        both = {**(arguments[0] if arguments else {}), **named}
        return [
            (name, _device_arrays.as_array(_description.plain(name, value)))
            for name, value in both.items()
        ]

    def shapes_of(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Shapes:
        return ()

    def call_of(self, batch: Any) -> Sequence[Any]:
        raise StepError(
            "expected an export of PyTorch or JAX for shapes=, but got text, which has one:"
            " compile the text of each shape"
        )

    def again(self, arguments: Sequence[Any]) -> Export:
        raise NotImplementedError

    def outputs(self, arrays: Sequence[Array]) -> Any:
        values = tuple(a.copy()[()] for a in arrays)
        return values[0] if len(values) == 1 else values

    def state(self, step: Source) -> dict[str, Array]:
        return {name: step._current(name) for name in self._carried}

    def load_state(self, state: Any, write: Write) -> None:
        for name, value in state.items():
            write(name, np.asarray(_description.plain(name, value)))

    def changes(self, of: str | None = None) -> Changes:
        return {}, {}

    def outdated(self, step: Source) -> None:
        """A text has no objects of its own."""

    def store(self, step: Source) -> None:
        raise StepError(
            "expected a program with objects of its own, but got text: use"
            " state_dict()"
        )

    def rerun(self, call: Call) -> Rerun | None:
        return None

    def forget(self) -> None:
        return None
