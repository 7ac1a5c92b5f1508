# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lightning's modules, their training steps compiled.

"""`SparseModule`: a `LightningModule` around another, with block-sparse weights.

    module = SparseModule(
        MyModule(), marks=Mark("weight$", block=16, density=0.1),
        sparsity=[Group(method="rigl", every=100)],
    )
    lightning.Trainer(max_steps=1000).fit(module, loader)

It needs Lightning.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.utilities.model_helpers import is_overridden

import sparse_opt
import sparse_opt.torch
from sparse_opt import _given
from sparse_opt._description import Blocks
from sparse_opt._errors import ExportError, StepError
from sparse_opt._marks import Marks, listed
from sparse_opt._rules import Groups, compile_options, groups_of
from sparse_opt._sparsity import Sparsity
from sparse_opt._step import Step
from sparse_opt._values import Choice

__all__ = ["SparseModule"]

_KEY = "sparse_opt"
# What is logged of updates.
_RECORDED = ("density", "turnover", "pruned", "regrown")


class SparseModule(lightning.LightningModule):  # type: ignore[misc]
    """Trains a module with a compiled step: its `training_step`, backward pass, clipping
    and optimizer.

    The inner module's optimizer, schedules, validation, test, prediction, hooks and data
    are its own; it has the weights whenever one of these looks at it, and `state_dict` is
    its own. `train_loss` is logged, and where patterns are updated `density`, `turnover`,
    `pruned` and `regrown`; what the inner `training_step` logs is not. Hooks of
    the backward pass and the optimizer are a part of the compiled step, and so are
    `current_epoch`, `global_step` and `batch_idx`: tensors there, which no `if` asks.

    Args:
      module: the module. Its `training_step` is the same for each batch, and returns a
        loss; its optimizer is one, and steps by itself.
      marks: which weights are block-sparse, as in `sparse_opt.compile`.
      sparsity: how their patterns are updated, as in `sparse_opt.Sparsity`; by
        default they stay.
      clip: the norm to which gradients are clipped, or none.
      pattern, seed, options, check: as in `sparse_opt.compile`.

    Attributes:
      step: the compiled step, after the first batch.
    """

    step: Step | None = None
    _updates: Sparsity | None = None
    _kept: bytes | None = None
    _counts: frozenset[str] = frozenset()  # what the step reads of the loop
    _monitors: Mapping[int, str] = {}  # metrics, by the schedule that looks at them
    _is_old = False  # whether the step has trained since the module had its weights
    _blocks: Mapping[str, Blocks] = {}  # of the step before

    @_given.options()
    def __init__(
        self,
        module: lightning.LightningModule,
        *,
        marks: Marks,
        sparsity: Groups = (),
        clip: float | None = None,
        pattern: Choice | None = None,
        seed: int = 0,
        options: Sequence[str] = (),
        check: int = 2,
    ) -> None:
        super().__init__()
        if not isinstance(module, lightning.LightningModule):
            raise StepError(
                f"expected a LightningModule, but got a {type(module).__name__}"
            )
        if not module.automatic_optimization or is_overridden("optimizer_step", module):
            got = "optimizer_step" if module.automatic_optimization else "manual steps"
            raise StepError(
                "expected a module whose optimizer Lightning steps, but got one with"
                f" {got} of its own: schedule the rate by a scheduler, or use"
                " sparse_opt.torch.export in a loop of your own"
            )
        self.automatic_optimization = False
        self.inner = module
        self._marks, self._groups, self._clip = listed(marks), sparsity, clip
        self._pattern, self._seed, self._options = pattern, seed, list(options)
        self._check = check
        for name in _OPTIONAL:
            if is_overridden(name, module):
                self.__dict__[name] = getattr(module, name)

    def configure_optimizers(self) -> Any:
        configured = self.inner.configure_optimizers()
        # Of optimizers that are stepped by hand Lightning forgets what is monitored.
        self._monitors = {
            id(entry["scheduler"]): str(entry["monitor"])
            for entry in _schedules(configured)
            if isinstance(entry, Mapping) and entry.get("monitor")
        }
        return configured

    def setup(self, stage: str) -> None:
        self.inner.setup(stage)

    def on_fit_start(self) -> None:
        trainer = self.trainer
        for is_right, expected, got in (
            (
                trainer.world_size == 1,
                "one process with one device",
                f"{trainer.world_size} processes",
            ),
            (
                str(trainer.precision).endswith("true"),
                "a precision of the model itself, 32-true or bf16-true",
                str(trainer.precision),
            ),
            (
                len(trainer.optimizers) == 1,
                "one optimizer",
                str(len(trainer.optimizers)),
            ),
        ):
            if not is_right:
                raise StepError(f"expected {expected}, but got {got}")
        for callback in trainer.callbacks:
            if isinstance(callback, _REFUSED):
                raise StepError(
                    "expected callbacks that leave weights, and which of them are trained,"
                    f" alone, but got {type(callback).__name__}: fit without it, once for"
                    " each choice of weights to train"
                )
        # Another fit has another optimizer.
        if self.step is not None:
            self._store()
            self._blocks = {name: self.step.blocks(name) for name in self.step.patterns}
            self.step = self._updates = None
        self._run("on_fit_start")

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Runs the compiled step, and the schedules of the learning rate."""
        if self.step is None:
            self._compile(batch, batch_idx)
        assert self.step is not None and self._updates is not None
        given = self._given(batch, batch_idx)
        loss = self.step(given, scores=self._updates.needs_scores)
        self._is_old = True
        if changed := self._updates.update():
            self.log_dict({key: float(changed[key]) for key in _RECORDED})
        # It finds no gradients, and counts the step.
        self.optimizers().step()
        self._schedule("step", self.trainer.global_step)
        self.log("train_loss", loss, prog_bar=True)
        return loss  # type: ignore[no-any-return]

    def on_train_epoch_end(self) -> None:
        if is_overridden("on_train_epoch_end", self.inner):
            self._store()
        self._run("on_train_epoch_end")
        self._schedule("epoch", self.trainer.current_epoch + 1)

    def _schedule(self, interval: str, count: int) -> None:
        for config in self.trainer.lr_scheduler_configs:
            if config.interval == interval and count % config.frequency == 0:
                self.inner.lr_scheduler_step(config.scheduler, self._monitored(config))

    def _monitored(self, config: Any) -> Any:
        """Returns the metric that a schedule of the rate looks at, or none."""
        if not isinstance(config.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            return None
        name = self._monitors.get(id(config.scheduler), "")
        if name not in self.trainer.callback_metrics:
            raise StepError(
                f"expected '{name}', which the schedule of the rate monitors, among what is"
                f" logged, but got {', '.join(self.trainer.callback_metrics)}"
            )
        return self.trainer.callback_metrics[name]

    def _given(self, batch: Any, batch_idx: int) -> Any:
        """Returns what the step takes: the batch, and what it reads of the loop."""
        if not self._counts:
            return batch
        numbers = {
            "current_epoch": self.trainer.current_epoch,
            "global_step": self.trainer.global_step,
            "batch_idx": batch_idx,
        }
        return batch, {name: torch.tensor(numbers[name]) for name in sorted(self._counts)}

    def _run(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Calls a hook of the inner module, whose logs are this one's."""
        with _logging(self.inner, self):
            return getattr(self.inner, name)(*arguments, **named)

    def _compile(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.trainer.optimizers[0]

        self._counts = frozenset({"batch_idx"} if _reads_index(self.inner) else ())
        reads = set(self._counts)

        def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
            counts: Mapping[str, Any] = {}
            if self._counts:
                batch, counts = batch
            with _silent(self.inner), _counted(self.trainer, counts, reads):
                index = counts.get("batch_idx", batch_idx)
                return self._train(model, optimizer, batch, index)

        def exported() -> Any:
            given = self._given(batch, batch_idx)
            return sparse_opt.torch.export(
                train_step, self.inner, optimizer, given, marks=self._marks
            )

        groups = groups_of(self._groups)
        options = compile_options(groups, self._options)
        export = exported()
        if reads != self._counts:
            self._counts = frozenset(reads)
            export = exported()
        device = self.device
        name = "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
        self.step = sparse_opt.compile(
            export, self._marks, device=name, seed=self._seed, pattern=self._pattern,
            options=options, check=self._check,
        )  # fmt: skip
        self.step._keep_patterns(self._blocks)
        steps = int(self.trainer.estimated_stepping_batches)
        self._updates = Sparsity(self.step, groups, steps=steps)
        if self._kept is not None:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                # A step that is exported of trained weights has other first values.
                warnings.filterwarnings("ignore", r".*\(another manifest\)")
                path = Path(folder) / "kept.safetensors"
                path.write_bytes(self._kept)
                self._updates.load(path)
            self._kept = None

    def _train(self, model: Any, optimizer: Any, batch: Any, batch_idx: Any) -> Any:
        """Does what Lightning does for a batch, hooks of the module too."""
        returned = model.training_step(batch, *[batch_idx][: _takes_index(model)])
        loss = returned["loss"] if isinstance(returned, Mapping) else returned
        if not isinstance(loss, torch.Tensor):
            raise ExportError(
                "expected a training_step that returns a loss for each batch, but got"
                f" {type(loss).__name__}: leave batches out of the data instead"
            )
        model.on_before_zero_grad(optimizer)
        optimizer.zero_grad()
        model.on_before_backward(loss)
        if is_overridden("backward", model):
            model.backward(loss)
        else:
            torch.autograd.backward(loss)
        model.on_after_backward()
        model.on_before_optimizer_step(optimizer)
        if self._clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self._clip)
        if is_overridden("configure_gradient_clipping", model):
            model.configure_gradient_clipping(optimizer, self._clip, None)
        optimizer.step()
        return loss.detach()

    def _store(self) -> None:
        if self.step is not None and self._is_old:
            self.step.store()
            self._is_old = False

    def state_dict(self, *arguments: Any, **named: Any) -> Any:
        """Returns that of the inner module."""
        self._store()
        return self.inner.state_dict(*arguments, **named)

    def load_state_dict(self, *arguments: Any, **named: Any) -> Any:
        """Loads that of the inner module; the step is compiled again."""
        self.step = self._updates = None
        self._is_old = False
        return self.inner.load_state_dict(*arguments, **named)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.inner.on_save_checkpoint(checkpoint)
        checkpoint[_KEY] = torch.zeros(0, dtype=torch.uint8)
        if self._updates is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kept.safetensors"
            self._updates.save(path)
            checkpoint[_KEY] = torch.from_numpy(np.fromfile(path, np.uint8))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.inner.on_load_checkpoint(checkpoint)
        if _KEY not in checkpoint:
            raise StepError(
                "expected a checkpoint of a SparseModule, but got one without"
                f" '{_KEY}': load its state_dict into the inner module"
            )
        # None of a run that had not begun.
        self._kept = checkpoint[_KEY].numpy().tobytes() or None

    def on_fit_end(self) -> None:
        self._store()
        self._run("on_fit_end")

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.inner(*arguments, **named)

    def on_validation_start(self) -> None:
        self._store()
        self._run("on_validation_start")

    def validation_step(self, *arguments: Any) -> Any:
        return self._run("validation_step", *arguments)

    def on_test_start(self) -> None:
        self._store()
        self._run("on_test_start")

    def test_step(self, *arguments: Any) -> Any:
        return self._run("test_step", *arguments)

    def on_predict_start(self) -> None:
        self._store()
        self._run("on_predict_start")

    def predict_step(self, *arguments: Any) -> Any:
        return self._run("predict_step", *arguments)


def _hook(name: str) -> Callable[..., Any]:
    def run(self: SparseModule, *arguments: Any, **named: Any) -> Any:
        return self._run(name, *arguments, **named)

    return run


# Hooks that are the inner module's.
_HOOKS = (
    "prepare_data", "teardown", "on_train_start", "on_train_end", "on_train_epoch_start",
    "on_train_batch_start", "on_train_batch_end",
    *(
        f"on_{stage}_{place}"
        for stage in ("validation", "test", "predict")
        for place in ("end", "epoch_start", "epoch_end", "batch_start", "batch_end")
    ),
)  # fmt: skip
for _name in _HOOKS:
    setattr(SparseModule, _name, _hook(_name))
# What Lightning asks for only where it is there.
_OPTIONAL = (
    "train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader",
    "configure_callbacks", "configure_model", "on_before_batch_transfer",
    "transfer_batch_to_device", "on_after_batch_transfer",
)  # fmt: skip
_REFUSED = (
    callbacks.WeightAveraging, callbacks.StochasticWeightAveraging, callbacks.BaseFinetuning,
)  # fmt: skip


def _schedules(configured: Any) -> Sequence[Any]:
    """Returns the schedules in what `configure_optimizers` returns."""
    if isinstance(configured, Mapping):
        return [configured.get("lr_scheduler")]
    if isinstance(configured, tuple) and len(configured) == 2:
        schedules = configured[1]
        return schedules if isinstance(schedules, (list, tuple)) else [schedules]
    if isinstance(configured, (list, tuple)):
        return [c.get("lr_scheduler") for c in configured if isinstance(c, Mapping)]
    return []


def _takes_index(module: Any) -> int:
    """Returns 1 if a training_step takes the number of the batch, or else 0."""
    parameters = inspect.signature(module.training_step).parameters.values()
    is_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return int(is_any or len(parameters) > 1)


def _reads_index(module: Any) -> bool:
    """Returns whether a training_step reads the number of the batch."""
    if not _takes_index(module):
        return False
    code = inspect.unwrap(module.training_step).__func__.__code__
    if code.co_argcount < 3:  # behind a star
        return True
    name = code.co_varnames[2]
    reads = (i for i in dis.get_instructions(code) if name in str(i.argval))
    return name in code.co_cellvars or any(i.opname.startswith("LOAD") for i in reads)


@contextlib.contextmanager
def _counted(trainer: Any, counts: Mapping[str, Any], reads: set[str]) -> Iterator[None]:
    """Gives a module what it reads of the loop, and notes what that is."""
    cls = type(trainer)
    own = {name: getattr(cls, name) for name in ("current_epoch", "global_step")}

    def reading(name: str) -> property:
        def read(self: Any) -> Any:
            reads.add(name)
            return counts[name] if name in counts else own[name].__get__(self)

        return property(read)

    held = {name: vars(cls).get(name) for name in own}
    for name in own:
        setattr(cls, name, reading(name))
    try:
        yield
    finally:
        for name, before in held.items():
            if before is None:
                delattr(cls, name)
            else:
                setattr(cls, name, before)


class _logging:
    """Has what a module logs logged by another."""

    def __init__(self, module: Any, other: Any) -> None:
        self.module, self.calls = module, {"log": other.log, "log_dict": other.log_dict}

    def __enter__(self) -> None:
        self.module.__dict__.update(self.calls)

    def __exit__(self, *error: Any) -> None:
        for name in self.calls:
            del self.module.__dict__[name]


class _silent(_logging):
    """Has nothing of what a module logs logged."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.calls = {"log": _ignore, "log_dict": _ignore}


def _ignore(*arguments: Any, **named: Any) -> None:
    return None
