# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The diff of the documentation makes the training script sparse.

# RUN: rm -rf %t && mkdir -p %t/examples
# RUN: sed -n '/^```diff$/,/^```$/p' %src_root/docs/python.md | grep -v '^```' > %t/sparse.diff
# RUN: cp %src_root/examples/train_torch.py %t/examples
# RUN: patch --directory=%t --strip=1 --fuzz=0 < %t/sparse.diff
# RUN: echo 'print(step.products, step.counters.pattern_updates)' >> %t/examples/train_torch.py
# RUN: %python %src_root/examples/train_torch.py | FileCheck %s --check-prefix=DENSE
# RUN: %python %t/examples/train_torch.py | FileCheck %s

# DENSE: step 100: loss 0.
# DENSE: step 300: loss 0.

# CHECK: step 100: loss 1.
# CHECK: step 300: loss {{0|1.[0-4]}}
# CHECK: norm of the first weight: {{[0-9]}}.
# CHECK: {'spmm': 1, 'spmm_transposed': 2, 'sddmm': 2, 'dense': 0, 'left_dense': 0} 3
