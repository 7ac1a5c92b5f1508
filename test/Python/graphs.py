# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The table of graphs: rows of JAX; that of PyTorch is beside its other tests.

# RUN: %src_root/scripts/graphs --framework jax --filter 'jax (masked )?MLP AdamW f32|scan over layers|unroll|heads AdamW f32' | FileCheck %s

# CHECK: | framework | model | optimizer | type | weights | sparse products | left dense | loss | parameters |
# CHECK-NEXT: |---|---|---|---|---:|---:|---:|---:|---:|
# CHECK-NEXT: | jax | masked MLP | AdamW | f32 | 2 | 5 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[5-9]|1.)}} |
# CHECK-NEXT: | jax | masked scan over layers | AdamW | f32 | 18 | 54 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[5-9]|1.)}} |
# CHECK-NEXT: | jax | MLP | AdamW | f32 | 2 | 5 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[5-9]|1.)}} |
# CHECK-NEXT: | jax | heads | AdamW | f32 | 12 | 36 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[5-9]|1.)}} |
# CHECK-NEXT: | jax | scan over layers | AdamW | f32 | 18 | 54 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[5-9]|1.)}} |
# CHECK-NEXT: | jax | scan, unroll=2 | AdamW | f32 | 18 | 54 | 0 | {{0.0e[+]00|[^ ]*e-(0[6-9]|1.)}} | {{0.0e[+]00|[^ ]*e-(0[5-9]|1.)}} |
# CHECK-NOT: {{.}}
