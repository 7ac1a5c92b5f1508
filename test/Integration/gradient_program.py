# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps whose gradients are written by hand, compiled and compared with numpy in f64.

The reference multiplies gradients by the mask, as automatic differentiation of w * mask does.
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


def sgd(s, m):
    g = s["x"].T @ (s["x"] @ s["w"] - s["t"]) * m["w"]
    return {"w": s["w"] - 0.1 * scale(g) * g}


def dense_gradient(p, w="w"):
    return p.dot("tr,tc->rc", "x", p.sub(p.dot("tr,rc->tc", "x", w), "t"))
