// RUN: sparse-opt %s --split-input-file --bsr-bind --verify-diagnostics

// expected-error @below {{expected a marked argument named "w", the weight of argument #0, but got none}}
func.func @no_weight(
    %m: tensor<8x8xf32> {bsr.name = "m", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">}) {
  return
}

// -----

// expected-error @below {{expected argument #1 to have the shape and the mark of its weight "w" ('tensor<8x8xf32>', #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w">), but got 'tensor<8x4xf32>', #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w">}}
func.func @other_shape(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">},
    %m: tensor<8x4xf32> {bsr.name = "m", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">}) {
  return
}

// -----

// expected-error @below {{expected a step of one block, but got 2 blocks}}
func.func @blocks(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">}) {
  cf.br ^bb1
^bb1:
  return
}

// -----

// expected-error @below {{expected no call of a step with marked arguments, but got one: inline it first}}
func.func @called(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">}) {
  return
}
func.func @caller(%w: tensor<8x8xf32>) {
  call @called(%w) : (tensor<8x8xf32>) -> ()
  return
}

// -----

// expected-error @below {{expected argument #0 to be a matrix, but got 'tensor<2x8x8xf32>': run bsr-unstack before}}
func.func @stack(
    %w: tensor<2x8x8xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">}) {
  return
}

// -----

// expected-error @below {{expected a marked argument named "w", the weight of mask #0, but got none}}
func.func @mask_without_weight(
    %mask: tensor<8x8xf32> {bsr.name = "mask", bsr.mask = #bsr.mask<weight = "w">},
    %v: tensor<8x8xf32> {bsr.name = "v", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "v">}) {
  return
}

// -----

// expected-error @below {{expected mask "mask" to have the shape of the transpose of its weight "w" ('tensor<8x4xf32>'), but got 'tensor<8x4xf32>'}}
func.func @mask_shape(
    %mask: tensor<8x4xf32> {bsr.name = "mask", bsr.mask = #bsr.mask<weight = "w", transpose = true>},
    %w: tensor<8x4xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">}) {
  return
}

// -----

// expected-error @below {{expected mask "mask" to stay as it is, but got one computed at train.py:12: patterns are updated between steps, by the runtime}}
func.func @mask_computed(
    %mask: tensor<8x8xf32> {bsr.name = "mask", bsr.result = 0 : i64, bsr.mask = #bsr.mask<weight = "w">},
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">})
    -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %next = linalg.add ins(%mask, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32> loc(fused["train.py":12:0])
  return %next : tensor<8x8xf32>
}
