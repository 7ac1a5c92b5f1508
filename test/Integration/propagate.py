# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step with sparse weights against numpy with masks, in f64.

Three layers: x W, a product over the middle dimension, and a weight that is
stored transposed; all gradients, clipped by their common norm; momentum. Every
rule of the propagation has its part, and every pattern a slot without a block.
Then the same with the columns of two weights as heads, [rows, heads, size].
"""

import numpy as np
import step

WEIGHTS = {"w": (16, 32), "v": (8, 12), "u": (24, 32)}


def shapes(cols):
    """The shapes of a step's tensors, its features being `cols`."""
    weights = {"w": (16, *cols), "v": (8, 12), "u": (24, *cols)}
    result = {"x": (4, 8, 16), "h": (4, 8, *cols), "z": (4, 12, *cols), "y": (4, 12, 24)}
    result |= {"d" + name: shape for name, shape in [*result.items(), *weights.items()]}
    result |= weights | {"m" + name: shape for name, shape in weights.items()}
    return result | {"t": result["y"], "lr": (), "s": ()}


def tensor(shape):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + "f32>"


def generic(result, spec, body, init="empty"):
    """linalg.generic of an einsum-like spec, "w:ab, s: -> dw:ab", a letter a loop."""
    ins, out = spec.split("->")
    operands = [operand.strip().split(":") for operand in [*ins.split(","), out]]
    loops = sorted(set("".join(dims for _, dims in operands)))
    letters = ", ".join(loops)
    maps = ", ".join(f"affine_map<({letters}) -> ({', '.join(dims)})>" for _, dims in operands)
    kinds = ", ".join('"parallel"' if loop in operands[-1][1] else '"reduction"' for loop in loops)
    names = [name for name, _ in operands[:-1]]
    shape = SHAPES[operands[-1][0]]
    types = ", ".join(tensor(SHAPES[name.split("_")[0]]) for name in names)
    zero = f"""
  %{result}_zero = arith.constant 0.0 : f32
  %{result}_empty = tensor.empty() : {tensor(shape)}
  %{result}_fill = linalg.fill ins(%{result}_zero : f32) outs(%{result}_empty : {tensor(shape)}) -> {tensor(shape)}"""
    arguments = ", ".join(f"%{chr(97 + i)}: f32" for i in range(len(names)))
    return f"""{zero}
  %{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins({', '.join('%' + name for name in names)} : {types}) outs(%{result}_{init} : {tensor(shape)}) {{
  ^bb0({arguments}, %out: f32):
{body}
  }} -> {tensor(shape)}"""


def product(result, spec):
    return generic(result, spec, """    %p = arith.mulf %a, %b : f32
    %q = arith.addf %out, %p : f32
    linalg.yield %q : f32""", "fill")


def source(c):
    """The step, with the letters `c` for the features."""
    body = [
        product("h", f"x:btk, w:k{c} -> h:bt{c}"),
        product("z", f"h:bt{c}, v:tu -> z:bu{c}"),
        product("y", f"z:bu{c}, u:n{c} -> y:bun"),
        generic("dy", "y:bun, t:bun -> dy:bun", "    %p = arith.subf %a, %b : f32\n    linalg.yield %p : f32"),
        product("dz", f"dy:bun, u:n{c} -> dz:bu{c}"),
        product("du", f"dy:bun, z:bu{c} -> du:n{c}"),
        product("dh", f"dz:bu{c}, v:tu -> dh:bt{c}"),
        product("dv", f"h:bt{c}, dz:bu{c} -> dv:tu"),
        product("dw", f"dh:bt{c}, x:btk -> dw:k{c}"),
    ]
    dims = {name: "abc"[: len(SHAPES[name])] for name in WEIGHTS}
    for name, ab in dims.items():
        # Scaled before the norm: off the pattern stands 0 * s.
        body += [
            generic(f"d{name}_scaled", f"d{name}:{ab}, s: -> d{name}:{ab}",
                    "    %p = arith.mulf %a, %b : f32\n    linalg.yield %p : f32"),
            generic(f"s_{name}", f"d{name}_scaled:{ab} -> s:", """    %p = arith.mulf %a, %a : f32
    %q = arith.addf %out, %p : f32
    linalg.yield %q : f32""", "fill"),
        ]
    body.append(generic("s_clip", "s_w:, s_v:, s_u: -> s:", """    %p = arith.addf %a, %b : f32
    %q = arith.addf %p, %c : f32
    %r = math.rsqrt %q : f32
    linalg.yield %r : f32"""))
    for name, ab in dims.items():
        body += [
            generic(f"m{name}_next", f"m{name}:{ab}, d{name}_scaled:{ab}, s_clip: -> m{name}:{ab}",
                    """    %beta = arith.constant 0.5 : f32
    %p = arith.mulf %a, %beta : f32
    %q = arith.mulf %b, %c : f32
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32"""),
            generic(f"{name}_next", f"{name}:{ab}, m{name}_next:{ab}, lr: -> {name}:{ab}",
                    """    %p = arith.mulf %b, %c : f32
    %q = arith.subf %a, %p : f32
    linalg.yield %q : f32"""),
        ]
    carried = [*WEIGHTS, *("m" + name for name in WEIGHTS)]
    arguments = [f'%{n}: {tensor(SHAPES[n])} {{bsr.name = "{n}", bsr.result = {i} : i64}}'
                 for i, n in enumerate(carried)]
    arguments += [f'%{n}: {tensor(SHAPES[n])} {{bsr.name = "{n}"}}' for n in ("x", "t", "s", "lr")]
    types = ", ".join(tensor(SHAPES[n]) for n in carried)
    results = ", ".join(f"%{n}_next" for n in carried)
    return f"""func.func @step({', '.join(arguments)}) -> ({types}) {{{''.join(body)}
  return {results} : {types}
}}"""


def reference(a, masks):
    w, v, u = (a[name] * masks[name] for name in WEIGHTS)
    h = a["x"] @ w
    z = np.einsum("btc,tu->buc", h, v)
    dy = z @ u.T - a["t"]
    dz = dy @ u
    gradients = {
        "w": np.einsum("btk,btc->kc", a["x"], np.einsum("buc,tu->btc", dz, v)),
        "v": np.einsum("btc,buc->tu", h, dz),
        "u": np.einsum("bun,buc->nc", dy, z),
    }
    gradients = {name: g * masks[name] * a["s"] for name, g in gradients.items()}
    clip = sum(np.sum(g * g) for g in gradients.values()) ** -0.5
    out = {}
    for name, g in gradients.items():
        out["m" + name] = 0.5 * a["m" + name] + clip * g
        out[name] = a[name] - a["lr"] * out["m" + name]
    return out


random = np.random.default_rng(1)
MATRIX = "match=^[wvu]$ block=4x4 density=0.5"
HEADS = "match=^[wu]$ block=4x4 density=0.5 dims=row,col,col"
for cols, letters, marks in [((32,), "c", [MATRIX]), ((4, 8), "ij", [HEADS, MATRIX])]:
    SHAPES = shapes(cols)
    library = step.compile(source(letters), [f"--mark={mark}" for mark in marks])
    products = library.manifest["products"]
    assert [products[k] for k in ("spmm", "spmm_transposed", "sddmm", "dense")] == [3, 2, 3, 0], products
    assert library.manifest["left_dense"] == 0

    SHAPES = shapes((32,))
    inputs = {n: random.standard_normal(SHAPES[n]) * 0.3 for n in ("x", "t", *WEIGHTS, *("m" + n for n in WEIGHTS))}
    inputs |= {"s": np.array(0.7), "lr": np.array(0.1)}
    blocks, orders, slots = {}, {}, {}
    for pattern in library.manifest["patterns"]:
        grid = (pattern["shape"][0] // 4, pattern["shape"][1] // 4)
        name, slots[pattern["name"]] = pattern["name"], pattern["slots"]
        chosen = np.zeros(grid[0] * grid[1], bool)
        chosen[random.permutation(chosen.size)[:pattern["slots"] - 1]] = True
        blocks[name] = chosen.reshape(grid)
        orders[name] = random.permutation(pattern["slots"])[:pattern["slots"] - 1]
    arrays = {n: a.astype(np.float32) for n, a in inputs.items()}
    for name in WEIGHTS:
        for n in (name, "m" + name):
            arrays[n] = step.to_values(arrays[n], blocks[name], (4, 4), slots[name], orders[name])

    got = library.run(arrays, blocks, orders)
    masks = {name: np.kron(mask, np.ones((4, 4))) for name, mask in blocks.items()}
    for name, expected in reference(inputs, masks).items():
        weight = name[-1]
        actual = step.to_dense(got[name], blocks[weight], orders[weight])
        error = np.abs(actual - expected * masks[weight]).max()
        assert error < 1e-5, (name, error)
