# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a layer with an activation keeps for its gradient, the next layer keeps instead of its input, and makes its input of it again.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python %s

import gc

import torch
from sparse_opt.torch import _blocks, _linear, _origins, nn
from torch.utils.checkpoint import checkpoint


def saved(y):
    """The memory of what a graph keeps for a backward pass, by address."""
    found, nodes, seen = {}, [y.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for tensor in getattr(node, "saved_tensors", ()):
            if tensor is not None:
                found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        nodes += [next for next, _ in node.next_functions]
    return found


def make(activation, dtype=torch.float32, bias=True):
    torch.manual_seed(0)
    layers = [nn.Linear(32, 64, block=8, density=0.5, activation=activation, dtype=dtype, bias=bias),
              nn.Linear(64, 16, block=8, density=0.5, activation="silu", dtype=dtype, bias=bias)]
    return layers, [nn.densify(layer) for layer in layers]


def gradients(layers, x, between=lambda h: h):
    """Those of x, the weights and the biases, in double precision."""
    x = x.clone().requires_grad_()
    up, down = layers
    y = down(between(up(x)))
    y.square().sum().backward()
    found = [x.grad, *(p.grad for layer in layers for p in layer.parameters())]
    for layer in layers:
        layer.zero_grad()
    return [tensor.double() for tensor in found]


def dense_gradients(layers, dense, x, between=lambda h: h):
    """The same of dense layers in double precision, of the weights' stored blocks."""
    x = x.double().clone().requires_grad_()
    activations = {"": lambda z: z, "relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
                   "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh")}
    parameters = [p.detach().double().requires_grad_() for layer in layers for p in
                  ([layer.dense_weight()] + ([layer.bias] if layer.bias is not None else []))]
    at, y = 0, x
    for number, layer in enumerate(layers):
        count = 1 if layer.bias is None else 2
        w, *b = parameters[at : at + count]
        at += count
        z = y @ w.t() + (b[0] if b else 0)
        y = activations[layer.activation](z)
        y = between(y) if number == 0 else y
    y.square().sum().backward()
    found, at = [x.grad], 0
    for layer in layers:
        slots = layer.dense_weight().ne(0)
        found.append((parameters[at].grad, slots))
        at += 1
        if layer.bias is not None:
            found.append(parameters[at].grad)
            at += 1
    return found


def compare(got, want, layers, bound, label):
    weights = iter(layers)
    for one, other in zip(got, want):
        if isinstance(other, tuple):
            layer = next(weights)
            whole = torch.zeros_like(other[0])
            whole = _blocks.spread(layer.matrix, layer.pattern, one)
            one, other = whole * other[1], other[0] * other[1]
        error = float((one - other).abs().max() / other.abs().max())
        assert error < bound, f"{label}: off by {error}"


def add(h):
    return h + 1


def write(h):
    return h.mul_(2)


for activation in ("relu", "gelu", "gelu_tanh", "silu"):
    for dtype, bound in ((torch.float32, 1e-5), (torch.float64, 1e-11), (torch.bfloat16, 0.05)):
        for bias in (True, False) if dtype == torch.float32 else (True,):
            layers, dense = make(activation, dtype, bias)
            for tokens in (70, 256):
                x = torch.randn(tokens, 32, dtype=dtype)
                for between in (lambda h: h, add, write):
                    want = dense_gradients(layers, dense, x, between if between is not write else lambda h: h * 2)
                    compare(gradients(layers, x, between), want, layers, bound, f"{activation} {dtype} {tokens}")

# The result is not kept, and nothing is noted of what is gone.
(up, down), _ = make("gelu")
x = torch.randn(256, 32)
h = up(x)
y = down(h)
kept = saved(y)
z = 256 * 64 * 4
assert h.data_ptr() not in kept and list(kept.values()).count(z) == 1, kept
other = down(h + 0)
assert list(saved(other).values()).count(z) == 2
del h, y, other, kept
gc.collect()
assert not _origins._KNOWN, _origins._KNOWN

# Whoever computes a forward pass again, or sees what is kept, has the same gradients.
want = gradients((up, down), x)
for again in (False, True):
    inner = [(lambda v: checkpoint(up, v, use_reentrant=again)), (lambda v: checkpoint(down, v, use_reentrant=again))]
    both = lambda v: checkpoint(lambda u: down(up(u)), v, use_reentrant=again)
    for call in (lambda v: down(inner[0](v)), lambda v: inner[1](up(v)), both):
        given = x.clone().requires_grad_()
        with torch.autograd.graph.save_on_cpu():
            y = call(given)
        y.square().sum().backward()
        found = [given.grad, *(p.grad for layer in (up, down) for p in layer.parameters())]
        assert all(torch.allclose(a.double(), b, rtol=1e-5, atol=1e-5) for a, b in zip(found, want))
        up.zero_grad()
        down.zero_grad()
        given = x.clone().requires_grad_()
        call(given).square().sum().backward()
        found = [given.grad, *(p.grad for layer in (up, down) for p in layer.parameters())]
        assert all(torch.allclose(a.double(), b, rtol=1e-5, atol=1e-5) for a, b in zip(found, want))
        up.zero_grad()
        down.zero_grad()

# Gradients that are kept for RigL are of the layer's input.
model = torch.nn.Sequential(up, down)
nn.keep_gradients(model)
h = up(x)
down(h).sum().backward()
(given, _), = _linear.KEPT[down.pattern.data_ptr()]
assert torch.allclose(given, h.detach(), atol=1e-6)
