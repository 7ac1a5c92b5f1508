# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiles steps and runs them in the user's own loop.

"""Compiled training steps.

`compile` makes native code of an export; the `Step` that it returns is called
once a batch, as the step that was exported was. Weights, patterns and
optimizer state lie in memory of the runtime, which NumPy arrays look into.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from sparse_opt import (
    _compiler, _description, _given, _method, _ranks, _runtime, _say, _source,
)  # fmt: skip
from sparse_opt._check import Call, Check, Rerun
from sparse_opt._description import Buffer, Counters
from sparse_opt._errors import StepError
from sparse_opt._exclusive import changing, exclusive
from sparse_opt._evaluation import Evaluation
from sparse_opt._marks import Marks
from sparse_opt._method import Method
from sparse_opt._program import Array, Export, NamedArrays, Program, Shapes
from sparse_opt._ranks import Ranks
from sparse_opt._rules import Groups, compile_options
from sparse_opt._shapes import BatchShapes, Shape
from sparse_opt._sparsity import completed, started, updates_of
from sparse_opt._values import Choice, Values, is_kept

MethodName = Literal["static", "set", "rigl", "gmp"]
Norm = Literal["l1", "l2", "linf", "mean"]


@_given.options()
def compile(
    export: str,
    marks: Marks | None = None,
    *,
    device: str = "cpu",
    seed: int = 0,
    pattern: Choice | None = None,
    library: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
    sparsity: Groups = (),
    block_steps: bool = False,
    block_ramp: int = 0,
    comm: Any = None,
    check: int = 2,
    shapes: Sequence[Any] = (),
    max_shapes: int = 16,
) -> Step:
    """Compiles a step and loads it.

    Args:
      export: what `sparse_opt.torch.export` or `sparse_opt.jax.export` returned;
        or the text of a step, whose arrays then go by name.
      marks: which dense weights are block-sparse: `sparse_opt.Mark("dense.weight$",
        block=16, density=0.1)`, the text `"match=dense.weight$ block=16x16
        density=0.1"`, a dictionary of the same keys, or a list of them; by default those
        that the export was given. The first that matches a name counts.
        `Mark(attention=".", window=3, global_=1, block=64)` has attention computed on such
        blocks of queries by keys alone.
      device: what runs the step and has its arrays: `cpu`; a GPU of NVIDIA's, `cuda`
        or `cuda:1`; or `auto`, a GPU if there is one that can, else, with a warning
        that says why not, the processor. Arrays on a GPU are read and written by
        copies.
      seed: keys every random choice of the run.
      pattern: which blocks are stored at first: `random` ones, those of the
        `largest` L1 norms, or those that the program's own `mask` keeps, of weights
        marked with `mask=<names>`. By default random ones, with a warning if that
        drops what is not zero. Those of block-sparse layers are the layers' own.
      library: where to keep the shared library; by default it is not kept.
      options: further options of `sparse-compile`.
      sparsity: the groups that `Sparsity` will update patterns by: the step is compiled
        with what they need: the scores of blocks for `rigl`, `block_steps` for
        `new_step="block"`, `block_ramp` for `new_ramp`.
      block_steps: whether optimizers that correct bias by 1 - beta^t count the steps of
        each block of the marked weights, so that a block that an update of patterns brings
        is corrected as a new weight is, not as the old ones of its matrix are. Runs after
        that are not checked.
      block_ramp: over how many steps the updates of a block that an update of patterns brings
        rise to what the optimizer makes: its a-th one is a/block_ramp of that; 0: no ramp.
        Runs after an update are not checked.
      comm: `MPI.COMM_WORLD` of mpi4py, or `"mpi"` without it, to train with all
        processes that an MPI has started: each calls this, and the step with batches of
        its own; gradients and loss are means over all. Rank 0 compiles, and has the
        first weights and patterns.
      check: how many of the first runs are compared with the exported program itself, which
        runs beside them; so is the first one after an update of patterns. A difference
        that rounding does not explain is an error. 0: none.
      shapes: batches of other shapes than the exported one, as examples, each as a call of
        the step takes it; several arguments are a tuple. The step is compiled for them, too,
        before it returns; for those of a later call it is compiled then.
      max_shapes: how many shapes of batches the step is compiled for at most.

    Raises:
      StepError: the compiler refused the step, or the exported program has
        changed since.
    """
    given = _compiler.compilable_marks(export, marks, seed)
    options = _given.listed("a list of options of sparse-compile", options)
    if _given.flag("block_steps", block_steps):
        options = [*options, "--block-steps"]
    if ramp := _given.integer("block_ramp", block_ramp, 0):
        options = [*options, f"--block-ramp={ramp}"]
    options = compile_options(sparsity, options) if sparsity else options
    shapes = _given.listed("a list of batches as shapes", shapes)
    max_shapes = _given.integer("max_shapes", max_shapes, 1)
    program = export.program if isinstance(export, Export) else None
    if program is not None:
        program.check()
    if comm is not None:
        if device not in ("cpu", "auto"):
            raise StepError(
                f"expected device cpu for several processes, but got {device!r}"
            )
        device, options = "cpu", [*options, "--data-parallel"]
    if device == "auto":
        arguments = {
            "seed": seed, "pattern": pattern, "library": library, "options": options,
            "check": check, "shapes": shapes, "max_shapes": max_shapes,
        }  # fmt: skip
        try:
            return compile(export, given, device="cuda", **arguments)  # type: ignore[arg-type]
        except StepError as error:
            text = f"device cpu, not cuda: {error}"
            warnings.warn(text, stacklevel=_source.user_level())
            return compile(export, given, device="cpu", **arguments)  # type: ignore[arg-type]
    if isinstance(export, Export):
        export = export.fitted(given, alone=device == "cpu" and comm is None)
        program = export.program
    target = _compiler.target_of(device)
    if target != "cpu":
        options = [f"--target={target}", *options]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(library) if library else Path(directory) / "step.so"
        ranks = _ranks.ranks_of(comm)
        report = _compiler.run_once(export, path, given, options, ranks)
        if program is not None and check and _compiler.is_of_blocks(given):
            _say.line("the step runs unchecked: it attends to less than its program")
            check = 0
        step = Step(
            path, program, device=device, seed=seed, pattern=pattern, comm=comm,
            check=check,
        )  # fmt: skip
        step.report = report
        made = _compiler.Compilation(export, tuple(given), tuple(options))
        step._shapes.compilation, step._shapes.most = made, max_shapes
        step._prepare(shapes)
        return step


class Step(Values):
    """A compiled step with its weights, patterns and optimizer state.

    Attributes:
      arrays: the memory of each argument by its name, without a copy. Writing
        into it changes the next step. Weights that are stored in blocks have
        the shape `[slots, block_rows, block_cols]`, and bf16 is held in
        `uint16`.
      buffers: what is known of each argument, by its name.
      patterns: what is known of each pattern, by the name of its weight.
      origins: the arguments of the exported step that are several arrays, by their
        names: `w`, matrices stacked over layers or one that the step takes slices of,
        is `w.0`, `w.1`, ...
      report: what the compiler made sparse, what it left dense, and why.
    """

    report = ""

    def __init__(
        self,
        library: str | os.PathLike[str],
        program: Program | None = None,
        *,
        device: str = "cpu",
        seed: int = 0,
        pattern: Choice | None = None,
        comm: Any = None,
        check: int = 0,
    ) -> None:
        if not isinstance(check, int) or check < 0:
            raise StepError(f"expected a number of runs to check, but got {check!r}")
        if pattern not in (None, "random", "largest", "mask"):
            raise StepError(
                "expected a pattern that is random, largest or mask, but got"
                f" '{pattern}'"
            )
        if not isinstance(device, str):
            raise StepError(f"expected a device that is a string, but got {device!r}")
        self._step = _runtime.Step(os.fspath(library))
        self._session = _runtime.Session(self._step, device, seed)
        self._ranks = _ranks.ranks_of(comm)
        if self._ranks:
            self._join(self._ranks)
        self._session.initialize()
        super().__init__(self._step, self._session, self._ranks)
        self._given_masks: dict[str, Array] = {}
        self._rate = self._scalar("lr")
        self._seed = self._scalar("seed")
        self._apply = self._scalar("apply")
        self._steps = 0
        # Runs of the checkpoint that was loaded, those since that updated weights, and
        # whether the last one did.
        self._loaded_runs, self._applied_runs, self._is_applied = 0, 0, True
        self._base_seed = seed
        carried = [b.name for b in self.buffers.values() if b.carried]
        self._program: Program = program or NamedArrays(
            list(dict.fromkeys(self._whole.get(name, name) for name in carried))
        )
        self._first = Shape(self._step, self._session, self._program)
        self._shapes = BatchShapes(self._first, self._ranks)
        self._evaluations: dict[Shapes, Evaluation] = {}
        self._take_values(pattern)
        if self._ranks:
            self._take_first(self._ranks)
        if check and program is not None:
            self._begin_checks(check)
        self._is_made = True

    def __repr__(self) -> str:
        name = self._step.name
        stored = sum(len(self._session.blocks(p).slot) for p in self._step.patterns)
        blocks = sum(p.blocks for p in self._step.patterns)
        return (
            f"<sparse_opt.Step '{name}': {len(self.arrays)} arrays,"
            f" {len(self.patterns)} patterns with {stored} of {blocks} blocks stored,"
            f" {self._session.counters().steps} runs>"
        )

    def __reduce__(self) -> NoReturn:
        raise StepError(
            "expected something that can be copied or pickled, but got a compiled step:"
            " step.save(path) writes what it has learned, and another step of the same"
            " export loads it"
        )

    @changing
    def __call__(
        self,
        *batch: Any,
        lr: float | None = None,
        seed: int | None = None,
        apply: bool | None = None,
        scores: bool = False,
        **named: Any,
    ) -> Any:
        """Runs the step once, and returns what the exported step returned.

        Args:
          *batch: what the exported step takes behind its state.
          lr: the learning rate; by default the optimizer's own, or the last.
          seed: of dropout; by default it is another one in each step.
          apply: of a step that sums gradients over micro-batches, whether this one is
            the last and the weights are updated; by default it is.
          scores: score the blocks of the gradients, for a step that was compiled
            with `options=["--score-norm=l1"]`.
          **named: arguments by name, for a step that came as text.

        The first batch of a shape has the step compiled for it, on the same weights,
        patterns and optimizer state; a line of the logger `sparse_opt` says so.

        Raises:
          StepError: the batch differs from the exported one in its structure or its
            types, or there are more shapes than `max_shapes`.
        """
        shape = self._shapes.of(batch, named)
        scalars = [self._rate, self._seed, self._apply]
        given = set()
        for name, value in shape.program.inputs(batch, named):
            if name in self._mask_names:
                self._require_same_mask(name, value)
            elif shape is self._first or name in scalars:
                self._write(name, value)
            else:
                shape.write(name, value)
            given.add(name)
        if missing := shape.missing - given:
            raise StepError(f"expected an array for '{min(missing)}', but got none")
        shape.missing = set()
        for role, number, argument in (
            ("lr", lr, self._rate),
            ("seed", seed, self._seed),
            ("apply", apply, self._apply),
        ):
            if number is not None and argument not in self.buffers:
                raise StepError(
                    f"expected no {role}, for the step has no argument of that role, but"
                    f" got {number}"
                )
        rate = self._program.rate() if lr is None else lr
        if self._rate in self.buffers and rate is not None:
            self.arrays[self._rate][...] = rate
        if self._seed in self.buffers and (seed is not None or self._seed not in given):
            place = self._steps
            if self._ranks:
                place = place * self._ranks.size + self._ranks.rank
            number = self._base_seed + place if seed is None else seed
            self.arrays[self._seed][...] = number & 0x7FFFFFFF
        if self._apply in self.buffers and (
            apply is not None or self._apply not in given
        ):
            self.arrays[self._apply][...] = apply is None or apply
        if shape is not self._first:
            for name in scalars:
                if name in shape.buffers:
                    shape.arrays[name][...] = self.arrays[name]
        checked = self._begin_check(shape, batch, lr) if shape.check else None
        start = time.perf_counter()
        if scores:
            shape.session.run_scores()
        else:
            shape.session.run()
        seconds = time.perf_counter() - start
        self._steps += 1
        self._is_applied = self._applies()
        self._applied_runs += self._is_applied
        if checked is not None and shape.check is not None:
            # A GPU may still be running, and the program scores no blocks.
            is_timed = shape.session.is_host and not scores
            shape.check.end(checked, shape.outputs, seconds if is_timed else None)
        return shape.program.outputs(shape.outputs)

    @property
    def shapes(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """The shapes of batches that the step is compiled for, by the names of arrays."""
        return tuple(map(dict, self._shapes.known))

    @exclusive
    def _prepare(self, batches: Sequence[Any]) -> None:
        """Compiles the step for the shapes of batches."""
        self._shapes.prepare(batches)

    @property
    def _check(self) -> Check | None:
        """What checks runs of the first shape."""
        return self._first.check

    def _begin_checks(self, runs: int) -> None:
        """Has the first runs compared with the program's own."""
        if self._ranks:
            if self._ranks.rank == 0:
                _say.line("the step runs unchecked: it trains with several processes")
            return
        self._first.check = Check(runs, self._program)
        self._session.after_update(self._first.check.patterns_change)
        self._shapes.are_checked = True

    def _begin_check(
        self, shape: Shape, batch: Sequence[Any], rate: float | None
    ) -> Rerun | None:
        """Runs the program itself, if the coming run is to be compared with it."""
        assert shape.check is not None
        if shape.check.is_done:
            shape.check = None
            shape.program.forget()
            return None
        if self._has_young_blocks():
            return None  # The program counts the steps of whole matrices.
        return shape.check.begin(lambda: self._coming_call(shape, batch, rate))

    @property
    def _sums(self) -> bool:
        """Whether a call may be of a micro-batch that updates nothing."""
        return self._apply in self.buffers

    def _applies(self) -> bool:
        return not self._sums or bool(self.arrays[self._apply][...])

    def _coming_call(
        self, shape: Shape, batch: Sequence[Any], rate: float | None
    ) -> Call:
        state = self._snapshot()
        if shape is not self._first:
            state.names -= self._first.inputs  # They are of another batch.
        seed = self.arrays[self._seed][...] if self._seed in self.buffers else 0
        return Call(
            batch=batch,
            rate=rate,
            seed=int(seed),
            waits=not self._applies(),
            is_exact=True,
            state=state,
            size=self.counters.bytes,
        )

    @exclusive
    def evaluate(self, *batch: Any, seed: int = 0, **named: Any) -> Any:
        """Returns what a call of the step would, and changes nothing.

        The loss and the metrics alone are computed, by a program that the first call
        compiles, of the weights and patterns as they are, without a copy. What the step
        does in training it does here, dropout too, which `seed` keys: a function of
        your own is `bind`.

        Raises:
          StepError: as a call of the step does; or the step was not compiled here.
        """
        shapes = self._program.shapes_of(batch, named)
        if (found := self._evaluations.get(shapes)) is None:
            self._shapes.require_compilation("evaluate")
            export, program = self._shapes.export_of(batch, shapes, self._evaluations)
            found = self._evaluations[shapes] = self._bind(export, program, None, ())
        return found(*batch, seed=seed, **named)

    @_given.options()
    def bind(
        self,
        export: str,
        *,
        library: str | os.PathLike[str] | None = None,
        options: Sequence[str] = (),
    ) -> Evaluation:
        """Compiles a function without updates on this step's values and patterns.

        Args:
          export: what `export_function` of `sparse_opt.torch` or `sparse_opt.jax`
            returned; or the text of a function whose parameters have the names that
            they have in the step. Its weights are marked as those of the step.
          library: where to keep the shared library; by default it is not kept.
          options: further options of `sparse-compile`, beside those of the step.

        Returns:
          A function of a batch. It computes with what the step has learned then.

        Raises:
          StepError: the compiler refused the function, or a parameter is not one of
            the step or of another shape or pattern.
        """
        made = self._shapes.require_compilation("bind")
        if isinstance(export, Export):
            export = made.fitted(export)
        program = export.program if isinstance(export, Export) else None
        _compiler.require_text(export)
        return self._bind(export, program, library, options)

    def _bind(
        self,
        export: str,
        program: Program | None,
        library: str | os.PathLike[str] | None,
        options: Sequence[str],
    ) -> Evaluation:
        made = self._shapes.require_compilation("bind")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(library) if library else Path(directory) / "function.so"
            with warnings.catch_warnings():
                # What is split here was split there.
                warnings.filterwarnings("ignore", ".*becomes matrices with patterns")
                every = [*made.evaluation_options(), *options]
                report = _compiler.run(export, path, made.marks_of(export), every)
            evaluation = Evaluation(path, program, self)
            evaluation.report = report
            return evaluation

    @_given.options()
    @changing
    def update_patterns(
        self,
        drop: float = 0.3,
        *,
        method: MethodName | Method = "set",
        norm: Norm = "l1",
        density: float | None = None,
        allow_return: bool = False,
        new_values: Literal["zero", "random"] = "zero",
        new_std: float = 0.0,
        new_state: Literal["first", "mean", "kept"] = "first",
    ) -> int:
        """Prunes blocks of every pattern, and regrows others.

        Nothing is compiled or allocated. Static patterns stay, and so do those of weights
        that the step does not train: what they lose would not come back.

        Args:
          drop: the share of the blocks of each matrix to prune.
          method: `set` regrows random blocks; `rigl` those of the largest
            gradients, after a call of the step with `scores=True`; `gmp` prunes
            down to `density` and regrows none; or a method of your own. Regrown
            weights and moments are zeros.
          norm: what blocks are ranked by.
          density: of `gmp`, the share of all blocks to leave.
          allow_return: whether a block may be pruned and regrown at once.
          new_values: the first values of regrown blocks: zeros, or `random` normal ones.
          new_std: the standard deviation of these; 0 for that of the program's values.
          new_state: what the optimizer keeps of regrown blocks: what it began with
            (`first`), the `mean` over the other blocks of the matrix, or that of the pruned
            block whose place in memory each takes (`kept`).

        Returns:
          How many blocks were pruned.
        """
        before = self.counters.blocks_pruned
        start = started(new_values, new_state, new_std)
        if new_std and new_values != "random":
            raise StepError(
                f"expected no new_std without new_values 'random', but got {new_std}"
            )
        for pattern in filter(self._is_dynamic, self._step.patterns):
            self._session.set_new_blocks(pattern, completed(self, pattern, start))
        if isinstance(method, Method):
            if density is not None or allow_return or norm != "l1":
                raise StepError(
                    "expected no norm, density or allow_return, which are the method's"
                    f" own, with a {type(method).__name__}"
                )
            drop = _given.share("drop", drop)
            dynamic = [p for p in self._step.patterns if self._is_dynamic(p)]
            _method.apply(self, [(p, method, drop) for p in dynamic])
            return self.counters.blocks_pruned - before
        patterns = [p if self._is_dynamic(p) else None for p in self._step.patterns]
        updates = updates_of(patterns, method, norm, drop, density, allow_return)
        self._session.update(updates)
        return self.counters.blocks_pruned - before

    @exclusive
    def state_dict(self) -> Any:
        """Returns the state in the form of the exported program.

        For PyTorch the model's `state_dict`, for JAX the arguments of the step
        that are its state, for text all carried arrays by name. Weights are
        dense, with zeros where no block is stored; those of block-sparse layers are
        their blocks, with their patterns.
        """
        self._take_changes()
        return self._program.state(self)

    @property
    def state(self) -> Any:
        """What `state_dict()` returns: of JAX's steps the pytrees that are the state, as the
        step has them now."""
        return self.state_dict()

    @changing
    def load_state_dict(self, state: Any) -> None:
        """Takes what `state_dict` returns.

        The patterns stay as they are, but for masks in the state, and the patterns of
        layers, which they become. Nothing changes if there is an error.
        """
        values: list[tuple[str, Array]] = []
        patterns: dict[str, tuple[Array, Array]] = {}

        def write(
            name: str, value: Array, blocks: tuple[Array, Array] | None = None
        ) -> None:
            values.append((name, value))
            if blocks is not None:
                patterns[name] = blocks

        self._program.load_state(state, write)
        self._write_all(values, patterns)
        self._begin_counts({name for name, _ in values})

    @exclusive
    def store(self) -> None:
        """Copies weights and optimizer state into the program's own objects, now.

        Those of PyTorch go on, or are saved, as if they had been trained themselves. They
        get what the step has by themselves, too, when an operation looks at them.
        """
        self._take_changes()
        self._program.store(self)

    @exclusive
    def save(self, path: str | os.PathLike[str], metadata: str = "") -> None:
        """Writes a checkpoint, from which a run goes on bit for bit.

        Several processes call it together, and the first one writes.
        """
        self._take_changes()
        if self._ranks:
            self._require_same_state(self._ranks)
            if self._ranks.rank > 0 and not self._step.sharded:
                self._ranks.require_same({})
                return
        self._session.save(os.fspath(path), metadata)
        if self._ranks:
            self._ranks.require_same({})

    @changing
    def load(self, path: str | os.PathLike[str]) -> str:
        """Reads a checkpoint, and returns its metadata.

        Warns if a step with other code wrote it: the run then goes on from there, but
        not with the bits that it would have had.
        """
        metadata, difference = self._session.load(os.fspath(path))
        if difference:
            warnings.warn(
                f"expected a checkpoint of this step, but got '{os.fspath(path)}' of"
                f" another compilation ({difference}): the run goes on from it, but not"
                " bit for bit",
                stacklevel=3,
            )
        counters = self._session.counters()
        self._steps, self._base_seed = counters.steps, counters.seed
        self._loaded_runs, self._applied_runs, self._is_applied = counters.steps, 0, True
        if counters.steps:
            self._first.missing = set()
        if self._ranks:
            self._steps //= self._ranks.size
            self._require_same_state(self._ranks)
        return metadata

    @property
    def ranks(self) -> Ranks | None:
        """The processes that train together; None for one alone."""
        return self._ranks

    @property
    def counters(self) -> Counters:
        """What the run has done, recompilations and allocations among it."""
        counters = self._session.counters()
        size = sum(shape.session.counters().bytes for shape in self._shapes.others)
        return dataclasses.replace(counters, bytes=counters.bytes + size)

    @property
    def flops(self) -> int | None:
        """The floating-point operations of the products of a run, with the blocks that
        are stored now; None of a library that does not tell."""
        flops = self._session.flops()
        return flops if flops >= 0 else None

    @property
    def products(self) -> dict[str, int]:
        """How many products of each kind a step computes, and what stayed dense."""
        return self._step.products

    def _join(self, ranks: Ranks) -> None:
        """Lets runs take means over all processes, which run the same step."""
        manifest = self._step.manifest.encode()
        ranks.require_same({"compiled step": _ranks.hash_of(manifest)})

        def require_same_patterns() -> None:
            ranks.require_same(self._pattern_hashes())

        self._session.communicate(ranks.handle, require_same_patterns)

    def _pattern_hashes(self) -> dict[str, int]:
        """Returns what tells whether processes have the same patterns."""
        after = f"after run {self._session.counters().steps}"
        hashes = {}
        for pattern in self._step.patterns:
            views = self._session.views(pattern)
            arrays = (views.row_ptr, views.col_idx, views.slot)
            hashes[f"pattern of '{pattern.name}' {after}"] = _ranks.hash_of(*arrays)
        return hashes

    def _shared_state(self) -> Iterator[Buffer]:
        """Yields the arrays that all processes have alike."""
        for buffer in self.buffers.values():
            if is_kept(buffer) and not buffer.is_shard:
                yield buffer

    def _take_first(self, ranks: Ranks) -> None:
        """Takes patterns, weights and optimizer state of the first process."""
        for pattern in self._step.patterns:
            if pattern.is_static:
                continue
            own = self._session.blocks(pattern)
            sizes = np.array([len(own.slot)], np.int64)
            ranks.broadcast(sizes)
            col_idx, slot = (np.zeros(int(sizes[0]), np.int32) for _ in range(2))
            if ranks.rank == 0:
                col_idx[...], slot[...] = own.col_idx, own.slot
            for array in (own.row_ptr, col_idx, slot):
                ranks.broadcast(array)
            if ranks.rank > 0:
                self._session.set_blocks(pattern, own.row_ptr, col_idx, slot)
        for buffer in self._shared_state():
            ranks.broadcast(self.arrays[buffer.name])

    def _require_same_state(self, ranks: Ranks) -> None:
        after = f"after run {self._session.counters().steps}"
        hashes = self._pattern_hashes()
        for buffer in self._shared_state():
            name = f"values of '{buffer.name}' {after}"
            hashes[name] = _ranks.hash_of(self.arrays[buffer.name])
        ranks.require_same(hashes)

    def _require_same_mask(self, name: str, value: Array) -> None:
        """Raises `StepError` if a call brings a mask that another did not."""
        for part, entries in self._split(name, value):
            _, mask = self._masks[part]
            _description.require(part, mask.shape, np.dtype(mask.dtype), entries)
        first = self._given_masks.setdefault(name, value.copy())
        if not np.array_equal(first, value):
            raise StepError(
                f"expected mask '{name}' as the first call had it, but got another:"
                " update_patterns() updates patterns, write() takes a mask"
            )

    def _scalar(self, role: str) -> str:
        """Returns the name of the argument of one element with `role`, or ''."""
        for name, buffer in self.buffers.items():
            if buffer.role == role and self.arrays[name].size == 1:
                return name
        return ""
