// Debian's mlir-opt with the plugin knows the dialect and the passes.

// RUN: mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin %s \
// RUN:   --pass-pipeline='builtin.module(bsr-mark{match=w block=16x16 density=0.5},bsr-bind,func.func(bsr-propagate))' | FileCheck %s
// RUN: not mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline='builtin.module(bsr-bind)' 2>&1 | FileCheck %s --check-prefix=NO-PASS
// NO-PASS: 'bsr-bind' does not refer to a registered pass

!x = tensor<8x64xf32>
!w = tensor<64x48xf32>
!y = tensor<8x48xf32>
// CHECK: func.func @forward
// CHECK-SAME: %[[P:[a-z0-9]+]]: !bsr.pattern<64x48, block = 16x16, slots = 6>
// CHECK: bsr.spmm %[[P]]
func.func @forward(%w: !w {bsr.name = "w"}, %x: !x {bsr.name = "x"}) -> (!y {bsr.name = "y"}) {
  %zero = arith.constant dense<0.0> : !y
  %y = linalg.matmul ins(%x, %w : !x, !w) outs(%zero : !y) -> !y
  return %y : !y
}

// An operation that a plugin of the dialect reads, and that mlir-opt alone does not.
// RUN: mlir-opt --load-dialect-plugin=%plugin %S/../Install/Inputs/products.mlir | FileCheck %s --check-prefix=READ
// READ: bsr.spmm
// RUN: not mlir-opt %S/../Install/Inputs/products.mlir 2>&1 | FileCheck %s --check-prefix=ALONE
// ALONE: error:
