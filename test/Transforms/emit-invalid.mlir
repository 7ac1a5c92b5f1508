// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-emit

func.func private @cluster(%x: tensor<4xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  // expected-error @below {{expected an operation that a cluster can compute, but got 'tensor.pad'}}
  %y = tensor.pad %x low[0] high[4] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<8xf32>
  return %y : tensor<8xf32>
}
func.func @result(%x: tensor<4xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %y = bsr.launch @cluster ins(%x : tensor<4xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

#id = affine_map<(i) -> (i)>

func.func private @cluster(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  // expected-error @below {{expected an operation that a cluster can compute, but got 'linalg.exp'}}
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%b: f32, %o: f32):
    %0 = arith.negf %b : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @operand(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = bsr.launch @cluster ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// A sum that is not a result lies in the registers of one work item.

#id = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>

func.func private @cluster(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<4xf32> {
  // expected-error @below {{expected a sum that is a result or is read by the work item that computes it, but got one that is neither}}
  %s = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<4xf32>) outs(%i : tensor<f32>) {
  ^bb0(%b: f32, %o: f32):
    %0 = arith.addf %b, %o : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#none, #id], iterator_types = ["parallel"]}
      ins(%s : tensor<f32>) outs(%e : tensor<4xf32>) {
  ^bb0(%b: f32, %o: f32):
    linalg.yield %b : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @reduction(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = bsr.launch @cluster ins(%x, %i : tensor<4xf32>, tensor<f32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// expected-error @below {{expected a cluster to compute its results, but got argument #0}}
func.func private @cluster(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func @argument(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = bsr.launch @cluster ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// expected-error @below {{expected a cluster with a body, but got a declaration}}
func.func private @cluster(tensor<4xf32>) -> tensor<4xf32>
func.func @declaration(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = bsr.launch @cluster ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
