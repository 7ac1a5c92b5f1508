# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers for models of flax.nnx.

"""A block-sparse `Linear` for `flax.nnx`.

    from sparse_opt.jax import flax as sparse

    layer = sparse.Linear(768, 3072, block=16, density=0.1, rngs=rngs)   # for nnx.Linear
    sparse.update_patterns(model, optimizer, drop=0.3)                  # between two steps

It needs Flax. Processors only.
"""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp

from sparse_opt import _given, _versions
from sparse_opt._method import Method
from sparse_opt.jax import nn

_versions.load("flax", (("flax", "0.12", "0.13"),), ("flax.nnx",))

from flax import nnx  # noqa: E402
from flax.nnx.nn.dtypes import promote_dtype  # noqa: E402

__all__ = ["BlockPattern", "BlockScores", "Linear", "keep_scores", "update_patterns"]


class BlockPattern(nnx.Variable):  # type: ignore[misc]
    """Where the blocks of a weight lie, and how often that changed: integers, which
    `nnx.grad` and optimizers of `nnx.Param` leave alone."""


class BlockScores(nnx.Variable):  # type: ignore[misc]
    """Zeros, the gradient with respect to which is the norms of all blocks' gradients."""


class Linear(nnx.Module):  # type: ignore[misc]
    """`y = x W^T + b` with a block-sparse `W`, `[out_features, in_features]`, in place of
    `flax.nnx.Linear`.

    Args:
      in_features: of `x`, `[..., in_features]`, with any number of leading dimensions.
      out_features: of `y`.
      block: the size of blocks, or their rows (of outputs) and columns (of inputs).
      density: the share of blocks that is stored, above 0, at most 1.
      fan_in: of which inputs first values are, all (`dense`) or the stored ones (`rows`), as
        of `nn.init`.
      use_bias: whether to add one.
      dtype: of the computation; by default that of `x` and the parameters together.
      param_dtype: of the parameters: float32, float64, bfloat16 or float16.
      rngs: of the pattern and the values, by `rngs.params`.

    Attributes:
      values: the `nnx.Param`, `[slots, block rows, block columns]`, uniform at first within
        `1 / sqrt(in_features)`.
      bias: the `nnx.Param`, `[out_features]`, zeros at first, or None.
      indices, updates: the fields of the pattern, a `BlockPattern` each.
      scores: a `BlockScores`, `[out_features / rows, in_features / columns]`, or None.

    Raises:
      StepError: blocks do not divide the weight, or a density is none.
    """

    @_given.options()
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        block: int | tuple[int, int] = 16,
        density: float = 0.1,
        fan_in: Literal["dense", "rows"] = "dense",
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: Any,
    ) -> None:
        shape = out_features, in_features
        pattern = nn.random_pattern(rngs.params(), shape, block=block, density=density)
        self.shape, self.block, self.slots = pattern.shape, pattern.block, pattern.slots
        self.indices = BlockPattern(pattern.indices)
        self.updates = BlockPattern(pattern.updates)
        self.values = nnx.Param(nn.init(rngs.params(), pattern, param_dtype, fan_in=fan_in))
        bias = nnx.Param(jnp.zeros(out_features, param_dtype)) if use_bias else None
        self.bias = nnx.data(bias)
        self.scores = nnx.data(None)
        self.dtype = dtype

    @property
    def pattern(self) -> nn.Pattern:
        """Where the blocks lie."""
        places = self.indices[...], self.updates[...]
        return nn.Pattern(*places, self.shape, self.block, self.slots)

    def __call__(self, x: Any) -> Any:
        bias = None if self.bias is None else self.bias[...]
        x, values, bias = promote_dtype((x, self.values[...], bias), dtype=self.dtype)
        scores = None if self.scores is None else self.scores[...]
        return nn.linear(values, self.pattern, x, bias, scores=scores)


def keep_scores(model: Any, on: bool = True) -> None:
    """Gives the layers of a model zeros whose gradients are the norms that `rigl` regrows
    by, or takes them away again. Steps with and without them are traced once each.

        wrt = nnx.Any(nnx.Param, sparse.BlockScores)
        gradients = nnx.grad(loss, argnums=nnx.DiffState(0, wrt))(model, batch)
        scores, gradients = nnx.split_state(gradients, sparse.BlockScores, ...)
    """
    for layer in _layers(model).values():
        layer.scores = nnx.data(BlockScores(nn.zero_scores(layer.pattern)) if on else None)


@_given.options()
def update_patterns(
    model: Any,
    optimizer: Any = None,
    drop: float = 0.3,
    *,
    method: Literal["set", "rigl", "gmp"] | Method = "set",
    density: float | None = None,
    norm: Literal["l1", "l2", "linf", "mean"] = "l1",
    allow_return: bool = False,
    scores: Any = None,
    seed: int = 0,
) -> None:
    """Updates all patterns of a model, and what its optimizer keeps, in place.

    Call it outside of `nnx.jit`, between two steps; what was jitted is not traced again.

    Args:
      model: a module with block-sparse layers. The names of weights are their paths, such
        as `mlp.up.values`.
      optimizer: the `nnx.Optimizer` of the model, or None.
      drop, method, density, norm, allow_return, seed: as in `sparse_opt.jax.nn`.
      scores: of rigl, the gradients of `keep_scores`, an `nnx.State`.

    Raises:
      StepError: the model has no block-sparse layers, or what `sparse_opt.jax.nn` raises.
    """
    layers = {".".join([*name, "values"]): layer for name, layer in _layers(model).items()}
    state = None
    if optimizer is not None:
        kept = nnx.state(optimizer, nnx.OptState)
        state = nnx.to_pure_dict(kept)
    if scores is not None:
        found = nnx.to_flat_state(scores)
        scores = {".".join([*map(str, p[:-1]), "values"]): v[...] for p, v in found}
    values, patterns, state = nn.update_patterns(
        {name: layer.values[...] for name, layer in layers.items()},
        {name: layer.pattern for name, layer in layers.items()},
        state, drop, method=method, density=density, norm=norm,
        allow_return=allow_return, scores=scores, seed=seed,
    )  # fmt: skip
    for name, layer in layers.items():
        layer.values[...] = values[name]
        layer.indices[...], layer.updates[...] = patterns[name].indices, patterns[name].updates
    if optimizer is not None:
        nnx.replace_by_pure_dict(kept, state)
        nnx.update(optimizer, kept)


def _layers(model: Any) -> dict[tuple[str, ...], Linear]:
    """Returns the layers of a model by their paths; one under two paths has the first."""
    return {
        tuple(map(str, path)): module
        for path, module in nnx.iter_modules(model)
        if isinstance(module, Linear)
    }
