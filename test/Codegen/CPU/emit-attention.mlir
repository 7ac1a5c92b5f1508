// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.cpu<vector_bits=256,num_registers=16>" --bsr-plan-clusters --bsr-emit --canonicalize | FileCheck %s

// A work item is 16 queries. While it multiplies six keys with them, rows of values come, a line each 16 features; while it
// adds to the sums of six queries, where these will be written.

#head = affine_map<(b, i, j, d, e) -> (b, i, d)>
#keys = affine_map<(b, i, j, d, e) -> (b, j, d)>
#values = affine_map<(b, i, j, d, e) -> (b, j, e)>
#result = affine_map<(b, i, j, d, e) -> (b, i, e)>

// CHECK-LABEL: func private @forward
// CHECK-SAME:    %[[V:[^:,]*]]: memref<3x64x32xf32>, %[[Y:[^:]*]]: memref<3x32x32xf32>
// CHECK:         scf.forall (%{{.*}}, %{{.*}}) in (3, 2) {
// CHECK-COUNT-12:  memref.prefetch %[[V]]{{.*}}, read
// CHECK:           scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK-COUNT-6:   memref.prefetch %[[Y]]{{.*}}, write
// CHECK:           scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK:         return
bsr.cluster private @forward(%q: tensor<3x32x16xf32>, %k: tensor<3x64x16xf32>, %v: tensor<3x64x32xf32>) -> (tensor<3x32x32xf32>) {
  %y, %lse = bsr.attention(%q, %k, %v) scale = 0.25 maps = [#head, #keys, #values, #result]
      : (tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x32xf32>) -> (tensor<3x32x32xf32>, tensor<2x3x32xf32>)
  bsr.yield %y : tensor<3x32x32xf32>
}

func.func @launch(%q: tensor<3x32x16xf32>, %k: tensor<3x64x16xf32>, %v: tensor<3x64x32xf32>) -> (tensor<3x32x32xf32>) {
  %e0 = tensor.empty() : tensor<3x32x32xf32>
  %r = bsr.launch @forward ins(%q, %k, %v : tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x32xf32>)
      outs(%e0 : tensor<3x32x32xf32>) -> tensor<3x32x32xf32>
  return %r : tensor<3x32x32xf32>
}

// -----

// A mask in memory is read in vectors, as bytes in the end (bsr-expand-i1).

#head = affine_map<(b, i, j, d, e) -> (b, i, d)>
#keys = affine_map<(b, i, j, d, e) -> (b, j, d)>
#values = affine_map<(b, i, j, d, e) -> (b, j, e)>
#result = affine_map<(b, i, j, d, e) -> (b, i, e)>
#mask = affine_map<(b, i, j, d, e) -> (j, i)>

// CHECK-LABEL: func private @masked
// CHECK-SAME:    %[[MASK:[^:, ]*]]: memref<64x32xi1>
// CHECK:         %[[LIVE:.*]] = vector.load %[[MASK]]{{.*}} : memref<64x32xi1>, vector<16xi1>
// CHECK:         arith.select %[[LIVE]], {{.*}} : vector<16xi1>, vector<16xf32>
// CHECK-NOT:     memref.load %[[MASK]]
// CHECK:         return
bsr.cluster private @masked(%q: tensor<3x32x16xf32>, %k: tensor<3x64x16xf32>, %v: tensor<3x64x32xf32>, %m: tensor<64x32xi1>) -> (tensor<3x32x32xf32>) {
  %y, %lse = bsr.attention(%q, %k, %v) mask %m scale = 0.25 maps = [#head, #keys, #values, #result, #mask]
      : (tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x32xf32>, tensor<64x32xi1>) -> (tensor<3x32x32xf32>, tensor<2x3x32xf32>)
  bsr.yield %y : tensor<3x32x32xf32>
}

func.func @launch(%q: tensor<3x32x16xf32>, %k: tensor<3x64x16xf32>, %v: tensor<3x64x32xf32>, %m: tensor<64x32xi1>) -> (tensor<3x32x32xf32>) {
  %e0 = tensor.empty() : tensor<3x32x32xf32>
  %r = bsr.launch @masked ins(%q, %k, %v, %m : tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x32xf32>, tensor<64x32xi1>)
      outs(%e0 : tensor<3x32x32xf32>) -> tensor<3x32x32xf32>
  return %r : tensor<3x32x32xf32>
}

// -----

// Features that lie one behind the other in lines of their own are not prefetched.

// CHECK-LABEL: func private @transposed
// CHECK-NOT:     memref.prefetch
// CHECK:         return
bsr.cluster private @transposed(%q: tensor<3x32x16xf32>, %k: tensor<3x64x16xf32>, %v: tensor<3x32x64xf32>) -> (tensor<3x32x32xf32>) {
  %y, %lse = bsr.attention(%q, %k, %v) scale = 0.25
      maps = [affine_map<(b, i, j, d, e) -> (b, i, d)>, affine_map<(b, i, j, d, e) -> (b, j, d)>,
              affine_map<(b, i, j, d, e) -> (b, e, j)>, affine_map<(b, i, j, d, e) -> (b, e, i)>]
      : (tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x32x64xf32>) -> (tensor<3x32x32xf32>, tensor<2x3x32xf32>)
  bsr.yield %y : tensor<3x32x32xf32>
}

func.func @launch(%q: tensor<3x32x16xf32>, %k: tensor<3x64x16xf32>, %v: tensor<3x32x64xf32>) -> (tensor<3x32x32xf32>) {
  %e0 = tensor.empty() : tensor<3x32x32xf32>
  %r = bsr.launch @transposed ins(%q, %k, %v : tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x32x64xf32>)
      outs(%e0 : tensor<3x32x32xf32>) -> tensor<3x32x32xf32>
  return %r : tensor<3x32x32xf32>
}

// -----

// While it adds to the gradients of 16 keys and values, a work item prefetches where these will be written, and the keys
// and values of the next 16, of which there may be none.

#head = affine_map<(b, i, j, d, e) -> (b, i, d)>
#keys = affine_map<(b, i, j, d, e) -> (b, j, d)>
#values = affine_map<(b, i, j, d, e) -> (b, j, e)>
#result = affine_map<(b, i, j, d, e) -> (b, i, e)>

// CHECK-LABEL: func private @gradient
// CHECK-SAME:    %{{[^:]*}}: memref<3x32x16xf32>, %[[K:[^:]*]]: memref<3x64x16xf32>, %[[V:[^:]*]]: memref<3x64x16xf32>,
// CHECK-SAME:    %{{[^:]*}}: memref<3x32x16xf32>, %[[DK:[^:,]*]]: memref<3x64x16xf32>, %[[DV:[^:,]*]]: memref<3x64x16xf32>)
// CHECK:         memref.prefetch %[[DV]]{{.*}}, write
// CHECK:         %[[NEXT:.*]] = arith.minui %{{.*}}, %c63
// CHECK:         memref.prefetch %[[V]][%{{.*}}, %[[NEXT]], %{{.*}}], read
// CHECK:         memref.prefetch %[[DK]]{{.*}}, write
// CHECK:         %[[NEXT:.*]] = arith.minui %{{.*}}, %c63
// CHECK:         memref.prefetch %[[K]][%{{.*}}, %[[NEXT]], %{{.*}}], read
// CHECK:         return
bsr.cluster private @gradient(%q: tensor<3x32x16xf32>, %k: tensor<3x64x16xf32>, %v: tensor<3x64x16xf32>, %y: tensor<3x32x16xf32>, %lse: tensor<2x3x32xf32>, %dy: tensor<3x32x16xf32>)
    -> (tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>) {
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %dy) scale = 0.25
      maps = [#head, #keys, #values, #result, #result, #head, #keys, #values]
      : (tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>, tensor<3x32x16xf32>, tensor<2x3x32xf32>, tensor<3x32x16xf32>)
      -> (tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>)
  bsr.yield %dq, %dk, %dv : tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>
}

func.func @launch(%q: tensor<3x32x16xf32>, %k: tensor<3x64x16xf32>, %v: tensor<3x64x16xf32>, %y: tensor<3x32x16xf32>, %lse: tensor<2x3x32xf32>, %dy: tensor<3x32x16xf32>) -> (tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>) {
  %e0 = tensor.empty() : tensor<3x32x16xf32>
  %e1 = tensor.empty() : tensor<3x64x16xf32>
  %e2 = tensor.empty() : tensor<3x64x16xf32>
  %r:3 = bsr.launch @gradient ins(%q, %k, %v, %y, %lse, %dy : tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>, tensor<3x32x16xf32>, tensor<2x3x32xf32>, tensor<3x32x16xf32>)
      outs(%e0, %e1, %e2 : tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>) -> tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>
  return %r#0, %r#1, %r#2 : tensor<3x32x16xf32>, tensor<3x64x16xf32>, tensor<3x64x16xf32>
}
