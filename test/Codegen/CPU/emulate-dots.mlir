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
