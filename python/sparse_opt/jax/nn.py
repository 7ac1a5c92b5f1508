# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers for training loops of JAX's own.

"""A linear function of block-sparse weights, for any loop, optimizer and transformation.

    from sparse_opt.jax import nn

    pattern = nn.random_pattern(key, (3072, 768), block=16, density=0.1)
    values = nn.init(key, pattern)
    y = nn.linear(values, pattern, x)              # x W^T, in jit, grad, vmap and scan
    values, pattern, state = nn.update_patterns(values, pattern, state, 0.3)

`values` are the stored blocks, `[slots, block rows, block columns]`, a plain array; the
dense weight and its gradient are made nowhere. Kernels for the processor are compiled when
they are first needed and kept on disk (`sparse_opt.cache`). Processors only.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from sparse_opt import _given, _pattern_updates, _products
from sparse_opt._errors import StepError
from sparse_opt._method import Method
from sparse_opt._pattern_updates import Weight, needs_scores, require_scores
from sparse_opt._products import Matrix, Threads, Wanted
from sparse_opt.jax import _arrays, _ffi
from sparse_opt.jax._checks import dotted

__all__ = [
    "Pattern", "from_dense", "init", "linear", "pattern_of", "random_pattern", "to_dense",
    "update_patterns", "zero_scores",
]  # fmt: skip

_TYPES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}
_TARGET = "sparse_opt_product"
_LINE = 64


@functools.partial(
    tree_util.register_dataclass,
    data_fields=["indices", "updates"],
    meta_fields=["shape", "block", "slots"],
)
@dataclass(frozen=True)
class Pattern:
    """Where the stored blocks of a weight lie: a pytree of arrays of integers.

    Attributes:
      indices: int32, as the kernels read them.
      updates: how often the pattern was updated, int32.
      shape: outputs and inputs of the weight.
      block: rows and columns of a block.
      slots: how many blocks can be stored.
    """

    indices: Any
    updates: Any
    shape: tuple[int, int]
    block: tuple[int, int]
    slots: int

    @property
    def grid(self) -> tuple[int, int]:
        """How many blocks, stored or not, the weight has: rows and columns of them."""
        return self._matrix("f32").grid

    def mask(self) -> np.ndarray[Any, Any]:
        """Returns which blocks are stored, `[outputs / rows, inputs / columns]`."""
        rows, cols = self._places()
        mask = np.zeros(self.grid, np.bool_)
        mask[rows[rows >= 0], cols[rows >= 0]] = True
        return mask

    def _places(self) -> tuple[Any, Any]:
        if isinstance(self.indices, jax.core.Tracer):
            raise StepError(
                "expected a pattern that is known, but got a traced one: call this outside of"
                " jit and grad"
            )
        return self._matrix("f32").blocks_of(np.asarray(self.indices))

    def _matrix(self, type: str) -> Matrix:
        return Matrix(*self.shape, *self.block, self.slots, type)


@_given.options()
def random_pattern(
    key: Any, shape: tuple[int, int], *, block: int | tuple[int, int] = 16, density: float = 0.1
) -> Pattern:
    """Returns a pattern of random blocks.

    Args:
      key: of JAX's random numbers.
      shape: outputs and inputs of the weight.
      block: the size of blocks, or their rows and columns, which divide the shape.
      density: the share of blocks that is stored, above 0, at most 1.
    """
    matrix = _products.matrix_of(shape, block, density)
    order = jax.random.permutation(key, matrix.grid[0] * matrix.grid[1])

    def draw(order: Any) -> Any:
        return matrix.pattern_at(np.asarray(order)[: matrix.slots])

    if not isinstance(order, jax.core.Tracer):
        return _first(matrix, jnp.asarray(draw(order)))
    # In jit, vmap and eval_shape, too: how many blocks there are depends on no key.
    result = jax.ShapeDtypeStruct((matrix.offsets[-1],), jnp.int32)  # type: ignore[no-untyped-call]
    indices = jax.pure_callback(draw, result, order, vmap_method="sequential")
    return _first(matrix, indices)


def pattern_of(mask: Any, block: int | tuple[int, int]) -> Pattern:
    """Returns the pattern of the blocks where a mask, `[outputs / rows, inputs / columns]`,
    is true."""
    mask = _given.mask("a mask of two dimensions", mask)
    rows, cols = _given.block(block)
    if mask.ndim != 2 or not mask.any():
        raise StepError(
            "expected a mask of two dimensions of which one block is stored at least, but got"
            f" {int(mask.sum())} of {list(mask.shape)}"
        )
    shape = mask.shape[0] * rows, mask.shape[1] * cols
    matrix = Matrix(*shape, rows, cols, int(mask.sum()), "f32")
    return _first(matrix, jnp.asarray(matrix.pattern_of(mask)))


def _first(matrix: Matrix, indices: Any) -> Pattern:
    shape, block = (matrix.rows, matrix.cols), (matrix.block_rows, matrix.block_cols)
    return Pattern(indices, jnp.zeros((), jnp.int32), shape, block, matrix.slots)


def _require_pattern(pattern: Any) -> Pattern:
    if not isinstance(pattern, Pattern):
        raise _given.refusal("a pattern that random_pattern or pattern_of returned", pattern)
    return pattern


def _require_arrays(**given: Any) -> None:
    for name, value in given.items():
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            raise _given.refusal(f"{name} to be an array", value)


def _require_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    _require_arrays(**{name: value})
    if tuple(value.shape) != shape:
        raise StepError(f"expected {name} of {list(shape)}, but got {list(value.shape)}")


def _require_values(name: str, values: Any, pattern: Any) -> None:
    """Raises `StepError` unless values are the blocks of a pattern."""
    shape = (*_stack(_require_pattern(pattern)), pattern.slots, *pattern.block)
    _require_shape(name, values, shape)


def _type_of(dtype: Any) -> str:
    """Returns a type as kernels have it, or ''."""
    try:
        return _TYPES.get(np.dtype(dtype).name, "")
    except (TypeError, ValueError):  # of keys, and of other frameworks
        return ""


@_given.options()
def init(
    key: Any,
    pattern: Pattern,
    dtype: Any = jnp.float32,
    *,
    fan_in: Literal["dense", "rows"] = "dense",
) -> jax.Array:
    """Returns first values, uniform within `1 / sqrt(inputs)`; with `fan_in='rows'` within
    one over the root of the inputs that a block row stores (docs/sparsity.md)."""
    _require_pattern(pattern)
    is_stored = _products.is_stored_fan_in(fan_in)
    if not _type_of(dtype):
        raise _given.refusal(f"values of {', '.join(_TYPES)}", dtype)
    bound = pattern.shape[1] ** -0.5
    shape = (pattern.slots, *pattern.block)
    values = jax.random.uniform(key, shape, dtype, -bound, bound)
    if is_stored:
        values = (values * _fan_in_factors(pattern)[:, None, None]).astype(dtype)
    return values


def _fan_in_factors(pattern: Pattern) -> Any:
    matrix, dtype = pattern._matrix("f32"), jnp.result_type(float)

    def factors(indices: Any) -> Any:
        return matrix.fan_in_factors(np.asarray(indices)).astype(dtype)

    if not isinstance(pattern.indices, jax.core.Tracer):
        return jnp.asarray(factors(pattern.indices))
    result = jax.ShapeDtypeStruct((pattern.slots,), dtype)  # type: ignore[no-untyped-call]
    return jax.pure_callback(factors, result, pattern.indices, vmap_method="sequential")


def to_dense(values: Any, pattern: Pattern) -> jax.Array:
    """Returns the dense weight, `[outputs, inputs]`, with zeros where no block is stored."""
    _require_values("values", values, pattern)
    rows, cols = pattern._places()
    slots = np.flatnonzero(rows >= 0)
    grid = pattern.grid
    blocks = jnp.zeros((*grid, *pattern.block), values.dtype)
    blocks = blocks.at[rows[slots], cols[slots]].set(values[slots])
    return blocks.swapaxes(1, 2).reshape(pattern.shape)


def from_dense(weight: Any, pattern: Pattern) -> jax.Array:
    """Returns the stored blocks of a dense weight, `[outputs, inputs]`."""
    _require_pattern(pattern)
    _require_arrays(weight=weight)
    if weight.shape != pattern.shape:
        raise StepError(
            f"expected a weight of {pattern.shape[0]}x{pattern.shape[1]}, but got"
            f" {'x'.join(map(str, weight.shape))}"
        )
    rows, cols = pattern._places()
    grid = pattern.grid
    tiles = jnp.reshape(weight, (grid[0], pattern.block[0], grid[1], pattern.block[1]))
    found = tiles.swapaxes(1, 2)[rows, cols]
    return jnp.where((rows >= 0)[:, None, None], found, jnp.zeros((), found.dtype))


def zero_scores(pattern: Pattern) -> jax.Array:
    """Returns what `linear` takes as scores."""
    return jnp.zeros((*_stack(pattern), *pattern.grid), jnp.float32)


def linear(
    values: Any, pattern: Pattern, x: Any, bias: Any = None, *, scores: Any = None
) -> jax.Array:
    """Returns `x W^T + b` of a block-sparse `W`, `[outputs, inputs]`.

    Args:
      values: the stored blocks of `W`, of float32, float64, bfloat16 or float16.
      pattern: where they lie.
      x: `[..., inputs]`, of the type of the values; any number of leading dimensions.
      bias: `[outputs]`, or None.
      scores: `zero_scores`, `[outputs / rows, inputs / columns]`, whose gradient is
        taken to be the L1 norms of all blocks of the gradient of `W`: what RigL regrows
        by. `jax.grad` with respect to them makes the norms, and no dense gradient.
    """
    _require_pattern(pattern)
    _require_arrays(values=values, x=x)
    type = _type_of(values.dtype)
    shape = (pattern.slots, *pattern.block)
    if not type or values.shape != shape or x.dtype != values.dtype:
        raise StepError(
            f"expected values {list(shape)} and activations of one floating-point type, but"
            f" got {list(values.shape)} of {values.dtype} and {x.dtype}"
        )
    if x.ndim < 1 or x.shape[-1] != pattern.shape[1]:
        raise StepError(
            f"expected activations [..., {pattern.shape[1]}], but got {list(x.shape)}"
        )
    if scores is None:
        scores = jnp.zeros((0, 0), jnp.float32)
    else:
        _require_shape("scores", scores, pattern.grid)
    if bias is not None:
        _require_shape("a bias", bias, pattern.shape[:1])
    _ffi.register(_TARGET, _answer)
    y: jax.Array = _call.bind(
        values, pattern.indices, x, scores, matrix=pattern._matrix(type)
    )
    return y if bias is None else y + bias.astype(y.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _linear(matrix: Matrix, values: Any, indices: Any, x: Any, scores: Any) -> Any:
    return _product(matrix, Wanted(y=True))(indices, values, x)


def _forward(matrix: Matrix, values: Any, indices: Any, x: Any, scores: Any) -> Any:
    # Not by `_linear`, of which JAX would say that it has no derivative forward.
    y = _product(matrix, Wanted(y=True))(indices, values, x)
    return y, (values, indices, x, scores)


def _backward(matrix: Matrix, kept: Any, dy: Any) -> Any:
    values, indices, x, scores = kept
    dx = _product(matrix, Wanted(dx=True))(indices, values, dy)
    dw = _product(matrix, Wanted(dw=True))(indices, x, dy).astype(values.dtype)
    norms = jnp.zeros_like(scores)
    if scores.size:
        norms = _product(matrix, Wanted(scores="l1"))(x, dy)
    return dw, np.zeros(indices.shape, jax.dtypes.float0), dx, norms


_linear.defvjp(_forward, _backward)

# What JAX sees of it: a primitive, of which vmap over activations makes one of more tokens.
# JAX itself would make one of each example of the backward pass: as many gradients of
# weights as examples, and of scores the sums of norms, not the norms of sums.
_call: Any = Primitive("sparse_opt_linear")


@functools.cache
def _of(matrix: Matrix) -> Any:
    return functools.partial(_linear, matrix)


def _batched(arrays: Any, dims: Any, *, matrix: Matrix) -> tuple[Any, int]:
    values, indices, x, scores = arrays
    if any(dims[i] is not None for i in (0, 1, 3)):
        return jax.vmap(_of(matrix), dims)(*arrays), 0
    x = jnp.moveaxis(x, dims[2], 0)
    return _call.bind(values, indices, x, scores, matrix=matrix), 0


def _tangents(primals: Any, tangents: Any, *, matrix: Matrix) -> Any:
    return jax.jvp(_of(matrix), primals, tuple(map(ad.instantiate_zeros, tangents)))


_call.def_impl(lambda *arrays, matrix: _linear(matrix, *arrays))
_call.def_abstract_eval(
    lambda *avals, matrix: jax.make_jaxpr(_of(matrix))(*avals).out_avals[0]
)
batching.primitive_batchers[_call] = _batched
ad.primitive_jvps[_call] = _tangents
mlir.register_lowering(
    _call, mlir.lower_fun(lambda *arrays, matrix: _linear(matrix, *arrays), multiple_results=False)
)


def _refuse_second(primals: Any, tangents: Any) -> Any:
    raise StepError(
        "expected one derivative of a block-sparse layer, but got a second one: compute that"
        " part with the dense weight, nn.to_dense(values, pattern)"
    )


@functools.cache
def _product(matrix: Matrix, wanted: Wanted) -> Any:
    """Returns the function of arrays that a kernel computes; with vmap over activations
    alone these have one more leading dimension, else it is called once for each."""
    total = jnp.float64 if matrix.type == "f64" else jnp.float32
    text = json.dumps([*dataclasses.astuple(matrix), *dataclasses.astuple(wanted)])

    @custom_vmap
    def call(*arrays: Any) -> Any:
        if wanted.y or wanted.dx:
            like = arrays[-1]
            features = matrix.rows if wanted.y else matrix.cols
            shape, type = (*like.shape[:-1], features), like.dtype
        elif wanted.dw:
            shape, type = (matrix.slots, matrix.block_rows, matrix.block_cols), total
        else:
            shape, type = matrix.grid, jnp.float32
        result = jax.ShapeDtypeStruct(shape, type)  # type: ignore[no-untyped-call]
        run = jax.ffi.ffi_call(_TARGET, result)
        return run(*arrays, text=text)

    once: Any = jax.custom_jvp(call)

    once.defjvp(_refuse_second)

    @call.def_vmap
    def _(size: int, batched: Any, *arrays: Any) -> Any:
        if (wanted.y or wanted.dx) and not any(batched[:-1]):
            return call(*arrays), True
        whole = [a if is_batched else jnp.broadcast_to(a, (size, *a.shape)) for a, is_batched in zip(arrays, batched)]
        return jax.lax.map(lambda row: call(*row), tuple(whole)), True

    return once


@functools.cache
def _called(text: str) -> tuple[Matrix, Wanted]:
    parts = json.loads(text)
    return Matrix(*parts[:6]), Wanted(*parts[6:])


def _threads() -> Threads:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return Threads(int(given) if given.isdigit() and int(given) else len(os.sched_getaffinity(0)))


def _answer(given: list[_ffi.Memory], made: list[_ffi.Memory], text: str) -> None:
    """Computes what XLA asks for."""
    matrix, wanted = _called(text)
    threads, width = _threads(), _products.ITEMSIZES[matrix.type]
    activations = given[-1]
    tokens = int(np.prod(activations.shape[:-1], dtype=np.int64))
    if wanted.scores:
        x, dy = given
        found = _products.scores(matrix, wanted.scores, tokens, x.address, dy.address, threads)
        _write(made[0], found)
        return
    pattern = _aligned(given[0].address, 4 * matrix.offsets[-1], "pattern")
    names = ("w", "x", "y") if wanted.y else ("w", "dy", "dx") if wanted.dx else ("x", "dy", "dw")
    memory = dict(zip(names, (*given[1:], made[0])))
    addresses = {name: held.address for name, held in memory.items()} | {"pattern": pattern}
    blocks = matrix.slots * matrix.block_rows * matrix.block_cols
    result = None
    if wanted.dw:
        total = 8 if matrix.type == "f64" else 4
        result = np.zeros(blocks * total + _LINE, np.uint8)
        addresses["dw"] = -(-result.ctypes.data // _LINE) * _LINE
    else:
        addresses["w"] = _aligned(memory["w"].address, blocks * width, "w of XLA")
    _products.run(matrix, wanted, tokens, addresses, threads)
    if result is not None:
        start = addresses["dw"] - result.ctypes.data
        numbers = result[start : start + result.size - _LINE]
        type = np.float64 if matrix.type == "f64" else np.float32
        dw = numbers.view(type).reshape(matrix.slots, -1)
        # Kernels leave anything in slots without a block.
        stored = matrix.rows_of(_products.integers_at(pattern, matrix.offsets[-1]))[2]
        is_empty = np.ones(matrix.slots, np.bool_)
        is_empty[stored] = False
        dw[is_empty] = 0
        _write(made[0], dw)


def _aligned(address: int, bytes: int, name: str) -> int:
    """Returns an address at a line of memory: of a copy, if it is at none."""
    return address if address % _LINE == 0 else _products.copied(address, bytes, name)


def _write(memory: _ffi.Memory, array: np.ndarray[Any, Any]) -> None:
    array = np.ascontiguousarray(array)
    _products.move(memory.address, array.ctypes.data, array.nbytes)


@_given.options()
def update_patterns(
    values: Any,
    patterns: Any,
    state: Any = None,
    drop: float = 0.3,
    *,
    method: Literal["set", "rigl", "gmp"] | Method = "set",
    density: float | None = None,
    norm: Literal["l1", "l2", "linf", "mean"] = "l1",
    allow_return: bool = False,
    scores: Any = None,
    seed: int = 0,
) -> tuple[Any, Any, Any]:
    """Prunes blocks of every weight that has a pattern, and regrows others.

    By the runtime of compiled steps: one with the same weights, names and seed chooses the
    same blocks. Nothing is compiled again, and patterns of other blocks are no other types:
    functions that were jitted stay so. Call it outside of jit, between two steps.

    Args:
      values: a pytree, such as all parameters.
      patterns: a pytree with a `Pattern` under the path of each of the values that has one;
        both may be stacks, as `jax.vmap` makes them, of which each member is updated.
      state: what an optimizer keeps, such as optax's: leaves under a path that ends in that
        of values, and of their shape, are zeros where blocks are new.
      drop: the share of the blocks of each weight to prune.
      method: `set` regrows random blocks (Mocanu et al. 2018), `rigl` those of the largest
        scores (Evci et al. 2020), `gmp` none (Zhu and Gupta 2017); or a `sparse_opt.Method`.
      density: of gmp, the share of all blocks to leave.
      norm: what blocks are ranked by.
      allow_return: whether a block may be pruned and regrown at once.
      scores: of rigl, a pytree with the gradients of `linear`'s scores under the paths of
        the patterns.
      seed: of the choices, with the name of the weight (its path, with dots) and the number
        of the update.

    Returns:
      The new values, patterns and state.
    """
    seed = _given.seed(seed)
    held = _leaves(values)
    places = _leaves(patterns, lambda leaf: isinstance(leaf, Pattern))
    found = {n: p for n, p in places.items() if isinstance(p, Pattern)}
    if not found:
        raise StepError("expected a tree with patterns, but got none")
    for name in found:
        if name not in held:
            raise StepError(
                f"expected values under the path of the pattern '{name}', but got"
                f" {', '.join(list(held)[:5])}"
            )
    # Of a stack of layers, as vmap makes it, each is a weight of its own.
    members = {
        name: [(f"{name}{''.join(f'.{i}' for i in at)}", at) for at in np.ndindex(_stack(pattern))]
        for name, pattern in found.items()
    }
    weights = {}
    for name, pattern in found.items():
        _require_values(f"'{_given.name(name)}'", held[name], pattern)
        array = _arrays.memory(name, held[name])
        if not (type := _type_of(held[name].dtype)):
            raise StepError(
                f"expected '{name}' of {', '.join(_TYPES)}, but got {held[name].dtype}"
            )
        matrix = pattern._matrix(type)
        indices, updates = np.asarray(pattern.indices), np.asarray(pattern.updates)
        for member, at in members[name]:
            weights[member] = Weight(matrix, indices[at], array[at], int(updates[at]))
    due = _pattern_updates.due_of(
        {name: weight.matrix for name, weight in weights.items()},
        method, drop, norm=norm, density=density, allow_return=allow_return,
    )  # fmt: skip
    given = {} if scores is None else _leaves(scores)
    scored = {}
    for name, pattern in found.items():
        for member, at in members[name]:
            if needs_scores(due[member]):
                how = "give update_patterns(..., scores=...) that"
                norms = require_scores(name, given.get(name), how)
                _require_shape("scores", norms, (*_stack(pattern), *pattern.grid))
                scored[member] = np.asarray(norms, np.float32)[at]
    _pattern_updates.update(weights, due, scored, seed)

    def stacked(name: str, field: str) -> Any:
        arrays = np.stack([getattr(weights[member], field) for member, _ in members[name]])
        return arrays.reshape((*_stack(found[name]), *arrays.shape[1:]))

    def new_values(path: Any, leaf: Any) -> Any:
        name = _name(path)
        return _arrays.shown(stacked(name, "values"), leaf) if name in found else leaf

    def new_pattern(path: Any, leaf: Any) -> Any:
        name = _name(path)
        if name not in found:
            return leaf
        indices = jnp.asarray(stacked(name, "pattern"))
        updates = jnp.asarray(stacked(name, "updates"), jnp.int32)
        return Pattern(indices, updates, leaf.shape, leaf.block, leaf.slots)

    changed = {name: stacked(name, "changed")[..., None, None] for name in found}
    # A path may end in that of another weight: the longest counts.
    owners = sorted(held, key=len, reverse=True)

    def new_state(path: Any, leaf: Any) -> Any:
        name = _name(path)
        owner = next((o for o in owners if name == o or name.endswith(f".{o}")), "")
        if owner not in found or np.shape(leaf) != np.shape(held[owner]):
            return leaf
        return jnp.where(changed[owner], jnp.zeros((), leaf.dtype), leaf)

    is_pattern = lambda leaf: isinstance(leaf, Pattern)  # noqa: E731
    return (
        tree_util.tree_map_with_path(new_values, values),
        tree_util.tree_map_with_path(new_pattern, patterns, is_leaf=is_pattern),
        tree_util.tree_map_with_path(new_state, state),
    )


def _stack(pattern: Pattern) -> tuple[int, ...]:
    """Returns the leading dimensions of a stack of patterns."""
    return tuple(np.shape(pattern.updates))


def _name(path: Any) -> str:
    return dotted("", path)[1:] or "weight"


def _leaves(tree: Any, is_leaf: Any = None) -> dict[str, Any]:
    found = tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return {_name(path): leaf for path, leaf in found}
