# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Out to MLIR's sparse tensors, and in from them: the same products on both ways."""

import ctypes
import os
import subprocess
import tempfile

import numpy as np
import step

ROWS, COLS, TOKENS = 48, 96, 20


def run(tool, *arguments, text):
    return subprocess.run([tool, *arguments], input=text, text=True, check=True, capture_output=True).stdout


def describe(array):
    """MLIR's descriptor of a buffer: pointers, offset, sizes, strides."""
    class Descriptor(ctypes.Structure):
        _fields_ = [("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64),
                    ("sizes", ctypes.c_int64 * array.ndim), ("strides", ctypes.c_int64 * array.ndim)]

    strides = [stride // array.itemsize for stride in array.strides]
    return Descriptor(array.ctypes.data, array.ctypes.data, 0, (ctypes.c_int64 * array.ndim)(*array.shape),
                      (ctypes.c_int64 * array.ndim)(*strides))


def sparsify(text, arrays, shape):
    """Hands @f, which takes `arrays` in order, to upstream's sparsifier, and runs it."""
    text = text.replace(") {\n", ") attributes {llvm.emit_c_interface} {\n", 1)
    lowered = run("sparse-opt", "--bsr-to-sparse-tensor", "--bsr-lower-patterns",
                  "--sparsifier=enable-runtime-library=false", text=text)
    ir = run("mlir-translate", "--mlir-to-llvmir", "--allow-unregistered-dialect", text=lowered)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f.so")
        subprocess.run(["clang-22", "-x", "ir", "-", "-O1", "-shared", "-fPIC", "-Wno-override-module", "-o", path],
                       input=ir, text=True, check=True)
        library = ctypes.CDLL(path)
    result = describe(np.zeros(shape, np.float32))
    library._mlir_ciface_f(ctypes.byref(result), *(ctypes.byref(describe(array)) for array in arrays))
    count = int(np.prod(shape))
    data = ctypes.cast(result.aligned, ctypes.POINTER(ctypes.c_float * count)).contents
    return np.frombuffer(data, np.float32).reshape(shape).copy()


random = np.random.default_rng(0)
for block in [(16, 16), (4, 8), (1, 1), (1, 16), (16, 1)]:
    for transpose in (False, True):
        grid = ROWS // block[0], COLS // block[1]
        slots = grid[0] * grid[1] // 2
        stored = random.permutation(grid[0] * grid[1])[:slots - 1]  # a slot is empty
        mask = np.isin(np.arange(grid[0] * grid[1]), stored).reshape(grid)
        mask[1] = False
        order = random.permutation(slots)[:mask.sum()]
        covered = np.kron(mask, np.ones(block))
        dense = (random.standard_normal((ROWS, COLS)) * covered).astype(np.float32)
        values = step.to_values(dense, mask, block, slots, order)
        shape = (COLS, ROWS) if transpose else (ROWS, COLS)
        x = random.standard_normal((shape[1], TOKENS)).astype(np.float32)
        zero = np.zeros((shape[0], TOKENS), np.float32)
        want = (dense.T if transpose else dense).astype(np.float64) @ x

        pattern = f"!bsr.pattern<{ROWS}x{COLS}, block = {block[0]}x{block[1]}, slots = {slots}>"
        v = f"tensor<{slots}x{block[0]}x{block[1]}xf32>"
        w, tx, ty = (f"tensor<{a}x{b}xf32>" for a, b in (shape, x.shape, zero.shape))
        ours = f"""
func.func @f(%p: {pattern} {{bsr.name = "w", bsr.role = "pattern"}}, %v: {v} {{bsr.name = "w", bsr.pattern = 0 : i64}},
             %x: {tx} {{bsr.name = "x"}}, %z: {ty} {{bsr.name = "z"}}) -> ({ty} {{bsr.name = "y"}}) {{
  %w = bsr.to_dense %p, %v {"transpose" if transpose else ""} : {pattern}, {v} -> {w}
  %y = linalg.matmul ins(%w, %x : {w}, {tx}) outs(%z : {ty}) -> {ty}
  return %y : {ty}
}}
"""
        # Here.
        got = step.compile(ours).run({"w": values, "x": x, "z": zero}, {"w": mask}, {"w": order})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

        # Out: upstream's sparsifier takes it from there, but for blocks of one column.
        rows, cols = block[::-1] if transpose else block
        if cols > 1 or rows == 1:
            views = step.views(mask, slots, order)
            arrays = [views[k] for k in ("row_ptr", "col_idx", "slot", "col_ptr", "row_idx", "slot_t")]
            got = sparsify(ours, arrays + [values, x, zero.copy()], zero.shape)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

        # In: a program on one of their tensors becomes ours, and sparse.
        if transpose:
            continue
        levels = [f"i floordiv {block[0]} : dense" if block[0] > 1 else "i : dense",
                  f"j floordiv {block[1]} : compressed" if block[1] > 1 else "j : compressed"]
        levels += [f"i mod {block[0]} : dense"] * (block[0] > 1) + [f"j mod {block[1]} : dense"] * (block[1] > 1)
        given = f"""
#bsr = #sparse_tensor.encoding<{{map = (i, j) -> ({", ".join(levels)})}}>
func.func @f(%w: tensor<{ROWS}x{COLS}xf32, #bsr> {{bsr.name = "w"}}, %x: {tx} {{bsr.name = "x"}},
             %z: {ty} {{bsr.name = "z"}}) -> ({ty} {{bsr.name = "y"}}) {{
  %y = linalg.matmul ins(%w, %x : tensor<{ROWS}x{COLS}xf32, #bsr>, {tx}) outs(%z : {ty}) -> {ty}
  return %y : {ty}
}}
"""
        taken = run("sparse-opt", "--bsr-from-sparse-tensor=density=0.5", "--bsr-propagate=require-sparse", text=given)
        assert "bsr.spmm" in taken and "sparse_tensor" not in taken
        got = step.compile(taken).run({"w": values, "x": x, "z": zero}, {"w": mask}, {"w": order})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
