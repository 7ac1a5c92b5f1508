// RUN: sparse-opt %s --split-input-file --bsr-verify-lowered --verify-diagnostics

!pattern = !bsr.pattern<8x8, block = 4x4, slots = 2>

func.func @operation() {
  // expected-error @below {{expected no operation of the bsr dialect after lowering, but got 'bsr.constant_pattern'}}
  %p = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [0, 1] : !pattern
  return
}

// -----

func.func @operand(%p: !bsr.pattern<8x8, block = 4x4, slots = 2>) {
  // expected-error @below {{expected no operation of the bsr dialect after lowering, but got 'builtin.unrealized_conversion_cast'}}
  %0 = builtin.unrealized_conversion_cast %p : !bsr.pattern<8x8, block = 4x4, slots = 2> to i32
  return
}

// -----

llvm.func @malloc(i64) -> !llvm.ptr
llvm.func @tanhf(f32) -> f32

llvm.func @allocation(%x: f32) {
  %size = llvm.mlir.constant(64 : i64) : i64
  %0 = llvm.call @tanhf(%x) : (f32) -> f32
  // expected-error @below {{expected no allocation after lowering, but got a call of 'malloc'}}
  %1 = llvm.call @malloc(%size) : (i64) -> !llvm.ptr
  llvm.return
}
