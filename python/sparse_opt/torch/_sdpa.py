# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# PyTorch's scaled_dot_product_attention as one operation of a trace.

"""`scaled_dot_product_attention`, and its gradient, in one operation each.

While a step is traced, `Attention` puts `ATTENTION` in the place of calls, also of those in
`torch.nn.MultiheadAttention` and in models of transformers, and `ATTENTION_GRADIENT` in
that of their gradients. What these compute `composed` says, as PyTorch itself takes
attention apart: functions of the exported module have it (`_calls`), so that whoever does
not know them inlines them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch

from sparse_opt.torch import _private

aten = torch.ops.aten

# Operands but for dy: tensors, and numbers behind them.
TENSORS = ("q", "k", "v", "bias", "mask", "kept")
_OPERANDS = (
    "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? mask, Tensor? kept,"
    " float scale, float kept_factor"
)
_LIBRARY: Any = torch.library.Library("sparse_opt", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(f"attention({_OPERANDS}) -> Tensor")
_LIBRARY.define(f"attention_gradient(Tensor dy, {_OPERANDS}) -> (Tensor, Tensor, Tensor)")


def _output(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


def _gradients(dy: torch.Tensor, *operands: Any) -> Any:
    return tuple(t.new_empty(t.shape) for t in operands[:3])


# There is no other kernel: both are operations of traces alone.
_LIBRARY.impl("attention", _output, "Meta")
_LIBRARY.impl("attention_gradient", _gradients, "Meta")
ATTENTION: Any = torch.ops.sparse_opt.attention.default
ATTENTION_GRADIENT: Any = torch.ops.sparse_opt.attention_gradient.default

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_COMPOSITE: Any = aten.scaled_dot_product_attention.default


def composed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    mask: torch.Tensor | None,
    kept: torch.Tensor | None,
    scale: float,
    kept_factor: float,
) -> torch.Tensor:
    """Returns attention of `q`, `k` and `v`, as PyTorch composes it of products and a
    softmax.

    Args:
      q, k, v: `[..., queries or keys, features]`.
      bias: what is added to scores.
      mask: true where scores count. A row in which none does is 0.
      kept: true where probabilities are not dropped out.
      scale: what scores are multiplied with.
      kept_factor: what probabilities are multiplied with that are kept.
    """
    dtype = q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    # Each factor has a root, so that their product stays in range.
    root = math.sqrt(abs(scale))
    scores = (q * math.copysign(root, scale)) @ (k.transpose(-2, -1) * root)
    if mask is not None:
        zero = torch.zeros((), dtype=q.dtype, device=q.device)
        bias = torch.where(mask, zero, torch.full_like(zero, -math.inf))
    if bias is None:
        probabilities = scores.softmax(-1)
    else:
        probabilities = aten._safe_softmax.default(scores + bias.to(q.dtype), -1)
    if kept is not None:
        dropped = torch.zeros((), dtype=q.dtype, device=q.device)
        probabilities = torch.where(kept, probabilities * kept_factor, dropped)
    return (probabilities @ v).to(dtype)


def composed_gradient(
    dy: torch.Tensor, q: Any, k: Any, v: Any, *rest: Any, create_graph: bool = False
) -> Any:
    """Returns the gradients of `composed` at `q`, `k` and `v`."""
    with torch.enable_grad(), torch.autocast(q.device.type, enabled=False):
        # One tensor may be several of them.
        at = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in (q, k, v)]
        y = composed(*at, *rest)
        return torch.autograd.grad(y, at, dy, create_graph=create_graph)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *operands: Any) -> Any:
        ctx.save_for_backward(*operands[: len(TENSORS)])
        ctx.numbers = operands[len(TENSORS) :]
        return ATTENTION(*operands)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        operands = *ctx.saved_tensors, *ctx.numbers
        if torch.is_grad_enabled():  # The gradient is differentiated, too.
            gradients = composed_gradient(dy, *operands, create_graph=True)
        else:
            gradients = ATTENTION_GRADIENT(dy, *operands)
        return (*gradients, *[None] * (len(operands) - 3))


class Attention:
    """Makes each call of `scaled_dot_product_attention` one operation.

    Args:
      take_apart: told why a call is none.
    """

    def __init__(self, take_apart: Callable[[str], None]) -> None:
        self._take_apart = take_apart

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Has calls come here, those of a backward pass, too, that computes again."""
        return _private.other_kernel(_COMPOSITE, self._run)

    def _run(self, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = self._attend(*args, **kwargs)
        return own(*args, **kwargs) if result is None else result

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor | None:
        """Returns attention in one operation, or None: PyTorch takes it apart."""
        q, k, v = query, key, value
        if all(t.dim() >= 3 for t in (q, k, v)) and enable_gqa:
            groups = [q.shape[-3] // max(t.shape[-3], 1) for t in (k, v)]
            k, v = (
                t if n < 2 else t.repeat_interleave(n, -3) for t, n in zip((k, v), groups)
            )
        if reason := _obstacle(q, k, v, attn_mask, is_causal):
            self._take_apart(reason)
            return None
        if len({t.dtype for t in (q, k, v)}) > 1:
            return None  # PyTorch says what is wrong.
        shape = (*q.shape[:-1], k.shape[-2])
        bias = mask = kept = None
        if is_causal:
            mask = torch.ones(shape[-2:], dtype=torch.bool, device=q.device).tril()
        elif attn_mask is not None and attn_mask.dtype == torch.bool:
            mask = attn_mask
        else:
            bias = attn_mask
        factor = 1.0
        if dropout_p > 0:
            factor = 0.0 if dropout_p == 1 else 1 / (1 - dropout_p)
            whole = torch.ones(shape, dtype=torch.float32, device=q.device)
            kept = torch.native_dropout(whole, dropout_p, True)[1]
        if scale is None:
            scale = 1 / math.sqrt(q.shape[-1])
        numbers = float(scale), factor
        y: torch.Tensor = _Function.apply(q, k, v, bias, mask, kept, *numbers)
        return y


def _obstacle(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, is_causal: bool
) -> str:
    """Returns why attention is no operation of its own, or ''."""
    if _private.is_transformed():
        return "it is in a transform of torch.func"
    if any(t.is_nested or t.layout is not torch.strided for t in (q, k, v)):
        return "its tensors are not dense"
    if any(t.dtype not in _FLOATS for t in (q, k, v)):
        return f"its tensors are of {q.dtype}"
    if mask is not None and mask.requires_grad and torch.is_grad_enabled():
        return "its mask is trained"
    if not (q.dim() == k.dim() == v.dim() >= 2) or not (
        q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    ):
        return "its batch dimensions are broadcast"
    if 0 in (*q.shape, *k.shape, *v.shape):
        return "a tensor of it is empty"
    scores = torch.Size((*q.shape[:-1], k.shape[-2]))
    is_wrong = (
        q.shape[-1] != k.shape[-1]
        or k.shape[-2] != v.shape[-2]
        or (mask is not None and (is_causal or not _is_broadcast(mask.shape, scores)))
    )
    return "its shapes are no attention's" if is_wrong else ""


def _is_broadcast(shape: torch.Size, whole: torch.Size) -> bool:
    """Returns whether a tensor of `shape` is broadcast to `whole`."""
    fits = (a in (1, b) for a, b in zip(reversed(shape), reversed(whole)))
    return len(shape) <= len(whole) and all(fits)
