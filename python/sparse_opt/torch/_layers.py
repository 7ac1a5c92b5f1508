# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The layers of sparse_opt.torch.nn.

"""Layers whose weights are stored in blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor

from sparse_opt import _activations, _given, _library, _products
from sparse_opt._errors import ExportError, StepError
from sparse_opt._products import Matrix
from sparse_opt.torch import _gpu, _linear, _lookup, _private, _sharded, _symbolic


class Blocks(torch.nn.Module):
    """A layer whose weight is a block-sparse matrix of `shape`, `[rows, columns]`, in blocks of
    `block`.

    Attributes:
      weight: the parameter, `[slots, block rows, block columns]`, in the order of rows.
      pattern: where the blocks lie, a buffer of int32 that a `state_dict` holds.
      num_updates: how often the pattern was updated, a buffer, too.
    """

    weight: torch.nn.Parameter
    pattern: Tensor
    num_updates: Tensor
    _is_dense = False  # whether its weight is a matrix meanwhile (_upgrade.py)
    _path = ""  # its name in the model, if `sparsify` has put it there, or an export sees it
    # Of a weight that has another name, too: what transformers saves under that one alone.
    _tied_weights_keys: Mapping[str, str] = {}

    @staticmethod
    def _runs_on(device: torch.device) -> bool:
        return device.type == "cpu" or device.type == "cuda" and torch.version.hip is None

    def __init__(
        self,
        shape: tuple[int, int],
        block: Any,
        density: float,
        pattern: Any,
        dtype: torch.dtype | None,
        device: Any,
    ) -> None:
        super().__init__()
        rows, cols = _given.block(block)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        where = _device(device)
        _require_shape(type(self).__name__, shape, (rows, cols), dtype)
        if not self._runs_on(where):
            raise StepError(
                f"expected {type(self).__name__} on a processor or an NVIDIA GPU, but got '{where}'"
            )
        mask = _mask(pattern, (shape[0] // rows, shape[1] // cols), density)
        self.shape, self.block = shape, (rows, cols)
        # Whether it stands for a layer whose weight is [columns, rows].
        self.is_transposed = False
        self.weight = torch.nn.Parameter(
            torch.empty(int(mask.sum()), rows, cols, dtype=dtype, device=where)
        )
        # At a line of memory, where kernels read it.
        found = torch.from_numpy(self.matrix.pattern_of(mask)).clone()
        self.register_buffer("pattern", found.to(where))
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64, device=where))

    @property
    def matrix(self) -> Matrix:
        return _linear.matrix_of(self.weight, *self.shape)

    @property
    def extents(self) -> int:
        """Those of the dense weight, added up, by which `erk` distributes a density."""
        return sum(self.shape)

    @property
    def density(self) -> float:
        """The share of the blocks that is stored."""
        rows, cols = self.matrix.grid
        return len(self._places()[0]) / (rows * cols)

    def mask(self) -> Tensor:
        """Returns which blocks are stored, true for these."""
        mask = torch.zeros(self.matrix.grid, dtype=torch.bool, device="cpu")
        _, rows, cols = self._places()
        mask[rows, cols] = True
        return mask

    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """The slots that have a block, and its row and column."""
        return _linear.places(self.matrix, self.pattern)

    def dense_weight(self) -> Tensor:
        """Returns the whole matrix, with zeros where no block is stored."""
        return _linear.spread(self.matrix, self.pattern, _sharded.whole(self.weight))

    @torch.no_grad()
    def take_dense(self, weight: Tensor) -> None:
        """Takes the stored blocks of a whole matrix."""
        rows, cols = self.shape
        expected = f"a weight of {rows}x{cols}"
        if not isinstance(weight, Tensor):
            raise _given.refusal(expected, weight)
        if weight.shape != self.shape:
            got = "x".join(map(str, weight.shape)) or "one number"
            raise StepError(f"expected {expected}, but got {got}")
        values = _linear.gather(self.matrix, self.pattern, weight.detach())
        _sharded.take_whole(self.weight, values.to(self.weight.dtype))

    def to_sparse_bsr(self) -> Tensor:
        """Returns the matrix as PyTorch's `sparse_bsr` tensor. Its values are the parameter's
        own memory where blocks lie row by row, as they do until an update moves them."""
        row_ptr, cols, slots = self.matrix.rows_of(_gpu.host(self.pattern))
        values = _sharded.whole(self.weight)
        if np.array_equal(slots, np.arange(len(slots))):
            values = values[: len(slots)]
        else:
            values = values[torch.from_numpy(slots).long()]
        indices = (torch.from_numpy(row_ptr.copy()), torch.from_numpy(cols.copy()))
        crow, col = (index.to(values.device) for index in indices)
        return torch.sparse_bsr_tensor(crow, col, values, self.shape, check_invariants=False)

    @torch.no_grad()
    def take_sparse_bsr(self, matrix: Tensor) -> None:
        """Makes the blocks of a `sparse_bsr` tensor of the same shape and block, at most as
        many as there are slots, the stored ones. What an optimizer keeps stays in its slots."""
        rows, cols = self.shape
        expected = f"a sparse_bsr tensor of {rows}x{cols} in blocks of {'x'.join(map(str, self.block))}"
        if not isinstance(matrix, Tensor):
            raise _given.refusal(expected, matrix)
        if matrix.layout != torch.sparse_bsr or matrix.values().dim() != 3:
            raise StepError(f"expected {expected}, but got one of {list(matrix.shape)}, {matrix.layout}")
        given = matrix.values()
        if matrix.shape != self.shape or given.shape[1:] != self.block:
            block = "x".join(map(str, given.shape[1:]))
            raise StepError(f"expected {expected}, but got one of {list(matrix.shape)} in {block}")
        indices = matrix.crow_indices(), matrix.col_indices()
        try:
            torch.sparse_bsr_tensor(*indices, given, self.shape, check_invariants=True)
        except RuntimeError as error:
            raise StepError(f"expected {expected}, but got wrong indices: {error}") from None
        count, slots = len(given), self.matrix.slots
        if count > slots:
            raise StepError(f"expected at most {slots} blocks, but got {count}")
        values = given.new_zeros(slots, *self.block)
        values[:count] = given
        row_ptr, columns = map(_gpu.host, indices)
        found = self.matrix.pattern_from(row_ptr, columns, np.arange(count))
        self.pattern.copy_(torch.from_numpy(found))
        _sharded.take_whole(self.weight, values.to(self.weight.dtype))

    @property
    def kept(self) -> list[tuple[Tensor, Tensor]]:
        """The inputs, and the gradients of the results, of the backward passes since
        `keep_gradients`."""
        return _linear.KEPT.get(self.pattern.data_ptr(), [])

    def first_values(self, rng: np.random.Generator, rows: Tensor) -> Tensor:
        """Returns values of blocks in some block rows, drawn as those of a new layer."""
        raise NotImplementedError

    def scores(self, kept: Sequence[tuple[Tensor, Tensor]]) -> np.ndarray[Any, Any]:
        """Returns the L1 norms of all blocks of the gradient of the whole matrix, of inputs
        and the gradients of results."""
        raise NotImplementedError

    def _require_together(self, x: Tensor, weight: Tensor) -> None:
        pattern = self.pattern
        if x.is_cpu and weight.is_cpu and pattern.is_cpu:
            return
        if not x.device == weight.device == pattern.device or not self._runs_on(x.device):
            raise StepError(
                f"expected {self._called} and its input on a processor or an NVIDIA GPU, but"
                f" got '{weight.device}', its pattern on '{pattern.device}', and '{x.device}'"
            )

    @property
    def _called(self) -> str:
        return f"the block-sparse layer '{self._path}'" if self._path else "a block-sparse layer"

    def _require_no_transform(self) -> None:
        if not torch.compiler.is_compiling():
            if transform := _private.differentiating_transform():
                raise StepError(
                    f"expected {self._called} outside of {transform}, but got"
                    f" {'it' if self._path else 'one'} within:"
                    " use loss.backward() or torch.autograd.grad, or densify the model"
                )

    def __prepare_scriptable__(self) -> NoReturn:
        _symbolic.refuse_script(self)

    def extra_repr(self) -> str:
        rows, cols = self.block
        # A trace has no values of the pattern.
        density = "" if self._is_dense else f", density={self.density:.3g}"
        return f"block={rows}x{cols}{density}"

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
        elif isinstance(weight, Tensor) and weight.dim() == 3 and weight.shape != self.weight.shape:
            own, given = (f"{n} blocks of {r}x{c}" for n, r, c in (self.weight.shape, weight.shape))
            raise StepError(
                f"expected {own} for '{prefix}weight', but got {given}: the state is of a layer of"
                " another density or block"
            )
        pattern = state_dict.get(f"{prefix}pattern")
        if isinstance(pattern, Tensor) and not pattern.is_meta:
            _linear.require_own(f"{prefix}weight", self.matrix, pattern)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Linear(Blocks):
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
      fan_in: whether values begin as those of all inputs (`dense`), or of those that a block
        row stores (`rows`; docs/sparsity.md): sqrt(blocks / stored blocks) times as large.
      activation: a function of the result, which the kernel of the product computes, as it
        does its gradient: `relu`, `gelu`, `gelu_tanh` (the approximation by a hyperbolic
        tangent) or `silu`.
      dtype: float32, float64, bfloat16 or float16; sums are taken in float32 at least.
      device: of PyTorch's, a processor or an NVIDIA GPU (docs/layers.md); else its default.

    Attributes:
      weight: the parameter, `[slots, block rows, block columns]`, in the order of rows.
      pattern: where the blocks lie, a buffer of int32 that a `state_dict` holds.
      num_updates: how often the pattern was updated, a buffer, too.
      bias: the parameter, `[out_features]`, or None.

    Values begin as those of `torch.nn.Linear` do: uniform within `1 / sqrt(in_features)`.

    Raises:
      StepError: an argument is of a wrong type or value; blocks do not divide the weight.
    """

    fan_in = "dense"  # of layers that were pickled without

    @_given.options()
    def __init__(
        self,
        in_features: int,
        out_features: int,
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
        if activation not in ("", *_activations.NAMES):
            raise StepError(
                f"expected an activation of {', '.join(_activations.NAMES)}, but got"
                f" {activation!r}"
            )
        _products.is_stored_fan_in(fan_in)
        in_features = _given.size("in_features", in_features)
        out_features = _given.size("out_features", out_features)
        super().__init__((out_features, in_features), block, density, pattern, dtype, device)
        self.in_features, self.out_features = in_features, out_features
        self.activation, self.fan_in = activation, fan_in
        if _given.flag("bias", bias):
            self.bias = torch.nn.Parameter(
                torch.empty(out_features, dtype=self.weight.dtype, device=self.weight.device)
            )
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begins again, as `torch.nn.Linear` does, and for `fan_in`."""
        bound = 1 / math.sqrt(self.in_features)
        with torch.no_grad():
            self.weight.uniform_(-bound, bound)
            if self.bias is not None:
                self.bias.uniform_(-bound, bound)
        self.scale_fan_in()

    @torch.no_grad()
    def scale_fan_in(self) -> None:
        """Makes values that were drawn for all inputs those of `fan_in`."""
        if _products.is_stored_fan_in(self.fan_in):
            factors = torch.from_numpy(self.matrix.fan_in_factors(_gpu.host(self.pattern)))
            values = _sharded.whole(self.weight)
            scaled = values.double() * factors.to(values.device)[:, None, None]
            _sharded.take_whole(self.weight, scaled.to(values.dtype))

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            if _symbolic.is_traced(x):
                return _symbolic.call(self, x)
            raise _given.refusal(f"activations [..., {self.in_features}]", x)
        if self._is_dense:
            if not torch.is_autocast_enabled(x.device.type):
                self._require_activations(x, self.weight)
            y = torch.nn.functional.linear(x, self.weight, self.bias)
            return _linear.ACTIVATIONS[self.activation](y) if self.activation else y
        return self._multiplied(x)

    def _multiplied(self, x: Tensor, window: Sequence[int] = ()) -> Tensor:
        """Returns what the layer makes of activations, or of images by windows
        (`_images.window_of`)."""
        self._require_no_transform()
        weight: Tensor = self.weight
        self._require_together(x, weight)
        bias: Tensor | None = self.bias
        if torch.is_autocast_enabled(x.device.type):
            x, weight = _cast(x), _cast(weight)
            bias = bias if bias is None else _cast(bias)
        if not window:
            self._require_activations(x, weight)
        wanted = (self.out_features,)
        if bias is not None and (bias.shape != wanted or bias.dtype != weight.dtype):
            raise StepError(
                f"expected a bias [{self.out_features}] of {weight.dtype}{self._which}, but got"
                f" {list(bias.shape)} of {bias.dtype}: tie_weights of transformers takes stored"
                " blocks for rows, call it before sparsify"
                if bias.shape != wanted
                else f"expected a bias of {weight.dtype}{self._which}, but got one of {bias.dtype}"
            )
        arguments = x, weight, bias, self.pattern, self.out_features, self.in_features
        return _linear.call(*arguments, self.activation, window)

    @property
    def _which(self) -> str:
        return f" for the layer '{self._path}'" if self._path else ""

    def _require_activations(self, x: Tensor, weight: Tensor) -> None:
        if not x.dim() or x.shape[-1] != self.in_features or x.dtype != weight.dtype:
            raise (ExportError if self._is_dense else StepError)(
                f"expected activations [..., {self.in_features}] of {weight.dtype}{self._which}, but"
                f" got {list(x.shape)} of {x.dtype}"
            )

    def first_values(self, rng: np.random.Generator, rows: Tensor) -> Tensor:
        bound = 1 / math.sqrt(self.in_features)
        return torch.from_numpy(rng.uniform(-bound, bound, (len(rows), *self.block)))

    def scores(self, kept: Sequence[tuple[Tensor, Tensor]]) -> np.ndarray[Any, Any]:
        return _linear.scores(self.matrix, self.weight.dtype, kept)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" bias={self.bias is not None}, {super().extra_repr()}"
            + (f", activation={self.activation}" if self.activation else "")
        )


class Embedding(Blocks):
    """Rows of a block-sparse table, `[num_embeddings, embedding_dim]`, in place of
    `torch.nn.Embedding`.

    Args:
      num_embeddings: how many rows the table has.
      embedding_dim: of a row.
      padding_idx: a row without a gradient, or None.
      block, density, pattern, dtype, device: as of `Linear`; blocks have rows of the table.

    Values begin as those of `torch.nn.Embedding` do, normally distributed, and zeros in the
    row of `padding_idx`. A `Linear` that shares `weight`, `pattern` and `num_updates`
    multiplies by the same table.

    Raises:
      StepError: an argument is of a wrong type or value; blocks do not divide the table.
    """

    @_given.options()
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        block: int | tuple[int, int] = 16,
        density: float = 0.1,
        pattern: Literal["random"] | Tensor | np.ndarray[Any, Any] = "random",
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        rows = _given.size("num_embeddings", num_embeddings)
        cols = _given.size("embedding_dim", embedding_dim)
        if padding_idx is not None:
            padding_idx = _given.integer("padding_idx", padding_idx, -rows, rows - 1) % rows
        super().__init__((rows, cols), block, density, pattern, dtype, device)
        self.num_embeddings, self.embedding_dim = rows, cols
        self.padding_idx = padding_idx
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begins again, as `torch.nn.Embedding` does."""
        with torch.no_grad():
            self.weight.normal_()
            if self.padding_idx is not None:
                slots, rows, _ = self._places()
                height = self.block[0]
                held = slots[rows == self.padding_idx // height]
                self.weight[held, self.padding_idx % height] = 0

    def forward(self, indices: Tensor) -> Tensor:
        y: Tensor
        if _symbolic.is_traced(indices):
            y = _symbolic.call(self, indices)
            return y
        if not isinstance(indices, Tensor) or indices.dtype not in (torch.int32, torch.int64):
            raise _given.refusal("indices, a tensor of int32 or int64", indices)
        if self._is_dense:
            return torch.nn.functional.embedding(indices, self.weight, self.padding_idx)
        self._require_no_transform()
        weight: Tensor = self.weight
        self._require_together(indices, weight)
        y = _lookup.lookup(indices, weight, self.pattern, *self.shape)
        if self.padding_idx is not None and y.requires_grad:
            y = torch.where((indices == self.padding_idx)[..., None], y.detach(), y)
        return y

    def first_values(self, rng: np.random.Generator, rows: Tensor) -> Tensor:
        drawn = torch.from_numpy(rng.standard_normal((len(rows), *self.block)))
        if self.padding_idx is not None:
            row, place = divmod(self.padding_idx, self.block[0])
            drawn[rows == row, place] = 0
        return drawn

    def scores(self, kept: Sequence[tuple[Tensor, Tensor]]) -> np.ndarray[Any, Any]:
        return _lookup.scores(self.matrix, kept)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}, {super().extra_repr()}"


def _cast(tensor: Tensor) -> Tensor:
    """Returns a tensor as autocast gives it to a linear layer."""
    if not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))


def _require_shape(
    name: str,
    shape: tuple[int, int],
    block: tuple[int, int],
    dtype: torch.dtype,
) -> None:
    """Raises `StepError` for a weight that no layer of blocks can have."""
    if any(extent % size for extent, size in zip(shape, block)):
        raise StepError(
            f"expected blocks that divide the weight of {name}, {shape[0]}x{shape[1]}"
            f"{' (outputs by inputs)' if name == 'Linear' else ''}, but got {block[0]}x{block[1]}"
        )
    if not isinstance(dtype, torch.dtype) or dtype not in _linear.TYPES:
        raise _given.refusal(
            f"{name} to have values of float32, float64, bfloat16 or float16", dtype
        )


def _device(device: Any) -> torch.device:
    if device is None:
        return torch.get_default_device()
    try:
        return torch.device(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _given.refusal("a device of PyTorch", device) from error


def count_blocks(density: float, grid: tuple[int, int]) -> int:
    return _library.density_blocks(_given.density(density), grid[0] * grid[1])


FIRST_PATTERN = "the pattern 'random' or a mask"


def _mask(
    pattern: Any, grid: tuple[int, int], density: float
) -> np.ndarray[Any, Any]:
    """Returns which blocks a layer begins with."""
    if isinstance(pattern, str) and pattern == "random":
        count = count_blocks(density, grid)
        drawn = np.zeros(grid[0] * grid[1], np.bool_)
        drawn[torch.randperm(drawn.size)[:count].cpu().numpy()] = True
        return drawn.reshape(grid)
    mask = _given.mask(FIRST_PATTERN, pattern)
    if mask.shape != grid or not mask.any():
        raise StepError(
            f"expected a mask of {grid[0]}x{grid[1]} blocks, of which one is stored at least,"
            f" but got {int(mask.sum())} of {'x'.join(map(str, mask.shape))}"
        )
    return mask
