# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Names of JAX that promise nothing, for masks of gradients.

"""Traces of a step that show where it differentiates, and at what.

While a step is traced, each function that it differentiates marks what it is
differentiated at: `ARGUMENT` of that value, and `GRADIENT` of each tangent or cotangent,
which has the value as its second operand. Both do nothing. Whoever evaluates the trace
knows of which weight a value is, and masks; lowered, a gradient is a call of `CALLED`.

What this leans on without a promise is here; `why_not` says what of it is not there.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, tree_util
from jax._src import linear_util as lu
from jax._src.interpreters import ad as private_ad
from jax._src.interpreters import mlir as private_mlir
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from sparse_opt.jax import _retraces

ARGUMENT: Any = Primitive("sparse_opt_argument")
GRADIENT: Any = Primitive("sparse_opt_gradient")
_LOWERED: Any = Primitive("sparse_opt_lowered_gradient")
CALLED = "sparse_opt.gradient"


def trace(function: Callable[..., Any], args: Sequence[Any]) -> ClosedJaxpr:
    """Returns `function`, traced anew, with a mark at all that it differentiates at."""
    with marking(), _retraces.anew():
        closed: ClosedJaxpr = jax.jit(function, keep_unused=True).trace(*args).jaxpr
    return closed


def why_not() -> str | None:
    """Returns what this version of JAX lacks for it, if anything."""
    parameters = [
        list(inspect.signature(f).parameters)
        for f in (private_ad.linearize, private_ad.jvp)
    ]
    # Both forms that are tested take the function first.
    if parameters[0][:1] == ["traceable"] and parameters[1][:1] == ["fun"]:
        return None
    return f"JAX {jax.__version__} differentiates in another way"


@contextlib.contextmanager
def marking() -> Iterator[None]:
    """Has the functions that JAX differentiates mark their arguments, if this version of
    JAX has what that takes."""
    if why_not() is not None:
        yield
        return
    own = {name: getattr(private_ad, name) for name in ("linearize", "jvp")}
    for name, function in own.items():
        setattr(private_ad, name, _marked(function))
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(private_ad, name, function)


def _marked(differentiate: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(differentiate)
    def of_marked(function: Any, *args: Any, **kwargs: Any) -> Any:
        # JAX's own rules call them, too.
        caller = sys._getframe(1).f_globals.get("__name__")
        inside = _inside(function) if caller == "jax._src.api" else function
        return differentiate(inside, *args, **kwargs)

    return of_marked


def _inside(function: Any) -> Any:
    """Returns a function that marks its arguments, in the form that it came in."""
    if isinstance(function, lu.WrappedFun):
        return _transformed(function)

    @functools.wraps(function, updated=())
    def marked(*args: Any) -> Any:
        return function(*tree_util.tree_map(_mark, args))

    return marked


@lu.transformation2  # type: ignore[untyped-decorator, unused-ignore]
def _transformed(function: Callable[..., Any], *args: Any) -> Any:
    return function(*map(_mark, args))


def _mark(leaf: Any) -> Any:
    dtype = getattr(leaf, "dtype", None)
    is_real = dtype is not None and jnp.issubdtype(dtype, jnp.floating)
    return ARGUMENT.bind(leaf) if is_real else leaf


# What both primitives mean to JAX: nothing.


def _first(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _differentiated(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (value,), (tangent,) = primals, tangents
    if not isinstance(tangent, ad.Zero):
        tangent = GRADIENT.bind(tangent, value, missing=())
    return ARGUMENT.bind(value), tangent


def _gradient_differentiated(
    primals: Any, tangents: Any, missing: tuple[bool, ...]
) -> tuple[Any, Any]:
    (gradient, value), (tangent, _) = primals, tangents
    if not isinstance(tangent, ad.Zero):
        tangent = GRADIENT.bind(tangent, value, missing=missing)
    return GRADIENT.bind(gradient, value, missing=missing), tangent


def _gradient_transposed(
    cotangent: Any, _: Any, value: Any, missing: tuple[bool, ...]
) -> list[Any]:
    if isinstance(cotangent, ad.Zero):
        return [cotangent, None]
    return [GRADIENT.bind(cotangent, value, missing=missing), None]


def _argument_batched(args: Any, dims: Any) -> tuple[Any, Any]:
    return ARGUMENT.bind(args[0]), dims[0]


def _gradient_batched(args: Any, dims: Any, missing: tuple[bool, ...]) -> tuple[Any, int]:
    """Puts the new dimension in front; `missing` says where values have none."""
    (gradient, value), (dim, value_dim) = args, dims
    if value_dim is not None:
        value = jnp.moveaxis(value, value_dim, 0)
    if dim is not None:
        gradient = jnp.moveaxis(gradient, dim, 0)
    else:
        gradient = jnp.broadcast_to(gradient, (value.shape[0], *gradient.shape))
    return GRADIENT.bind(gradient, value, missing=(value_dim is None, *missing)), 0


def _called(gradient: Any, value: Any, missing: tuple[bool, ...]) -> Any:
    """Returns a gradient through a call of `CALLED`, with a value of its shape."""
    dims = [i for i in range(gradient.ndim) if i >= len(missing) or not missing[i]]
    value = lax.broadcast_in_dim(value, gradient.shape, dims)
    return _LOWERED.bind(gradient, value)


def _lower_call(_: Any, gradient: Any, value: Any) -> Any:
    call = private_mlir.custom_call(
        CALLED, result_types=[gradient.type], operands=[gradient, value]
    )
    return call.results


for _primitive in (ARGUMENT, GRADIENT, _LOWERED):
    _primitive.def_impl(_first)
    _primitive.def_abstract_eval(_first)
mlir.register_lowering(ARGUMENT, mlir.lower_fun(_first, multiple_results=False))
mlir.register_lowering(GRADIENT, mlir.lower_fun(_called, multiple_results=False))
mlir.register_lowering(_LOWERED, _lower_call)
ad.primitive_jvps[ARGUMENT] = _differentiated
ad.primitive_jvps[GRADIENT] = _gradient_differentiated
ad.primitive_transposes[GRADIENT] = _gradient_transposed
batching.primitive_batchers[ARGUMENT] = _argument_batched
batching.primitive_batchers[GRADIENT] = _gradient_batched
