# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The notebook prints what it says.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t %python -u %S/../Inputs/notebook.py %src_root/examples/layers-torch.ipynb | FileCheck %s
# CHECK: {{[1-9][0-9]*}} cells
