// RUN: sparse-opt %s --split-input-file --bsr-expand-bf16 | FileCheck %s

// Tiles are of bf16 all the same. Sums of tiles, whose rounding says how it rounds, are rounded by an instruction, two
// vectors at once, the lower lanes last; all others by integers, as a subnormal number may be among them.
module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32, bf16_tiles = amx>} {
  // CHECK-LABEL: func @amx
  // CHECK:         amx.tile_load %{{.*}} : memref<16x32xi16> into !amx.tile<16x32xbf16>
  func.func @amx(%a: memref<16x32xbf16>, %y: memref<16x16xf32>) {
    %c0 = arith.constant 0 : index
    %zero = amx.tile_zero : !amx.tile<16x16xf32>
    %l = amx.tile_load %a[%c0, %c0] : memref<16x32xbf16> into !amx.tile<16x32xbf16>
    %s = amx.tile_mulf %l, %l, %zero : !amx.tile<16x32xbf16>, !amx.tile<16x32xbf16>, !amx.tile<16x16xf32>
    amx.tile_store %y[%c0, %c0], %s : memref<16x16xf32>, !amx.tile<16x16xf32>
    return
  }
  // CHECK-LABEL: func @rounded
  // CHECK-SAME:    %[[X:.*]]: vector<32xf32>, %[[Z:.*]]: vector<16xf32>
  // CHECK-DAG:     %[[LOW:.*]] = vector.extract_strided_slice %[[X]] {offsets = [0]
  // CHECK-DAG:     %[[HIGH:.*]] = vector.extract_strided_slice %[[X]] {offsets = [16]
  // CHECK:         %[[BOTH:.*]] = llvm.call_intrinsic "llvm.x86.avx512bf16.cvtne2ps2bf16.512"(%[[HIGH]], %[[LOW]]) : (vector<16xf32>, vector<16xf32>) -> vector<32xbf16>
  // CHECK:         llvm.bitcast %[[BOTH]] : vector<32xbf16> to vector<32xi16>
  // CHECK:         %[[ONE:.*]] = llvm.call_intrinsic "llvm.x86.avx512bf16.cvtneps2bf16.512"(%[[Z]]) : (vector<16xf32>) -> vector<16xbf16>
  // CHECK:         llvm.bitcast %[[ONE]] : vector<16xbf16> to vector<16xi16>
  func.func @rounded(%x: vector<32xf32>, %z: vector<16xf32>) -> (vector<32xbf16>, vector<16xbf16>) {
    %y = arith.truncf %x to_nearest_even : vector<32xf32> to vector<32xbf16>
    %w = arith.truncf %z to_nearest_even : vector<16xf32> to vector<16xbf16>
    return %y, %w : vector<32xbf16>, vector<16xbf16>
  }
  // CHECK-LABEL: func @any
  // CHECK-NOT:     call_intrinsic
  // CHECK:         arith.trunci
  func.func @any(%x: vector<16xf32>) -> vector<16xbf16> {
    %y = arith.truncf %x : vector<16xf32> to vector<16xbf16>
    return %y : vector<16xbf16>
  }
}

// -----

module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32, bf16_tiles = emulated>} {
  // CHECK-LABEL: func @emulated
  // CHECK-NOT:     call_intrinsic
  // CHECK:         arith.trunci
  func.func @emulated(%x: vector<16xf32>) -> vector<16xbf16> {
    %y = arith.truncf %x to_nearest_even : vector<16xf32> to vector<16xbf16>
    return %y : vector<16xbf16>
  }
}
