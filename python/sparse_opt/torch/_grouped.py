# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Products of rows with the matrices of their groups, as operations of a trace.

"""Rows, each multiplied with the matrix of its group, and the gradients, in one operation each.

What these compute `composed` says, of products of all rows with each matrix: functions of
the exported module have it (`_calls`), so that whoever does not know them inlines them.
"""

from __future__ import annotations

from typing import Any

import torch

_LIBRARY: Any = torch.library.Library("sparse_opt", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("grouped_matmul(Tensor x, Tensor w, Tensor groups) -> Tensor")
_LIBRARY.define("grouped_matmul_transposed(Tensor x, Tensor w, Tensor groups) -> Tensor")
_LIBRARY.define("grouped_outer(Tensor a, Tensor b, Tensor groups, Tensor w) -> Tensor")


def _matmul(x: torch.Tensor, w: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    return x.new_empty((len(x), w.shape[2]))


def _transposed(x: torch.Tensor, w: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    return x.new_empty((len(x), w.shape[1]))


def _outer(
    a: torch.Tensor, b: torch.Tensor, groups: torch.Tensor, w: torch.Tensor
) -> torch.Tensor:
    return w.new_empty(w.shape)


# There is no other kernel: they are operations of traces alone.
_LIBRARY.impl("grouped_matmul", _matmul, "Meta")
_LIBRARY.impl("grouped_matmul_transposed", _transposed, "Meta")
_LIBRARY.impl("grouped_outer", _outer, "Meta")
MATMUL: Any = torch.ops.sparse_opt.grouped_matmul.default
TRANSPOSED: Any = torch.ops.sparse_opt.grouped_matmul_transposed.default
OUTER: Any = torch.ops.sparse_opt.grouped_outer.default

# What the compiler knows each by, and its operands.
KINDS: dict[Any, tuple[str, tuple[str, ...]]] = {
    MATMUL: ("matmul", ("x", "w", "groups")),
    TRANSPOSED: ("matmul_transposed", ("x", "w", "groups")),
    OUTER: ("outer", ("a", "b", "groups", "w")),
}


def composed(operation: Any, *operands: torch.Tensor) -> torch.Tensor:
    """Returns what one of the operations computes: `x[t] w[groups[t]]`, with a transposed `w`
    or not; or the sums of the outer products of `a[t]` and `b[t]` over each group.

    A row whose group has no matrix is 0, and adds nothing.
    """
    groups, w = operands[2], operands[3 if operation is OUTER else 1]
    own = [(groups == group).unsqueeze(1) for group in range(len(w))]
    if operation is OUTER:
        a, b = operands[:2]
        # Zeros in the place of the other rows: nothing of them can become NaN.
        sums = [torch.where(rows, a, 0).T @ torch.where(rows, b, 0) for rows in own]
        return torch.stack(sums).to(w.dtype)
    x = operands[0]
    y = x.new_zeros((len(x), w.shape[1 if operation is TRANSPOSED else 2]))
    for matrix, rows in zip(w, own):
        product = torch.where(rows, x, 0) @ (matrix.T if operation is TRANSPOSED else matrix)
        y = torch.where(rows, product, y)
    return y


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, groups: Any, operation: Any) -> Any:
        ctx.save_for_backward(x, w, groups)
        ctx.operation = operation
        return operation(x, w, groups)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w, groups = ctx.saved_tensors
        if torch.is_grad_enabled():  # The gradient is differentiated, too.
            with torch.autocast(x.device.type, enabled=False):
                at = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in (x, w)]
                y = composed(ctx.operation, *at, groups)
                return (*torch.autograd.grad(y, at, dy, create_graph=True), None, None)
        is_transposed = ctx.operation is TRANSPOSED
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = (MATMUL if is_transposed else TRANSPOSED)(dy, w, groups)
        if ctx.needs_input_grad[1]:
            dw = OUTER(*((dy, x) if is_transposed else (x, dy)), groups, w)
        return dx, dw, None, None


def multiply(
    x: torch.Tensor, w: torch.Tensor, groups: torch.Tensor, *, is_transposed: bool
) -> torch.Tensor:
    """Returns `x[t] w[groups[t]]` of each row, as a linear layer computes it.

    Args:
      x: rows, `[rows, features]`.
      w: the matrices, `[groups, features, out]`; if `is_transposed`, `[groups, out, features]`.
      groups: the number of the matrix of each row, `[rows]`.
    """
    kind = x.device.type
    dtype = w.dtype
    if torch.is_autocast_enabled(kind) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(kind)
    operation = TRANSPOSED if is_transposed else MATMUL
    y: torch.Tensor = _Function.apply(x.to(dtype), w.to(dtype), groups, operation)
    return y
