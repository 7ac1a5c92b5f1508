# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Attention whose projections are layers.

"""`torch.nn.MultiheadAttention` in parts, so that its projections can have blocks."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparse_opt._errors import StepError
from sparse_opt.torch import _symbolic

PROJECTIONS = ("q_proj", "k_proj", "v_proj")


class MultiheadAttention(torch.nn.Module):
    """Computes what a `torch.nn.MultiheadAttention` does, by a layer for each projection:
    `q_proj`, `k_proj`, `v_proj` and `out_proj`. A `state_dict` of the original loads."""

    def __init__(self, dense: torch.nn.MultiheadAttention) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = dense.embed_dim, dense.num_heads
        self.head_dim, self.dropout = dense.head_dim, dense.dropout
        self.batch_first = dense.batch_first
        # What transformer layers ask for, to see whether a kernel for inference fits: it
        # would read weights.
        self._qkv_same_embed_dim = False
        # Whether the projections are one matrix there.
        self.is_packed = dense.in_proj_weight is not None
        self.register_parameter("in_proj_bias", None)
        weights, biases = _projections(dense)
        for name, weight, bias in zip(PROJECTIONS, weights, biases):
            self.add_module(name, _linear(weight, bias))
        self.out_proj: torch.nn.Module = _linear(dense.out_proj.weight, dense.out_proj.bias)
        self.train(dense.training)

    @property
    def projections(self) -> list[torch.nn.Module]:
        """The layers of queries, keys and values."""
        return [getattr(self, name) for name in PROJECTIONS]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As `torch.nn.MultiheadAttention`."""
        if _symbolic.is_traced(query):
            traced: tuple[Tensor, Tensor | None] = _symbolic.call(
                self, query, key, value, key_padding_mask, need_weights, attn_mask,
                average_attn_weights, is_causal,
            )  # fmt: skip
            return traced
        if is_causal and attn_mask is None:
            raise StepError(
                "expected an attn_mask beside is_causal, which is a hint, but got none"
            )
        is_batched = query.dim() == 3
        inputs = [query, key, value]
        if not is_batched:
            inputs = [x.unsqueeze(0) for x in inputs]
        elif not self.batch_first:
            inputs = [x.transpose(0, 1) for x in inputs]
        q, k, v = (
            projection(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for projection, x in zip(self.projections, inputs)
        )
        is_causal = is_causal and key_padding_mask is None and not need_weights
        mask = None if is_causal else self._mask(q, k, key_padding_mask, attn_mask)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
            weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
            y = weights @ v
            if average_attn_weights:
                weights = weights.mean(1)
            if not is_batched:
                weights = weights.squeeze(0)
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
        y = self.out_proj(y.transpose(1, 2).flatten(2))
        if not is_batched:
            y = y.squeeze(0)
        elif not self.batch_first:
            y = y.transpose(0, 1)
        return y, weights

    def _mask(
        self, q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None
    ) -> Tensor | None:
        """Returns what is added to scores, `[batch or 1, heads or 1, queries or 1, keys]`."""
        total = None
        if padding is not None:
            total = _added(padding, q.dtype).reshape(-1, 1, 1, k.shape[2])
        if mask is not None:
            shape = (-1, self.num_heads) if mask.dim() == 3 else (1, 1)
            added = _added(mask, q.dtype).reshape(*shape, q.shape[2], k.shape[2])
            total = added if total is None else total + added
        return total

    def dense(self, layers: Any) -> torch.nn.MultiheadAttention:
        """Returns the `torch.nn.MultiheadAttention` with the weights of dense layers, by the
        names of this one's."""
        parts = [layers[name] for name in PROJECTIONS]
        weight, bias = parts[0].weight, parts[0].bias
        made = torch.nn.MultiheadAttention(
            self.embed_dim, self.num_heads, self.dropout, bias is not None,
            kdim=parts[1].weight.shape[1], vdim=parts[2].weight.shape[1],
            batch_first=self.batch_first, device=weight.device, dtype=weight.dtype,
        )  # fmt: skip
        with torch.no_grad():
            for given, taken in zip(_projections(made)[0], parts):
                given.copy_(taken.weight)
            if bias is not None:
                made.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        made.out_proj.weight, made.out_proj.bias = layers["out_proj"].weight, layers["out_proj"].bias
        return made.train(self.training)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any
    ) -> None:
        """Loads the state of a `torch.nn.MultiheadAttention`, too."""
        packed = state_dict.pop(f"{prefix}in_proj_weight", None)
        if packed is not None:
            for name, part in zip(PROJECTIONS, packed.chunk(3)):
                state_dict[f"{prefix}{name}.weight"] = part
        bias = state_dict.pop(f"{prefix}in_proj_bias", None)
        for number, name in enumerate(PROJECTIONS):
            weight = state_dict.pop(f"{prefix}{name}_weight", None)
            if weight is not None:
                state_dict[f"{prefix}{name}.weight"] = weight
            if bias is not None:
                state_dict[f"{prefix}{name}.bias"] = bias.chunk(3)[number]
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _projections(dense: Any) -> tuple[list[Tensor], list[Any]]:
    """Returns the weights of queries, keys and values, and their biases."""
    if dense.in_proj_weight is not None:
        weights = list(dense.in_proj_weight.chunk(3))
    else:
        weights = [dense.q_proj_weight, dense.k_proj_weight, dense.v_proj_weight]
    bias = dense.in_proj_bias
    return weights, [None] * 3 if bias is None else list(bias.chunk(3))


def _linear(weight: Tensor, bias: Tensor | None) -> torch.nn.Linear:
    """Returns a dense layer with a weight and a bias: themselves, where these are
    parameters, or copies."""
    made = torch.nn.Linear(
        weight.shape[1], weight.shape[0], bias is not None, device="meta", dtype=weight.dtype
    )
    made.weight = _parameter(weight)
    if bias is not None:
        made.bias = _parameter(bias)
    return made


def _parameter(tensor: Tensor) -> torch.nn.Parameter:
    if isinstance(tensor, torch.nn.Parameter):
        return tensor
    return torch.nn.Parameter(tensor.detach().clone(), tensor.requires_grad)


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a mask as what is added to scores: where one of bool is true, no entry counts."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)
