// Passes keep what a program says of how its kernels go through products, and kernels do it.
//
// RUN: sparse-opt %s --bsr-layout --bsr-fold-bias --bsr-cluster | FileCheck %s --check-prefix=KEPT
// RUN: sparse-opt %s --bsr-layout --bsr-fold-bias --bsr-cluster --bsr-panel --bsr-emit --canonicalize | FileCheck %s
// RUN: sed s/\"inner\"/\"gather\"/ %s | not sparse-opt --bsr-layout --bsr-fold-bias --bsr-cluster 2>&1 | FileCheck %s --check-prefix=REFUSED
// REFUSED:     error: 'bsr.sddmm' op expected the walk of bsr.schedule to be outer or inner, but got gather
// REFUSED-NOT: error:

!p = !bsr.pattern<64x64, block = 16x16, slots = 5>
!v = tensor<5x16x16xf32>
!x = tensor<1024x64xf32>

// KEPT: bsr.spmm {{.*}} bias {{.*}} feature_dim = 0 {{.*}}bsr.schedule = {ahead = 0 : i64, rows = 4 : i64, walk = "gather"}
// KEPT: bsr.spmm {{.*}} transpose feature_dim = 0 {{.*}}bsr.schedule = {panels = 2 : i64, rows = 3 : i64, walk = "gather"}
// KEPT: bsr.sddmm {{.*}} feature_dim = 0 {{.*}}bsr.schedule = {walk = "inner"}

// A bias and four tiles of four rows, each of two registers of eight; nothing is prefetched.
// CHECK-LABEL: func private @{{.*}}spmm
// CHECK-NOT:     prefetch
// CHECK:         scf.for %{{.*}} = %c0 to %c4
// CHECK-COUNT-4:   memref.load
// CHECK-NOT:     prefetch
// CHECK:           scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK-NOT:     prefetch
// CHECK:         return

// Tiles of at most three rows, and two panels.
// CHECK-LABEL: func private @{{.*}}spmm
// CHECK:         scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK:           memref.prefetch
// CHECK:         return

// Vectors along tokens, in place of columns that are transposed.
// CHECK-LABEL: func private @{{.*}}sddmm
// CHECK-NOT:     vector.shuffle{{.*}} vector<16xf32>
// CHECK:         scf.for {{.*}} -> (vector<8xf32>
// CHECK:         return
func.func @step(%p: !p, %w: !v, %x: !x, %dy: !x, %b: tensor<64xf32>) -> (!x, !x, !v) {
  %0 = bsr.spmm %p, %w, %x bias %b feature_dim = 1 {bsr.schedule = {walk = "gather", rows = 4 : i64, ahead = 0 : i64}} : !p, !v, !x, tensor<64xf32> -> !x
  %1 = bsr.spmm %p, %w, %dy transpose feature_dim = 1 {bsr.schedule = {walk = "gather", rows = 3 : i64, panels = 2 : i64}} : !p, !v, !x -> !x
  %2 = bsr.sddmm %p, %x, %dy feature_dim = 1 {bsr.schedule = {walk = "inner"}} : !p, !x, !x -> !v
  return %0, %1, %2 : !x, !x, !v
}
