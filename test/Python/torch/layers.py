# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers in loops of PyTorch's own, beside dense ones that are masked.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s %t 2>&1 | FileCheck %s
# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/benchmarks/call-overhead --layer --calls 3 | FileCheck %s --check-prefix=HOST
# HOST: no gradient: layer {{[0-9.]+}} us, nn.Linear {{[0-9.]+}} us, {{-?[0-9.]+}} us more
# HOST-NEXT: gradient: layer {{[0-9.]+}} us, nn.Linear {{[0-9.]+}} us, {{-?[0-9.]+}} us more
# RUN: env SPARSE_OPT_CACHE=%t/cache %python -m sparse_opt.cache | FileCheck %s --check-prefix=FULL
# RUN: env SPARSE_OPT_CACHE=%t/cache %python -m sparse_opt.cache --clear | FileCheck %s --check-prefix=CLEARED
# RUN: env SPARSE_OPT_CACHE=%t/cache %python -m sparse_opt.cache | FileCheck %s --check-prefix=EMPTY
# RUN: not env SPARSE_OPT_CACHE=%t/cache %python -m sparse_opt.cache --all 2>&1 | FileCheck %s --check-prefix=WRONG
# RUN: env SPARSE_OPT_CACHE=/dev/null/cache not %python -c "from sparse_opt.torch import nn; import torch; nn.Linear(16, 16)(torch.zeros(1, 16))" 2>&1 | FileCheck %s --check-prefix=NOWHERE
# RUN: env SPARSE_OPT_CACHE=%t/other SPARSE_OPT_CACHE_BYTES=many not %python -c "from sparse_opt.torch import nn; import torch; nn.Linear(16, 16)(torch.zeros(1, 16))" 2>&1 | FileCheck %s --check-prefix=BYTES

# FULL: {{[1-9][0-9]*}} kernels of {{[0-9.]+}} MiB in {{.*}}cache
# CLEARED: removed {{[1-9][0-9]*}} kernels from {{.*}}cache
# EMPTY: 0 kernels of 0.0 MiB in {{.*}}cache
# WRONG: error: expected --clear or nothing, but got '--all'
# NOWHERE: expected a folder for compiled kernels at '/dev/null/cache', but got '{{.*}}': set SPARSE_OPT_CACHE to another
# BYTES: expected SPARSE_OPT_CACHE_BYTES to be a number of bytes, but got 'many'

import copy
import io
import os
import pickle
import sys
import threading

import sparse_opt
import torch
from refusals import refuse
from blocks import dense, is_close, stored
from sparse_opt import cache
from sparse_opt.torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)

# Products and gradients against float64, for every type and size of blocks, any number of tokens.
count = 0
for shape, (cols, rows), block, density, bias, dtype in [
    ((64,), (32, 64), 16, 0.5, True, torch.float32),
    ((3, 100), (48, 32), (8, 16), 0.5, True, torch.float32),
    ((1,), (48, 32), 4, 0.3, True, torch.float32),
    ((17,), (48, 32), (1, 8), 0.3, True, torch.float32),
    ((300,), (24, 40), 1, 0.3, False, torch.float32),
    ((2, 3, 7), (48, 32), 16, 1.0, True, torch.float32),
    ((40,), (64, 64), 64, 0.5, True, torch.float32),
    ((77,), (48, 32), 16, 0.3, True, torch.bfloat16),
    ((77,), (48, 32), 8, 0.3, True, torch.float16),
    ((77,), (48, 32), 16, 0.3, True, torch.float64),
    ((9,), (9, 15), (5, 3), 0.4, True, torch.float32),  # rows that begin at no line of memory
    ((0,), (48, 32), 16, 0.3, True, torch.float32),
]:
    layer = nn.Linear(cols, rows, bias, block=block, density=density, dtype=dtype)
    x = torch.randn(*shape, cols, dtype=dtype, requires_grad=True)
    y = layer(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    w, b = layer.dense_weight().double(), layer.bias.detach().double() if bias else 0
    flat, gradient = x.detach().double().reshape(-1, cols), dy.double().reshape(-1, rows)
    assert y.shape == (*shape, rows) and y.dtype == dtype
    if flat.numel():
        assert is_close(y.reshape(-1, rows), flat @ w.T + b, dtype), (shape, block, dtype)
        assert is_close(x.grad.reshape(-1, cols), gradient @ w, dtype), (shape, block, dtype)
        assert is_close(dense(layer, layer.weight.grad), (gradient.T @ flat) * stored(layer), dtype), (shape, block, dtype)
        assert not bias or is_close(layer.bias.grad, gradient.sum(0), dtype), (shape, block, dtype)
    else:
        assert not layer.weight.grad.any() and not layer.bias.grad.any()
    count += 1
print(count, "shapes")  # CHECK: 12 shapes

# A masked dense layer, with empty rows and columns and full ones.
mask = torch.tensor([[1, 1, 1], [0, 0, 0], [1, 0, 0]])
layer = nn.Linear(48, 48, pattern=mask)
assert torch.equal(layer.mask(), mask.bool()) and layer.weight.shape == (4, 16, 16)
x = torch.randn(5, 48)
assert torch.allclose(layer(x), torch.nn.functional.linear(x, layer.dense_weight(), layer.bias), atol=1e-6)

layer = nn.Linear(32, 48, density=0.5)
x = torch.randn(5, 32, requires_grad=True)
y = layer(x)
double = nn.Linear(32, 48, density=0.5, dtype=torch.float64)
assert torch.autograd.gradcheck(double, torch.randn(5, 32, dtype=torch.float64, requires_grad=True))
print("gradcheck")  # CHECK: gradcheck

compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
assert torch.equal(compiled(x), y)
compiled(x).sum().backward()
assert torch.equal(checkpoint(torch.nn.Sequential(layer, torch.nn.GELU()), x, use_reentrant=False), torch.nn.functional.gelu(y))
assert torch.equal(torch.export.export(layer, (x,)).module()(x), y)
print("compiled, checkpointed, exported")  # CHECK: compiled, checkpointed, exported

other = nn.Linear(32, 48, density=0.5)
file = io.BytesIO()
torch.save(layer.state_dict(), file)
file.seek(0)
other.load_state_dict(torch.load(file))
assert torch.equal(other(x), y) and torch.equal(copy.deepcopy(layer)(x), y)
assert torch.equal(pickle.loads(pickle.dumps(layer))(x), y)
plain = torch.nn.Linear(32, 48)
other.load_state_dict(plain.state_dict())
assert torch.equal(other.dense_weight(), plain.weight.detach() * stored(other)) and torch.equal(other.bias, plain.bias)
plain.load_state_dict(nn.densify(other).state_dict())
assert torch.equal(plain.weight, other.dense_weight())
print("saved, copied, pickled, dense")  # CHECK: saved, copied, pickled, dense

with torch.autocast("cpu", torch.bfloat16):
    z = layer(x)
assert z.dtype == torch.bfloat16 and torch.allclose(z.float(), y, atol=0.05)
z.float().sum().backward()
assert torch.allclose(layer(x.t().contiguous().t()), y, atol=1e-6)
assert torch.allclose(layer(x.expand(3, 5, 32))[1], y, atol=1e-6)
layer(x).sum().backward()  # a gradient without memory of its own
with torch.inference_mode():
    assert torch.equal(layer(x), y)
assert torch.equal(torch.func.functional_call(layer, {"weight": layer.weight.detach() * 0}, (x,))[0], layer.bias)
frozen = copy.deepcopy(layer).requires_grad_(False)
first = x.detach().requires_grad_()
frozen(first).sum().backward()
assert first.grad is not None and frozen.weight.grad is None
frozen.bias.requires_grad_()
frozen(x.detach()).sum().backward()
assert torch.equal(frozen.bias.grad, torch.full([48], 5.0)) and frozen.weight.grad is None
print("autocast, strides, modes, parts")  # CHECK: autocast, strides, modes, parts

results = [None] * 4


def call(number):
    results[number] = layer(x)


threads = [threading.Thread(target=call, args=(number,)) for number in range(len(results))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(torch.equal(result, y) for result in results)
print("threads")  # CHECK: threads

# Training with updates, beside a dense model that is masked: the same numbers.
for make in (
    lambda ps: torch.optim.AdamW(ps, lr=1e-2),
    lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=1e-3),
    lambda ps: torch.optim.Adagrad(ps, lr=1e-2, initial_accumulator_value=0.1),
    lambda ps: torch.optim.Rprop(ps, lr=1e-3),
):
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
    nn.sparsify(model, ["match=weight$ block=8x8 density=0.25"], pattern="largest")
    masked = nn.densify(copy.deepcopy(model))
    optimizers = make(model.parameters()), make(masked.parameters())
    x, target = torch.randn(50, 64), torch.randn(50, 64)
    for step in range(20):
        for net, optimizer in zip((model, masked), optimizers):
            optimizer.zero_grad()
            loss = (net(x) - target).square().mean()
            loss.backward()
            if net is masked:
                for index in (0, 2):
                    net[index].weight.grad = net[index].weight.grad * stored(model[index])
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        if step % 5 != 4:
            continue
        before = [model[index].mask() for index in (0, 2)]
        assert nn.update_patterns(model, optimizers[0], 0.3, seed=3) == 2 * 10
        for index, old in zip((0, 2), before):
            changed = (model[index].mask() != old).repeat_interleave(8, 0).repeat_interleave(8, 1)
            weight = masked[index].weight
            first = {"sum": 0.1 if isinstance(optimizers[1], torch.optim.Adagrad) else 0.0, "step_size": 1e-3}
            with torch.no_grad():
                weight.copy_(weight * stored(model[index]))
                weight[changed] = 0
                for key, value in optimizers[1].state[weight].items():
                    if isinstance(value, torch.Tensor) and value.shape == weight.shape:
                        value[changed] = first.get(key, 0.0)
    for index in (0, 2):
        error = (model[index].dense_weight() - masked[index].weight * stored(model[index])).abs().max()
        assert error < 1e-5, (type(optimizers[0]), error)
print("trains as masked")  # CHECK: trains as masked

# The patterns are those of a compiled step with these names, this seed and these values.
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
nn.sparsify(model, ["match=weight$ block=8x8 density=0.25"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
values = {f"{index}.weight": model[index].weight.detach().numpy().copy() for index in (0, 2)}
text = "func.func @step(" + ", ".join(
    f'%w{index}: tensor<{rows}x{cols}xf32> {{bsr.name = "{index}.weight", bsr.role = "param", bsr.result = {number} : i64}}'
    for number, (index, rows, cols) in enumerate([(0, 128, 64), (2, 64, 128)])
) + ") -> (tensor<128x64xf32>, tensor<64x128xf32>) { return %w0, %w2 : tensor<128x64xf32>, tensor<64x128xf32> }"
step = sparse_opt.compile(text, ["match=weight$ block=8x8 density=0.25"], seed=7)
for index in (0, 2):
    name, (_, rows, cols) = f"{index}.weight", model[index]._places()
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), model[index].mask().sum(1).cumsum(0)])
    step.set_blocks(name, row_ptr.numpy(), cols.numpy())
    step.write(name, model[index].dense_weight().numpy())
for _ in range(3):
    nn.update_patterns(model, optimizer, 0.5, seed=7)
    step.update_patterns(0.5)
    for index in (0, 2):
        blocks = step.blocks(f"{index}.weight")
        _, rows, cols = model[index]._places()
        assert (blocks.rows[blocks.slot.argsort()] == rows.numpy()).all(), index
        assert (blocks.col_idx[blocks.slot.argsort()] == cols.numpy()).all(), index
print("patterns of a compiled step")  # CHECK: patterns of a compiled step

# What is saved goes on with the same choices.
again = copy.deepcopy(model)
restored = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
nn.sparsify(restored, ["match=weight$ block=8x8 density=0.25"])
restored.load_state_dict(again.state_dict())
nn.update_patterns(model, optimizer, 0.5)
nn.update_patterns(restored, torch.optim.SGD(restored.parameters(), lr=0.1), 0.5)
assert all(torch.equal(model[index].pattern, restored[index].pattern) for index in (0, 2))
print("resumes")  # CHECK: resumes

tied = torch.nn.ModuleDict({"a": torch.nn.Linear(32, 32), "b": torch.nn.Linear(32, 32, bias=False)})
tied["c"] = tied["a"]
nn.sparsify(tied, ["match=weight$ block=16x16 density=0.5"])
assert tied["a"] is tied["c"] and type(tied["a"]) is nn.Linear
assert "block=16x16, density=0.5" in repr(tied["b"]), repr(tied["b"])
nn.densify(tied)
assert tied["a"] is tied["c"] and type(tied["a"]) is torch.nn.Linear
print("tied")  # CHECK: tied

# The encoder's layer has a kernel of its own for inference, which reads dense weights.
encoder = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
nn.sparsify(encoder, ["match=linear[12].weight block=16x16 density=0.5"])
x = torch.randn(2, 8, 32)
trained = encoder(x).detach()
with torch.no_grad():
    assert torch.allclose(encoder.eval()(x), trained, atol=1e-6)
print("inference")  # CHECK: inference

# What was not used for longest goes first.
os.environ["SPARSE_OPT_CACHE"] = sys.argv[1] + "/small"
for number in range(3):
    path = cache.library(f"text {number}", [], lambda path: path.write_bytes(b"0" * 100))
    os.utime(path, (number, number))
os.environ["SPARSE_OPT_CACHE_BYTES"] = "250"
cache.library("text 3", [], lambda path: path.write_bytes(b"0" * 100))
assert len(list(cache.folder().glob("*.so"))) == 2
cache.library("text 2", [], lambda path: sys.exit("the newest are kept"))
try:
    cache.library("text 4", [], lambda path: 1 / 0)
except ZeroDivisionError:
    assert len(list(cache.folder().iterdir())) == 2
print("cache")  # CHECK: cache
os.environ["SPARSE_OPT_CACHE"] = sys.argv[1] + "/cache"


# CHECK: expected a block-sparse layer outside of vmap, but got one within: pass activations of shape [..., in_features], of which all leading dimensions are tokens
refuse(torch.func.vmap(layer), torch.randn(5, 32))
# CHECK: expected one derivative of a block-sparse layer, but got a second one (create_graph=True): compute that part with sparse_opt.torch.nn.densify
x = torch.randn(5, 32, requires_grad=True)
refuse(lambda: torch.autograd.grad(torch.autograd.grad(layer(x).pow(2).sum(), x, create_graph=True)[0].sum(), x))
# CHECK: expected blocks that divide the weight of Linear, 48x30 (outputs by inputs), but got 16x16
refuse(nn.Linear, 30, 48)
# CHECK: expected a density above 0, at most 1, but got 0
refuse(nn.Linear, 32, 48, density=0)
assert nn.Linear(32, 48, density=0.01).weight.shape == (1, 16, 16)
# CHECK: expected the pattern 'random' or a mask, but got 'largest'
refuse(nn.Linear, 32, 48, pattern="largest")
# CHECK: expected a mask of 3x2 blocks, of which one is stored at least, but got 4 of 2x2
refuse(nn.Linear, 32, 48, pattern=torch.ones(2, 2))
# CHECK: expected Linear on a processor or an NVIDIA GPU, but got 'meta'
refuse(nn.Linear, 32, 48, device="meta")
# CHECK: expected Linear to have values of float32, float64, bfloat16 or float16, but got torch.int8
refuse(nn.Linear, 32, 48, dtype=torch.int8)
# CHECK: expected activations [..., 32] of torch.float32, but got [5, 32] of torch.float64
refuse(layer, torch.randn(5, 32).double())
# CHECK: expected activations [..., 32] of torch.float32, but got [5, 16] of torch.float32
refuse(layer, torch.randn(5, 16))
# CHECK: expected a block-sparse layer and its input on a processor or an NVIDIA GPU, but got 'cpu', its pattern on 'cpu', and 'meta'
refuse(layer, torch.empty(5, 32, device="meta"))
# CHECK: expected a weight of 48x32, but got 32x48
refuse(layer.take_dense, torch.zeros(32, 48))
# CHECK: expected 'match=weight' to match the weight of a layer that blocks of 16x16 divide, but got 0.weight (48x30) in 1 layers: choose another block
refuse(nn.sparsify, torch.nn.Sequential(torch.nn.Linear(30, 48)), ["match=weight block=16x16"])
# CHECK: expected a key of a mark, but got 'hello': there are match, attention, block
refuse(nn.sparsify, torch.nn.Sequential(), ["hello"])
# CHECK: expected match to be a regular expression, but got '(': missing )
refuse(nn.sparsify, torch.nn.Sequential(), ["match=( block=4x4"])
# CHECK: expected block to be an integer from 1, two (rows and columns), or a text like 16 or 16x8, but got '0x4'
refuse(nn.sparsify, torch.nn.Sequential(), ["match=w block=0x4"])
hooked = torch.nn.Sequential(torch.nn.Linear(32, 32))
hooked[0].register_forward_hook(print)
# CHECK: expected a layer without hooks to replace, but got some on that of '0.weight': register them after sparsify
refuse(nn.sparsify, hooked, ["match=weight block=16x16"])
assert type(hooked[0]) is torch.nn.Linear
hooked = torch.nn.Sequential(torch.nn.Linear(32, 32))
hooked[0].weight.register_hook(print)
# CHECK: expected a layer without hooks to replace, but got some on that of '0.weight': register them after sparsify
refuse(nn.sparsify, hooked, ["match=weight block=16x16"])
embedding = torch.nn.ModuleDict({"e": torch.nn.Embedding(32, 32), "head": torch.nn.Linear(32, 32)})
embedding["head"].weight = embedding["e"].weight
# CHECK: expected weights that only marked layers have, but got 'e.weight', which another module has, too: mark that one as well, leave both out, or untie it first
refuse(nn.sparsify, embedding, ["match=head.weight block=16x16 density=0.5"])
# CHECK: expected an optimizer that has '0.weight', but got none that does: make it after sparsify
refuse(nn.update_patterns, model, torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], 0.1))
# CHECK: expected a model with block-sparse layers to train, but got none
refuse(nn.update_patterns, torch.nn.Linear(2, 2), optimizer)
# CHECK: expected one of l1, l2, linf, mean, but got 'l3'
refuse(nn.update_patterns, model, optimizer, norm="l3")
# CHECK-NOT: accepted
