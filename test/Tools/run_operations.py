# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""sparse-run on each operation of the dialect that tensors have, against numpy."""

import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import step, tensor_file, run  # noqa: E402
import references  # noqa: E402

ROWS, COLS, BR, BC, SLOTS = 6, 12, 2, 3, 7
MASK = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)  # an empty block row, a full one
ORDER = [6, 0, 3, 1, 5, 2]  # slot 4 holds no block
RANDOM = np.random.default_rng(5)
WHERE = np.kron(MASK, np.ones((BR, BC))) > 0


def normal(*shape):
    return RANDOM.standard_normal(shape)


ARRAYS = {
    "values": normal(SLOTS, BR, BC), "x": normal(2, ROWS, 5), "dy": normal(2, COLS, 5), "bias": normal(COLS), "c": normal(),
    "dense": normal(ROWS, COLS), "rows": normal(ROWS), "cols": normal(COLS), "ids": np.array([[1, 4, 0], [1, -1, 9]], np.int32),
    "u": normal(2, 3, 4), "q": normal(2, 4, 3), "k": normal(2, 6, 3), "v": normal(2, 6, 5), "s": normal(2, 4, 6),
    "m": RANDOM.random((4, 6)) < 0.7, "dz": normal(2, 4, 5), "gx": normal(7, 3), "gy": normal(7, 4), "gw": normal(5, 3, 4),
    "groups": np.array([4, 1, -1, 1, 5, 1, 0], np.int32),  # groups without rows, rows without a group
}
ARRAYS["values"][4] = np.nan
ARRAYS["m"][0] = True
VIEWS = step.views(MASK, SLOTS, ORDER)
PATTERN = "!bsr.pattern<6x12, block = 2x3, slots = 7>"
SCORES = "!bsr.pattern<4x6, block = 2x3, slots = 4>"
KINDS = {"f": "f64", "i": "i32", "b": "i1"}


def type_of(array):
    return "tensor<" + "".join(f"{extent}x" for extent in np.shape(array)) + KINDS[np.asarray(array).dtype.kind] + ">"


def attended(keep):
    """Attention of q, k, v, the bias s and the mask m, on the scores that `keep` says; its gradients."""
    q, k, v, dz, bias, mask = (ARRAYS[name] for name in ("q", "k", "v", "dz", "s", "m"))
    of = references.attention(q, k, v, dz, scale=0.5, bias=bias, mask=mask, fill=-3.0, live=keep, empty=0.0)
    return {name: getattr(of, name) for name in ("y", "dq", "dk", "dv")}


def attention(prefix, pattern, keep, zero):
    """The lines of an attention and its gradient, and what they must be."""
    m = {n: f"affine_map<(t, i, j, d, e) -> ({d})>" for n, d in
         {"q": "t, i, d", "k": "t, j, d", "v": "t, j, e", "y": "t, i, e", "s": "t, i, j", "m": "i, j"}.items()}
    types = {n: type_of(ARRAYS[n]) for n in "qkvsm"} | {"y": type_of(ARRAYS["dz"]), "l": "tensor<2x2x4xf64>"}
    more = " pattern %sp" if pattern else ""
    tail = (f", {SCORES}" if pattern else "") + ")"
    lines = f"""  %{prefix}y, %{prefix}l = bsr.attention(%q, %k, %v) bias %s mask %m{more} scale = 0.5 fill = -3.0{zero}
      maps = [{m['q']}, {m['k']}, {m['v']}, {m['y']}, {m['s']}, {m['m']}]
      : ({types['q']}, {types['k']}, {types['v']}, {types['s']}, {types['m']}{tail} -> ({types['y']}, {types['l']})
  %{prefix}dq, %{prefix}dk, %{prefix}dv = bsr.attention_grad(%q, %k, %v, %{prefix}y, %{prefix}l, %dz) bias %s mask %m{more} scale = 0.5 fill = -3.0{zero}
      maps = [{m['q']}, {m['k']}, {m['v']}, {m['y']}, {m['y']}, {m['q']}, {m['k']}, {m['v']}, {m['s']}, {m['m']}]
      : ({types['q']}, {types['k']}, {types['v']}, {types['y']}, {types['l']}, {types['y']}, {types['s']}, {types['m']}{tail}
      -> ({types['q']}, {types['k']}, {types['v']})
"""
    return lines, {prefix + name: array for name, array in attended(keep).items()}


def expected():
    a, w = ARRAYS, np.where(WHERE, step.to_dense(ARRAYS["values"], MASK, ORDER), 0)
    filled = np.where(WHERE, w, a["c"])
    g = np.einsum("bri,bci->rc", a["x"], a["dy"])
    blocks = np.abs(g).reshape(3, BR, 4, BC).transpose(0, 2, 1, 3)
    scattered = np.zeros((5, 4))
    for ids, updates in zip(a["ids"], a["u"]):
        for index, update in zip(ids, updates):
            if 0 <= index < 5:
                scattered[index] += update
    values = lambda dense: step.to_values(np.broadcast_to(dense, (ROWS, COLS)).copy(), MASK, (BR, BC), SLOTS, ORDER)
    return {
        "to_dense": filled, "to_dense_t": filled.T, "sample": values(a["dense"]), "sample_t": values(a["dense"]),
        "by_rows": values(a["rows"][:, None])[:, :, :1], "by_cols": values(a["cols"])[:, :1], "row_sums": filled.sum(1), "col_sums": w.sum(0),
        "spmm": np.einsum("bri,rc->bci", a["x"], w) + a["bias"][:, None], "spmm_t": np.einsum("bci,rc->bri", a["dy"], w),
        "sddmm": values(g), "l1": blocks.sum((2, 3)), "l2": np.sqrt((blocks**2).sum((2, 3))), "linf": blocks.max((2, 3)),
        "scatter": scattered, "live": np.isin(np.arange(SLOTS), ORDER), "absent": np.float64((~WHERE).sum()), "mean": a["x"],
        **{f"view{i}": np.where(VIEWS[n] < 0, step_unspecified(), VIEWS[n]) for i, n in enumerate(step.VIEWS)},
        "constant": np.kron(np.array([[0, 1], [1, 0]]), np.ones((2, 2))) * np.repeat([[2.0] * 4], 4, 0),
    }


def batched():
    """Values with a batch dimension: a matrix for each of two sequences, of one pattern."""
    a = ARRAYS
    g = np.einsum("bri,bci->brc", a["x"], a["dy"])
    stored = np.where(WHERE, g, 0)
    values = lambda dense: np.stack([step.to_values(m.copy(), MASK, (BR, BC), SLOTS, ORDER)
                                     for m in np.broadcast_to(dense, (2, ROWS, COLS))])
    top, low = (np.where(WHERE, g, -np.inf).max(axis) for axis in (-1, -2))
    return {
        "batch_sddmm": values(g), "batch_top": top, "batch_low": low, "batch_sums": stored.sum(-1), "batch_col_sums": stored.sum(-2),
        "batch_tops": values(top[..., None])[..., :1], "batch_lows": values(low[:, None])[:, :, :1],
        "batch_spmm": np.einsum("bri,brc->bci", a["x"], stored), "batch_spmm_t": np.einsum("bci,brc->bri", a["dy"], stored),
    }


def grouped():
    a, y, dx, dw = ARRAYS, np.zeros((7, 4)), np.zeros((7, 3)), np.zeros((5, 3, 4))
    for row, group in enumerate(a["groups"]):
        if 0 <= group < 5:
            y[row], dx[row] = a["gx"][row] @ a["gw"][group], a["gw"][group] @ a["gy"][row]
            dw[group] += np.outer(a["gx"][row], a["gy"][row])
    return {"grouped": y, "grouped_t": dx, "grouped_outer": dw}


def step_unspecified():
    return np.int32(0x5A5A5A5A)


def main():
    keep = np.kron(np.array([[1, 1], [1, 0]]), np.ones((2, 3))) > 0
    dense_lines, dense_wanted = attention("a_", False, np.ones((4, 6), bool), "")
    sparse_lines, sparse_wanted = attention("b_", True, keep, "")
    empty = np.kron(np.array([[1, 1], [0, 0]]), np.ones((2, 3))) > 0
    wanted = expected() | batched() | grouped() | dense_wanted | sparse_wanted
    T = {name: type_of(array) for name, array in wanted.items()} | dict.fromkeys(("l1", "l2", "linf"), "tensor<3x4xf32>")
    A = {name: type_of(array) for name, array in ARRAYS.items()}
    results = ", ".join(f'{T[name]} {{bsr.name = "{name}"}}' for name in wanted)
    arguments = ", ".join(f'%{name}: {A[name]} {{bsr.name = "{name}"}}' for name in ARRAYS)
    v = A["values"]
    text = f"""func.func @step({arguments}, %p: {PATTERN} {{bsr.name = "values", bsr.role = "pattern"}},
    %sp: {SCORES} {{bsr.name = "scores", bsr.role = "pattern"}}) -> ({results}) {{
  %dense_t = tensor.empty() : tensor<12x6xf64>
  %turned = linalg.transpose ins(%dense : {A['dense']}) outs(%dense_t : tensor<12x6xf64>) permutation = [1, 0]
  %to_dense = bsr.to_dense %p, %values background %c : {PATTERN}, {v}, tensor<f64> -> {T['to_dense']}
  %to_dense_t = bsr.to_dense %p, %values background %c transpose : {PATTERN}, {v}, tensor<f64> -> {T['to_dense_t']}
  %sample = bsr.sample %p, %dense : {PATTERN}, {A['dense']} -> {v}
  %sample_t = bsr.sample %p, %turned transpose : {PATTERN}, tensor<12x6xf64> -> {v}
  %by_rows = bsr.sample_vec %p, %rows dim = 0 : {PATTERN}, {A['rows']} -> {T['by_rows']}
  %by_cols = bsr.sample_vec %p, %cols dim = 1 : {PATTERN}, {A['cols']} -> {T['by_cols']}
  %row_sums = bsr.reduce_vec %p, %values background %c dim = 0 : {PATTERN}, {v}, tensor<f64> -> {T['row_sums']}
  %col_sums = bsr.reduce_vec %p, %values dim = 1 : {PATTERN}, {v} -> {T['col_sums']}
  %spmm = bsr.spmm %p, %values, %x bias %bias feature_dim = 1 : {PATTERN}, {v}, {A['x']}, {A['bias']} -> {T['spmm']}
  %spmm_t = bsr.spmm %p, %values, %dy transpose feature_dim = 1 : {PATTERN}, {v}, {A['dy']} -> {T['spmm_t']}
  %sddmm = bsr.sddmm %p, %x, %dy feature_dim = 1 : {PATTERN}, {A['x']}, {A['dy']} -> {v}
  %l1 = bsr.block_scores l1 %x, %dy feature_dim = 1 : {A['x']}, {A['dy']} -> {T['l1']}
  %l2 = bsr.block_scores l2 %x, %dy feature_dim = 1 : {A['x']}, {A['dy']} -> {T['l2']}
  %linf = bsr.block_scores linf %x, %dy feature_dim = 1 : {A['x']}, {A['dy']} -> {T['linf']}
  %scatter = bsr.scatter_add %ids, %u feature_dim = 2 : {A['ids']}, {A['u']} -> {T['scatter']}
  %live = bsr.live %p : {PATTERN} -> {T['live']}
  %absent = bsr.num_absent %p : {PATTERN} -> {T['absent']}
  %mean = bsr.all_reduce %x : {A['x']} -> {A['x']}
  %view0, %view1, %view2 = bsr.indices %p : {PATTERN} -> {T['view0']}, {T['view1']}, {T['view2']}
  %view3, %view4, %view5 = bsr.indices %p transpose : {PATTERN} -> {T['view3']}, {T['view4']}, {T['view5']}
  %cp = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [1, 0] : !bsr.pattern<4x4, block = 2x2, slots = 2>
  %twos = arith.constant dense<2.0> : tensor<2x2x2xf64>
  %constant = bsr.to_dense %cp, %twos : !bsr.pattern<4x4, block = 2x2, slots = 2>, tensor<2x2x2xf64> -> {T['constant']}
  %batch_sddmm = bsr.sddmm %p, %x, %dy feature_dim = 1 : {PATTERN}, {A['x']}, {A['dy']} -> {T['batch_sddmm']}
  %batch_top = bsr.reduce_vec %p, %batch_sddmm max dim = 0 : {PATTERN}, {T['batch_sddmm']} -> {T['batch_top']}
  %batch_low = bsr.reduce_vec %p, %batch_sddmm max dim = 1 : {PATTERN}, {T['batch_sddmm']} -> {T['batch_low']}
  %batch_sums = bsr.reduce_vec %p, %batch_sddmm dim = 0 : {PATTERN}, {T['batch_sddmm']} -> {T['batch_sums']}
  %batch_col_sums = bsr.reduce_vec %p, %batch_sddmm dim = 1 : {PATTERN}, {T['batch_sddmm']} -> {T['batch_col_sums']}
  %batch_tops = bsr.sample_vec %p, %batch_top dim = 0 : {PATTERN}, {T['batch_top']} -> {T['batch_tops']}
  %batch_lows = bsr.sample_vec %p, %batch_low dim = 1 : {PATTERN}, {T['batch_low']} -> {T['batch_lows']}
  %batch_spmm = bsr.spmm %p, %batch_sddmm, %x feature_dim = 1 : {PATTERN}, {T['batch_sddmm']}, {A['x']} -> {T['batch_spmm']}
  %batch_spmm_t = bsr.spmm %p, %batch_sddmm, %dy transpose feature_dim = 1 : {PATTERN}, {T['batch_sddmm']}, {A['dy']} -> {T['batch_spmm_t']}
  %grouped = bsr.grouped_matmul %gx, %gw, %groups : {A['gx']}, {A['gw']}, {A['groups']} -> {T['grouped']}
  %grouped_t = bsr.grouped_matmul %gy, %gw, %groups transpose : {A['gy']}, {A['gw']}, {A['groups']} -> {T['grouped_t']}
  %grouped_outer = bsr.grouped_outer %gx, %gy, %groups : {A['gx']}, {A['gy']}, {A['groups']} -> {T['grouped_outer']}
{dense_lines}{sparse_lines}  return {', '.join('%' + name for name in wanted)} : {', '.join(T.values())}
}}
"""
    with tempfile.TemporaryDirectory() as folder:
        values = os.path.join(folder, "values")
        stored = {f"values.bsr.{n}": VIEWS[n] for n in ("row_ptr", "col_idx", "slot")}
        stored |= {f"scores.bsr.{n}": step.views(np.array([[1, 1], [1, 0]], bool))[n] for n in ("row_ptr", "col_idx")}
        tensor_file.write_arrays(values, ARRAYS | stored)
        got = run(text, values, folder)
        for name, array in wanted.items():
            assert got[name].shape == np.shape(array), name
            np.testing.assert_allclose(got[name], array, rtol=1e-12, atol=1e-12, err_msg=name)
        assert set(got) == set(wanted)
        # A row without a stored block is NaN, or 0 where the operation says so.
        tensor_file.write_arrays(values, ARRAYS | stored | {f"scores.bsr.{n}": step.views(np.array([[1, 1], [0, 0]], bool))[n] for n in ("row_ptr", "col_idx")})
        assert np.isnan(run(text, values, folder)["b_y"][:, 2:]).all()
        zeroed = run(text.replace(" fill = -3.0", " fill = -3.0 zero_empty"), values, folder)
        for name, array in attended(empty).items():
            np.testing.assert_allclose(zeroed["b_" + name], array, rtol=1e-12, atol=1e-12, err_msg=name)
    print(f"{len(wanted)} results agree")


main()
