# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The table of graphs: rows of PyTorch that need nothing of Hugging Face.

# RUN: %src_root/scripts/graphs --framework torch --filter 'MLP (AdamW|LAMB) f32|decoder SGD' | FileCheck %s

# CHECK: | torch | decoder | SGD | f32 | 14 | 42 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} |
# CHECK: | torch | MLP | AdamW | f32 | 2 | 5 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[5-9]|1.)}} |
# CHECK-NEXT: | torch | MLP | LAMB | f32 | 2 | 5 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[5-9]|1.)}} |
