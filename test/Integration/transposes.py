# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element-wise operations whose operands lie across their vectors, against numpy.

Squares of such operands are transposed in registers where both extents allow it; what
is left of a row of vectors is read one element after the other. All give the same bits.
"""

import itertools

import numpy as np
import step

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "i32": np.int32, "i64": np.int64}
# Of the result; the last dimension has the vectors.
SHAPES = [(64, 64), (16, 100), (48, 17), (17, 48), (3, 32, 80), (2, 16, 3, 40), (16, 15), (1, 32, 32)]


def orders(rank):
    """The orders of dimensions that do not keep the last one in place."""
    return [order for order in itertools.permutations(range(rank)) if order[-1] != rank - 1]


rng = np.random.default_rng(0)
arrays, arguments, body, results, want = {}, [], [], [], {}
for number, (shape, (kind, dtype)) in enumerate(itertools.product(SHAPES, TYPES.items())):
    possible = orders(len(shape))
    order = possible[number % len(possible)]
    lies = [shape[dim] for dim in order]
    x = (rng.standard_normal(lies) * 20).astype(dtype)
    y = (rng.standard_normal(shape) * 20).astype(dtype)
    type_of = lambda extents: f"tensor<{'x'.join(map(str, extents))}x{kind}>"  # noqa: E731: one line, used here alone
    dims = ", ".join(f"d{dim}" for dim in range(len(shape)))
    across = ", ".join(f"d{dim}" for dim in order)
    parallel = ", ".join(['"parallel"'] * len(shape))
    for name, array in (("x", x), ("y", y)):
        arrays[f"{name}{number}"] = array
        arguments.append(f'%{name}{number}: {type_of(array.shape)} {{bsr.name = "{name}{number}"}}')
    add = "addf" if kind[0] == "f" else "addi"
    copies = f"affine_map<({dims}) -> ({across})>, affine_map<({dims}) -> ({dims})>"
    body.append(f"""
  %e{number} = tensor.empty() : {type_of(shape)}
  %copy{number} = linalg.generic {{indexing_maps = [{copies}], iterator_types = [{parallel}]}}
      ins(%x{number} : {type_of(lies)}) outs(%e{number} : {type_of(shape)}) {{
  ^bb0(%a: {kind}, %o: {kind}):
    linalg.yield %a : {kind}
  }} -> {type_of(shape)}
  %sum{number} = linalg.generic {{indexing_maps = [{copies}, affine_map<({dims}) -> ({dims})>], iterator_types = [{parallel}]}}
      ins(%x{number}, %y{number} : {type_of(lies)}, {type_of(shape)}) outs(%e{number} : {type_of(shape)}) {{
  ^bb0(%a: {kind}, %b: {kind}, %o: {kind}):
    %s = arith.{add} %a, %b : {kind}
    linalg.yield %s : {kind}
  }} -> {type_of(shape)}""")
    back = np.empty(shape, dtype)
    back.transpose(order)[...] = x
    for name, value in (("copy", back), ("sum", back + y)):
        results.append((f"{name}{number}", type_of(shape)))
        want[f"{name}{number}"] = value

named = ", ".join(f'{kind} {{bsr.name = "{name}"}}' for name, kind in results)
text = f"""
func.func @step({", ".join(arguments)}) -> ({named}) {{{"".join(body)}
  return {", ".join("%" + name for name, _ in results)} : {", ".join(kind for _, kind in results)}
}}"""
got = step.compile(text).run(arrays)
for name, expected in want.items():
    assert np.array_equal(got[name], expected), (name, got[name], expected)
print(len(want), "transposed")
