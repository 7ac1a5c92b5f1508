# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The operators of block-sparse layers.

"""`sparse_opt::linear` and its gradient, as PyTorch's custom operators.

Of a convolution, x and y are images, `[images, channels, *size]`, and `window` has five numbers for
each dimension of these (`_images.window_of`); of others it is empty."""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sparse_opt import _images, _products
from sparse_opt._errors import StepError
from sparse_opt._products import Matrix, Threads, Wanted
from sparse_opt.torch import _gpu, _origins, _private, _unfold

TYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16",
}  # fmt: skip


def matrix_of(weight: Tensor, out_features: int, in_features: int) -> Matrix:
    if weight.dim() != 3 or weight.dtype not in TYPES:
        raise StepError(
            "expected the blocks of a weight, [slots, block rows, block columns] of float32,"
            f" float64, bfloat16 or float16, but got {list(weight.shape)} of {weight.dtype}"
        )
    return _matrix(out_features, in_features, weight.shape, weight.dtype)


@functools.cache
def _matrix(rows: int, cols: int, shape: torch.Size, dtype: torch.dtype) -> Matrix:
    slots, block_rows, block_cols = shape
    return Matrix(rows, cols, block_rows, block_cols, slots, TYPES[dtype])


def _product_of(
    x: Tensor, weight: Tensor, out_features: int, in_features: int, window: Sequence[int] | None
) -> tuple[Matrix, int]:
    """Returns the matrix that rows of `x` are multiplied by, and how many rows there are."""
    matrix = matrix_of(weight, out_features, in_features)
    if not window:
        return matrix, x.numel() // in_features
    return _images.convolved(matrix, tuple(x.shape[2:]), tuple(window)), x.shape[0]


def _result_shape(
    x: Tensor, out_features: int, window: Sequence[int] | None
) -> tuple[int | torch.SymInt, ...]:
    if not window:
        return *x.shape[:-1], out_features
    return x.shape[0], out_features, *_images.result_size(x.shape[2:], window)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}  # fmt: skip


class _Known(NamedTuple):
    """A pattern that was found right."""

    pattern: weakref.ref[Tensor]
    version: int
    matrix: Matrix
    # The slots that have no block; None if all have one.
    empty: Tensor | None


# By their addresses, as layers have them.
_KNOWN: dict[int, _Known] = {}

# What the gradients of dense weights are made of, by the address of the layer's pattern,
# for layers that keep it: copies of the input and of the gradient of the result.
KEPT: dict[int, list[tuple[Tensor, Tensor]]] = {}


def require_pattern(matrix: Matrix, pattern: Tensor) -> Tensor | None:
    """Returns the slots without a block, or None if each has one.

    Raises `StepError` for a pattern that would have kernels read other memory: one of another
    shape, one that was averaged or cast."""
    known = _KNOWN.get(pattern.data_ptr())
    # What is written to inference tensors leaves no trace.
    version = -1 if pattern.is_inference() else pattern._version
    if (
        known is not None
        and known.pattern() is pattern
        and known.version == version >= 0
        and known.matrix is matrix
    ):
        return known.empty
    indices = pattern.numpy()
    _gpu.require_indices(matrix, indices)
    stored = matrix.rows_of(indices)[2]
    empty = None
    if len(stored) < matrix.slots:
        empty = torch.from_numpy(np.setdiff1d(np.arange(matrix.slots), stored))
    if len(_KNOWN) > 100_000:
        _KNOWN.clear()
    _KNOWN[pattern.data_ptr()] = _Known(weakref.ref(pattern), version, matrix, empty)
    return empty


def threads() -> Threads:
    """Returns those that PyTorch computes on."""
    return _threads(torch.get_num_threads())


@functools.cache
def _threads(count: int) -> Threads:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return Threads(count, _products.callers_threads(str(library)))


def require_own(name: str, matrix: Matrix, pattern: Tensor) -> None:
    """Raises `StepError` for a pattern that a weight cannot have."""
    if reason := matrix.obstacle(_gpu.host(pattern)):
        raise StepError(
            f"expected the pattern of '{name}', {matrix.rows}x{matrix.cols} in blocks of"
            f" {matrix.block_rows}x{matrix.block_cols}, but got {reason}: the state is of"
            " another layer"
        )


def _require_operands(
    x: Tensor,
    weight: Tensor,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    bias: Tensor | None = None,
    dy: Tensor | None = None,
    window: Sequence[int] | None = None,
) -> None:
    """Raises `StepError` for operands of an operator that kernels would read other memory
    for. Layers have asked for theirs by their names."""
    kind = weight.dtype
    wanted = [("activations", x, in_features)]
    if dy is not None:
        wanted.append(("gradients", dy, out_features))
    if window:
        _require_images(x, weight, in_features, window)
        if dy is not None and (
            dy.shape != _result_shape(x, out_features, window) or dy.dtype != kind
        ):
            raise StepError(
                f"expected gradients {list(_result_shape(x, out_features, window))} of {kind},"
                f" but got {list(dy.shape)} of {dy.dtype}"
            )
        wanted = []
    for what, tensor, features in wanted:
        if not tensor.dim() or tensor.shape[-1] != features or tensor.dtype != kind:
            raise StepError(
                f"expected {what} [..., {features}] of {kind}, but got {list(tensor.shape)} of"
                f" {tensor.dtype}"
            )
    if not window and dy is not None and dy.shape[:-1] != x.shape[:-1]:
        raise StepError(
            f"expected gradients [{', '.join(map(str, x.shape[:-1]))}, {out_features}] of"
            f" activations {list(x.shape)}, but got {list(dy.shape)}"
        )
    if bias is not None and (bias.shape != (out_features,) or bias.dtype != kind):
        raise StepError(
            f"expected a bias [{out_features}] of {kind}, but got {list(bias.shape)} of {bias.dtype}"
        )
    for other in (x, pattern, bias, dy):
        if other is not None and other.device != weight.device:
            raise StepError(
                f"expected the operands of a block-sparse product on '{weight.device}', where its"
                f" weight is, but got one on '{other.device}'"
            )


def _require_images(
    x: Tensor, weight: Tensor, in_features: int, window: Sequence[int]
) -> None:
    is_window = len(window) == 5 * (x.dim() - 2) > 0 and all(
        n >= (0 if place % 5 in (1, 2) else 1) for place, n in enumerate(window)
    )
    if (
        not is_window
        or x.shape[1] * math.prod(window[::5]) != in_features
        or x.dtype != weight.dtype
        or min(_images.result_size(x.shape[2:], window)) < 1
    ):
        raise StepError(
            f"expected images whose windows {list(window)} have {in_features} elements of"
            f" {weight.dtype}, but got {list(x.shape)} of {x.dtype}"
        )


def _dense(tensor: Tensor) -> Tensor:
    """Returns a tensor whose elements are in memory, one behind the other."""
    return tensor.resolve_neg().contiguous()


def _flat(tensor: Tensor) -> Tensor:
    """Returns a tensor whose elements lie behind each other from a line of memory on."""
    tensor = _dense(tensor)
    return tensor if tensor.data_ptr() % 64 == 0 else tensor.clone()


def _run(
    matrix: Matrix, wanted: Wanted, tokens: int, given: dict[str, Tensor], key: Tensor
) -> Tensor | None:
    """Computes what is wanted of tensors by name, where they lie; `key` is the pattern as its
    layer has it. Returns the slots whose gradients the kernel leaves as anything, if there are
    any: those without a block."""
    if _gpu.has(key):
        _gpu.run(matrix, wanted, tokens, given, key)
        return None
    empty = require_pattern(matrix, key)
    addresses = {name: tensor.data_ptr() for name, tensor in given.items()}
    _products.run(matrix, wanted, tokens, addresses, threads())
    return empty


def call(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    activation: str = "",
    window: Sequence[int] | None = None,
) -> Tensor:
    """Returns x w^T + b of a block-sparse w, of activations [..., in_features], or of images, or
    an activation function of that: by the operator, or, where nothing but autograd sees it, at
    a third of its host time."""
    arguments = x, weight, bias, pattern, out_features, in_features
    y: Tensor
    if torch.compiler.is_compiling() or not _private.are_plain(x, weight, pattern):
        if activation:
            y = linear_activated(*arguments, activation, window)[0]
        else:
            y = linear(*arguments, window)
    elif torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        y = _Function.apply(*arguments, activation, window)
    else:
        y = _result(*arguments, activation, window)[0]
    return y


@functools.cache
def _forward(bias: bool, activation: str, z: bool) -> Wanted:
    return Wanted(y=True, bias=bias, activation=activation, z=z)


@functools.cache
def _backward_of(bias: bool, dx: bool, dw: bool, activation: str, of_x: str = "") -> Wanted:
    return Wanted(bias=bias, dx=dx, dw=dw, activation=activation, of_x=of_x)


def kernels_of(
    matrix: Matrix, bias: bool, activation: str, trains: bool, of_x: str = ""
) -> list[tuple[Matrix, Wanted]]:
    """Returns the kernels of a layer whose input, weight and bias are trained, or that only
    computes results; its input is the activation `of_x` of another layer."""
    found = [(matrix, _forward(bias, activation, False))]
    if trains:
        found.append((matrix, _forward(bias, activation, bool(activation))))
        found.append((matrix, _backward_of(bias, True, True, activation, of_x)))
    return found


def _result(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    activation: str = "",
    window: Sequence[int] | None = None,
    wants_z: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Returns the result, and what its activation is applied to, if that is wanted."""
    y = x.new_empty(_result_shape(x, out_features, window))
    given = {"y": y, "x": _dense(x), "w": _flat(weight), "pattern": _flat(pattern)}
    z = None
    if wants_z:
        z = given["z"] = torch.empty_like(y)
    if bias is not None:
        given["b"] = _flat(bias)
    matrix, tokens = _product_of(x, weight, out_features, in_features, window)
    _run(matrix, _forward(bias is not None, activation, wants_z), tokens, given, pattern)
    return y, z


@torch.library.custom_op("sparse_opt::linear", mutates_args=(), device_types=("cpu", "cuda"))
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    window: Sequence[int] | None = None,
) -> Tensor:
    """The operator of `call`."""
    _require_operands(x, weight, pattern, out_features, in_features, bias, window=window)
    return _result(x, weight, bias, pattern, out_features, in_features, window=window)[0]


@linear.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    window: Sequence[int] | None = None,
) -> Tensor:
    _require_operands(x, weight, pattern, out_features, in_features, bias, window=window)
    return x.new_empty(_result_shape(x, out_features, window))


@torch.library.custom_op(
    "sparse_opt::linear_activated", mutates_args=(), device_types=("cpu", "cuda")
)
def linear_activated(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    activation: str,
    window: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """The operator of `call` with an activation, and what that is applied to."""
    _require_operands(x, weight, pattern, out_features, in_features, bias, window=window)
    y, z = _result(x, weight, bias, pattern, out_features, in_features, activation, window, True)
    assert z is not None
    return y, z


@linear_activated.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    activation: str,
    window: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    _require_operands(x, weight, pattern, out_features, in_features, bias, window=window)
    shape = _result_shape(x, out_features, window)
    return x.new_empty(shape), x.new_empty(shape)


def _tokens_of(x: Tensor, dy: Tensor, window: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """Returns copies of both with a row for each token: of images, for each window."""
    if not window:
        return x.clone(), dy.clone()
    return _unfold.rows(x, window).clone(), dy.flatten(2).transpose(1, 2).contiguous()


def _without_activation(dy: Tensor, z: Tensor, activation: str) -> Tensor:
    """Returns the gradient with respect to what an activation is applied to."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        return torch.autograd.grad(ACTIVATIONS[activation](z), z, dy)[0]


def _gradients(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    wants_x: bool,
    wants_weight: bool,
    wants_bias: bool,
    z: Tensor | None = None,
    activation: str = "",
    window: Sequence[int] | None = None,
    of_x: str = "",
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of x, of the weight's blocks and of the bias; empty tensors
    for those that nobody wants. The input is an activation of x, if there is `of_x`."""
    kept = KEPT.get(pattern.data_ptr()) if KEPT else None
    if of_x and kept is not None:
        x, of_x = ACTIVATIONS[of_x](x), ""
    if z is not None and (kept is not None or not (wants_x or wants_weight)):
        dy, z, activation = _without_activation(dy, z, activation), None, ""
    if kept is not None:
        kept.append(_tokens_of(x.detach(), dy.detach(), window))
    kind, none = weight.dtype, x.new_empty(0)
    total = torch.promote_types(kind, torch.float32)
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if wants_x else none
    dw = none
    if wants_weight:
        dw = torch.zeros_like(weight, dtype=total, memory_format=torch.contiguous_format)
    db = weight.new_zeros(out_features, dtype=total) if wants_bias and wants_weight else none
    if wants_bias and not wants_weight:
        features = 1 if window else dy.dim() - 1
        db = dy.sum([d for d in range(dy.dim()) if d != features], dtype=total)
    if wants_x or wants_weight:
        given = {
            "dy": _dense(dy), "x": _dense(x), "w": _flat(weight), "pattern": _flat(pattern),
            "dx": dx, "dw": dw, "db": db,
        }  # fmt: skip
        if z is not None:
            given["z"] = _dense(z)
        matrix, tokens = _product_of(x, weight, out_features, in_features, window)
        wanted = _backward_of(
            wants_bias and wants_weight, wants_x, wants_weight, activation,
            of_x if wants_weight else "",
        )  # fmt: skip
        empty = _run(matrix, wanted, tokens, given, pattern)
        if wants_weight and empty is not None:
            dw[empty] = 0
    return dx, dw if dw.dtype == kind else dw.to(kind), db if db.dtype == kind else db.to(kind)


@torch.library.custom_op(
    "sparse_opt::linear_backward", mutates_args=(), device_types=("cpu", "cuda")
)
def linear_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    wants_x: bool,
    wants_weight: bool,
    wants_bias: bool,
    z: Tensor | None = None,
    activation: str = "",
    window: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The operator of gradients."""
    _require_operands(x, weight, pattern, out_features, in_features, dy=dy, window=window)
    return _gradients(
        dy, x, weight, pattern, out_features, in_features, wants_x, wants_weight, wants_bias,
        z, activation, window,
    )  # fmt: skip


@linear_backward.register_fake
def _(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    pattern: Tensor,
    out_features: int,
    in_features: int,
    wants_x: bool,
    wants_weight: bool,
    wants_bias: bool,
    z: Tensor | None = None,
    activation: str = "",
    window: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(x, memory_format=torch.contiguous_format) if wants_x else x.new_empty(0),
        weight.new_empty(weight.shape if wants_weight else 0),
        weight.new_empty(out_features if wants_bias else 0),
    )


def _keep(
    ctx: Any, inputs: tuple[Any, ...], output: Any, origin: _origins.Origin | None = None
) -> None:
    """Keeps what a backward pass needs, of x what it was made of, if that is given;
    `_keep_plain` of the operator without an activation."""
    x, weight, bias, pattern, ctx.out_features, ctx.in_features, ctx.activation, ctx.window = inputs
    ctx.of_x = ""
    if origin is not None:
        x, ctx.of_x = origin
    ctx.save_for_backward(x, weight, pattern, output[1] if ctx.activation else None)
    ctx.has_bias = bias is not None


def _keep_plain(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _keep(ctx, (*inputs[:-1], "", inputs[-1]), output)


def _backward(
    ctx: Any, dy: Tensor, *, function: Any = linear_backward
) -> tuple[Tensor | None, ...]:
    x, weight, pattern, z = ctx.saved_tensors
    wants_x, wants_weight, wants_bias, *_ = ctx.needs_input_grad
    wants_bias = wants_bias and ctx.has_bias
    arguments = (
        weight, pattern, ctx.out_features, ctx.in_features, wants_x, wants_weight, wants_bias, z,
        ctx.activation, ctx.window,
    )  # fmt: skip
    if function is _gradients:
        dx, dw, db = _gradients(dy, x, *arguments, ctx.of_x)
    else:
        dx, dw, db = function(dy, ACTIVATIONS[ctx.of_x](x) if ctx.of_x else x, *arguments)
    wanted = dx if wants_x else None, dw if wants_weight else None, db if wants_bias else None
    return (*wanted, *[None] * (len(ctx.needs_input_grad) - 3))


def _backward_activated(ctx: Any, dy: Tensor, dz: Tensor | None) -> tuple[Tensor | None, ...]:
    return _backward(ctx, dy)


linear.register_autograd(_backward, setup_context=_keep_plain)
linear_activated.register_autograd(_backward_activated, setup_context=_keep)


class _Function(torch.autograd.Function):
    """What the operators do, as autograd calls it."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        wants_z = bool(inputs[-2]) and any(ctx.needs_input_grad)
        y, z = _result(*(inputs + (wants_z,)))
        # A forward pass that is computed again, for its hooks, has other tensors.
        knows = inputs[0].is_cpu and not inputs[-1] and not _private.has_saved_tensors_hooks()
        origin = None
        if knows and ctx.needs_input_grad[1]:
            origin = _origins.origin(inputs[0])
        _keep(ctx, inputs, (y, z), origin)
        if knows and z is not None:
            _origins.note(y, z, inputs[-2])
        return y

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> tuple[Tensor | None, ...]:
        # The operator refuses second derivatives, and vmap.
        is_alone = not (torch.is_grad_enabled() or _private.is_batch_of_gradients(dy[0]))
        return _backward(ctx, dy[0], function=_gradients if is_alone else linear_backward)


def refuse_second(ctx: Any, *gradients: Any) -> None:
    raise NotImplementedError(
        "expected one derivative of a block-sparse layer, but got a second one"
        " (create_graph=True): compute that part with sparse_opt.torch.nn.densify"
    )


linear_backward.register_autograd(refuse_second, setup_context=lambda ctx, inputs, output: None)


def refuse_vmap(info: Any, in_dims: Any, *arguments: Any) -> None:
    raise NotImplementedError(
        "expected a block-sparse layer outside of vmap, but got one within: pass activations"
        " of shape [..., in_features], of which all leading dimensions are tokens"
    )


linear.register_vmap(refuse_vmap)
linear_activated.register_vmap(refuse_vmap)
linear_backward.register_vmap(refuse_vmap)


def scores(
    matrix: Matrix, dtype: torch.dtype, kept: Sequence[tuple[Tensor, Tensor]]
) -> np.ndarray[Any, Any]:
    """Returns the L1 norms of all blocks of the gradient of the dense weight, of inputs and
    gradients of results: their sum over all tokens."""
    for pair in kept:
        for tensor in pair:
            dtype = torch.promote_types(dtype, tensor.dtype)
    x, dy = (
        torch.cat([part.reshape(-1, part.shape[-1]).to(dtype) for part in parts]).contiguous()
        for parts in zip(*kept)
    )
    matrix = dataclasses.replace(matrix, type=TYPES[dtype])
    if _gpu.has(x):
        return _gpu.scores(matrix, "l1", x, dy)
    return _products.scores(matrix, "l1", x.shape[0], x.data_ptr(), dy.data_ptr(), threads())
