# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bsr.attention and bsr.attention_grad on tensor cores, in the PTX interpreter, against float64.

    gpu_attention.py <chip> [<case>...]

Cases are those of attention.py, with the sizes given here: tokens last and features last, features that 16 does not divide,
ragged tokens, biases and masks, patterns with rows and columns without blocks. Products are asked for: what falls
back on plain kernels is an error, but for the last case, which tensor cores have no kernel for.
"""

import os
import sys

import numpy as np

chip, *numbers = sys.argv[1:]
os.environ["BSR_COMPILE"] = f"--target=gpu --chip={chip}"

import attention  # noqa: E402
import step  # noqa: E402

# Type, batch, queries, keys, features, features of values, block, and what differs from the case of that number.
CASES = [
    ("bf16", (2, 2), 128, 128, 64, 64, None, dict(bias_dims=None, mask_dims=None)),
    ("f16", (3,), 72, 200, 64, 32, None, dict(bias_dims="bij", mask_dims=None)),
    ("bf16", (1, 3), 100, 36, 24, 40, None, dict(bias_dims="j", mask_dims="bij", fill=-1e9)),
    ("f16", (2,), 20, 8, 128, 128, None, dict(bias_dims=None, mask_dims="j")),
    ("bf16", (), 192, 192, 64, 64, (64, 64), dict(bias_dims=None, mask_dims="iota", fill=None)),
    ("bf16", (2,), 128, 96, 16, 80, (32, 16), dict(bias_dims="bi")),
    ("f16", (2, 2), 128, 256, 32, 32, (16, 128), dict(mask_dims=None)),
    ("bf16", (2,), 80, 80, 8, 8, None, dict(bias_dims=None, mask_dims="iota", fill=None, zero_empty=True)),
    ("bf16", (), 40, 136, 128, 64, None, dict(bias_dims="ij", mask_dims="ij", fill=None, zero_empty=False)),
    # A row that sees nothing, and so is the mean of all values.
    ("bf16", (2,), 40, 40, 8, 8, None, dict(bias_dims=None, mask_dims="iota", fill=-1e9, zero_empty=False)),
    # Powers of queries, and of keys, beyond the last one that would be infinite.
    ("bf16", (2,), 40, 36, 24, 16, None, dict(bias_dims="ij", mask_dims=None, padding=88.5)),
    ("bf16", (2,), 24, 36, 24, 16, None, dict(bias_dims=None, mask_dims=None, opposed=-18.875)),
    # Heads that share keys, a gradient of the bias, and probabilities that are dropped out.
    ("bf16", (2,), 20, 12, 8, 8, None, dict(bias_dims="ij", mask_dims=None, factor_dims="bij", shared=frozenset([0]),
                                            summed=frozenset([0]), bias_summed=frozenset([0]))),
]


class Case(attention.Case):
    """A case of one of CASES."""

    # Tensor cores take products of numbers of the operands' type.
    rounds_scores = True

    def __init__(self, number):
        super().__init__(np.random.default_rng(number), number)
        self.kind, self.batch, self.queries, self.keys, self.features, self.value_features, self.block, more = CASES[number]
        self.scale = self.features**-0.5
        self.shared = self.summed = frozenset()
        self.bias_summed = self.factor_dims = None
        for name, value in more.items():
            setattr(self, name, value)
        if self.block:
            grid = self.queries // self.block[0], self.keys // self.block[1]
            self.stored = self.random.random(grid) < self.random.random((grid[0], 1)) * 1.6 - 0.2

    def fill_buffers(self, arrays, masks):
        super().fill_buffers(arrays, masks)
        if opposed := CASES[self.number][-1].get("opposed"):
            # All scores are one number.
            for name, value in ("q", 1), ("k", opposed):
                getattr(self, name)[...] = value
                arrays[f"{name}{self.number}"] = self.store(name, getattr(self, name))

    def permute(self, dims):
        """Tokens or features lie side by side."""
        last = self.random.integers(2)
        return [*self.random.permutation([*dims[:-2], dims[-1 - last]]), dims[-2 + last]]


def compile_products(source, arguments=(), compile=step.compile):
    """step.compile, of a step whose attention has to be on tensor cores."""
    compiled = compile(source, arguments)
    kernels = compiled.ptx.split(".visible .entry ")[1:]
    # Forward, and in the gradient what is known of rows, then keys and queries; of a pattern two arrays are copied,
    # and so of the blocks in which a mask of positions has an entry.
    products = sum("mma.sync" in kernel for kernel in kernels)
    launches = 6 if compiled.manifest["patterns"] or (case.mask_dims == "iota" and case.fill is None) else 4
    assert (products, len(compiled.launches)) == (3, launches), \
        f"expected {launches} launches, 3 of products, but got {len(compiled.launches)}, {products} of products"
    return compiled


compile_any = step.compile
for number in map(int, numbers or range(len(CASES))):
    case = Case(number)
    step.compile = compile_any if case.factor_dims else compile_products
    attention.run([case])
