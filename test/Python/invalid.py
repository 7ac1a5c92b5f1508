# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What cannot be exported, or run, is refused in one sentence.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

# An import is not enough to fail in another version.
# RUN: %python -c "import sparse_opt.jax, sys; assert 'sparse_opt.jax._stablehlo' not in sys.modules"

import importlib.metadata
import sys
import warnings

import jax
import jax._src.lib
import jax.numpy as jnp
import numpy as np
import optax

import sparse_opt
from refusals import refuse
from sparse_opt.jax import export

vector = np.ones((9,), np.float32)
ids = np.zeros((4,), np.int32)


def descend(loss):
    def step(state, *batch):
        value, gradient = jax.value_and_grad(loss)(state, *batch)
        return state - gradient, value

    return step


# CHECK: expected an init of the form zeros, ones, constant(c) or normal(sd), but got 'uniform'
refuse(export, lambda s: (s, s.sum()), vector, inits={"": "uniform"})

# CHECK: expected arguments that the step accepts, but got 'missing a required argument: 'batch''
refuse(export, lambda state, batch: (state, batch), vector)

# CHECK: expected distinct names, but got 'state.a.b' twice
refuse(export, lambda state: (state, 0.0), {"a": {"b": vector}, "a.b": vector})

# CHECK: expected a step that returns its next state and a loss, but got an array: return (state, loss), and say with carried= how many states there are
refuse(export, lambda state: state, vector)

# CHECK: expected a step that returns its next state and a loss, but got a tuple of 1: return (state, loss)
refuse(export, lambda state: (state,), vector)

# CHECK: expected a step that returns its next state and a loss, but got a dict: return (state, loss)
refuse(export, lambda state: {"state": state, "loss": 0.0}, vector)

# CHECK: expected a step that returns 2 next states and a loss, but got a tuple of 2: return (state, loss)
refuse(export, lambda weights, moments: (weights, moments), vector, vector, carried=2)



# Modules of flax.nnx are changed in place; this stands for one.
@jax.tree_util.register_pytree_node_class
class Module:
    __module__ = "flax.nnx.module"

    def __init__(self, w):
        self.w = w

    def tree_flatten(self):
        return (self.w,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


# CHECK: expected a step that returns 2 next states and a loss, but got a tuple of 2: take graph, state = nnx.split((model, optimizer)) outside of the step, model, optimizer = nnx.merge(graph, state) in it, and return nnx.state((model, optimizer)), loss
two = Module(vector), Module(vector)
refuse(export, lambda model, optimizer, x: (x.sum(), x), *two, vector, carried=2)

# CHECK: expected a next state like the state, but got {{.*}}: take graph, state = nnx.split((model, optimizer)) outside of the step
refuse(export, lambda model, x: (x.sum(), x), two[0], vector)

# CHECK: expected a loss of shape (), but got (9,): return its mean
refuse(export, lambda state: (state, state), vector)

# CHECK: expected a loss of shape (), but got nothing
refuse(export, lambda state: (state, None), vector)

# CHECK: expected a next state like the state, but got none for 'state.a': return (state, loss)
refuse(export, lambda state: ({"b": state["a"]}, 0.0), {"a": vector})

# CHECK: expected a next state like the state, but got one too many, 'state.b': return (state, loss)
refuse(export, lambda state: ({**state, "b": state["a"]}, 0.0), {"a": vector})

# CHECK: expected a next state like the state, but got other containers around the same arrays, PyTreeDef(([*],)): return (state, loss)
refuse(export, lambda state: ([state[0]], 0.0), (vector,))

# CHECK: expected a next state like the state, but got none for 'state.a': return (state, loss)
refuse(export, lambda state: (0.0, state), {"a": vector})

# CHECK: expected the next value of 'state.a' to be float32[9], but got float32[3]
refuse(export, lambda state: ({"a": state["a"][:3]}, 0.0), {"a": vector})

# CHECK: expected the next value of 'state.a' to be float32[9], but got int32[9]
refuse(export, lambda state: ({"a": state["a"].astype(int)}, 0.0), {"a": vector})


# What is no function of arrays.

# CHECK: expected a function to export, but got a dict: export(step, state, batch)
refuse(export, {"a": vector}, lambda state: (state, 0.0))

# CHECK: expected arrays in the arguments, but got a function as 'state.opt.init': close over what is no array, or make it one; of a module eqx.partition(model, eqx.is_array) or nnx.split(model) takes the arrays
refuse(export, lambda state: (state, 0.0), {"opt": optax.sgd(0.1)})

# CHECK: expected shapes that are numbers, but got (b, 9) for 'x': export the step once for each shape, and pad batches to it
(length,) = jax.export.symbolic_shape("b")
refuse(export, lambda s, x: (s, x.sum()), vector, jax.ShapeDtypeStruct((length, 9), jnp.float32))

# CHECK: expected arrays with elements, but got shape (0, 9) for 'x': leave it out
refuse(export, lambda s, x: (s, x.sum()), vector, np.zeros((0, 9), np.float32))

# CHECK: expected real numbers, but got complex ones in 'x': pass real and imaginary parts as two arrays
refuse(export, lambda s, x: (s, abs(x).sum()), vector, vector.astype(np.complex64))

# CHECK: expected a regular expression, but got '(': missing ), unterminated subpattern at position 0
refuse(export, lambda s: (s, s.sum()), vector, roles={"(": "param"})

# CHECK: expected jax at least 0.9 and below 0.11, but got 0.11.2, which was not tested: it has the names that are needed, so it goes on; else install 'sparse-opt[jax]'
# CHECK: expected jax at least 0.9 and below 0.11, but got 0.11.2, which lacks what is needed (cannot import name 'jax_mlir_ext' from 'jax._src.lib' ({{.*}})): install 'sparse-opt[jax]'
version = importlib.metadata.version
importlib.metadata.version = lambda package: "0.11.2" if package == "jax" else version(package)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    export(lambda s: (s, s.sum()), vector)
print(*(warning.message for warning in caught), sep="\n")
names = ["sparse_opt.jax._stablehlo", "sparse_opt.jax._traced"]
lowering = {name: sys.modules.pop(name) for name in names}
extension = jax._src.lib.jax_mlir_ext
del jax._src.lib.jax_mlir_ext
refuse(export, lambda s: (s, s.sum()), vector)
jax._src.lib.jax_mlir_ext = extension
sys.modules.update(lowering)
importlib.metadata.version = version

# What JAX cannot trace, or what has no form in linalg, with the user's line.


# CHECK: expected a step whose control flow does not depend on data, but got an array read as a number at {{.*}}invalid.py:[[@LINE+2]]: if s.sum() > 1:: keep it an array (jnp.where instead of if, jnp instead of np, no float())
def branch(s):
    if s.sum() > 1:
        return s, 0.0
    return s, 1.0


refuse(export, branch, vector)

# CHECK: array read as a number at {{.*}}invalid.py:[[@LINE+1]]:
refuse(export, lambda s: (s, float(s.sum())), vector)

# CHECK: array read as a number at {{.*}}invalid.py:[[@LINE+1]]:
refuse(export, lambda s: (s, np.tanh(s).sum()), vector)

# CHECK: array read as a number at {{.*}}invalid.py:[[@LINE+1]]:
refuse(export, lambda s, n: (s, sum(s[i] for i in range(n))), vector, np.int32(3))

# CHECK: expected shapes that do not depend on data, but got an operation whose result depends on values at {{.*}}invalid.py:[[@LINE+1]]: {{.*}}: use jnp.where on the whole array
refuse(export, lambda s: (s, s[s > 0].sum()), vector)

# CHECK: expected shapes that do not depend on data, but got an operation whose result depends on values at {{.*}}invalid.py:[[@LINE+1]]:
refuse(export, lambda s: (s, jnp.unique(s).sum()), vector)

# CHECK: expected shapes that do not depend on data, but got an operation whose result depends on values at {{.*}}invalid.py:[[@LINE+1]]:
refuse(export, lambda s: (s, jnp.nonzero(s)[0].sum() * 1.0), vector)

# CHECK: expected shapes that do not depend on the arguments, but got one made of a number in them at {{.*}}invalid.py:[[@LINE+1]]:{{.*}}: close over it, as eqx.partition(model, eqx.is_array) does for a module
refuse(export, lambda state: (state, jnp.zeros((state["size"],)).sum()), {"size": 9})

# CHECK: expected a step that JAX can trace, but got 'TypeError: dot_general requires {{.*}}' at {{.*}}invalid.py:[[@LINE+1]]:
refuse(export, lambda s: (s, s @ s[:3]), vector)

# CHECK: expected a step that JAX can trace, but got 'KeyError: 'params'' at {{.*}}invalid.py:[[@LINE+1]]:
refuse(export, lambda s, x: (s, s["params"].sum()), {"x": vector}, {"params": vector})

# CHECK: expected operations that lower to linalg, but got 'stablehlo.custom_call' of "{{.*}}callback" at {{.*}}invalid.py:[[@LINE+3]]: write it in terms of others, or do it outside of the step
def shows(s):
    loss = s.sum()
    jax.debug.print("loss {}", loss)
    return s, loss


refuse(export, shows, vector)


# CHECK: expected a scatter that adds, multiplies, sets or takes an extreme, but got one by 'stablehlo.sine' at {{.*}}invalid.py:[[@LINE+1]]: read with x[i], compute, and write with x.at[i].set(...)
refuse(export, lambda s, i: (s.at[i].apply(jnp.sin), 0.0), vector, ids)

# CHECK: expected orderings of at most 1024 elements, but got 1025 at {{.*}}invalid.py:[[@LINE+1]]: sort outside of the step
refuse(export, lambda s, x: (s, jnp.sort(x)[0]), vector, np.ones(1025))

# CHECK: expected top_k of at most 64 elements, but got 65 at {{.*}}invalid.py:[[@LINE+1]]: sort outside of the step
refuse(export, lambda s, x: (s, jax.lax.top_k(x, 65)[0].sum()), vector, np.ones(99))

# CHECK: expected operations that lower to linalg, but got 'complex.create' at {{.*}}invalid.py:[[@LINE+1]]: write
refuse(export, lambda s: (s, jnp.abs(jnp.fft.fft(s)).sum()), vector)

# CHECK: expected operations that lower to linalg, but got a decomposition of a matrix at {{.*}}invalid.py:[[@LINE+1]]: decompose matrices (jnp.linalg) outside of the step
refuse(export, lambda s: (s, jnp.linalg.inv(jnp.diag(s)).sum()), vector)

# What is given to a compiled step.

QUICK = {"options": ["-O", "0"]}
matrix = np.ones((8, 8), np.float32)
batch = {"x": matrix, "y": vector}


def step_of(state, batch):
    loss = (batch["x"] @ state["params"]["w"]).mean() + batch["y"].sum()
    gradient = jax.grad(lambda p: (batch["x"] @ p["w"]).mean())(state["params"])
    return {"params": jax.tree.map(jnp.subtract, state["params"], gradient)}, loss


state = {"params": {"w": jnp.asarray(matrix)}}
exported = export(step_of, state, batch)
step = sparse_opt.compile(exported, ["match=w$ block=4x4 density=0.5"], **QUICK)

# CHECK: expected what the exported step takes behind its state (batch), but got 2 values instead of 1
refuse(step, state, batch)

# CHECK: expected what the exported step takes behind its state (batch), but got none for 'batch.x'
refuse(step, [matrix, vector])

# CHECK: expected what the exported step takes behind its state (batch), but got none for 'batch.y'
refuse(step, {"x": matrix})

# CHECK: expected what the exported step takes behind its state (batch), but got one too many, 'batch.z'
refuse(step, {**batch, "z": vector})

# CHECK: expected what the exported step takes behind its state (batch), but got 'batch' by name
refuse(step, batch=batch)

# CHECK: expected 'batch.x' of 2 dimensions, as it was exported, but got shape [8]
refuse(step, {**batch, "x": matrix[0]})

# CHECK: expected 'batch.x' of type float32, but got float64
refuse(step, {**batch, "x": matrix.astype(np.float64)})

# CHECK: expected an array for 'batch.x', but got a traced one: call the compiled step outside of jit and grad
refuse(jax.jit(lambda x: step({**batch, "x": x})), matrix)

# CHECK: expected 'batch.y' to hold values, but got an array that was donated: compile a step before it is called, and pass what is not donated
donated = jnp.asarray(vector)
donated.delete()
refuse(step, {**batch, "y": donated})

# CHECK: expected 'state.params.w' to hold values, but got an array that was donated
state["params"]["w"].delete()
refuse(sparse_opt.compile, exported, **QUICK)

# CHECK: expected no lr, for the step has no argument of that role, but got 0.1
refuse(step, batch, lr=0.1)

# CHECK: expected a state like the exported one, but got none for 'state.params.w'
refuse(step.load_state_dict, {"params": {"v": matrix}})

# CHECK: expected 'state.params.w' of shape [8, 8], but got [4, 8]
refuse(step.load_state_dict, {"params": {"w": matrix[:4]}})

# CHECK: expected weights to mark, but got a step without any: call a part of the state `params`, or export it with roles={'^state': 'param'}
plain = export(lambda state: ({"w": state["w"] * 2}, 0.0), {"w": matrix})
refuse(sparse_opt.compile, plain, ["match=w$ block=4x4"])

# What is not contiguous, or not finite, is taken as it is.
# CHECK: same True, finite False
same = step(batch)
step.load_state_dict({"params": {"w": jnp.ones((8, 8))}})
first = step({**batch, "x": np.asfortranarray(matrix)})
step.load_state_dict({"params": {"w": jnp.ones((8, 8))}})
print(f"same {first == step(batch)}, finite {np.isfinite(step({**batch, 'y': vector * np.nan}))}")

# Keys are numbers to a step.
# CHECK: key equal True
key = jax.random.key(3)
keyed = export(lambda s, key: (s, jax.random.uniform(key)), vector, jax.random.key(0))
print("key equal", sparse_opt.compile(keyed, **QUICK)(key) == jax.random.uniform(key))

# What stays dense names the user's line.


# CHECK: jvp(penalty){{.*}} at {{.*}}invalid.py:[[@LINE+3]]: expected only stored blocks of "state.params.w", but got
@jax.named_scope("penalty")
def penalty(w):
    return jnp.square(w @ w.T).mean()


def penalized(state, x):
    loss = lambda p: (x @ p["w"]).mean() + penalty(p["w"])
    value, gradient = jax.value_and_grad(loss)(state["params"])
    return {"params": jax.tree.map(jnp.subtract, state["params"], gradient)}, value


exported = export(penalized, {"params": {"w": matrix}}, matrix)
report = sparse_opt.compile(exported, ["match=w$ block=4x4 density=0.5"], **QUICK).report
print(report)
