// RUN: sparse-opt %s --split-input-file --bsr-unstack --verify-diagnostics

#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
// expected-error @below {{expected no argument named "w.1" beside "w", which has a part of that name, but got argument #1}}
func.func @taken(%w: tensor<2x8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<8xf32> {bsr.name = "w.1"}) {
  return
}

// -----

#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
// expected-error @below {{expected a step of one block, but got 2 blocks}}
func.func @blocks(%w: tensor<2x8x8xf32> {bsr.name = "w", bsr.mark = #mark}) {
  cf.br ^bb1
^bb1:
  return
}

// -----

#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
// expected-error @below {{expected no call of a step with marked arguments, but got one: inline it first}}
func.func @called(%w: tensor<2x8x8xf32> {bsr.name = "w", bsr.mark = #mark}) {
  return
}
func.func @caller(%w: tensor<2x8x8xf32>) {
  call @called(%w) : (tensor<2x8x8xf32>) -> ()
  return
}
