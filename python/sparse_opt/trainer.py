# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The Trainer of transformers, its steps compiled.

"""`SparseTrainer`: `transformers.Trainer` with block-sparse weights.

    trainer = SparseTrainer(
        model=model, args=args, train_dataset=data, data_collator=collator,
        marks=Mark(r"encoder.*\\.weight$", block=16, density=0.1),
        sparsity=[Group(method="rigl", every=100)],
    )
    trainer.train()

It needs transformers and accelerate.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer

import sparse_opt
import sparse_opt.torch
from sparse_opt import _given
from sparse_opt._description import Blocks
from sparse_opt._errors import StepError
from sparse_opt._marks import Marks, listed
from sparse_opt._rules import Groups, compile_options, groups_of
from sparse_opt._sparsity import Sparsity
from sparse_opt._step import Step
from sparse_opt._values import Choice

__all__ = ["SparseTrainer"]

_CHECKPOINT = "sparse_opt.safetensors"
# What is logged of updates.
_RECORDED = ("density", "turnover", "pruned", "regrown")
# Of a batch: by how many of its labels the Trainer divides the loss.
_ITEMS = "num_items_in_batch"


class SparseTrainer(Trainer):  # type: ignore[misc]
    """A Trainer whose training step, clipping and optimizer with it, is compiled.

    Losses, schedules of the learning rate, logs, callbacks, evaluation and checkpoints
    are the Trainer's own; the model has the weights whenever one of these looks at it.
    A run that is resumed from a checkpoint goes on with its patterns. With the loss it logs
    `density`, `turnover`, `pruned` and `regrown` where patterns were updated since the last
    line: the blocks that went and came then, and the others after the last update.

    Args:
      marks: which weights are block-sparse, as in `sparse_opt.compile`.
      sparsity: how their patterns are updated, as in `sparse_opt.Sparsity`; by
        default they stay.
      pattern, options, check: as in `sparse_opt.compile`.

    Raises:
      StepError: the arguments ask for what a compiled step has not: batches of
        several shapes, mixed precision, accumulation of gradients.

    Attributes:
      step: the compiled step, after the first batch.
    """

    step: Step | None = None
    _is_old = False  # whether the step has trained since the model had its weights
    _blocks: Mapping[str, Blocks] = {}  # of the step before
    _updates: Sparsity | None = None
    _changed: Mapping[str, Any] = {}  # by updates since the loss was logged
    _norm: Any = None

    @_given.options(within=Trainer.__init__)
    def __init__(
        self,
        *arguments: Any,
        marks: Marks,
        sparsity: Groups = (),
        pattern: Choice | None = None,
        options: Sequence[str] = (),
        check: int = 2,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._marks, self._groups, self._pattern = listed(marks), sparsity, pattern
        self._options, self._resumed = list(options), ""
        self._check = check
        for is_right, expected, got in (
            (
                self.args.dataloader_drop_last,
                "dataloader_drop_last=True, since a compiled step has one shape",
                "False",
            ),
            (
                self.args.gradient_accumulation_steps == 1,
                "gradient_accumulation_steps=1",
                str(self.args.gradient_accumulation_steps),
            ),
            (
                not (self.args.fp16 or self.args.bf16),
                "neither fp16 nor bf16 but a model of that type, model.to(torch.bfloat16)",
                "fp16=True" if self.args.fp16 else "bf16=True",
            ),
            (
                self.args.world_size == 1 and self.args.n_gpu <= 1,
                "one process with one device",
                f"{self.args.world_size} processes with {self.args.n_gpu} devices",
            ),
        ):
            if not is_right:
                raise StepError(f"expected {expected}, but got {got}")

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **named: Any
    ) -> Any:
        if self.step is not None:
            self._blocks = {name: self.step.blocks(name) for name in self.step.patterns}
        self.step = self._updates = None
        self._is_old, self._resumed = False, ""
        result = super().train(resume_from_checkpoint, *arguments, **named)
        self._store()
        return result

    def _load_best_model(self) -> None:
        super()._load_best_model()
        self._is_old = False  # It was read from a checkpoint.

    def training_step(
        self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Runs the compiled step; what the Trainer does behind it finds nothing to do."""
        model.train()
        inputs = dict(self._prepare_inputs(inputs))
        if num_items_in_batch is not None:
            inputs[_ITEMS] = torch.as_tensor(num_items_in_batch)
        if self.step is None:
            self._compile(model, inputs)
        assert self.step is not None and self._updates is not None
        loss, self._norm = self.step(inputs, scores=self._updates.needs_scores)
        self._is_old = True
        if changed := self._updates.update():
            for key in ("pruned", "regrown"):
                changed[key] += self._changed.get(key, 0)
            self._changed = {key: changed[key] for key in _RECORDED}
        return loss.to(self.args.device)  # type: ignore[no-any-return]

    def log(self, logs: dict[str, float], *arguments: Any, **named: Any) -> None:
        """Logs what updates of patterns did since the last log of the loss, too."""
        if "loss" in logs:
            logs = {**logs, **self._changed}
            self._changed = {}
        super().log(logs, *arguments, **named)

    def _compile(self, model: Any, inputs: dict[str, Any]) -> None:
        optimizer: Any = getattr(self.optimizer, "optimizer", self.optimizer)
        clip = self.args.max_grad_norm or 0.0

        def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
            optimizer.zero_grad()
            inputs = dict(batch)
            items = inputs.pop(_ITEMS, None)
            loss = self.compute_loss(model, inputs, num_items_in_batch=items)
            loss.backward()
            parameters = model.parameters()
            norm = torch.nn.utils.clip_grad_norm_(parameters, clip or float("inf"))
            optimizer.step()
            return loss.detach(), norm.detach()

        export = sparse_opt.torch.export(
            train_step, model, optimizer, inputs, marks=self._marks
        )
        groups = groups_of(self._groups)
        options = compile_options(groups, self._options)
        self.step = sparse_opt.compile(
            export, self._marks, device=_device(self.args.device), seed=self.args.seed,
            pattern=self._pattern, options=options, check=self._check,
        )  # fmt: skip
        self.step._keep_patterns(self._blocks)
        self._updates = Sparsity(self.step, groups, steps=self.state.max_steps)
        if self._resumed:
            with warnings.catch_warnings():
                # A step that is exported of trained weights has other first values.
                warnings.filterwarnings("ignore", r".*\(another manifest\)")
                self._updates.load(self._resumed)

    def _clip_grad_norm(self, model: Any) -> Any:
        return self._norm

    def _store(self) -> None:
        if self.step is not None and self._is_old:
            self.step.store()
            self._is_old = False

    def evaluate(self, *arguments: Any, **named: Any) -> Any:
        self._store()
        return super().evaluate(*arguments, **named)

    def predict(self, *arguments: Any, **named: Any) -> Any:
        self._store()
        return super().predict(*arguments, **named)

    def save_model(self, *arguments: Any, **named: Any) -> Any:
        self._store()
        return super().save_model(*arguments, **named)

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> Any:
        self._store()
        result = super()._save_checkpoint(*arguments, **named)
        folder = self._get_output_dir(trial=arguments[1] if len(arguments) > 1 else None)
        path = Path(folder) / f"checkpoint-{self.state.global_step}" / _CHECKPOINT
        if self._updates is not None and path.parent.is_dir():
            self._updates.save(path)
        return result

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, *arguments: Any, **named: Any
    ) -> Any:
        path = os.path.join(resume_from_checkpoint, _CHECKPOINT)
        if not os.path.exists(path):
            raise StepError(
                f"expected a checkpoint of a SparseTrainer, but got"
                f" '{resume_from_checkpoint}' without {_CHECKPOINT}"
            )
        self._resumed = path
        return super()._load_from_checkpoint(resume_from_checkpoint, *arguments, **named)


def _device(device: torch.device) -> str:
    """Returns what compiled steps call a device."""
    return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
