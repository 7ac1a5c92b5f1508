# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Powers of f32, against numpy in f64: all pairs of special values, and random ones."""

import numpy as np
import step

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3.4e38,
           -3.4e38, 16777217.0, 1 + 2**-23, 1 - 2**-24, 0.999, 1000.0, 128.0, -149.0, -150.5]

random = np.random.default_rng(0)
xs, ys = (a.reshape(-1) for a in np.meshgrid(SPECIAL, SPECIAL))
xs = np.concatenate([xs, np.exp(random.normal(0, 3, 3000)), random.uniform(0.9, 1, 1000)]).astype(np.float32)
ys = np.concatenate([ys, random.normal(0, 10, 3000), random.integers(1, 100000, 1000)]).astype(np.float32)
n = len(xs)
same = "affine_map<(i) -> (i)>"
text = f"""
func.func @step(%x: tensor<{n}xf32> {{bsr.name = "x"}}, %y: tensor<{n}xf32> {{bsr.name = "y"}})
    -> (tensor<{n}xf32> {{bsr.name = "z"}}) {{
  %e = tensor.empty() : tensor<{n}xf32>
  %z = linalg.generic {{indexing_maps = [{same}, {same}, {same}], iterator_types = ["parallel"]}}
      ins(%x, %y : tensor<{n}xf32>, tensor<{n}xf32>) outs(%e : tensor<{n}xf32>) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = math.powf %a, %b : f32
    linalg.yield %0 : f32
  }} -> tensor<{n}xf32>
  return %z : tensor<{n}xf32>
}}"""
got = step.compile(text).run({"x": xs, "y": ys})["z"]
with np.errstate(all="ignore"):
    exact = np.power(xs.astype(np.float64), ys.astype(np.float64))
    want = exact.astype(np.float32)
    unit = np.spacing(np.abs(want)).astype(np.float64)
    error = np.abs(got.astype(np.float64) - exact) / unit
finite = np.isfinite(want)
wrong = np.where(finite, ~(error <= 0.501), ~((got == want) | (np.isnan(got) & np.isnan(want))))
wrong |= (want == 0) & (np.signbit(got) != np.signbit(want))
assert not wrong.any(), [(xs[i], ys[i], got[i], exact[i]) for i in np.flatnonzero(wrong)[:10]]
print(f"{n} powers, at most {error[finite].max():.3f} units in the last place")
