# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A compiled step of JAX compares its first runs with the program that it was exported of.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

import logging
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import grad, lax, value_and_grad
from jax.flatten_util import ravel_pytree

import sparse_opt
import sparse_opt.jax
from refusals import refuse, store_all


class Lines(logging.Handler):
    """Prints what the check says, without its numbers."""

    def emit(self, record):
        print(re.sub(r"[0-9.e+-]+(%| s$)", r"N\1", record.getMessage()))


logging.getLogger("sparse_opt").addHandler(Lines())
logging.getLogger("sparse_opt").propagate = False

rng = np.random.default_rng(1)
data = [jnp.asarray(rng.normal(size=(8, 16)), jnp.float32) for _ in range(4)]
optimizer = optax.adamw(0.01)


def weights(dtype=jnp.float32):
    random = np.random.default_rng(0)
    make = lambda *shape: jnp.asarray(random.normal(0, 0.3, shape), dtype)
    return {"a": make(16, 16), "b": make(16, 8), "c": make(16)}


def begin(params, rule=optimizer, **more):
    return {"params": params, "opt": rule.init(params), **more}


def loss_of(p, x):
    return jnp.mean((jnp.tanh(x @ p["a"] + p["c"]) @ p["b"]) ** 2)


def update(state, gradient, rule=optimizer):
    updates, opt = rule.update(gradient, state["opt"], state["params"])
    return {**state, "params": optax.apply_updates(state["params"], updates), "opt": opt}


def plain(state, x):
    loss, gradient = jax.value_and_grad(loss_of)(state["params"], x)
    return update(state, gradient), loss


def compiled(step=plain, state=None, check=2, mark="match=params.a$ block=4x4 density=0.5", batch=None):
    export = sparse_opt.jax.export(step, begin(weights()) if state is None else state, *(batch or data[:1]))
    return sparse_opt.compile(export, [mark], pattern="random", options=["-O", "1"], check=check)


def train(*arguments, runs=2, batch=None, **options):
    step = compiled(*arguments, batch=batch, **options)
    for i in range(runs):
        step(*(batch or data[i : i + 1]))
    return step


# Honest programs of each kind: one line, and no warning.

of_import = value_and_grad(loss_of)
jitted = jax.jit(value_and_grad(loss_of))


def returned(state, x):
    """A norm, numbers of hits, and a function that was made before."""
    loss, gradient = of_import(state["params"], x)
    return update(state, gradient), loss, {"norm": optax.tree.norm(gradient), "hits": jnp.sum(x > 0)}


def dropped(state, x, key):
    def of(p):
        keep = jax.random.bernoulli(key, 0.7, x.shape)
        return loss_of(p, jnp.where(keep, x / 0.7, 0.0))

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss


def micro_batches(state, x):
    def body(total, part):
        loss, gradient = jitted(state["params"], part)
        return jax.tree.map(jnp.add, total, gradient), loss

    total, losses = lax.scan(body, jax.tree.map(jnp.zeros_like, state["params"]), x.reshape(4, 2, 16))
    return update(state, total), losses.mean(), optax.tree.norm(total)


def penalized(state, x):
    def of(p):
        loss, inner = value_and_grad(loss_of)(p, x)
        return loss + 0.1 * optax.tree.norm(inner)

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss


def per_example(state, x):
    gradients = jax.vmap(grad(loss_of), (None, 0))(state["params"], x[:, None])
    sizes = sum(jnp.sum(g.reshape(8, -1) ** 2, 1) for g in jax.tree.leaves(gradients))
    scale = jnp.minimum(1.0, 0.1 / jnp.sqrt(sizes + 1e-6))
    total = jax.tree.map(lambda g: jnp.tensordot(scale, g, 1), gradients)
    return update(state, total), loss_of(state["params"], x), sizes


def adapted(state, x):
    """A step within the step."""

    def of(p):
        q = jax.tree.map(lambda w, g: w - 0.1 * g, p, jax.grad(loss_of)(p, x))
        return loss_of(q, -x)

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss, optax.tree.norm(gradient)


def twice(state, x):
    """Two updates, the second of the first one's weights."""
    first, _ = plain(state, x)
    loss, gradient = jax.value_and_grad(loss_of)(first["params"], -x)
    return update(first, gradient), loss, optax.tree.norm(gradient)


def pulled(state, x):
    loss, back = jax.vjp(lambda p: loss_of(p, x), state["params"])
    (gradient,) = back(jnp.ones(()))
    return update(state, gradient), loss, optax.tree.norm(gradient)


def pushed(state, x):
    loss, along = jax.jvp(lambda p: loss_of(p, x), (state["params"],), (state["params"],))
    _, linear = jax.linearize(lambda p: loss_of(p, x), state["params"])
    gradient = grad(loss_of)(state["params"], x)
    return update(state, gradient), loss, along, linear(gradient)


def raveled(state, x):
    flat, back = ravel_pytree(state["params"])
    loss, gradient = jax.value_and_grad(lambda f: loss_of(back(f), x))(flat)
    return update(state, back(gradient)), loss, jnp.linalg.norm(gradient)


def rounded(state, x):
    """Weights in bf16, whose gradients are taken there."""
    low = jax.tree.map(lambda w: w.astype(jnp.bfloat16), state["params"])
    loss, gradient = jax.value_and_grad(loss_of)(low, x.astype(jnp.bfloat16))
    gradient = jax.tree.map(lambda g: g.astype(jnp.float32), gradient)
    return update(state, gradient), loss.astype(jnp.float32), optax.tree.norm(gradient)


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))


def own_rule(state, x):
    loss, gradient = jax.value_and_grad(lambda p: doubled(jax.checkpoint(loss_of)(p, x)))(state["params"])
    return update(state, gradient), loss, optax.tree.norm(gradient)


def by_hand(state, x):
    """No gradient of JAX, and an update that is masked as the weight is."""
    w = state["params"]["a"]
    y = x @ w
    return {"params": {"a": w - 0.1 * (x.T @ y) / y.size}}, jnp.mean(y**2)


def layers(state, x):
    """A scan over layers, whose weights are a stack."""
    def of(p):
        return jnp.mean(lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, p["a"])[0] ** 2)

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss, optax.tree.norm(gradient)


def experts(state, x):
    """A function of one matrix, differentiated for each of a stack."""
    one = value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))
    losses, gradient = jax.vmap(one)(state["params"]["a"])
    return update(state, {"a": gradient}), losses.mean(), optax.tree.norm(gradient)


def averaged(state, x):
    new, loss = plain(state, x)
    average = optax.incremental_update(new["params"], state["average"], 0.1)
    return {**new, "average": average}, loss


def branches(state, x):
    def of(p):
        h = lax.cond(x[0, 0] > 0, jnp.tanh, jnp.sin, x @ p["a"])
        return jnp.mean(h**2) * lax.fori_loop(0, 3, lambda i, s: s + 0.1, 1.0)

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss


def solved(state, x):
    """A system of equations, whose derivative is another one."""
    def of(p):
        matrix = x.T @ x + 5 * jnp.eye(16) + p["a"] @ p["a"].T
        return jnp.mean(jax.scipy.sparse.linalg.cg(lambda v: matrix @ v, x.sum(0), maxiter=5)[0] ** 2)

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss, optax.tree.norm(gradient)


def shifted(state, x):
    """A parameter whose gradient is nothing but rounding."""
    def of(p):
        return -jnp.mean(jax.nn.log_softmax(x @ p["a"] + p["d"])[:, 0])

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss


def normalized(state, x):
    """Half of the biases are in front of a normalization: their gradients are rounding alone."""
    def of(p):
        h = x @ p["a"] + p["c"]
        h = jnp.where(jnp.arange(16) < 8, (h - h.mean(0)) * lax.rsqrt(h.var(0) + 1e-5), h)
        return jnp.mean((jnp.tanh(h) @ p["b"]) ** 2)

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss


def with_rule(rule):
    def step(state, x):
        loss, gradient = jax.value_and_grad(loss_of)(state["params"], x)
        return update(state, gradient, rule), loss

    return {"step": step, "state": begin(weights(), rule)}


def rate(state, x, lr):
    loss, gradient = jax.value_and_grad(loss_of)(state["params"], x)
    return {"params": jax.tree.map(lambda w, g: w - lr * g, state["params"], gradient)}, loss


key = jax.random.key(3)
stack = {"a": jnp.asarray(rng.normal(0, 0.3, (3, 16, 16)), jnp.float32)}
STACKED = "match=params.a$ dims=stack,row,col block=4x4 density=0.5"
HONEST = {
    "plain": {},
    "jitted": {"step": jax.jit(plain)},
    "donated": {"step": jax.jit(plain, donate_argnums=0)},
    "results": {"step": returned},
    "dropout": {"step": dropped, "batch": (data[0], key)},
    "micro-batches": {"step": micro_batches},
    "penalty": {"step": penalized},
    "per example": {"step": per_example},
    "inner step": {"step": adapted},
    "two updates": {"step": twice},
    "vjp": {"step": pulled},
    "jvp": {"step": pushed},
    "one vector": {"step": raveled},
    "cast": {"step": rounded},
    "bf16": {"state": begin(weights(jnp.bfloat16))},
    "custom": {"step": own_rule},
    "by hand": {"step": by_hand, "state": {"params": {"a": weights()["a"]}}},
    "layers": {"step": layers, "state": begin(stack), "mark": STACKED},
    "experts": {"step": experts, "state": begin(stack), "mark": STACKED},
    "average": {"step": averaged, "state": begin(weights(), average=weights())},
    "branches": {"step": branches},
    "solved": {"step": solved},
    "shifted": {"step": shifted, "state": begin({"a": weights()["a"], "d": jnp.ones(())})},
    "normalized": {"step": normalized},
    "Adafactor": with_rule(optax.adafactor(0.01, min_dim_size_to_factor=4)),
    "Lion": with_rule(optax.lion(0.01)),
    "Muon": with_rule(optax.contrib.muon(0.01)),
    "rate": {"step": rate, "state": {"params": weights()}, "batch": (data[0], 0.1)},
}
# CHECK-COUNT-28: the first 2 runs did what the program does, at most N% of what is allowed away from it; the check took N s
with warnings.catch_warnings():
    warnings.simplefilter("error")
    for options in HONEST.values():
        train(**options)

# The first run behind an update of patterns; the step that a call of its own is given goes on; then nothing is left.
# CHECK-NEXT: the first 3 runs did
# CHECK-NEXT: the run behind an update of patterns did
# CHECK-NEXT: traced 4, check None, kept None
traces = 0


def traced(state, x):
    global traces
    traces += 1
    return returned(state, x)


step = compiled(traced, check=3)
traces = 0
for i in range(6):
    if i == 4:
        step.update_patterns(0.5)
    step(data[i % 4])
step(data[0])
print(f"traced {traces}, check {step._check}, kept {step._program._beside}")

# CHECK-NEXT: without: traced 0
step = compiled(traced, check=0)
traces = 0
step(data[0])
print(f"without: traced {traces}")

# What it is for. State outside of the arguments that both traces of an export have not changed yet:

count = 0


def counts(state, x):
    global count
    count += 1
    loss, gradient = jax.value_and_grad(lambda p: loss_of(p, x) / max(count - 1, 1))(state["params"])
    return update(state, gradient), loss


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'loss' 0.{{[0-9]+}} away, of which rounding explains {{[^ ]*}}: the program computes something else each time that it is traced at {{.*}}check.py:[[@LINE-4]], by state outside of its arguments (a counter, an average, random numbers of Python or NumPy), which the step has as it was at the export: make it a part of the state or of the batch; check=0 trains without this comparison
refuse(train, counts)

noise = np.random.default_rng(0)


def draws(state, x):
    drawn = noise.normal(size=x.shape).astype(np.float32)
    loss, gradient = jax.value_and_grad(loss_of)(state["params"], x + drawn)
    return update(state, gradient), loss


# CHECK-NEXT: expected a step that does the same each time, but got one that computes something else when it is traced again at {{.*}}check.py:[[@LINE-4]], by the global 'noise': make it a part of the state or of the batch
# CHECK-NEXT: expected a step that does the same each time, but got one that computes something else when it is traced again at {{.*}}check.py:[[@LINE-5]], by the global 'noise'
refuse(train, draws)
refuse(train, jax.jit(draws))

RATE = [0.1]


def rated(state, x):
    loss, gradient = jax.value_and_grad(loss_of)(state["params"], x)
    return {"params": jax.tree.map(lambda w, g: w - RATE[0] * g, state["params"], gradient)}, loss


def changed_rate():
    step = train(rated, {"params": weights()}, runs=1)
    RATE[0] /= 2
    step(data[1])


# CHECK-NEXT: expected run 2 of the step to do what the program does, but got 'state.params.a' {{.*}} away, of which rounding explains {{.*}}: the program computes something else each time that it is traced at {{.*}}check.py:[[@LINE-9]], by state outside
refuse(changed_rate)

kept = []


def keeps(state, x):
    kept.append(x.mean())
    first = kept[0] if len(kept) > 2 else 0.0
    loss, gradient = jax.value_and_grad(loss_of)(state["params"], x - first)
    return update(state, gradient), loss


# CHECK-NEXT: expected a step that keeps its arrays in its arguments, but got one of the export in another object at {{.*}}check.py:[[@LINE-6]]: make it a part of the state, or compute it outside of the step
refuse(train, keeps)

# Mistakes of ours: a gradient that is not masked, patterns that are not those of the step, wrong numbers, NaN.


def other_masks():
    step = compiled(returned)
    store_all(step)
    step(data[0])


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'metrics.1.norm' {{.*}}: a gradient of a marked weight is not masked as docs/optimizers.md defines it: take the mark from that weight, or report the program; check=0
refuse(other_masks)


def wrong_after(name, place, value, **options):
    """A step that leaves a wrong number in an array."""
    step = compiled(**options)
    run = step._session.run

    def run_wrong():
        run()
        step.arrays[name][place] += value

    step._session.run = run_wrong
    step(data[0])


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'state.params.b' 0.01 away, {{.*}}: that is a mistake of sparse-opt: report the program; check=0
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'state.params.a' {{.*}} away
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'state.opt.0.nu.c' {{.*}} away
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'state.opt.0.count' 1 away
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got NaN in 'state.params.b', where the program has numbers: that is a mistake of sparse-opt: report the program; check=0
refuse(wrong_after, "state.params.b", (3, 2), 0.01)
refuse(wrong_after, "state.params.a", (3, 2), 0.01)
refuse(wrong_after, "state.opt.0.nu.c", 3, 1e-4)
refuse(wrong_after, "state.opt.0.count", ..., 1)
refuse(wrong_after, "state.params.b", (3, 2), np.nan)

# What rounding makes of some entries, here of c[:8], explains nothing of the others.
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'state.params.c' 0.00{{[0-9]+}} away
refuse(wrong_after, "state.params.c", 12, 0.002, step=normalized)

# A gradient that is not seen, whose norm may be masked or not; a program that cannot run by itself: told once.


def norm_by_hand(state, x):
    w = state["params"]["a"]
    gradient = x.T @ (x @ w)
    return {"params": {"a": w - 1e-3 * gradient}}, jnp.mean(w**2), jnp.linalg.norm(gradient)


def norm_elsewhere(state, x):
    """The gradient is at what is made of a weight, and of a matrix."""
    loss, gradient = jax.value_and_grad(loss_of)({**state["params"], "a": state["params"]["a"] + x.T @ x}, x)
    return update(state, gradient), loss, jnp.linalg.norm(gradient["a"])


fails = [False]


def fails_later(state, x):
    if fails[0]:
        raise RuntimeError("no more")
    return plain(state, x)


# CHECK-NEXT: the step runs unchecked: the program computes the gradient of 'state.params.a' without jax.grad or its kin, and it has 'metrics.1' {{.*}} away, of which rounding explains {{.*}}: take gradients by jax.grad at the weights themselves, or take the mark away
# CHECK-NEXT: the step runs unchecked: what the program differentiates at is made of a marked weight ('state.params.a') in a way that the check does not follow at {{.*}}check.py:[[@LINE-14]], and it has 'metrics.1' {{.*}}: take gradients by jax.grad at the weights themselves, or take the mark away
# CHECK-NEXT: the step runs unchecked: the program's own step raises 'RuntimeError: no more' at {{.*}}check.py:[[@LINE-6]]: raise RuntimeError("no more")
# CHECK-NEXT: the step runs unchecked: JAX {{.*}} differentiates in another way
with warnings.catch_warnings(record=True) as messages:
    warnings.simplefilter("always")
    train(norm_by_hand, {"params": {"a": weights()["a"]}}, runs=3)
    train(norm_elsewhere, runs=3)
    step = compiled(fails_later)
    fails[0] = True
    for batch in data:
        step(batch)
    from jax._src.interpreters import ad

    own, ad.jvp = ad.jvp, lambda *arguments: None
    train(runs=3)
    ad.jvp = own
print(*(m.message for m in messages), sep="\n")

# A mark has the step attend to less than its program.
# CHECK-NEXT: the step runs unchecked: it attends to less than its program
# CHECK-NEXT: expected a number of runs to check, but got -1


def attends(state, x):
    def of(p):
        q = (x @ p["a"])[None, None]
        scores = jnp.einsum("bhik,bhjk->bhij", q, q) / 4.0
        return jnp.mean(jnp.einsum("bhij,bhjk->bhik", jax.nn.softmax(scores), q) ** 2)

    loss, gradient = jax.value_and_grad(of)(state["params"])
    return update(state, gradient), loss


MARK = "attention=. window=3 global=1 block=8x8"
train(attends, begin({"a": weights()["a"]}), mark=MARK, batch=(jnp.asarray(rng.normal(size=(64, 16)), jnp.float32),))
refuse(compiled, check=-1)
