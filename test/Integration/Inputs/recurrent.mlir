// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A recurrent layer of 300 steps, as lax.scan over time exports it: h = tanh(x U + h W)
// from a loop that takes slices of the products of all steps and stores what the loop
// backward reads; that one counts down, sums the gradient of W and stacks those of
// x U. The loss is half the squared distance of all states to targets; SGD.

!m = tensor<16x16xf32>
!x = tensor<4x16xf32>
!xs = tensor<300x4x16xf32>
!rows = tensor<1200x16xf32>
#xt = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#wt = affine_map<(i, j, k) -> (j, k)>
#ik = affine_map<(i, j, k) -> (i, k)>
#out = affine_map<(i, j, k) -> (i, j)>
#id3 = affine_map<(t, i, j) -> (t, i, j)>
#none3 = affine_map<(t, i, j) -> ()>
#id = affine_map<(i, j) -> (i, j)>
#none = affine_map<(i, j) -> ()>

func.func @step(%u: !m {bsr.name = "u_w", bsr.result = 0 : i64, bsr.role = "param"},
                %w: !m {bsr.name = "h_w", bsr.result = 1 : i64, bsr.role = "param"},
                %x: !xs {bsr.name = "x"}, %t: !xs {bsr.name = "t"},
                %lr: tensor<f32> {bsr.name = "lr", bsr.role = "lr"})
    -> (!m, !m, tensor<f32> {bsr.name = "loss"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c300 = arith.constant 300 : index
  %c299 = arith.constant 299 : index
  %ex = tensor.empty() : !x
  %exs = tensor.empty() : !xs
  %em = tensor.empty() : !m
  %zero = arith.constant 0.0 : f32
  %x0 = linalg.fill ins(%zero : f32) outs(%ex : !x) -> !x
  %xs0 = linalg.fill ins(%zero : f32) outs(%exs : !xs) -> !xs
  %m0 = linalg.fill ins(%zero : f32) outs(%em : !m) -> !m
  %erows = tensor.empty() : !rows
  %rows0 = linalg.fill ins(%zero : f32) outs(%erows : !rows) -> !rows

  %rows = tensor.collapse_shape %x [[0, 1], [2]] : !xs into !rows
  %pre = linalg.matmul ins(%rows, %u : !rows, !m) outs(%rows0 : !rows) -> !rows
  %xu = tensor.expand_shape %pre [[0, 1], [2]] output_shape [300, 4, 16] : !rows into !xs
  %f:3 = scf.for %i = %c0 to %c300 step %c1 iter_args(%h = %x0, %before = %xs0, %after = %xs0) -> (!x, !xs, !xs) {
    %xi = tensor.extract_slice %xu[%i, 0, 0] [1, 4, 16] [1, 1, 1] : !xs to !x
    %a = linalg.matmul ins(%h, %w : !x, !m) outs(%x0 : !x) -> !x
    %z = linalg.add ins(%xi, %a : !x, !x) outs(%ex : !x) -> !x
    %next = linalg.tanh ins(%z : !x) outs(%ex : !x) -> !x
    %before_next = tensor.insert_slice %h into %before[%i, 0, 0] [1, 4, 16] [1, 1, 1] : !x into !xs
    %after_next = tensor.insert_slice %next into %after[%i, 0, 0] [1, 4, 16] [1, 1, 1] : !x into !xs
    scf.yield %next, %before_next, %after_next : !x, !xs, !xs
  }
  %d = linalg.sub ins(%f#2, %t : !xs, !xs) outs(%exs : !xs) -> !xs
  %loss0 = arith.constant dense<0.0> : tensor<f32>
  %loss = linalg.generic {indexing_maps = [#id3, #none3], iterator_types = ["reduction", "reduction", "reduction"]}
      ins(%d : !xs) outs(%loss0 : tensor<f32>) {
  ^bb0(%a: f32, %s: f32):
    %half = arith.constant 0.5 : f32
    %q = arith.mulf %a, %a : f32
    %p = arith.mulf %q, %half : f32
    %r = arith.addf %s, %p : f32
    linalg.yield %r : f32
  } -> tensor<f32>

  %g:3 = scf.for %i = %c0 to %c300 step %c1 iter_args(%dh = %x0, %sum = %m0, %das = %xs0) -> (!x, !m, !xs) {
    %l = arith.subi %c299, %i : index
    %di = tensor.extract_slice %d[%l, 0, 0] [1, 4, 16] [1, 1, 1] : !xs to !x
    %h = tensor.extract_slice %f#1[%l, 0, 0] [1, 4, 16] [1, 1, 1] : !xs to !x
    %z = tensor.extract_slice %f#2[%l, 0, 0] [1, 4, 16] [1, 1, 1] : !xs to !x
    %da = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%dh, %di, %z : !x, !x, !x) outs(%ex : !x) {
    ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
      %one = arith.constant 1.0 : f32
      %s = arith.addf %a, %b : f32
      %p = arith.mulf %c, %c : f32
      %q = arith.subf %one, %p : f32
      %r = arith.mulf %s, %q : f32
      linalg.yield %r : f32
    } -> !x
    %dw = linalg.matmul indexing_maps = [#xt, #dy, #out] ins(%h, %da : !x, !x) outs(%m0 : !m) -> !m
    %next = linalg.matmul indexing_maps = [#ik, #wt, #out] ins(%da, %w : !x, !m) outs(%x0 : !x) -> !x
    %sum_next = linalg.add ins(%sum, %dw : !m, !m) outs(%em : !m) -> !m
    %das_next = tensor.insert_slice %da into %das[%l, 0, 0] [1, 4, 16] [1, 1, 1] : !x into !xs
    scf.yield %next, %sum_next, %das_next : !x, !m, !xs
  }
  %drows = tensor.collapse_shape %g#2 [[0, 1], [2]] : !xs into !rows
  %du = linalg.matmul indexing_maps = [#xt, #dy, #out] ins(%rows, %drows : !rows, !rows) outs(%m0 : !m) -> !m

  %u_next = linalg.generic {indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u, %du, %lr : !m, !m, tensor<f32>) outs(%em : !m) {
  ^bb0(%a: f32, %b: f32, %s: f32, %o: f32):
    %p = arith.mulf %b, %s : f32
    %q = arith.subf %a, %p : f32
    linalg.yield %q : f32
  } -> !m
  %w_next = linalg.generic {indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %g#1, %lr : !m, !m, tensor<f32>) outs(%em : !m) {
  ^bb0(%a: f32, %b: f32, %s: f32, %o: f32):
    %p = arith.mulf %b, %s : f32
    %q = arith.subf %a, %p : f32
    linalg.yield %q : f32
  } -> !m
  return %u_next, %w_next, %loss : !m, !m, tensor<f32>
}
