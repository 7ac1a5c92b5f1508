# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The convolutions of sparse_opt.torch.nn.

"""Convolutions whose weights are stored in blocks: linear layers of windows."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sparse_opt import _given, _images
from sparse_opt._errors import ExportError, StepError
from sparse_opt.torch import _linear, _symbolic, _unfold
from sparse_opt.torch._layers import Linear

Sizes = int | tuple[int, ...]


class Convolution(Linear):
    """A convolution of `dims` dimensions.

    Its matrix has a row for each channel out, and a column for each place of a window of each
    channel in: `weight` of `torch.nn.Conv2d`, flattened from the second dimension on.
    """

    dims: int

    @_given.options()
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | Literal["valid", "same"] = 0,
        dilation: Sizes = 1,
        bias: bool = True,
        *,
        block: int | tuple[int, int] = 16,
        density: float = 0.1,
        pattern: Literal["random"] | Tensor | np.ndarray[Any, Any] = "random",
        fan_in: Literal["dense", "rows"] = "dense",
        activation: Literal["", "relu", "gelu", "gelu_tanh", "silu"] = "",
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        in_channels = _given.size("in_channels", in_channels)
        kernel_size = self._sizes("kernel_size", kernel_size, 1)
        stride = self._sizes("stride", stride, 1)
        dilation = self._sizes("dilation", dilation, 1)
        if isinstance(padding, str):
            if padding not in ("valid", "same") or padding == "same" and max(stride) > 1:
                raise _given.refusal("padding by numbers, 'valid', or 'same' of stride 1", padding)
        else:
            padding = self._sizes("padding", padding, 0)
        super().__init__(
            in_channels * math.prod(kernel_size), out_channels, bias, block=block, density=density,
            pattern=pattern, fan_in=fan_in, activation=activation, dtype=dtype, device=device,
        )  # fmt: skip
        self.in_channels, self.out_channels = in_channels, self.out_features
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
        self.padding = padding

    @property
    def extents(self) -> int:
        return self.out_channels + self.in_channels + sum(self.kernel_size)

    @property
    def mark_dims(self) -> tuple[str, ...]:
        """What the dimensions of the dense convolution's weight are to a mark."""
        return ("row", *["col"] * (self.dims + 1))

    def _sizes(self, name: str, value: Any, least: int) -> tuple[int, ...]:
        """Returns one number for each dimension."""
        values = value if isinstance(value, (list, tuple)) else [value] * self.dims
        if len(values) != self.dims:
            raise _given.refusal(f"{name} to be an integer, or {self.dims} of them", value)
        return tuple(_given.integer(name, number, least) for number in values)

    def _pads(self) -> list[tuple[int, int]]:
        """Returns what is padded in front of each dimension, and behind it."""
        if self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
            return [(total // 2, total - total // 2) for total in totals]
        padding: Any = (0,) * self.dims if self.padding == "valid" else self.padding
        return [(pad, pad) for pad in padding]

    def forward(self, x: Tensor) -> Tensor:
        expected = f"an image [images, {self.in_channels}, {self.dims} extents]"
        if not isinstance(x, Tensor):
            if _symbolic.is_traced(x):
                return _symbolic.call(self, x)
            raise _given.refusal(expected, x)
        if x.dim() == self.dims + 1:
            return self.forward(x.unsqueeze(0)).squeeze(0)
        if x.dim() != self.dims + 2 or x.shape[1] != self.in_channels:
            raise StepError(f"expected {expected}, but got {list(x.shape)}")
        pads = self._pads()
        window = _images.window_of(self.kernel_size, pads, self.stride, self.dilation)
        if min(_images.result_size(x.shape[2:], window)) < 1:
            spans = [d * (k - 1) + 1 for k, d in zip(self.kernel_size, self.dilation)]
            padded = [n + sum(pad) for n, pad in zip(x.shape[2:], pads)]
            raise StepError(
                f"expected an image of at least {spans} with its padding, as windows are, but got"
                f" {padded}"
            )
        if x.dtype != self.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise (ExportError if self._is_dense else StepError)(
                f"expected {expected} of {self.weight.dtype}{self._which}, but got {list(x.shape)} of"
                f" {x.dtype}"
            )
        if self._is_dense:
            return self._convolved(x)
        if not x.is_cpu:
            y = self._multiplied(_unfold.rows(x, window))
            size = _images.result_size(x.shape[2:], window)
            return y.transpose(1, 2).reshape(x.shape[0], self.out_channels, *size)
        if max(self.kernel_size) == 1 and not any(map(any, pads)):
            read: Any = (..., *(slice(None, None, s) for s in self.stride))
            x = x[read]
            window = _images.window_of(self.kernel_size, pads, self.kernel_size, self.dilation)
        return self._multiplied(x, window)

    def _convolved(self, x: Tensor) -> Tensor:
        """Returns what PyTorch makes of the dense weight."""
        weight = self.weight.view(self.out_channels, self.in_channels, *self.kernel_size)
        function: Any = getattr(torch.nn.functional, f"conv{self.dims}d")
        y: Tensor = function(x, weight, self.bias, self.stride, self.padding, self.dilation)
        return _linear.ACTIVATIONS[self.activation](y) if self.activation else y

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any
    ) -> None:
        """Loads a layer of blocks, or a dense convolution, of which it takes the stored blocks."""
        weight = state_dict.get(f"{prefix}weight")
        if isinstance(weight, Tensor) and f"{prefix}pattern" not in state_dict:
            state_dict = dict(state_dict)
            state_dict[f"{prefix}weight"] = self.matrix_of(weight)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def matrix_of(self, weight: Tensor) -> Tensor:
        """Returns the weight of a dense convolution as a matrix."""
        if weight.dim() == self.dims + 2 and weight.shape[2:] == self.kernel_size:
            return weight.flatten(1)
        return weight

    def dense(self) -> torch.nn.Module:
        """Returns a dense convolution of PyTorch, whose values are anybody's."""
        kind: Any = getattr(torch.nn, f"Conv{self.dims}d")
        found: torch.nn.Module = kind(
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding,
            self.dilation, bias=self.bias is not None, device="meta", dtype=self.weight.dtype,
        )  # fmt: skip
        return found

    def extra_repr(self) -> str:
        more = f", kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding!r}"
        return f"{self.in_channels}, {self.out_channels}{more}, {super().extra_repr()}"


class Conv1d(Convolution):
    """A convolution with a block-sparse weight, in place of `torch.nn.Conv1d`.

    Args:
      in_channels: of an image, `[images, in_channels, length]`; the images may be left out.
      out_channels: of the result.
      kernel_size, stride, padding, dilation: as of `torch.nn.Conv1d`, a number or one for each
        dimension; what is padded is zeros.
      bias, density, pattern, fan_in, activation, dtype, device: as of `Linear`.
      block: the size of blocks, or their rows (of channels out) and columns (of channels in
        times places of a window).

    Values begin as those of `torch.nn.Conv1d` do.

    Raises:
      StepError: an argument is of a wrong type or value; blocks do not divide the weight.
    """

    dims = 1


class Conv2d(Convolution):
    """A convolution with a block-sparse weight, in place of `torch.nn.Conv2d`: as `Conv1d`,
    of `[images, in_channels, height, width]`."""

    dims = 2


class Conv3d(Convolution):
    """A convolution with a block-sparse weight, in place of `torch.nn.Conv3d`: as `Conv1d`,
    of `[images, in_channels, depth, height, width]`."""

    dims = 3


KINDS = {torch.nn.Conv1d: Conv1d, torch.nn.Conv2d: Conv2d, torch.nn.Conv3d: Conv3d}


def of_dense(dense: Any, **options: Any) -> Convolution:
    """Returns a layer of blocks with the sizes of a dense convolution."""
    return KINDS[type(dense)](
        dense.in_channels, dense.out_channels, dense.kernel_size, dense.stride, dense.padding,
        dense.dilation, dense.bias is not None, **options,
    )  # fmt: skip


def obstacle(dense: Any) -> str:
    """Returns the option of a convolution that no layer of blocks has, or ''."""
    if dense.groups > 1:
        return "groups"
    return "" if dense.padding_mode == "zeros" else f"padding_mode {dense.padding_mode}"
