# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Operations on 16-bit floats are as exact as PyTorch's, which compute in f32 and round once.

# RUN: %python %s | FileCheck %s

import warnings

import sparse_opt
import sparse_opt.torch
import torch
from torch.nn import functional

OPERATIONS = {
    **{name: getattr(functional, name) for name in (
        "gelu", "elu", "selu", "celu", "silu", "mish", "softplus", "logsigmoid", "hardswish", "softsign")},
    **{name: getattr(torch, name) for name in ("expm1", "sinh", "erf", "sigmoid", "tanh")},
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "addcdiv": lambda x: torch.addcdiv(x, x.flip(0), x.flip(1).abs() + 1, value=0.3),
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
    "hypot": lambda x: torch.hypot(x, x.flip(0)),
    "layer norm": lambda x: functional.layer_norm(x, (64,)),
    "rms norm": lambda x: functional.rms_norm(x, (64,)),
    "softmax": lambda x: functional.softmax(x, -1),
    "smooth": lambda x: functional.smooth_l1_loss(x, x.flip(0), reduction="none"),
}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.p = torch.nn.Parameter(torch.zeros(2, 2))


warnings.simplefilter("ignore")
torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    x = (torch.randn(16, 64) * 2).to(dtype)
    results = lambda model, x: [f(x) + 0 * model.p.sum().to(x.dtype) for f in OPERATIONS.values()]
    step = sparse_opt.compile(sparse_opt.torch.export_function(results, Model(), x), [], check=0)
    for (name, function), got in zip(OPERATIONS.items(), step(x)):
        exact, theirs = function(x.double()), function(x)
        error, least = ((torch.as_tensor(y).double() - exact).abs() / (exact.abs() + 1e-3) for y in (got, theirs))
        assert error.max() <= 1.5 * least.max() + 1e-4, (dtype, name, error.max(), least.max())
print(len(OPERATIONS), "operations")  # CHECK: 24 operations
