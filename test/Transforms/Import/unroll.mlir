// RUN: sparse-opt %s --bsr-unroll="max-operations=6" --canonicalize | FileCheck %s

// Two loops of three steps each, one operation a step: six in all.
// CHECK-LABEL: func @nested
// CHECK-NOT:     scf.for
// CHECK-COUNT-6: linalg.add
// CHECK-NOT:     linalg.add
func.func @nested(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c5 = arith.constant 5 : index
  %y = scf.for %i = %c0 to %c2 step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %0 = scf.for %j = %c0 to %c5 step %c2 iter_args(%b = %a) -> tensor<4xf32> {
      %1 = linalg.add ins(%b, %b : tensor<4xf32>, tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
      scf.yield %1 : tensor<4xf32>
    }
    scf.yield %0 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// Seven operations are too many.
// CHECK-LABEL: func @long
// CHECK:         scf.for
func.func @long(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %y = scf.for %i = %c0 to %c7 step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %0 = linalg.add ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %0 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// So is a number of steps that data decides.
// CHECK-LABEL: func @data
// CHECK:         scf.for
func.func @data(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %0 = linalg.add ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %0 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// A loop over the matrices of a stacked weight is unrolled however long it is;
// a loop that only reads the same matrix again and again is not. What counts
// through tensors of one entry is a constant then.
// CHECK-LABEL: func @stack
// CHECK-NOT:     scf.for
// CHECK:         tensor.extract_slice %{{.*}}[6, 0, 0]
// CHECK:         tensor.extract_slice %{{.*}}[5, 0, 0]
// CHECK:         tensor.extract_slice %{{.*}}[0, 0, 0]
// CHECK:         scf.for
// CHECK:           tensor.extract_slice %{{.*}}[%{{.*}}, 0, 0]
// CHECK:         return
func.func @stack(%w: tensor<7x4x4xf32> {bsr.name = "w",
                     bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">},
                 %x: tensor<4x4xf32>, %n: index) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %last = arith.constant dense<6> : tensor<i32>
  %e = tensor.empty() : tensor<i32>
  %y:2 = scf.for %i = %c0 to %c7 step %c1 iter_args(%a = %x, %l = %last) -> (tensor<4x4xf32>, tensor<i32>) {
    %at = tensor.extract %l[] : tensor<i32>
    %index = arith.index_cast %at : i32 to index
    %m = tensor.extract_slice %w[%index, 0, 0] [1, 4, 4] [1, 1, 1] : tensor<7x4x4xf32> to tensor<4x4xf32>
    %0 = linalg.add ins(%a, %m : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) -> tensor<4x4xf32>
    %down = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
        ins(%l : tensor<i32>) outs(%e : tensor<i32>) {
    ^bb0(%b: i32, %o: i32):
      %one = arith.constant 1 : i32
      %1 = arith.subi %b, %one : i32
      linalg.yield %1 : i32
    } -> tensor<i32>
    scf.yield %0, %down : tensor<4x4xf32>, tensor<i32>
  }
  %z = scf.for %i = %c0 to %c7 step %c1 iter_args(%a = %x) -> tensor<4x4xf32> {
    %m = tensor.extract_slice %w[%n, 0, 0] [1, 4, 4] [1, 1, 1] : tensor<7x4x4xf32> to tensor<4x4xf32>
    %0 = linalg.add ins(%a, %m : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) -> tensor<4x4xf32>
    scf.yield %0 : tensor<4x4xf32>
  }
  return %y#0, %z : tensor<4x4xf32>, tensor<4x4xf32>
}

// A loop that adds rows at indices is one operation, however long.
// CHECK-LABEL: func @scatter
// CHECK-SAME:    %[[IDS:.*]]: tensor<64x1xi64>, %[[U:.*]]: tensor<64x1x8xf32>
// CHECK-DAG:     %[[AT:.*]] = tensor.collapse_shape %[[IDS]] {{\[}}[0, 1]] : tensor<64x1xi64> into tensor<64xi64>
// CHECK-DAG:     %[[ROWS:.*]] = tensor.collapse_shape %[[U]] {{\[}}[0], [1, 2]] : tensor<64x1x8xf32> into tensor<64x8xf32>
// CHECK:         %[[G:.*]] = bsr.scatter_add %[[AT]], %[[ROWS]] feature_dim = 1
// CHECK-NEXT:    return %[[G]]
func.func @scatter(%ids: tensor<64x1xi64>, %u: tensor<64x1x8xf32>) -> tensor<10x8xf32> {
  %zeros = arith.constant dense<0.0> : tensor<10x8xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %g = scf.for %i = %c0 to %c64 step %c1 iter_args(%rows = %zeros) -> tensor<10x8xf32> {
    %id = tensor.extract %ids[%i, %c0] : tensor<64x1xi64>
    %at = arith.index_cast %id : i64 to index
    %new = tensor.extract_slice %u[%i, 0, 0] [1, 1, 8] [1, 1, 1] : tensor<64x1x8xf32> to tensor<8xf32>
    %old = tensor.extract_slice %rows[%at, 0] [1, 8] [1, 1] : tensor<10x8xf32> to tensor<8xf32>
    %sum = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%new : tensor<8xf32>) outs(%old : tensor<8xf32>) {
    ^bb0(%a: f32, %b: f32):
      %0 = arith.addf %b, %a : f32
      linalg.yield %0 : f32
    } -> tensor<8xf32>
    %next = tensor.insert_slice %sum into %rows[%at, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<10x8xf32>
    scf.yield %next : tensor<10x8xf32>
  }
  return %g : tensor<10x8xf32>
}

// Rows that were something before, and a row that is read again, are not.
// CHECK-LABEL: func @no_scatter
// CHECK-NOT:     bsr.scatter_add
// CHECK:         return
func.func @no_scatter(%ids: tensor<5xi64>, %u: tensor<5x8xf32>, %w: tensor<10x8xf32>) -> (tensor<10x8xf32>, tensor<10x8xf32>) {
  %zeros = arith.constant dense<0.0> : tensor<10x8xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %f = scf.for %i = %c0 to %c5 step %c1 iter_args(%rows = %w) -> tensor<10x8xf32> {
    %id = tensor.extract %ids[%i] : tensor<5xi64>
    %at = arith.index_cast %id : i64 to index
    %new = tensor.extract_slice %u[%i, 0] [1, 8] [1, 1] : tensor<5x8xf32> to tensor<8xf32>
    %old = tensor.extract_slice %rows[%at, 0] [1, 8] [1, 1] : tensor<10x8xf32> to tensor<8xf32>
    %sum = linalg.add ins(%old, %new : tensor<8xf32>, tensor<8xf32>) outs(%old : tensor<8xf32>) -> tensor<8xf32>
    %next = tensor.insert_slice %sum into %rows[%at, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<10x8xf32>
    scf.yield %next : tensor<10x8xf32>
  }
  %g = scf.for %i = %c0 to %c5 step %c1 iter_args(%rows = %zeros) -> tensor<10x8xf32> {
    %id = tensor.extract %ids[%i] : tensor<5xi64>
    %at = arith.index_cast %id : i64 to index
    %new = tensor.extract_slice %u[%i, 0] [1, 8] [1, 1] : tensor<5x8xf32> to tensor<8xf32>
    %old = tensor.extract_slice %rows[%i, 0] [1, 8] [1, 1] : tensor<10x8xf32> to tensor<8xf32>
    %sum = linalg.add ins(%old, %new : tensor<8xf32>, tensor<8xf32>) outs(%old : tensor<8xf32>) -> tensor<8xf32>
    %next = tensor.insert_slice %sum into %rows[%at, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<10x8xf32>
    scf.yield %next : tensor<10x8xf32>
  }
  return %f, %g : tensor<10x8xf32>, tensor<10x8xf32>
}
