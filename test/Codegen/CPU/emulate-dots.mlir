// RUN: sparse-opt %s --split-input-file --bsr-emulate-dots --canonicalize | FileCheck %s
// RUN: echo "func.func @f() { return }" | sparse-opt --bsr-emulate-dots | FileCheck %s --check-prefix=NONE
// A module that has nothing of the dialect.
// NONE: func @f

module attributes {bsr.target = #bsr.cpu<bf16_dots = emulated>} {
  // The upper numbers of pairs come first; subnormal operands and sums are
  // zeros of their sign.
  // CHECK-LABEL: func @emulated
  // CHECK-SAME:    %[[SUM:.*]]: vector<4xf32>, %[[A:.*]]: vector<8xbf16>, %{{.*}}: vector<8xbf16>
  // CHECK-DAG:     %[[SIGN:.*]] = arith.constant dense<-2147483648> : vector<4xi32>
  // CHECK-DAG:     %[[EXPONENT:.*]] = arith.constant dense<2139095040> : vector<4xi32>
  // CHECK-DAG:     %[[UPPER:.*]] = arith.constant dense<-65536> : vector<4xi32>
  // CHECK-DAG:     %[[SHIFT:.*]] = arith.constant dense<16> : vector<4xi32>
  // CHECK-DAG:     %[[ZERO:.*]] = arith.constant dense<0> : vector<4xi32>
  // CHECK:         %[[WORDS:.*]] = vector.bitcast %[[A]] : vector<8xbf16> to vector<4xi32>
  // CHECK:         %[[BITS:.*]] = arith.andi %[[WORDS]], %[[UPPER]]
  // CHECK:         %[[FIELD:.*]] = arith.andi %[[BITS]], %[[EXPONENT]]
  // CHECK:         %[[IS:.*]] = arith.cmpi ne, %[[FIELD]], %[[ZERO]]
  // CHECK:         arith.select %[[IS]], %[[BITS]], %{{.*}} : vector<4xi1>, vector<4xi32>
  // CHECK:         math.fma
  // CHECK:         arith.shli %[[WORDS]], %[[SHIFT]]
  // CHECK:         math.fma
  // CHECK-NOT:     x86vector
  func.func @emulated(%sum: vector<4xf32>, %a: vector<8xbf16>, %b: vector<8xbf16>) -> vector<4xf32> {
    %y = x86vector.avx512.dot %sum, %a, %b : vector<8xbf16> -> vector<4xf32>
    return %y : vector<4xf32>
  }
}

// -----

module attributes {bsr.target = #bsr.cpu<bf16_dots = native>} {
  // CHECK-LABEL: func @native
  // CHECK:         x86vector.avx512.dot
  func.func @native(%sum: vector<4xf32>, %a: vector<8xbf16>, %b: vector<8xbf16>) -> vector<4xf32> {
    %y = x86vector.avx512.dot %sum, %a, %b : vector<8xbf16> -> vector<4xf32>
    return %y : vector<4xf32>
  }
}

// -----

module attributes {bsr.target = #bsr.cpu<bf16_tiles = emulated>} {
  // A tile is its rows. Each row of sums takes two sums of products, of the lower and of the upper numbers of pairs, and
  // loops carry rows.
  // CHECK-LABEL: func @tiles
  // CHECK-NOT:     amx.
  // CHECK:         scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>)
  // CHECK:           vector.load %{{.*}} : memref<4x4xbf16>, vector<4xbf16>
  // CHECK:           scf.for
  // CHECK:             %[[PAIRS:.*]]:2 = scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>)
  // CHECK:               arith.shli
  // CHECK:               math.fma
  // CHECK:               math.fma
  // CHECK:             arith.addf %[[PAIRS]]#0, %[[PAIRS]]#1
  // CHECK:             arith.addf
  // CHECK:         vector.store %{{.*}} : memref<2x16xf32>, vector<16xf32>
  // CHECK:         vector.store %{{.*}} : memref<2x16xf32>, vector<16xf32>
  // CHECK-NOT:     amx.
  func.func @tiles(%a: memref<4x4xbf16>, %b: memref<2x32xbf16>, %y: memref<2x16xf32>, %n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %zero = amx.tile_zero : !amx.tile<2x16xf32>
    %sums = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %zero) -> (!amx.tile<2x16xf32>) {
      %l = amx.tile_load %a[%i, %c0] : memref<4x4xbf16> into !amx.tile<2x4xbf16>
      %r = amx.tile_load %b[%c0, %c0] : memref<2x32xbf16> into !amx.tile<2x32xbf16>
      %next = amx.tile_mulf %l, %r, %sum : !amx.tile<2x4xbf16>, !amx.tile<2x32xbf16>, !amx.tile<2x16xf32>
      scf.yield %next : !amx.tile<2x16xf32>
    }
    amx.tile_store %y[%c0, %c0], %sums : memref<2x16xf32>, !amx.tile<2x16xf32>
    return
  }
}

// -----

module attributes {bsr.target = #bsr.cpu<bf16_tiles = amx>} {
  // CHECK-LABEL: func @amx
  // CHECK:         amx.tile_zero
  func.func @amx(%y: memref<2x16xf32>) {
    %c0 = arith.constant 0 : index
    %zero = amx.tile_zero : !amx.tile<2x16xf32>
    amx.tile_store %y[%c0, %c0], %zero : memref<2x16xf32>, !amx.tile<2x16xf32>
    return
  }
}
