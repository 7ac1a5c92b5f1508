# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers for a training loop of PyTorch's own.

"""Layers whose weights are stored in blocks, for any loop, optimizer and model.

    from sparse_opt.torch import nn

    layer = nn.Linear(768, 3072, block=16, density=0.1)
    model = nn.sparsify(model, ["match=mlp.*weight$ block=16x16 density=0.1"])

The parameter `weight` is a plain dense tensor of the stored blocks, `[slots, block rows,
block columns]`: optimizers, clipping, `GradScaler`, hooks, `deepcopy` and `state_dict`
see nothing else, and neither the dense weight nor its gradient is ever made. Forward and
backward are kernels for the processor, or for the NVIDIA GPU that a `Linear` lies on,
compiled when they are first needed and kept on disk (`sparse_opt.cache`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch

from sparse_opt import _given, _pattern_updates, _products
from sparse_opt._errors import StepError
from sparse_opt._method import Method
from sparse_opt.torch import _linear, _updates
from sparse_opt.torch._convolutions import Conv1d, Conv2d, Conv3d, Convolution
from sparse_opt.torch._layers import Blocks, Embedding, Linear
from sparse_opt.torch._new_blocks import Start
from sparse_opt.torch._replace import densify, marks_of, sparsify
from sparse_opt.torch._schedule import Sparsity

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "Embedding", "Linear", "Sparsity", "broadcast_patterns",
    "compile_kernels", "densify", "keep_gradients", "marks_of", "sparsify", "update_patterns",
]  # fmt: skip

# Where users find them, and pickles look for them.
for _class in (Conv1d, Conv2d, Conv3d, Embedding, Linear):
    _class.__module__ = __name__


@_given.options()
def update_patterns(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    drop: float = 0.3,
    *,
    method: Literal["set", "rigl", "gmp"] | Method = "set",
    density: float | None = None,
    norm: Literal["l1", "l2", "linf", "mean"] = "l1",
    allow_return: bool = False,
    seed: int = 0,
    new_values: Literal["zero", "random"] = "zero",
    new_state: Literal["first", "mean"] = "first",
) -> int:
    """Prunes blocks of every layer of a model, and regrows others.

    By the runtime of compiled steps: one with the same weights, names and seed chooses the
    same blocks. Nothing is compiled again. Call it between `optimizer.step()` and the next
    forward pass; under DDP and FSDP on every rank, which all choose the same.

    Args:
      model: whose layers to update; those whose weight has `requires_grad=False` stay.
      optimizer: or several. What it keeps of new blocks (tensors of the weight's shape)
        becomes what `new_state` says.
      drop: the share of the blocks of each layer to prune.
      method: `set` regrows random blocks (Mocanu et al. 2018), `rigl` those of the largest
        gradients (Evci et al. 2020), of the backward passes since `keep_gradients(model)`;
        `gmp` regrows none (Zhu and Gupta 2017). Or a `sparse_opt.Method` of one's own,
        which sees values, no moments.
      density: of gmp, the share of all blocks to leave.
      norm: what blocks are ranked by.
      allow_return: whether a block may be pruned and regrown at once.
      seed: of the choices, with the name of the weight and the number of the update.
      new_values: of new blocks: `zero`, or `random`, drawn as those of a new layer.
      new_state: what the optimizer keeps of new blocks: what it began with (`first`: zeros
        of Adam), or the `mean` of what it keeps of the other blocks of the matrix.

    Returns:
      How many blocks were pruned.

    Raises:
      StepError: the model has no layers, an optimizer does not hold their weights, ranks
        have different patterns, or rigl has no gradients.
    """
    seed, start = _given.seed(seed), Start(new_values, new_state)
    layers = _updates.trained(model)
    optimizers = _updates.optimizers_of(layers, optimizer)
    due = _pattern_updates.due_of(
        {name: layer.matrix for name, layer in layers.items()},
        method, drop, norm=norm, density=density, allow_return=allow_return,
    )  # fmt: skip
    try:
        updated = _updates.update(layers, optimizers, due, seed, start)
    finally:
        keep_gradients(model, on=False)
    if updated is None:
        raise StepError(
            "expected gradients that are numbers to score blocks by, but got infinities or"
            " NaN (a step that a GradScaler skips): update after another step"
        )
    return sum(int(weight.statistics.pruned) for weight in updated.values())


def keep_gradients(model: torch.nn.Module, on: bool = True) -> None:
    """Lets the layers of a model keep what the backward passes from now on have: their
    inputs and the gradients of their results, until the next update of patterns.

    `rigl` and methods with `needs_scores` make the norms of all blocks' gradients of them.
    They are copies. Of several backward passes (micro-batches) all count.
    """
    on = _given.flag("on", on)
    for module in _updates.require_model(model).modules():
        if isinstance(module, Blocks):
            _updates.keep(module, on)


@_given.options()
def compile_kernels(
    model: torch.nn.Module,
    *,
    tokens: int | None = None,
    dtype: torch.dtype | None = None,
    training: bool = True,
) -> int:
    """Compiles the kernels of a model's layers ahead, several at once, instead of one by one
    in the first step; a line says how far it is once that takes three seconds.

    What a layer needs beyond is compiled when it is first needed, as ever: the backward pass
    of one whose input has no gradient, as that of the first layer of a model, and all of a
    convolution, whose kernels are for images of one size.

    Args:
      model: whose layers, which lie on a processor.
      tokens: how many tokens a call has at most; None: any number.
      dtype: of activations, where autocast makes them another one than the weights'.
      training: whether for backward passes, too.

    Returns:
      How many kernels were compiled; the others were kept on disk.

    Raises:
      StepError: a layer lies on a GPU, or an argument is of a wrong type or value.
    """
    if tokens is not None:
        tokens = _given.size("tokens", tokens)
    if dtype is not None and dtype not in _linear.TYPES:
        raise _given.refusal("a dtype of float32, float64, bfloat16 or float16", dtype)
    training = _given.flag("training", training)
    kernels = []
    # A layer may read what another one computes an activation of.
    made: dict[int, set[str]] = {}
    for layer in _updates.require_model(model).modules():
        if isinstance(layer, Linear) and layer.activation and training:
            made.setdefault(layer.out_features, set()).add(layer.activation)
    for name, layer in model.named_modules():
        # Kernels of convolutions are for images of one size, which a layer does not know.
        if not isinstance(layer, Linear) or isinstance(layer, Convolution):
            continue
        if not layer.weight.is_cpu:
            raise StepError(
                f"expected layers on a processor, but got '{name}' on '{layer.weight.device}'"
            )
        matrix = layer.matrix
        if dtype is not None:
            matrix = dataclasses.replace(matrix, type=_linear.TYPES[dtype])
        has_bias = layer.bias is not None
        for of_x in ("", *sorted(made.get(layer.in_features, ()))):
            kernels += _linear.kernels_of(matrix, has_bias, layer.activation, training, of_x)
    return _products.prepare(kernels, tokens, _linear.threads())


def broadcast_patterns(model: torch.nn.Module) -> None:
    """Gives the layers of a model the patterns of rank 0, of `torch.distributed`'s default
    group. DDP does so by itself when it is made."""
    modules = _updates.require_model(model).named_modules()
    _updates.broadcast({n: m for n, m in modules if isinstance(m, Blocks)})
