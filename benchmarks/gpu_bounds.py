#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the model of GPUs predicts of products with a block-sparse weight; nothing is run.

    benchmarks/gpu_bounds.py [--chip NAME] [--rows N] [--cols N] [--tokens N] [--density D] [--type bf16|f16|f32]
                             [--blocks N,...] [-- <argument of sparse-compile>...]

Compiles a step with the three products (forward, transposed, sampled) for each block, or for 0 with a dense weight, and prints of each kernel how many
warp instructions it has for an mma, or without tensor cores for an FMA of 32 lanes on stored blocks, what binds it, the time
of a launch at least, and E: its FLOP/s on stored blocks over the FLOP/s of the best dense product (--dense, TFLOP/s: 790, which
is cuBLAS on an H200, measured; for f32 61.8, which is what an H100 has at the most).
"""

import argparse
import re
import subprocess

STEP = """#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#xt = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#out = affine_map<(i, j, k) -> (i, j)>
!w = tensor<{rows}x{cols}x{type}>
!x = tensor<{tokens}x{rows}x{type}>
!y = tensor<{tokens}x{cols}x{type}>
func.func @step(%w: !w {{bsr.name = "w", bsr.result = 0 : i64}}, %x: !x {{bsr.name = "x"}}, %dy: !y {{bsr.name = "dy"}})
    -> (!w, !y {{bsr.name = "y"}}, !x {{bsr.name = "dx"}}) {{
  %0 = arith.constant dense<0.0> : !w
  %1 = arith.constant dense<0.0> : !x
  %2 = arith.constant dense<0.0> : !y
  %y = linalg.matmul ins(%x, %w : !x, !w) outs(%2 : !y) -> !y
  %dx = linalg.matmul indexing_maps = [#x, #w, #out] ins(%dy, %w : !y, !w) outs(%1 : !x) -> !x
  %dw = linalg.matmul indexing_maps = [#xt, #dy, #out] ins(%x, %dy : !x, !y) outs(%0 : !w) -> !w
  %next = linalg.sub ins(%w, %dw : !w, !w) outs(%w : !w) -> !w
  return %next, %y, %dx : !w, !y, !x
}}
"""
MMA, FMA = 2 * 16 * 8 * 16, 2 * 32  # FLOP


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", default="sm_90a")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--type", default="bf16")
    parser.add_argument("--blocks", default="64,32,16", type=lambda text: [int(block) for block in text.split(",")])
    parser.add_argument("--dense", type=float)
    parser.add_argument("more", nargs="*", help="arguments of sparse-compile, behind --")
    options = parser.parse_args()
    source = STEP.format(**vars(options))
    dense = options.dense or (61.8 if options.type == "f32" else 790)
    print(f"predicted for {options.chip}, not run on a device: {options.rows} x {options.cols}, {options.tokens} tokens, "
          f"{options.density:g} of the blocks, {options.type}")
    print(f"{'block':>6} {'kernel':<14}{'instructions':>17}{'us':>9}{'bound by':>12}{'E':>7}")
    for block in options.blocks:
        mark = [f"--mark=match=w block={block}x{block} density={options.density}"] if block else []
        done = subprocess.run(["sparse-compile", "-", *mark, f"--target={options.chip}", "-o", "-", "--emit=mlir",
                               "--print-report", *options.more],
                              input=source, text=True, capture_output=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        stored = options.rows * options.cols
        if block:
            stored = round(options.density * (options.rows // block) * (options.cols // block)) * block * block
        flops = 2 * stored * options.tokens
        products = {re.match(r"\w+", kernel)[0] for kernel in done.stdout.split(".visible .entry ")[1:] if "cp.async" in kernel}
        for line in done.stderr.splitlines():
            row = re.match(r"(\w+) +1 +([\d.]+)  (\w+) +(?:\d+ +){7}([\d.]+) +(\d+) ", line)
            if not row or row[1] not in products:
                continue
            name, us, binding, mflops, instructions = row[1], float(row[2]), row[3], float(row[4]), int(row[5])
            each, unit = (mflops * 1e6 / MMA, "mma") if mflops else (flops / FMA, "FMA")
            speed = flops / (us * 1e-6) / (dense * 1e12)
            print(f"{block or 'dense':>6} {name:<14}{instructions / each:>9.2f} / {unit:<5}{us:>9.1f}{binding:>12}{speed:>7.2f}")


if __name__ == "__main__":
    main()
