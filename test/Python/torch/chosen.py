# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Methods of sparse training choose from PyTorch's tensors as from NumPy's arrays.

# RUN: %python %s | FileCheck %s

import torch

import sparse_opt

# CHECK: float16 [1, 3] [0, 2]
# CHECK: float32 [1, 3] [0, 2]
# CHECK: float64 [1, 3] [0, 2]
# CHECK: uint8 [1, 3] [0, 2]
# CHECK: int8 [1, 3] [0, 2]
# CHECK: int64 [1, 3] [0, 2]
for name in ("float16", "float32", "float64", "uint8", "int8", "int64"):
    numbers = torch.tensor([9, 0, 7, 1], dtype=getattr(torch, name))
    print(name, sparse_opt.lowest(numbers, 2).tolist(), sparse_opt.highest(numbers, 2).tolist())

# CHECK: strided [1] [0]
strided = torch.tensor([[9.0, 0.0], [1.0, 2.0]]).T[0]
print("strided", sparse_opt.lowest(strided, 1).tolist(), sparse_opt.highest(strided, 1).tolist())
