# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loss of logits that a sparse product makes, compiled, against numpy in f64.

The logits lie with their tokens in lanes, and the logarithm of the softmax of a token
is picked at its label: a label per sequence and position, collapsed as PyTorch does.
"""

import numpy as np
import references
import step

BLOCK = 8


def cross_entropy(batch, tokens, features, classes):
    count = batch * tokens
    logits, column, row = f"tensor<{count}x{classes}xf32>", f"tensor<{count}x1xf32>", f"tensor<{count}xf32>"
    return f"""
#rows = affine_map<(t, c) -> (t, c)>
#row = affine_map<(t, c) -> (t, 0)>
#all = affine_map<(t) -> (t)>
#none = affine_map<(t) -> ()>
func.func @step(%w: tensor<{classes}x{features}xf32> {{bsr.name = "w"}}, %x: tensor<{batch}x{tokens}x{features}xf32> {{bsr.name = "x"}},
                %y: tensor<{batch}x{tokens}xi64> {{bsr.name = "y"}}) -> (tensor<f32> {{bsr.name = "loss"}}) {{
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %number = arith.constant {float(count)} : f32
  %we = tensor.empty() : tensor<{features}x{classes}xf32>
  %wt = linalg.transpose ins(%w : tensor<{classes}x{features}xf32>) outs(%we : tensor<{features}x{classes}xf32>) permutation = [1, 0]
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<{batch}x{tokens}x{features}xf32> into tensor<{count}x{features}xf32>
  %e = tensor.empty() : {logits}
  %z0 = linalg.fill ins(%zero : f32) outs(%e : {logits}) -> {logits}
  %z = linalg.matmul ins(%flat, %wt : tensor<{count}x{features}xf32>, tensor<{features}x{classes}xf32>) outs(%z0 : {logits}) -> {logits}
  %e1 = tensor.empty() : {column}
  %least1 = linalg.fill ins(%least : f32) outs(%e1 : {column}) -> {column}
  %zero1 = linalg.fill ins(%zero : f32) outs(%e1 : {column}) -> {column}
  %max = linalg.generic {{indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%z : {logits}) outs(%least1 : {column}) {{
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  }} -> {column}
  %below = linalg.generic {{indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}}
      ins(%z, %max : {logits}, {column}) outs(%e : {logits}) {{
  ^bb0(%a: f32, %m: f32, %o: f32):
    %0 = arith.subf %a, %m : f32
    linalg.yield %0 : f32
  }} -> {logits}
  %sum = linalg.generic {{indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%below : {logits}) outs(%zero1 : {column}) {{
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  }} -> {column}
  %logs = linalg.generic {{indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}}
      ins(%below, %sum : {logits}, {column}) outs(%e : {logits}) {{
  ^bb0(%a: f32, %s: f32, %o: f32):
    %0 = math.log %s : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  }} -> {logits}
  %labels = tensor.collapse_shape %y [[0, 1]] : tensor<{batch}x{tokens}xi64> into tensor<{count}xi64>
  %e2 = tensor.empty() : {row}
  %picked = linalg.generic {{indexing_maps = [#all, #all], iterator_types = ["parallel"]}}
      ins(%labels : tensor<{count}xi64>) outs(%e2 : {row}) {{
  ^bb0(%l: i64, %o: f32):
    %t = linalg.index 0 : index
    %c = arith.index_cast %l : i64 to index
    %0 = tensor.extract %logs[%t, %c] : {logits}
    %1 = arith.divf %0, %number : f32
    %2 = arith.negf %1 : f32
    linalg.yield %2 : f32
  }} -> {row}
  %e3 = tensor.empty() : tensor<f32>
  %zero3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<f32>) -> tensor<f32>
  %loss = linalg.generic {{indexing_maps = [#all, #none], iterator_types = ["reduction"]}}
      ins(%picked : {row}) outs(%zero3 : tensor<f32>) {{
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  }} -> tensor<f32>
  return %loss : tensor<f32>
}}"""


def check(label, compiled, arrays, patterns, name, want, bound):
    one, two = (compiled.run(arrays, patterns, threads=threads)[name] for threads in (1, 2))
    assert one.tobytes() == two.tobytes(), f"{label}: {name} depends on threads"
    error = np.max(np.abs(one - want))
    assert error <= bound, f"{label}: {name} is wrong by {error}, more than {bound}"


random = np.random.default_rng(0)
for (batch, tokens, classes), bits in [((2, 8, 64), 128), ((2, 8, 64), 256), ((2, 8, 64), 512), ((3, 7, 40), 256), ((5, 13, 24), 512),
                                       ((1, 37, 64), 128), ((4, 33, 48), 256), ((2, 64, 72), 512)]:
    features = 32
    mask = np.arange(classes * features // BLOCK**2).reshape(classes // BLOCK, features // BLOCK) % 2 == 0
    weight = random.standard_normal((classes, features)).astype(np.float32)
    arrays = {"w": step.to_values(weight, mask, (BLOCK, BLOCK)),
              "x": random.standard_normal((batch, tokens, features)).astype(np.float32),
              "y": random.integers(0, classes, (batch, tokens))}
    z = arrays["x"].reshape(-1, features).astype(np.float64) @ (weight * np.kron(mask, np.ones((BLOCK, BLOCK)))).T.astype(np.float64)
    _, largest, total = references.softmax(z)
    logs = z - largest - np.log(total)
    want = -logs[np.arange(len(z)), arrays["y"].ravel()].mean()
    compiled = step.compile(cross_entropy(batch, tokens, features, classes),
                            [f"--mark=match=^w$ block={BLOCK}x{BLOCK} density=0.5"]
                            + [f"--vector-bits={bits}"] * (not step.is_scalar()))
    check(f"{batch}x{tokens} labels of {classes}, {bits} bits", compiled, arrays, {"w": mask}, "loss", want, 1e-5)
