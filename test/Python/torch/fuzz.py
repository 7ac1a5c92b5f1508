# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Random PyTorch programs against PyTorch: those of fixed seeds.

# RUN: rm -rf %t && %python %src_root/scripts/fuzz-programs --framework torch --programs 8 --jobs 2 --output %t > %t.log; FileCheck %s < %t.log
# CHECK-NOT: {{^seed}}
# CHECK: 8 programs, 8 compiled: 8 ok

# Gradients that are roundings alone, of which Adagrad makes whole steps; a place and a gradient of a maximum, of a value that
# several kernels compute.

# RUN: %python %src_root/scripts/fuzz-programs --framework torch --seed 9743009 --programs 1 --output %t | FileCheck %s --check-prefix=ONE
# RUN: %python %src_root/scripts/fuzz-programs --framework torch --seed 9743098 --programs 1 --output %t | FileCheck %s --check-prefix=ONE
# RUN: %python %src_root/scripts/fuzz-programs --framework torch --seed 9743246 --programs 1 --output %t | FileCheck %s --check-prefix=ONE
# ONE: 1 programs, 1 compiled: 1 ok
