# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Convolutions with weights in blocks, in a loop of PyTorch's own.

# RUN: %python %s 2>&1 | FileCheck %s --implicit-check-not=accepted --implicit-check-not=False

"""Compares layers, and their gradients, with PyTorch's convolutions of the dense weight in
float64; then a network that `sparsify` makes, its training, its way back and its compiled step."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import torch
from torch import nn as dense
from torch.nn import functional

import sparse_opt.torch
from refusals import refuse
from sparse_opt.torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)


def distance(got: Any, want: Any) -> float:
    return float((got.double() - want).abs().max() / want.abs().max().clamp_min(1e-9))


def check(kind: str, shape: Any, *sizes: Any, bound: float = 1e-12, **options: Any) -> None:
    """One layer, beside PyTorch's function of its dense weight."""
    given: Any = {"block": 4, "density": 0.4, "dtype": torch.double, **options}
    layer = getattr(nn, kind)(*sizes, **given)
    x = torch.randn(shape, dtype=layer.weight.dtype, requires_grad=True)
    y = layer(x)
    dy = torch.randn_like(y)
    own = [layer.weight] + ([] if layer.bias is None else [layer.bias])
    got = torch.autograd.grad(y, [x, *own], dy)
    dims = layer.dims
    wide = layer.dense_weight().detach().double().requires_grad_()
    bias = None if layer.bias is None else layer.bias.detach().double().requires_grad_()
    image = x.detach().double().requires_grad_()
    z = getattr(functional, f"conv{dims}d")(
        image, wide.view(layer.out_channels, layer.in_channels, *layer.kernel_size), bias,
        layer.stride, layer.padding, layer.dilation,
    )  # fmt: skip
    if layer.activation:
        z = torch.relu(z)
    want = list(torch.autograd.grad(z, [image, wide] + ([] if bias is None else [bias]), dy.double()))
    twin = copy.deepcopy(layer).double()
    with torch.no_grad():
        twin.take_dense(want[1])
    want[1] = twin.weight.detach()
    worst = max(distance(a, b) for a, b in zip([y.detach(), *got], [z.detach(), *want]))
    print(f"{kind} {sizes}: {y.shape == z.shape and worst < bound}" + ("" if worst < bound else f" {worst}"))


check("Conv2d", (3, 8, 9, 7), 8, 12, 3)
check("Conv2d", (3, 8, 9, 7), 8, 12, 3, 2, 1)
check("Conv2d", (3, 8, 9, 7), 8, 12, (1, 3), (1, 2), (0, 1), (1, 2), False)
check("Conv2d", (3, 8, 9, 7), 8, 12, 3, padding="same", dilation=2)
check("Conv2d", (3, 8, 9, 7), 8, 12, 1, block=(4, 8), activation="relu")
check("Conv2d", (3, 8, 9, 7), 8, 12, 1, 2, block=1)
check("Conv2d", (3, 8, 9, 8), 8, 12, (3, 2), (3, 2), block=(12, 6))
check("Conv2d", (8, 9, 7), 8, 12, 3, padding="valid")
check("Conv2d", (2, 16, 9, 9), 16, 16, 3, block=16, dtype=torch.float32, bound=1e-5)
check("Conv2d", (2, 16, 9, 9), 16, 16, 3, block=16, dtype=torch.bfloat16, bound=2e-2)
check("Conv1d", (3, 8, 9), 8, 12, 4, 1, 2)
check("Conv1d", (8, 9), 8, 12, 1)
check("Conv3d", (2, 4, 5, 6, 7), 4, 8, (2, 3, 1), 1, (1, 0, 2))
# More images than a kernel takes at once, and odd numbers of them; padding that is wider than a
# window; rows of windows that are made first (SummedWindows.cpp), in parts and as a whole.
check("Conv2d", (23, 8, 7, 6), 8, 12, 2, padding="same")
check("Conv2d", (3, 8, 9, 7), 8, 12, (2, 3), (3, 2), (2, 3))
check("Conv2d", (3, 8, 9, 7), 8, 12, 1, (2, 3), bias=False)
check("Conv2d", (3, 8, 9, 7), 8, 12, (1, 3), (2, 1), 1)
check("Conv2d", (2, 16, 40, 31), 16, 32, 3, 1, 1, block=16, dtype=torch.float32, bound=1e-5, activation="relu")
check("Conv2d", (5, 32, 12, 13), 32, 16, 5, 1, 2, block=(8, 20), dtype=torch.float32, bound=1e-5)
check("Conv2d", (2, 16, 20, 20), 16, 16, 3, 2, 1, block=16, dtype=torch.float16, bound=3e-3)
# CHECK-COUNT-20: Conv{{.*}}: True

layer = nn.Conv2d(4, 4, 3, padding=1, block=2, density=0.5, dtype=torch.double)
x = torch.randn(2, 4, 5, 5, dtype=torch.double, requires_grad=True)
print("gradcheck", torch.autograd.gradcheck(layer, (x,)), layer)
# CHECK-NEXT: gradcheck True Conv2d(4, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), in_features=36


# Parameters that are frozen, and no images.
for frozen in ("weight", "bias"):
    getattr(layer, frozen).requires_grad_(False)
    got = torch.autograd.grad(layer(x).square().sum(), [x, *(p for p in layer.parameters() if p.requires_grad)])
    weight = layer.dense_weight().detach().view(4, 4, 3, 3).requires_grad_()
    bias = layer.bias.detach().clone().requires_grad_()
    z = functional.conv2d(x, weight, bias, padding=1).square().sum()
    want = torch.autograd.grad(z, [x, weight if frozen == "bias" else bias])
    if frozen == "bias":
        layer.take_dense(want[1].flatten(1))
        want = want[0], layer.weight.detach()
    print("frozen", frozen, all(distance(a, b) < 1e-12 for a, b in zip(got, want)))
    getattr(layer, frozen).requires_grad_(True)
print("none", layer(torch.zeros(0, 4, 5, 5, dtype=torch.double)).shape)
# CHECK: frozen weight True
# CHECK-NEXT: frozen bias True
# CHECK-NEXT: none torch.Size([0, 4, 5, 5])

# Scores of blocks, which regrow by the gradient of the dense weight, of images of two sizes.
nn.keep_gradients(layer)
weight = layer.dense_weight().detach().view(4, 4, 3, 3).requires_grad_()
for size in (5, 6):
    x = torch.randn(2, 4, size, size, dtype=torch.double)
    layer(x).square().sum().backward()
    functional.conv2d(x, weight, layer.bias.detach(), padding=1).square().sum().backward()
blocks = weight.grad.reshape(2, 2, 18, 2).abs().sum((1, 3))
print("scores", distance(torch.from_numpy(layer.scores(layer.kept)), blocks) < 1e-6)
nn.keep_gradients(layer, on=False)
# CHECK-NEXT: scores True


class Net(dense.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = dense.Conv2d(3, 16, 3, padding=1)
        self.one = dense.Conv2d(16, 32, 3, 2, 1, bias=False)
        self.norm = dense.BatchNorm2d(32)
        self.two = dense.Conv2d(32, 32, 1)
        self.grouped = dense.Conv2d(32, 32, 3, 1, 1, groups=2)
        self.out = dense.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norm(self.one(torch.relu(self.stem(x)))))
        x = torch.relu(self.two(x)) + self.grouped(x)
        return self.out(x.mean((2, 3)))


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(batch["x"]), batch["y"])
    loss.backward()
    optimizer.step()
    return loss.detach()


MARKS = [
    sparse_opt.Mark("(one|two|grouped).weight$", block=(16, 8), density=0.4, dims="row,col,col,col"),
    sparse_opt.Mark("out", block=16, density=0.5),
]
batch = {"x": torch.randn(4, 3, 8, 8), "y": torch.randint(0, 16, (4,))}
first = Net()
model = nn.sparsify(copy.deepcopy(first), MARKS, pattern="largest")
print(type(model.one).__name__, type(model.two).__name__, type(model.grouped).__name__, type(model.stem).__name__)
print(nn.marks_of(model))
# CHECK: Conv2d Conv2d Conv2d Conv2d
# CHECK-NEXT: [Mark('^one\\.weight$', block=(16, 8), density=0.38{{.*}}dims=('row', 'col', 'col', 'col')
back = nn.densify(copy.deepcopy(model))
same = torch.allclose(back(batch["x"]), model(batch["x"]), atol=1e-5)
print("back", same, type(back.one) is dense.Conv2d, type(model.one) is nn.Conv2d, type(model.grouped) is dense.Conv2d)
again = nn.sparsify(Net(), MARKS, pattern={"one.weight": model.one.mask(), "two.weight": model.two.mask(), "out.weight": model.out.mask()})
again.load_state_dict(first.state_dict(), strict=False)
print("loaded", torch.equal(again.one.weight, model.one.weight), torch.equal(again.two.weight, model.two.weight))
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
again.load_state_dict(torch.load(file))
print("saved", all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), model.state_dict().values())))
# CHECK-NEXT: back True True True True
# CHECK-NEXT: loaded True True
# CHECK-NEXT: saved True

# The same steps on weights times masks, with updates of patterns.

optimizer = torch.optim.AdamW(model.parameters(), 0.01)
twin = copy.deepcopy(nn.densify(copy.deepcopy(model))).double()
twin_optimizer = torch.optim.AdamW(twin.parameters(), 0.01)
wide = {"x": batch["x"].double(), "y": batch["y"]}
layers = {"one": model.one, "two": model.two, "out": model.out}
worst = 0.0
for i in range(6):
    got, want = float(train_step(model, optimizer, batch)), float(train_step(twin, twin_optimizer, wide))
    worst = max(worst, abs(got - want))
    for name, own in layers.items():
        weight = twin.get_submodule(name).weight
        mask = torch.kron(own.mask().double(), torch.ones(own.block, dtype=torch.double)).view(weight.shape)
        weight.data *= mask
before = model.one.mask()
pruned = nn.update_patterns(model, optimizer, 0.3)
model(batch["x"]).sum().backward()
print("trained", worst < 1e-5, pruned > 0, not torch.equal(before, model.one.mask()), model.one.weight.grad.shape == model.one.weight.shape)
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
print("compiled", torch.allclose(compiled(batch["x"]), model(batch["x"]), atol=1e-6))
# CHECK-NEXT: trained True True True True
# CHECK-NEXT: compiled True

# A whole step takes the layers over.

twin, twin_optimizer = copy.deepcopy((model, optimizer))
export = sparse_opt.torch.export(train_step, model, optimizer, batch)
step = sparse_opt.compile(export, options=["-O", "1"])
near = [abs(float(step(batch)) - float(train_step(twin, twin_optimizer, batch))) < 1e-5 for _ in range(3)]
print("step", *near, {k: v for k, v in step.products.items() if k.startswith("s")})
# CHECK: step True True True {'spmm': 3, 'spmm_transposed': 3, 'sddmm': 3}

refuse(lambda: nn.Conv2d(4, 8, 3, block=5))
refuse(lambda: nn.Conv2d(4, 8, (3, 3, 3), block=4))
refuse(lambda: nn.Conv2d(4, 8, 3, 2, "same", block=4))
refuse(lambda: nn.Conv2d(4, 8, 3, 0, block=4))
refuse(lambda: nn.Conv2d(4, 8, 3, block=4)(torch.randn(2, 5, 9, 9)))
refuse(lambda: nn.Conv2d(4, 8, 3, block=4)(torch.randn(2, 4, 9, 2)))
refuse(lambda: nn.Conv2d(4, 8, 3, block=4)(3))
refuse(lambda: nn.Conv2d(4, 8, 3, block=4)(torch.randn(2, 4, 9, 9).double()))
given = nn.Conv2d(4, 8, 3, block=4)
operands: Any = (given.weight, None, given.pattern, 8, 36)
refuse(lambda: torch.ops.sparse_opt.linear(torch.randn(2, 5, 9, 9), *operands, [3, 0, 0, 1, 1] * 2))
images = torch.randn(2, 4, 9, 9)
refuse(lambda: torch.ops.sparse_opt.linear_backward(images, images, given.weight, *operands[2:], True, True, False, None, "", [3, 0, 0, 1, 1] * 2))
refuse(lambda: nn.sparsify(Net(), ["match=grouped block=4x4 density=0.5 dims=row,col,col,col"]))
refuse(lambda: nn.densify(nn.Conv2d(4, 8, 3, block=4, activation="relu")))
# CHECK: expected blocks that divide the weight of Conv2d, 8x36, but got 5x5
# CHECK-NEXT: expected kernel_size to be an integer, or 2 of them, but got (3, 3, 3)
# CHECK-NEXT: expected padding by numbers, 'valid', or 'same' of stride 1, but got 'same'
# CHECK-NEXT: expected stride to be an integer from 1, but got 0
# CHECK-NEXT: expected an image [images, 4, 2 extents], but got [2, 5, 9, 9]
# CHECK-NEXT: expected an image of at least [3, 3] with its padding, as windows are, but got [9, 2]
# CHECK-NEXT: expected an image [images, 4, 2 extents], but got 3
# CHECK-NEXT: expected an image [images, 4, 2 extents] of torch.float32, but got [2, 4, 9, 9] of torch.float64
# CHECK-NEXT: expected images whose windows [3, 0, 0, 1, 1, 3, 0, 0, 1, 1] have 36 elements of torch.float32, but got [2, 5, 9, 9] of torch.float32
# CHECK-NEXT: expected gradients [2, 8, 7, 7] of torch.float32, but got [2, 4, 9, 9] of torch.float32
# CHECK-NEXT: expected 'match=grouped' to match the weight of a layer that blocks of 4x4 divide, but got grouped.weight (groups)
# CHECK-NEXT: expected a Conv2d without an activation to densify, but got relu
