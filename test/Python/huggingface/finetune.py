# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The example fine-tunes a small BERT, which transformers then loads.

# RUN: %python %src_root/examples/finetune_bert.py %src_root/docs/python.md \
# RUN:   %src_root/docs/kernels.md %src_root/README.md --other \
# RUN:   %src_root/lib/Transforms/Sparsity/Propagate.cpp %src_root/lib/Transforms/Sparsity/Mark.cpp \
# RUN:   --steps 60 --output %t 2>/dev/null | FileCheck %s

# CHECK: step 20: loss
# CHECK: step 60: loss 0.
# CHECK: held out: {{[6-9][0-9]|100}}% right; zeros in the encoder: 5{{[0-2]}}%
