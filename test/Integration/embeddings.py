# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps with block-sparse tables of embeddings against numpy with masks, in f64.

Rows are looked up by index, by a product with a one-hot matrix or from a transposed table; their
gradients are one-hot products or loops that add rows; a table is tied to the head's products or is
not; in f32, and in bf16 with a weight of f32. The gradient is divided by its norm, and an update
has momentum. Indices outside of the table look up zeros.
"""

import numpy as np
import step

random = np.random.default_rng(0)


def tensor(type, *shape):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + f"{type}>"


class Text:
    """A step in linalg, an operation a line of numpy's einsum."""

    def __init__(self):
        self.lines, self.types = [], {}

    def generic(self, name, spec, body, type, shape, init=None):
        """`spec` is "a:ij, b:j -> ij", `init` the value that a sum starts from."""
        ins, out = spec.split("->")
        operands = [part.strip().split(":") for part in ins.split(",") if part.strip()]
        out = out.strip()
        loops = sorted(set("".join(dims for _, dims in operands) + out))
        maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>" for dims in [*(d for _, d in operands), out])
        kinds = ", ".join('"parallel"' if loop in out else '"reduction"' for loop in loops)
        result = tensor(type, *shape)
        arguments = [f"%{chr(97 + i)}: {self.types[n][0]}" for i, (n, _) in enumerate(operands)] + [f"%o: {type}"]
        given = f"ins({', '.join('%' + n for n, _ in operands)} : {', '.join(self.tensor(n) for n, _ in operands)}) " if operands else ""
        if init is None:
            self.lines.append(f"%{name}_init = tensor.empty() : {result}")
        else:
            self.lines.append(f"%{name}_init = arith.constant dense<{init}> : {result}")
        self.lines.append(f"""%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      {given}outs(%{name}_init : {result}) {{
  ^bb0({', '.join(arguments)}):
    {body}
  }} -> {result}""")
        self.types[name] = (type, shape)

    def tensor(self, name):
        return tensor(*((self.types[name][0],) + tuple(self.types[name][1])))

    def product(self, name, spec, type, shape):
        self.generic(name, spec, f"%0 = arith.mulf %a, %b : {type}\n    %1 = arith.addf %o, %0 : {type}\n    linalg.yield %1 : {type}", type, shape, "0.0")

    def map(self, name, spec, expression, type, shape):
        self.generic(name, spec, f"%0 = {expression}\n    linalg.yield %0 : {type}", type, shape)

    def one_hot(self, name, index, type, shape):
        index_type = self.types[index][0]
        dim = len(shape) - 1
        letters = "ijk"[:dim]
        self.generic(name, f"{index}:{letters} -> {letters}v", f"""%0 = linalg.index {dim} : index
    %1 = arith.index_cast %0 : index to {index_type}
    %2 = arith.cmpi eq, %1, %a : {index_type}
    %3 = arith.constant 1.0 : {type}
    %4 = arith.constant 0.0 : {type}
    %5 = arith.select %2, %3, %4 : {type}
    linalg.yield %5 : {type}""", type, shape)


def make(rows, width, tokens, transposed, look_up, gradient, tied, type, index):
    """The text of a step; `tokens` are the batch and its tokens."""
    t = Text()
    table = (width, rows) if transposed else (rows, width)
    spec = "fv" if transposed else "vf"
    features, count = (*tokens, width), int(np.prod(tokens))
    t.types |= {"w": ("f32", table), "m": ("f32", table), "ids": (index, tokens), "s": (type, (width,)), "t": (type, features), "lr": ("f32", ())}
    source = "w"
    if type != "f32":
        t.map("cast", "w:ab -> ab", f"arith.truncf %a : f32 to {type}", type, table)
        source = "cast"
    if look_up == "product":
        t.one_hot("chosen", "ids", type, (*tokens, rows))
        t.product("x", f"chosen:ijv, {source}:{spec} -> ijf", type, features)
    else:
        at = "%f, %v" if transposed else "%v, %f"
        t.generic("x", "ids:ij -> ijx", f"""%v = arith.index_cast %a : {index} to index
    %f = linalg.index 2 : index
    %e = tensor.extract %{source}[{at}] : {tensor(type, *table)}
    linalg.yield %e : {type}""", type, features)
    t.map("h", "x:ijf, s:f -> ijf", f"arith.mulf %a, %b : {type}", type, features)
    if tied:
        t.product("y", f"h:ijf, {source}:{spec} -> ijv", type, (*tokens, rows))
        t.product("dh", f"y:ijv, {source}:{spec} -> ijf", type, features)
        t.map("rest", "dh:ijf, t:ijf -> ijf", f"arith.subf %a, %b : {type}", type, features)
        t.product("tied", f"y:ijv, h:ijf -> {spec}", type, table)
    else:
        t.map("rest", "h:ijf, t:ijf -> ijf", f"arith.subf %a, %b : {type}", type, features)
    t.map("dx", "rest:ijf, s:f -> ijf", f"arith.mulf %a, %b : {type}", type, features)
    if gradient == "product":
        t.one_hot("hot", "ids", type, (*tokens, rows))
        t.product("g", f"hot:ijv, dx:ijf -> {spec}", type, table)
    else:
        flat, row, whole = tensor(type, count, width), tensor(type, width), tensor(type, rows, width)
        t.lines.append(f"""%flat = tensor.collapse_shape %dx [[0, 1], [2]] : {t.tensor("dx")} into {flat}
  %list = tensor.collapse_shape %ids [[0, 1]] : {t.tensor("ids")} into {tensor(index, count)}
  %zeros = arith.constant dense<0.0> : {whole}
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant {count} : index
  %{"g_rows" if transposed else "g"} = scf.for %i = %c0 to %n step %c1 iter_args(%rows = %zeros) -> {whole} {{
    %id = tensor.extract %list[%i] : {tensor(index, count)}
    %at = arith.index_cast %id : {index} to index
    %new = tensor.extract_slice %flat[%i, 0] [1, {width}] [1, 1] : {flat} to {row}
    %old = tensor.extract_slice %rows[%at, 0] [1, {width}] [1, 1] : {whole} to {row}
    %sum = linalg.add ins(%old, %new : {row}, {row}) outs(%old : {row}) -> {row}
    %next = tensor.insert_slice %sum into %rows[%at, 0] [1, {width}] [1, 1] : {row} into {whole}
    scf.yield %next : {whole}
  }}""")
        t.types["g_rows" if transposed else "g"] = (type, (rows, width))
        if transposed:
            t.map("g", "g_rows:ab -> ba", f"arith.addf %a, %z : {type}", type, table)
            t.lines.insert(0, f"%z = arith.constant -0.0 : {type}")
    last = "g"
    if tied:
        t.map("both", "g:ab, tied:ab -> ab", f"arith.addf %a, %b : {type}", type, table)
        last = "both"
    if type != "f32":
        t.map("wide", f"{last}:ab -> ab", f"arith.extf %a : {type} to f32", "f32", table)
        last = "wide"
    t.generic("norm", f"{last}:ab -> ", "%0 = arith.mulf %a, %a : f32\n    %1 = arith.addf %o, %0 : f32\n    linalg.yield %1 : f32", "f32", (), "0.0")
    t.generic("mn", f"m:ab, {last}:ab, norm: -> ab", """%half = arith.constant 0.5 : f32
    %0 = arith.mulf %a, %half : f32
    %1 = math.sqrt %c : f32
    %2 = arith.divf %b, %1 : f32
    %3 = arith.addf %0, %2 : f32
    linalg.yield %3 : f32""", "f32", table)
    t.generic("wn", "w:ab, mn:ab, lr: -> ab", "%0 = arith.mulf %b, %c : f32\n    %1 = arith.subf %a, %0 : f32\n    linalg.yield %1 : f32", "f32", table)
    carried = {"w": 0, "m": 1}
    arguments = ", ".join(f'%{n}: {t.tensor(n)} {{bsr.name = "{n}"' + (f", bsr.result = {carried[n]} : i64" if n in carried else "") + "}"
                          for n in ("w", "m", "ids", "s", "t", "lr"))
    types = [t.tensor(name) for name in ("w", "m", "x", "norm")]
    named = types[:2] + [types[2] + ' {bsr.name = "x"}', types[3] + ' {bsr.name = "norm"}']
    body = "\n  ".join(t.lines)
    return f"""func.func @step({arguments}) -> ({', '.join(named)}) {{
  {body}
  return %wn, %mn, %x, %norm : {', '.join(types)}
}}"""


NORMS = {
    "l1": lambda blocks: np.abs(blocks).sum((1, 3)),
    "l2": lambda blocks: np.sqrt((blocks**2).sum((1, 3))),
    "linf": lambda blocks: np.abs(blocks).max((1, 3)),
}


def check(rows, width, tokens, block, transposed=False, look_up="extract", gradient="product", tied=False, type="f32",
          index="i32", norm=None, share=0.5):
    case = dict(locals())
    text = make(rows, width, tokens, transposed, look_up, gradient, tied, type, index)
    shape = (width, rows) if transposed else (rows, width)
    grid = (shape[0] // block[0], shape[1] // block[1])
    slots = max(1, int(share * grid[0] * grid[1] + 0.5))
    chosen = random.permutation(grid[0] * grid[1])[:slots]
    mask = np.isin(np.arange(grid[0] * grid[1]), chosen).reshape(grid)
    if 3 < grid[0] and 2 * grid[1] < slots:
        mask[:3] = [[False], [True], [False]]  # Rows without blocks and one with all.
    mask &= np.cumsum(mask).reshape(grid) <= slots
    order = random.permutation(slots)[:mask.sum()]
    full = np.kron(mask, np.ones(block))
    library = step.compile(text, [f"--mark=match=^w$ block={block[0]}x{block[1]} density={slots / mask.size:.12f}", "--require-sparse",
                                  *([f"--score-norm={norm}"] if norm else [])])
    assert library.manifest["patterns"][0]["slots"] == slots
    assert library.manifest["left_dense"] == 0, case

    round = (lambda x: step.from_bf16(step.to_bf16(x)).astype(np.float64)) if type == "bf16" else lambda x: x
    ids = (random.integers(0, rows - 1, tokens) // random.integers(1, 5, tokens)).astype(step.TYPES[index])
    if look_up == gradient == "product":
        ids[0, :3] = [-1, rows, rows + 7]  # Nothing is chosen.
    w, m = (random.standard_normal(shape).astype(np.float32).astype(np.float64) * full for _ in "wm")
    s, t = (round(random.standard_normal(extents).astype(np.float32).astype(np.float64)) for extents in (width, (*tokens, width)))
    hot = (ids[..., None] == np.arange(rows)).astype(np.float64)
    used = round(w.T if transposed else w)
    x = hot @ used
    h = x * s
    rest = h - t
    if tied:
        y = h @ used.T
        rest = y @ used - t
    g = np.einsum("ijv,ijf->vf", hot, rest * s)
    if tied:
        g += np.einsum("ijv,ijf->vf", y, h)
    whole = g.T if transposed else g
    g = whole * full
    want = {"x": x, "norm": np.sum(g * g)}
    want["m"] = 0.5 * m + g / np.sqrt(want["norm"])
    want["w"] = w - 0.1 * want["m"]

    cast = step.to_bf16 if type == "bf16" else lambda x: x.astype(np.float32)
    arrays = {"w": step.to_values(w.astype(np.float32), mask, block, slots, order), "ids": ids, "s": cast(s), "t": cast(t),
              "m": step.to_values(m.astype(np.float32), mask, block, slots, order), "lr": np.float32(0.1)}
    entry = "bsr_step_run_scores" if norm else "bsr_step_run"
    one, two = (library.run(arrays, {"w": mask}, {"w": order}, threads=threads, entry=entry) for threads in (1, 2))
    limit = 3e-2 if type == "bf16" else 2e-6
    for name, expected in want.items():
        assert one[name].tobytes() == two[name].tobytes(), f"{name} depends on threads in {case}"
        got = step.from_bf16(one[name]) if name == "x" and type == "bf16" else one[name]
        if name in ("w", "m"):
            got = step.to_dense(got, mask, order)
        error = np.max(np.abs(got - expected)) / np.max(np.abs(expected))
        assert error <= limit, f"{name} is wrong by {error} of the largest in {case}"
    if norm:
        got = one["scores.w"]
        expected = NORMS[norm](whole.reshape(grid[0], block[0], grid[1], block[1]))
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * expected.max(), err_msg=str(case))


if __name__ == "__main__":
    check(48, 24, (3, 20), (8, 8))
    check(48, 24, (3, 17), (4, 8), look_up="product", index="i64")
    check(32, 24, (2, 9), (8, 4), transposed=True, look_up="product")
    check(40, 32, (2, 16), (8, 8), gradient="loop")
    check(48, 32, (2, 64), (16, 16), tied=True)
    check(48, 24, (2, 13), (1, 1), tied=True, transposed=True)
    check(64, 32, (1, 40), (16, 16), type="bf16")
    check(64, 32, (2, 16), (16, 16), type="bf16", tied=True)
    check(48, 24, (3, 20), (8, 8), norm="l1")
    check(48, 24, (3, 20), (4, 8), transposed=True, norm="l2", index="i64")
    check(48, 24, (3, 20), (8, 8), gradient="loop", norm="linf", share=0.01)
    check(48, 24, (3, 20), (8, 8), share=1)
    print("12 tables of embeddings")
