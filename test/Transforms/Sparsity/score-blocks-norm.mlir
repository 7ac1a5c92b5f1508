// RUN: sparse-opt %s --bsr-score-blocks=norm=l3 --verify-diagnostics

// expected-error @below {{expected norm to be l1, l2 or linf, but got 'l3'}}
func.func @step(%x: tensor<4xf32> {bsr.name = "x"}) {
  return
}
