// RUN: sparse-opt %s --split-input-file --bsr-split-concats --cse | FileCheck %s

// Columns side by side: two products side by side. Of what updates the weights, each
// takes its own product.

// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    %[[V:[^:]*]]: tensor<8x4xf32>
// CHECK-SAME:    %[[W:[^:]*]]: tensor<8x12xf32>
// CHECK-SAME:    %[[X:[^:]*]]: tensor<5x8xf32>, %[[D:[^:]*]]: tensor<5x16xf32>
// CHECK-DAG:     %[[XV:.*]] = linalg.matmul ins(%[[X]], %[[V]] : {{.*}} -> tensor<5x4xf32>
// CHECK-DAG:     %[[XW:.*]] = linalg.matmul ins(%[[X]], %[[W]] : {{.*}} -> tensor<5x12xf32>
// CHECK-DAG:     %[[Y:.*]] = tensor.insert_slice %[[XV]] into %{{.*}}[0, 0] [5, 4] [1, 1]
// CHECK-DAG:     %[[YY:.*]] = tensor.insert_slice %[[XW]] into %[[Y]][0, 4] [5, 12] [1, 1]
// CHECK-DAG:     %[[DV:.*]] = tensor.extract_slice %[[D]][0, 0] [5, 4] [1, 1]
// CHECK-DAG:     %[[DW:.*]] = tensor.extract_slice %[[D]][0, 4] [5, 12] [1, 1]
// CHECK-DAG:     %[[GV:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[DV]] : tensor<5x8xf32>, tensor<5x4xf32>)
// CHECK-DAG:     %[[GW:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[DW]] : tensor<5x8xf32>, tensor<5x12xf32>)
// CHECK:         return %[[YY]], %[[GV]], %[[GW]]
#tr = affine_map<(r, c, t) -> (t, r)>
#tc = affine_map<(r, c, t) -> (t, c)>
#rc = affine_map<(r, c, t) -> (r, c)>
func.func @columns(%v: tensor<8x4xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "v">, bsr.name = "v"},
                   %w: tensor<8x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">, bsr.name = "w"},
                   %x: tensor<5x8xf32>, %d: tensor<5x16xf32>)
    -> (tensor<5x16xf32>, tensor<8x4xf32>, tensor<8x12xf32>) {
  %zero = arith.constant dense<0.0> : tensor<5x16xf32>
  %zeros = arith.constant dense<0.0> : tensor<8x16xf32>
  %vw = tensor.concat dim(1) %v, %w : (tensor<8x4xf32>, tensor<8x12xf32>) -> tensor<8x16xf32>
  %y = linalg.matmul ins(%x, %vw : tensor<5x8xf32>, tensor<8x16xf32>) outs(%zero : tensor<5x16xf32>) -> tensor<5x16xf32>
  %g = linalg.generic {indexing_maps = [#tr, #tc, #rc], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %d : tensor<5x8xf32>, tensor<5x16xf32>) outs(%zeros : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x16xf32>
  %gv = tensor.extract_slice %g[0, 0] [8, 4] [1, 1] : tensor<8x16xf32> to tensor<8x4xf32>
  %gw = tensor.extract_slice %g[0, 4] [8, 12] [1, 1] : tensor<8x16xf32> to tensor<8x12xf32>
  return %y, %gv, %gw : tensor<5x16xf32>, tensor<8x4xf32>, tensor<8x12xf32>
}

// -----

// Rows that are summed: the sum of two products, with slices of the other factor. A
// transpose on the way is one of each piece; where slices are inserted in another
// order, and where one of the pieces has no mark, all is the same.

// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[V:[^:]*]]: tensor<6x4xf32>
// CHECK-SAME:    %[[W:[^:]*]]: tensor<6x8xf32>
// CHECK-SAME:    %[[X:[^:]*]]: tensor<5x12xf32>, %[[C:[^:]*]]: tensor<5x6xf32>
// CHECK-DAG:     %[[VT:.*]] = linalg.transpose ins(%[[V]] : {{.*}} outs(%{{.*}} : tensor<4x6xf32>)
// CHECK-DAG:     %[[WT:.*]] = linalg.transpose ins(%[[W]] : {{.*}} outs(%{{.*}} : tensor<8x6xf32>)
// CHECK-DAG:     %[[XV:.*]] = tensor.extract_slice %[[X]][0, 0] [5, 4] [1, 1]
// CHECK-DAG:     %[[XW:.*]] = tensor.extract_slice %[[X]][0, 4] [5, 8] [1, 1]
// CHECK-DAG:     %[[S:.*]] = linalg.matmul ins(%[[XV]], %[[VT]] : {{.*}}) outs(%[[C]] :
// CHECK-DAG:     %[[Y:.*]] = linalg.matmul ins(%[[XW]], %[[WT]] : {{.*}}) outs(%[[S]] :
// CHECK:         return %[[Y]]
func.func @rows(%v: tensor<6x4xf32> {bsr.name = "v"},
                %w: tensor<6x8xf32> {bsr.mark = #bsr.mark<block = 2x4, density = 0.5, weight = "w">, bsr.name = "w"},
                %x: tensor<5x12xf32>, %c: tensor<5x6xf32>) -> tensor<5x6xf32> {
  %e = tensor.empty() : tensor<6x12xf32>
  %et = tensor.empty() : tensor<12x6xf32>
  %0 = tensor.insert_slice %w into %e[0, 4] [6, 8] [1, 1] : tensor<6x8xf32> into tensor<6x12xf32>
  %1 = tensor.insert_slice %v into %0[0, 0] [6, 4] [1, 1] : tensor<6x4xf32> into tensor<6x12xf32>
  %t = linalg.transpose ins(%1 : tensor<6x12xf32>) outs(%et : tensor<12x6xf32>) permutation = [1, 0]
  %y = linalg.matmul ins(%x, %t : tensor<5x12xf32>, tensor<12x6xf32>) outs(%c : tensor<5x6xf32>) -> tensor<5x6xf32>
  return %y : tensor<5x6xf32>
}

// -----

// What has no marked piece stays, and what is not all of a matrix, or no matrix.

// CHECK-LABEL: func.func @unmarked(
// CHECK:         %[[J:.*]] = tensor.concat
// CHECK:         linalg.matmul ins(%{{.*}}, %[[J]] :
// CHECK-NOT:     linalg.matmul
func.func @unmarked(%v: tensor<8x4xf32> {bsr.name = "v"}, %x: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %zero = arith.constant dense<0.0> : tensor<5x8xf32>
  %vv = tensor.concat dim(1) %v, %v : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32>
  %y = linalg.matmul ins(%x, %vv : tensor<5x8xf32>, tensor<8x8xf32>) outs(%zero : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @part(
// CHECK:         %[[J:.*]] = tensor.insert_slice
// CHECK:         linalg.matmul ins(%{{.*}}, %[[J]] :
// CHECK-NOT:     linalg.matmul
func.func @part(%w: tensor<8x4xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">, bsr.name = "w"},
                %x: tensor<5x8xf32>, %base: tensor<8x8xf32>) -> tensor<5x8xf32> {
  %zero = arith.constant dense<0.0> : tensor<5x8xf32>
  %0 = tensor.insert_slice %w into %base[0, 0] [8, 4] [1, 1] : tensor<8x4xf32> into tensor<8x8xf32>
  %y = linalg.matmul ins(%x, %0 : tensor<5x8xf32>, tensor<8x8xf32>) outs(%zero : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @stack(
// CHECK:         %[[J:.*]] = tensor.concat
// CHECK:         linalg.exp ins(%[[J]] :
// CHECK-NOT:     linalg.exp
func.func @stack(%w: tensor<1x8x4xf32> {bsr.name = "w"}) -> tensor<2x8x4xf32> {
  %e = tensor.empty() : tensor<2x8x4xf32>
  %ww = tensor.concat dim(0) %w, %w : (tensor<1x8x4xf32>, tensor<1x8x4xf32>) -> tensor<2x8x4xf32>
  %y = linalg.exp ins(%ww : tensor<2x8x4xf32>) outs(%e : tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  return %y : tensor<2x8x4xf32>
}

// -----

// A product stays whole where slices have entries in common, where something uses all
// of it, and where it is one with a weight.

// CHECK-LABEL: func.func @whole(
// CHECK-SAME:    %[[V:[^:]*]]: tensor<8x8xf32>
// CHECK-SAME:    %[[X:[^:]*]]: tensor<5x8xf32>
// CHECK-DAG:     linalg.matmul ins(%[[X]], %[[V]] : {{.*}} -> tensor<5x8xf32>
// CHECK-DAG:     %[[A:.*]] = linalg.matmul ins(%{{.*}} : tensor<8x5xf32>, tensor<5x16xf32>) {{.*}} -> tensor<8x16xf32>
// CHECK-DAG:     %[[B:.*]] = linalg.matmul ins(%{{.*}} : tensor<8x5xf32>, tensor<5x16xf32>) {{.*}} -> tensor<8x16xf32>
// CHECK-DAG:     %[[P:.*]] = linalg.matmul ins(%{{.*}}, %[[V]] : tensor<16x8xf32>, tensor<8x8xf32>) {{.*}} -> tensor<16x8xf32>
// CHECK-DAG:     tensor.extract_slice %[[A]][0, 0] [8, 8]
// CHECK-DAG:     tensor.extract_slice %[[A]][0, 4] [8, 8]
// CHECK-DAG:     tensor.extract_slice %[[B]][0, 0] [8, 8]
// CHECK-DAG:     tensor.extract_slice %[[P]][8, 0] [8, 8]
// CHECK:         return
func.func @whole(%v: tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "v">, bsr.name = "v"},
                 %x: tensor<5x8xf32>, %xt: tensor<8x5xf32>, %c: tensor<5x16xf32>, %d: tensor<5x16xf32>, %z: tensor<16x8xf32>)
    -> (tensor<5x16xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x16xf32>, tensor<8x8xf32>) {
  %zero = arith.constant dense<0.0> : tensor<5x16xf32>
  %zeros = arith.constant dense<0.0> : tensor<8x16xf32>
  %tall = arith.constant dense<0.0> : tensor<16x8xf32>
  %vv = tensor.concat dim(1) %v, %v : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x16xf32>
  %y = linalg.matmul ins(%x, %vv : tensor<5x8xf32>, tensor<8x16xf32>) outs(%zero : tensor<5x16xf32>) -> tensor<5x16xf32>
  %a = linalg.matmul ins(%xt, %c : tensor<8x5xf32>, tensor<5x16xf32>) outs(%zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  %a0 = tensor.extract_slice %a[0, 0] [8, 8] [1, 1] : tensor<8x16xf32> to tensor<8x8xf32>
  %a1 = tensor.extract_slice %a[0, 4] [8, 8] [1, 1] : tensor<8x16xf32> to tensor<8x8xf32>
  %b = linalg.matmul ins(%xt, %d : tensor<8x5xf32>, tensor<5x16xf32>) outs(%zeros : tensor<8x16xf32>) -> tensor<8x16xf32>
  %b0 = tensor.extract_slice %b[0, 0] [8, 8] [1, 1] : tensor<8x16xf32> to tensor<8x8xf32>
  %p = linalg.matmul ins(%z, %v : tensor<16x8xf32>, tensor<8x8xf32>) outs(%tall : tensor<16x8xf32>) -> tensor<16x8xf32>
  %p1 = tensor.extract_slice %p[8, 0] [8, 8] [1, 1] : tensor<16x8xf32> to tensor<8x8xf32>
  return %y, %a0, %a1, %b0, %b, %p1 : tensor<5x16xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x16xf32>, tensor<8x8xf32>
}
