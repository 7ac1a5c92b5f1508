# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers for models of Equinox.

"""A block-sparse `Linear` for Equinox.

    from sparse_opt.jax import equinox as sparse

    layer = sparse.Linear(768, 3072, block=16, density=0.1, key=key)    # for eqx.nn.Linear
    model, state = sparse.update_patterns(model, state, drop=0.3)      # between two steps

It needs Equinox. Processors only.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import tree_util

from sparse_opt import _given, _versions
from sparse_opt._errors import StepError
from sparse_opt._method import Method
from sparse_opt.jax import nn
from sparse_opt.jax._checks import dotted

_versions.load("equinox", (("equinox", "0.13", "0.14"),), ("equinox",))

import equinox as eqx  # noqa: E402

__all__ = ["Linear", "scores_of", "update_patterns", "with_scores"]


class Linear(eqx.Module):  # type: ignore[misc]
    """`y = W x + b` with a block-sparse `W`, `[out_features, in_features]`, in place of
    `equinox.nn.Linear`.

    Args:
      in_features: of `x`, `[..., in_features]`: a vector, as of `equinox.nn.Linear`, or with
        leading dimensions, which `jax.vmap` over vectors is the same as.
      out_features: of `y`.
      block: the size of blocks, or their rows (of outputs) and columns (of inputs).
      density: the share of blocks that is stored, above 0, at most 1.
      fan_in: of which inputs first values are, all (`dense`) or the stored ones (`rows`), as
        of `nn.init`.
      use_bias: whether to add one.
      dtype: float32, float64, bfloat16 or float16; by default that of JAX's numbers.
      key: of the pattern, the values and the bias.

    Attributes:
      values: the parameter, `[slots, block rows, block columns]`, uniform at first within
        `1 / sqrt(in_features)`.
      bias: the parameter, `[out_features]`, uniform within the same at first, or None.
      pattern: where the blocks lie: arrays of integers, which `eqx.filter_grad` skips.
      scores: None; `with_scores` puts arrays there.

    Raises:
      StepError: blocks do not divide the weight, or a density is none.
    """

    values: Any
    bias: Any
    pattern: nn.Pattern
    scores: Any

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
        key: Any,
    ) -> None:
        shape, bound = (out_features, in_features), in_features**-0.5
        keys = jax.random.split(key, 3)
        dtype = jnp.result_type(float) if dtype is None else dtype
        self.pattern = nn.random_pattern(keys[0], shape, block=block, density=density)
        self.values = nn.init(keys[1], self.pattern, dtype, fan_in=fan_in)
        self.bias = None
        if use_bias:
            self.bias = jax.random.uniform(keys[2], shape[:1], dtype, -bound, bound)
        self.scores = None

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return nn.linear(self.values, self.pattern, x, self.bias, scores=self.scores)


def scores_of(model: Any) -> dict[str, Any]:
    """Returns zeros for all blocks of the layers of a model, by the names of weights."""
    return {name: nn.zero_scores(layer.pattern) for name, layer in _layers(model).items()}


def with_scores(model: Any, scores: dict[str, Any]) -> Any:
    """Returns a model whose gradients with respect to `scores_of` it are the norms that
    `rigl` regrows by.

        both = lambda pair: loss(sparse.with_scores(*pair), batch)
        gradients, scores = eqx.filter_grad(both)((model, sparse.scores_of(model)))

    Raises:
      StepError: the scores are of another model.
    """
    if names := _layers(model).keys() ^ scores.keys():
        raise StepError(
            "expected scores for all block-sparse layers and no others, as scores_of(model)"
            f" makes them, but got other ones at '{min(names)}'"
        )
    return _replaced(model, {name: {"scores": found} for name, found in scores.items()})


@_given.options()
def update_patterns(
    model: Any,
    state: Any = None,
    drop: float = 0.3,
    *,
    method: Literal["set", "rigl", "gmp"] | Method = "set",
    density: float | None = None,
    norm: Literal["l1", "l2", "linf", "mean"] = "l1",
    allow_return: bool = False,
    scores: Any = None,
    seed: int = 0,
) -> tuple[Any, Any]:
    """Updates all patterns of a model, and what its optimizer keeps.

    Call it outside of `eqx.filter_jit`, between two steps; what was jitted is not traced
    again.

    Args:
      model: a pytree with block-sparse layers. The names of weights are their paths, such as
        `layers.0.values`.
      state: what an optimizer keeps of `eqx.filter(model, eqx.is_inexact_array)`, or None.
      drop, method, density, norm, allow_return, seed: as in `sparse_opt.jax.nn`.
      scores: of rigl, the gradients with respect to `scores_of`.

    Returns:
      The new model and state.

    Raises:
      StepError: the model has no block-sparse layers, or what `sparse_opt.jax.nn` raises.
    """
    layers = _layers(model)
    values, patterns, state = nn.update_patterns(
        {name: layer.values for name, layer in layers.items()},
        {name: layer.pattern for name, layer in layers.items()},
        state, drop, method=method, density=density, norm=norm,
        allow_return=allow_return, scores=scores, seed=seed,
    )  # fmt: skip
    fields = {name: {"values": values[name], "pattern": patterns[name]} for name in layers}
    return _replaced(model, fields), state


def _layers(model: Any) -> dict[str, Linear]:
    """Returns the layers of a model by the names of their weights."""
    found = tree_util.tree_leaves_with_path(model, is_leaf=_is_layer)
    return {_name(path): layer for path, layer in found if _is_layer(layer)}


def _replaced(model: Any, fields: dict[str, dict[str, Any]]) -> Any:
    """Returns a model with other values of fields of its layers."""

    def replaced(path: Any, leaf: Any) -> Any:
        if not _is_layer(leaf):
            return leaf
        new = fields[_name(path)]
        return eqx.tree_at(
            lambda layer: [getattr(layer, field) for field in new],
            leaf, list(new.values()), is_leaf=lambda part: part is None,
        )  # fmt: skip

    return tree_util.tree_map_with_path(replaced, model, is_leaf=_is_layer)


def _is_layer(part: Any) -> bool:
    return isinstance(part, Linear)


def _name(path: Any) -> str:
    return dotted("", (*path, tree_util.GetAttrKey("values")))[1:]
