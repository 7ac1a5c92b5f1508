# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step with scores of the blocks of its gradients: the norms, and what else it computes."""

import numpy as np
import step

TOKENS, WIDTH, HIDDEN = 96, 64, 128

# y = relu(x u) v, dy given; u and v are updated by their gradients.
SOURCE = f"""
#id = affine_map<(i, j) -> (i, j)>
#a = affine_map<(t, o, i) -> (t, i)>
#b = affine_map<(t, o, i) -> (i, o)>
#bt = affine_map<(t, o, i) -> (o, i)>
#c = affine_map<(t, o, i) -> (t, o)>
#ga = affine_map<(r, c, t) -> (t, r)>
#gb = affine_map<(r, c, t) -> (t, c)>
#gc = affine_map<(r, c, t) -> (r, c)>
!x = tensor<{TOKENS}x{WIDTH}xf32>
!h = tensor<{TOKENS}x{HIDDEN}xf32>
!u = tensor<{WIDTH}x{HIDDEN}xf32>
!v = tensor<{HIDDEN}x{WIDTH}xf32>
func.func @step(%u: !u {{bsr.name = "u", bsr.result = 0 : i64}},
                %v: !v {{bsr.name = "v", bsr.result = 1 : i64}},
                %x: !x {{bsr.name = "x"}}, %dy: !x {{bsr.name = "dy"}}) -> (!u, !v) {{
  %zero = arith.constant 0.0 : f32
  %eh = tensor.empty() : !h
  %h0 = linalg.fill ins(%zero : f32) outs(%eh : !h) -> !h
  %s = linalg.generic {{indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%x, %u : !x, !u) outs(%h0 : !h) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  }} -> !h
  %h = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}}
      ins(%s : !h) outs(%eh : !h) {{
  ^bb0(%p: f32, %o: f32):
    %0 = arith.maximumf %p, %zero : f32
    linalg.yield %0 : f32
  }} -> !h
  %t = linalg.generic {{indexing_maps = [#a, #bt, #c], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%dy, %v : !x, !v) outs(%h0 : !h) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  }} -> !h
  %dh = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}}
      ins(%t, %s : !h, !h) outs(%eh : !h) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.cmpf ogt, %q, %zero : f32
    %1 = arith.select %0, %p, %zero : f32
    linalg.yield %1 : f32
  }} -> !h
  %eu = tensor.empty() : !u
  %u0 = linalg.fill ins(%zero : f32) outs(%eu : !u) -> !u
  %gu = linalg.generic {{indexing_maps = [#ga, #gb, #gc], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%x, %dh : !x, !h) outs(%u0 : !u) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  }} -> !u
  %ev = tensor.empty() : !v
  %v0 = linalg.fill ins(%zero : f32) outs(%ev : !v) -> !v
  %gv = linalg.generic {{indexing_maps = [#ga, #gb, #gc], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%h, %dy : !h, !x) outs(%v0 : !v) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  }} -> !v
  %un = linalg.sub ins(%u, %gu : !u, !u) outs(%eu : !u) -> !u
  %vn = linalg.sub ins(%v, %gv : !v, !v) outs(%ev : !v) -> !v
  return %un, %vn : !u, !v
}}
"""

NORMS = {
    "l1": lambda blocks: np.abs(blocks).sum((1, 3)),
    "l2": lambda blocks: np.sqrt((blocks**2).sum((1, 3))),
    "linf": lambda blocks: np.abs(blocks).max((1, 3)),
}

random = np.random.default_rng(0)
for norm, block in [("l1", (16, 16)), ("l2", (4, 8)), ("linf", (1, 1)), ("l1", (64, 32))]:
    mark = [f"--mark=match=[uv] block={block[0]}x{block[1]} density=0.3"]
    plain = step.compile(SOURCE, mark)
    scored = step.compile(SOURCE, mark + [f"--score-norm={norm}"])
    assert "score_norm" not in plain.manifest and scored.manifest["score_norm"] == norm
    x, dy = (random.standard_normal((TOKENS, WIDTH)) for _ in "xy")
    arrays, masks, dense = {"x": x, "dy": dy}, {}, {}
    for pattern in scored.manifest["patterns"]:
        name, shape = pattern["name"], pattern["shape"]
        grid = [shape[0] // block[0], shape[1] // block[1]]
        chosen = random.permutation(grid[0] * grid[1])[:pattern["slots"]]
        masks[name] = np.isin(np.arange(grid[0] * grid[1]), chosen).reshape(grid)
        covered = np.kron(masks[name], np.ones(block))
        dense[name] = (random.standard_normal(shape) * covered).astype(np.float32).astype(np.float64)
        arrays[name] = step.to_values(dense[name], masks[name], block)
    x, dy = (a.astype(np.float32).astype(np.float64) for a in (x, dy))
    s = x @ dense["u"]
    want = {"u": x.T @ (dy @ dense["v"].T * (s > 0)), "v": np.maximum(s, 0).T @ dy}

    runs = {
        "plain": plain.run(arrays, masks),
        "without": scored.run(arrays, masks),
        "with": scored.run(arrays, masks, entry="bsr_step_run_scores"),
        "one thread": scored.run(arrays, masks, entry="bsr_step_run_scores", threads=1),
    }
    for name in ("u", "v"):
        for label, got in runs.items():
            assert got[name].tobytes() == runs["plain"][name].tobytes(), (norm, block, name, label)
        got = runs["with"][f"scores.{name}"]
        gradient = want[name]
        wanted = NORMS[norm](gradient.reshape(got.shape[0], block[0], got.shape[1], block[1]))
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4, err_msg=f"{norm} {block} {name}")
        assert got.tobytes() == runs["one thread"][f"scores.{name}"].tobytes()
        # A run without scores does not compute them.
        assert not np.allclose(runs["without"][f"scores.{name}"], wanted), "scores without being asked for"
    # Scores lie in the arena while they are there, next to what else is live.
    buffers = {b["name"]: b for b in scored.manifest["buffers"] if b["kind"] == "scores"}
    assert set(buffers) == {"u", "v"} and all(b["arena_offset"] % 64 == 0 for b in buffers.values())
