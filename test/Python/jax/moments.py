# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What an optimizer keeps of parameters is no parameter, whatever it is called.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart\ by

"""States whose moments have the names of parameters, beside `w * mask` in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, tree_util

import sparse_opt
import sparse_opt.jax

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


# As flax's `model.init` returns them: the tree has the key `params`, and moments have it.
variables = {"params": {"a": {"kernel": normal(16, 16)}, "b": {"kernel": normal(16, 4)}}}
batches = [normal(4, 16) for _ in range(4)]


def forward(variables, x):
    params = variables["params"]
    return jnp.tanh(x @ params["a"]["kernel"]) @ params["b"]["kernel"]


def step_of(optimizer, mask):
    def loss_of(variables, x):
        return jnp.mean(forward(mask(variables), x) ** 2)

    def step(variables, opt_state, x):
        loss, gradients = jax.value_and_grad(loss_of)(variables, x)
        updates, opt_state = optimizer.update(gradients, opt_state, variables)
        return optax.apply_updates(variables, updates), opt_state, loss

    return step


def compare(name, optimizer, wrap=lambda step: step, roles=None):
    state = variables, optimizer.init(variables)
    export = sparse_opt.jax.export(
        wrap(step_of(optimizer, lambda v: v)), *state, batches[0], carried=2, roles=roles
    )
    step = sparse_opt.compile(
        export, [r"match=a\.kernel block=4x4 density=0.5"], pattern="random", check=0,
        options=["-O", "1"],
    )  # fmt: skip
    stored = step.state_dict()[0]["params"]["a"]["kernel"] != 0

    def mask(variables):
        return tree_util.tree_map_with_path(
            lambda path, leaf: leaf * stored if "'a'" in str(path) else leaf, variables
        )

    reference = jax.jit(step_of(optimizer, mask))
    kept = mask(variables), optimizer.init(variables)
    worst = 0.0
    for x in batches:
        got = float(step(x))
        *kept, want = reference(*kept, x)
        worst = max(worst, abs(got - float(want)) / float(want))
    how = "equal" if worst < 1e-4 else f"apart by {worst}"
    print(f"{name}: {how}, patterns of {', '.join(step.patterns)}")


# CHECK: Adam: equal, patterns of variables.params.a.kernel{{$}}
compare("Adam", optax.adam(1e-2))

# CHECK: jitted: equal, patterns of variables.params.a.kernel{{$}}
compare("jitted", optax.adam(1e-2), jax.jit)

# CHECK: named by a role: equal, patterns of variables.params.a.kernel{{$}}
compare("named by a role", optax.adam(1e-2), roles={"kernel": "param"})

# Branches and loops: what they choose is of the one or of the other.

# CHECK: every second step: equal, patterns of variables.params.a.kernel{{$}}
compare("every second step", optax.MultiSteps(optax.adam(1e-2), 2))


def twice(step):
    def run(variables, opt_state, x):
        def body(carry, part):
            *carry, loss = step(*carry, part)
            return tuple(carry), loss

        carry, losses = lax.scan(body, (variables, opt_state), x[None])
        return *carry, losses[0]

    return run


# CHECK: in a loop: equal, patterns of variables.params.a.kernel{{$}}
compare("in a loop", optax.adam(1e-2), twice)




# A function that is bound to a step takes its state as it is, moments too.


def bound(name, roles=None):
    optimizer = optax.adam(1e-2)
    state = variables, optimizer.init(variables)
    export = sparse_opt.jax.export(
        step_of(optimizer, lambda v: v), *state, batches[0], carried=2, roles=roles
    )
    step = sparse_opt.compile(
        export, [r"match=a\.kernel block=4x4 density=0.5"], pattern="random", check=0,
        options=["-O", "1"],
    )  # fmt: skip
    step(batches[0])
    function = sparse_opt.jax.export_function(
        lambda variables, opt_state, x: forward(variables, x), *state, batches[0],
        carried=2, roles=roles,
    )  # fmt: skip
    got = step.bind(function)(batches[0])
    want = forward(step.state_dict()[0], batches[0])
    print(f"{name}:", "equal" if np.allclose(got, want, atol=1e-5) else "apart by much")


# CHECK: bound: equal
bound("bound")
# CHECK: bound, named by a role: equal
bound("bound, named by a role", {"kernel": "param"})

# A parameter that is trained stays one, though the loss that is returned does not read it,
# and so does one that is not changed.


def roles_of(step, *arguments):
    text = str(sparse_opt.jax.export(step, *arguments, locations=False))
    function = text[text.index("func.func") :].split(" -> ")[0]
    return [part.split('"')[0] for part in function.split('bsr.role = "')[1:]]


def two_losses(state, x):
    def other(w):
        return jnp.sum((x @ w) ** 2)

    gradient = jax.grad(other)(state["params"]["w"])
    params = {**state["params"], "w": state["params"]["w"] - 0.1 * gradient}
    average = 0.9 * state["average"]["params"] + 0.1 * params["w"]
    return {"average": {"params": average}, "params": params}, jnp.sum(x @ params["fixed"])


# CHECK: ['state', 'param', 'param', 'batch']
w = normal(16, 4)
state = {"average": {"params": w}, "params": {"fixed": w, "w": w}}
print(roles_of(two_losses, state, batches[0]))
