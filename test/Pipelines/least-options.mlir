// RUN: not sparse-opt %s --bsr-unroll=max-operations=0 2>&1 | FileCheck %s --check-prefix=OPERATIONS
// RUN: not sparse-opt %s --bsr-to-cpu=max-operations=0 2>&1 | FileCheck %s --check-prefix=OPERATIONS
// RUN: not sparse-compile %s --max-operations=0 -o %t.so 2>&1 | FileCheck %s --check-prefix=OPERATIONS
// RUN: not sparse-opt %s --bsr-recompute=max-cost=-5 2>&1 | FileCheck %s --check-prefix=COST
// RUN: not sparse-opt %s --bsr-find-attention=min-keys=0 2>&1 | FileCheck %s --check-prefix=KEYS
// RUN: not sparse-compile %s --attention-keys=-1 -o %t.so 2>&1 | FileCheck %s --check-prefix=KEYS-NEGATIVE

// Numbers that mean nothing are refused.

// OPERATIONS: error: expected max-operations to be 1 or greater, but got 0
// COST: error: expected max-cost to be 0 or greater, but got -5
// KEYS: error: expected the fewest keys of attention to be 1 or greater, but got 0
// KEYS-NEGATIVE: error: expected the fewest keys of attention to be 1 or greater, but got -1
func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}
