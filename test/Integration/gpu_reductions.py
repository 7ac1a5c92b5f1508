# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions that many threads of a GPU share, against numpy in f64.

Sums along and across what lies side by side, long and short, of one result and of many, of
every type, with infinities and NaN; the bits must be those of a second run.
"""

import os

import numpy as np
import step

os.environ["BSR_COMPILE"] = "--target=gpu"
import gpu  # noqa: E402

random = np.random.default_rng(0)
COMBINE = {  # for floats and for integers; what a sum starts with; numpy's
    "sum": ("arith.addf", "arith.addi", 0, np.sum),
    "product": ("arith.mulf", "arith.muli", 1, np.prod),
    "largest": ("arith.maximumf", "arith.maxsi", None, np.max),
    "least": ("arith.minimumf", "arith.minui", None, np.min),
    "any": (None, "arith.ori", 0, np.bitwise_or.reduce),
}
FLOATS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


def start(kind, type):
    neutral = COMBINE[kind][2]
    if type in FLOATS:
        if neutral is None:
            bits = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}[type]
            mantissa = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[type]
            infinity = (1 << (bits - 1 - mantissa)) - 1 << mantissa
            return f"0x{infinity | (1 << (bits - 1) if kind == 'largest' else 0):0{bits // 4}X}"
        return f"{float(neutral):e}"
    if type == "i1":
        return "true" if neutral else "false"
    bits = int(type[1:])
    return str({"largest": -(1 << (bits - 1)), "least": -1}.get(kind, neutral))


def values(shape, type, kind, special):
    if type == "i1":
        return random.random(shape) < 0.002
    if type not in FLOATS:
        return random.integers(0 if kind == "least" else -100, 100, shape).astype(step.TYPES[type])
    x = random.standard_normal(shape)
    if kind == "product":
        x = 1 + x * 0.01
    if special and x.size:
        flat = x.reshape(-1)
        for value in (np.inf, -np.inf, np.nan):
            flat[random.integers(flat.size, size=2)] = value
    return step.to_bf16(x) if type == "bf16" else x.astype(step.TYPES[type])


def exact(array, type):
    """`array` as numbers that numpy reduces without rounding on the way."""
    if type == "bf16":
        return step.from_bf16(array).astype(np.float64)
    return array.astype(np.float64) if type in FLOATS else array


def check(cases, expected_launches=None):
    """Each case: the loops of the tensor in memory, those of the result, extents, type, kind, NaN or not."""
    arguments, lines, results = [], [], []
    for i, (spec, extents, type, kind, _) in enumerate(cases):
        source, result = spec.split("->")
        letters = sorted(set(source))
        kinds = ", ".join('"parallel"' if c in result else '"reduction"' for c in letters)
        tensor = "tensor<" + "".join(f"{extents[c]}x" for c in source) + f"{type}>"
        out = "tensor<" + "".join(f"{extents[c]}x" for c in result) + f"{type}>"
        maps = ", ".join(f"affine_map<({', '.join(letters)}) -> ({', '.join(dims)})>" for dims in (source, result))
        op = COMBINE[kind][0 if type in FLOATS else 1]
        arguments.append(f'%x{i}: {tensor} {{bsr.name = "x{i}"}}')
        lines.append(f"""  %s{i} = arith.constant dense<{start(kind, type)}> : {out}
  %y{i} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins(%x{i} : {tensor}) outs(%s{i} : {out}) {{
  ^bb0(%a: {type}, %o: {type}):
    %0 = {op} %o, %a : {type}
    linalg.yield %0 : {type}
  }} -> {out}""")
        results.append((f"%y{i}", out))
    text = (f"func.func @step({', '.join(arguments)})\n    -> ("
            + ", ".join(f'{out} {{bsr.name = "y{i}"}}' for i, (_, out) in enumerate(results)) + ") {\n"
            + "\n".join(lines) + "\n  return " + ", ".join(name for name, _ in results) + " : "
            + ", ".join(out for _, out in results) + "\n}")
    compiled = step.compile(text)
    if expected_launches is not None:
        launches = sum(compiled.host.count())
        assert launches == expected_launches, (launches, text)
    arrays = {f"x{i}": values([extents[c] for c in spec.split("->")[0]], type, kind, special)
              for i, (spec, extents, type, kind, special) in enumerate(cases)}
    got = compiled.run(arrays)
    again = compiled.run(arrays)
    for i, case in enumerate(cases):
        spec, extents, type, kind, special = case
        source, result = spec.split("->")
        x = exact(arrays[f"x{i}"], type)
        axes = tuple(dim for dim, c in enumerate(source) if c not in result)
        y = exact(got[f"y{i}"], type)
        assert got[f"y{i}"].tobytes() == again[f"y{i}"].tobytes(), case
        # The dimensions that are left, in the order of the result.
        left = [c for c in source if c in result]
        order = [left.index(c) for c in result]
        with np.errstate(all="ignore"):
            if x.shape and 0 in x.shape:
                want = np.full(y.shape, COMBINE[kind][2], x.dtype)
            elif kind == "any":
                want = np.transpose(np.bitwise_or.reduce(x, axes[0]) if len(axes) == 1 else x.any(axes), order)
            else:
                want = np.transpose(COMBINE[kind][3](x, axis=axes), order)
            if type not in FLOATS:
                assert (want.astype(y.dtype) == y).all(), case
                continue
            scale = np.transpose(np.sum(np.abs(x), axis=axes), order) if kind == "sum" else np.abs(want)
        finite = np.isfinite(want)
        unit = FLOATS[type]
        # Rounded sums: the tree is shallow, threads add few terms; of halves, WidenSums adds in f32.
        bound = (0 if kind in ("largest", "least") else 64 * unit) * np.where(finite, scale, 0)
        if type in ("f16", "bf16") and kind == "sum":
            bound = 2 * unit * np.where(finite, np.abs(want), 0) + 64 * 2.0**-23 * np.where(finite, scale, 0)
        same = np.where(finite, np.abs(y - np.where(finite, want, 0)) <= bound + 1e-300,
                        (y == want) | (np.isnan(y) & np.isnan(want)))
        assert same.all(), (case, y[~same][:5], want[~same][:5])
    return len(cases)


count = 0
# Across what lies side by side (rows of layer norm), along it (bias gradients), everything (losses): all types.
for type in FLOATS:
    for kind in ("sum", "largest"):
        count += check([
            ("fi->i", {"f": 96, "i": 70}, type, kind, False),
            ("fi->f", {"f": 37, "i": 515}, type, kind, False),
            ("ij->", {"i": 33, "j": 77}, type, kind, False),
            ("fi->i", {"f": 64, "i": 9}, type, kind, True),
            ("fi->f", {"f": 9, "i": 64}, type, kind, True),
        ])
count += check([("fi->i", {"f": 65, "i": 33}, type, kind, False)
                for type in ("i32", "i64", "i8") for kind in ("sum", "largest", "least", "any")])
count += check([("fi->f", {"f": 5, "i": 333}, type, kind, False)
                for type in ("i32", "i64", "i8") for kind in ("sum", "largest", "least", "product")])
count += check([("fi->i", {"f": 65, "i": 33}, "i1", "any", False), ("fi->f", {"f": 40, "i": 65}, "i1", "any", False)])
count += check([("fi->i", {"f": 40, "i": 33}, "f32", kind, special) for kind in ("product", "least") for special in (0, 1)])
# Shapes: ragged, one element, one result, one term, nothing to sum, several loops, another order in memory.
for source, extents in [
        ("fi->i", {"f": 1, "i": 1}), ("fi->i", {"f": 32, "i": 1}), ("fi->f", {"f": 1, "i": 4097}),
        ("fi->f", {"f": 33, "i": 33}), ("fi->i", {"f": 1000, "i": 3}), ("fi->i", {"f": 3, "i": 1000}),
        ("bfi->bi", {"b": 3, "f": 50, "i": 21}), ("bfi->ib", {"b": 3, "f": 50, "i": 21}),
        ("bfi->f", {"b": 3, "f": 7, "i": 64}), ("bfi->", {"b": 3, "f": 7, "i": 64}),
        ("bhij->bhj", {"b": 2, "h": 3, "i": 40, "j": 24}), ("bhij->hj", {"b": 5, "h": 3, "i": 40, "j": 24}),
        ("bhij->jh", {"b": 5, "h": 3, "i": 40, "j": 24}), ("ij->", {"i": 1, "j": 1}),
        ("bfi->bf", {"b": 9, "f": 31, "i": 1025})]:
    count += check([(source, extents, "f32", "sum", False), (source, extents, "f32", "largest", True)])
# So long that several blocks share a sum: of everything, of few columns, of few rows.
count += check([("i->", {"i": 300001}, "f32", "sum", False)], expected_launches=2)
count += check([("ij->", {"i": 300, "j": 1000}, "f32", "largest", True)], expected_launches=2)
count += check([("fi->i", {"f": 20011, "i": 5}, "f32", "sum", False)], expected_launches=2)
count += check([("fi->f", {"f": 3, "i": 100003}, "f64", "sum", False)], expected_launches=2)
count += check([("fi->f", {"f": 3, "i": 100003}, "bf16", "sum", True)])
# So many results that each is a thread's.
count += check([("fi->i", {"f": 33, "i": 70000}, "f32", "sum", False)], expected_launches=1)


def check_lines(rows, cols, block, mask, type):
    """Sums of the rows and columns of a sparse weight, of its squares, and of what its absent entries have, too."""
    matrix, unit = f"tensor<{rows}x{cols}x{type}>", FLOATS[type]
    maps = ['affine_map<(i, j) -> (i, j)>', 'affine_map<(i, j) -> (i)>', 'affine_map<(i, j) -> (j)>']
    lines, outs = [], []
    bodies = {"square": "    %r = arith.mulf %a, %a", "more": f"    %one = arith.constant 1.5 : {type}\n    %r = arith.addf %a, %one"}
    for name, body in bodies.items():
        lines.append(f"""  %{name} = linalg.generic {{indexing_maps = [{maps[0]}, {maps[0]}], iterator_types = ["parallel", "parallel"]}}
      ins(%w : {matrix}) outs(%w : {matrix}) {{
  ^bb0(%a: {type}, %o: {type}):
{body} : {type}
    linalg.yield %r : {type}
  }} -> {matrix}""")
        for dim, extent in enumerate((rows, cols)):
            out = f"tensor<{extent}x{type}>"
            lines.append(f"""  %z{name}{dim} = arith.constant dense<0.0> : {out}
  %y{name}{dim} = linalg.generic {{indexing_maps = [{maps[0]}, {maps[1 + dim]}],
      iterator_types = ["{"parallel" if dim == 0 else "reduction"}", "{"parallel" if dim == 1 else "reduction"}"]}}
      ins(%{name} : {matrix}) outs(%z{name}{dim} : {out}) {{
  ^bb0(%a: {type}, %o: {type}):
    %0 = arith.addf %o, %a : {type}
    linalg.yield %0 : {type}
  }} -> {out}""")
            outs.append((f"%y{name}{dim}", out, f"{name}{dim}"))
    text = (f'func.func @step(%w: {matrix} {{bsr.name = "w", bsr.result = 0 : i64}})\n    -> ({matrix}, '
            + ", ".join(f'{out} {{bsr.name = "{name}"}}' for _, out, name in outs) + ") {\n" + "\n".join(lines)
            + "\n  return %w, " + ", ".join(value for value, *_ in outs)
            + f" : {matrix}, " + ", ".join(out for _, out, _ in outs) + "\n}")
    density = min((mask.sum() + 0.5) / mask.size, 1)
    compiled = step.compile(text, [f"--mark=match=w block={block[0]}x{block[1]} density={density}"])
    if block == (16, 16):  # 64 terms a row or so, and a column
        assert "shfl.sync" in compiled.host.ptx and "bar.sync" in compiled.host.ptx
    w = random.standard_normal((rows, cols)) * np.kron(mask, np.ones(block))
    w = (step.from_bf16(step.to_bf16(w)) if type == "bf16" else w.astype(step.TYPES[type])).astype(np.float64)
    slots, = (p["slots"] for p in compiled.manifest["patterns"])
    order = random.permutation(slots)[:mask.sum()]
    stored = step.to_values(w, mask, block, slots, order)
    if type == "bf16":
        stored = np.where(np.isnan(stored), 0x7FC0, step.to_bf16(stored)).astype(np.uint16)
    got = compiled.run({"w": stored.astype(step.TYPES[type])}, {"w": mask}, {"w": order})
    for _, _, name in outs:
        dense = w * w if name.startswith("square") else w + 1.5
        want = dense.sum(1 - int(name[-1]))
        y = exact(got[name], type)
        # Element by element, and once more at the end, what is no f32 or f64 rounds.
        bound = (2 if type in ("f16", "bf16") else 64) * unit * np.abs(dense).sum(1 - int(name[-1])) + 1e-30
        assert (np.abs(y - want) <= bound).all(), (name, type, block, np.abs(y - want).max())
    return len(outs)


for type in FLOATS:
    mask = random.random((9, 7)) < 0.4
    mask[2], mask[:, 3], mask[5] = False, False, True
    count += check_lines(9 * 16, 7 * 16, (16, 16), mask, type)
mask = random.random((5, 60)) < 0.5
mask[1] = False
count += check_lines(5 * 4, 60 * 8, (4, 8), mask, "f32")
count += check_lines(60 * 8, 5 * 4, (8, 4), mask.T, "f32")
count += check_lines(60, 33, (1, 1), random.random((60, 33)) < 0.7, "f32")
count += check_lines(64, 64, (64, 64), np.ones((1, 1), bool), "f32")
print(f"{count} reductions")
