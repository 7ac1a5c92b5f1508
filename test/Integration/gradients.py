# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of block-sparse weights, wherever a step computes them, against numpy in f64.

Each step scales gradients by their norm, so an entry off the pattern that counted would
change every stored one.
"""

import numpy as np
from gradient_program import C, R, T, Program, begin, check, dense_gradient, inputs, normal, scale, sgd, tensor


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
standardized()
preconditioned()
copies()
