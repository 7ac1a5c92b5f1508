# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sines and cosines of f32 on a GPU, of all sizes, against numpy in f64: numbers next to
multiples of pi / 2, where most bits cancel, of every exponent, and special ones."""

import os

import numpy as np
import step

os.environ["BSR_COMPILE"] = "--target=gpu"
random = np.random.default_rng(0)
special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 0.999999, 1.0, 2.0**22, -(2.0**22), 2.0**22 - 1, 3.4028235e38, 1e22]
multiples = (np.pi / 2) * np.concatenate([np.arange(1, 40), 2.0 ** np.arange(4, 126) * 3, random.integers(1 << 22, 1 << 30, 300)])
every = random.uniform(1, 2, (254, 8)) * 2.0 ** np.arange(-126, 128)[:, None] * random.choice([-1, 1], (254, 8))
x = np.concatenate([special, multiples, -multiples, every.reshape(-1)]).astype(np.float32)
x = x[:len(x) // 4 * 4]  # vectors
n = len(x)
same = "affine_map<(i) -> (i)>"
lines = [f"""  %{op} = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = ["parallel"]}}
      ins(%x : tensor<{n}xf32>) outs(%e : tensor<{n}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %0 = math.{op} %a : f32
    linalg.yield %0 : f32
  }} -> tensor<{n}xf32>""" for op in ("sin", "cos")]
got = step.compile(f"""
func.func @step(%x: tensor<{n}xf32> {{bsr.name = "x"}})
    -> (tensor<{n}xf32> {{bsr.name = "sin"}}, tensor<{n}xf32> {{bsr.name = "cos"}}) {{
  %e = tensor.empty() : tensor<{n}xf32>
""" + "\n".join(lines) + f"""
  return %sin, %cos : tensor<{n}xf32>, tensor<{n}xf32>
}}""").run({"x": x})
worst = 0
for op, function in (("sin", np.sin), ("cos", np.cos)):
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
    y = got[op]
    finite = np.isfinite(exact)
    assert np.isnan(y[~finite]).all() and np.isfinite(y[finite]).all(), op
    error = np.abs(y[finite].astype(np.float64) - exact[finite]) / np.spacing(np.abs(exact[finite].astype(np.float32)))
    far = np.abs(x[finite]) >= 2.0**22
    # Below, bsr-approximate-math's polynomials; beyond, f64, rounded once.
    assert error.max() < 3 and error[far].max() < 0.501, (op, error.max(), error[far].max())
    zero = exact == 0
    assert (np.signbit(y[zero]) == np.signbit(exact[zero])).all(), op
    worst = max(worst, error[far].max())
print(f"{2 * n} sines and cosines, beyond 2^22 at most {worst:.3f} units in the last place")
