// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-plan-clusters

bsr.cluster private @cluster(%x: tensor<4xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  // expected-error @below {{expected an operation that a cluster can compute, but got 'tensor.pad'}}
  %y = tensor.pad %x low[0] high[4] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<8xf32>
  bsr.yield %y : tensor<8xf32>
}
func.func @result(%x: tensor<4xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %y = bsr.launch @cluster ins(%x : tensor<4xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

#id = affine_map<(i) -> (i)>

bsr.cluster private @cluster(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  // expected-error @below {{expected an operation that a cluster can compute, but got 'linalg.exp'}}
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%b: f32, %o: f32):
    %0 = arith.negf %b : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  bsr.yield %y : tensor<4xf32>
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

bsr.cluster private @cluster(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<4xf32> {
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
  bsr.yield %y : tensor<4xf32>
}
func.func @reduction(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = bsr.launch @cluster ins(%x, %i : tensor<4xf32>, tensor<f32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// Sums of a product need a place until what follows has read them.

!pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
#id = affine_map<(f, t) -> (f, t)>
#feature = affine_map<(f, t) -> (f)>

bsr.cluster private @cluster(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x48xf32>, %i: tensor<32xf32>)
    -> tensor<32xf32> {
  // expected-error @below {{expected a value that is a result or may lie where one of its type will, but got neither}}
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<32x48xf32>
  %s = linalg.generic {indexing_maps = [#id, #feature], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<32x48xf32>) outs(%i : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<32xf32>
  bsr.yield %s : tensor<32xf32>
}
func.func @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x48xf32>, %i: tensor<32xf32>) -> tensor<32xf32> {
  %e = tensor.empty() : tensor<32xf32>
  %y = bsr.launch @cluster ins(%p, %w, %x, %i : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32>, tensor<32xf32>)
      outs(%e : tensor<32xf32>) -> tensor<32xf32>
  return %y : tensor<32xf32>
}
