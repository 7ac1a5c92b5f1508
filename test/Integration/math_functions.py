# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mathematical functions in compiled steps: accuracy, limits, NaN."""

import math

import numpy as np
import step

OPS = {
    "exp": (math.exp, 1), "tanh": (math.tanh, 1), "log": (math.log, 1), "log1p": (math.log1p, 1),
    "expm1": (math.expm1, 1), "erf": (math.erf, 1), "sqrt": (math.sqrt, 1),
    "rsqrt": (lambda x: 1 / math.sqrt(x), 1), "powf": (math.pow, 2), "sin": (math.sin, 1),
    "cos": (math.cos, 1), "absf": (abs, 1),
}
POSITIVE = ["log", "sqrt", "rsqrt", "powf"]
# Units in the last place; f64 calls the C library. A bf16 result is a rounded f32.
ULPS = {"f32": 6, "f64": 2, "bf16": 1}


def source(body, num_inputs, size, type):
    """A step that computes `body` on every element."""
    names = [f"x{i}" for i in range(num_inputs)]
    arguments = ", ".join(f'%{n}: tensor<{size}x{type}> {{bsr.name = "{n}"}}' for n in names)
    types = ", ".join([f"tensor<{size}x{type}>"] * num_inputs)
    return f"""
#map = affine_map<(d0) -> (d0)>
func.func @step({arguments}) -> (tensor<{size}x{type}> {{bsr.name = "y"}}) {{
  %init = tensor.empty() : tensor<{size}x{type}>
  %y = linalg.generic {{indexing_maps = [{", ".join(["#map"] * (num_inputs + 1))}],
                       iterator_types = ["parallel"]}}
      ins({", ".join("%" + n for n in names)} : {types}) outs(%init : tensor<{size}x{type}>) {{
  ^bb0({", ".join(f"%a{i}: {type}" for i in range(num_inputs))}, %out: {type}):
    {body}
    linalg.yield %r : {type}
  }} -> tensor<{size}x{type}>
  return %y : tensor<{size}x{type}>
}}"""


def run(body, inputs, type):
    text = source(body, len(inputs), len(inputs[0]), type)
    return step.run(text, [], {f"x{i}": x for i, x in enumerate(inputs)})["y"]


random = np.random.default_rng(0)
dtypes = {"f32": np.float32, "f64": np.float64, "bf16": np.float32}
for type, ulps in ULPS.items():
    for op, (reference, arity) in OPS.items():
        x = random.uniform(0.01 if op in POSITIVE else -0.9, 5, (arity, 501)).astype(dtypes[type])
        if type == "bf16":
            x = step.from_bf16(step.to_bf16(x))
        held = step.to_bf16(x) if type == "bf16" else x
        operands = ", ".join(f"%a{i}" for i in range(arity))
        got = run(f"%r = math.{op} {operands} : {type}", held, type)
        expected = np.array([reference(*map(float, column)) for column in x.T])
        if type == "bf16":
            got, spacing = step.from_bf16(got), np.abs(expected) * 2.0**-8
        else:
            spacing = np.spacing(np.abs(expected).astype(dtypes[type]))
        # Near a zero of the function the error is that of the argument.
        error = np.max(np.abs(got - expected) / np.maximum(spacing, np.finfo(dtypes[type]).eps))
        assert error <= ulps, (op, type, error)

# A NaN, an infinity and what they become: a diverging loss is seen.
x = np.array([np.nan, np.inf, -np.inf, 1] * 20, np.float32)
y = np.array([1, 1, 1, np.nan] * 20, np.float32)
with np.errstate(all="ignore"):
    for op, function in [("maximumf", np.maximum), ("minimumf", np.minimum), ("divf", np.divide),
                         ("subf", np.subtract)]:
        got = run(f"%r = arith.{op} %a0, %a1 : f32", [x, y], "f32")
        np.testing.assert_array_equal(got, function(x, y), op)
    for op, function in [("exp", np.exp), ("tanh", np.tanh), ("log", np.log)]:
        got = run(f"%r = math.{op} %a0 : f32", [x], "f32")
        np.testing.assert_allclose(got, function(x), rtol=1e-6, err_msg=op)
    # Divided by a root and its reciprocal: NaN and wrong infinities come of estimates.
    y = np.repeat(np.array([0, -0.0, np.inf, 1e-45, 1e-40, 1.2e-38, 1, 3.4e38], np.float32), 10)
    x = np.resize(np.array([1, -1, 0, np.inf, np.nan], np.float32), y.shape)
    got = run("%q = math.sqrt %a1 : f32 %r = arith.divf %a0, %q : f32", [x, y], "f32")
    np.testing.assert_allclose(got, x / np.sqrt(y), rtol=1e-6)
    got = run("%r = math.rsqrt %a0 : f32", [y], "f32")
    np.testing.assert_allclose(got, 1 / np.sqrt(y), rtol=1e-6)
