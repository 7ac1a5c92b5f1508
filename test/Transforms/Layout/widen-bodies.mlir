// RUN: sparse-opt %s --bsr-widen-bodies | FileCheck %s

#id = affine_map<(i) -> (i)>

// CHECK-LABEL: func @sigmoid
func.func @sigmoid(%x: tensor<8xf16>) -> tensor<8xf16> {
  %one = arith.constant 1.0 : f16
  %e = tensor.empty() : tensor<8xf16>
  // CHECK: ^bb0(%[[IN:.*]]: f16, %{{.*}}: f16):
  // CHECK-NEXT: %[[X:.*]] = arith.extf %[[IN]] : f16 to f32
  // CHECK-NEXT: %[[NEG:.*]] = arith.negf %[[X]] : f32
  // CHECK-NEXT: %[[EXP:.*]] = math.exp %[[NEG]] : f32
  // CHECK-NEXT: %[[ONE:.*]] = arith.extf %{{.*}} : f16 to f32
  // CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[EXP]], %[[ONE]] : f32
  // CHECK-NEXT: %[[DIV:.*]] = arith.divf %[[ONE]], %[[SUM]] : f32
  // CHECK-NEXT: %[[Y:.*]] = arith.truncf %[[DIV]] : f32 to f16
  // CHECK-NEXT: linalg.yield %[[Y]] : f16
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf16>) outs(%e : tensor<8xf16>) {
  ^bb0(%in: f16, %out: f16):
    %0 = arith.negf %in : f16
    %1 = math.exp %0 : f16
    %2 = arith.addf %1, %one : f16
    %3 = arith.divf %one, %2 : f16
    linalg.yield %3 : f16
  } -> tensor<8xf16>
  return %y : tensor<8xf16>
}

// One operation rounds once as it is.
// CHECK-LABEL: func @single
func.func @single(%x: tensor<8xbf16>) -> tensor<8xbf16> {
  %e = tensor.empty() : tensor<8xbf16>
  // CHECK: math.tanh %{{.*}} : bf16
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = math.tanh %in : bf16
    linalg.yield %0 : bf16
  } -> tensor<8xbf16>
  return %y : tensor<8xbf16>
}

// Comparisons, choices, integers, what the program itself rounds or widens.
// CHECK-LABEL: func @kinds
func.func @kinds(%x: tensor<8xbf16>, %n: tensor<8xi32>) -> (tensor<8xbf16>, tensor<8xf64>, tensor<8xi1>) {
  %e = tensor.empty() : tensor<8xbf16>
  %e64 = tensor.empty() : tensor<8xf64>
  %e1 = tensor.empty() : tensor<8xi1>
  // CHECK: ^bb0(%[[IN:.*]]: bf16, %[[N:.*]]: i32,
  // CHECK-DAG: %[[K:.*]] = arith.sitofp %[[N]] : i32 to f32
  // CHECK-DAG: %[[X:.*]] = arith.extf %[[IN]] : bf16 to f32
  // CHECK: %[[SUM:.*]] = arith.addf %[[X]], %[[K]] : f32
  // CHECK: %[[IS:.*]] = arith.cmpf ogt, %[[SUM]], %[[X]] : f32
  // CHECK: %[[ONE:.*]] = arith.select %[[IS]], %[[SUM]], %[[X]] : f32
  // CHECK: %[[WIDE:.*]] = arith.extf %[[ONE]] : f32 to f64
  // CHECK: %[[NARROW:.*]] = arith.truncf %[[WIDE]] : f64 to bf16
  // CHECK: %[[AGAIN:.*]] = arith.extf %[[NARROW]] : bf16 to f32
  // CHECK: %[[LAST:.*]] = arith.mulf %[[AGAIN]], %[[X]] : f32
  // CHECK: %[[Y:.*]] = arith.truncf %[[LAST]] : f32 to bf16
  // CHECK: linalg.yield %[[Y]], %[[WIDE]], %[[IS]] : bf16, f64, i1
  %y:3 = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %n : tensor<8xbf16>, tensor<8xi32>) outs(%e, %e64, %e1 : tensor<8xbf16>, tensor<8xf64>, tensor<8xi1>) {
  ^bb0(%in: bf16, %k: i32, %o0: bf16, %o1: f64, %o2: i1):
    %0 = arith.sitofp %k : i32 to bf16
    %1 = arith.addf %in, %0 : bf16
    %2 = arith.cmpf ogt, %1, %in : bf16
    %3 = arith.select %2, %1, %in : bf16
    %4 = arith.extf %3 : bf16 to f64
    %5 = arith.truncf %4 : f64 to bf16
    %6 = arith.mulf %5, %in : bf16
    linalg.yield %6, %4, %2 : bf16, f64, i1
  } -> (tensor<8xbf16>, tensor<8xf64>, tensor<8xi1>)
  return %y#0, %y#1, %y#2 : tensor<8xbf16>, tensor<8xf64>, tensor<8xi1>
}

// Bits are those of the half.
// CHECK-LABEL: func @bits
func.func @bits(%x: tensor<8xbf16>) -> tensor<8xi16> {
  %e = tensor.empty() : tensor<8xi16>
  // CHECK: math.exp %{{.*}} : bf16
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xbf16>) outs(%e : tensor<8xi16>) {
  ^bb0(%in: bf16, %out: i16):
    %0 = math.exp %in : bf16
    %1 = arith.addf %0, %in : bf16
    %2 = arith.bitcast %1 : bf16 to i16
    linalg.yield %2 : i16
  } -> tensor<8xi16>
  return %y : tensor<8xi16>
}
