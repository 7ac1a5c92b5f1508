// RUN: sparse-opt %s --split-input-file --bsr-concatenate | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-concatenate --mlir-debug-counter=bsr-concatenate-count=0 | FileCheck %s --check-prefix=SKIPPED

// SKIPPED-NOT: tensor.concat

// Three pieces of different sizes, inserted in another order.
// CHECK-LABEL: func @pieces
// CHECK-SAME:    %[[X:[^:]*]]: tensor<4x2x3xf32>, %[[Y:[^:]*]]: tensor<4x5x3xf32>, %[[Z:[^:]*]]: tensor<4x1x3xf32>
// CHECK-NOT:     tensor.insert_slice
// CHECK:         %[[ALL:.*]] = tensor.concat dim(1) %[[X]], %[[Y]], %[[Z]]
// CHECK-NEXT:    return %[[ALL]]
func.func @pieces(%x: tensor<4x2x3xf32>, %y: tensor<4x5x3xf32>, %z: tensor<4x1x3xf32>) -> tensor<4x8x3xf32> {
  %e = tensor.empty() : tensor<4x8x3xf32>
  %0 = tensor.insert_slice %y into %e[0, 2, 0] [4, 5, 3] [1, 1, 1] : tensor<4x5x3xf32> into tensor<4x8x3xf32>
  %1 = tensor.insert_slice %x into %0[0, 0, 0] [4, 2, 3] [1, 1, 1] : tensor<4x2x3xf32> into tensor<4x8x3xf32>
  %2 = tensor.insert_slice %z into %1[0, 7, 0] [4, 1, 3] [1, 1, 1] : tensor<4x1x3xf32> into tensor<4x8x3xf32>
  return %2 : tensor<4x8x3xf32>
}

// -----

// What is filled is a piece, in front, between and behind: padding.
// CHECK-LABEL: func @padding
// CHECK-SAME:    %[[X:[^:]*]]: tensor<4x2xf32>, %[[Y:[^:]*]]: tensor<4x3xf32>
// CHECK:         %[[FILL:.*]] = linalg.fill
// CHECK:         %[[FRONT:.*]] = tensor.extract_slice %[[FILL]][0, 0] [4, 1] [1, 1]
// CHECK:         %[[MIDDLE:.*]] = tensor.extract_slice %[[FILL]][0, 3] [4, 2] [1, 1]
// CHECK:         %[[BACK:.*]] = tensor.extract_slice %[[FILL]][0, 8] [4, 1] [1, 1]
// CHECK:         tensor.concat dim(1) %[[FRONT]], %[[X]], %[[MIDDLE]], %[[Y]], %[[BACK]]
func.func @padding(%x: tensor<4x2xf32>, %y: tensor<4x3xf32>) -> tensor<4x9xf32> {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x9xf32>
  %f = linalg.fill ins(%one : f32) outs(%e : tensor<4x9xf32>) -> tensor<4x9xf32>
  %0 = tensor.insert_slice %x into %f[0, 1] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x9xf32>
  %1 = tensor.insert_slice %y into %0[0, 5] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x9xf32>
  return %1 : tensor<4x9xf32>
}

// -----

// Two chains: columns of what is rows.
// CHECK-LABEL: func @blocks
// CHECK-SAME:    %[[X:[^:]*]]: tensor<2x2xf32>, %[[Y:[^:]*]]: tensor<2x4xf32>
// CHECK:         %[[ROW:.*]] = tensor.concat dim(1) %[[X]], %[[X]]
// CHECK:         tensor.concat dim(0) %[[ROW]], %[[Y]]
func.func @blocks(%x: tensor<2x2xf32>, %y: tensor<2x4xf32>) -> tensor<4x4xf32> {
  %e = tensor.empty() : tensor<2x4xf32>
  %f = tensor.empty() : tensor<4x4xf32>
  %0 = tensor.insert_slice %x into %e[0, 0] [2, 2] [1, 1] : tensor<2x2xf32> into tensor<2x4xf32>
  %1 = tensor.insert_slice %x into %0[0, 2] [2, 2] [1, 1] : tensor<2x2xf32> into tensor<2x4xf32>
  %2 = tensor.insert_slice %1 into %f[0, 0] [2, 4] [1, 1] : tensor<2x4xf32> into tensor<4x4xf32>
  %3 = tensor.insert_slice %y into %2[2, 0] [2, 4] [1, 1] : tensor<2x4xf32> into tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// What is partly kept is updated where it lies, and so is what is read in between;
// slices that overlap, go both ways, have strides or are somewhere stay.
// CHECK-LABEL: func @others
// CHECK-COUNT-9: tensor.insert_slice
// CHECK-NOT:     tensor.concat
func.func @others(%x: tensor<4x2xf32>, %y: tensor<2x2xf32>, %state: tensor<4x4xf32>, %i: index)
    -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>) {
  %e = tensor.empty() : tensor<4x4xf32>
  %kept = tensor.insert_slice %x into %state[0, 1] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x4xf32>
  %read = tensor.insert_slice %x into %state[0, 0] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x4xf32>
  %all = tensor.insert_slice %x into %read[0, 2] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x4xf32>
  %first = tensor.insert_slice %x into %state[0, 0] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x4xf32>
  %over = tensor.insert_slice %x into %first[0, 1] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x4xf32>
  %corner = tensor.insert_slice %y into %e[0, 0] [2, 2] [1, 1] : tensor<2x2xf32> into tensor<4x4xf32>
  %far = tensor.insert_slice %x into %e[0, 0] [4, 2] [1, 2] : tensor<4x2xf32> into tensor<4x4xf32>
  %there = tensor.insert_slice %x into %e[0, %i] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x4xf32>
  %line = tensor.extract_slice %x[0, 0] [4, 1] [1, 1] : tensor<4x2xf32> to tensor<4xf32>
  %rank = tensor.insert_slice %line into %there[0, 0] [4, 1] [1, 1] : tensor<4xf32> into tensor<4x4xf32>
  return %kept, %read, %all, %over, %corner, %far, %rank
      : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>
}

// -----

// Many pieces are joined 16 at a time: of 17, 16 and what is left.
// CHECK-LABEL: func @many
// CHECK-SAME:    %[[X:[^:]*]]: tensor<1x2xf32>
// CHECK:         %[[SOME:.*]] = tensor.concat dim(0) %[[X]], {{.*}} -> tensor<16x2xf32>
// CHECK-NEXT:    %[[ALL:.*]] = tensor.concat dim(0) %[[SOME]], %[[X]] : (tensor<16x2xf32>, tensor<1x2xf32>) -> tensor<17x2xf32>
// CHECK-NEXT:    return %[[ALL]]
func.func @many(%x: tensor<1x2xf32>) -> tensor<17x2xf32> {
  %e = tensor.empty() : tensor<17x2xf32>
  %0 = tensor.insert_slice %x into %e[0, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %1 = tensor.insert_slice %x into %0[1, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %2 = tensor.insert_slice %x into %1[2, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %3 = tensor.insert_slice %x into %2[3, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %4 = tensor.insert_slice %x into %3[4, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %5 = tensor.insert_slice %x into %4[5, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %6 = tensor.insert_slice %x into %5[6, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %7 = tensor.insert_slice %x into %6[7, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %8 = tensor.insert_slice %x into %7[8, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %9 = tensor.insert_slice %x into %8[9, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %10 = tensor.insert_slice %x into %9[10, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %11 = tensor.insert_slice %x into %10[11, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %12 = tensor.insert_slice %x into %11[12, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %13 = tensor.insert_slice %x into %12[13, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %14 = tensor.insert_slice %x into %13[14, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %15 = tensor.insert_slice %x into %14[15, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  %16 = tensor.insert_slice %x into %15[16, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<17x2xf32>
  return %16 : tensor<17x2xf32>
}
