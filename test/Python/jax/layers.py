# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers in loops of JAX's own, beside dense ones that are masked.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache OMP_NUM_THREADS=2 %python -u %s 2>&1 | FileCheck %s

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
import optax
import sparse_opt
from jax.sharding import Mesh, PartitionSpec
from sparse_opt.jax import nn

key = jax.random.key(0)
ROUNDOFF = {"float32": 2**-23, "float64": 2**-52, "bfloat16": 2**-7, "float16": 2**-10}


def is_close(got, want, dtype):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return np.abs(got - want).max(initial=0) <= 8 * ROUNDOFF[dtype] * np.abs(want).max(initial=0) + 1e-300


def block_norms(gradient, block):
    rows, cols = gradient.shape
    return np.abs(np.asarray(gradient)).reshape(rows // block[0], block[0], cols // block[1], block[1]).sum((1, 3))


# Products, gradients and norms of blocks against float64, for every type, any number of tokens.
for tokens, shape, block, density, dtype in [
    ((64,), (64, 32), 16, 0.5, "float32"),
    ((3, 100), (32, 48), (8, 16), 0.5, "float32"),
    ((), (32, 48), 4, 0.3, "float32"),
    ((17,), (32, 48), (1, 8), 0.3, "float32"),
    ((300,), (40, 24), 1, 0.3, "float32"),
    ((2, 3, 7), (32, 48), 16, 1.0, "float32"),
    ((77,), (32, 48), 16, 0.3, "bfloat16"),
    ((77,), (32, 48), 8, 0.3, "float16"),
    ((77,), (32, 48), 16, 0.3, "float64"),
    ((9,), (15, 9), (5, 3), 0.4, "float32"),
    ((0,), (32, 48), 16, 0.3, "float32"),
]:
    with jax.enable_x64(True):
        pattern = nn.random_pattern(key, shape, block=block, density=density)
        values = nn.init(key, pattern, dtype)
        x = jax.random.normal(key, (*tokens, shape[1]), dtype)
        dy = jax.random.normal(jax.random.key(1), (*tokens, shape[0]), dtype)
        bias = jax.random.normal(key, shape[:1], dtype)
        scores = jnp.zeros(pattern.mask().shape, jnp.float32)
        y, pull = jax.vjp(lambda v, x, b, s: nn.linear(v, pattern, x, b, scores=s), values, x, bias, scores)
        dv, dx, db, norms = pull(dy)
        weight = nn.to_dense(values, pattern).astype(jnp.float64)
        flat, gradient = (a.astype(jnp.float64).reshape(-1, a.shape[-1]) for a in (x, dy))
        dw = gradient.T @ flat
        where = (tokens, dtype)
        assert y.dtype == dtype and dv.dtype == dtype and dx.shape == x.shape, where
        assert is_close(y.reshape(-1, shape[0]), flat @ weight.T + bias.astype(jnp.float64), dtype), where
        assert is_close(dx.reshape(-1, shape[1]), gradient @ weight, dtype), where
        assert is_close(dv, nn.from_dense(dw, pattern), dtype), where
        assert is_close(norms, block_norms(dw, pattern.block), "float32"), where
        assert is_close(nn.to_dense(nn.from_dense(weight, pattern), pattern), weight, "float64"), where
print("products")  # CHECK: products

# Transformations.
pattern = nn.random_pattern(key, (48, 64), block=8, density=0.3)
values, x = nn.init(key, pattern), jax.random.normal(key, (6, 5, 64))
weight = nn.to_dense(values, pattern)
loss = lambda v, x: jnp.sum(nn.linear(v, pattern, x) ** 2)
wanted = jax.grad(lambda w, x: jnp.sum((x @ w.T) ** 2), (0, 1))(weight, x)
for got in (
    jax.jit(jax.grad(loss, (0, 1)))(values, x),
    jax.grad(lambda v, x: jax.vmap(lambda x: loss(v, x))(x).sum(), (0, 1))(values, x),
    jax.grad(lambda v, x: jax.vmap(lambda v, x: loss(v, x), (0, 0))(jnp.broadcast_to(v, (6, *v.shape)), x).sum(), (0, 1))(values, x),
    jax.grad(lambda v, x: jax.lax.scan(lambda c, x: (c + loss(v, x), None), 0.0, x)[0], (0, 1))(values, x),
    jax.grad(jax.checkpoint(loss), (0, 1))(values, x),
):
    assert is_close(got[0], nn.from_dense(wanted[0], pattern), "float32")
    assert is_close(got[1], wanted[1], "float32")
# Norms are those of the sum over examples, which vmap maps over, too.
scored = lambda s, x: jnp.sum(nn.linear(values, pattern, x, scores=s) ** 2)
for got in (
    jax.grad(lambda s: jax.vmap(lambda x: scored(s, x))(x).sum()),
    jax.jit(jax.grad(lambda s: jax.vmap(jax.vmap(jax.jit(lambda x: scored(s, x))))(x).sum())),
    jax.grad(lambda s: jax.vmap(jax.checkpoint(lambda x: scored(s, x)))(x).sum()),
):
    assert is_close(got(nn.zero_scores(pattern)), block_norms(wanted[0], pattern.block), "float32")
each = jax.vmap(jax.grad(loss), (None, 0))(values, x)
assert is_close(each.sum(0), nn.from_dense(wanted[0], pattern), "float32") and each.shape == (6, *values.shape)
mesh = Mesh(np.array(jax.devices()), ("batch",))
parted = jax.jit(jax.shard_map(lambda v, x: nn.linear(v, pattern, x), mesh=mesh,
                               in_specs=(PartitionSpec(), PartitionSpec("batch")), out_specs=PartitionSpec("batch")))
assert is_close(parted(values, x), x @ weight.T, "float32")
parted = jax.shard_map(lambda v, x: jax.lax.psum(jax.grad(loss)(v, x), "batch"), mesh=mesh, check_vma=False,
                       in_specs=(PartitionSpec(), PartitionSpec("batch")), out_specs=PartitionSpec())
assert is_close(jax.jit(parted)(values, x), nn.from_dense(wanted[0], pattern), "float32")
donated = jax.jit(lambda v, x: v - 0.1 * jax.grad(loss)(v, x), donate_argnums=0)
assert is_close(donated(values + 0, x), values - 0.1 * nn.from_dense(wanted[0], pattern), "float32")
print("transformations")  # CHECK: transformations

# Training with updates of every method: the numbers of a masked model, the blocks of a compiled step; one trace for all.
SHAPES = {"up": (128, 64), "down": (64, 128)}
x, target = jax.random.normal(key, (50, 64)), jax.random.normal(jax.random.key(2), (50, 64))
optimizer = optax.adamw(1e-2)
traces = 0


def objective(params, apply):
    return jnp.mean((apply(params, "down", jnp.tanh(apply(params, "up", x))) - target) ** 2)


@jax.jit
def train(params, patterns, state, scores):
    global traces
    traces += 1
    loss = lambda p, s: objective(p, lambda p, n, x: nn.linear(p[n]["w"], patterns[n]["w"], x, p[n]["b"], scores=s[n]["w"]))
    grads, norms = jax.grad(loss, (0, 1))(params, scores)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, norms


@jax.jit
def train_masked(params, masks, state):
    loss = lambda p: objective(p, lambda p, n, x: x @ (p[n]["w"] * masks[n]).T + p[n]["b"])
    updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state


for method in ("set", "rigl", "gmp"):
    traces = 0
    patterns = {n: {"w": nn.random_pattern(key, s, block=8, density=0.25)} for n, s in SHAPES.items()}
    params = {n: {"w": nn.init(key, patterns[n]["w"]), "b": jnp.zeros(s[0])} for n, s in SHAPES.items()}
    dense = {n: {"w": nn.to_dense(p["w"], patterns[n]["w"]), "b": p["b"]} for n, p in params.items()}
    state, other = optimizer.init(params), optimizer.init(dense)
    zeros = {n: {"w": jnp.zeros(p["w"].mask().shape, jnp.float32)} for n, p in patterns.items()}
    text = "func.func @step(" + ", ".join(
        f'%{n}: tensor<{s[0]}x{s[1]}xf32> {{bsr.name = "{n}.w", bsr.role = "param", bsr.result = {i} : i64}}'
        for i, (n, s) in enumerate(sorted(SHAPES.items()))
    ) + ") -> (tensor<64x128xf32>, tensor<128x64xf32>) { return %down, %up : tensor<64x128xf32>, tensor<128x64xf32> }"
    step = sparse_opt.compile(text, ["match=w$ block=8x8 density=0.25"], seed=7)
    for i in range(20):
        masks = {n: np.kron(p["w"].mask(), np.ones((8, 8))).astype(np.float32) for n, p in patterns.items()}
        params, state, norms = train(params, patterns, state, zeros)
        dense, other = train_masked(dense, masks, other)
        if i % 5 != 4:
            continue
        if method != "rigl":
            for n in SHAPES:
                mask = patterns[n]["w"].mask()
                step.set_blocks(f"{n}.w", np.concatenate([[0], mask.sum(1).cumsum()]), np.nonzero(mask)[1])
                step.write(f"{n}.w", np.asarray(nn.to_dense(params[n]["w"], patterns[n]["w"])))
        before = {n: p["w"].mask() for n, p in patterns.items()}
        options = {"method": method, "scores": norms if method == "rigl" else None}
        options |= {"density": 0.2 - 0.01 * i} if method == "gmp" else {}
        params, patterns, state = nn.update_patterns(params, patterns, state, 0.3, seed=7, **options)
        if method == "set":
            step.update_patterns(0.3)
        elif method == "gmp":
            step.update_patterns(method="gmp", density=options["density"])
        for n in SHAPES:
            after = patterns[n]["w"].mask()
            new = np.kron(after & ~before[n], np.ones((8, 8))) > 0
            kept = np.kron(after, np.ones((8, 8))) > 0
            if method != "rigl":
                blocks = step.blocks(f"{n}.w")
                theirs = np.zeros_like(after)
                theirs[blocks.rows, blocks.col_idx] = True
                assert (theirs == after).all(), (method, n)
            else:
                grown = (after & ~before[n]).sum()
                absent = np.where(before[n], -1, np.asarray(norms[n]["w"]))
                assert (after & ~before[n]).ravel()[np.argsort(-absent, axis=None)[:grown]].all(), n
            dense[n]["w"] = jnp.where(kept & ~new, dense[n]["w"], 0.0)
            clear = lambda path, leaf, n=n: (
                jnp.where(kept & ~new, leaf, 0.0) if np.shape(leaf) == SHAPES[n] and n in jax.tree_util.keystr(path) else leaf)
            other = jax.tree_util.tree_map_with_path(clear, other)
    for n in SHAPES:
        error = np.abs(nn.to_dense(params[n]["w"], patterns[n]["w"]) - dense[n]["w"] * np.kron(patterns[n]["w"].mask(), np.ones((8, 8)))).max()
        assert error < 1e-5, (method, n, error)
    assert traces <= 1 and int(patterns["up"]["w"].updates) == 4, (method, traces)
print("trains as masked")  # CHECK: trains as masked

# Patterns are drawn in transformations, too; of a stack each member is updated, and of two paths that end alike each has its own.
draw = lambda key: nn.random_pattern(key, (32, 32), block=8, density=0.25)
keys = jax.random.split(key, 3)
stack = jax.vmap(draw)(keys)
alone = [draw(k) for k in keys]
assert all((jax.jit(draw)(k).indices == p.indices).all() for k, p in zip(keys, alone))
assert (stack.indices == jnp.stack([p.indices for p in alone])).all() and jax.eval_shape(draw, key).slots == 4
values = {"w": jnp.ones((3, 4, 8, 8)), "up": {"w": jnp.ones((4, 8, 8)) * jnp.arange(4.0, 0, -1)[:, None, None]}}
patterns = {"w": stack, "up": {"w": alone[0]}}
state = {"m": jax.tree.map(jnp.ones_like, values)}
values, patterns, state = nn.update_patterns(values, patterns, state, 0.5)
assert patterns["w"].updates.tolist() == [1, 1, 1] and int(patterns["up"]["w"].updates) == 1
for w, m in zip(jax.tree.leaves(values), jax.tree.leaves(state["m"])):
    assert ((w == 0) == (m == 0)).all() and (w == 0).all((-2, -1)).sum(-1).tolist() in ([2, 2, 2], 2)
assert ((values["w"] == 0) != (values["up"]["w"] == 0)).any()
print("stacks")  # CHECK: stacks


def refused(function, *arguments, **options):
    try:
        function(*arguments, **options)
        print("accepted")
    except (sparse_opt.StepError, ValueError) as error:
        print(str(error).splitlines()[0])


# CHECK: expected blocks that divide the weight, 30x48 (outputs by inputs), but got 16x16
refused(nn.random_pattern, key, (30, 48))
# CHECK: expected a density above 0, at most 1, but got 0
refused(nn.random_pattern, key, (32, 48), density=0)
# CHECK: expected a mask of two dimensions of which one block is stored at least, but got 0 of [2, 2]
refused(nn.pattern_of, np.zeros((2, 2)), 16)
# CHECK: expected values [14, 8, 8] and activations of one floating-point type, but got [14, 8, 8] of float32 and int32
refused(nn.linear, values := nn.init(key, pattern), pattern, jnp.zeros((3, 64), jnp.int32))
# CHECK: expected activations [..., 64], but got [3, 48]
refused(nn.linear, values, pattern, jnp.zeros((3, 48)))
# CHECK: expected scores of [6, 8], but got [8, 6]
refused(nn.linear, values, pattern, jnp.zeros((3, 64)), scores=jnp.zeros((8, 6)))
# CHECK: expected a pattern that is known, but got a traced one: call this outside of jit and grad
refused(jax.jit(lambda p: nn.to_dense(values, p)), pattern)
# CHECK: expected a weight of 48x64, but got 64x48
refused(nn.from_dense, jnp.zeros((64, 48)), pattern)
# CHECK-NEXT: expected one derivative of a block-sparse layer, but got a second one: compute that part with the dense weight, nn.to_dense(values, pattern)
refused(jax.hessian(lambda x: (nn.linear(values, pattern, x) ** 2).sum()), jnp.ones((1, pattern.shape[1])))
# CHECK: expected a tree with patterns, but got none
refused(nn.update_patterns, {"w": values}, {})
# CHECK: expected values under the path of the pattern 'v', but got w
refused(nn.update_patterns, {"w": values}, {"v": pattern})
# CHECK: expected the gradient of 'w' for a method that scores all blocks, but got none: give update_patterns(..., scores=...) that
refused(nn.update_patterns, {"w": values}, {"w": pattern}, method="rigl")
# CHECK: expected one of static, set, rigl, gmp, but got 'prune'
refused(nn.update_patterns, {"w": values}, {"w": pattern}, method="prune")
# CHECK-NOT: accepted
