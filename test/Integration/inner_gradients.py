# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of block-sparse weights that a step uses for more than its update, against numpy in f64."""

import numpy as np
import step
from gradient_program import C, R, T, Program, begin, check, dense_gradient, inputs, normal, scale, tensor


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


def weighted(p, y, gradient_of):
    """The gradient of two losses of `y` for a weight, each weighted by the norm of its own, and the norms."""
    first, second = p.sub(y, "t"), p.generic(
        "ijk->ijk" if len(p.shapes[y]) == 3 else "ij->ij", [y], "    %r = math.tanh %a : f32")
    norms = [p.inverse_norm(*gradient_of(dy)) for dy in (first, second)]
    dims = "ijk"[: len(p.shapes[y])]
    dy = p.generic(f"{dims},{dims},,->{dims}", [first, second, *norms], """    %p = arith.mulf %a, %c : f32
    %q = arith.mulf %b, %d : f32
    %r = arith.addf %p, %q : f32""")
    return gradient_of(dy), {"first": norms[0], "second": norms[1]}


def weighted_reference(y, t, gradient_of):
    """The same in numpy."""
    losses = y - t, np.tanh(y)
    norms = [scale(*gradient_of(dy)) for dy in losses]
    return gradient_of(sum(n * dy for n, dy in zip(norms, losses))), {"first": norms[0], "second": norms[1]}


def experts():
    """Weights that are stacked in front of one product."""
    p = Program()
    p.arg("x", 2, T, R), p.arg("t", 2, T, C), p.arg("lr", role="lr"), p.arg("a", R, C, role="param"), p.arg("b", R, C, role="param")
    both = p.concat(0, *(p.reshape(w, "[[0, 1], [2]]", 1, R, C) for w in "ab"))

    stack_of = lambda dy: [p.dot("etr,etc->erc", "x", dy)]
    y = p.dot("etr,erc->etc", "x", both)
    _, norms = weighted(p, y, stack_of)
    (g,) = stack_of(p.sub(y, "t"))
    parts = [p.reshape(p.slice(g, [i, 0, 0], [1, R, C]), "[[0, 1], [2]]", R, C) for i in (0, 1)]
    text = p.text({w: p.update(w, g, norms["first"], norms["second"], "lr") for w, g in zip("ab", parts)}, **norms)

    def reference(s, m):
        mask = np.stack([m["a"], m["b"]])
        y = np.einsum("etr,erc->etc", s["x"], np.stack([s["a"], s["b"]]))
        of = lambda dy: [np.einsum("etr,etc->erc", s["x"], dy) * mask]
        _, norms = weighted_reference(y, s["t"], of)
        (g,) = of(y - s["t"])
        return {w: s[w] - 0.1 * norms["first"] * norms["second"] * g[i] for i, w in enumerate("ab")} | norms

    arrays = {"x": normal(2, T, R), "t": normal(2, T, C), "lr": np.array(0.1), "a": normal(R, C) / 4, "b": normal(R, C) / 4}
    check("experts", text, "ab", arrays, reference)


def three_factors():
    """A product with the weight and two tensors at once."""
    p = begin()
    p.arg("s", R), p.arg("w", R, C, role="param")
    three = "    %p = arith.mulf %a, %b : f32\n    %q = arith.mulf %p, %c : f32\n    %r = arith.addf %o, %q : f32"
    y = p.generic("tr,r,rc->tc", ["x", "s", "w"], three)
    (g,), norms = weighted(p, y, lambda dy: [p.generic("tr,r,tc->rc", ["x", "s", dy], three)])
    text = p.text({"w": p.update("w", g, "lr")}, **norms)

    def reference(s, m):
        x = s["x"] * s["s"]
        (g,), norms = weighted_reference(x @ s["w"], s["t"], lambda dy: [x.T @ dy * m["w"]])
        return {"w": s["w"] - 0.1 * g} | norms

    check("three factors", text, "w", inputs(s=normal(R), w=normal(R, C) / 4), reference)


def penalized():
    """The norms of gradients of losses with a penalty whose derivative is not 0 at 0."""
    p = begin()
    p.arg("w", R, C, role="param")
    extra = p.generic("ij->ij", ["w"], "    %r = math.exp %a : f32")
    add = "    %r = arith.addf %a, %b : f32"
    (g,), norms = weighted(p, p.dot("tr,rc->tc", "x", "w"),
                           lambda dy: [p.generic("ij,ij->ij", [p.dot("tr,tc->rc", "x", dy), extra], add)])
    text = p.text({"w": p.update("w", g, "lr")}, **norms)

    def reference(s, m):
        (g,), norms = weighted_reference(s["x"] @ s["w"], s["t"], lambda dy: [(s["x"].T @ dy + np.exp(s["w"])) * m["w"]])
        return {"w": s["w"] - 0.1 * g} | norms

    check("penalized", text, "w", inputs(w=normal(R, C) / 4), reference)


def shifted_step():
    """A penalty on the weight after a step within the step: what is added to that is no derivative."""
    p = begin()
    p.arg("w", R, C, role="param")
    part = "    %k = arith.constant 0.01 : f32\n    %p = arith.mulf %b, %k : f32\n    %r = arith.subf %a, %p : f32"
    inner = p.generic("ij,ij->ij", ["w", dense_gradient(p)], part)
    shifted = p.generic("ij->ij", [inner], "    %k = arith.constant 0.25 : f32\n    %r = arith.subf %a, %k : f32")
    outer = p.generic("ij,ij->ij", [dense_gradient(p, inner), shifted], "    %r = arith.addf %a, %b : f32")
    curved = p.dot("tr,tc->rc", "x", p.dot("tr,rc->tc", "x", outer))
    total = p.generic("ij,ij->ij", [outer, curved], part)
    norm = p.inverse_norm(total)

    def reference(s, m):
        slope = lambda w: s["x"].T @ (s["x"] @ w - s["t"]) * m["w"]
        w = s["w"] - 0.01 * slope(s["w"])
        outer = (slope(w) + w - 0.25) * m["w"]
        total = (outer - 0.01 * s["x"].T @ (s["x"] @ outer)) * m["w"]
        return {"w": s["w"] - 0.1 * scale(total) * total, "norm": scale(total), "penalty": ((w - 0.25)**2).sum()}

    text = p.text({"w": p.update("w", total, norm, "lr")}, norm=norm, penalty=p.squares(shifted))
    check("shifted step", text, "w", inputs(w=normal(R, C)), reference)


def looked_up():
    """The norm of the gradient of a table is part of the loss; the places are those of a product with a one-hot matrix
    or of a selection for each row."""
    # A tensor of a look-up for each example is refused for GPUs.
    for examples in (False,) if step.is_gpu() else (False, True):
        p = Program()
        p.args.append(f'%ids: tensor<{T}xi32> {{bsr.name = "ids", bsr.role = "batch"}}')
        p.arg("t", T, C), p.arg("lr", role="lr"), p.arg("w", R, C, role="param")
        p.shapes["ids"] = (T,)

        def take(table):
            rows = p.line(f"tensor.empty() : {tensor((T, C))}", T, C)
            return p.line(f"""linalg.generic {{
      indexing_maps = [affine_map<(i, c) -> (i)>, affine_map<(i, c) -> (i, c)>], iterator_types = ["parallel", "parallel"]}}
      ins(%ids : tensor<{T}xi32>) outs(%{rows} : {p.type(rows)}) {{
    ^bb0(%_a: i32, %_o: f32):
      %_i = arith.index_cast %_a : i32 to index
      %_c = linalg.index 1 : index
      %_r = tensor.extract %{table}[%_i, %_c] : {p.type(table)}
      linalg.yield %_r : f32
    }} -> {p.type(rows)}""", T, C)

        def place(values, maps, dims, shape, chosen):
            """A tensor with `chosen` where loop 1 is the place."""
            out = p.line(f"tensor.empty() : {tensor(shape)}", *shape)
            ins = "".join(f", %{v}" for v in values)
            types = "".join(f", {p.type(v)}" for v in values)
            more = "".join(f", affine_map<{dims} -> {m}>" for m in maps)
            arguments = "".join(f", %_{chr(98 + i)}: f32" for i in range(len(values)))
            kinds = ", ".join(['"parallel"'] * len(shape))
            return p.line(f"""linalg.generic {{
      indexing_maps = [affine_map<{dims} -> (t)>{more}, affine_map<{dims} -> {dims}>], iterator_types = [{kinds}]}}
      ins(%ids{ins} : tensor<{T}xi32>{types}) outs(%{out} : {p.type(out)}) {{
    ^bb0(%_i: i32{arguments}, %_o: f32):
      %_j = arith.index_cast %_i : i32 to index
      %_k = linalg.index 1 : index
      %_is = arith.cmpi eq, %_j, %_k : index
      %_z = arith.constant 0.0 : f32
      %_one = arith.constant 1.0 : f32
      %_r = arith.select %_is, {chosen}, %_z : f32
      linalg.yield %_r : f32
    }} -> {p.type(out)}""", *shape)

        def gradient_of(dy):
            if examples:
                return place([dy], ["(t, c)"], "(t, r, c)", (T, R, C), "%_b")
            return p.dot("tr,tc->rc", place([], [], "(t, r)", (T, R), "%_one"), dy)

        dy = p.sub(take("w"), "t")
        g = gradient_of(dy)
        if examples:
            squares = p.generic("trc->t", [g], "    %p = arith.mulf %a, %a : f32\n    %r = arith.addf %o, %p : f32")
            norm = p.generic("t->t", [squares], "    %e = arith.constant 0.1 : f32\n    %s = arith.addf %a, %e : f32\n"
                                                "    %q = math.sqrt %s : f32\n    %r = arith.divf %e, %q : f32")
            total = p.dot("t,trc->rc", norm, g)
        else:
            norm = p.inverse_norm(g)
            back = p.generic("ij,->ij", [g, norm], "    %r = arith.mulf %a, %b : f32")
            total = gradient_of(p.generic("ij,ij->ij", [dy, take(back)], "    %r = arith.addf %a, %b : f32"))

        def reference(s, m, examples=examples):
            hot = np.eye(R)[s["ids"]]
            dy = s["w"][s["ids"]] - s["t"]
            if examples:
                each = np.einsum("tr,tc->trc", hot, dy) * m["w"]
                norm = 0.1 / np.sqrt((each**2).sum((1, 2)) + 0.1)
                return {"w": s["w"] - 0.1 * np.tensordot(norm, each, 1), "norm": norm}
            g = hot.T @ dy * m["w"]
            total = hot.T @ (dy + (g * scale(g))[s["ids"]]) * m["w"]
            return {"w": s["w"] - 0.1 * total, "norm": scale(g)}

        arrays = {"ids": np.arange(T, dtype=np.int32) * 5 % R, "t": normal(T, C), "lr": np.array(0.1), "w": normal(R, C)}
        text = p.text({"w": p.update("w", total, "lr")}, norm=norm)
        check(f"looked up {examples}", text, "w", arrays, reference)


penalty()
examples()
gradient_penalty()
inner_step()
norms_of_losses()
averages()
experts()
three_factors()
penalized()
shifted_step()
looked_up()
