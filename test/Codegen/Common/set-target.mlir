// RUN: sparse-opt %s --split-input-file --bsr-set-target | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.cpu<vector_bits=512,num_registers=32,l1_bytes=49152>" | FileCheck %s --check-prefix=WIDE
// RUN: not sparse-opt %s --bsr-set-target=target=avx 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: not sparse-opt %s --bsr-set-target=target=unit 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not sparse-opt %s --bsr-set-target="target=#bsr.cpu<vector_bits=96>" 2>&1 | FileCheck %s --check-prefix=BITS
// RUN: sed 's/^module/module attributes {bsr.target = #bsr.cpu<num_registers = 32>}/' %s > %t.mlir
// RUN: sparse-opt %t.mlir --bsr-set-target | FileCheck %s --check-prefix=OWN
// RUN: sparse-opt %t.mlir --bsr-set-target="target=#bsr.cpu<num_registers=32>" | FileCheck %s --check-prefix=OWN
// RUN: not sparse-opt %t.mlir --bsr-set-target="target=#bsr.cpu<vector_bits=512>" 2>&1 | FileCheck %s --check-prefix=CONTRADICTION
// RUN: not sparse-opt %t.mlir --bsr-to-cpu="target=#bsr.cpu<vector_bits=512>" 2>&1 | FileCheck %s --check-prefix=CONTRADICTION

// CHECK: module attributes {bsr.target = #bsr.cpu}
// WIDE: module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32, l1_bytes = 49152>}
// WORD-NOT: attribute
// WORD: error: expected a target, such as #bsr.cpu or #bsr.cpu<vector_bits=512>, but got 'avx'
// OTHER: error: expected a target, such as #bsr.cpu or #bsr.cpu<vector_bits=512>, but got 'unit'
// BITS: error: expected vector_bits to be a power of 2 from 64 to 4096, but got 96
// OWN: module attributes {bsr.target = #bsr.cpu<num_registers = 32>}
// CONTRADICTION: error: expected the module's target to be #bsr.cpu<vector_bits = 512>, but got #bsr.cpu<num_registers = 32>
module {
}
