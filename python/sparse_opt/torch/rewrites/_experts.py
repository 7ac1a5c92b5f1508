# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Mixtures of experts of transformers in shapes that do not depend on data.

"""Every expert on its own tokens, or on every token, of which its own count.

The experts of transformers group tokens by the expert that they go to, so that
shapes depend on data. The rows of all groups together are as many as tokens times
experts of a token: an operation multiplies each row with the matrix of its expert
(`_grouped`). Experts that can be sparse are matrices of their own: each computes
all tokens, and the sum takes those that the router sent it. The values are the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from sparse_opt.torch import _grouped

_IsApart = Callable[[torch.nn.Module], bool]


def _never(module: torch.nn.Module) -> bool:
    return False


# Whether the experts of a module are matrices of their own, while a step is traced.
_is_apart: _IsApart = _never


@contextlib.contextmanager
def apart(is_apart: _IsApart) -> Iterator[_IsApart]:
    """Makes the experts of modules of which `is_apart` is true, or was true already, matrices
    of their own; yields this."""
    global _is_apart
    before = _is_apart

    def is_either(module: torch.nn.Module) -> bool:
        return before(module) or is_apart(module)

    _is_apart = is_either
    try:
        yield is_either
    finally:
        _is_apart = before


def stacks_of(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Returns the layers of experts by the names of their stacks of matrices."""
    names = ("gate_up_proj", "up_proj", "down_proj")
    return {
        f"{path}.{name}".lstrip("."): module
        for path, module in model.named_modules()
        if hasattr(module, "num_experts") and hasattr(module, "has_gate")
        for name in names
        if name in module._parameters
    }


def grouped_in(model: torch.nn.Module) -> list[str]:
    """Returns the names of the stacks of which each row takes a matrix."""
    return [name for name, module in stacks_of(model).items() if not _is_apart(module)]


def forward(
    self: Any,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """What `self`, the experts of a layer, makes of `[tokens, features]`.

    `top_k_index` has the experts of each token, `[tokens, k]`, and `top_k_weights`
    what each counts. A number that is no expert's counts nothing.
    """
    if _is_apart(self):
        return on_all_tokens(self, hidden_states, top_k_index, top_k_weights)
    tokens, k = top_k_index.shape
    experts = top_k_index.flatten()
    x = hidden_states.unsqueeze(1).expand(-1, k, -1).reshape(tokens * k, -1)
    x = _multiply(self, _first(self), experts, x)
    x = self._apply_gate(x) if self.has_gate else self.act_fn(x)
    x = _multiply(self, "down_proj", experts, x)
    if self.has_post_expert_norm:
        x = self.post_expert_norm(x)
    is_sent = (top_k_index >= 0) & (top_k_index < self.num_experts)
    parts = x.view(tokens, k, -1) * top_k_weights.unsqueeze(-1)
    result = torch.where(is_sent.unsqueeze(-1), parts, 0).sum(1)
    return result.to(hidden_states.dtype)


def _first(self: Any) -> str:
    return "gate_up_proj" if self.has_gate else "up_proj"


def _multiply(self: Any, name: str, experts: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = _grouped.multiply(x, getattr(self, name), experts, is_transposed=not self.is_transposed)
    if not self.has_bias:
        return y
    bias: torch.Tensor = getattr(self, f"{name}_bias")
    chosen = experts.unsqueeze(1) == torch.arange(self.num_experts, device=x.device)
    return y + (chosen.to(bias.dtype) @ bias).to(y.dtype)


def on_all_tokens(
    self: Any,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """The same of experts that are matrices of their own."""
    result = torch.zeros_like(hidden_states)
    first = _first(self)
    for expert in range(self.num_experts):
        is_sent = top_k_index == expert
        is_mine = is_sent.any(-1, keepdim=True)
        share = torch.where(is_sent, top_k_weights, 0).sum(-1, keepdim=True)
        # Zeros in the place of the other tokens: nothing of them can become NaN.
        x = torch.where(is_mine, hidden_states, 0)
        x = _linear(self, first, expert, x)
        x = self._apply_gate(x) if self.has_gate else self.act_fn(x)
        x = _linear(self, "down_proj", expert, x)
        if self.has_post_expert_norm:
            x = self.post_expert_norm(x)
        result = result + torch.where(is_mine, x * share, 0).to(result.dtype)
    return result


def _linear(self: Any, name: str, expert: int, x: torch.Tensor) -> torch.Tensor:
    weight = getattr(self, name)[expert]
    bias = getattr(self, f"{name}_bias")[expert] if self.has_bias else None
    return functional.linear(x, weight.T if self.is_transposed else weight, bias)
