// RUN: sparse-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" \
// RUN:   --canonicalize | FileCheck %s

func.func private @decay(memref<8x4xf32>, memref<f32>, memref<8x4xf32>)
func.func private @sum(memref<8x4xf32>, memref<f32>)
func.func private @flip(memref<4xf32>, memref<4xf32>)
func.func private @row(memref<8x4xf32>, index, memref<4xf32>)

// An input read in place may be the init: no buffer, no copy.
// CHECK-LABEL: func @in_place
// CHECK-SAME:    %[[W:.*]]: memref<8x4xf32>, %[[LR:.*]]: memref<f32>
// CHECK-NEXT:  call @decay(%[[W]], %[[LR]], %[[W]])
// CHECK-NEXT:  return %[[W]]
func.func @in_place(%w: tensor<8x4xf32>, %lr: tensor<f32>) -> tensor<8x4xf32> {
  %new = bsr.launch @decay ins(%w, %lr : tensor<8x4xf32>, tensor<f32>)
      outs(%w : tensor<8x4xf32>) in_place = [0] -> tensor<8x4xf32>
  return %new : tensor<8x4xf32>
}

// Without in_place the kernel may read what it has overwritten: a new buffer, whose
// contents do not matter.
// CHECK-LABEL: func @not_in_place
// CHECK-SAME:    %[[X:.*]]: memref<4xf32>
// CHECK-NEXT:  %[[NEW:.*]] = memref.alloc()
// CHECK-NEXT:  call @flip(%[[X]], %[[NEW]])
// CHECK-NEXT:  return %[[NEW]]
func.func @not_in_place(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = bsr.launch @flip ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// A later reader of the old value keeps it.
// CHECK-LABEL: func @read_later
// CHECK-SAME:    %[[W:.*]]: memref<8x4xf32>, %[[LR:.*]]: memref<f32>
// CHECK:       %[[NEW:.*]] = memref.alloc()
// CHECK:       call @decay(%[[W]], %[[LR]], %[[NEW]])
// CHECK:       call @sum(%[[W]],
func.func @read_later(%w: tensor<8x4xf32>, %lr: tensor<f32>) -> (tensor<8x4xf32>, tensor<f32>) {
  %new = bsr.launch @decay ins(%w, %lr : tensor<8x4xf32>, tensor<f32>)
      outs(%w : tensor<8x4xf32>) in_place = [0] -> tensor<8x4xf32>
  %init = tensor.empty() : tensor<f32>
  %sum = bsr.launch @sum ins(%w : tensor<8x4xf32>) outs(%init : tensor<f32>) -> tensor<f32>
  return %new, %sum : tensor<8x4xf32>, tensor<f32>
}

// A slice is not what a kernel takes: it is copied on the way in and out.
// CHECK-LABEL: func @slices
// CHECK:       %[[IN:.*]] = memref.subview %{{.*}}[4]
// CHECK:       %[[OUT:.*]] = memref.subview %{{.*}}[0]
// CHECK:       %[[IN_COPY:.*]] = memref.alloc() {{.*}} : memref<4xf32>
// CHECK:       memref.copy %[[IN]], %[[IN_COPY]]
// CHECK:       %[[OUT_COPY:.*]] = memref.alloc() {{.*}} : memref<4xf32>
// CHECK:       call @flip(%[[IN_COPY]], %[[OUT_COPY]])
// CHECK:       memref.copy %[[OUT_COPY]], %[[OUT]]
func.func @slices(%x: tensor<8xf32>, %y: tensor<9xf32>) -> tensor<9xf32> {
  %in = tensor.extract_slice %x[4] [4] [1] : tensor<8xf32> to tensor<4xf32>
  %out = tensor.extract_slice %y[0] [4] [1] : tensor<9xf32> to tensor<4xf32>
  %z = bsr.launch @flip ins(%in : tensor<4xf32>) outs(%out : tensor<4xf32>) -> tensor<4xf32>
  %r = tensor.insert_slice %z into %y[0] [4] [1] : tensor<4xf32> into tensor<9xf32>
  return %r : tensor<9xf32>
}

// An index is passed as it is.
// CHECK-LABEL: func @index
// CHECK-SAME:    %[[X:.*]]: memref<8x4xf32>, %[[I:.*]]: index, %[[Y:.*]]: memref<4xf32>
// CHECK-NEXT:  call @row(%[[X]], %[[I]], %[[Y]])
func.func @index(%x: tensor<8x4xf32>, %i: index, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = bsr.launch @row ins(%x, %i : tensor<8x4xf32>, index) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
