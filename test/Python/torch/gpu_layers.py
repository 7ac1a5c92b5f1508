# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Layers by the kernels of GPUs, which the PTX interpreter runs behind a driver, beside the kernels of processors. PyTorch itself
# sees no GPU here: its tensors lie in the host's memory, and their bytes are copied to that of the driver in front of each launch,
# and back. That, the chip and the stream are made up; operators, plans, launches and kernels are those of a GPU.

# REQUIRES: ptx-run
# RUN: env LD_LIBRARY_PATH=%fake_driver SPARSE_OPT_CACHE=%t %python -u %s 2>&1 | FileCheck %s

import copy
import ctypes

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from device_memory import GPU
from refusals import refuse
from sparse_opt import Group, _gpu_products, _library
from sparse_opt.torch import _gpu, _lookup, _new_blocks, nn
from torch._subclasses import FakeTensorMode

gpu = GPU()
target = _library.target("cuda")
copied = []  # tensors, and where their bytes are
launches = 0
is_captured = False


def address_of(tensor):
    bytes = np.ctypeslib.as_array((ctypes.c_uint8 * max(tensor.nbytes, 1)).from_address(tensor.data_ptr() or ctypes.addressof(NOTHING)))
    copied.append((bytes, gpu.put(bytes)))
    return copied[-1][1]


def run(self, tokens, addresses, place, allocate, launch=_gpu_products.Plans.run):
    global launches
    launches += 1
    launch(self, tokens, addresses, place, allocate)
    for bytes, address in copied:
        bytes[...] = gpu.read(address, bytes)
        gpu.free(address)
    copied.clear()


NOTHING = ctypes.create_string_buffer(1)
here = {name: getattr(_gpu, name) for name in ("has", "place_of", "allocate", "address_of")}
there = {
    "has": lambda tensor: True,
    "place_of": lambda tensor: _gpu_products.Place("cuda:0", target, gpu.stream, is_captured),
    "allocate": lambda like, bytes: gpu.take(bytes),
    "address_of": address_of,
}
_gpu_products.Plans.run = run


def on(functions):
    vars(_gpu).update(functions)


def passes(layer, x, dy):
    """The result and the gradients of a layer."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(dy)
    return [t.detach().clone() for t in (y, x.grad, *(p.grad for p in layer.parameters() if p.grad is not None))]


def compare(what, layer, tokens):
    x, dy = torch.randn(tokens, layer.in_features).to(layer.weight.dtype), torch.randn(tokens, layer.out_features).to(layer.weight.dtype)
    found = []
    for functions in (there, here):
        on(functions)
        found.append(passes(layer, x, dy))
    on(there)
    assert len(found[0]) == len(found[1])
    bound = {torch.float32: 1e-5, torch.bfloat16: 3e-2}[layer.weight.dtype]
    for a, b in zip(*found):
        assert torch.allclose(a.float(), b.float(), atol=bound * float(b.float().abs().max() + 1e-3)), (what, tokens)


torch.manual_seed(0)
on(there)
# Forward and backward, while patterns change, and lose blocks: slots without one have a gradient of zeros.
# CHECK: torch.float32 {{$}}
# CHECK-NEXT: torch.float32 gelu
# CHECK-NEXT: torch.bfloat16 relu
for dtype, activation in (torch.float32, ""), (torch.float32, "gelu"), (torch.bfloat16, "relu"):
    layer = nn.Linear(64, 48, block=16, density=0.5, dtype=dtype, activation=activation)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for tokens in 1, 17, 130:
        compare("first", layer, tokens)
    assert nn.update_patterns(layer, optimizer, 0.5) == 3
    compare("regrown", layer, 17)
    assert nn.update_patterns(layer, optimizer, method="gmp", density=0.25) == 3
    compare("pruned", layer, 17)
    assert (layer.weight.grad.flatten(1).abs().sum(1) > 0).sum() == 3
    print(dtype, activation)

# Updates by gradients, on a schedule, are those of the processor.
models = [torch.nn.Sequential(nn.Linear(32, 64, block=8, density=0.25), torch.nn.ReLU(), nn.Linear(64, 32, block=8, density=0.25))]
models.append(copy.deepcopy(models[0]))
for model, functions in zip(models, (there, here)):
    on(functions)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sparsity = nn.Sparsity(model, optimizer, [Group(method="rigl", every=2, drop=0.5)], steps=9)
    for step in range(4):
        x = torch.randn(9, 32, generator=torch.Generator().manual_seed(step))
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        sparsity.update()
for a, b in zip(models[0].state_dict().values(), models[1].state_dict().values()):
    assert torch.allclose(a.float(), b.float(), atol=1e-5)
print("rigl", [int(layer.num_updates) for layer in models[0][::2]])  # CHECK-NEXT: rigl [2, 2]

# Tables, alone and with a head that shares their weight, take their rows by PyTorch's operations. What these make lies where their
# arguments lie: a default device without memory shows it.
class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(48, 32, 5, block=8, density=0.4)
        self.head = nn.Linear(32, 48, bias=False, block=8, density=0.4)
        self.head.weight, self.head.pattern, self.head.num_updates = self.table.weight, self.table.pattern, self.table.num_updates

    def forward(self, ids):
        return self.head(self.table(ids))


def places(*arguments, find=_lookup._places):
    with torch.device("meta"):
        return find(*arguments)


_lookup._places = places
models = [Table()]
models.append(copy.deepcopy(models[0]))
for method in "set", "rigl":
    found = []
    for model, functions in zip(models, (there, here)):
        on(functions)
        # Of a weight that both have, gradients score no blocks: of the table alone they do.
        net = model if method == "set" else model.table
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        nn.keep_gradients(net, method == "rigl")
        for ids in torch.tensor([[3, 5, 47], [5, 3, 3]]), torch.zeros(0, dtype=torch.int64):
            y = net(ids)
            y.backward(torch.ones_like(y).cumsum(-1))
        found.append((y.detach(), net.get_parameter([n for n, _ in net.named_parameters()][0]).grad.clone()))
        optimizer.step()
        with torch.device("meta") if method == "rigl" else torch.device("cpu"):
            scored = model.table.scores(model.table.kept) if method == "rigl" else None
        found[-1] += (torch.from_numpy(scored),) if method == "rigl" else ()
        assert nn.update_patterns(net, optimizer, 0.4, method=method) > 0
    for a, b in zip(*found):
        assert torch.allclose(a, b, atol=1e-5), method
    assert torch.equal(models[0].table.mask(), models[1].table.mask()) and models[0].head.pattern is models[0].table.pattern
on(there)
is_captured = True
# CHECK-NEXT: expected an embedding of blocks outside of the capture of a graph, but got one within: how many blocks rows have is read then
refuse(models[0].table, torch.tensor([1]))
is_captured = False
# CHECK-NEXT: expected indices below 48 of a table of so many rows, but got -1 to 48
refuse(models[0].table, torch.tensor([-1, 48]))
print("tables")  # CHECK-NEXT: tables

# Steps of new blocks: what hooks make of weights and moments of a GPU, whose tensors are shapes and devices alone here, lies there.
on(here)
for new_step in "matrix", "block":
    layer = nn.Linear(32, 64, bias=False, block=8, density=0.5)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        far = torch.nn.Parameter(torch.empty(layer.weight.shape, device="cuda"))
        optimizer = torch.optim.AdamW([far], capturable=True)
    ages = _new_blocks.Ages(torch.nn.Sequential(layer), [torch.optim.AdamW(layer.parameters())], new_step, 3)
    ages._weights = lambda far=far: {"0.weight": far}
    ages._optimizers = [optimizer]
    ages._watch()
    new = torch.arange(16) % 3 == 0
    ages.begin("0.weight", new, new)
    for step in range(1, 3):
        with mode:
            far.grad = torch.ones_like(far)
            optimizer.step()
        (cohort,) = ages._cohorts["0.weight"]
        assert cohort.age == step and len(cohort.slots) == 6
        if new_step == "block":
            assert cohort.state["step"].device.type == "cuda"
            break  # The next one reads the count.
print("new blocks")  # CHECK-NEXT: new blocks
_gpu.is_captured = lambda: True
with mode:
    # CHECK-NEXT: expected optimizer.step() outside of the capture of a graph with new_step or new_ramp, but got it within: a graph has no hooks
    refuse(optimizer.step)
on(there)

# What PyTorch makes of operators; products that nobody wants are not launched.
on(there)
layer = nn.Linear(32, 48, density=0.5)
x = torch.randn(5, 32, requires_grad=True)
y = layer(x)
assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), y)
assert torch.equal(checkpoint(layer, x, use_reentrant=False), y)
with torch.inference_mode():
    assert torch.equal(layer(x), y)
before = launches
layer.requires_grad_(False)(torch.randn(5, 32))
assert launches == before + 1
print("compiled, checkpointed")  # CHECK: compiled, checkpointed

# In a graph's capture nothing is read or loaded: what needs that says so.
is_captured = True
layer(x.detach())
# CHECK-NEXT: expected a call of the layer in front of the capture of a graph, but got the first one, or the first one with this pattern, within it
refuse(nn.Linear(32, 48, density=0.5), x)
# CHECK-NEXT: expected a call with as many tokens, and its backward pass, in front of the capture of a graph, but got the first one within it: kernels for 512 tokens are loaded then
refuse(layer, torch.randn(500, 32))
copied.clear()
is_captured = False
# CHECK-NEXT: expected the pattern of 3 blocks of 16x16 in 48x32, but got {{.*}}: a layer's weight and pattern belong together, and are neither averaged nor cast
layer.pattern.fill_(1)
refuse(layer, x)
