# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Random PyTorch programs against PyTorch: those of fixed seeds.

# RUN: rm -rf %t && %python %src_root/scripts/fuzz-programs --door torch --programs 8 --jobs 2 --output %t > %t.log; FileCheck %s < %t.log
# CHECK-NOT: {{^seed}}
# CHECK: 8 programs, 8 compiled: 8 ok
