# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Tells what an optimizer keeps of parameters from parameters, in a traced step.

"""Moments and averages that are named as parameters are.

An optimizer's state has the tree of what it was made of, `params.kernel` in
`opt_state.0.mu.params.kernel`: a pattern that names parameters names their moments, too.
The step itself tells them apart. The loss reads parameters, and the next value of one
that is trained depends on it by way of products or sums. The loss reads no moment, whose
next value is an entry-wise function of it and of what is new.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

# Each entry of a result is made of the entries of one place.
_ENTRY_WISE = frozenset(
    "abs add add_any and atan2 broadcast_in_dim cbrt ceil clamp concatenate"
    " convert_element_type copy copy_p cos div eq erf exp exp2 expand_dims expm1 floor ge gt"
    " integer_pow is_finite le log log1p logistic lt max min mul name ne neg nextafter not or"
    " pow reduce_precision rem reshape rev round rsqrt select_n sign sin slice sqrt square"
    " squeeze stop_gradient sub tanh transpose xor sparse_opt_argument".split()
)
# What has entries of its first operand alone.
_OF_FIRST = "sparse_opt_gradient"
# What has a result for each operand.
_SEPARATE = frozenset(("optimization_barrier",))

# Of a value, the arguments that it is an entry-wise function of, and those that it
# depends on in another way; each a number with a bit for an argument.
_Reads = tuple[int, int]
_NOTHING: _Reads = (0, 0)


def found(closed: Any, carried: int, parameters: Collection[int]) -> set[int]:
    """Returns which of `parameters`, numbers of arguments, a step keeps for others.

    Args:
      closed: the step's jaxpr, whose first `carried` results are the next values of its
        first arguments, and whose next result is the loss.
      carried: how many leaves are carried.
      parameters: carried arguments.
    """
    jaxpr = closed.jaxpr
    arguments: list[_Reads] = [(1 << i, 0) for i in range(len(jaxpr.invars))]
    results = _results(jaxpr, arguments)
    of_loss = results[carried][0] | results[carried][1]
    return {
        i
        for i in parameters
        if np.issubdtype(jaxpr.invars[i].aval.dtype, np.inexact)
        and jaxpr.outvars[i] is not jaxpr.invars[i]
        and not (of_loss | results[i][1]) >> i & 1
    }


def unread(closed: Any, parameters: Collection[int]) -> set[int]:
    """Returns which of `parameters`, numbers of arguments, no result of a function reads."""
    arguments: list[_Reads] = [(1 << i, 0) for i in range(len(closed.jaxpr.invars))]
    same, mixed = _joined(_results(closed.jaxpr, arguments))
    return {i for i in parameters if not (same | mixed) >> i & 1}


def _results(jaxpr: Any, arguments: Sequence[_Reads]) -> list[_Reads]:
    """Returns what the results of a jaxpr read, if its arguments read these."""
    known: dict[Any, _Reads] = dict(zip(jaxpr.invars, arguments))

    def read(variable: Any) -> _Reads:
        # Literals cannot be looked up.
        return _NOTHING if hasattr(variable, "val") else known.get(variable, _NOTHING)

    for equation in jaxpr.eqns:
        results = _results_of(equation, [read(v) for v in equation.invars])
        known.update(zip(equation.outvars, results))
    return [read(v) for v in jaxpr.outvars]


def _joined(reads: Sequence[_Reads]) -> _Reads:
    same = mixed = 0
    for value in reads:
        same, mixed = same | value[0], mixed | value[1]
    return same, mixed


def _mixed(reads: _Reads) -> _Reads:
    return 0, reads[0] | reads[1]


def _results_of(equation: Any, operands: list[_Reads]) -> list[_Reads]:
    name, given = equation.primitive.name, equation.params
    if name in _SEPARATE:
        return operands
    if name == _OF_FIRST:
        return operands[:1]
    if name in _ENTRY_WISE:
        return [_joined(operands)] * len(equation.outvars)
    if name == "cond":
        chosen = [_results(b.jaxpr, operands[1:]) for b in given["branches"]]
        by_index = _mixed(operands[0])
        return [_joined([by_index, *values]) for values in zip(*chosen)]
    if name == "scan":
        return _of_scan(given, operands)
    if name == "while":
        return _of_while(given, operands)
    inner = given.get("jaxpr", given.get("call_jaxpr", given.get("fun_jaxpr")))
    inner = getattr(inner, "jaxpr", inner)
    if inner is not None and len(inner.invars) == len(operands):
        if len(inner.outvars) == len(equation.outvars):
            return _results(inner, operands)
    return [_mixed(_joined(operands))] * len(equation.outvars)


def _of_scan(given: Any, operands: list[_Reads]) -> list[_Reads]:
    # One round tells moments from parameters. Over several rounds what is new depends on
    # all that is carried.
    return _results(given["jaxpr"].jaxpr, operands)


def _of_while(given: Any, operands: list[_Reads]) -> list[_Reads]:
    first = given["cond_nconsts"]
    carry = operands[first + given["body_nconsts"] :]
    results = _results(given["body_jaxpr"].jaxpr, operands[first:])
    # It may be no round.
    return [_joined(pair) for pair in zip(carry, results)]
