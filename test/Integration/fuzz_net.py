# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of scripts/fuzz-steps: what its interpreter computes, what its tolerance lets pass, what shrinking leaves."""

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from fuzz import check, interpreter, parser, pool, programs, rounding, shrink

# Against numpy: a product, a sum with a square in its body, an argmax in order, branches, loops, slices.
SOURCE = """
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
#m = affine_map<(i, j) -> (i, j)>
#r = affine_map<(i, j) -> (i)>
func.func @step(%x: tensor<5x7xf32> {bsr.name = "x"}, %w: tensor<6x7xf32> {bsr.name = "w"})
    -> (tensor<5x6xf32> {bsr.name = "y"}, tensor<5xf32> {bsr.name = "s"}, tensor<5xi32> {bsr.name = "i"},
        tensor<f32> {bsr.name = "n"}, tensor<2x6xf32> {bsr.name = "p"}) {
  %z = arith.constant dense<0.0> : tensor<5x6xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<5x7xf32>, tensor<6x7xf32>) outs(%z : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<5x6xf32>
  %z1 = arith.constant dense<0.0> : tensor<5xf32>
  %s = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<5x6xf32>) outs(%z1 : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.mulf %p, %p : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<5xf32>
  %least = arith.constant dense<0xFF800000> : tensor<5xf32>
  %none = arith.constant dense<0> : tensor<5xi32>
  %top:2 = linalg.generic {indexing_maps = [#m, #r, #r], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<5x6xf32>) outs(%least, %none : tensor<5xf32>, tensor<5xi32>) {
  ^bb0(%p: f32, %o: f32, %at: i32):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i32
    %2 = arith.cmpf ogt, %p, %o : f32
    %3 = arith.select %2, %p, %o : f32
    %4 = arith.select %2, %1, %at : i32
    linalg.yield %3, %4 : f32, i32
  } -> (tensor<5xf32>, tensor<5xi32>)
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %one = arith.constant dense<1.0> : tensor<f32>
  %n = scf.for %k = %c0 to %c3 step %c1 iter_args(%t = %one) -> (tensor<f32>) {
    %u = linalg.add ins(%t, %t : tensor<f32>, tensor<f32>) outs(%one : tensor<f32>) -> tensor<f32>
    scf.yield %u : tensor<f32>
  }
  %part = tensor.extract_slice %y[%c1, 0] [2, 6] [1, 1] : tensor<5x6xf32> to tensor<2x6xf32>
  return %y, %s, %top#1, %n, %part : tensor<5x6xf32>, tensor<5xf32>, tensor<5xi32>, tensor<f32>, tensor<2x6xf32>
}
"""
# Integers of each width against NumPy's, with and without signs; paddings of both signs; a strided slice that is put
# back; a branch and a loop that read values from outside.
INTEGERS = """
func.func @step(%a: tensor<64xi{0}> {bsr.name = "a"}, %b: tensor<64xi{0}> {bsr.name = "b"}) -> (tensor<64xi{0}> {bsr.name = "c"}) {
  %e = tensor.empty() : tensor<64xi{0}>
  %c = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<64xi{0}>, tensor<64xi{0}>) outs(%e : tensor<64xi{0}>) {
  ^bb0(%p: i{0}, %q: i{0}, %o: i{0}):
    %r = arith.{1} %p, %q : i{0}
    linalg.yield %r : i{0}
  } -> tensor<64xi{0}>
  return %c : tensor<64xi{0}>
}
"""
TENSORS = """
func.func @step(%x: tensor<4x6xf32> {bsr.name = "x"}, %y: tensor<4x6xf32> {bsr.name = "y"}, %t: tensor<f32> {bsr.name = "t"})
    -> (tensor<5x4xf32> {bsr.name = "p"}, tensor<4x6xf32> {bsr.name = "s"}, tensor<4x6xf32> {bsr.name = "b"}, tensor<4x6xf32> {bsr.name = "l"}) {
  %n = arith.constant 2.0 : f32
  %p = tensor.pad %x low[2, -1] high[-1, -1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %n : f32
  } : tensor<4x6xf32> to tensor<5x4xf32>
  %part = tensor.extract_slice %x[1, 0] [2, 3] [2, 2] : tensor<4x6xf32> to tensor<2x3xf32>
  %s = tensor.insert_slice %part into %y[1, 0] [2, 3] [2, 2] : tensor<2x3xf32> into tensor<4x6xf32>
  %u = tensor.extract %t[] : tensor<f32>
  %taken = arith.cmpf ogt, %u, %n : f32
  %b = scf.if %taken -> (tensor<4x6xf32>) {
    scf.yield %y : tensor<4x6xf32>
  } else {
    %z = linalg.add ins(%x, %y : tensor<4x6xf32>, tensor<4x6xf32>) outs(%x : tensor<4x6xf32>) -> tensor<4x6xf32>
    scf.yield %z : tensor<4x6xf32>
  }
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %l = scf.for %k = %c0 to %c2 step %c1 iter_args(%m = %y) -> (tensor<4x6xf32>) {
    %z = linalg.mul ins(%m, %x : tensor<4x6xf32>, tensor<4x6xf32>) outs(%x : tensor<4x6xf32>) -> tensor<4x6xf32>
    scf.yield %z : tensor<4x6xf32>
  }
  return %p, %s, %b, %l : tensor<5x4xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}
"""
random = np.random.default_rng(0)
OPERATIONS = {
    "addi": np.add, "muli": np.multiply, "andi": np.bitwise_and, "xori": np.bitwise_xor, "maxsi": np.maximum, "shrsi": np.right_shift,
    "shli": np.left_shift, "divsi": lambda a, b: np.trunc(a / b), "remsi": np.fmod, "maxui": np.maximum, "divui": np.floor_divide,
    "remui": np.remainder, "shrui": np.right_shift, "minui": np.minimum,
}
with np.errstate(over="ignore"):
    for width in (8, 16, 32):
        a = random.integers(-(1 << width - 1), 1 << width - 1, 64).astype(f"i{width // 8}")
        for name, function in OPERATIONS.items():
            b = random.integers(1, 7, 64).astype(a.dtype)
            given = [v.view(f"u{width // 8}") if name.endswith("ui") or name == "shrui" else v for v in (a, b)]
            want = function(*given).astype(given[0].dtype).view(a.dtype)
            text = INTEGERS.replace("{0}", str(width)).replace("{1}", name)
            got = interpreter.evaluate(text, [a.astype(np.int64), b.astype(np.int64)])[0][0]
            assert (got == want).all(), (name, width, a, b, got, want)
x, y = random.standard_normal((4, 6)), random.standard_normal((4, 6))
pasted = y.copy()
pasted[1::2, ::2] = x[1::2, ::2]
wanted = [np.concatenate([np.full((2, 4), 2.0), x[:3, 1:5]]), pasted, x + y, y * x * x]
for got, want in zip(interpreter.evaluate(TENSORS, [x, y, np.array(1.0)]), wanted):
    np.testing.assert_allclose(got[0], want, rtol=1e-13)

random = np.random.default_rng(0)
x, w = (random.standard_normal(s).astype(np.float32).astype(np.float64) for s in ((5, 7), (6, 7)))
y = x @ w.T
results = interpreter.evaluate(SOURCE, [x, w])
for result, want in zip(results, (y, (y * y).sum(1), y.argmax(1), 8.0, y[1:3])):
    np.testing.assert_allclose(result[0], want, rtol=1e-13)
print("interpreter: ok")

# What f32 computes passes, a wrong term does not, and what cancels is allowed more.
allowed = rounding.tolerance(results[0], "f32")
assert (np.abs(x.astype(np.float32) @ w.T.astype(np.float32) - y) <= allowed).all()
assert (allowed < 1e-4 * np.abs(y).max()).all()
assert (np.abs(y - x[:, 1:] @ w.T[1:]) > allowed).mean() > 0.9
# Ties go to even, and what is below a tie by less than f32 holds is none.
halves = rounding.round_to(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-40, 3.5e38]), "bf16")
assert (halves == [1, 1 + 2.0**-6, 1 + 2.0**-7, np.inf]).all(), halves
print("tolerance: ok")

# A case that fails wherever an operation is left that takes a logarithm.
program = next(p for p in map(programs.generate, range(100)) if p.text.count("math.log ") == 1)
case = check.make_case(program)
small = shrink.shrink(case, lambda c: "math.log " in c.text and bool(parser.parse(c.text)))
few, many = (len(parser.parse(c.text).ops) for c in (small, case))
assert few < 20 and 4 * few < many, small.text
patterns = check.draw_patterns(small)
check.reference(small, check.element_masks(small, patterns))
print("shrink: ok")

# A program that ends its process is told, and the next one runs.
with tempfile.TemporaryDirectory() as folder:
    script = Path(folder, "fuzzer")
    script.write_text(f"""import os, sys
sys.path.insert(0, {str(Path(pool.__file__).parents[1])!r})
from fuzz import pool
def run(result):
    print("not an answer")
    if result["seed"] == 1:
        os.abort()
    if result["seed"] == 2:
        raise ValueError("no")
pool.work(run)
""")
    worker = pool.Worker([], script)
    kinds = [worker.run(seed, 0)["kind"] for seed in range(4)]
    worker.close()
assert kinds == ["ok", "crash", "error", "ok"], kinds
print("pool: ok")
