# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step as text: two weights, the gradients of two squares, SGD with momentum."""


def text(a=(16, 24), b=(16, 8), tokens=16):
    """Returns the step; its weights `a` and `b` are of these shapes."""
    functions = ""
    for name, (rows, cols) in (("a", a), ("b", b)):
        x, w, y = (f"tensor<{n}xf32>" for n in (f"{tokens}x{rows}", f"{rows}x{cols}", f"{tokens}x{cols}"))
        functions += f"""
  %{name}z = arith.constant dense<0.0> : {y}
  %{name}g0 = arith.constant dense<0.0> : {w}
  %{name}y = linalg.matmul ins(%x, %{name} : {x}, {w}) outs(%{name}z : {y}) -> {y}
  %{name}g = linalg.matmul indexing_maps = [#xt, #dy, #dw] ins(%x, %{name}y : {x}, {y}) outs(%{name}g0 : {w}) -> {w}
  %{name}m1 = linalg.generic {{indexing_maps = [#m, #m, #m], iterator_types = ["parallel", "parallel"]}}
      ins(%{name}m, %{name}g : {w}, {w}) outs(%{name}m : {w}) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %c = arith.constant 0.5 : f32
    %r = arith.mulf %p, %c : f32
    %s = arith.addf %r, %q : f32
    linalg.yield %s : f32
  }} -> {w}
  %{name}1 = linalg.generic {{indexing_maps = [#m, #m, #s, #m], iterator_types = ["parallel", "parallel"]}}
      ins(%{name}, %{name}m1, %lr : {w}, {w}, tensor<f32>) outs(%{name} : {w}) {{
  ^bb0(%p: f32, %q: f32, %l: f32, %o: f32):
    %r = arith.mulf %q, %l : f32
    %s = arith.subf %p, %r : f32
    linalg.yield %s : f32
  }} -> {w}
  %{name}l = linalg.generic {{indexing_maps = [#m, #s], iterator_types = ["reduction", "reduction"]}}
      ins(%{name}y : {y}) outs(%{"zero" if name == "a" else "al"} : tensor<f32>) {{
  ^bb0(%p: f32, %s: f32):
    %q = arith.mulf %p, %p : f32
    %t = arith.addf %s, %q : f32
    linalg.yield %t : f32
  }} -> tensor<f32>"""
    types = [f"tensor<{r}x{c}xf32>" for r, c in (a, a, b, b)]
    arguments = "".join(
        f'%{n}: {t} {{bsr.name = "{full}", bsr.role = "{role}", bsr.result = {i} : i64, bsr.init = "{init}"}}, '
        for i, (n, full, role, init, t) in enumerate(zip(
            ("a", "am", "b", "bm"), ("a", "a.m", "b", "b.m"), ("param", "state") * 2,
            ("normal(1)", "zeros") * 2, types))
    )
    return f"""
#xt = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#dw = affine_map<(i, j, k) -> (i, j)>
#m = affine_map<(i, j) -> (i, j)>
#s = affine_map<(i, j) -> ()>
func.func @step({arguments}%x: tensor<{tokens}x{a[0]}xf32> {{bsr.name = "x", bsr.role = "batch"}},
                %lr: tensor<f32> {{bsr.name = "lr", bsr.role = "lr"}})
    -> ({", ".join(types)}, tensor<f32> {{bsr.name = "loss", bsr.role = "loss"}}) {{
  %zero = arith.constant dense<0.0> : tensor<f32>{functions}
  return %a1, %am1, %b1, %bm1, %bl : {", ".join(types)}, tensor<f32>
}}
"""
