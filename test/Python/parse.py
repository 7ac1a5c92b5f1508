# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Every exported step is valid, and holds no operation of a foreign dialect.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %S/Inputs/models.py %t
# RUN: sparse-opt %t/gpt.mlir -o /dev/null
# RUN: sparse-opt %t/mixer.mlir -o /dev/null
# RUN: sparse-opt %t/einsum_mixer.mlir -o /dev/null
# RUN: sparse-opt %t/clipped_bert.mlir -o /dev/null
# RUN: sparse-opt %t/torch_style.mlir -o /dev/null
# RUN: sparse-opt %t/scanned.mlir -o /dev/null
# RUN: sparse-opt %t/dropout.mlir -o /dev/null
# RUN: gzip -dc %src_root/examples/bert_base.mlir.gz | sparse-opt -o /dev/null
