# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The products of layers on a GPU, which is the PTX interpreter behind a driver, on memory and a stream of the caller's: results,
# gradients and scores beside float64, for any number of tokens, while patterns change, and in graphs of the caller.

# REQUIRES: ptx-run
# RUN: env LD_LIBRARY_PATH=%fake_driver SPARSE_OPT_CACHE=%t %numpy_python -u %s | FileCheck %s
# RUN: env LD_LIBRARY_PATH=%fake_driver SPARSE_OPT_CACHE=%t FAKE_DRIVER_CHIP=sm_80 %numpy_python -u %s | FileCheck %s

import math

import numpy as np

from device_memory import GPU, load, store
from refusals import refuse
from sparse_opt import _gpu_products, _library
from sparse_opt._products import Matrix, Wanted

random = np.random.default_rng(0)
gpu = GPU()
target = _library.target("cuda")


def gelu(z):
    return z * 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))


def gelu_slope(z):
    return 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def draw(kind, *shape):
    """Numbers that the type has, in float64."""
    return load(kind, store(kind, random.standard_normal(shape)))


def masks(grid, slots):
    """Patterns of so many slots: random ones, with an empty row and column, the first ones, one block, none."""
    def chosen(places):
        mask = np.zeros(grid[0] * grid[1], bool)
        mask[places] = True
        return mask.reshape(grid)
    yield chosen(random.permutation(grid[0] * grid[1])[:slots])
    inner = [r * grid[1] + c for r in range(grid[0] - 1) for c in range(1, grid[1])]
    yield chosen(random.permutation(inner)[:slots])
    yield chosen(np.arange(slots))
    yield chosen([grid[0] * grid[1] - 1])
    yield chosen(np.zeros(0, int))


class Layer:
    """A weight in the memory of the GPU, and what is computed of it there."""

    def __init__(self, kind, block, grid, slots, activation, sizes):
        self.kind, self.block, self.sizes = kind, block, sizes
        self.matrix = Matrix(grid[0] * block[0], grid[1] * block[1], *block, slots, kind)
        self.forward = Wanted(y=True, bias=True, activation=activation, z=bool(activation))
        self.backward = Wanted(bias=True, dx=True, dw=True, activation=activation)
        self.total = np.float64 if kind == "f64" else np.float32  # of gradients
        self.plans = {}
        self.pattern = gpu.allocate(4 * self.matrix.offsets[-1])
        self.w, self.b = gpu.allocate(self.bytes(slots, *block)), gpu.allocate(self.bytes(self.matrix.rows))
        self.bias = draw(kind, self.matrix.rows)
        gpu.write(self.b, store(kind, self.bias))

    def bytes(self, *shape):
        return math.prod(shape) * store(self.kind, np.zeros(1)).itemsize

    def take(self, mask):
        """Takes another pattern and values, in place; plans are told."""
        self.indices = self.matrix.pattern_from(
            np.concatenate([[0], np.cumsum(mask.sum(1))]), np.nonzero(mask)[1], random.permutation(self.matrix.slots)[: mask.sum()]
        )
        self.rows, self.cols = self.matrix.blocks_of(self.indices)
        values = draw(self.kind, self.matrix.slots, *self.block)
        tiles = np.zeros((*self.matrix.grid, *self.block))
        held = np.flatnonzero(self.rows >= 0)
        tiles[self.rows[held], self.cols[held]] = values[held]
        self.dense = tiles.transpose(0, 2, 1, 3).reshape(self.matrix.rows, self.matrix.cols)
        self.mask = np.kron(mask, np.ones(self.block))
        gpu.write(self.pattern, self.indices)
        gpu.write(self.w, store(self.kind, values))

    def forget(self):
        for plans in self.plans.values():
            plans.forget()

    def run(self, wanted, tokens, given, captured=False):
        place = _gpu_products.Place("cuda:0", target, gpu.stream, captured)
        if wanted not in self.plans:
            self.plans[wanted] = _gpu_products.plans_of(self.matrix, wanted, place, self.sizes)
        addresses = {"pattern": self.pattern, "w": self.w, "b": self.b, **given}
        self.plans[wanted].run(tokens, addresses, place, gpu.take)

    def require(self, what, found, wanted, scale):
        bound = {"f64": 1e-12, "f32": 2e-6, "f16": 2e-3, "bf16": 1.2e-2}[self.kind]
        apart = np.abs(found - wanted) - bound * (scale + 1e-3)
        assert np.isfinite(found).all() and (apart <= 0).all(), (what, self.kind, self.block, float(apart.max()))

    def check(self, tokens, captured=None, parts=("dx", "db")):
        """Compares a forward and a backward pass, whose gradients beside that of the weight are `parts`; `captured` is called between
        the capture of a graph and its launch."""
        rows, cols = self.matrix.rows, self.matrix.cols
        x, dy = draw(self.kind, tokens, cols), draw(self.kind, tokens, rows)
        z = x @ self.dense.T + self.bias
        given = {"x": x, "dy": dy}
        at = {name: gpu.allocate(self.bytes(tokens, n)) for name, n in {"x": cols, "dy": rows, "y": rows, "z": rows, "dx": cols}.items()}
        at |= {"dw": gpu.allocate(8 * self.matrix.slots * math.prod(self.block)), "db": gpu.allocate(8 * rows)}

        def fill():
            for name, array in given.items():
                gpu.write(at[name], store(self.kind, array))
            gpu.write(at["dw"], np.zeros((self.matrix.slots, *self.block), self.total))
            gpu.write(at["db"], np.ones(rows, self.total))  # to which is added

        def both(captured):
            self.run(self.forward, tokens, at, captured)
            self.run(self.backward, tokens, at, captured)

        fill()
        both(False)
        if captured:
            with gpu.capture() as graph:
                both(True)
            captured(self)
            z = x @ self.dense.T + self.bias
            fill()
            graph.launch()
        activation = self.forward.activation
        dz = dy * gelu_slope(z) if activation else dy
        read = lambda name, *shape: load(self.kind, gpu.read(at[name], store(self.kind, np.zeros(shape))))
        weight, size = np.abs(self.dense), np.abs(x) @ np.abs(self.dense).T + np.abs(self.bias)
        self.require("y", read("y", tokens, rows), gelu(z) if activation else z, size)
        if activation:
            self.require("z", read("z", tokens, rows), z, size)
        # An activation's slope is of the result that was stored.
        if "dx" in parts:
            self.require("dx", read("dx", tokens, cols), dz @ self.dense, 3 * np.abs(dy) @ weight)
        if "db" in parts:
            self.require("db", gpu.read(at["db"], np.zeros(rows, self.total)), 1 + dz.sum(0), 1 + 3 * np.abs(dy).sum(0))
        dw = gpu.read(at["dw"], np.zeros((self.matrix.slots, *self.block), self.total)).astype(np.float64)
        held = np.flatnonzero(self.rows >= 0)
        tiles = lambda m: m.reshape(self.matrix.grid[0], self.block[0], self.matrix.grid[1], self.block[1]).transpose(0, 2, 1, 3)
        own = (self.rows[held], self.cols[held])
        self.require("dw", dw[held], tiles(dz.T @ x)[own], tiles(3 * np.abs(dy).T @ np.abs(x))[own])
        for address in at.values():
            gpu.free(address)


# CHECK: f32 16x16 ok
# CHECK-NEXT: f32 8x4 ok
# CHECK-NEXT: f32 1x1 ok
# CHECK-NEXT: f32 5x3 ok
# CHECK-NEXT: f64 16x16 ok
# CHECK-NEXT: bf16 16x16 ok
# CHECK-NEXT: bf16 64x64 ok
# CHECK-NEXT: bf16 8x4 ok
# CHECK-NEXT: f16 16x16 ok
for kind, block, grid, slots, activation, sizes in [
    ("f32", (16, 16), (3, 4), 6, "gelu", _gpu_products.SIZES),
    ("f32", (8, 4), (4, 8), 12, "", (64, 16)),
    ("f32", (1, 1), (24, 40), 90, "", _gpu_products.SIZES),
    ("f32", (5, 3), (3, 5), 6, "", _gpu_products.SIZES),
    ("f64", (16, 16), (3, 4), 6, "", _gpu_products.SIZES),
    ("bf16", (16, 16), (3, 4), 6, "gelu", _gpu_products.SIZES),
    ("bf16", (64, 64), (2, 2), 3, "", _gpu_products.SIZES),
    ("bf16", (8, 4), (4, 8), 12, "", _gpu_products.SIZES),
    ("f16", (16, 16), (4, 3), 6, "", (64, 16)),
]:
    layer = Layer(kind, block, grid, slots, activation, sizes)
    for mask, tokens in zip(masks(grid, slots), ((1, 3, 17, 130), (130,), (17,), (3,), (3,))):
        layer.take(mask)
        layer.forget()
        for count in tokens:
            layer.check(count)
    layer.run(layer.forward, 0, {"x": layer.w, "y": layer.w, "z": layer.w})  # no tokens: nothing
    print(kind, "x".join(map(str, block)), "ok")

# The gradient of the weight alone.
layer.backward = Wanted(dw=True)
layer.check(5, parts=())

# A graph that the caller has captured makes the plans of the pattern as it is when it is launched.
layer = Layer("bf16", (16, 16), (3, 4), 6, "", _gpu_products.SIZES)
first, second, *_ = masks((3, 4), 6)
layer.take(first)
layer.check(70, captured=lambda layer: layer.take(second))
layer.forget()
layer.check(70)
# CHECK-NEXT: captured
print("captured")
# CHECK-NEXT: expected a call with as many tokens, and its backward pass, in front of the capture of a graph, but got the first one within it: kernels for 512 tokens are loaded then
with gpu.capture():
    refuse(layer.run, layer.forward, 500, {"x": layer.w, "y": layer.w}, True)

# Scores of all blocks, of sums over all tokens.
for kind, tokens in ("f32", 21), ("bf16", 70):
    matrix = Matrix(48, 64, 16, 16, 6, kind)
    x, dy = draw(kind, tokens, 64), draw(kind, tokens, 48)
    at = gpu.put(store(kind, x)), gpu.put(store(kind, dy)), gpu.put(np.zeros(matrix.grid, np.float32))
    place = _gpu_products.Place("cuda:0", target, gpu.stream)
    plans = _gpu_products.plans_of(matrix, Wanted(scores="l1"), place, (128 if tokens > 64 else 64,))
    plans.run(tokens, dict(zip(("x", "dy", "scores"), at)), place, gpu.take)
    wanted = np.abs(dy.T @ x).reshape(3, 16, 4, 16).sum((1, 3))
    assert np.allclose(gpu.read(at[2], np.zeros(matrix.grid, np.float32)), wanted, rtol=1e-4), kind
# CHECK-NEXT: scores
print("scores")
