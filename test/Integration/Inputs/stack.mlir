// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three layers x + tanh(x W) with the weights in one stack, as lax.scan over layers
// exports them: a loop forward that stores what the loop backward reads, which
// counts down through a tensor of one entry and stacks the gradients; these are
// divided by the norm of them all, before momentum and the update.

!m = tensor<16x16xf32>
!x = tensor<4x16xf32>
!w = tensor<3x16x16xf32>
!xs = tensor<3x4x16xf32>
#id = affine_map<(l, r, c) -> (l, r, c)>
#none = affine_map<(l, r, c) -> ()>
#tail = affine_map<(l, r, c) -> (r, c)>
#xt = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#wt = affine_map<(i, j, k) -> (j, k)>
#ik = affine_map<(i, j, k) -> (i, k)>
#out = affine_map<(i, j, k) -> (i, j)>

func.func @step(%w: !w {bsr.name = "w", bsr.result = 0 : i64, bsr.role = "param"},
                %m: !w {bsr.name = "m", bsr.result = 1 : i64, bsr.role = "state"},
                %x: !x {bsr.name = "x"}, %t: !x {bsr.name = "t"},
                %lr: tensor<f32> {bsr.name = "lr", bsr.role = "lr"})
    -> (!w, !w, tensor<f32> {bsr.name = "loss"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %ew = tensor.empty() : !w
  %zeros = linalg.fill ins(%zero : f32) outs(%ew : !w) -> !w
  %exs = tensor.empty() : !xs
  %saved = linalg.fill ins(%zero : f32) outs(%exs : !xs) -> !xs
  %ex = tensor.empty() : !x
  %x0 = linalg.fill ins(%zero : f32) outs(%ex : !x) -> !x
  %em = tensor.empty() : !m
  %m0 = linalg.fill ins(%zero : f32) outs(%em : !m) -> !m

  %y:3 = scf.for %i = %c0 to %c3 step %c1 iter_args(%h = %x, %hs = %saved, %zs = %saved) -> (!x, !xs, !xs) {
    %slice = tensor.extract_slice %w[%i, 0, 0] [1, 16, 16] [1, 1, 1] : !w to tensor<1x16x16xf32>
    %wi = tensor.collapse_shape %slice [[0, 1], [2]] : tensor<1x16x16xf32> into !m
    %a = linalg.matmul ins(%h, %wi : !x, !m) outs(%x0 : !x) -> !x
    %z = linalg.tanh ins(%a : !x) outs(%ex : !x) -> !x
    %next = linalg.add ins(%h, %z : !x, !x) outs(%ex : !x) -> !x
    %hs_next = tensor.insert_slice %h into %hs[%i, 0, 0] [1, 4, 16] [1, 1, 1] : !x into !xs
    %zs_next = tensor.insert_slice %z into %zs[%i, 0, 0] [1, 4, 16] [1, 1, 1] : !x into !xs
    scf.yield %next, %hs_next, %zs_next : !x, !xs, !xs
  }

  %dy = linalg.sub ins(%y#0, %t : !x, !x) outs(%ex : !x) -> !x
  %none = arith.constant dense<0.0> : tensor<f32>
  %loss = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>],
                          iterator_types = ["reduction", "reduction"]}
      ins(%dy : !x) outs(%none : tensor<f32>) {
  ^bb0(%a: f32, %s: f32):
    %q = arith.mulf %a, %a : f32
    %r = arith.addf %s, %q : f32
    linalg.yield %r : f32
  } -> tensor<f32>

  %last = arith.constant dense<2> : tensor<i32>
  %ei = tensor.empty() : tensor<i32>
  %g:3 = scf.for %i = %c0 to %c3 step %c1 iter_args(%d = %dy, %count = %last, %gs = %zeros) -> (!x, tensor<i32>, !w) {
    %at = tensor.extract %count[] : tensor<i32>
    %l = arith.index_cast %at : i32 to index
    %h = tensor.extract_slice %y#1[%l, 0, 0] [1, 4, 16] [1, 1, 1] : !xs to !x
    %z = tensor.extract_slice %y#2[%l, 0, 0] [1, 4, 16] [1, 1, 1] : !xs to !x
    %wi = tensor.extract_slice %w[%l, 0, 0] [1, 16, 16] [1, 1, 1] : !w to !m
    %da = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                          iterator_types = ["parallel", "parallel"]}
        ins(%d, %z : !x, !x) outs(%ex : !x) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %one = arith.constant 1.0 : f32
      %p = arith.mulf %b, %b : f32
      %q = arith.subf %one, %p : f32
      %r = arith.mulf %a, %q : f32
      linalg.yield %r : f32
    } -> !x
    %dw = linalg.matmul indexing_maps = [#xt, #dy, #out] ins(%h, %da : !x, !x) outs(%m0 : !m) -> !m
    %dx = linalg.matmul indexing_maps = [#ik, #wt, #out] ins(%da, %wi : !x, !m) outs(%x0 : !x) -> !x
    %next = linalg.add ins(%d, %dx : !x, !x) outs(%ex : !x) -> !x
    %e1 = tensor.empty() : tensor<1x16x16xf32>
    %dw1 = linalg.generic {indexing_maps = [#tail, #id], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%dw : !m) outs(%e1 : tensor<1x16x16xf32>) {
    ^bb0(%a: f32, %o: f32):
      linalg.yield %a : f32
    } -> tensor<1x16x16xf32>
    %gs_next = tensor.insert_slice %dw1 into %gs[%l, 0, 0] [1, 16, 16] [1, 1, 1] : tensor<1x16x16xf32> into !w
    %down = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
        ins(%count : tensor<i32>) outs(%ei : tensor<i32>) {
    ^bb0(%a: i32, %o: i32):
      %one = arith.constant 1 : i32
      %b = arith.subi %a, %one : i32
      linalg.yield %b : i32
    } -> tensor<i32>
    scf.yield %next, %down, %gs_next : !x, tensor<i32>, !w
  }

  %squares = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction", "reduction"]}
      ins(%g#2 : !w) outs(%none : tensor<f32>) {
  ^bb0(%a: f32, %s: f32):
    %q = arith.mulf %a, %a : f32
    %r = arith.addf %s, %q : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  %m_next = linalg.generic {indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %g#2, %squares : !w, !w, tensor<f32>) outs(%ew : !w) {
  ^bb0(%a: f32, %b: f32, %s: f32, %o: f32):
    %half = arith.constant 0.5 : f32
    %p = arith.mulf %a, %half : f32
    %q = math.rsqrt %s : f32
    %r = arith.mulf %b, %q : f32
    %u = arith.addf %p, %r : f32
    linalg.yield %u : f32
  } -> !w
  %w_next = linalg.generic {indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %m_next, %lr : !w, !w, tensor<f32>) outs(%ew : !w) {
  ^bb0(%a: f32, %b: f32, %s: f32, %o: f32):
    %p = arith.mulf %b, %s : f32
    %q = arith.subf %a, %p : f32
    linalg.yield %q : f32
  } -> !w
  return %w_next, %m_next, %loss : !w, !w, tensor<f32>
}
