# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles kernels with Triton, runs them in the PTX interpreter, and compares them with float64.

    corpus.py [--only REGEX]

A line a kernel: its name and chip, `right`, `wrong` or `refused`, and the largest error against the tolerance, or what
the interpreter says. Ends with 1 where one is not right. Needs Triton, ml_dtypes, and ptx-run on PATH.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import kernels
import ml_dtypes
import numpy as np
import references
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

f16, bf16, f32 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
TYPES = {f16: "f16", bf16: "bf16", f32: "f32", np.dtype(np.int32): "s32"}
TRITON = {f16: "fp16", bf16: "bf16", f32: "fp32", np.dtype(np.int32): "i32"}
rng = np.random.default_rng(1)


class Map:
    """A tensor and the box of it that a copy moves; `result` says that the kernel writes it."""

    def __init__(self, array, box, result=False):
        self.array, self.box, self.result = array, box, result


class Wrong(Exception):
    pass


def normal(*shape, kind=f32, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(kind)


def signature(value):
    if isinstance(value, Map):
        return f"tensordesc<{TRITON[value.array.dtype]}[{', '.join(map(str, value.box))}]>"
    return "*" + TRITON[value.dtype] if isinstance(value, np.ndarray) else "i32" if isinstance(value, int) else "fp32"


def compiled(function, values, constants, chip, options):
    """The PTX, and what the launch needs to know."""
    # Sizes that are multiples of 16, and all addresses, which the interpreter makes multiples of 256.
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(function.arg_names) if name in values
               and (isinstance(values[name], np.ndarray) or (isinstance(values[name], int) and values[name] % 16 == 0))}
    kinds = {name: "constexpr" if name in constants else signature(values[name]) for name in function.arg_names}
    made = triton.compile(ASTSource(function, kinds, constants, aligned), target=GPUTarget("cuda", chip, 32), options=options)
    return made.asm["ptx"], made.metadata


def arguments(function, values, metadata, results, folder):
    """Those of ptx-run, and for each of its outputs the name."""
    given, outputs, maps = [], {}, iter(metadata.tensordesc_meta or [])
    for name in [name for name in function.arg_names if name in values]:
        value = values[name]
        array = value.array if isinstance(value, Map) else value
        if isinstance(array, np.ndarray):
            array.tofile(folder / name)
        if name in results:
            outputs[len(given)] = name
        if isinstance(value, Map):
            encoded = next(maps)
            sizes, box = ("x".join(str(extent) for extent in reversed(shape)) for shape in (array.shape, encoded["block_size"]))
            swizzle = (0, 32, 64, 128)[encoded["swizzle"]]
            given.append(f"{'mapio' if value.result else 'map'}:{TYPES[array.dtype]}:{sizes}:{box}:{swizzle}:@{folder / name}")
            given += [f"s32:{extent}" for extent in array.shape]
            given += [f"s64:{stride // array.itemsize}" for stride in array.strides]
        elif isinstance(value, np.ndarray):
            given.append(f"{'inout' if name in results else 'in'}:{TYPES[array.dtype]}:@{folder / name}")
        else:
            given.append(f"{'s32' if isinstance(value, int) else 'f32'}:{value}")
    return given, outputs


def run(function, values, constants, grid, expected, chip, tolerance, options):
    """The largest error against the tolerance, which is of the number and 1."""
    text, metadata = compiled(function, values, constants, chip, options)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernel.ptx").write_text(text)
        given, outputs = arguments(function, values, metadata, expected, folder)
        # What a program may need more, in global memory.
        parameters = re.search(r"\.entry[^(]*\((.*?)\n\)", text, re.S)[1].count(".param")
        given += ["zero:u8:4096"] * (parameters - len(given))
        threads = re.search(r"\.reqntid\s+(\d+)", text)
        command = ["ptx-run", folder / "kernel.ptx", "--grid", ",".join(map(str, (grid[0] * metadata.num_ctas, *grid[1:]))),
                   "--block", threads[1] if threads else str(32 * metadata.num_warps), "--shared", str(metadata.shared), "--write", folder]
        if metadata.num_ctas > 1:
            command += ["--cluster", str(metadata.num_ctas)]
        done = subprocess.run([*command, *(word for argument in given for word in ("--arg", argument))], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        worst = 0.0
        for number, name in outputs.items():
            want = np.asarray(expected[name], np.float64)
            kind = (values[name].array if isinstance(values[name], Map) else values[name]).dtype
            got = np.fromfile(folder / f"argument-{number}", kind).astype(np.float64).reshape(want.shape)
            errors = np.abs(got - want) / (tolerance * (1 + np.abs(want)))
            if not (errors <= 1).all():
                at = np.unravel_index(np.argmax(~(errors <= 1)), want.shape)
                raise Wrong(f"expected {want[at]:.6g} in {name}[{', '.join(map(str, at))}], but got {got[at]:.6g}")
            worst = max(worst, float(errors.max()))
    return worst


def rows_cases(chip):
    """Sums, maxima and scans of rows and columns."""
    for shape in ((5, 781), (4, 128)):
        x = normal(*shape)
        size = triton.next_power_of_2(shape[1])
        yield (f"softmax {shape[0]}x{shape[1]}", kernels.softmax, dict(x=x, y=np.zeros_like(x), columns=shape[1]), dict(SIZE=size), shape[:1],
               dict(y=references.softmax(x.astype(np.float64))[0]), 1e-5, dict(num_warps=8 if size > 512 else 4))
    for kind in (f32, f16):
        rows, columns = 5, 600
        x, weight, bias, dy = normal(rows, columns, kind=kind, scale=2), normal(columns, kind=kind), normal(columns, kind=kind), normal(rows, columns, kind=kind)
        wide = [array.astype(np.float64) for array in (x, weight, bias, dy)]
        mean, scale = wide[0].mean(1, keepdims=True), 1 / np.sqrt(wide[0].var(1, keepdims=True) + 1e-5)
        centred, weighted = (wide[0] - mean) * scale, wide[3] * wide[1]
        tolerance, line = 1e-5 if kind == f32 else 4e-3, np.zeros(rows, f32)
        yield (f"layer norm {TYPES[kind]}", kernels.norm, dict(x=x, weight=weight, bias=bias, y=np.zeros_like(x), means=line, deviations=line, columns=columns, epsilon=1e-5),
               dict(SIZE=512), (rows,), dict(y=centred * wide[1] + wide[2], means=mean[:, 0], deviations=scale[:, 0]), tolerance, {})
        dx = (weighted - centred * (weighted * centred).mean(1, keepdims=True) - weighted.mean(1, keepdims=True)) * scale
        yield (f"layer norm gradient {TYPES[kind]}", kernels.norm_gradient,
               dict(x=x, weight=weight, dy=dy, means=mean[:, 0].astype(f32), deviations=scale[:, 0].astype(f32), dx=np.zeros_like(x), dweight=np.zeros(x.shape, f32), columns=columns),
               dict(SIZE=1024), (rows,), dict(dx=dx, dweight=wide[3] * centred), tolerance, {})
    x = normal(70, 100)
    yield ("column sums", kernels.column_sums, dict(x=x, y=np.zeros(100, f32), rows=70, columns=100), dict(HEIGHT=32, WIDTH=64), (2,), dict(y=x.astype(np.float64).sum(0)), 1e-5, {})
    x = normal(256)
    yield ("sums so far and sort", kernels.scan, dict(x=x, sums=np.zeros_like(x), ordered=np.zeros_like(x)), dict(SIZE=256), (1,),
           dict(sums=np.cumsum(x.astype(np.float64)), ordered=np.sort(x)), 1e-5, {})
    x = normal(3, 512)
    yield ("argmax and min", kernels.largest, dict(x=x, places=np.zeros(3, np.int32), least=np.zeros(3, f32)), dict(SIZE=512), (3,), dict(places=x.argmax(1), least=x.min(1)), 1e-9, {})
    x = rng.integers(0, 64, 512).astype(np.int32)
    yield ("histogram", kernels.histogram, dict(x=x, counts=np.zeros(64, np.int32)), dict(SIZE=512, BINS=64), (1,), dict(counts=np.bincount(x, minlength=64)), 1e-9, {})
    x = normal(500)
    yield ("atomic add", kernels.scatter, dict(x=x, y=np.zeros(7, f32), count=500), dict(BINS=7, SIZE=256), (2,),
           dict(y=[x[i::7].astype(np.float64).sum() for i in range(7)]), 1e-5, {})
    x = normal(300, scale=30)
    x[:3] = 1e6, -3e8, 1e-30
    wide, out = x.astype(np.float64), np.zeros_like(x)
    yield ("sin, cos, tanh, erf, log, exp2", kernels.functions, dict(x=x, waves=out, curves=out, logarithms=out, count=300), dict(SIZE=256), (2,),
           dict(waves=np.sin(wide) + np.cos(wide), curves=np.tanh(wide) + [math.erf(value) for value in wide],
                logarithms=np.log(abs(wide) + 1) + np.exp2(-abs(wide))), 1e-5, {})


def product_cases(chip):
    """Products of dense matrices, in registers and in shared memory."""
    def case(kind, m, n, k, tile, transposed, precision="tf32", maps=False, programs=0, **options):
        a, b = normal(*((k, m) if transposed[0] else (m, k)), kind=kind), normal(*((n, k) if transposed[1] else (k, n)), kind=kind)
        left, right = a.astype(np.float64), b.astype(np.float64)
        c = np.zeros((m, n), kind if maps else f32)
        # Operands of tf32 have 10 bits of a fraction; results of maps the type of the operands.
        near = (4 if kind == bf16 else 1) * 4e-3 if maps else 1e-5
        tolerance = 2e-2 if kind == f32 and precision == "tf32" else near
        expected = dict(c=(left.T if transposed[0] else left) @ (right.T if transposed[1] else right))
        shape, constants = dict(rows=m, columns=n, depth=k), dict(M=tile[0], N=tile[1], K=tile[2])
        name = f"product{' by maps' * maps} {TYPES[kind]} {m}x{n}x{k} {'nt'[transposed[0]]}{'nt'[transposed[1]]}"
        name += "" if precision == "tf32" else f" {precision}"
        name += ", persistent" if programs else ""
        name += f", {options['num_ctas']} blocks" if "num_ctas" in options else ""
        tiles = (programs or -(-m // tile[0]) * -(-n // tile[1]),)
        if maps:
            boxes = dict(a=Map(a, (tile[0], tile[2])), b=Map(b, (tile[1], tile[2]) if transposed[1] else (tile[2], tile[1])), c=Map(c, tile[:2], result=True))
            return (name, kernels.product_by_maps, {**boxes, **shape},
                    dict(**constants, TRANSPOSED=bool(transposed[1]), TYPE={f16: tl.float16, bf16: tl.bfloat16, f32: tl.float32}[kind]), tiles, expected, tolerance, options)
        strides = dict(a_row=1 if transposed[0] else k, a_step=m if transposed[0] else 1, b_step=1 if transposed[1] else n, b_column=k if transposed[1] else 1)
        ones = {name: stride for name, stride in strides.items() if stride == 1}
        others = {name: stride for name, stride in strides.items() if stride != 1}
        return (name, kernels.product, dict(a=a, b=b, c=c, **shape, **others), {**constants, "PRECISION": precision, **ones}, tiles, expected, tolerance, options)

    yield from (case(kind, 100, 88, 72, (64, 64, 32), transposed, num_warps=4, num_stages=3)
                for kind, transposed in ((f16, (0, 0)), (f16, (1, 0)), (bf16, (0, 1)), (bf16, (1, 1))))
    yield case(f16, 128, 256, 128, (128, 256, 64), (0, 0), num_warps=8, num_stages=3)
    yield case(f32, 70, 64, 96, (64, 64, 32), (0, 1), num_warps=4, num_stages=3)
    yield case(f32, 64, 64, 40, (32, 32, 16), (0, 0), precision="ieee", num_warps=4, num_stages=2)
    yield case(f32, 64, 64, 64, (64, 64, 32), (0, 0), precision="tf32x3", num_warps=4, num_stages=2)
    yield case(bf16, 32, 48, 64, (16, 16, 16), (0, 0), num_warps=1, num_stages=2)
    if chip < 90:
        return
    yield case(f16, 256, 128, 64, (128, 128, 64), (0, 0), num_warps=4, num_stages=3, num_ctas=2)
    for kind, transposed in ((f16, (0, 0)), (bf16, (0, 1))):
        yield case(kind, 96, 80, 104, (64, 64, 64), transposed, maps=True, num_warps=4, num_stages=3)
    yield case(f16, 64, 48, 48, (64, 16, 16), (0, 0), maps=True, num_warps=4, num_stages=2)
    yield case(f16, 64, 96, 96, (64, 32, 32), (0, 1), maps=True, num_warps=4, num_stages=3)
    yield case(f32, 64, 64, 96, (64, 64, 32), (0, 1), maps=True, num_warps=4, num_stages=3)
    yield case(f16, 200, 136, 96, (64, 64, 64), (0, 1), maps=True, programs=3, num_warps=4, num_stages=3)
    yield case(bf16, 256, 128, 128, (128, 128, 64), (0, 0), maps=True, num_warps=4, num_stages=3, num_ctas=2)


def attention_cases(chip):
    """Flash attention, forward and backward, of two heads."""
    for kind, causal, tokens, width, m, n in ((f16, False, 100, 64, 64, 64), (bf16, True, 64, 32, 64, 32), (f16, True, 128, 64, 64, 64)):
        q, k, v, dy = (normal(2, tokens, width, kind=kind) for _ in range(4))
        wide = [array.astype(np.float64) for array in (q, k, v, dy)]
        scale = width ** -0.5
        mask = np.tril(np.ones((tokens, tokens), bool)) if causal else True
        want = references.attention(*wide, scale=scale, mask=mask)
        logarithms = ((want.largest + np.log(want.total)) / np.log(2))[..., 0]
        name, tolerance = f"attention {TYPES[kind]} {tokens}x{width}{' causal' * causal}", 1e-2 if kind == bf16 else 2e-3
        yield (name, kernels.attention, dict(q=q, k=k, v=v, y=np.zeros_like(q), logarithms=np.zeros((2, tokens), f32), tokens=tokens, scale=scale),
               dict(WIDTH=width, M=m, N=n, CAUSAL=causal), (-(-tokens // m), 2), dict(y=want.y, logarithms=logarithms), tolerance, dict(num_warps=4, num_stages=2))
        if tokens % m:
            continue
        means = (wide[3] * want.y).sum(2)
        yield (f"{name} gradient", kernels.attention_gradient,
               dict(q=q, k=k, v=v, dy=dy, logarithms=logarithms.astype(f32), means=means.astype(f32),
                    **{name: np.zeros(q.shape, f32) for name in ("dq", "dk", "dv")}, tokens=tokens, scale=scale),
               dict(WIDTH=width, M=32, CAUSAL=causal), (tokens // 32, 2),
               dict(dq=want.dq, dk=want.dk, dv=want.dv), 4 * tolerance, dict(num_warps=4, num_stages=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="kernels whose name has this regular expression")
    only = parser.parse_args().only
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # the next version's default is another one
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())
    total = bad = 0
    for chip in (80, 90):
        for cases in (rows_cases, product_cases, attention_cases):
            for name, function, values, constants, grid, expected, tolerance, options in cases(chip):
                if not re.search(only, f"{name} sm_{chip}"):
                    continue
                try:
                    verdict, detail = "right", f"{run(function, values, constants, grid, expected, chip, tolerance, options):.3f}"
                except Wrong as error:
                    verdict, detail = "wrong", str(error)
                except RuntimeError as error:
                    verdict, detail = "refused", str(error)
                total, bad = total + 1, bad + (verdict != "right")
                print(f"{name:52} sm_{chip}  {verdict:8}{detail}", flush=True)
    print(f"{total} kernels, {bad} wrong or refused")
    return 1 if bad or not total else 0


if __name__ == "__main__":
    sys.exit(main())
