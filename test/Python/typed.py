# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The package is typed, and says so to those who use it.

# REQUIRES: test, torch, huggingface
# RUN: cd %src_root/python && %python -m mypy --cache-dir %t sparse_opt | FileCheck %s --check-prefix=PACKAGE
# RUN: not %python -m mypy --strict --cache-dir %t %s | FileCheck %s

# PACKAGE: Success: no issues found

import numpy as np

import sparse_opt

step = sparse_opt.compile("", ["match=w"])
array: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = step.read("w")
# CHECK-NOT: error:
# CHECK: typed.py:[[@LINE+1]]: error: Argument "seed" to "compile" has incompatible type "str"; expected "int"
sparse_opt.compile("", seed="zero")
# CHECK-NOT: error:
mark = sparse_opt.Mark("w", block="8x8", density=0.5)
for weight in sparse_opt.explain("", [mark, {"match": "v"}, "match=u"]).weights:
    shape: tuple[int, ...] = weight.shape
# CHECK: typed.py:[[@LINE+1]]: error: Unexpected keyword argument "densty" for "Mark"
sparse_opt.Mark("w", densty=0.5)
# CHECK-NOT: error:
