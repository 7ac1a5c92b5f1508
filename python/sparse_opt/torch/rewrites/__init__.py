# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Rewrites of operations of PyTorch.

"""Operations in terms of those that torch-mlir lowers and the compiler knows.

A rewrite computes what PyTorch does, of tensors alone. It knows neither the step nor
its arguments.
"""
