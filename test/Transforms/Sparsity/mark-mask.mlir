// RUN: sparse-opt %s --split-input-file --bsr-mark="match=^w$ block=4x4 density=0.5 mask=mask" | FileCheck %s

// A mask of the weight, one of its gradient, which lies transposed and goes
// through a cast, and one of the update. A moment is none, nor is what only a
// product reads, nor a mask of another weight.

// CHECK-LABEL: func.func @masks(
// CHECK-SAME:    tensor<8x8xf32> {bsr.mark = #[[MARK:.*]], bsr.name = "w", bsr.result = 0 : i64},
// CHECK-SAME:    tensor<8x8xf32> {bsr.mark = {{.*}}, bsr.name = "m", bsr.result = 1 : i64},
// CHECK-SAME:    tensor<8x8xf32> {bsr.mask = #bsr.mask<weight = "w">, bsr.name = "mask", bsr.result = 2 : i64},
// CHECK-SAME:    tensor<8x8xi1> {bsr.mask = #bsr.mask<weight = "w", transpose = true>, bsr.name = "mask of gradient"},
// CHECK-SAME:    tensor<8x8xf32> {bsr.mask = #bsr.mask<weight = "w">, bsr.name = "mask of update"},
// CHECK-SAME:    tensor<8x8xf32> {bsr.name = "mask of x"},
// CHECK-SAME:    tensor<8x8xf32> {bsr.name = "x"})
#id = affine_map<(d0, d1) -> (d0, d1)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
func.func @masks(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64},
                 %m: tensor<8x8xf32> {bsr.name = "m", bsr.result = 1 : i64},
                 %mask: tensor<8x8xf32> {bsr.name = "mask", bsr.result = 2 : i64},
                 %maskg: tensor<8x8xi1> {bsr.name = "mask of gradient"},
                 %masku: tensor<8x8xf32> {bsr.name = "mask of update"},
                 %maskx: tensor<8x8xf32> {bsr.name = "mask of x"},
                 %x: tensor<8x8xf32> {bsr.name = "x"})
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %zero = arith.constant dense<0.0> : tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %masked = linalg.mul ins(%w, %mask : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %xm = linalg.mul ins(%x, %maskx : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = linalg.matmul ins(%xm, %masked : tensor<8x8xf32>, tensor<8x8xf32>) outs(%zero : tensor<8x8xf32>) -> tensor<8x8xf32>
  %gt = linalg.matmul ins(%y, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%zero : tensor<8x8xf32>) -> tensor<8x8xf32>
  %cast = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%maskg : tensor<8x8xi1>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: i1, %o: f32):
    %0 = arith.uitofp %a : i1 to f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  %gm = linalg.mul ins(%gt, %cast : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %next_m = linalg.generic {indexing_maps = [#id, #swap, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %gm : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  %step = linalg.sub ins(%w, %next_m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %next_w = linalg.mul ins(%step, %masku : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next_w, %next_m, %mask, %y : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}
