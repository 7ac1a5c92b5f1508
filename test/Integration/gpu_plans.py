# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that go on while their patterns change, as the PTX interpreter runs them, against float64.

    gpu_plans.py

Plans are made before the first step and when a pattern has changed, and lie in the arena that all steps
share; what is not a plan there may be anything.
"""

import os

import gpu
import gpu_products
import numpy as np
import step

#   type   result  block     grid      tokens
CASES = [
    ("bf16", "bf16", (16, 16), (6, 9), (2, 72)),
    ("f32", "f32", (4, 8), (9, 6), (40,)),
    ("bf16", "f32", (64, 64), (2, 3), (136,)),
]


class PlanCounter(gpu.Host):
    """Counts the launches of plans, and spoils what the arena has but plans before each step."""

    numPlans = 0

    def interpret(self, lines, values, path, folder, hasScores=False):
        if lines is self.plans:
            PlanCounter.numPlans += self.count()[1]
        else:
            arena = values[self.arguments[-1][0]]
            kept = self.places(self.plans)
            spoilt = np.ones(len(arena), bool)
            for start, size in kept:
                spoilt[start:start + size] = False
            arena[spoilt] = 0xFF
        super().interpret(lines, values, path, folder, hasScores)

    @staticmethod
    def places(lines):
        """Where in the arena the views are that a function makes: first byte and size."""
        text = "\n".join(lines)
        constants = dict(gpu.re.findall(r"(%\w+) = arith\.constant (\d+) : index", text))
        for offset, type in gpu.re.findall(r"memref\.view %\w+\[(%\w+)\]\[\] : .* to (memref<.*>)", text):
            shape, bits = gpu.shape_of(type)
            yield int(constants[offset]), int(np.prod(shape)) * bits // 8


def run_case(kind, out, block, grid, tokens, random):
    slots = grid[0] * grid[1]
    compiled = step.compile(gpu_products.text(kind, out, block, grid, tokens, slots)).interpret(PlanCounter)
    # Two products follow one plan of the columns, one that of the rows; a gradient may have windows.
    makers = compiled.host.count()[1]
    assert makers in (2, 3), f"expected a plan of each view, but got {makers} launches"
    shape = tuple(g * b for g, b in zip(grid, block))
    draw = lambda *extents: gpu_products.round_to(kind, random.standard_normal(extents))
    values = np.zeros((slots, *block))
    x, g = (draw(*tokens[:-1], extent, tokens[-1]) for extent in shape)
    b = gpu_products.round_to(out, random.standard_normal(shape[1]))
    given = {key: gpu_products.store(kind, array) for key, array in {"w": values, "x": x, "g": g}.items()}
    given["b"] = gpu_products.store(out, b)
    buffers, run_once = compiled.bind(given, {"w": np.zeros(grid, bool)})
    described = list(zip(compiled.manifest["buffers"], buffers))
    find = lambda name: next(buffer for d, buffer in described if d["name"] == name and d["kind"] not in step.VIEWS)
    PlanCounter.numPlans = 0
    masks = [mask for _, mask in gpu_products.masks(random, grid)]
    for number, mask in enumerate(masks):
        for d, buffer in described:
            if d["kind"] in step.VIEWS:
                buffer[...] = step.views(mask, slots, np.arange(mask.sum()))[d["kind"]]
        for turn in range(2 if number == 1 else 1):
            dense = gpu_products.round_to(kind, random.standard_normal(shape)) * np.kron(mask, np.ones(block))
            find("w")[...] = gpu_products.store(kind, step.to_values(dense, mask, block, slots, np.arange(mask.sum())))
            assert run_once() == 0
            got = {key: gpu_products.load(out, find(key)) for key in ("y", "dx")}
            gpu_products.check(f"{number} y", got["y"], dense.T @ x, np.abs(dense).T @ np.abs(x), shape[0], out)
            gpu_products.check(f"{number} dx", got["dx"], dense @ g, np.abs(dense) @ np.abs(g), shape[1], out)
    assert PlanCounter.numPlans == makers * len(masks), f"expected plans once a pattern, but got {PlanCounter.numPlans}"


if __name__ == "__main__":
    os.environ["BSR_COMPILE"] = "--target=gpu --chip=sm_90a"
    random = np.random.default_rng(0)
    for case in CASES:
        run_case(*case, random)
        print(*case, "ok", flush=True)
