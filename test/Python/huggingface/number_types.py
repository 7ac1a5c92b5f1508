# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Weights of one type load into a step of another: exactly, rounded once, or not at all.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %s %t 2>/dev/null | FileCheck %s --implicit-check-not=accepted

import sys
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

import sparse_opt.torch
from refusals import refuse
from sparse_opt import huggingface
from twins import mse_step, sgd

path = Path(sys.argv[1]) / "weights.safetensors"


def compiled(dtype):
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).to(dtype)
    x = torch.ones(4, 16, dtype=dtype)
    export = sparse_opt.torch.export(mse_step, model, sgd(model.parameters()), x)
    marks = ["match=0.weight$ block=4x4 density=0.5"]
    return sparse_opt.compile(export, marks, pattern="random", options=["-O", "0"], check=0)


steps = {dtype: compiled(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)}


def load(dtype, **tensors):
    """Returns what a step has of tensors of a file."""
    safetensors.torch.save_file({k.replace("_", ".", 1): v for k, v in tensors.items()}, path)
    huggingface.load(steps[dtype], path)
    return steps[dtype].state_dict()


# All numbers of bf16, and the largest blocks of them.

weight = torch.arange(1, 257).reshape(16, 16).to(torch.bfloat16)
special = torch.tensor([0.0, -0.0, 1e-40, -3e38, float("inf"), float("nan"), 65536.0, 3.140625] * 2).bfloat16()
# CHECK: torch.float32 equal True, largest True
# CHECK: torch.bfloat16 equal True, largest True
for dtype in (torch.float32, torch.bfloat16):
    state = load(dtype, **{"0_weight": weight, "0_bias": special})
    equal = torch.equal(state["0.bias"].nan_to_num(7.0), special.to(dtype).nan_to_num(7.0))
    kept, dropped = state["0.weight"][8:], state["0.weight"][:8]
    print(dtype, f"equal {equal}, largest {torch.equal(kept, weight[8:].to(dtype)) and not dropped.any()}")

# Others are rounded once: f64 by f32 would be a tie here, and go down.
# CHECK: rounded True True
value = torch.full((16,), 1 + 2**-8 + 2**-40, dtype=torch.float64)
value[1:] = float("nan")
bias = load(torch.bfloat16, **{"0_bias": value})["0.bias"]
print("rounded", bool(bias[0] == 1 + 2**-7), bool(bias[1:].isnan().all()))

# CHECK: expected '0.bias' of values that f16 holds, but got 65536.0: export the step with another type of it
refuse(load, torch.float16, **{"0_bias": torch.full((16,), 65536.0)})
# CHECK: expected '1.num_batches_tracked' of values that i64 holds, but got 1.5: export the step with another type of it
refuse(load, torch.float32, **{"1_num_batches_tracked": torch.tensor(1.5)})
# CHECK: expected '0.bias' of a type that compiled steps hold, but got F8_E4M3: convert the file, to F32 or BF16
refuse(load, torch.float32, **{"0_bias": torch.ones(16).to(torch.float8_e4m3fn)})
# CHECK: tracked 7
print("tracked", int(load(torch.float32, **{"1_num_batches_tracked": torch.tensor(7, dtype=torch.int32)})["1.num_batches_tracked"]))
