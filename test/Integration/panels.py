# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense products whose columns are cut at panels or lie in a part, against numpy in f64.

A gate multiplies features, a row of them for each example, before a sparse product
reads them in panels: the columns that a work item computes of the gate are fewer than
a panel has lanes. The gradient of a part of a vector per head ends where the rest,
zeros, goes on.
"""

import itertools

import numpy as np
import step

ROUNDOFF = 2.0**-24
MULTIPLY_ADD = """^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32"""


def gate(batch, inputs, lanes):
    return f"""
#a = affine_map<(b, c, k) -> (b, k)>
#h = affine_map<(b, c, k) -> (c, k)>
#g = affine_map<(b, c, k) -> (b, c)>
#bc = affine_map<(b, c, t) -> (b, c)>
#bct = affine_map<(b, c, t) -> (b, c, t)>
#x = affine_map<(b, c, d, t) -> (b, c, t)>
#w = affine_map<(b, c, d, t) -> (t, d)>
#y = affine_map<(b, c, d, t) -> (b, c, d)>
func.func @step(%w: tensor<64x128xf32> {{bsr.name = "w"}}, %a: tensor<{batch}x{inputs}xf32> {{bsr.name = "a"}},
                %h: tensor<{lanes}x{inputs}xf32> {{bsr.name = "h"}}, %u: tensor<{batch}x{lanes}x64xf32> {{bsr.name = "u"}})
    -> (tensor<{batch}x{lanes}x128xf32> {{bsr.name = "y"}}) {{
  %z0 = arith.constant dense<0.0> : tensor<{batch}x{lanes}xf32>
  %z1 = arith.constant dense<0.0> : tensor<{batch}x{lanes}x128xf32>
  %g = linalg.generic {{indexing_maps = [#a, #h, #g], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %h : tensor<{batch}x{inputs}xf32>, tensor<{lanes}x{inputs}xf32>) outs(%z0 : tensor<{batch}x{lanes}xf32>) {{
  {MULTIPLY_ADD}
  }} -> tensor<{batch}x{lanes}xf32>
  %e = tensor.empty() : tensor<{batch}x{lanes}x64xf32>
  %x = linalg.generic {{indexing_maps = [#bc, #bct, #bct], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%g, %u : tensor<{batch}x{lanes}xf32>, tensor<{batch}x{lanes}x64xf32>) outs(%e : tensor<{batch}x{lanes}x64xf32>) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %q : f32
    linalg.yield %m : f32
  }} -> tensor<{batch}x{lanes}x64xf32>
  %y = linalg.generic {{indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
      ins(%x, %w : tensor<{batch}x{lanes}x64xf32>, tensor<64x128xf32>) outs(%z1 : tensor<{batch}x{lanes}x128xf32>) {{
  {MULTIPLY_ADD}
  }} -> tensor<{batch}x{lanes}x128xf32>
  return %y : tensor<{batch}x{lanes}x128xf32>
}}"""


def part(heads, tokens, features, offset):
    """The gradient of `features` of 2 * `features` of a vector per head."""
    return f"""
#h = affine_map<(a, f, o, t) -> (a, t, f)>
#d = affine_map<(a, f, o, t) -> (a, o, t)>
#g = affine_map<(a, f, o, t) -> (a, f, o)>
func.func @step(%h: tensor<{heads}x{tokens}x{features}xf32> {{bsr.name = "h"}}, %d: tensor<{heads}x1x{tokens}xf32> {{bsr.name = "d"}})
    -> (tensor<{heads}x{2 * features}x1xf32> {{bsr.name = "g"}}) {{
  %z = arith.constant dense<0.0> : tensor<{heads}x{features}x1xf32>
  %all = arith.constant dense<0.0> : tensor<{heads}x{2 * features}x1xf32>
  %g = linalg.generic {{indexing_maps = [#h, #d, #g], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
      ins(%h, %d : tensor<{heads}x{tokens}x{features}xf32>, tensor<{heads}x1x{tokens}xf32>)
      outs(%z : tensor<{heads}x{features}x1xf32>) {{
  {MULTIPLY_ADD}
  }} -> tensor<{heads}x{features}x1xf32>
  %whole = tensor.insert_slice %g into %all[0, {offset}, 0] [{heads}, {features}, 1] [1, 1, 1]
      : tensor<{heads}x{features}x1xf32> into tensor<{heads}x{2 * features}x1xf32>
  return %whole : tensor<{heads}x{2 * features}x1xf32>
}}"""


def check(label, compiled, arrays, patterns, expected, magnitudes, terms):
    one, two = (compiled.run(arrays, patterns, threads=threads) for threads in (1, 2))
    for name, want in expected.items():
        assert one[name].tobytes() == two[name].tobytes(), f"{label}: {name} depends on threads"
        error = np.max(np.abs(one[name] - want) / magnitudes)
        assert error <= terms * ROUNDOFF, f"{label}: {name} is wrong by {error}, more than {terms * ROUNDOFF}"


random = np.random.default_rng(0)
for (batch, inputs, lanes), bits, registers in itertools.product(
        [(4, 16, 64), (3, 5, 128)], [128, 256, 512], [16, 32]):
    shapes = {"w": (64, 128), "a": (batch, inputs), "h": (lanes, inputs), "u": (batch, lanes, 64)}
    arrays = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    w, a, h, u = (arrays[name].astype(np.float64) for name in "wahu")
    mask = np.arange(32).reshape(4, 8) % 2 == 0
    masked = w * np.kron(mask, np.ones((16, 16)))
    arrays["w"] = step.to_values(arrays["w"], mask, (16, 16))
    compiled = step.compile(gate(batch, inputs, lanes),
                            ["--mark=match=^w$ block=16x16 density=0.5", f"--vector-bits={bits}", f"--num-registers={registers}"])
    check(f"a gate of {batch}x{inputs}x{lanes}, {registers} registers of {bits} bits", compiled, arrays, {"w": mask},
          {"y": ((a @ h.T)[:, :, None] * u) @ masked},
          ((np.abs(a) @ np.abs(h).T)[:, :, None] * np.abs(u)) @ np.abs(masked) + 1e-30, inputs + 64 + 2)

for heads, tokens, features, offset in [(4, 24, 16, 0), (4, 24, 16, 16), (3, 7, 5, 5), (2, 130, 40, 0)]:
    arrays = {"h": random.standard_normal((heads, tokens, features)).astype(np.float32),
              "d": random.standard_normal((heads, 1, tokens)).astype(np.float32)}
    h, d = (arrays[name].astype(np.float64) for name in "hd")
    sums = [np.zeros((heads, 2 * features, 1)) for _ in range(2)]
    for total, (x, y) in zip(sums, [(h, d), (np.abs(h), np.abs(d))]):
        total[:, offset:offset + features, 0] = np.einsum("atf,aot->af", x, y)
    check(f"part {offset} of {heads}x{tokens}x{features}", step.compile(part(heads, tokens, features, offset)), arrays, {},
          {"g": sums[0]}, sums[1] + 1e-30, tokens)
