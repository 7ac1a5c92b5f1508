# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inserts and slices whose dimensions of one entry have any stride, against numpy.

What is copied between them may be contiguous or not; nothing of it is left to a
library that a step does not have.
"""

import itertools

import numpy as np
import step

SHAPES = [(4, 1, 8), (1, 4, 1), (3, 1, 1), (2, 3, 1, 4)]


def type_of(shape):
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


rng = np.random.default_rng(0)
arrays, arguments, body, results, want = {}, [], [], [], {}
for number, (shape, stride, is_all) in enumerate(itertools.product(SHAPES, (2, 3), (False, True))):
    # All dimensions have a stride, and room for it, or only those of one entry, which need none.
    x = rng.standard_normal(shape).astype(np.float32)
    steps = [stride if is_all or n == 1 else 1 for n in shape]
    whole = [1 if n == 1 else n * s for n, s in zip(shape, steps)]
    tight = np.zeros(whole, np.float32)
    tight[tuple(slice(None, None, s) for s in steps)] = np.tanh(x)
    # With room behind a dimension of one entry, too.
    room = [n + 2 for n in whole]
    loose = np.zeros(room, np.float32)
    loose[tuple(slice(1, 1 + (n - 1) * s + 1, s) for n, s in zip(shape, steps))] = np.tanh(x)
    arrays[f"x{number}"] = x
    arguments.append(f'%x{number}: {type_of(shape)} {{bsr.name = "x{number}"}}')
    body.append(f"""
  %e{number} = tensor.empty() : {type_of(shape)}
  %t{number} = linalg.tanh ins(%x{number} : {type_of(shape)}) outs(%e{number} : {type_of(shape)}) -> {type_of(shape)}
  %z{number} = arith.constant dense<0.0> : {type_of(whole)}
  %tight{number} = tensor.insert_slice %t{number} into %z{number}{[0] * len(shape)} {list(shape)} {steps} : {type_of(shape)} into {type_of(whole)}
  %l{number} = arith.constant dense<0.0> : {type_of(room)}
  %loose{number} = tensor.insert_slice %t{number} into %l{number}{[1] * len(shape)} {list(shape)} {steps} : {type_of(shape)} into {type_of(room)}
  %back{number} = tensor.extract_slice %loose{number}{[1] * len(shape)} {list(shape)} {steps} : {type_of(room)} to {type_of(shape)}""")
    for name, value in (("tight", tight), ("loose", loose), ("back", np.tanh(x))):
        results.append((f"{name}{number}", value.shape))
        want[f"{name}{number}"] = value

named = ", ".join(f'{type_of(shape)} {{bsr.name = "{name}"}}' for name, shape in results)
text = f"""
func.func @step({", ".join(arguments)}) -> ({named}) {{{"".join(body)}
  return {", ".join("%" + name for name, _ in results)} : {", ".join(type_of(shape) for _, shape in results)}
}}"""
got = step.compile(text).run(arrays)
for name, expected in want.items():
    assert np.allclose(got[name], expected, rtol=1e-6, atol=1e-6), (name, got[name], expected)
print(len(want), "copies")
