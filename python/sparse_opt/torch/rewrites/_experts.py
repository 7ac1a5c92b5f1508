# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Mixtures of experts of transformers in shapes that do not depend on data.

"""Every expert on every token, of which its own count.

The experts of transformers group tokens by the expert that they go to, so that
shapes depend on data. The values are the same where each expert computes all
tokens and the sum takes those that the router sent it; each expert's weights stay
matrices that can be sparse.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def forward(
    self: Any,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """What `self`, the experts of a layer, makes of `[tokens, features]`.

    `top_k_index` has the experts of each token, `[tokens, k]`, and `top_k_weights`
    what each counts.
    """
    result = torch.zeros_like(hidden_states)
    first = "gate_up_proj" if self.has_gate else "up_proj"
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
