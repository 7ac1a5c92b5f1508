# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The exported steps in the repository are what their generator writes.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %src_root/examples/generate.py --output-dir %t
# RUN: cmp %t/bert_tiny.mlir.gz %src_root/examples/bert_tiny.mlir.gz
# RUN: cmp %t/bert_tiny-bf16.mlir.gz %src_root/examples/bert_tiny-bf16.mlir.gz
# RUN: cmp %t/bert_mini.mlir.gz %src_root/examples/bert_mini.mlir.gz
# RUN: cmp %t/bert_base.mlir.gz %src_root/examples/bert_base.mlir.gz
# RUN: cmp %t/bert_base-all.mlir.gz %src_root/examples/bert_base-all.mlir.gz
# RUN: cmp %t/bert_base-encoder.mlir.gz %src_root/examples/bert_base-encoder.mlir.gz
# RUN: cmp %t/bert_base-bf16.mlir.gz %src_root/examples/bert_base-bf16.mlir.gz
# RUN: cmp %t/gpt2-bf16.mlir.gz %src_root/examples/gpt2-bf16.mlir.gz
# RUN: cmp %t/gpt2-tiny-bf16.mlir.gz %src_root/examples/gpt2-tiny-bf16.mlir.gz
# RUN: cmp %t/llama_tiny.mlir.gz %src_root/examples/llama_tiny.mlir.gz
# RUN: cmp %t/llama_9m.mlir.gz %src_root/examples/llama_9m.mlir.gz
# RUN: cmp %t/llama_20m.mlir.gz %src_root/examples/llama_20m.mlir.gz
# RUN: cmp %t/llama_60m.mlir.gz %src_root/examples/llama_60m.mlir.gz
# RUN: cmp %t/bert_w32.mlir.gz %src_root/examples/bert_w32.mlir.gz
# RUN: cmp %t/bert_w64.mlir.gz %src_root/examples/bert_w64.mlir.gz
# RUN: cmp %t/bert_w128.mlir.gz %src_root/examples/bert_w128.mlir.gz

# RUN: %python %src_root/examples/generate.py --accumulate --output-dir %t tiny
# RUN: cmp %t/bert_tiny_accumulate.mlir.gz %src_root/examples/bert_tiny_accumulate.mlir.gz

# RUN: %python %src_root/examples/generate.py --accumulate --batch 1 --output-dir %t tiny
# RUN: cmp %t/bert_tiny_accumulate.mlir.gz %src_root/test/Integration/Inputs/bert_tiny_accumulate.mlir.gz

# RUN: %python %src_root/examples/generate.py --clip 0.5 --batch 2 --output-dir %t tiny tiny-bf16
# RUN: cmp %t/bert_tiny_clipped.mlir.gz %src_root/test/Integration/Inputs/bert_tiny_clipped.mlir.gz
# RUN: cmp %t/bert_tiny-bf16_clipped.mlir.gz %src_root/test/Integration/Inputs/bert_tiny-bf16_clipped.mlir.gz

# RUN: %python %src_root/test/Integration/Inputs/export-optimizers.py %t
# RUN: cmp %t/adamw.mlir.gz %src_root/test/Integration/Inputs/optimizers/adamw.mlir.gz
# RUN: cmp %t/clipped.mlir.gz %src_root/test/Integration/Inputs/optimizers/clipped.mlir.gz
# RUN: cmp %t/lamb.mlir.gz %src_root/test/Integration/Inputs/optimizers/lamb.mlir.gz
# RUN: cmp %t/scaled.mlir.gz %src_root/test/Integration/Inputs/optimizers/scaled.mlir.gz
# RUN: cmp %t/scaled-all.mlir.gz %src_root/test/Integration/Inputs/optimizers/scaled-all.mlir.gz

# RUN: not %python %src_root/examples/generate.py --output-dir %t huge 2>&1 \
# RUN:   | FileCheck %s
# CHECK: expected a size of tiny, tiny-bf16, mini, base, base-all, base-encoder, base-bf16, gpt2-bf16, gpt2-tiny-bf16, llama_tiny, llama_9m, llama_20m, llama_60m, w32, w64, w128, gpt2, gpt2-tiny, large, 4.9b, but got 'huge'
