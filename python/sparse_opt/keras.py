# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers for models of Keras.

"""A block-sparse `Dense` for Keras 3, on its backends JAX and PyTorch.

    from sparse_opt.keras import Dense, UpdatePatterns

    model = keras.Sequential([Dense(3072, block=16, density=0.1, activation="relu"), ...])
    model.fit(x, y, callbacks=[UpdatePatterns(every=100, drop=0.3)])

It needs Keras. Processors only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from sparse_opt import _given, _pattern_updates, _products, _versions
from sparse_opt._errors import StepError
from sparse_opt._method import Method
from sparse_opt._pattern_updates import Weight, needs_scores, require_scores
from sparse_opt._products import Matrix

try:
    _versions.load("keras", (("keras", "3.15", "3.16"),), ("keras",))
    import keras

    _BACKEND = keras.backend.backend()
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    _BACKEND = "tensorflow"  # Keras's default

if _BACKEND == "jax":
    from sparse_opt.jax import nn
elif _BACKEND == "torch":
    from sparse_opt.torch import _linear
else:
    raise StepError(
        f"expected Keras on its backend jax or torch, but got '{_BACKEND}': set the environment's"
        " KERAS_BACKEND before keras is imported"
    )

__all__ = ["Dense", "UpdatePatterns", "update_patterns"]

_TYPES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}


@keras.saving.register_keras_serializable("sparse_opt")
class Dense(keras.layers.Layer):  # type: ignore[misc]
    """`activation(x W^T + b)` with a block-sparse `W`, `[units, inputs]`, in place of
    `keras.layers.Dense`.

    Args:
      units: of the result, `[..., units]` for `x`, `[..., inputs]`.
      block: the size of blocks, or their rows (of units) and columns (of inputs).
      density: the share of blocks that is stored, above 0, at most 1.
      fan_in: whether values begin as those of all inputs (`dense`), or of those that a block
        row stores (`rows`; docs/sparsity.md): sqrt(blocks / stored blocks) times as large.
      activation: as of `keras.layers.Dense`.
      use_bias: whether to add one.
      seed: of the pattern and the values; by default one that `keras.utils.set_random_seed`
        determines.

    Attributes:
      values: the trainable weight, `[slots, block rows, block columns]`, uniform at first
        within `1 / sqrt(inputs)`.
      bias: the trainable weight, `[units]`, zeros at first, or None.
      pattern, num_updates: where the blocks lie, and how often that changed: weights that
        are not trainable, integers, which files of weights hold.

    Raises:
      StepError: when it is built, of blocks that do not divide the weight, or a density that
        is none.
    """

    def __init__(
        self,
        units: int,
        *,
        block: int | tuple[int, int] = 16,
        density: float = 0.1,
        fan_in: Literal["dense", "rows"] = "dense",
        activation: Any = None,
        use_bias: bool = True,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.units, self.density, self.use_bias = units, density, use_bias
        _products.is_stored_fan_in(fan_in)
        self.fan_in = fan_in
        # A file has lists in the place of tuples.
        self.block = block if isinstance(block, int) else (block[0], block[1])
        self.activation = keras.activations.get(activation)
        self.seed = random.randrange(2**31) if seed is None else seed
        self.bias = None

    def build(self, input_shape: Any) -> None:
        inputs = input_shape[-1]
        matrix = _products.matrix_of((self.units, inputs), self.block, self.density)
        places = np.random.default_rng(self.seed).permutation(matrix.grid[0] * matrix.grid[1])
        first = matrix.pattern_at(places[: matrix.slots])
        integers = {"dtype": "int32", "trainable": False}
        uniform = keras.initializers.RandomUniform(-(inputs**-0.5), inputs**-0.5, seed=self.seed)

        def scaled(shape: Any, dtype: Any) -> Any:
            factors = matrix.fan_in_factors(first)[:, None, None].astype(np.float32)
            values = keras.ops.cast(uniform(shape, dtype), "float32") * factors
            return keras.ops.cast(values, dtype)

        self.values = self.add_weight(
            name="values",
            shape=(matrix.slots, matrix.block_rows, matrix.block_cols),
            initializer=uniform if self.fan_in == "dense" else scaled,
        )
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")
        self.pattern = self.add_weight(
            name="pattern",
            shape=first.shape,
            initializer=lambda shape, dtype: keras.ops.convert_to_tensor(first, dtype),
            **integers,
        )
        self.num_updates = self.add_weight(
            name="num_updates", shape=(), initializer="zeros", **integers
        )
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: inputs})

    @property
    def matrix(self) -> Matrix:
        """The type of the weight."""
        slots, rows, cols = self.values.shape
        inputs = self.input_spec.axes[-1]
        return Matrix(self.units, inputs, rows, cols, slots, _TYPES[self.values.dtype])

    def mask(self) -> np.ndarray[Any, Any]:
        """Returns which blocks are stored, `[units / rows, inputs / columns]`."""
        rows, cols = self.matrix.blocks_of(keras.ops.convert_to_numpy(self.pattern))
        mask = np.zeros(self.matrix.grid, np.bool_)
        mask[rows[rows >= 0], cols[rows >= 0]] = True
        return mask

    def call(self, inputs: Any) -> Any:
        tensor = keras.ops.convert_to_tensor
        bias = None if self.bias is None else tensor(self.bias)
        x = keras.ops.cast(inputs, self.compute_dtype)
        return self.activation(
            _product(x, tensor(self.values), tensor(self.pattern), bias, self)
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "block": self.block,
            "density": self.density,
            "fan_in": self.fan_in,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "seed": self.seed,
        }


def _product(x: Any, values: Any, pattern: Any, bias: Any, layer: Dense) -> Any:
    """Returns x W^T + b by the backend's function."""
    shape = layer.units, layer.input_spec.axes[-1]
    if _BACKEND == "jax":
        slots, *block = values.shape
        places = nn.Pattern(pattern, layer.num_updates.value, shape, tuple(block), slots)
        return nn.linear(values, places, x, bias)
    if x.device.type == "meta":
        return x.new_empty(*x.shape[:-1], layer.units)
    if x.device.type != "cpu":
        raise StepError(
            f"expected a block-sparse layer and its input on a processor, but got '{x.device}':"
            " set the environment's KERAS_TORCH_DEVICE=cpu before keras is imported"
        )
    return _linear.call(x, values, bias, pattern, *shape)


@_given.options()
def update_patterns(
    model: Any,
    drop: float = 0.3,
    *,
    method: Literal["set"] | Method = "set",
    norm: Literal["l1", "l2", "linf", "mean"] = "l1",
    allow_return: bool = False,
    seed: int = 0,
) -> int:
    """Prunes blocks of every layer of a model, and regrows others, in place.

    By the runtime of compiled steps; nothing is compiled or traced again. What the model's
    optimizer keeps of new blocks becomes what it began with. In a loop of one's own call it
    between two steps; `UpdatePatterns` does so in `fit`.

    Args:
      model: whose layers to update; those that are not trainable stay.
      drop: the share of the blocks of each layer to prune.
      method: `set` regrows random blocks (Mocanu et al. 2018); or a `sparse_opt.Method`,
        which sees values, no scores.
      norm: what blocks are ranked by.
      allow_return: whether a block may be pruned and regrown at once.
      seed: of the choices, with the number of the layer and that of the update.

    Returns:
      How many blocks were pruned.

    Raises:
      StepError: the model has no layers to train, or a method scores blocks by gradients,
        which Keras keeps none of.
    """
    found = [layer for layer in model._flatten_layers() if isinstance(layer, Dense)]
    # Names of layers count the models that a process has made.
    layers = {f"{i}.values": layer for i, layer in enumerate(found) if _is_trained(layer)}
    if not layers:
        raise StepError("expected a model with block-sparse layers to train, but got none")
    weights = {
        name: Weight(
            layer.matrix, _numbers(layer.pattern), _bits(layer.values), int(layer.num_updates)
        )
        for name, layer in layers.items()
    }
    due = _pattern_updates.due_of(
        {name: layer.matrix for name, layer in layers.items()},
        method, drop, norm=norm, allow_return=allow_return,
    )  # fmt: skip
    for name in filter(lambda name: needs_scores(due[name]), due):
        require_scores(layers[name].path, None, "Keras keeps none, use the method set")
    pruned = _pattern_updates.update(weights, due, {}, seed)
    for name, layer in layers.items():
        weight = weights[name]
        layer.values.assign(weight.values.view(_numbers(layer.values).dtype))
        layer.pattern.assign(weight.pattern)
        layer.num_updates.assign(weight.updates)
        for kept, first in _kept_of(model.optimizer, layer.values):
            numbers = np.array(_numbers(kept))
            numbers[weight.changed] = first
            kept.assign(numbers)
    return pruned


def _is_trained(layer: Dense) -> bool:
    return bool(layer.built and layer.trainable)


def _numbers(variable: Any) -> np.ndarray[Any, Any]:
    numbers: np.ndarray[Any, Any] = keras.ops.convert_to_numpy(variable)
    return numbers


def _bits(variable: Any) -> np.ndarray[Any, Any]:
    """Returns what the runtime holds: of bfloat16, which it knows by its bits alone, these."""
    numbers = _numbers(variable)
    return numbers.view(np.uint16) if numbers.dtype.name == "bfloat16" else numbers


def _kept_of(optimizer: Any, variable: Any) -> Iterator[tuple[Any, float]]:
    """Yields what an optimizer keeps of each slot of a variable, and the value that it began
    with: optimizers have lists, which have a member for each variable that is trained."""
    inner = [getattr(optimizer, "inner_optimizer", None)]  # of LossScaleOptimizer
    for part in (optimizer, *inner, *getattr(optimizer, "_inner_optimizers", [])):
        trained = getattr(part, "_trainable_variables", [])
        index = next((i for i, other in enumerate(trained) if other is variable), -1)
        for name, members in vars(part).items() if index >= 0 else ():
            if not isinstance(members, list) or len(members) != len(trained):
                continue
            kept = members[index]
            if kept is not variable and getattr(kept, "shape", ())[:1] == variable.shape[:1]:
                is_sum = name == "_accumulators"  # of Adagrad and Ftrl
                yield kept, part.initial_accumulator_value if is_sum else 0.0


class UpdatePatterns(keras.callbacks.Callback):  # type: ignore[misc]
    """Updates the patterns of a model's layers in `fit`, between two batches.

    Args:
      every: after how many batches; they count over epochs, and over calls of `fit` and
        files, as the optimizer does.
      drop, method, norm, allow_return, seed: as of `update_patterns`.
    """

    def __init__(
        self,
        every: int,
        drop: float = 0.3,
        *,
        method: Literal["set"] | Method = "set",
        norm: Literal["l1", "l2", "linf", "mean"] = "l1",
        allow_return: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if every < 1:
            raise StepError(f"expected updates every 1 batch or more, but got {every}")
        self.every = every
        self.options: dict[str, Any] = {
            "drop": drop, "method": method, "norm": norm, "allow_return": allow_return,
            "seed": seed,
        }  # fmt: skip

    def on_train_begin(self, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        self._batches = int(optimizer.iterations) * (optimizer.gradient_accumulation_steps or 1)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._last = -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        before = self._batches // self.every
        self._batches += batch - self._last
        self._last = batch
        if self._batches // self.every > before:
            # Asked for the model, the callback has it take the state that fit holds.
            update_patterns(self.model, **self.options)
