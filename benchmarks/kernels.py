#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with a block-sparse matrix: this project's kernels and other libraries'.

    benchmarks/kernels.py [--filter REGEX] [--threads N] [--runs N] [--csv FILE]

prints a table and writes FILE; docs/benchmarks.md explains both. Everything runs in
one process, in turn; each result is checked before it is timed. What is not installed
is left out with a note (benchmarks/install-peers.sh installs it).
"""

import argparse
import csv
import ctypes
import itertools
import os
import re
import subprocess
import sys
import time
import typing

import harness


class Case(typing.NamedTuple):
    op: str  # spmm, spmm_transposed or sddmm
    type: str  # f32 or bf16
    block: str
    density: float
    pattern: str  # random, skewed or banded
    rows: int
    cols: int
    tokens: int

    def __str__(self):
        return "/".join(map(str, self))


OPS = ["spmm", "spmm_transposed", "sddmm"]
SHAPES = [(768, 3072), (3072, 768), (768, 768)]


def all_cases():
    """The table of cases, the ones that are asked for most first."""
    blocks = [f"{b}x{b}" for b in (16, 32, 8, 4, 64, 1)]
    tables = [
        # shapes, types, blocks, densities, patterns, tokens
        (SHAPES, ["f32"], blocks, [0.1, 0.05, 0.2, 0.5], ["random"], [1024]),
        (SHAPES[:1], ["f32"], blocks, [0.1], ["skewed", "banded"], [1024]),
        (SHAPES[:1], ["bf16"], ["16x16", "32x32", "8x8", "64x64"], [0.1], ["random"], [1024]),
        (SHAPES[:1], ["f32"], ["16x16"], [1.0], ["random"], [1024]),
        # Tokens that fill no panel, and blocks that are no squares.
        (SHAPES[:1], ["f32"], ["16x16"], [0.1], ["random"], [1000]),
        (SHAPES[:1], ["f32"], ["8x32", "32x8", "1x16", "16x1", "1x8", "8x1"], [0.1], ["random"], [1024]),
    ]
    for shapes, types, blocks, densities, patterns, tokens in tables:
        for shape, type, block, density, pattern, count, op in itertools.product(
            shapes, types, blocks, densities, patterns, tokens, OPS
        ):
            yield Case(op, type, block, density, pattern, *shape, count)


def make_mask(case, grid, random):
    """Which blocks are stored: about `density` of all, at least one."""
    rows, cols = grid
    blocks = max(1, round(case.density * rows * cols))
    if case.pattern == "banded":
        centre = np.arange(rows)[:, None] * cols / rows
        distance = np.abs(np.arange(cols)[None, :] - centre)
        order = np.argsort(distance, axis=None, kind="stable")
    elif case.pattern == "skewed":
        # Row r of a random order has blocks in proportion to 1 / (r + 1): Zipf's law.
        # Blocks in the order of exponential times of these rates are a sample.
        rates = random.permutation(1 / np.arange(1.0, rows + 1))
        order = np.argsort(random.exponential(size=grid) / rates[:, None], axis=None)
    else:
        order = random.permutation(rows * cols)
    mask = np.zeros(rows * cols, bool)
    mask[order[:blocks]] = True
    return mask.reshape(grid)


class Problem:
    """The operands of a case in every layout, and its result."""

    def __init__(self, case):
        self.case = case
        self.block = tuple(map(int, case.block.split("x")))
        shape = (case.rows, case.cols)
        random = np.random.default_rng(0)
        self.mask = make_mask(case, tuple(s // b for s, b in zip(shape, self.block)), random)
        self.blocks = int(self.mask.sum())

        def normal(*shape):
            values = random.standard_normal(shape, dtype=np.float32)
            return step.from_bf16(step.to_bf16(values)) if case.type == "bf16" else values

        self.dense = normal(*shape) * np.kron(self.mask, np.ones(self.block, np.float32))
        self.x, self.dy = normal(case.tokens, case.rows), normal(case.tokens, case.cols)
        self.x_t, self.dy_t = np.ascontiguousarray(self.x.T), np.ascontiguousarray(self.dy.T)
        self.values = step.to_values(self.dense, self.mask, self.block)
        self.views = step.views(self.mask)
        self.flops = 2 * case.tokens * self.blocks * self.block[0] * self.block[1]
        self.dense_flops = 2 * case.tokens * case.rows * case.cols
        # The matrix that makes outputs of inputs, as libraries want it that keep
        # [outputs, inputs], and the features of the operand and the result.
        self.transposed = case.op == "spmm_transposed"
        self.matrix = self.dense if self.transposed else np.ascontiguousarray(self.dense.T)
        self.operand_t = self.dy_t if self.transposed else self.x_t
        if case.op == "spmm":
            self.reference = self.x @ self.dense
        elif case.op == "spmm_transposed":
            self.reference = self.dy @ self.dense.T
        else:
            self.reference = step.to_values(self.x_t @ self.dy, self.mask, self.block)

    def error(self, result):
        """The relative error of `result`, in the norm of the sum of squares."""
        difference = np.linalg.norm((result - self.reference).ravel())
        return difference / np.linalg.norm(self.reference.ravel())

    def bsr(self):
        """Pointers, indices and blocks of `matrix`."""
        if self.transposed:
            return self.views["row_ptr"], self.views["col_idx"], self.values
        order = self.views["slot_t"]
        return (self.views["col_ptr"], self.views["row_idx"],
                np.ascontiguousarray(self.values[order].transpose(0, 2, 1)))

    def csr(self):
        """Pointers, indices and values of `matrix`, entry by entry."""
        stored = np.kron(self.mask if self.transposed else self.mask.T,
                         np.ones(self.block if self.transposed else self.block[::-1], bool))
        rows, cols = np.nonzero(stored)
        pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(stored)))])
        return pointers.astype(np.int32), cols.astype(np.int32), self.matrix[rows, cols]


class Implementation:
    """One way to compute a case: `run()` computes; `result()` returns tokens by
    features, or stored blocks. A dense one multiplies the zeros too."""

    def __init__(self, name, run, result, dense=False, seconds=None):
        self.name, self.run, self.result, self.dense = name, run, result, dense
        # What `run` took, if it measures itself.
        self.seconds = seconds
        self.times = []

    def sample(self):
        start = time.perf_counter()
        self.run()
        elapsed = time.perf_counter() - start
        self.times.append(self.seconds() if self.seconds else elapsed)
        return elapsed


def matrix_result(problem, result):
    """Of a whole weight gradient, the stored blocks."""
    return step.to_values(result, problem.mask, problem.block) if problem.case.op == "sddmm" else result


#===------------------------------------------------------------------------===#
# This project
#===------------------------------------------------------------------------===#


def schedule_attribute(schedule):
    """`{bsr.schedule = ...}` for "WALK" or "WALK rows=N panels=N ahead=N", some of them; "" for ""."""
    walk, *numbers = schedule.split() or [""]
    entries = [f'walk = "{walk}"'] + [f"{number} : i64" for number in numbers]
    return f"{{bsr.schedule = {{{', '.join(entries)}}}}} " if walk else ""


def step_source(case, slots, schedule=""):
    """A step that computes one product, sparse or (slots = None) dense."""
    t, r, c, kind = case.tokens, case.rows, case.cols, case.type
    x, dy, w = f"tensor<{t}x{r}x{kind}>", f"tensor<{t}x{c}x{kind}>", f"tensor<{r}x{c}x{kind}>"
    forward, gradient = case.op == "spmm", case.op == "sddmm"
    operands = [("x", x), ("dy", dy)] if gradient else [("x", x) if forward else ("dy", dy)]
    if slots is None:
        # As frameworks do: the sum of products of bf16 is f32.
        result = (dy if forward else w if gradient else x).replace("bf16", "f32")
        if not gradient:
            operands.append(("w", w))
        maps = {"spmm": ("t, k", "k, n", "t, n"), "spmm_transposed": ("t, k", "n, k", "t, n"),
                "sddmm": ("k, t", "k, n", "t, n")}[case.op]
        maps = ", ".join(f"affine_map<(t, n, k) -> ({m})>" for m in maps)
        names = ", ".join(f"%{name}" for name, _ in operands)
        types = ", ".join(type for _, type in operands)
        body = f"""%zero = arith.constant dense<0.0> : {result}
  %r = linalg.matmul indexing_maps = [{maps}] ins({names} : {types}) outs(%zero : {result}) -> {result}"""
    else:
        schedule = schedule_attribute(schedule)
        br, bc = case.block.split("x")
        values = f"tensor<{slots}x{br}x{bc}x{kind}>"
        pattern = f"!bsr.pattern<{r}x{c}, block = {br}x{bc}, slots = {slots}>"
        names = ", ".join(f"%{name}" for name, _ in operands)
        types = ", ".join(type for _, type in operands)
        if gradient:
            result = values
            body = f"%r = bsr.sddmm %p, {names} feature_dim = 1 {schedule}: {pattern}, {types} -> {values}"
        else:
            result = dy if forward else x
            transpose = "" if forward else "transpose "
            body = (f"%r = bsr.spmm %p, %v, {names} {transpose}feature_dim = 1 {schedule}: "
                    f"{pattern}, {values}, {types} -> {result}")
            operands.append(("v", values))
        operands.append(("p", pattern))
    arguments = ", ".join(
        f'%{name}: {type} {{bsr.name = "{name}", bsr.role = "{"pattern" if name == "p" else "batch"}"}}'
        for name, type in operands)
    return f"""func.func @step({arguments}) -> ({result} {{bsr.name = "r"}}) {{
  {body}
  return %r : {result}
}}
"""


def make_ours(problem, schedules):
    case = problem.case

    def store(array):
        return step.to_bf16(array) if case.type == "bf16" else array

    def make(name, dense, schedule=""):
        source = step_source(case, None if dense else problem.blocks, schedule)
        compiled = harness.compile_step(source, "--timers")
        arrays = {"x": store(problem.x), "dy": store(problem.dy), "w": store(problem.dense),
                  "v": store(problem.values)}
        buffers, run = compiled.bind(arrays, {"p": problem.views})
        timers = compiled.manifest["timers"]
        table = np.ctypeslib.as_array(
            (ctypes.c_int64 * (2 * len(timers) + 2)).in_dll(compiled.library, "bsr_step_timers")
        ).reshape(-1, 2)
        kind = "dense" if dense else case.op
        product = [timer["kind"] == kind for timer in timers] + [False]
        rest = [not p for p in product[:-1]] + [False]
        if not any(product):
            sys.exit(f"error: expected a step with a product of kind {kind}, but got {timers}")

        def timed():
            table[...] = 0
            run()

        def result():
            array = next(b for d, b in zip(compiled.manifest["buffers"], buffers) if d["kind"] == "output")
            array = step.from_bf16(array) if array.dtype == np.uint16 else array
            return matrix_result(problem, array) if dense else array

        implementation = Implementation(name, timed, result, dense, lambda: table[product, 0].sum() * 1e-9)
        # Conversions of layouts, which a chain of products has at its ends only.
        implementation.rest = lambda: table[rest, 0].sum() * 1e-9
        return implementation

    yield make("ours", False)
    for schedule in schedules:
        yield make(f"ours {schedule}", False, schedule)
    if not schedules:
        yield make("ours-dense", True)


#===------------------------------------------------------------------------===#
# Libraries in C and C++
#===------------------------------------------------------------------------===#


class CProblem(ctypes.Structure):
    """`Problem` of peers.h."""

    _fields_ = [(name, ctypes.c_int64) for name in
                ("rows", "cols", "tokens", "blockRows", "blockCols", "blocks")]
    _fields_ += [(name, ctypes.c_void_p) for name in
                 ("rowPtr", "colIdx", "colPtr", "rowIdx", "slotT", "values", "dense",
                  "x", "xT", "dy", "dyT", "dense16", "x16", "dy16")]


def load_peers():
    libraries = sorted(harness.ROOT.glob("build/*/lib/bsr-peers.so"), key=lambda path: path.stat().st_mtime)
    if not libraries:
        harness.note("no oneDNN, OpenBLAS, Eigen and libxsmm, and no peak: build with -DBSR_BENCHMARKS=ON")
        return None
    library = ctypes.CDLL(str(libraries[-1]))
    library.bsr_peers.restype = ctypes.c_char_p
    library.bsr_peer_create.restype = library.bsr_peer_result.restype = ctypes.c_void_p
    library.bsr_measure_peak.restype = ctypes.c_double
    for function in (library.bsr_peer_run, library.bsr_peer_result, library.bsr_peer_destroy):
        function.argtypes = [ctypes.c_void_p]
    library.bsr_peer_result.argtypes = [ctypes.c_void_p] * 3
    missing = {"onednn", "openblas", "eigen", "libxsmm-spmdm"} - set(library.bsr_peers().decode().split())
    for name in sorted(missing):
        harness.note(f"no {name}: it was not found when bsr-peers was built")
    return library


def make_c_peers(problem, library):
    case = problem.case
    keep = [problem.views[name] for name in ("row_ptr", "col_idx", "col_ptr", "row_idx", "slot_t")]
    keep += [problem.values, problem.dense, problem.x, problem.x_t, problem.dy, problem.dy_t]
    if case.type == "bf16":
        keep += [step.to_bf16(array) for array in (problem.dense, problem.x, problem.dy)]
    pointers = [array.ctypes.data for array in keep]
    c_problem = CProblem(case.rows, case.cols, case.tokens, *problem.block, problem.blocks, *pointers)
    features = case.rows if problem.transposed else case.cols
    br, bc = problem.block

    for name in library.bsr_peers().decode().split():
        handle = library.bsr_peer_create(name.encode(), case.op.encode(), ctypes.byref(c_problem))
        if not handle:
            continue

        # The problem and its arrays live as long as the closures do.
        def run(handle=handle, keep=(keep, c_problem)):
            library.bsr_peer_run(handle)

        def result(handle=handle):
            layout, is_bf16 = ctypes.c_int32(), ctypes.c_int32()
            address = library.bsr_peer_result(handle, ctypes.byref(layout), ctypes.byref(is_bf16))
            shape = [(case.tokens, features), (features, case.tokens), (problem.blocks, br, bc),
                     (problem.blocks, bc, br), (case.rows, case.cols)][layout.value]
            kind = ctypes.c_uint16 if is_bf16.value else ctypes.c_float
            array = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), shape)
            array = step.from_bf16(array) if is_bf16.value else array
            if layout.value in (1, 3):
                array = np.swapaxes(array, -1, -2)
            return matrix_result(problem, array) if layout.value == 4 else array

        implementation = Implementation(name, run, result, name in ("onednn", "openblas"))
        implementation.close = lambda handle=handle: library.bsr_peer_destroy(handle)
        yield implementation


def load_mkl():
    """MKL of Python's package, or nothing."""
    candidates = [os.path.join(prefix, "lib", "libmkl_rt.so.3") for prefix in (sys.prefix, "/usr/local")]
    for path in [*candidates, "libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so"]:
        try:
            return ctypes.CDLL(path)
        except OSError:
            pass
    harness.note("no MKL: pip install mkl")
    return None


class MatrixDescription(ctypes.Structure):
    """MKL's struct matrix_descr: a general matrix."""

    _fields_ = [("type", ctypes.c_int), ("mode", ctypes.c_int), ("diag", ctypes.c_int)]


# Values of MKL's and CBLAS's enumerations.
ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
SPARSE_GENERAL, SPARSE_NO_TRANSPOSE = 20, 10


def make_mkl(problem, library):
    case = problem.case
    if case.type != "f32":
        return

    def pointer(array):
        return ctypes.c_void_p(array.ctypes.data)

    m, n, k, a, b, transposes = {
        "spmm": (case.tokens, case.cols, case.rows, problem.x, problem.dense, (NO_TRANSPOSE, NO_TRANSPOSE)),
        "spmm_transposed": (case.tokens, case.rows, case.cols, problem.dy, problem.dense, (NO_TRANSPOSE, TRANSPOSE)),
        "sddmm": (case.rows, case.cols, case.tokens, problem.x, problem.dy, (TRANSPOSE, NO_TRANSPOSE)),
    }[case.op]
    out = np.zeros((m, n), np.float32)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)

    def gemm():
        library.cblas_sgemm(ROW_MAJOR, *transposes, m, n, k, one, pointer(a), a.shape[1],
                            pointer(b), b.shape[1], zero, pointer(out), n)

    yield Implementation("mkl", gemm, lambda: matrix_result(problem, out), dense=True)
    if case.op == "sddmm":
        return

    description = MatrixDescription(SPARSE_GENERAL, 0, 0)

    def check(status):
        if status:
            sys.exit(f"error: expected MKL to succeed, but got status {status}")

    def make(name, create, arrays):
        handle = ctypes.c_void_p()
        ptr, idx, values = arrays
        check(create(ctypes.byref(handle), pointer(ptr), ctypes.c_void_p(ptr.ctypes.data + 4), pointer(idx),
                     pointer(values)))
        features, tokens = len(problem.matrix), case.tokens
        result = np.zeros((features, tokens), np.float32)

        def run(keep=arrays):
            check(library.mkl_sparse_s_mm(SPARSE_NO_TRANSPOSE, one, handle, description, ROW_MAJOR,
                                          pointer(problem.operand_t), tokens, tokens, zero, pointer(result), tokens))

        return Implementation(name, run, lambda: result.T)

    rows, cols = problem.matrix.shape
    yield make("mkl-csr", lambda handle, *rest: library.mkl_sparse_s_create_csr(handle, 0, rows, cols, *rest),
               problem.csr())
    br, bc = problem.block
    if br == bc > 1:
        yield make("mkl-bsr", lambda handle, *rest: library.mkl_sparse_s_create_bsr(
            handle, 0, ROW_MAJOR, rows // br, cols // br, br, *rest), problem.bsr())


#===------------------------------------------------------------------------===#
# PyTorch
#===------------------------------------------------------------------------===#


def load_torch(threads):
    try:
        import torch
    except ImportError:
        harness.note("no PyTorch: pip install torch")
        return None
    import warnings

    warnings.filterwarnings("ignore", module="torch")
    warnings.filterwarnings("ignore", message="Sparse")
    torch.set_num_threads(threads)
    return torch


def make_torch(problem, torch):
    case = problem.case

    def tensor(array):
        array = torch.from_numpy(array)
        return array.bfloat16() if case.type == "bf16" else array

    def make(name, compute, convert, dense=False):
        last = []

        def run():
            last[:] = [compute()]

        def result():
            array = last[0] if last[0].layout == torch.strided else last[0].to_dense()
            return convert(array.float().numpy())

        return Implementation(name, run, result, dense)

    x, dy, w = tensor(problem.x), tensor(problem.dy), tensor(problem.dense)
    dense = {"spmm": lambda: x @ w, "spmm_transposed": lambda: dy @ w.T, "sddmm": lambda: x.T @ dy}[case.op]
    yield make("torch", dense, lambda result: matrix_result(problem, result), dense=True)
    if case.type != "f32":
        return
    if case.op == "sddmm":
        stored = torch.from_numpy(np.kron(problem.mask, np.ones(problem.block, np.float32))).to_sparse_csr()
        pattern = torch.sparse_csr_tensor(stored.crow_indices(), stored.col_indices(),
                                          torch.zeros_like(stored.values()), stored.shape)
        x_t = tensor(problem.x_t)
        yield make("torch-sampled", lambda: torch.sparse.sampled_addmm(pattern, x_t, dy, beta=0.0),
                   lambda result: matrix_result(problem, result))
        return
    operand = tensor(problem.operand_t)
    ptr, idx, values = problem.csr()
    csr = torch.sparse_csr_tensor(*map(torch.from_numpy, (ptr, idx, values)), problem.matrix.shape)
    yield make("torch-csr", lambda: csr @ operand, np.transpose)
    if problem.block != (1, 1):
        bsr = torch.sparse_bsr_tensor(*map(torch.from_numpy, problem.bsr()), problem.matrix.shape)
        yield make("torch-bsr", lambda: bsr @ operand, np.transpose)


#===------------------------------------------------------------------------===#
# MLIR's own sparsifier
#===------------------------------------------------------------------------===#


def make_sparsifier(problem):
    case = problem.case
    if case.type != "f32" or case.op == "sddmm":
        return
    ptr, idx, values = problem.bsr()
    rows, cols = problem.matrix.shape
    br, bc = values.shape[1:]
    levels = (f"i floordiv {br} : dense, j floordiv {bc} : compressed, i mod {br} : dense, j mod {bc} : dense"
              if br * bc > 1 else "i : dense, j : compressed")
    source = f"""
#BSR = #sparse_tensor.encoding<{{posWidth = 32, crdWidth = 32, map = (i, j) -> ({levels})}}>
!w = tensor<{rows}x{cols}xf32, #BSR>
!x = tensor<{cols}x{case.tokens}xf32>
!y = tensor<{rows}x{case.tokens}xf32>
func.func @product(%ptr: tensor<{len(ptr)}xi32>, %idx: tensor<{len(idx)}xi32>, %v: tensor<{values.size}xf32>,
                   %x: !x, %init: !y {{bufferization.writable = true}}) -> !y attributes {{llvm.emit_c_interface}} {{
  %w = sparse_tensor.assemble (%ptr, %idx), %v
    : (tensor<{len(ptr)}xi32>, tensor<{len(idx)}xi32>), tensor<{values.size}xf32> to !w
  %y = linalg.matmul ins(%w, %x : !w, !x) outs(%init : !y) -> !y
  return %y : !y
}}
"""
    passes = "--sparsifier=enable-runtime-library=false vl=16 reassociate-fp-reductions=1"

    def make(path):
        lowered = subprocess.run(["mlir-opt-22", passes], input=source, text=True, check=True, capture_output=True)
        ir = subprocess.run(["mlir-translate-22", "--mlir-to-llvmir"], input=lowered.stdout, text=True, check=True,
                            capture_output=True)
        subprocess.run(["clang-22", "-x", "ir", "-", "-O3", "-march=native", "-shared", "-fPIC",
                        "-Wno-override-module", "-o", path], input=ir.stdout, text=True, check=True)

    try:
        path = harness.cached("sparsifier.so", source + passes, make)
    except subprocess.CalledProcessError as error:
        message = (error.stderr.splitlines() or [f"{error.cmd[0]} failed"])[0]
        harness.note(f"no mlir-sparsifier of {case}: {message}")
        return
    library = ctypes.CDLL(str(path))
    result = np.zeros((rows, case.tokens), np.float32)

    def describe(array):
        """MLIR's descriptor of a buffer: pointers, offset, sizes, strides."""
        class Descriptor(ctypes.Structure):
            _fields_ = [("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64),
                        ("sizes", ctypes.c_int64 * array.ndim), ("strides", ctypes.c_int64 * array.ndim)]

        strides = [stride // array.itemsize for stride in array.strides]
        return Descriptor(array.ctypes.data, array.ctypes.data, 0, (ctypes.c_int64 * array.ndim)(*array.shape),
                          (ctypes.c_int64 * array.ndim)(*strides))

    arrays = [result, ptr, idx, values.reshape(-1), problem.operand_t, result]
    descriptors = [describe(array) for array in arrays]

    elapsed = [0.0]

    def run(keep=arrays):
        # It adds to the result; to make that zero is not its work.
        result.fill(0)
        start = time.perf_counter()
        library._mlir_ciface_product(*map(ctypes.byref, descriptors))
        elapsed[0] = time.perf_counter() - start

    yield Implementation("mlir-sparsifier", run, lambda: result.T, seconds=lambda: elapsed[0])


#===------------------------------------------------------------------------===#
# The measurement
#===------------------------------------------------------------------------===#

# The largest relative error of a right result: many roundings of f32, or the one of
# a result to bf16.
LIMITS = {"f32": 1e-4, "bf16": 1e-2}


def make_implementations(problem, peers, threads, schedules):
    yield from make_ours(problem, schedules)
    if peers["c"]:
        yield from make_c_peers(problem, peers["c"])
    if peers["mkl"]:
        yield from make_mkl(problem, peers["mkl"])
    if peers["torch"]:
        yield from make_torch(problem, peers["torch"])
    # The sparsifier's code runs on one thread.
    if peers["sparsifier"] and threads == 1:
        yield from make_sparsifier(problem)


def measure(problem, implementations, runs):
    """Checks all, then runs them in turn: what takes longer than a quarter of a second
    thrice, and what takes longer than a second not again."""
    quick = []
    for implementation in implementations:
        if implementation.sample() <= 1:
            implementation.times.clear()
            quick.append(implementation)
        error = problem.error(implementation.result())
        if not error <= LIMITS[problem.case.type]:
            sys.exit(f"error: expected {implementation.name} to compute {problem.case} with a relative error of at "
                     f"most {LIMITS[problem.case.type]}, but got {error}")
    quiet = harness.Quiet()
    turns = retries = 0
    while turns < runs:
        quiet.restart()
        for implementation in quick:
            if turns >= 3 and implementation.times[0] > 0.25:
                continue
            # The first of two runs finds the caches as another left them.
            implementation.run()
            implementation.sample()
            # Time for threads to fall asleep.
            time.sleep(0.003)
        if quiet.was_quiet() or retries == harness.RETRIES:
            turns += 1
        else:
            retries += 1
            for implementation in quick:
                if len(implementation.times) > turns:
                    implementation.times.pop()
            harness.wait_for_quiet()
    return quiet.disturbed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", metavar="REGEX",
                        help="measure the cases whose name (op/type/block/density/pattern/rows/cols/tokens) has this")
    parser.add_argument("--impl", default="", metavar="REGEX", help="measure these implementations and ours only")
    parser.add_argument("--schedule", action="append", default=[], metavar="SCHEDULE",
                        help="measure our kernel that goes through the product so, too, such as \"gather rows=4 ahead=0\", "
                        "and no dense one (docs/kernels.md; repeatable)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--runs", type=int, default=11, metavar="N", help="runs of each, of which the median counts")
    parser.add_argument("--fastest", action="store_true",
                        help="let the fastest run of each count, on a machine that others use, too")
    parser.add_argument("--csv", metavar="FILE", help="where to write the table for programs")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--patience", type=float, default=harness.patience, metavar="SECONDS",
                        help="how long to wait, in all, for others to leave the machine alone")
    options = parser.parse_args()
    harness.patience = options.patience
    of_runs = min if options.fastest else harness.median
    cases = [case for case in all_cases() if re.search(options.filter, str(case))]
    if not cases:
        parser.error(f"expected --filter to match a case (see --list), but got '{options.filter}'")
    if options.list:
        print(*cases, sep="\n")
        return

    harness.set_threads(options.threads)
    global np, step
    import numpy as np
    import step

    harness.describe_machine(options.threads)
    # PyTorch brings libraries of its own: the others are to find these.
    peers = {"torch": load_torch(options.threads), "c": load_peers(), "mkl": load_mkl(),
             "sparsifier": not any(subprocess.run(["which", tool], capture_output=True).returncode
                                   for tool in ("mlir-opt-22", "mlir-translate-22", "clang-22"))}
    if not peers["sparsifier"]:
        harness.note("no MLIR sparsifier: mlir-opt-22, mlir-translate-22 and clang-22 are needed")
    harness.wait_for_quiet()
    peak = peers["c"].bsr_measure_peak(options.threads) if peers["c"] else None
    if peak:
        harness.note(f"peak of f32 multiply-adds: {peak * 1e-9:.1f} GF/s")

    writer = None
    if options.csv:
        writer = csv.writer(open(options.csv, "w", newline="", buffering=1))
        writer.writerow([*Case._fields, "threads", "impl", "gflops", "e"])
    for case in cases:
        problem = Problem(case)
        implementations = [
            implementation for implementation in make_implementations(problem, peers, options.threads, options.schedule)
            if implementation.name.startswith("ours") or re.search(options.impl, implementation.name)
        ]
        disturbed = measure(problem, implementations, options.runs)
        best = max((problem.dense_flops / of_runs(i.times) for i in implementations
                    if i.dense and not i.name.startswith("ours")), default=None)
        print(f"\n{case}: {problem.blocks} blocks" + (f"; {disturbed} disturbed turns" if disturbed else ""))
        print(f"  {'implementation':18} {'ms':>9} {'GF/s':>8} {'E':>6} {'speed-up':>9} {'of peak':>8}")
        for implementation in implementations:
            seconds = of_runs(implementation.times)
            flops = problem.dense_flops if implementation.dense else problem.flops
            e = flops / seconds / best if best else None
            print(f"  {implementation.name:18} {seconds * 1e3:9.3f} {flops / seconds * 1e-9:8.1f} "
                  + (f"{e:6.2f} {problem.dense_flops / seconds / best:9.2f}" if best else f"{'-':>6} {'-':>9}")
                  + (f" {flops / seconds / peak:7.1%}" if peak else ""))
            if hasattr(implementation, "rest"):
                print(f"  {'  + conversions':18} {implementation.rest() * 1e3:9.3f}")
            if writer:
                writer.writerow([*case, options.threads, implementation.name,
                                 f"{flops / seconds * 1e-9:.2f}", f"{e:.3f}" if best else ""])
        sys.stdout.flush()
        for implementation in implementations:
            getattr(implementation, "close", lambda: None)()


if __name__ == "__main__":
    main()
