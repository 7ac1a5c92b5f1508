// RUN: sparse-opt %s --split-input-file --bsr-bufferize | FileCheck %s

func.func private @double(memref<4xf32>, memref<4xf32>)
func.func private @fill(memref<4xf32>)
func.func private @both(memref<4xf32>, memref<4xf32>, memref<4xf32>)

// What nobody reads later is written over.
// CHECK-LABEL: func @in_place
// CHECK-SAME:    %[[W:[a-z0-9]+]]: memref<4xf32>
// CHECK-NEXT:    %[[A:.*]] = memref.alloc() {{.*}} : memref<4xf32>
// CHECK-NEXT:    call @double(%[[W]], %[[A]])
// CHECK-NEXT:    call @double(%[[A]], %[[A]])
// CHECK-NEXT:    call @double(%[[A]], %[[W]])
// CHECK-NEXT:    return %[[W]], %[[A]]
func.func @in_place(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64})
    -> (tensor<4xf32>, tensor<4xf32> {bsr.name = "y"}) {
  %a = bufferization.alloc_tensor() : tensor<4xf32>
  %x = bsr.launch @double ins(%w : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  %y = bsr.launch @double ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %next = bsr.launch @double ins(%y : tensor<4xf32>) outs(%w : tensor<4xf32>) -> tensor<4xf32>
  return %next, %y : tensor<4xf32>, tensor<4xf32>
}

// What is read later is not, at first hand, in another shape or in part.
// CHECK-LABEL: func @read_later
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4xf32>
// CHECK:         call @double(%[[X]], %[[X]])
// CHECK:         %[[A:.*]] = memref.alloc
// CHECK:         call @double(%[[X]], %[[A]])
// CHECK:         %[[VIEW:.*]] = memref.expand_shape %[[A]]
// CHECK:         %[[B:.*]] = memref.alloc
// CHECK:         call @double(%[[A]], %[[B]])
// CHECK:         %[[C:.*]] = memref.alloc
// CHECK:         call @double(%[[B]], %[[C]])
// CHECK:         call @double(%[[B]], %[[B]])
// CHECK:         return %[[X]], %[[VIEW]], %[[B]], %[[C]]
func.func @read_later(%x: tensor<4xf32> {bsr.name = "x"})
    -> (tensor<4xf32> {bsr.name = "a"}, tensor<2x2xf32> {bsr.name = "b"}, tensor<4xf32> {bsr.name = "c"}, tensor<4xf32> {bsr.name = "d"}) {
  %a = bsr.launch @double ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %b = bsr.launch @double ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %view = tensor.expand_shape %b [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
  %c = bsr.launch @double ins(%b : tensor<4xf32>) outs(%b : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  // Not read element by element.
  %d = bsr.launch @double ins(%c : tensor<4xf32>) outs(%c : tensor<4xf32>) -> tensor<4xf32>
  %e = bsr.launch @double ins(%c : tensor<4xf32>) outs(%c : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  return %a, %view, %e, %d : tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<4xf32>
}

// Two results are not written to one buffer, read or not.
// CHECK-LABEL: func @two_results
// CHECK:         %[[A:.*]] = memref.alloc
// CHECK:         %[[B:.*]] = memref.alloc
// CHECK:         call @both(%{{.*}}, %[[A]], %[[B]])
// CHECK:         return %[[B]]
func.func @two_results(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  %a = bufferization.alloc_tensor() : tensor<4xf32>
  %b:2 = bsr.launch @both ins(%x : tensor<4xf32>) outs(%a, %a : tensor<4xf32>, tensor<4xf32>)
      -> tensor<4xf32>, tensor<4xf32>
  return %b#1 : tensor<4xf32>
}

// Neither is what is not the step's, or a constant.
// CHECK-LABEL: func @not_writable
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4xf32>
// CHECK-NOT:     memref.copy
// CHECK:         %[[A:.*]] = memref.alloc
// CHECK:         call @double(%[[X]], %[[A]])
// CHECK:         %[[B:.*]] = memref.alloc
// CHECK:         call @fill(%[[B]])
// CHECK:         return %[[A]], %[[B]]
func.func @not_writable(%x: tensor<4xf32> {bsr.name = "x", bufferization.writable = false})
    -> (tensor<4xf32> {bsr.name = "y"}, tensor<4xf32> {bsr.name = "z"}) {
  %c = arith.constant dense<1.0> : tensor<4xf32>
  %y = bsr.launch @double ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %z = bsr.launch @fill outs(%c : tensor<4xf32>) -> tensor<4xf32>
  return %y, %z : tensor<4xf32>, tensor<4xf32>
}

// -----

func.func private @double(memref<4xf32>, memref<4xf32>)
func.func private @half(memref<4xf32>, memref<2xf32>, memref<4xf32>)

// The whole is not written over while a part of it is read.
// CHECK-LABEL: func @part
// CHECK:         %[[A:.*]] = memref.alloc() {{.*}} : memref<4xf32>
// CHECK:         call @half(%[[X:.*]], %{{.*}}, %[[A]])
// CHECK:         return %[[A]]
func.func @part(%x: tensor<4xf32> {bsr.name = "x", bsr.result = 0 : i64}) -> tensor<4xf32> {
  %part = tensor.extract_slice %x[2] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %y = bsr.launch @half ins(%x, %part : tensor<4xf32>, tensor<2xf32>) outs(%x : tensor<4xf32>) in_place = [0, 1]
      -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @double(memref<4xf32>, memref<4xf32>)
func.func private @twice(memref<2xf32>, memref<2xf32>)

// An insertion writes into what it inserts in, if nobody reads the old value.
// CHECK-LABEL: func @insert
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4xf32>
// CHECK:         %[[A:.*]] = memref.alloc() {{.*}} : memref<4xf32>
// CHECK:         call @double(%[[X]], %[[A]])
// CHECK:         %[[PART:.*]] = memref.alloc() {{.*}} : memref<2xf32>
// CHECK:         call @twice(%{{.*}}, %[[PART]])
// CHECK:         memref.copy %[[PART]], %[[TO:.*]] :
// CHECK:         %[[B:.*]] = memref.alloc() {{.*}} : memref<4xf32>
// CHECK:         memref.copy %[[A]], %[[B]]
// CHECK:         memref.subview %[[B]][2]
// CHECK:         return %[[A]], %[[B]]
func.func @insert(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "a"}, tensor<4xf32> {bsr.name = "b"}) {
  %0 = bufferization.alloc_tensor() : tensor<4xf32>
  %1 = bsr.launch @double ins(%x : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  %old = tensor.extract_slice %1[0] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %2 = bufferization.alloc_tensor() : tensor<2xf32>
  %new = bsr.launch @twice ins(%old : tensor<2xf32>) outs(%2 : tensor<2xf32>) -> tensor<2xf32>
  %a = tensor.insert_slice %new into %1[0] [2] [1] : tensor<2xf32> into tensor<4xf32>
  %b = tensor.insert_slice %new into %a[2] [2] [1] : tensor<2xf32> into tensor<4xf32>
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// -----

func.func private @double(memref<4xf32>, memref<4xf32>)

// A step with a loop goes through upstream's analysis.
// CHECK-LABEL: func @loop
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4xf32>
// CHECK:         %[[A:.*]] = memref.alloc
// CHECK:         memref.copy %[[X]], %[[A]]
// CHECK:         scf.for {{.*}} iter_args(%[[H:.*]] = %[[A]])
// CHECK:           func.call @double(%[[H]], %[[H]])
// CHECK:         return %{{.*}}, %[[X]]
func.func @loop(%x: tensor<4xf32> {bsr.name = "x"}, %n: index)
    -> (tensor<4xf32> {bsr.name = "y"}, tensor<4xf32> {bsr.name = "z"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%h = %x) -> tensor<4xf32> {
    %0 = bsr.launch @double ins(%h : tensor<4xf32>) outs(%h : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
    scf.yield %0 : tensor<4xf32>
  }
  return %y, %x : tensor<4xf32>, tensor<4xf32>
}
