# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Exports PyTorch training steps to `linalg` on tensors.

"""The PyTorch front end.

`export` takes a training step as its author wrote it, with `loss.backward()`,
clipping and `optimizer.step()`, and returns MLIR text: one public function on
tensors whose arguments and results carry their names and roles. Parameters and
buffers have their names in the model's `state_dict`; an optimizer's tensor is
`optimizer.<parameter>.<key>`, a tensor of the batch `batch.<path>`.

    def train_step(model, optimizer, batch):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from sparse_opt import _compiler, _given, _inits, _progress, _versions
from sparse_opt._errors import ExportError
from sparse_opt._marks import Mark, Marks
from sparse_opt._program import Export

__all__ = ["Export", "ExportError", "export", "export_function"]

_TESTED = (("torch", "2.14", "2.16"), ("torch-mlir", "20261001", "20261002"))
# What leans on names that another version may not have.
_LEANING = ("sparse_opt.torch._capture", "sparse_opt.torch._program")
_LOWERING = ("sparse_opt.torch._linalg",)

_STAGES = ("trace", "trace again", "decompose", "import", "lower", "write")


@_given.options(ExportError)
@_progress.job("export", _STAGES)
def export(
    train_step: Any,
    model: torch.nn.Module,
    optimizer: Any,
    batch: Any,
    *,
    inits: Mapping[str, str] | None = None,
    locations: bool = True,
    accumulate: bool = False,
    scheduled: Sequence[str] = (),
    marks: Marks = (),
) -> Export:
    """Returns the MLIR text of one training step.

    The step is run on tensors without values. The model, the optimizer
    and the batch are left as they are. Block-sparse layers (`sparse_opt.torch.nn`) are taken
    over with their blocks, and with what the optimizer keeps of them. Numbers that are no tensors (options of
    the optimizer, flags in the batch) become constants, except for learning
    rates: the first group's is the argument `lr`, the others keep their ratio to
    it. Dropout becomes a hash of the argument `seed`. Other optimizers that the step
    uses are carried as the first is; each of their groups has its own rate, the argument
    `optimizer.groups.<group>.lr`, which is read before each step.

    Args:
      train_step: `train_step(model, optimizer, batch)`, which returns the loss,
        or a structure that begins with it.
      model: the model, in training mode.
      optimizer: any optimizer whose state is tensors and numbers, or several of them in
        a list, a tuple or a dictionary, of which each parameter has one.
      batch: tensors in lists, tuples and dictionaries. A later batch of other shapes has
        the step exported again.
      inits: regular expressions searched for in the names of arguments, and the
        `bsr.init` that tells a driver without Python how to begin: `zeros`,
        `ones`, `constant(c)` or `normal(sd)`. Without one, what is equal
        everywhere begins so.
      locations: keep the line of the program that each operation came from.
      accumulate: make it the step of a micro-batch: `step(batch, apply=False)` adds
        to sums of gradients, `step(batch, apply=True)` adds, updates by their mean
        and begins again. The loss is that of a micro-batch, not divided by their
        number, which may be any.
      scheduled: names of options of the optimizer that the loop changes between steps,
        as `weight_decay`: they are read before each step, as the rate is. Those that a
        scheduler moves which is there at the export (OneCycleLR, CyclicLR) need no name.
      marks: those that `compile` is to be given (`sparse_opt.Mark`), and takes by default, of weights that no
        layer has in blocks. Wrong ones are an error before anything is traced.

    Returns:
      A module with the public function `step`. It needs no dialect but those
      of upstream MLIR 22.1.

    Raises:
      ExportError: the step depends on data, or it does something that has no
        form in `linalg`; the message names the line and what to do instead. Or an
        optimizer sees more of a layer's weight than single entries, the model is one of DDP or
        FSDP with layers, or these wait for an update of patterns.
    """
    _versions.load("torch", _TESTED, _LEANING)
    from sparse_opt.torch import (
        _arguments,
        _capture,
        _effects,
        _export_cache,
        _optimizer,
        _optimizers,
        _program,
        _upgrade,
    )
    from sparse_opt.torch.rewrites import _experts

    _arguments.require_program(train_step, model, optimizer, batch)
    _optimizers.require_no_windows(optimizer)
    layers = _upgrade.Layers(model)
    layers.require_no_update()
    stacks = _experts.stacks_of(model)
    with (
        torch.inference_mode(False), torch.enable_grad(), layers.dense(),
        contextlib.ExitStack() as stack,
    ):  # fmt: skip
        given: list[Mark] = []
        if marks:
            weights = _arguments.weights_of(model)
            given = _compiler.require_marks(weights, marks, layers.marks)
        marked = {
            id(module)
            for name, module in stacks.items()
            for mark in given
            if mark.matches(name) and mark.fits(module.get_parameter(name.rpartition(".")[2]).shape)
        }
        is_apart = stack.enter_context(_experts.apart(lambda module: id(module) in marked))
        with _effects.nothing_kept():
            recorded = _capture.record(
                train_step, model, optimizer, batch, accumulate, scheduled
            )
        rules = dict(_optimizer.first_rules(model, recorded.optimizers))
        for argument in recorded.arguments:
            rule = _init(argument.name, argument.role, argument.value, inits or {})
            if rule:
                rules[argument.name] = rule
        text, captured = _export_cache.export(recorded, rules, locations, _lower)

    def again(batch: Any, is_apart: Any = is_apart) -> Export:
        with _experts.apart(is_apart):
            return export(
                train_step, model, optimizer, batch, inits=inits, locations=locations,
                accumulate=accumulate, scheduled=scheduled,
            )  # fmt: skip

    program = _program.TorchProgram(model, batch, captured, layers, train_step, again)
    exported = Export.of(text, program, given)
    with _experts.apart(is_apart):
        grouped = _experts.grouped_in(model)
    exported.take_apart(grouped, lambda: again(batch, lambda module: True))
    return exported


@_given.options(ExportError)
def export_function(
    function: Any,
    model: torch.nn.Module,
    batch: Any,
    *,
    training: bool = False,
    locations: bool = True,
) -> Export:
    """Returns the MLIR text of a function of a model that trains nothing.

    For `step.bind`, which compiles it on the values that a step trains: validation,
    generation; or for `sparse_opt.compile`, with the values of the model.

    Args:
      function: `function(model, batch)`, which returns tensors in any structure. It
        runs under `torch.no_grad()`.
      model: the model that the step trains.
      batch: as of `export`.
      training: whether the model is in training mode; by default in that of
        evaluation, without dropout. The model is left in the mode that it has.
      locations: as of `export`.

    Raises:
      ExportError: as `export` does; or the function changes the model.
    """
    _versions.load("torch", _TESTED, _LEANING)
    from sparse_opt.torch import (
        _arguments,
        _capture,
        _effects,
        _export_cache,
        _program,
        _upgrade,
    )
    from sparse_opt.torch.rewrites import _experts

    _arguments.require_function(function, model, batch)
    layers = _upgrade.Layers(model)
    with torch.inference_mode(False), layers.dense():
        with _capture.in_mode(model, training):
            with _effects.nothing_kept():
                recorded = _capture.record_function(function, model, batch)
            text, captured = _export_cache.export(recorded, {}, locations, _lower)
    program = _program.TorchFunction(model, batch, captured, layers)

    def apart() -> Export:
        with _experts.apart(lambda module: True):
            return export_function(
                function, model, batch, training=training, locations=locations
            )

    exported = Export.of(text, program)
    exported.take_apart(_experts.grouped_in(model), apart)
    return exported


def _lower(captured: Any, rules: Mapping[str, str], locations: bool) -> str:
    """Returns the text of a step. What is kept needs nothing of torch-mlir."""
    _versions.load("torch", _TESTED, _LOWERING, warns=False)
    from sparse_opt.torch import _linalg

    return _linalg.lower(captured, rules, locations)


def _init(
    name: str, role: str, value: torch.Tensor, inits: Mapping[str, str]
) -> str | None:
    """Returns how a driver begins an argument."""
    for pattern, rule in inits.items():
        _inits.require(rule)
        if re.search(pattern, name):
            return rule
    if role in ("batch", "lr", "seed", "apply") or not value.numel():
        return None
    return _inits.of(value.flatten())
