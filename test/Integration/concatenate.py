# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradient of a split, compiled, against numpy in f64.

What reaches a sparse layer's result is put together from products (of merged
heads), element-wise operations, arguments and padding, along each dimension. Two
sparse products read it, in panels where these divide the pieces; `--timers` tells
that nothing is copied between kernels.
"""

import numpy as np
import step

ROUNDOFF = 2.0**-24
HEADS, WIDTH, KEYS, BLOCK = 2, 8, 12, 8


def tensor(shape):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + "f32>"


def make(axis, sizes, shape, kept):
    """A step over dy of `shape`, which pieces of `sizes` along `axis` make up."""
    batch, tokens, features = shape
    rows = 2 * BLOCK
    arguments = {"w": (rows, features), "x": (batch, tokens, rows)}
    lines, pieces = [], []
    for number, size in enumerate(sizes):
        b, t, f = part = tuple(size if i == axis else extent for i, extent in enumerate(shape))
        name, kind = f"p{number}", ["product", "square", "argument", "zeros"][number % 4]
        if kind == "zeros":
            lines.append(f"%{name} = arith.constant dense<0.0> : {tensor(part)}")
        elif kind == "product" and f % HEADS == 0:
            heads = (b, t, HEADS, f // HEADS)
            arguments |= {f"u{number}": (b, HEADS, t, KEYS), f"v{number}": (b, KEYS, HEADS, f // HEADS)}
            u, v = (tensor(arguments[f"{side}{number}"]) for side in "uv")
            maps = ", ".join(f"affine_map<(b, t, h, d, s) -> ({dims})>" for dims in ("b, h, t, s", "b, s, h, d", "b, t, h, d"))
            lines.append(f"""%e{number} = tensor.empty() : {tensor(heads)}
  %f{number} = linalg.fill ins(%zero : f32) outs(%e{number} : {tensor(heads)}) -> {tensor(heads)}
  %h{number} = linalg.generic {{indexing_maps = [{maps}],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}}
      ins(%u{number}, %v{number} : {u}, {v}) outs(%f{number} : {tensor(heads)}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }} -> {tensor(heads)}
  %{name} = tensor.collapse_shape %h{number} [[0], [1], [2, 3]] : {tensor(heads)} into {tensor(part)}""")
        elif kind == "argument":
            arguments[name] = part
        else:
            arguments[f"g{number}"] = part
            lines.append(f"""%e{number} = tensor.empty() : {tensor(part)}
  %{name} = linalg.square ins(%g{number} : {tensor(part)}) outs(%e{number} : {tensor(part)}) -> {tensor(part)}""")
        pieces.append((name, part))
    lines.append(f"%whole = tensor.empty() : {tensor(shape)}")
    last, offset = "whole", 0
    for name, part in pieces:
        offsets = [offset if i == axis else 0 for i in range(3)]
        lines.append(f"%{name}_in = tensor.insert_slice %{name} into %{last}{offsets} {list(part)} [1, 1, 1] "
                     f": {tensor(part)} into {tensor(shape)}")
        last, offset = f"{name}_in", offset + part[axis]
    results = {"dx": arguments["x"], "dw": arguments["w"]} | ({"dy": shape} if kept else {})
    for result, operands, loops, maps in [
            ("dx", f"%{last}, %w", "b, t, k, f", ("b, t, f", "k, f", "b, t, k")),
            ("dw", f"%x, %{last}", "k, f, b, t", ("b, t, k", "b, t, f", "k, f"))]:
        types = (tensor(shape), tensor(arguments["w"])) if result == "dx" else (tensor(arguments["x"]), tensor(shape))
        kinds = ", ".join('"parallel"' if loop in maps[2] else '"reduction"' for loop in loops.split(", "))
        lines.append(f"""%{result}_empty = tensor.empty() : {tensor(results[result])}
  %{result}_fill = linalg.fill ins(%zero : f32) outs(%{result}_empty : {tensor(results[result])}) -> {tensor(results[result])}
  %{result} = linalg.generic {{indexing_maps = [{', '.join(f'affine_map<({loops}) -> ({m})>' for m in maps)}],
      iterator_types = [{kinds}]}} ins({operands} : {', '.join(types)}) outs(%{result}_fill : {tensor(results[result])}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }} -> {tensor(results[result])}""")
    lines.append(f"""%next = linalg.sub ins(%w, %dw : {tensor(arguments["w"])}, {tensor(arguments["w"])})
      outs(%dw_empty : {tensor(arguments["w"])}) -> {tensor(arguments["w"])}""")
    signature = ", ".join(f'%{name}: {tensor(extents)} {{bsr.name = "{name}"' + (", bsr.result = 0 : i64" if name == "w" else "")
                          + "}" for name, extents in arguments.items())
    kept_type = f', {tensor(shape)} {{bsr.name = "dy"}}' if kept else ""
    kept_value, kept_plain = (f", %{last}", f", {tensor(shape)}") if kept else ("", "")
    text = f"""func.func @step({signature}) -> ({tensor(arguments["w"])}, {tensor(results["dx"])} {{bsr.name = "dx"}}{kept_type}) {{
  %zero = arith.constant 0.0 : f32
  """ + "\n  ".join(lines) + f"""
  return %next, %dx{kept_value} : {tensor(arguments["w"])}, {tensor(results["dx"])}{kept_plain}
}}"""
    return text, arguments, pieces


def check(axis, sizes, shape, kept=False):
    label = f"pieces of {sizes} along {axis} of {shape}"
    text, arguments, pieces = make(axis, sizes, shape, kept)
    random = np.random.default_rng([axis, *sizes])
    arrays = {name: random.standard_normal(extents).astype(np.float32) for name, extents in arguments.items()}
    grid = np.array(arguments["w"]) // BLOCK
    mask = np.arange(grid.prod()).reshape(grid) % 2 == 0
    weight = arrays["w"]
    arrays["w"] = step.to_values(weight, mask, (BLOCK, BLOCK))
    compiled = step.compile(text, ["--timers", f"--mark=match=^w$ block={BLOCK}x{BLOCK} density=0.5"])
    kinds = {timer["kernel"] for timer in compiled.manifest["timers"]}
    assert step.is_scalar() or "memref.copy" not in kinds, f"{label}: expected no copies between kernels, but got {kinds}"
    one, two = (compiled.run(arrays, {"w": mask}, threads=threads) for threads in (1, 2))

    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    parts = []
    for number, (name, part) in enumerate(pieces):
        if f"u{number}" in wide:
            parts.append(np.einsum("bhts,bshd->bthd", wide[f"u{number}"], wide[f"v{number}"]).reshape(part))
        elif f"g{number}" in wide:
            parts.append(wide[f"g{number}"] ** 2)
        else:
            parts.append(wide.get(name, np.zeros(part)))
    dy = np.concatenate(parts, axis)
    full = np.kron(mask, np.ones((BLOCK, BLOCK)))
    gradient = np.einsum("btk,btf->kf", wide["x"], dy)
    want = {"dx": dy @ (weight * full).T.astype(np.float64),
            "w": step.to_values(weight - gradient, mask, (BLOCK, BLOCK))} | ({"dy": dy} if kept else {})
    for name, expected in want.items():
        assert one[name].tobytes() == two[name].tobytes(), f"{label}: {name} depends on threads"
        error = np.max(np.abs(one[name] - expected))
        bound = 4 * max(shape) * shape[0] * ROUNDOFF * np.max(np.abs(dy)) * 8
        assert error <= bound, f"{label}: {name} is wrong by {error}, more than {bound}"


# Along features, in panels (of 16 to 64 lanes) and not.
check(2, [48, 16, 8, 24], (2, 128, 96))
check(2, [32, 24, 40], (2, 37, 96))
check(2, [3, 5, 7, 9], (1, 128, 24))
check(2, [48, 16, 8, 24], (2, 128, 96), kept=True)
# Along tokens, where panels divide the pieces and where not.
check(1, [64, 128, 64], (2, 256, 16))
check(1, [16, 48, 32, 32], (2, 128, 16))
check(1, [5, 59, 1, 63], (2, 128, 16))
# Along sequences.
check(0, [2, 1, 3, 1], (7, 128, 16))
