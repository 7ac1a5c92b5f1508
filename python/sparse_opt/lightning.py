# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lightning's modules, their training steps compiled.

"""`SparseModule`: a `LightningModule` around another, with block-sparse weights.

    module = SparseModule(
        MyModule(), marks=[r"match=weight$ block=16x16 density=0.1"],
        sparsity=[Group(method="rigl", every=100)],
    )
    lightning.Trainer(max_steps=1000).fit(module, loader)

It needs Lightning.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch

import sparse_opt
import sparse_opt.torch
from sparse_opt._errors import StepError
from sparse_opt._sparsity import Groups, Sparsity, groups_of, score_options
from sparse_opt._step import Step
from sparse_opt._values import Choice

__all__ = ["SparseModule"]

_KEY = "sparse_opt"


class SparseModule(lightning.LightningModule):  # type: ignore[misc]
    """Trains a module with a compiled step: its `training_step`, backward pass, clipping
    and optimizer.

    The inner module's optimizer, schedules, validation, test and prediction are its own;
    it has the weights whenever one of these looks at it, and `state_dict` is its own.
    `train_loss` is logged; what the inner `training_step` logs is not.

    Args:
      module: the module. Its `training_step` is the same for each batch, and returns a
        loss; its optimizer is one.
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

    def __init__(
        self,
        module: lightning.LightningModule,
        *,
        marks: Sequence[str],
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
        self.automatic_optimization = False
        self.inner = module
        self._marks, self._groups, self._clip = marks, sparsity, clip
        self._pattern, self._seed, self._options = pattern, seed, list(options)
        self._check = check

    def configure_optimizers(self) -> Any:
        return self.inner.configure_optimizers()

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

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Runs the compiled step, and the schedules of the learning rate."""
        if self.step is None:
            self._compile(batch, batch_idx)
        assert self.step is not None and self._updates is not None
        loss = self.step(batch, scores=self._updates.needs_scores)
        self._updates.update()
        # It finds no gradients, and counts the step.
        self.optimizers().step()
        self._schedule("step", self.trainer.global_step)
        self.log("train_loss", loss, prog_bar=True)
        return loss  # type: ignore[no-any-return]

    def on_train_epoch_end(self) -> None:
        self._schedule("epoch", self.trainer.current_epoch + 1)

    def _schedule(self, interval: str, count: int) -> None:
        for config in self.trainer.lr_scheduler_configs:
            if config.interval == interval and count % config.frequency == 0:
                config.scheduler.step()

    def _compile(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.trainer.optimizers[0]

        def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
            optimizer.zero_grad()
            with _silent(self.inner):
                returned = model.training_step(batch, batch_idx)
            loss = returned["loss"] if isinstance(returned, Mapping) else returned
            loss.backward()
            if self._clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), self._clip)
            optimizer.step()
            return loss.detach()

        groups = groups_of(self._groups)
        options = score_options(groups, self._options)
        export = sparse_opt.torch.export(train_step, self.inner, optimizer, batch)
        device = self.device
        name = "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
        self.step = sparse_opt.compile(
            export, self._marks, device=name, seed=self._seed, pattern=self._pattern,
            options=options, check=self._check,
        )  # fmt: skip
        steps = int(self.trainer.estimated_stepping_batches)
        self._updates = Sparsity(self.step, groups, steps=steps)
        if self._kept is not None:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                # A step that is exported of trained weights has other first values.
                warnings.filterwarnings("ignore", r".*\(another manifest\)")
                path = Path(folder) / "kept.safetensors"
                path.write_bytes(self._kept)
                self._updates.load(path)

    def _store(self) -> None:
        if self.step is not None:
            self.step.store()

    def state_dict(self, *arguments: Any, **named: Any) -> Any:
        """Returns that of the inner module."""
        self._store()
        return self.inner.state_dict(*arguments, **named)

    def load_state_dict(self, *arguments: Any, **named: Any) -> Any:
        """Loads that of the inner module; the step is compiled again."""
        self.step = self._updates = None
        return self.inner.load_state_dict(*arguments, **named)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.inner.on_save_checkpoint(checkpoint)
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
        self._kept = checkpoint[_KEY].numpy().tobytes()

    def on_fit_end(self) -> None:
        self._store()

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.inner(*arguments, **named)

    def on_validation_start(self) -> None:
        self._store()

    def validation_step(self, *arguments: Any) -> Any:
        with _logging(self.inner, self):
            return self.inner.validation_step(*arguments)

    def on_test_start(self) -> None:
        self._store()

    def test_step(self, *arguments: Any) -> Any:
        with _logging(self.inner, self):
            return self.inner.test_step(*arguments)

    def on_predict_start(self) -> None:
        self._store()

    def predict_step(self, *arguments: Any) -> Any:
        return self.inner.predict_step(*arguments)


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
