# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Random JAX programs against JAX: those of fixed seeds.

# RUN: rm -rf %t && %python %src_root/scripts/fuzz-programs --framework jax --programs 6 --jobs 2 --output %t/found > %t.log; FileCheck %s < %t.log
# CHECK-NOT: {{^seed}}
# CHECK: 6 programs, 6 compiled: 6 ok

# A program whose reference is another one is found, and what a program does to its process is told.

# RUN: rm -rf %t && mkdir -p %t/wrong %t/refused && %python %s %t
# RUN: not %python %src_root/scripts/fuzz-programs --replay %t/wrong | FileCheck %s --check-prefix=WRONG
# WRONG: wrong: errors beyond what is allowed in step 1: loss by {{.*}}
# RUN: %python %src_root/scripts/fuzz-programs --replay %t/refused | FileCheck %s --check-prefix=REFUSED
# REFUSED: refused: expected

"""Writes a program with a reference that is not its own, and one that is refused."""

import sys
from pathlib import Path

PROGRAM = """from fuzz.framework_jax import *

SEED, WEIGHTS, BATCH = 3, {"w": ((8, 8), "normal")}, {"x": ((4, 8), "normal")}
MARKS, OPTIONS, STEPS = ["match=params.w$ block=4x4 density=0.5"], ["-O0"], (1,)


def begin(params):
    return {"params": params}


def step(state, batch, mask):
    def loss_of(p):
        return LOSS

    loss, g = jax.value_and_grad(loss_of)(state["params"])
    return {"params": {"w": state["params"]["w"] - 0.1 * g["w"]}}, loss
"""
LOSSES = {
    "wrong": "mean((batch['x'] @ mask(p)['w'] - (0.0 if mask is unmasked else 0.1)) ** 2)",
    "refused": "jnp.linalg.det(mask(p)['w'])",
}
for name, loss in LOSSES.items():
    Path(sys.argv[1], name, "program.py").write_text(PROGRAM.replace("LOSS", loss))
