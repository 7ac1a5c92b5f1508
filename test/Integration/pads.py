# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Paddings of every sign on each side, in one to three dimensions, against numpy.

Below zero a padding takes entries away: nothing of what it takes is written
anywhere, and what lies around the results stays what it was. A padding of a
padding is not the padding by their sum.
"""

import itertools

import numpy as np
import step

FILL = 0.5


def type_of(shape):
    return "x".join(map(str, shape)) + "xf32"


def pad(x, low, high):
    """Entry i of the result is entry i - low of `x`, if there is one."""
    result = np.full([a + n + b for a, n, b in zip(low, x.shape, high)], FILL)
    source, place = [], []
    for a, n, m in zip(low, x.shape, result.shape):
        first = max(0, -a)
        size = max(0, min(n, m - a) - first)
        source.append(slice(first, first + size))
        place.append(slice(first + a, first + a + size))
    if all(s.stop > s.start for s in source):
        result[tuple(place)] = x[tuple(source)]
    return result


def write_pad(name, source, shape, low, high):
    result = [a + n + b for a, n, b in zip(low, shape, high)]
    indices = ", ".join(f"%i{d}: index" for d in range(len(shape)))
    return f"""
  %{name} = tensor.pad %{source} low{list(low)} high{list(high)} {{
  ^bb0({indices}):
    tensor.yield %fill : f32
  }} : tensor<{type_of(shape)}> to tensor<{type_of(result)}>"""


def has_entries(shape, low, high):
    return all(a + n + b > 0 for a, n, b in zip(low, shape, high))


rng = np.random.default_rng(0)
amounts = [(0, 0), (2, 0), (0, 1), (-1, 0), (0, -2), (-2, -1), (2, -1), (-1, 2), (-5, 3), (4, -5)]
cases = [((4,), *zip(sides)) for sides in amounts]
cases += [((4, 8), *zip(*sides)) for sides in itertools.product(amounts[:8], repeat=2)]
cases += [((2, 4, 3), *zip(*sides)) for sides in
          (tuple(amounts[i] for i in rng.integers(0, len(amounts), 3)) for _ in range(30))]
cases = [case for case in step.share(cases) if has_entries(*case)]

arrays = {f"x{rank}": rng.standard_normal(shape).astype(np.float32)
          for rank, shape in ((1, (4,)), (2, (4, 8)), (3, (2, 4, 3)))}
body, results, want = [], [], {}
for number, (shape, low, high) in enumerate(cases):
    source = f"x{len(shape)}"
    body.append(write_pad(f"y{number}", source, shape, low, high))
    expected = pad(arrays[source], low, high)
    results.append((f"y{number}", expected.shape))
    want[f"y{number}"] = expected
# One padding takes away what the next one adds again.
body.append(write_pad("less", "x1", (4,), (0,), (-2,)) + write_pad("again", "less", (2,), (0,), (2,)))
results.append(("again", (4,)))
want["again"] = np.where(np.arange(4) < 2, arrays["x1"], FILL)

arguments = ", ".join(f'%{name}: tensor<{type_of(array.shape)}> {{bsr.name = "{name}"}}' for name, array in arrays.items())
types = ", ".join(f"tensor<{type_of(shape)}>" for _, shape in results)
named = ", ".join(f'tensor<{type_of(shape)}> {{bsr.name = "{name}"}}' for name, shape in results)
text = f"""
func.func @step({arguments}) -> ({named}) {{
  %fill = arith.constant {FILL} : f32
  {"".join(body)}
  return {", ".join("%" + name for name, _ in results)} : {types}
}}"""

compiled = step.compile(text)
got = compiled.run(arrays)
for name, expected in want.items():
    assert np.array_equal(got[name], expected.astype(np.float32)), (name, got[name], expected)
print(len(want), "paddings")
