# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Activations that a layer's kernels compute with its product, beside PyTorch's in float64.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import copy

import torch
import torch.nn.functional as F
from blocks import is_close
from refusals import refuse
from sparse_opt.torch import nn

torch.manual_seed(0)
FUNCTIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"), "silu": F.silu}


def reference(layer, x, dy):
    """The result and the gradients of x, blocks and bias, of a dense weight in float64."""
    weight = layer.dense_weight().double().requires_grad_()
    bias = layer.bias.detach().double().requires_grad_() if layer.bias is not None else None
    x = x.detach().double().requires_grad_()
    z = F.linear(x, weight, bias)
    # What the activation is applied to is rounded to the type of the layer.
    with torch.no_grad():
        z += z.to(layer.weight.dtype).double() - z
    y = FUNCTIONS[layer.activation](z)
    y.backward(dy.double())
    other = copy.deepcopy(layer).double()
    other.take_dense(weight.grad)
    return y.detach(), x.grad, other.weight.detach(), bias.grad if bias is not None else None


for activation in FUNCTIONS:
    for tokens, block, density, bias, dtype in [
        ((17,), 16, 0.5, True, torch.float32),
        ((3, 100), (8, 16), 0.5, False, torch.float32),
        ((1,), 1, 0.3, True, torch.float32),
        ((40,), 16, 1.0, True, torch.float64),
        ((77,), 16, 0.5, True, torch.bfloat16),
        ((77,), 8, 0.5, True, torch.float16),
    ]:
        layer = nn.Linear(48, 32, bias, block=block, density=density, activation=activation, dtype=dtype)
        x = (3 * torch.randn(*tokens, 48, dtype=dtype)).requires_grad_()
        y = layer(x)
        dy = torch.randn_like(y)
        y.backward(dy)
        case = activation, tokens, dtype
        want = reference(layer, x, dy)
        for number, (got, right) in enumerate(zip((y, x.grad, layer.weight.grad), want)):
            assert is_close(got, right, dtype), (case, number)
        assert not bias or is_close(layer.bias.grad, want[3], dtype), case
        with torch.no_grad():
            assert is_close(layer(x), want[0], dtype), case
        plain = nn.densify(layer)(x)
        assert is_close(plain, want[0], dtype), case
    double = nn.Linear(32, 48, density=0.5, activation=activation, dtype=torch.float64)
    assert torch.autograd.gradcheck(double, torch.randn(5, 32, dtype=torch.float64, requires_grad=True))
    print(activation)
# CHECK: relu
# CHECK: gelu
# CHECK: gelu_tanh
# CHECK: silu

layer = nn.Linear(32, 48, density=0.5, activation="gelu")
x = torch.randn(5, 32, requires_grad=True)
y = layer(x)
y.sum().backward()
want = layer.weight.grad.clone(), x.grad.clone()
layer.weight.grad = x.grad = None
compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
again = compiled(x)
again.sum().backward()
assert torch.equal(again, y) and torch.equal(layer.weight.grad, want[0]) and torch.equal(x.grad, want[1])
assert torch.equal(torch.export.export(layer, (x,)).module()(x), y)
print("compiled, exported")  # CHECK: compiled, exported

# Scores of blocks are of the gradient in front of the activation.
layer.weight.grad = None
nn.keep_gradients(layer)
layer(x).sum().backward()
(kept, gradient), = layer.kept
z = F.linear(x, layer.dense_weight(), layer.bias).detach().requires_grad_()
F.gelu(z).sum().backward()
assert torch.allclose(gradient, z.grad, atol=1e-6) and torch.equal(kept, x)
assert torch.allclose(layer.weight.grad, want[0], atol=1e-6)
print("kept")  # CHECK: kept

# The bias alone learns; numbers that are none stay none.
alone = nn.Linear(32, 48, density=0.5, activation="silu")
alone.weight.requires_grad_(False)
alone(x.detach()).sum().backward()
z = F.linear(x.detach(), alone.dense_weight(), alone.bias).detach().requires_grad_()
F.silu(z).sum().backward()
assert torch.allclose(alone.bias.grad, z.grad.sum(0), atol=1e-6)
for activation, function in FUNCTIONS.items():
    layer = nn.Linear(16, 16, block=16, density=1.0, activation=activation)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0] * 4))
    zeros = torch.zeros(1, 16, requires_grad=True)
    y = layer(zeros)
    y.backward(torch.ones_like(y))
    # In float64: with AVX-512 PyTorch's float32 takes GELU of infinity for no number.
    z = layer.bias.detach().double().requires_grad_()
    right = function(z)
    right.sum().backward()
    assert torch.equal(y[0].nan_to_num(7), right.float().nan_to_num(7)), (activation, y, right)
    assert torch.equal(layer.bias.grad.nan_to_num(7), z.grad.float().nan_to_num(7)), (activation, layer.bias.grad, z.grad)
print("bias, infinities")  # CHECK: bias, infinities

with torch.autocast("cpu", torch.bfloat16):
    y = nn.Linear(32, 48, density=0.5, activation="relu")(x)
assert y.dtype == torch.bfloat16 and y.min() == 0
print(nn.Linear(32, 48, activation="gelu"))  # CHECK: density=0.167, activation=gelu
refuse(nn.Linear, 32, 48, activation="tanh")
# CHECK: expected an activation of relu, gelu, gelu_tanh, silu, but got 'tanh'
