# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Powers of f32 and f64, against numpy: all pairs of special values, and random ones."""

import numpy as np
import step

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3.4e38,
           -3.4e38, 16777217.0, 1 + 2**-23, 1 - 2**-24, 0.999, 1000.0, 128.0, -149.0, -150.5]
WIDE = [5e-324, -5e-324, 1e-310, 1.7e308, -1.7e308, 1 + 2**-52, 1 - 2**-53, 1023.5, -1022.0, -1074.0]


def check(name, kind, special, limit_of):
    """Compares with f64, and f64 with what has more digits; `limit_of` are units in the last place."""
    random = np.random.default_rng(0)
    xs, ys = (a.reshape(-1) for a in np.meshgrid(special, special))
    xs = np.concatenate([xs, np.exp(random.normal(0, 3, 3000)), random.uniform(0.9, 1, 1000)]).astype(kind)
    ys = np.concatenate([ys, random.normal(0, 10, 3000), random.integers(1, 100000, 1000)]).astype(kind)
    n = len(xs)
    same = "affine_map<(i) -> (i)>"
    text = f"""
func.func @step(%x: tensor<{n}x{name}> {{bsr.name = "x"}}, %y: tensor<{n}x{name}> {{bsr.name = "y"}})
    -> (tensor<{n}x{name}> {{bsr.name = "z"}}) {{
  %e = tensor.empty() : tensor<{n}x{name}>
  %z = linalg.generic {{indexing_maps = [{same}, {same}, {same}], iterator_types = ["parallel"]}}
      ins(%x, %y : tensor<{n}x{name}>, tensor<{n}x{name}>) outs(%e : tensor<{n}x{name}>) {{
  ^bb0(%a: {name}, %b: {name}, %o: {name}):
    %0 = math.powf %a, %b : {name}
    linalg.yield %0 : {name}
  }} -> tensor<{n}x{name}>
  return %z : tensor<{n}x{name}>
}}"""
    got = step.compile(text).run({"x": xs, "y": ys})["z"]
    with np.errstate(all="ignore"):
        wide = np.longdouble if kind == np.float64 else np.float64
        exact = np.power(xs.astype(wide), ys.astype(wide))
        want = exact.astype(kind)
        unit = np.spacing(np.abs(want)).astype(wide)
        error = (np.abs(got.astype(wide) - exact) / unit).astype(np.float64)
        limit = limit_of(np.abs(ys.astype(wide) * np.log2(np.abs(xs.astype(wide)))))
    finite = np.isfinite(want)
    wrong = np.where(finite, ~(error <= limit), ~((got == want) | (np.isnan(got) & np.isnan(want))))
    wrong |= (want == 0) & (np.signbit(got) != np.signbit(want))
    assert not wrong.any(), [(xs[i], ys[i], got[i], exact[i], error[i]) for i in np.flatnonzero(wrong)[:10]]
    print(f"{n} powers of {name}, at most {error[finite].max():.3f} units in the last place")


check("f32", np.float32, SPECIAL, lambda exponent: 0.501)
check("f64", np.float64, SPECIAL + WIDE, lambda exponent: 4 * np.maximum(np.where(np.isfinite(exponent), exponent, 1), 1))
