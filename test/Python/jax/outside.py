# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step of JAX keeps outside of its arguments is seen by tracing it twice.

# RUN: %python %s | FileCheck %s

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import sparse_opt.jax
from refusals import refuse

state = {"params": {"a": jnp.ones((16, 16), jnp.bfloat16)}}
x = jnp.ones((8, 16))


def check(name, use, make=lambda: None, wrap=lambda f: f):
    """Exports a step that uses an object; prints why not, or what a warning says."""
    helper = make()

    def step(state, x):
        def of(params):
            return use(helper, jnp.mean((x @ params["a"]) ** 2))

        loss, gradient = jax.value_and_grad(of)(state["params"])
        return {"params": jax.tree.map(lambda w, g: w - 0.1 * g, state["params"], gradient)}, loss

    print(name, end=": ")
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        try:
            sparse_opt.jax.export(wrap(step), state, x)
            print("exported", *(f"with {m.message}, there {m.filename == __file__}" for m in messages))
        except sparse_opt.ExportError as error:
            print(error)


count = 0


def of_global(_, loss):
    global count
    count += 1
    return loss / count


# CHECK: global: expected a step that does the same each time, but got one that computes something else when it is traced again at {{.*}}outside.py:[[@LINE-3]], by the global 'count', from 1 to 2: make it a part of the state or of the batch
check("global", of_global)
# CHECK: jitted: expected a step that does the same each time, {{.*}}, by the global 'count', from 3 to 4
check("jitted", of_global, wrap=jax.jit)
# CHECK: count: expected a step that does the same each time, {{.*}}outside.py:[[@LINE+1]], by 'helper', which step closes over: make it
check("count", lambda numbers, loss: loss * next(numbers), lambda: itertools.count(1))
# CHECK: noise: expected a step that does the same each time, {{.*}}outside.py:[[@LINE+1]], by random numbers of NumPy: make it
check("noise", lambda _, loss: loss * np.random.rand())
# CHECK: short: expected a step that can be traced twice, but got 'StopIteration: ' at {{.*}}outside.py:[[@LINE+1]]: {{.*}}: make what it keeps outside a part of the state or of the batch
check("short", lambda numbers, loss: loss * next(numbers), lambda: iter([1.0]))
# CHECK: list: exported with expected a step that changes nothing outside of its arguments, but got one that changes 'helper', which step closes over, from a list of 1 to a list of 2, each time that it runs: the compiled step leaves that as it is, there True
check("list", lambda values, loss: (values.append(1), loss)[1], list)
# CHECK: none: exported{{ *$}}
check("none", lambda _, loss: loss)


# A function that trains nothing, too; and an array of the first trace.


def validate(state, x):
    return of_global(None, jnp.mean(x @ state["params"]["a"]))


kept = {}


def keeps(state, x):
    return kept.setdefault("first", x.mean()) * x


# CHECK: expected a step that does the same each time, {{.*}}, by the global 'count', from 5 to 6
refuse(sparse_opt.jax.export_function, validate, state, x)
# CHECK: expected a step that keeps its arrays in its arguments, but got one of the trace in another object at {{.*}}outside.py:[[@LINE-5]]: make it a part of the state, or compute it outside of the step
refuse(sparse_opt.jax.export_function, keeps, state, x)
