# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Layers of recurrent networks, with dropout between them.

"""What PyTorch's decomposition of `nn.LSTM`, `nn.GRU` and `nn.RNN` leaves out.

It drops nothing out between layers (PyTorch 2.14 to 2.16), where eager PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Network = Callable[..., tuple[torch.Tensor, list[Any]]]


def with_dropout(network: Network) -> Network:
    """Returns `network`, PyTorch's `_rnn_helper`, with dropout behind each layer but the last."""

    def run(
        input: torch.Tensor,
        hidden: Sequence[Any],
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        layer_fn: Any,
    ) -> tuple[torch.Tensor, list[Any]]:
        directions = 2 if bidirectional else 1
        final_hiddens = []
        for i in range(num_layers):
            if i and train and dropout:
                # In the order of PyTorch's own loop, over time first.
                input = input.transpose(0, 1) if batch_first else input
                input = torch.dropout(input, dropout, train=True)
                input = input.transpose(0, 1) if batch_first else input
            own = slice(i * directions, (i + 1) * directions)
            input, last = network(
                input, hidden[own], params[own], has_biases, 1, 0.0, train,
                bidirectional, batch_first, layer_fn,
            )  # fmt: skip
            final_hiddens += last
        return input, final_hiddens

    return run
