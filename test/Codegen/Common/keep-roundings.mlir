// RUN: sparse-opt %s --bsr-keep-roundings --canonicalize | FileCheck %s

// CHECK-LABEL: func @chain
func.func @chain(%x: vector<4xf32>) -> (vector<4xf32>, i1) {
  // CHECK: %[[NARROW:.*]] = arith.truncf %{{.*}} : vector<4xf32> to vector<4xbf16>
  %0 = arith.truncf %x fastmath<contract> : vector<4xf32> to vector<4xbf16>
  // CHECK: %[[WIDE:.*]] = arith.extf %[[NARROW]] : vector<4xbf16> to vector<4xf32>
  %1 = arith.extf %0 fastmath<contract> : vector<4xbf16> to vector<4xf32>
  %2 = vector.extract %1[0] : f32 from vector<4xf32>
  // What is not folded keeps its flags.
  // CHECK: arith.cmpf ogt, %{{.*}}, %{{.*}} fastmath<nnan> : f32
  %3 = vector.extract %1[1] : f32 from vector<4xf32>
  %4 = arith.cmpf ogt, %2, %3 fastmath<nnan> : f32
  // CHECK: return %[[WIDE]]
  return %1, %4 : vector<4xf32>, i1
}
