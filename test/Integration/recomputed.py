# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A value that several kernels compute, each where it reads it, has the same bits in all of them.

What a maximum is of has an entry that equals it, and its place is that of an entry: both compare the value with its
maximum, which another kernel found. Differences of a value and its maximum are 0 there.
"""

import numpy as np
import step

ROWS, COLUMNS, DEPTH = 12, 40, 16
# What is computed of x[i, j] and s[i]; %k is 0.3.
FORMS = {
    "scaled": "%0 = arith.mulf %s, %k : T\n%1 = arith.addf %x, %0 : T",
    "difference": "%0 = arith.mulf %s, %k : T\n%1 = arith.subf %x, %0 : T",
    "product": "%0 = arith.mulf %x, %s : T\n%1 = arith.addf %0, %k : T",
    "of product": "%0 = arith.mulf %x, %s : T\n%1 = arith.subf %0, %k : T",
    "two": "%0 = arith.mulf %x, %s : T\n%2 = arith.mulf %s, %k : T\n%1 = arith.addf %0, %2 : T",
    "square": "%0 = arith.mulf %x, %x : T\n%1 = arith.mulf %0, %s : T",
    "negative": "%0 = arith.mulf %x, %s : T\n%2 = arith.negf %0 : T\n%1 = arith.addf %2, %k : T",
    "function": "%0 = math.tanh %x : T\n%2 = arith.mulf %0, %s : T\n%1 = arith.addf %2, %x : T",
}


def generic(name, maps, kinds, inputs, types, result, body):
    """One operation, of the program's, on tensors."""
    maps = ", ".join(f"affine_map<({'i, j'[:3 * len(kinds) - 2]}) -> ({m})>" for m in maps)
    iterators = ", ".join(f'"{kind}"' for kind in kinds)
    return f"""
  %{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
      ins({", ".join(inputs)} : {", ".join(types)}) outs(%{result[0]} : {result[1]}) {{
  {body}
  }} -> {result[1]}"""


def write(form, t, is_product):
    """Two steps: one that returns the value, one with its maximum, and what is compared with that. With `is_product`, x is
    one, whose kernel goes on with it."""
    whole, row, bits = f"tensor<{ROWS}x{COLUMNS}x{t}>", f"tensor<{ROWS}x{t}>", f"tensor<{ROWS}xi32>"
    both = ("parallel", "parallel")
    text, known = "", {"%x": ("x", whole, "i, j"), "%s": ("s", row, "i")}
    for line in FORMS[form].splitlines():
        name, operation = line.split(" = ")
        operands = [o for o in dict.fromkeys(operation.replace(",", "").split()[1:-2]) if o in known]
        values = [known[o] for o in operands]
        body = operation
        for i, o in enumerate(operands):
            body = body.replace(o, f"%a{i}")
        arguments = ", ".join([*(f"%a{i}: {t}" for i in range(len(operands))), f"%o: {t}"])
        body = f"^bb0({arguments}):\n    %r = {body.replace('T', t)}\n    linalg.yield %r : {t}"
        tensor = f"v{name[1:]}"
        # What is of %s alone has one number a row.
        (type, map), start = max((v[1:] for v in values), key=lambda v: len(v[1])), {"i": "rows", "i, j": "empty"}
        text += generic(tensor, [*(v[2] for v in values), map], both[:len(map.split())], [f"%{v[0]}" for v in values],
                        [v[1] for v in values], (start[map], type), body)
        known[name] = (tensor, type, map)
    value = known["%1"][0]
    text += generic("m", ["i, j", "i"], ("parallel", "reduction"), [f"%{value}"], [whole], ("least", row),
                    f"^bb0(%a: {t}, %o: {t}):\n    %r = arith.maximumf %a, %o : {t}\n    linalg.yield %r : {t}")
    # As a gradient of a maximum does.
    text += generic("count", ["i, j", "i", "i"], ("parallel", "reduction"), [f"%{value}", "%m"], [whole, row], ("none", bits), f"""
    ^bb0(%a: {t}, %b: {t}, %o: i32):
    %is = arith.cmpf oeq, %a, %b : {t}
    %one = arith.extui %is : i1 to i32
    %r = arith.addi %one, %o : i32
    linalg.yield %r : i32""")
    text += generic("apart", ["i, j", "i", "i, j"], both, [f"%{value}", "%m"], [whole, row], ("empty", whole),
                    f"^bb0(%a: {t}, %b: {t}, %o: {t}):\n    %r = arith.subf %a, %b : {t}\n    linalg.yield %r : {t}")
    # As torch.argmax.
    text += f"""
  %best, %place = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}}
      ins(%{value} : {whole}) outs(%least, %none : {row}, {bits}) {{
  ^bb0(%a: {t}, %o: {t}, %p: i32):
    %j = linalg.index 1 : index
    %i = arith.index_cast %j : index to i32
    %r = arith.maximumf %a, %o : {t}
    %is = arith.cmpf ogt, %a, %o : {t}
    %q = arith.select %is, %i, %p : i32
    linalg.yield %r, %q : {t}, i32
  }} -> ({row}, {bits})"""
    x = f"%x: {whole} {{bsr.name = \"x\"}}"
    if is_product:
        a, b = f"tensor<{ROWS}x{DEPTH}x{t}>", f"tensor<{DEPTH}x{COLUMNS}x{t}>"
        x = f'%left: {a} {{bsr.name = "a"}}, %right: {b} {{bsr.name = "b"}}'
        text = f"""
  %z = arith.constant 0.0 : {t}
  %zeros = linalg.fill ins(%z : {t}) outs(%empty : {whole}) -> {whole}
  %x = linalg.matmul ins(%left, %right : {a}, {b}) outs(%zeros : {whole}) -> {whole}""" + text
    outputs = {"count": bits, "apart": whole, "place": bits, "best": row}
    start = f"""
  %k = arith.constant 0.3 : {t}
  %low = arith.constant -1.0e+30 : {t}
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : {whole}
  %rows = tensor.empty() : {row}
  %places = tensor.empty() : {bits}
  %least = linalg.fill ins(%low : {t}) outs(%rows : {row}) -> {row}
  %none = linalg.fill ins(%zero : i32) outs(%places : {bits}) -> {bits}"""
    return [f"""
func.func @step({x}, %s: {row} {{bsr.name = "s"}})
    -> ({", ".join(f'{type} {{bsr.name = "{name}"}}' for name, type in found.items())}) {{
  {start}
  {text}
  return {", ".join(f"%{value if n == 'value' else n}" for n in found)} : {", ".join(found.values())}
}}""" for found in ({"value": whole}, outputs)]


def check(form, t, is_product):
    plain, compiled = map(step.compile, write(form, t, is_product))
    for seed in range(2 if step.is_gpu() else 8):
        random = np.random.default_rng(seed)
        arrays = {"s": random.standard_normal(ROWS) * 3}
        arrays |= {n: random.standard_normal(shape) for n, shape in (
            {"a": (ROWS, DEPTH), "b": (DEPTH, COLUMNS)} if is_product else {"x": (ROWS, COLUMNS)}).items()}
        arrays = {n: step.to_bf16(a.astype(np.float32)) if t == "bf16" else a.astype(TYPES[t]) for n, a in arrays.items()}
        got = {**plain.run(arrays), **compiled.run(arrays)}
        value, best, apart = (step.from_bf16(got[n]) if t == "bf16" else got[n] for n in ("value", "best", "apart"))
        where = (form, t, is_product)
        assert (best == value.max(1)).all(), where
        assert (got["count"] == (value == best[:, None]).sum(1)).all(), (where, got["count"])
        assert (got["place"] == value.argmax(1)).all(), (where, got["place"])
        # The difference of two is rounded.
        wanted = value - best[:, None]
        wanted = step.from_bf16(step.to_bf16(wanted)) if t == "bf16" else wanted.astype(TYPES[t])
        assert (apart == wanted).all(), where


TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.float32}
cases = [(form, t, is_product) for t in (("f32", "bf16") if step.is_gpu() else TYPES) for form in FORMS for is_product in (False, True)]
cases = step.share(cases)
for case in cases:
    check(*case)
print(len(cases), "values that are compared with their maximum")
