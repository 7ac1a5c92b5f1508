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
backward are kernels for the processor, compiled when they are first needed and kept on
disk (`sparse_opt.cache`). Processors only: a layer on another device is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parametrize

from sparse_opt import _activations, _given, _library, _marks, _pattern_updates, _say
from sparse_opt._errors import StepError
from sparse_opt._method import Method
from sparse_opt._products import Matrix
from sparse_opt.torch import _linear, _private, _sharded, _updates
from sparse_opt.torch._schedule import Sparsity

__all__ = [
    "Linear", "Sparsity", "broadcast_patterns", "densify", "keep_gradients", "marks_of",
    "sparsify", "update_patterns",
]  # fmt: skip

Pattern = Literal["random", "largest"]


class Linear(torch.nn.Module):
    """`y = activation(x W^T + b)` with a block-sparse `W`, `[out_features, in_features]`, in place of
    `torch.nn.Linear`.

    Args:
      in_features: of `x`, `[..., in_features]`, with any number of leading dimensions.
      out_features: of `y`.
      bias: whether to add one.
      block: the size of blocks, or their rows (of outputs) and columns (of inputs).
      density: the share of blocks that is stored, above 0, at most 1.
      pattern: which blocks are stored: `random`, by PyTorch's generator, or a mask of
        `[out_features / rows, in_features / columns]`, whose entries are true for these.
      activation: a function of the result, which the kernel of the product computes, as it
        does its gradient: `relu`, `gelu`, `gelu_tanh` (the approximation by a hyperbolic
        tangent) or `silu`.
      dtype: float32, float64, bfloat16 or float16; sums are taken in float32 at least.
      device: that of PyTorch's default, which has to be a processor.

    Attributes:
      weight: the parameter, `[slots, block rows, block columns]`, in the order of rows.
      pattern: where the blocks lie, a buffer of int32 that a `state_dict` holds.
      num_updates: how often the pattern was updated, a buffer, too.
      bias: the parameter, `[out_features]`, or None.

    Values begin as those of `torch.nn.Linear` do: uniform within `1 / sqrt(in_features)`.

    Raises:
      StepError: an argument is of a wrong type or value; blocks do not divide the weight.
    """

    weight: torch.nn.Parameter
    pattern: Tensor
    num_updates: Tensor
    _is_dense = False  # whether its weight is a matrix meanwhile (_upgrade.py)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        block: int | tuple[int, int] = 16,
        density: float = 0.1,
        pattern: Literal["random"] | Tensor | np.ndarray[Any, Any] = "random",
        activation: Literal["", "relu", "gelu", "gelu_tanh", "silu"] = "",
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        if activation not in ("", *_activations.NAMES):
            raise StepError(
                f"expected an activation of {', '.join(_activations.NAMES)}, but got"
                f" {activation!r}"
            )
        self.activation = activation
        in_features = _given.integer("in_features", in_features, 1)
        out_features = _given.integer("out_features", out_features, 1)
        rows, cols = _given.block(block)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        where = _device(device)
        _require_shape("Linear", (out_features, in_features), (rows, cols), dtype, where)
        grid = out_features // rows, in_features // cols
        mask = _mask(pattern, grid, density)
        self.in_features, self.out_features = in_features, out_features
        self.block = rows, cols
        # Whether it stands for a layer whose weight is [in_features, out_features].
        self.is_transposed = False
        slots = int(mask.sum())
        self.weight = torch.nn.Parameter(
            torch.empty(slots, rows, cols, dtype=dtype, device=where)
        )
        if _given.flag("bias", bias):
            self.bias = torch.nn.Parameter(
                torch.empty(out_features, dtype=dtype, device=where)
            )
        else:
            self.register_parameter("bias", None)
        matrix = _linear.matrix_of(self.weight, out_features, in_features)
        # At a line of memory, where kernels read it.
        self.register_buffer("pattern", torch.from_numpy(matrix.pattern_of(mask)).clone())
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begins again, as `torch.nn.Linear` does."""
        bound = 1 / math.sqrt(self.in_features)
        with torch.no_grad():
            self.weight.uniform_(-bound, bound)
            if self.bias is not None:
                self.bias.uniform_(-bound, bound)

    @property
    def matrix(self) -> Matrix:
        return _linear.matrix_of(self.weight, self.out_features, self.in_features)

    @property
    def density(self) -> float:
        """The share of the blocks that is stored."""
        rows, cols = self.matrix.grid
        return len(self._places()[0]) / (rows * cols)

    def mask(self) -> Tensor:
        """Returns which blocks are stored, `[out_features / rows, in_features / columns]`."""
        mask = torch.zeros(self.matrix.grid, dtype=torch.bool)
        _, rows, cols = self._places()
        mask[rows, cols] = True
        return mask

    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """The slots that have a block, and its row and column."""
        return _linear.places(self.matrix, self.pattern)

    def dense_weight(self) -> Tensor:
        """Returns `W`, `[out_features, in_features]`, with zeros where no block is stored."""
        return _linear.spread(self.matrix, self.pattern, _sharded.whole(self.weight))

    @torch.no_grad()
    def take_dense(self, weight: Tensor) -> None:
        """Takes the stored blocks of a dense weight, `[out_features, in_features]`."""
        expected = f"a weight of {self.out_features}x{self.in_features}"
        if not isinstance(weight, Tensor):
            raise _given.refusal(expected, weight)
        if weight.shape != (self.out_features, self.in_features):
            got = "x".join(map(str, weight.shape)) or "one number"
            raise StepError(f"expected {expected}, but got {got}")
        values = _linear.gather(self.matrix, self.pattern, weight.detach())
        _sharded.take_whole(self.weight, values.to(self.weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            raise _given.refusal(f"activations [..., {self.in_features}]", x)
        if self._is_dense:
            y = torch.nn.functional.linear(x, self.weight, self.bias)
            return _linear.ACTIVATIONS[self.activation](y) if self.activation else y
        if not torch.compiler.is_compiling():
            if transform := _private.differentiating_transform():
                raise StepError(
                    f"expected a block-sparse layer outside of {transform}, but got one within:"
                    " use loss.backward() or torch.autograd.grad, or densify the model"
                )
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if torch.is_autocast_enabled("cpu"):
            x, weight = _cast(x), _cast(weight)
            bias = bias if bias is None else _cast(bias)
        if x.shape[-1:] != (self.in_features,) or x.dtype != weight.dtype:
            raise StepError(
                f"expected activations [..., {self.in_features}] of {weight.dtype}, but got"
                f" {list(x.shape)} of {x.dtype}"
            )
        if x.device.type != "cpu" or weight.device.type != "cpu":
            raise StepError(
                "expected a block-sparse layer and its input on a processor, but got"
                f" '{weight.device}' and '{x.device}': GPUs run whole steps (sparse_opt.compile)"
            )
        y = _linear.call(
            x, weight, bias, self.pattern, self.out_features, self.in_features, self.activation
        )
        return y

    @property
    def kept(self) -> list[tuple[Tensor, Tensor]]:
        """The inputs, and the gradients of the results, of the backward passes since
        `keep_gradients`."""
        return _linear.KEPT.get(self.pattern.data_ptr(), [])

    def extra_repr(self) -> str:
        rows, cols = self.block
        # A trace has no values of the pattern.
        density = "" if self._is_dense else f", density={self.density:.3g}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" bias={self.bias is not None}, block={rows}x{cols}{density}"
            + (f", activation={self.activation}" if self.activation else "")
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any
    ) -> None:
        """Loads a layer of blocks, or a dense one, of which it takes the stored blocks."""
        weight = state_dict.get(f"{prefix}weight")
        if isinstance(weight, Tensor) and weight.dim() == 2:
            self.take_dense(weight.t() if self.is_transposed else weight)
            state_dict = dict(state_dict)
            state_dict[f"{prefix}weight"] = self.weight.detach().clone()
            state_dict[f"{prefix}pattern"] = self.pattern.clone()
            state_dict[f"{prefix}num_updates"] = self.num_updates.clone()
        pattern = state_dict.get(f"{prefix}pattern")
        if isinstance(pattern, Tensor) and pattern.device.type == "cpu":
            _linear.require_own(f"{prefix}weight", self.matrix, pattern)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _cast(tensor: Tensor) -> Tensor:
    """Returns a tensor as autocast gives it to a linear layer."""
    if not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def _require_shape(
    name: str,
    shape: tuple[int, int],
    block: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Raises `StepError` for a weight that no layer of blocks can have."""
    if any(extent % size for extent, size in zip(shape, block)):
        raise StepError(
            f"expected blocks that divide the weight of {name}, {shape[0]}x{shape[1]}"
            f" (outputs by inputs), but got {block[0]}x{block[1]}"
        )
    if not isinstance(dtype, torch.dtype) or dtype not in _linear.TYPES:
        raise _given.refusal(
            f"{name} to have values of float32, float64, bfloat16 or float16", dtype
        )
    if device.type != "cpu":
        raise StepError(
            f"expected {name} on a processor, but got '{device}': GPUs run whole steps"
            " (sparse_opt.compile)"
        )


def _device(device: Any) -> torch.device:
    if device is None:
        return torch.get_default_device()
    try:
        return torch.device(device)
    except (TypeError, RuntimeError) as error:
        raise _given.refusal("a device of PyTorch", device) from error


def _count(density: float, grid: tuple[int, int]) -> int:
    return _library.density_blocks(_given.density(density), grid[0] * grid[1])


_FIRST = "the pattern 'random' or a mask"


def _mask(
    pattern: Any, grid: tuple[int, int], density: float
) -> np.ndarray[Any, Any]:
    """Returns which blocks a layer begins with."""
    if isinstance(pattern, str) and pattern == "random":
        count = _count(density, grid)
        drawn = np.zeros(grid[0] * grid[1], np.bool_)
        drawn[torch.randperm(drawn.size)[:count].numpy()] = True
        return drawn.reshape(grid)
    mask = _given.mask(_FIRST, pattern)
    if mask.shape != grid or not mask.any():
        raise StepError(
            f"expected a mask of {grid[0]}x{grid[1]} blocks, of which one is stored at least,"
            f" but got {int(mask.sum())} of {'x'.join(map(str, mask.shape))}"
        )
    return mask


def _largest(weight: Tensor, block: tuple[int, int], density: float) -> Tensor:
    """Returns the mask of the blocks of the largest L1 norms, of equal ones the first."""
    norms = _linear.tiles(weight.detach(), block).to(torch.float64).abs().sum((2, 3))
    count = _count(density, (norms.shape[0], norms.shape[1]))
    mask = torch.zeros(norms.numel(), dtype=torch.bool)
    mask[torch.from_numpy(_library.choose("highest", norms.flatten().numpy(), count))] = True
    return mask.reshape(norms.shape)


def _is_dense(module: torch.nn.Module) -> bool:
    """Returns whether a layer of blocks can take a module's place."""
    # What has a parametrization is of a class that is derived from its own.
    kind = type(module).__base__ if parametrize.is_parametrized(module) else type(module)
    return kind is torch.nn.Linear or _is_conv1d(module)


def _is_conv1d(module: torch.nn.Module) -> bool:
    """Returns whether a module is the linear layer of transformers' GPT-2 and its kin, whose
    weight is [inputs, outputs]."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def _sparse(linear: Any, block: tuple[int, int], density: float, pattern: Any) -> Linear:
    """Returns a layer with the stored blocks of a dense one, and its bias itself; blocks and
    a mask are those of the weight as it lies there."""
    is_transposed = _is_conv1d(linear)
    weight = linear.weight.detach()
    if is_transposed:
        weight, block = weight.t(), block[::-1]
        pattern = pattern if isinstance(pattern, str) else _given.mask(_FIRST, pattern).T
    if isinstance(pattern, str) and pattern == "largest":
        pattern = _largest(weight, block, density)
    layer = Linear(
        weight.shape[1], weight.shape[0], linear.bias is not None,
        block=block, density=density, pattern=pattern, dtype=weight.dtype, device=weight.device,
    )  # fmt: skip
    layer.is_transposed = is_transposed
    layer.take_dense(weight)
    layer.weight.requires_grad_(linear.weight.requires_grad)
    if linear.bias is not None:
        layer.bias = linear.bias
    return layer.train(linear.training)


def sparsify(
    model: torch.nn.Module,
    marks: Sequence[str],
    pattern: Pattern | Mapping[str, Any] = "random",
) -> torch.nn.Module:
    """Puts block-sparse layers into a model in place of its `torch.nn.Linear`, and of the
    `Conv1D` of transformers, and returns it. A line says how many, and what it left.

    Make the optimizer afterwards: it holds the parameters of the layers that are there.

    Args:
      model: whose layers are replaced in place. Layers under two names, and weights under
        two names, stay one.
      marks: as those of `sparse_opt.compile`: `match=<regular expression>
        block=<rows>x<columns> density=<share>`, matched against the names of weights, as
        `encoder.0.mlp.weight`; the first that matches counts. What no block divides stays
        dense.
      pattern: `random`, `largest` (the blocks of the largest L1 norms), or masks by the
        names of weights.

    Raises:
      StepError: a mark that is none, or that matches no weight which it fits; a layer with
        hooks or a parametrization, which would be lost. Nothing has changed then.
    """
    _updates.require_model(model)
    listed = [marks] if isinstance(marks, str) else marks
    if not isinstance(listed, Iterable):
        raise _given.refusal("a list of marks", marks)
    if not isinstance(pattern, (str, Mapping)):
        raise _given.refusal(
            "the pattern 'random', 'largest' or masks by the names of weights", pattern
        )
    rules = [_mark(mark) for mark in listed]
    used = set()
    found: list[tuple[torch.nn.Module, str, Any, str, _marks.Mark]] = []
    left = []
    for path, module in list(model.named_modules(remove_duplicate=False)):
        for name, child in list(module._modules.items()):
            if not _is_dense(child):
                continue
            weight = _given.name(f"{path}.{name}.weight".lstrip("."))
            rule = next((rule for rule in rules if rule.match.search(weight)), None)
            if rule is None:
                continue
            _updates.require_parameter(weight, child)
            shape = child.weight.shape
            if not rule.fits(shape):
                left.append(f"{weight} ({shape[0]}x{shape[1]})")
                continue
            used.add(rule)
            _require_no_hooks(weight, child, "sparsify")
            found.append((module, name, child, weight, rule))
    for rule in rules:
        if rule not in used:
            names = [n for n, m in model.named_modules() if _is_dense(m)]
            raise StepError(
                f"expected 'match={rule.match.pattern}' to match the weight of a linear layer that"
                f" blocks of {rule.rows}x{rule.cols} divide, but got"
                f" {', '.join(left[:3]) or 'no match'} in {len(names)} layers:"
                f" {', '.join(f'{name}.weight' for name in names[:3])}"
            )
    if not isinstance(pattern, str):
        names = [weight for *_, weight, _ in found]
        if odd := [name for name in pattern if name not in names]:
            raise StepError(
                "expected masks by the names of weights that are replaced, but got"
                f" {_given.shown(odd[0])}: {', '.join(names[:5])}"
            )
    _require_apart(model, [child for _, _, child, *_ in found])
    made: dict[int, Linear] = {}  # by weights
    modules: dict[int, Linear] = {}
    for module, name, child, weight, rule in found:
        known = modules.get(id(child))
        if known is None:
            first = pattern if isinstance(pattern, str) else pattern.get(weight, "random")
            known = _sparse(child, (rule.rows, rule.cols), rule.density, first)
            if twin := made.get(id(child.weight)):
                # One weight of two layers, which have biases of their own.
                known.weight, known.pattern = twin.weight, twin.pattern
                known.num_updates = twin.num_updates
            modules[id(child)] = known
            made.setdefault(id(child.weight), known)
    for module, name, child, *_ in found:
        setattr(module, name, modules[id(child)])
    for module in model.modules():
        # Kernels of their own for inference read dense weights; without these they call
        # their layers.
        if isinstance(module, torch.nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        if isinstance(module, torch.nn.TransformerEncoder):
            module.enable_nested_tensor = module.use_nested_tensor = False
    stored = sum(layer.weight.numel() for layer in made.values())
    dense = sum(layer.in_features * layer.out_features for layer in made.values())
    _say.line(
        f"{len(made)} layers have blocks now, {stored:,} of {dense:,} numbers"
        + (f"; no blocks divide {', '.join(left[:5])}" if left else "")
    )
    return model


def _require_no_hooks(name: str, linear: Any, call: str) -> None:
    """Raises `StepError` for hooks of a layer or its weight, which would be lost with it."""
    kinds = (
        "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks",
        "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    )  # fmt: skip
    weight = linear.weight
    own = (weight._backward_hooks, getattr(weight, "_post_accumulate_grad_hooks", None))
    if any(getattr(linear, kind, None) for kind in kinds) or any(own):
        raise StepError(
            f"expected a layer without hooks to replace, but got some on that of '{name}':"
            f" register them after {call}"
        )


def _mark(text: Any) -> _marks.Mark:
    mark = _marks.Mark.of(text) if isinstance(text, str) else None
    if mark is None:
        raise _given.refusal(
            "a mark 'match=<regular expression> block=<rows>x<columns> density=<share>'", text
        )
    return mark


def _require_apart(model: torch.nn.Module, replaced: Sequence[Any]) -> None:
    """Raises `StepError` if a weight to be replaced is one of a module that stays, too."""
    weights, modules = {id(m.weight) for m in replaced}, {id(m) for m in replaced}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in weights and id(module) not in modules:
                shown = _given.shown(f"{path}.{name}".lstrip("."))
                raise StepError(
                    f"expected weights that only linear layers share, but got {shown}, which"
                    " another module has, too: leave it out of the marks, or untie it first"
                )


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
) -> int:
    """Prunes blocks of every layer of a model, and regrows others.

    By the runtime of compiled steps: one with the same weights, names and seed chooses the
    same blocks. Nothing is compiled again. Call it between `optimizer.step()` and the next
    forward pass; under DDP and FSDP on every rank, which all choose the same.

    Args:
      model: whose layers to update; those whose weight has `requires_grad=False` stay.
      optimizer: or several. What it keeps of new blocks (tensors of the weight's shape)
        becomes what it began with.
      drop: the share of the blocks of each layer to prune.
      method: `set` regrows random blocks (Mocanu et al. 2018), `rigl` those of the largest
        gradients (Evci et al. 2020), of the backward passes since `keep_gradients(model)`;
        `gmp` regrows none (Zhu and Gupta 2017). Or a `sparse_opt.Method` of one's own,
        which sees values, no moments.
      density: of gmp, the share of all blocks to leave.
      norm: what blocks are ranked by.
      allow_return: whether a block may be pruned and regrown at once.
      seed: of the choices, with the name of the weight and the number of the update.

    Returns:
      How many blocks were pruned.

    Raises:
      StepError: the model has no layers, an optimizer does not hold their weights, ranks
        have different patterns, or rigl has no gradients.
    """
    seed = _given.seed(seed)
    layers = _updates.trained(model)
    optimizers = _updates.optimizers_of(layers, optimizer)
    due = _pattern_updates.due_of(
        {name: layer.matrix for name, layer in layers.items()},
        method, drop, norm=norm, density=density, allow_return=allow_return,
    )  # fmt: skip
    try:
        pruned = _updates.update(layers, optimizers, due, seed)
    finally:
        keep_gradients(model, on=False)
    if pruned is None:
        raise StepError(
            "expected gradients that are numbers to score blocks by, but got infinities or"
            " NaN (a step that a GradScaler skips): update after another step"
        )
    return pruned


def keep_gradients(model: torch.nn.Module, on: bool = True) -> None:
    """Lets the layers of a model keep what the backward passes from now on have: their
    inputs and the gradients of their results, until the next update of patterns.

    `rigl` and methods with `needs_scores` make the norms of all blocks' gradients of them.
    They are copies. Of several backward passes (micro-batches) all count.
    """
    on = _given.flag("on", on)
    for module in _updates.require_model(model).modules():
        if isinstance(module, Linear):
            _updates.keep(module, on)


def broadcast_patterns(model: torch.nn.Module) -> None:
    """Gives the layers of a model the patterns of rank 0, of `torch.distributed`'s default
    group. DDP does so by itself when it is made."""
    modules = _updates.require_model(model).named_modules()
    _updates.broadcast({n: m for n, m in modules if isinstance(m, Linear)})


def marks_of(model: torch.nn.Module) -> list[str]:
    """Returns marks of the layers of a model, for a whole step of the dense model. One of the
    model as it is needs none: `sparse_opt.torch.export` takes layers over.

        marks = nn.marks_of(model)
        model = nn.densify(model)
        optimizer = torch.optim.AdamW(model.parameters())
        export = sparse_opt.torch.export(train_step, model, optimizer, batch)
        step = sparse_opt.compile(export, marks, pattern="largest")
    """
    marks = []
    for name, layer in _updates.require_model(model).named_modules():
        if isinstance(layer, Linear):
            # As the weight lies in the dense model.
            rows, cols = layer.block[::-1] if layer.is_transposed else layer.block
            weight = _given.name(f"{name}.weight".lstrip("."))
            marks.append(_marks.text_of(weight, rows, cols, layer.density))
    return marks


def densify(model: torch.nn.Module) -> torch.nn.Module:
    """Puts the dense layers with the same numbers (`torch.nn.Linear`, or the `Conv1D` that
    was there) in place of block-sparse ones, in place, and returns the model; or the dense
    layer, of a layer.

    Raises:
      StepError: a layer with hooks or a parametrization, which would be lost.
    """
    modules = list(_updates.require_model(model).named_modules(remove_duplicate=False))
    for path, module in modules:
        if isinstance(module, Linear):
            weight = _given.name(f"{path}.weight".lstrip("."))
            _updates.require_parameter(weight, module)
            _require_no_hooks(weight, module, "densify")
    if isinstance(model, Linear):
        return _dense(model)
    made: dict[int, torch.nn.Module] = {}
    for _, module in modules:
        for name, child in list(module._modules.items()):
            if isinstance(child, Linear):
                if id(child) not in made:
                    made[id(child)] = _dense(child)
                setattr(module, name, made[id(child)])
    return model


class _Activated(torch.nn.Linear):
    """The dense layer of one with an activation."""

    activation: str

    def forward(self, x: Tensor) -> Tensor:
        return _linear.ACTIVATIONS[self.activation](super().forward(x))


def _dense(layer: Linear) -> torch.nn.Module:
    weight = layer.dense_weight()
    linear: Any
    if layer.is_transposed:
        from transformers.pytorch_utils import Conv1D

        linear, weight = Conv1D(layer.out_features, layer.in_features).to(weight.dtype), weight.t()
    else:
        linear = (_Activated if layer.activation else torch.nn.Linear)(
            layer.in_features, layer.out_features, layer.bias is not None,
            dtype=weight.dtype, device=weight.device,
        )  # fmt: skip
        if layer.activation:
            linear.activation = layer.activation
    with torch.no_grad():
        linear.weight.copy_(weight)
    linear.weight.requires_grad_(layer.weight.requires_grad)
    if layer.bias is not None:
        linear.bias = layer.bias
    dense: torch.nn.Module = linear.train(layer.training)
    return dense
