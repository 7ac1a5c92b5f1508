# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of block-sparse weights, wherever a step computes them, against numpy in f64.

Each step scales gradients by their norm, so an entry off the pattern that counted would
change every stored one. The reference multiplies gradients by the mask, as automatic
differentiation of w * mask does.
"""

import re

import numpy as np
import step

R, C, T = 16, 24, 12  # rows, columns, tokens
random = np.random.default_rng(0)


def tensor(shape):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + "f32>"


class Program:
    """The text of a step, with matrices by name and einsum-like operations."""

    def __init__(self):
        self.shapes, self.args, self.body, self.carried, self.outputs = {}, [], [], [], []

    def arg(self, name, *shape, role="batch"):
        self.shapes[name] = shape
        carried = role in ("param", "state")
        result = f", bsr.result = {len(self.carried)} : i64" if carried else ""
        self.args.append(f'%{name}: {tensor(shape)} {{bsr.name = "{name}", bsr.role = "{role}"{result}}}')
        if carried:
            self.carried.append(name)
        return name

    def line(self, text, *shape):
        name = f"v{len(self.shapes)}"
        self.shapes[name] = shape
        self.body.append(f"  %{name} = {text}")
        return name

    def type(self, name):
        return tensor(self.shapes[name])

    def generic(self, spec, names, body):
        """`spec` as in einsum; `body` computes %r of %a, %b, ... and %o."""
        ins, out = spec.split("->")
        ins = ins.split(",")
        letters = sorted(set(spec) - set(",->"))
        extents = {c: e for dims, name in zip(ins, names) for c, e in zip(dims, self.shapes[name])}
        shape = [extents[c] for c in out]
        maps = ", ".join(f"affine_map<({', '.join(letters)}) -> ({', '.join(dims)})>" for dims in [*ins, out])
        kinds = ", ".join('"parallel"' if c in out else '"reduction"' for c in letters)
        body = re.sub(r"%(?=[a-z])", "%_", body)  # arguments of the step have names too
        zero = self.line(f"arith.constant dense<0.0> : {tensor(shape)}", *shape)
        arguments = ", ".join(f"%_{chr(97 + i)}: f32" for i in range(len(names)))
        return self.line(
            f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
            f"ins({', '.join('%' + n for n in names)} : {', '.join(map(self.type, names))}) "
            f"outs(%{zero} : {tensor(shape)}) {{\n  ^bb0({arguments}, %_o: f32):\n{body}\n"
            f"    linalg.yield %_r : f32\n  }} -> {tensor(shape)}", *shape)

    def dot(self, spec, *names):
        return self.generic(spec, names, "    %p = arith.mulf %a, %b : f32\n    %r = arith.addf %o, %p : f32")

    def sub(self, a, b):
        dims = "ijk"[: len(self.shapes[a])]
        return self.generic(f"{dims},{dims}->{dims}", [a, b], "    %r = arith.subf %a, %b : f32")

    def update(self, w, g, *scale):
        """w - g * scale, the scales being numbers."""
        spec = "ij,ij" + "," * len(scale) + "->ij"
        factors = "".join(f"    %f{i} = arith.mulf {'%b' if i == 0 else f'%f{i - 1}'}, %{chr(99 + i)} : f32\n"
                          for i in range(len(scale)))
        last = f"%f{len(scale) - 1}" if scale else "%b"
        return self.generic(spec, [w, g, *scale], f"{factors}    %r = arith.subf %a, {last} : f32")

    def squares(self, *names):
        """The sum of all squares."""
        sums = []
        for name in names:
            dims = "ijk"[: len(self.shapes[name])]
            sums.append(self.generic(f"{dims}->", [name],
                                     "    %p = arith.mulf %a, %a : f32\n    %r = arith.addf %o, %p : f32"))
        while len(sums) > 1:
            sums.append(self.generic(",->", [sums.pop(), sums.pop()], "    %r = arith.addf %a, %b : f32"))
        return sums[0]

    def inverse_norm(self, *names):
        return self.generic("->", [self.squares(*names)],
                            "    %one = arith.constant 1.0 : f32\n    %q = math.sqrt %a : f32\n"
                            "    %r = arith.divf %one, %q : f32")

    def slice(self, name, offsets, sizes):
        text = lambda values: "[" + ", ".join(map(str, values)) + "]"
        return self.line(f"tensor.extract_slice %{name}{text(offsets)} {text(sizes)} {text([1] * len(sizes))} "
                         f": {self.type(name)} to {tensor(sizes)}", *sizes)

    def concat(self, dim, a, b):
        shape = list(self.shapes[a])
        shape[dim] += self.shapes[b][dim]
        result = self.line(f"tensor.empty() : {tensor(shape)}", *shape)
        offset = 0
        for part in (a, b):
            offsets = ", ".join(str(offset if i == dim else 0) for i in range(len(shape)))
            sizes = ", ".join(map(str, self.shapes[part]))
            result = self.line(f"tensor.insert_slice %{part} into %{result}[{offsets}] [{sizes}] "
                               f"[{', '.join('1' * len(shape))}] : {self.type(part)} into {tensor(shape)}", *shape)
            offset += self.shapes[part][dim]
        return result

    def reshape(self, name, groups, *shape):
        if len(shape) < len(self.shapes[name]):
            return self.line(f"tensor.collapse_shape %{name} {groups} : {self.type(name)} into {tensor(shape)}", *shape)
        return self.line(f"tensor.expand_shape %{name} {groups} output_shape {list(shape)} "
                         f": {self.type(name)} into {tensor(shape)}", *shape)

    def text(self, nexts, **outputs):
        results = [*(nexts[name] for name in self.carried), *outputs.values()]
        types = [*(self.type(nexts[name]) for name in self.carried),
                 *(f'{self.type(v)} {{bsr.name = "{n}"}}' for n, v in outputs.items())]
        return (f"func.func @step({', '.join(self.args)}) -> ({', '.join(types)}) {{\n" + "\n".join(self.body)
                + f"\n  return {', '.join('%' + r for r in results)} : {', '.join(map(self.type, results))}\n}}\n")


def mask_of(shape, block):
    return random.random((shape[0] // block[0], shape[1] // block[1])) < 0.5


def check(name, text, weights, arrays, reference, steps=2, block=(4, 4), left=None, copies={}, options=(), dims="row,col"):
    """Compiles and runs `text` with the weights masked, compares with `reference`, which
    maps arrays to arrays once a step; `copies` maps states to the weights they follow.
    Slices of weights that became matrices have the blocks that are there in the whole."""
    rows = dims.count("row")
    flat = lambda a: a.reshape(np.prod(a.shape[:rows]), -1)
    grids = {w: mask_of(flat(arrays[w]).shape, block) for w in weights}
    masks = {w: np.kron(grid, np.ones(block)).reshape(arrays[w].shape) for w, grid in grids.items()}
    masks |= {copy: masks[w] for copy, w in copies.items()}
    state = {n: a * masks.get(n, 1) for n, a in arrays.items()}
    given = {n: a if a.dtype.kind == "i" else a.astype(np.float32) for n, a in state.items()}
    mark = f"--mark=match=^({'|'.join(weights)})$ block={block[0]}x{block[1]} density=1 dims={dims}"
    compiled = step.compile(text, [mark, "-O1", *options])
    places = {}
    for buffer in compiled.manifest["buffers"]:
        if buffer["kind"] != "values":
            continue
        origin = buffer.get("origin") or {"name": buffer["name"], "offsets": [], "sizes": []}
        place = tuple(slice(at, at + size) for at, size in zip(origin["offsets"], origin["sizes"]))
        grid = flat(masks[origin["name"]][place])[::block[0], ::block[1]] > 0
        places[buffer["name"]] = origin["name"], place, grid
        given[buffer["name"]] = step.to_values(flat(state[origin["name"]][place]).astype(np.float32), grid, block, grid.size)
    got = compiled.run(given, {n: grid for n, (_, _, grid) in places.items()}, steps=steps)
    for _ in range(steps):
        state |= reference(state, masks)
    for n, array in got.items():
        expected = state.get(n)
        if n in places:
            whole, place, grid = places[n]
            expected = (state[whole] * masks[whole])[place]
            array = step.to_dense(array, grid).reshape(expected.shape)
        np.testing.assert_allclose(array, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max(), err_msg=f"{name}: {n}")
    assert {whole for whole, _, _ in places.values()} == {*weights, *copies}
    found = compiled.manifest["left_dense"]
    assert left is None or found == left, (name, found)
    print(f"{name}: {found} left dense")


def normal(*shape):
    return random.standard_normal(shape)


def inputs(**weights):
    return {"x": normal(T, R), "t": normal(T, C), "lr": np.array(0.1)} | weights


def scale(*gradients):
    return 1 / np.sqrt(sum((g**2).sum() for g in gradients))


def begin(t=C, x=R):
    p = Program()
    p.arg("x", T, x), p.arg("t", T, t), p.arg("lr", role="lr")
    return p


def concatenated():
    """Two weights that are one in the product."""
    p = begin()
    for w in "ab":
        p.arg(w, R, C // 2, role="param")
    dy = p.sub(p.dot("tr,rc->tc", "x", p.concat(1, "a", "b")), "t")
    g = p.dot("tr,tc->rc", "x", dy)
    parts = [p.slice(g, [0, 0], [R, C // 2]), p.slice(g, [0, C // 2], [R, C // 2])]
    norm = p.inverse_norm(*parts)
    text = p.text({w: p.update(w, part, norm, "lr") for w, part in zip("ab", parts)}, norm=norm)

    def reference(s, m):
        g = s["x"].T @ (s["x"] @ np.concatenate([s["a"], s["b"]], 1) - s["t"])
        g = {"a": g[:, : C // 2] * m["a"], "b": g[:, C // 2:] * m["b"]}
        return {w: s[w] - 0.1 * scale(*g.values()) * g[w] for w in "ab"} | {"norm": scale(*g.values())}

    check("concatenated", text, "ab", inputs(a=normal(R, C // 2), b=normal(R, C // 2)), reference, left=0)


def concatenated_twice():
    """Two layers whose weights are joined by columns and, transposed, by rows: the second
    one's input is a sum over both, and so is the gradient of what comes before it."""
    p = begin()
    for w in "ab":
        p.arg(w, R, C // 2, role="param")
    for w in "cd":
        p.arg(w, C, C // 2, role="param")
    joined = p.generic("rc->cr", [p.concat(1, "c", "d")], "    %r = arith.addf %a, %a : f32")
    h = p.dot("tr,rc->tc", "x", p.concat(1, "a", "b"))
    dy = p.sub(p.dot("th,hc->tc", h, joined), "t")
    dh = p.dot("tc,hc->th", dy, joined)
    g, gj = p.dot("tr,tc->rc", "x", dh), p.dot("th,tc->ch", h, dy)
    parts = {w: p.slice(g, [0, i * C // 2], [R, C // 2]) for i, w in enumerate("ab")}
    parts |= {w: p.slice(gj, [0, i * C // 2], [C, C // 2]) for i, w in enumerate("cd")}
    norm = p.inverse_norm(*parts.values())
    text = p.text({w: p.update(w, part, norm, "lr") for w, part in parts.items()})

    def reference(s, m):
        first, second = np.concatenate([s["a"], s["b"]], 1), 2 * np.concatenate([s["c"], s["d"]], 1).T
        h = s["x"] @ first
        dy = h @ second - s["t"]
        g, gj = s["x"].T @ dy @ second.T, dy.T @ h
        g = dict(zip("abcd", [*np.split(g, 2, 1), *np.split(gj, 2, 1)]))
        g = {w: g[w] * m[w] for w in g}
        return {w: s[w] - 0.1 * scale(*g.values()) * g[w] for w in g}

    check("concatenated twice", text, "abcd",
          inputs(a=normal(R, C // 2), b=normal(R, C // 2), c=normal(C, C // 2), d=normal(C, C // 2)), reference, left=0)


def chunked():
    """One weight that is two in products."""
    p = begin()
    p.arg("w", R, C, role="param")
    half = [R, C // 2]
    ys = [p.dot("tr,rc->tc", "x", p.slice("w", [0, i * C // 2], half)) for i in (0, 1)]
    dys = [p.sub(y, p.slice("t", [0, i * C // 2], [T, C // 2])) for i, y in enumerate(ys)]
    g = p.concat(1, *(p.dot("tr,tc->rc", "x", dy) for dy in dys))
    text = p.text({"w": p.update("w", g, p.inverse_norm(g), "lr")})
    check("chunked", text, "w", inputs(w=normal(R, C)), sgd, left=0)
    # Each chunk is scaled by its own norm: the whole gradient never exists.
    p = begin()
    p.arg("w", R, C, role="param")
    parts = []
    for i in (0, 1):
        w = p.slice("w", [0, i * C // 2], half)
        dy = p.sub(p.dot("tr,rc->tc", "x", w), p.slice("t", [0, i * C // 2], [T, C // 2]))
        g = p.dot("tr,tc->rc", "x", dy)
        parts.append(p.update(w, g, p.inverse_norm(g), "lr"))

    def reference(s, m):
        g = s["x"].T @ (s["x"] @ s["w"] - s["t"]) * m["w"]
        halves = [h * scale(h) for h in np.split(g, 2, 1)]
        return {"w": s["w"] - 0.1 * np.concatenate(halves, 1)}

    check("chunks", p.text({"w": p.concat(1, *parts)}), "w", inputs(w=normal(R, C)), reference, left=0)


def padded(whole, centralized):
    """A weight whose rows are three in products, and perhaps one in another, with a moment; its
    gradient is a sum of those of its parts, each in zeros, perhaps without the means of columns."""
    p = begin(t=R, x=C)
    p.arg("w", R, C, role="param"), p.arg("m", R, C, role="state")
    starts = [0, 4, 12, R]
    zeros = p.line(f"arith.constant dense<0.0> : {tensor([R, C])}", R, C)
    total = None
    for at, end in zip(starts, starts[1:]):
        y = p.dot("tc,rc->tr", "x", p.slice("w", [at, 0], [end - at, C]))
        dy = p.sub(y, p.slice("t", [0, at], [T, end - at]))
        g = p.dot("tr,tc->rc", dy, "x")
        g = p.line(f"tensor.insert_slice %{g} into %{zeros}[{at}, 0] [{end - at}, {C}] [1, 1] "
                   f": {p.type(g)} into {tensor([R, C])}", R, C)
        total = g if total is None else p.generic("ij,ij->ij", [total, g], "    %r = arith.addf %a, %b : f32")
    if whole:
        g = p.dot("tr,tc->rc", p.dot("tc,rc->tr", "x", "w"), "x")
        total = p.generic("ij,ij->ij", [total, g], "    %r = arith.addf %a, %b : f32")
    if centralized:
        sums = p.generic("ij->j", [total], "    %r = arith.addf %o, %a : f32")
        total = p.generic("ij,j->ij", [total, sums], f"""    %n = arith.constant {R}.0 : f32
    %m = arith.divf %b, %n : f32
    %r = arith.subf %a, %m : f32""")
    norm = p.inverse_norm(total)
    moment = p.generic("ij,ij,->ij", ["m", total, norm], """    %half = arith.constant 0.5 : f32
    %p = arith.mulf %a, %half : f32
    %q = arith.mulf %b, %c : f32
    %r = arith.addf %p, %q : f32""")
    text = p.text({"w": p.update("w", moment, "lr"), "m": moment}, norm=norm)

    def reference(s, m):
        y = s["x"] @ s["w"].T
        g = (y - s["t"]).T @ s["x"] + whole * y.T @ s["x"]
        g *= m["w"]
        g -= centralized * g.mean(0)
        moment = s["m"] / 2 + scale(g) * g * m["w"]
        return {"w": s["w"] - 0.1 * moment, "m": moment, "norm": scale(g)}

    arrays = {"x": normal(T, C), "t": normal(T, R), "lr": np.array(0.1), "w": normal(R, C), "m": normal(R, C)}
    check(f"padded {whole} {centralized}", text, "w", arrays, reference, left=3 * centralized, copies={"m": "w"})


def sgd(s, m):
    g = s["x"].T @ (s["x"] @ s["w"] - s["t"]) * m["w"]
    return {"w": s["w"] - 0.1 * scale(g) * g}


def dense_gradient(p, w="w"):
    return p.dot("tr,tc->rc", "x", p.sub(p.dot("tr,rc->tc", "x", w), "t"))


def batched():
    """A product for each token group, then a sum."""
    p = begin()
    p.arg("w", R, C, role="param")
    dy = p.sub(p.dot("tr,rc->tc", "x", "w"), "t")
    x3 = p.reshape("x", "[[0, 1], [2]]", 3, T // 3, R)
    dy3 = p.reshape(dy, "[[0, 1], [2]]", 3, T // 3, C)
    g = p.generic("brc->rc", [p.dot("btr,btc->brc", x3, dy3)], "    %r = arith.addf %o, %a : f32")
    check("batched", p.text({"w": p.update("w", g, p.inverse_norm(g), "lr")}), "w", inputs(w=normal(R, C)), sgd)


def flat():
    """Gradients as one vector."""
    p = begin()
    p.arg("w", R, C, role="param"), p.arg("b", C, role="param")
    dy = p.sub(p.generic("tc,c->tc", [p.dot("tr,rc->tc", "x", "w"), "b"], "    %r = arith.addf %a, %b : f32"), "t")
    g = p.reshape(p.dot("tr,tc->rc", "x", dy), "[[0, 1]]", R * C)
    db = p.generic("tc->c", [dy], "    %r = arith.addf %o, %a : f32")
    every = p.concat(0, db, g)
    every = p.generic("i,->i", [every, p.inverse_norm(every)], "    %r = arith.mulf %a, %b : f32")
    g = p.reshape(p.slice(every, [C], [R * C]), "[[0, 1]]", R, C)
    db = p.generic("i,i,->i", ["b", p.slice(every, [0], [C]), "lr"],
                   "    %p = arith.mulf %b, %c : f32\n    %r = arith.subf %a, %p : f32")

    def reference(s, m):
        dy = s["x"] @ s["w"] + s["b"] - s["t"]
        g, db = s["x"].T @ dy * m["w"], dy.sum(0)
        return {"w": s["w"] - 0.1 * scale(g, db) * g, "b": s["b"] - 0.1 * scale(g, db) * db}

    check("flat", p.text({"w": p.update("w", g, "lr"), "b": db}), "w", inputs(w=normal(R, C), b=normal(C)), reference)


def selected(branch):
    """An update that is taken as a whole or not, with a moment."""
    p = begin()
    p.arg("w", R, C, role="param"), p.arg("m", R, C, role="state")
    g = dense_gradient(p)
    norm = p.inverse_norm(g)
    scaled = p.generic("ij,ij,->ij", ["m", g, norm], """    %half = arith.constant 0.5 : f32
    %p = arith.mulf %a, %half : f32
    %q = arith.mulf %b, %c : f32
    %r = arith.addf %p, %q : f32""")
    p.body.append(f"  %number = tensor.extract %{norm}[] : tensor<f32>\n  %zero = arith.constant 1.0e-30 : f32\n"
                  "  %ok = arith.cmpf ogt, %number, %zero : f32")
    nexts = {"w": p.update("w", scaled, "lr"), "m": scaled}
    both = tensor([R, C])
    if branch:
        p.shapes |= {"next#0": (R, C), "next#1": (R, C)}
        p.body.append(f"  %next:2 = scf.if %ok -> ({both}, {both}) {{\n    scf.yield %{nexts['w']}, %{nexts['m']} : {both}, {both}\n"
                      f"  }} else {{\n    scf.yield %w, %m : {both}, {both}\n  }}")
        nexts = {"w": "next#0", "m": "next#1"}
    else:
        nexts = {n: p.line(f"arith.select %ok, %{v}, %{n} : {both}", R, C) for n, v in nexts.items()}

    def reference(s, m):
        g = s["x"].T @ (s["x"] @ s["w"] - s["t"]) * m["w"]
        moment = 0.5 * s["m"] + g * scale(g)
        return {"w": s["w"] - 0.1 * moment, "m": moment}

    check("branch" if branch else "selected", p.text(nexts), "w", inputs(w=normal(R, C), m=normal(R, C)), reference,
          copies={"m": "w"})


def outer():
    """One token: a column times a row. Without a next value, the gradient is a result."""
    for updates in (True, False):
        p = Program()
        p.arg("x", R), p.arg("t", C), p.arg("lr", role="lr"), p.arg("w", R, C, role="param" if updates else "constant")
        dy = p.sub(p.dot("r,rc->c", "x", "w"), "t")
        g = p.generic("r,c->rc", ["x", dy], "    %r = arith.mulf %a, %b : f32")
        norm = p.inverse_norm(g)
        text = p.text({"w": p.update("w", g, norm, "lr")} if updates else {}, norm=norm)

        def reference(s, m):
            g = np.outer(s["x"], s["x"] @ s["w"] - s["t"]) * m["w"]
            return {"norm": scale(g)} | ({"w": s["w"] - 0.1 * scale(g) * g} if updates else {})

        arrays = {"x": normal(R), "t": normal(C), "lr": np.array(0.1), "w": normal(R, C)}
        text = text.replace('bsr.role = "constant"', 'bsr.role = "param"')
        check("outer" if updates else "result", text, "w", arrays, reference)


def outers():
    """Two tokens apart: a column times a row is added to another."""
    p = Program()
    names = ["x0", "x1"], ["t0", "t1"]
    for x, t in zip(*names):
        p.arg(x, R), p.arg(t, C)
    p.arg("lr", role="lr"), p.arg("w", R, C, role="param")
    dy = [p.sub(p.dot("r,rc->c", x, "w"), t) for x, t in zip(*names)]
    first = p.generic("r,c->rc", ["x0", dy[0]], "    %r = arith.mulf %a, %b : f32")
    g = p.generic("r,c,rc->rc", ["x1", dy[1], first],
                  "    %p = arith.mulf %a, %b : f32\n    %r = arith.addf %p, %c : f32")
    norm = p.inverse_norm(g)

    def reference(s, m):
        g = sum(np.outer(s[x], s[x] @ s["w"] - s[t]) for x, t in zip(*names)) * m["w"]
        return {"norm": scale(g), "w": s["w"] - 0.1 * scale(g) * g}

    arrays = {"lr": np.array(0.1), "w": normal(R, C)} | {x: normal(R) for x in names[0]} | {t: normal(C) for t in names[1]}
    check("outers", p.text({"w": p.update("w", g, norm, "lr")}, norm=norm), "w", arrays, reference)


def looked_up():
    """One token: a frozen weight is added to a row that is looked up. The gradient of the
    sum is the table's, in whole, and nobody masks it."""
    p = Program()
    p.args.append('%ids: tensor<1xi32> {bsr.name = "ids", bsr.role = "batch"}')
    p.arg("hot", 1, R), p.arg("u", C, T), p.arg("t", 1, T), p.arg("lr", role="lr")
    p.arg("table", R, C, role="param"), p.arg("w", 1, C, role="constant")
    row = p.line(f"tensor.empty() : {tensor((1, C))}", 1, C)
    row = p.line(f"""linalg.generic {{
      indexing_maps = [affine_map<(i, c) -> (i)>, affine_map<(i, c) -> (i, c)>], iterator_types = ["parallel", "parallel"]}}
      ins(%ids : tensor<1xi32>) outs(%{row} : {p.type(row)}) {{
    ^bb0(%_a: i32, %_o: f32):
      %_i = arith.index_cast %_a : i32 to index
      %_c = linalg.index 1 : index
      %_r = tensor.extract %table[%_i, %_c] : {p.type("table")}
      linalg.yield %_r : f32
    }} -> {p.type(row)}""", 1, C)
    x = p.generic("ic,ic->ic", [row, "w"], "    %r = arith.addf %a, %b : f32")
    dy = p.sub(p.dot("ic,ct->it", x, "u"), "t")
    g = p.dot("ir,ic->rc", "hot", p.dot("it,ct->ic", dy, "u"))

    def reference(s, m):
        x = s["table"][s["ids"]] + s["w"]
        g = s["hot"].T @ ((x @ s["u"] - s["t"]) @ s["u"].T)
        return {"table": s["table"] - 0.1 * g}

    arrays = {"ids": np.array([5], np.int32), "hot": np.eye(R)[[5]], "u": normal(C, T), "t": normal(1, T),
              "lr": np.array(0.1), "table": normal(R, C), "w": normal(1, C)}
    text = p.text({"table": p.update("table", g, "lr")})
    check("looked up", text.replace('bsr.role = "constant"', 'bsr.role = "param"'), "w", arrays, reference, block=(1, 4))


def shared():
    """x (a + b) with a sparse and a dense weight: one gradient, which a masks for itself."""
    p = begin()
    p.arg("a", R, C, role="param"), p.arg("b", R, C, role="param")
    total = p.generic("ij,ij->ij", ["a", "b"], "    %r = arith.addf %a, %b : f32")
    g = dense_gradient(p, total)
    # Squares of a's part only, and of b's.
    weight = p.arg("k", role="batch")
    ga = p.generic("ij,->ij", [g, weight], "    %r = arith.mulf %a, %b : f32")
    gb = p.generic("ij,->ij", [g, "lr"], "    %r = arith.mulf %a, %b : f32")
    text = p.text({"a": p.update("a", ga, p.inverse_norm(ga), "lr"), "b": p.update("b", gb, p.inverse_norm(gb), "lr")})

    def reference(s, m):
        g = s["x"].T @ (s["x"] @ (s["a"] + s["b"]) - s["t"])
        return {"a": s["a"] - 0.1 * scale(g * m["a"]) * g * m["a"], "b": s["b"] - 0.1 * scale(g) * g}

    check("shared", text, "a", inputs(a=normal(R, C), b=normal(R, C), k=np.array(0.5)), reference)


def heads():
    """Attention's output projection, which sums over heads that lie in front of the tokens: bhqd,hdo->bqo."""
    p = Program()
    p.arg("x", 2, 4, 3, 8), p.arg("t", 2, 3, C), p.arg("lr", role="lr"), p.arg("w", 4, 8, C, role="param")
    dy = p.sub(p.dot("bhqd,hdo->bqo", "x", "w"), "t")
    g = p.dot("bhqd,bqo->hdo", "x", dy)
    norm = p.inverse_norm(g)
    w = p.generic("hdo,hdo,,->hdo", ["w", g, norm, "lr"], """    %p = arith.mulf %b, %c : f32
    %q = arith.mulf %p, %d : f32
    %r = arith.subf %a, %q : f32""")
    text = p.text({"w": w}, dx=p.dot("bqo,hdo->bhqd", dy, "w"))

    def reference(s, m):
        dy = np.einsum("bhqd,hdo->bqo", s["x"], s["w"]) - s["t"]
        g = np.einsum("bhqd,bqo->hdo", s["x"], dy) * m["w"]
        return {"w": s["w"] - 0.1 * scale(g) * g, "dx": np.einsum("bqo,hdo->bhqd", dy, s["w"])}

    arrays = {"x": normal(2, 4, 3, 8), "t": normal(2, 3, C), "lr": np.array(0.1), "w": normal(4, 8, C)}
    check("heads", text, "w", arrays, reference, left=0, dims="row,row,col")


def position(pieces):
    """Added to the activations: what is its gradient is theirs as well, from which others' are computed."""
    p = begin(x=R)
    p.arg("p", T, R, role="param"), p.arg("a", R, R, role="param"), p.arg("w", R, C, role="param")
    add = "    %r = arith.addf %a, %b : f32"
    dps, das, dws = [], [], []
    for i in range(pieces):
        # Another batch each, in a step of its own.
        x = p.slice("x", [0, 0], [T, R]) if i == 0 else p.generic("tr->tr", ["x"], "    %r = arith.negf %a : f32")
        h = p.generic("tr,tr->tr", [p.dot("tr,rs->ts", x, "a"), "p"], add)
        dy = p.sub(p.dot("tr,rc->tc", h, "w"), "t")
        dh = p.dot("tc,rc->tr", dy, "w")
        dps.append(dh), das.append(p.dot("tr,ts->rs", x, dh)), dws.append(p.dot("tr,tc->rc", h, dy))
    total = lambda parts: parts[0] if len(parts) == 1 else p.generic("ij,ij->ij", parts, add)
    g = {n: total(parts) for n, parts in (("p", dps), ("a", das), ("w", dws))}
    norm = p.inverse_norm(*g.values())
    text = p.text({n: p.update(n, part, norm, "lr") for n, part in g.items()})

    def reference(s, m):
        g = {n: 0 for n in "paw"}
        for sign in (1, -1)[:pieces]:
            h = sign * s["x"] @ s["a"] + s["p"]
            dy = h @ s["w"] - s["t"]
            dh = dy @ s["w"].T
            g = {"p": g["p"] + dh, "a": g["a"] + sign * s["x"].T @ dh, "w": g["w"] + h.T @ dy}
        g = {n: v * m.get(n, 1) for n, v in g.items()}
        return {n: s[n] - 0.1 * scale(*g.values()) * g[n] for n in g}

    arrays = inputs(p=normal(T, R), a=normal(R, R), w=normal(R, C))
    for weights in ("p", "pa", "pw"):
        check(f"position {pieces} {weights}", text, weights, arrays, reference)


def divided():
    """The norm of all gradients, spread out as the divisor of both: it is a number, and is not masked."""
    p = begin()
    p.arg("a", R, C, role="param"), p.arg("b", R, C, role="param")
    g = {w: dense_gradient(p, w) for w in "ab"}
    norm = p.generic("->", [p.squares(*g.values())], "    %r = math.sqrt %a : f32")
    zeros = p.line(f"arith.constant dense<0.0> : {tensor([R, C])}", R, C)
    spread = p.line(f"linalg.broadcast ins(%{norm} : tensor<f32>) outs(%{zeros} : {tensor([R, C])}) dimensions = [0, 1]", R, C)
    u = {w: p.generic("ij,ij->ij", [g[w], spread], "    %r = arith.divf %a, %b : f32") for w in "ab"}
    text = p.text({w: p.update(w, u[w], p.inverse_norm(u[w]), "lr") for w in "ab"}, norm=norm)

    def reference(s, m):
        g = {w: s["x"].T @ (s["x"] @ s[w] - s["t"]) * m.get(w, 1) for w in "ab"}
        return {w: s[w] - 0.1 * scale(g[w]) * g[w] for w in "ab"} | {"norm": 1 / scale(*g.values())}

    for weights in ("a", "ab"):
        check(f"divided {weights}", text, weights, inputs(a=normal(R, C), b=normal(R, C)), reference)


def thin():
    """A weight of one row or one column, of one vector: this is a factor of the gradient, and others see all of it."""
    for shape in ((R, 1), (1, R)):
        p = Program()
        p.arg("x", T, R), p.arg("t", 1), p.arg("lr", role="lr"), p.arg("w", *shape, role="param")
        dims = "ro" if shape[1] == 1 else "or"
        h = p.generic("tr->r", ["x"], "    %r = arith.addf %o, %a : f32")
        dy = p.sub(p.dot(f"r,{dims}->o", h, "w"), "t")
        g = p.dot(f"r,o->{dims}", h, dy)
        norm = p.inverse_norm(g)
        text = p.text({"w": p.update("w", g, norm, "lr")}, norm=norm, h=h)

        def reference(s, m, shape=shape):
            h = s["x"].sum(0)
            g = ((h @ s["w"].reshape(R) - s["t"]) * h).reshape(shape) * m["w"]
            return {"w": s["w"] - 0.1 * scale(g) * g, "norm": scale(g), "h": h}

        arrays = {"x": normal(T, R), "t": normal(1), "lr": np.array(0.1), "w": normal(*shape)}
        check(f"thin {shape[0]} {shape[1]}", text, "w", arrays, reference, block=(4, 1) if shape[1] == 1 else (1, 4))


def one_token():
    """The gradient of a table of which one row is looked up: that row, selected by its place."""
    p = Program()
    p.args.append('%ids: tensor<1xi32> {bsr.name = "ids", bsr.role = "batch"}')
    p.arg("t", 1, C), p.arg("lr", role="lr"), p.arg("w", R, C, role="param")
    row = p.line(f"tensor.empty() : {tensor((1, C))}", 1, C)
    row = p.line(f"""linalg.generic {{
      indexing_maps = [affine_map<(i, c) -> (i)>, affine_map<(i, c) -> (i, c)>], iterator_types = ["parallel", "parallel"]}}
      ins(%ids : tensor<1xi32>) outs(%{row} : {p.type(row)}) {{
    ^bb0(%_a: i32, %_o: f32):
      %_i = arith.index_cast %_a : i32 to index
      %_c = linalg.index 1 : index
      %_r = tensor.extract %w[%_i, %_c] : {p.type("w")}
      linalg.yield %_r : f32
    }} -> {p.type(row)}""", 1, C)
    dy = p.sub(row, "t")
    g = p.line(f"tensor.empty() : {tensor((R, C))}", R, C)
    g = p.line(f"""linalg.generic {{
      indexing_maps = [affine_map<(r, c) -> (0)>, affine_map<(r, c) -> (0, c)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]}}
      ins(%ids, %{dy} : tensor<1xi32>, {p.type(dy)}) outs(%{g} : {p.type(g)}) {{
    ^bb0(%_a: i32, %_b: f32, %_o: f32):
      %_i = arith.index_cast %_a : i32 to index
      %_j = linalg.index 0 : index
      %_is = arith.cmpi eq, %_i, %_j : index
      %_z = arith.constant 0.0 : f32
      %_r = arith.select %_is, %_b, %_z : f32
      linalg.yield %_r : f32
    }} -> {p.type(g)}""", R, C)
    norm = p.inverse_norm(g)

    def reference(s, m):
        g = np.zeros((R, C))
        g[s["ids"]] = s["w"][s["ids"]] - s["t"]
        g *= m["w"]
        return {"w": s["w"] - 0.1 * scale(g) * g, "norm": scale(g)}

    arrays = {"ids": np.array([5], np.int32), "t": normal(1, C), "lr": np.array(0.1), "w": normal(R, C)}
    check("one token", p.text({"w": p.update("w", g, norm, "lr")}, norm=norm), "w", arrays, reference)


def stacked():
    """A stack of a weight and its double."""
    p = begin(t=2 * R, x=C)
    p.arg("w", R, C, role="param")
    double = p.generic("rc->rc", ["w"], "    %r = arith.addf %a, %a : f32")
    dy = p.sub(p.dot("tc,sc->ts", "x", p.concat(0, "w", double)), "t")
    both = p.reshape(p.dot("ts,tc->sc", dy, "x"), "[[0, 1], [2]]", 2, R, C)
    parts = [p.reshape(p.slice(both, [i, 0, 0], [1, R, C]), "[[0, 1], [2]]", R, C) for i in (0, 1)]
    g = p.generic("rc,rc->rc", parts, "    %p = arith.addf %b, %b : f32\n    %r = arith.addf %a, %p : f32")
    norm = p.inverse_norm(g)

    def reference(s, m):
        y = s["x"] @ np.concatenate([s["w"], 2 * s["w"]]).T
        both = (y - s["t"]).T @ s["x"]
        g = (both[:R] + 2 * both[R:]) * m["w"]
        return {"w": s["w"] - 0.1 * scale(g) * g, "norm": scale(g)}

    arrays = {"x": normal(T, C), "t": normal(T, 2 * R), "lr": np.array(0.1), "w": normal(R, C)}
    check("stacked", p.text({"w": p.update("w", g, norm, "lr")}, norm=norm), "w", arrays, reference)


def penalty():
    """The derivative of a penalty that is not zero where the weight is: of |w|, of exp(w)."""
    ends = {"sign": "    %z = arith.constant 0.0 : f32\n    %i = arith.constant 1.0 : f32\n    %n = arith.constant -1.0 : f32\n"
                    "    %q = arith.cmpf oge, %a, %z : f32\n    %r = arith.select %q, %i, %n : f32",
            "exp": "    %r = math.exp %a : f32"}
    values = {"sign": lambda w: np.where(w >= 0, 1, -1), "exp": np.exp}
    for name, body in ends.items():
        p = begin()
        p.arg("w", R, C, role="param")
        extra = p.generic("ij->ij", ["w"], body)
        g = p.generic("ij,ij->ij", [dense_gradient(p), extra], "    %r = arith.addf %a, %b : f32")
        norm = p.inverse_norm(g)

        def reference(s, m, name=name):
            g = (s["x"].T @ (s["x"] @ s["w"] - s["t"]) + values[name](s["w"])) * m["w"]
            return {"w": s["w"] - 0.1 * scale(g) * g, "norm": scale(g)}

        text = p.text({"w": p.update("w", g, norm, "lr")}, norm=norm)
        check(f"penalty {name}", text, "w", inputs(w=normal(R, C) / 3), reference)


def examples():
    """A gradient for each example, each scaled by its norm, as differential privacy asks."""
    p = begin()
    p.arg("w", R, C, role="param")
    dy = p.sub(p.dot("tr,rc->tc", "x", "w"), "t")
    each = p.dot("tr,tc->trc", "x", dy)
    squares = p.generic("trc->t", [each], "    %p = arith.mulf %a, %a : f32\n    %r = arith.addf %o, %p : f32")
    norms = p.generic("t->t", [squares], "    %one = arith.constant 1.0 : f32\n    %q = math.sqrt %a : f32\n"
                                         "    %r = arith.divf %one, %q : f32")
    g = p.dot("t,trc->rc", norms, each)
    text = p.text({"w": p.update("w", g, "lr")}, norms=norms)

    def reference(s, m):
        each = np.einsum("tr,tc->trc", s["x"], s["x"] @ s["w"] - s["t"]) * m["w"]
        norms = 1 / np.sqrt((each**2).sum((1, 2)))
        return {"w": s["w"] - 0.1 * np.tensordot(norms, each, 1), "norms": norms}

    check("examples", text, "w", inputs(w=normal(R, C)), reference)


def gradient_penalty():
    """The norm of the gradient is part of the loss; the layer in front gives the input a gradient, or there is none."""
    for layers in (1, 2):
        p = begin(x=R)
        p.arg("a", R, R, role="param"), p.arg("w", R, C, role="param")
        add = "    %r = arith.addf %a, %b : f32"
        h = p.dot("tr,rs->ts", "x", "a") if layers == 2 else "x"
        dy = p.sub(p.dot("tr,rc->tc", h, "w"), "t")
        g = p.dot("tr,tc->rc", h, dy)
        norm = p.inverse_norm(g)
        back = p.generic("ij,->ij", [g, norm], "    %r = arith.mulf %a, %b : f32")
        # Of y = h w and of g = h^T (y - t).
        to_dy = p.generic("ij,ij->ij", [dy, p.dot("tr,rc->tc", h, back)], add)
        total = p.dot("tr,tc->rc", h, to_dy)
        nexts = {"w": p.update("w", total, "lr"), "a": "a"}
        if layers == 2:
            dh = p.generic("ij,ij->ij", [p.dot("tc,rc->tr", to_dy, "w"), p.dot("tc,rc->tr", dy, back)], add)
            nexts["a"] = p.update("a", p.dot("tr,ts->rs", "x", dh), "lr")

        def reference(s, m, layers=layers):
            h = s["x"] @ s["a"] if layers == 2 else s["x"]
            dy = h @ s["w"] - s["t"]
            g = h.T @ dy * m["w"]
            back = g * scale(g)
            to_dy = dy + h @ back
            da = s["x"].T @ (to_dy @ s["w"].T + dy @ back.T) * m.get("a", 1)
            return {"w": s["w"] - 0.01 * h.T @ to_dy * m["w"], "a": s["a"] - 0.01 * (layers == 2) * da, "norm": scale(g)}

        arrays = inputs(a=normal(R, R) / 4, w=normal(R, C)) | {"lr": np.array(0.01)}
        check(f"gradient penalty {layers}", p.text(nexts, norm=norm), "w", arrays, reference)


def inner_step():
    """A step within the step: the loss is that of the weight after it."""
    p = begin()
    p.arg("w", R, C, role="param")
    g = dense_gradient(p)
    part = "    %k = arith.constant 0.01 : f32\n    %p = arith.mulf %b, %k : f32\n    %r = arith.subf %a, %p : f32"
    inner = p.generic("ij,ij->ij", ["w", g], part)
    outer = dense_gradient(p, inner)
    curved = p.dot("tr,tc->rc", "x", p.dot("tr,rc->tc", "x", outer))
    total = p.generic("ij,ij->ij", [outer, curved], part)
    norm = p.inverse_norm(total)

    def reference(s, m):
        slope = lambda w: s["x"].T @ (s["x"] @ w - s["t"]) * m["w"]
        outer = slope(s["w"] - 0.01 * slope(s["w"]))
        total = (outer - 0.01 * s["x"].T @ (s["x"] @ outer)) * m["w"]
        return {"w": s["w"] - 0.1 * scale(total) * total, "norm": scale(total)}

    check("inner step", p.text({"w": p.update("w", total, norm, "lr")}, norm=norm), "w", inputs(w=normal(R, C)), reference)


def norms_of_losses():
    """The gradients of two losses, of which the norms alone are used."""
    p = begin()
    p.arg("w", R, C, role="param")
    y = p.dot("tr,rc->tc", "x", "w")
    first, second = p.sub(y, "t"), p.generic("ij->ij", [y], "    %r = math.tanh %a : f32")
    norms = [p.inverse_norm(p.dot("tr,tc->rc", "x", dy)) for dy in (first, second)]
    dy = p.generic("ij,ij,,->ij", [first, second, *norms], """    %p = arith.mulf %a, %c : f32
    %q = arith.mulf %b, %d : f32
    %r = arith.addf %p, %q : f32""")
    text = p.text({"w": p.update("w", p.dot("tr,tc->rc", "x", dy), "lr")}, first=norms[0], second=norms[1])

    def reference(s, m):
        y = s["x"] @ s["w"]
        each = [s["x"].T @ dy * m["w"] for dy in (y - s["t"], np.tanh(y))]
        norms = [scale(g) for g in each]
        return {"w": s["w"] - 0.1 * (norms[0] * each[0] + norms[1] * each[1]), "first": norms[0], "second": norms[1]}

    check("norms of losses", text, "w", inputs(w=normal(R, C) / 4), reference)


def averages():
    """What reads next values: an average and a copy, which are parameters of their own; the transpose, which
    stays dense; a result."""
    p = begin()
    p.arg("w", R, C, role="param"), p.arg("m", R, C, role="state")
    p.arg("ema", R, C, role="param"), p.arg("copy", R, C, role="param"), p.arg("turned", C, R, role="state")
    average = """    %d = arith.constant 0.75 : f32
    %e = arith.constant 0.25 : f32
    %p = arith.mulf %a, %d : f32
    %q = arith.mulf %b, %e : f32
    %r = arith.addf %p, %q : f32"""
    m = p.generic("ij,ij->ij", ["m", dense_gradient(p)], average)
    w = p.update("w", m, "lr")
    ema = p.generic("ij,ij->ij", ["ema", w], average)
    turned = p.generic("ij,ji->ij", ["turned", w], average)
    text = p.text({"w": w, "m": m, "ema": ema, "copy": w, "turned": turned}, squares=p.squares(w, m),
                  y=p.dot("tr,rc->tc", "x", "ema"))

    def reference(s, m):
        moment = 0.75 * s["m"] + 0.25 * s["x"].T @ (s["x"] @ s["w"] - s["t"]) * m["w"]
        w = s["w"] - 0.1 * moment
        return {"w": w, "m": moment, "ema": 0.75 * s["ema"] + 0.25 * w, "copy": w,
                "turned": 0.75 * s["turned"] + 0.25 * w.T, "squares": (w**2).sum() + (moment**2).sum(),
                "y": s["x"] @ s["ema"]}

    arrays = inputs(w=normal(R, C), m=normal(R, C), ema=normal(R, C), copy=normal(R, C), turned=normal(C, R))
    check("averages", text, "w", arrays, reference, copies={n: "w" for n in ("m", "ema", "copy")})


def standardized():
    """A weight less the means of its columns, over their deviation: what is multiplied is not zero off the
    pattern, and its gradient is not the weight's. Not masked, which only the update sees, and warned of."""
    p = begin()
    p.arg("w", R, C, role="param")
    n = f"    %n = arith.constant {float(R)} : f32\n"
    mean = lambda name: p.generic("c->c", [p.generic("rc->c", [name], "    %r = arith.addf %o, %a : f32")],
                                  n + "    %r = arith.divf %a, %n : f32")
    product = "    %r = arith.mulf %a, %b : f32"
    centered = p.generic("rc,c->rc", ["w", mean("w")], "    %r = arith.subf %a, %b : f32")
    deviation = p.generic("c->c", [mean(p.generic("rc,rc->rc", [centered, centered], product))],
                          "    %s = arith.constant 0.25 : f32\n    %p = arith.addf %a, %s : f32\n"
                          "    %r = math.sqrt %p : f32")
    u = p.generic("rc,c->rc", [centered, deviation], "    %r = arith.divf %a, %b : f32")
    g = dense_gradient(p, u)
    inner = mean(p.generic("rc,rc->rc", [g, u], product))
    dw = p.generic("rc,rc,c,c,c->rc", [g, u, inner, mean(g), deviation], """    %p = arith.mulf %b, %c : f32
    %q = arith.subf %a, %p : f32
    %s = arith.subf %q, %d : f32
    %r = arith.divf %s, %e : f32""")

    def reference(s, m):
        deviation = np.sqrt(s["w"].var(0) + 0.25)
        u = (s["w"] - s["w"].mean(0)) / deviation
        g = s["x"].T @ (s["x"] @ u - s["t"])
        dw = (g - u * (g * u).mean(0) - g.mean(0)) / deviation
        return {"w": s["w"] - 0.1 * dw * m["w"]}

    check("standardized", p.text({"w": p.update("w", dw, "lr")}), "w", inputs(w=normal(R, C)), reference)


def preconditioned():
    """The update is a product of the gradient: no entry of it is one of the gradient."""
    p = begin()
    p.arg("w", R, C, role="param")
    g = dense_gradient(p)
    left = p.dot("rc,sc->rs", g, g)
    u = p.dot("rs,sc->rc", left, g)
    text = p.text({"w": p.update("w", u, p.inverse_norm(u), "lr")})

    def reference(s, m):
        g = s["x"].T @ (s["x"] @ s["w"] - s["t"]) * m["w"]
        u = g @ g.T @ g
        return {"w": (s["w"] - 0.1 * scale(u) * u) * m["w"]}

    check("preconditioned", text, "w", inputs(w=normal(R, C)), reference)


def copies():
    """An average of the weights, and the weights as they were, of which the rate is made."""
    p = begin()
    p.arg("w", R, C, role="param"), p.arg("ema", R, C, role="state"), p.arg("first", R, C, role="state")
    g = dense_gradient(p)
    distance = p.squares(p.sub("w", "first"))
    rate = p.generic(",->", [distance, p.inverse_norm(g)], """    %one = arith.constant 1.0 : f32
    %s = arith.addf %a, %one : f32
    %q = math.sqrt %s : f32
    %r = arith.mulf %q, %b : f32""")
    w = p.update("w", g, rate, "lr")
    ema = p.generic("ij,ij->ij", ["ema", w], """    %d = arith.constant 0.75 : f32
    %e = arith.constant 0.25 : f32
    %p = arith.mulf %a, %d : f32
    %q = arith.mulf %b, %e : f32
    %r = arith.addf %p, %q : f32""")

    def reference(s, m):
        g = s["x"].T @ (s["x"] @ s["w"] - s["t"]) * m["w"]
        rate = np.sqrt(1 + ((s["w"] - s["first"])**2).sum()) * scale(g)
        w = s["w"] - 0.1 * rate * g
        return {"w": w, "ema": 0.75 * s["ema"] + 0.25 * w}

    start = normal(R, C)
    check("copies", p.text({"w": w, "ema": ema, "first": "first"}), "w",
          inputs(w=start, ema=start, first=start), reference, left=0, copies={"ema": "w", "first": "w"})


concatenated()
concatenated_twice()
chunked()
padded(False, False)
padded(True, False)
padded(False, True)
padded(True, True)
batched()
flat()
selected(False)
selected(True)
outer()
outers()
looked_up()
shared()
heads()
position(1)
position(2)
divided()
thin()
one_token()
stacked()
penalty()
examples()
gradient_penalty()
inner_step()
norms_of_losses()
averages()
standardized()
preconditioned()
copies()
