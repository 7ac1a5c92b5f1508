# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# How new blocks of layers start: values, moments, step counts and ramps.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s --implicit-check-not=accepted --implicit-check-not=Traceback

import copy
import pickle

import sparse_opt.torch
import torch
from refusals import refuse
from sparse_opt import Group
from sparse_opt.torch import _new_blocks, nn
from torch.optim import SGD, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam
from torch.utils._pytree import tree_flatten

torch.set_num_threads(1)
ROWS, COLS, BLOCK = 32, 24, 8
EVERY, STEPS = 20, 200
GROUP = Group(method="set", every=EVERY, begin=0, end=STEPS + 1, drop=0.4, schedule="constant")


def made(dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(COLS, ROWS, bias=False, block=BLOCK, density=0.5, dtype=dtype)


def batch_of(step, dtype=torch.float64):
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(8, n, generator=generator, dtype=torch.float64).to(dtype) for n in (COLS, ROWS))


def loss_of(y, target):
    return (y - target).square().mean() + 0.1 * y.sin().sum()


def train(layer, optimizer, sparsity, steps, closes=False, scaler=None, after=lambda: None):
    for step in steps:
        x, target = batch_of(step, layer.weight.dtype)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(layer(x), target)
            (loss if scaler is None else scaler.scale(loss)).backward()
            return loss

        if closes:
            optimizer.step(closure)
        elif scaler is not None:
            closure()
            scaler.step(optimizer)
            scaler.update()
        else:
            closure()
            optimizer.step()
        sparsity.update()
        after()


# Of a block of age a under a count of t steps, the bias correction of t makes an update too large
# by (1 - b1^a) / (1 - b1^t) sqrt((1 - b2^t) / (1 - b2^a)), whatever its gradients are.
def excess(age, count, b1=0.9, b2=0.999):
    return (1 - b1**age) / (1 - b1**count) * ((1 - b2**count) / (1 - b2**age)) ** 0.5


for age in (1, 2, 5, 12, 50, 100, 1000):
    print(f"step {age}: {excess(age, 10**6):.2f} times, with beta2 .95 {excess(age, 10**6, b2=0.95):.2f}")
# CHECK: step 1: 3.16 times, with beta2 .95 0.45
# CHECK-NEXT: step 2: 4.25 times, with beta2 .95 0.61
# CHECK-NEXT: step 5: 5.80 times, with beta2 .95 0.86
# CHECK-NEXT: step 12: 6.57 times, with beta2 .95 1.06
# CHECK-NEXT: step 50: 4.50 times, with beta2 .95 1.04
# CHECK-NEXT: step 100: 3.24 times, with beta2 .95 1.00
# CHECK-NEXT: step 1000: 1.26 times, with beta2 .95 1.00
most = max(range(1, 2000), key=lambda age: excess(age, 10**6))
print(f"most at step {most}, {excess(most, 10**6):.2f} times")  # CHECK: most at step 12, 6.57 times

# So it is: of one state, steps with the matrix's count and with the block's own.
for new_step in ("matrix", "block"):
    layer = made()
    optimizer = Adam(layer.parameters(), lr=1e-3, eps=0)
    layer.weight.grad = torch.ones_like(layer.weight)
    optimizer.step()
    optimizer.state[layer.weight]["step"].fill_(10**6 - 1)
    sparsity = nn.Sparsity(layer, optimizer, Group(method="set", every=1, end=2, drop=0.4, schedule="constant"), steps=1000, new_step=new_step)
    sparsity.update()
    new = optimizer.state[layer.weight]["exp_avg"].sum((1, 2)) == 0
    assert new.sum() == 2
    for age in range(1, 101):
        before = layer.weight[new].detach().clone()
        layer.weight.grad = torch.randn_like(layer.weight) if age % 7 == 0 else torch.ones_like(layer.weight)
        if age == 7:
            break
        optimizer.step()
        found = (before - layer.weight[new].detach()).mean() / 1e-3
        wanted = excess(age, 10**6 + age) if new_step == "matrix" else 1
        assert abs(found - wanted) < 1e-9, (new_step, age, found, wanted)
print("factors")  # CHECK: factors


class Reference:
    """A dense masked matrix in float64, each of whose entries has a step count of its own."""

    def __init__(self, layer, kind, options, ramp=0, counts="block"):
        self.w, self.mask = layer.dense_weight().double(), self.spread(layer.mask())
        self.kind, self.options, self.ramp, self.counts = kind, options, ramp, counts
        self.m, self.v, self.top, self.age = (torch.zeros_like(self.w) for _ in range(4))
        self.product, self.old = torch.ones_like(self.w), ~torch.zeros_like(self.w, dtype=torch.bool)
        self.count = 0

    @staticmethod
    def spread(mask):
        return mask.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)

    def take(self, layer):
        """Follows an update: what came is zeros, of no age."""
        after = self.spread(layer.mask())
        fresh = after != self.mask
        for tensor in (self.w, self.m, self.v, self.top, self.age):
            tensor[fresh] = 0
        self.product[fresh] = 1
        self.old = self.old & ~fresh
        self.mask = after

    def step(self, step, lr):
        w = self.w.clone().requires_grad_()
        x, target = batch_of(step)
        g = torch.autograd.grad(loss_of(x @ (w * self.mask).T, target), w)[0]
        before = self.w.clone()
        self.age += 1
        self.count += 1
        update = self.update(g, lr, self.age if self.counts == "block" else torch.full_like(self.w, self.count))
        ramp = torch.where(self.old, 1.0, (self.age / max(self.ramp, 1)).clamp(max=1))
        self.w = (before + ramp * (update - before)) * self.mask

    def update(self, g, lr, t):
        o, w = self.options, self.w
        if self.kind is SGD:
            self.m = o["momentum"] * self.m + g
            return w - lr * self.m
        b1, b2 = o.get("betas", (0.9, 0.999))
        eps, decay = o.get("eps", 1e-8), o.get("weight_decay", 1e-2 if self.kind is AdamW else 0)
        g = -g if o.get("maximize") else g
        if self.kind is AdamW or o.get("decoupled_weight_decay"):
            w = w - lr * decay * w
        else:
            g = g + decay * w
        self.m = b1 * self.m + (1 - b1) * g
        if self.kind is Adamax:
            self.v = torch.maximum(b2 * self.v, g.abs() + eps)
            return w - lr / (1 - b1**t) * self.m / self.v
        self.v = b2 * self.v + (1 - b2) * g**2
        self.top = torch.maximum(self.top, self.v)
        spread = ((self.top if o.get("amsgrad") else self.v) / (1 - b2**t)).sqrt()
        if self.kind is NAdam:
            now, next = (b1 * (1 - 0.5 * 0.96 ** (n * o.get("momentum_decay", 4e-3))) for n in (t, t + 1))
            self.product = self.product * now
            mean = next * self.m / (1 - self.product * next) + (1 - now) * g / (1 - self.product)
            return w - lr * mean / (spread + eps)
        mean = self.m / (1 - b1**t)
        if self.kind is not RAdam:
            return w - lr * mean / (spread + eps)
        most = 2 / (1 - b2) - 1
        length = most - 2 * t * b2**t / (1 - b2**t)
        rectified = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        # PyTorch has its epsilon beside the root of what is not corrected.
        root = (1 - b2**t).sqrt() / (self.v.sqrt() + eps)
        return w - lr * mean * torch.where(length > 5, rectified.clamp(min=0).sqrt() * root, 1.0)


def compare(kind, options=None, *, new_step="block", ramp=0, schedules=False, closes=False, steps=STEPS, scaled=False, **more):
    options = options or {}
    layer = made()
    optimizer = kind(layer.parameters(), lr=1e-2, **options, **more)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 15, 0.8) if schedules else None
    sparsity = nn.Sparsity(layer, optimizer, GROUP, steps=STEPS, seed=3, new_step=new_step, new_ramp=ramp)
    reference = Reference(layer, kind, options, ramp, new_step)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0) if scaled else None
    worst, updates = 0.0, 0
    for step in range(steps):
        rate = optimizer.param_groups[0]["lr"]
        train(layer, optimizer, sparsity, [step], closes, scaler)
        if scheduler:
            scheduler.step()
        reference.step(step, rate)
        updates += int(bool((reference.spread(layer.mask()) != reference.mask).any()))
        reference.take(layer)
        worst = max(worst, float((layer.dense_weight() - reference.w).abs().max()))
    assert worst < 1e-11, (kind.__name__, options, more, worst)
    assert updates == steps // EVERY, updates


# Of numbers that optimizers keep, such as NAdam's product, the type is the default.
torch.set_default_dtype(torch.float64)
for kind, options in (
    (Adam, {}),
    (Adam, {"weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-3}),
    (Adam, {"amsgrad": True, "maximize": True}),
    (AdamW, {"weight_decay": 0.1}),
    (NAdam, {"weight_decay": 0.1}),
    (NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1, "momentum_decay": 0.1}),
    (RAdam, {"weight_decay": 0.01, "betas": (0.9, 0.99)}),
    (Adamax, {"weight_decay": 0.01}),
):
    compare(kind, options)
    compare(kind, options, steps=60, foreach=True)
compare(Adam, steps=60, fused=True)
compare(AdamW, steps=60, fused=True, scaled=True)
compare(AdamW, steps=60, schedules=True)
compare(AdamW, steps=60, closes=True)
torch.set_default_dtype(torch.float32)
print("steps of their own")  # CHECK: steps of their own

# Ramps, of any optimizer, with both counts. One longer than the way to the next update, too.
compare(SGD, {"momentum": 0.9}, new_step="matrix", ramp=10, steps=100)
compare(AdamW, new_step="matrix", ramp=10, steps=100)
compare(AdamW, ramp=30, steps=100)
compare(AdamW, new_step="matrix", ramp=1, steps=40)
print("ramps")  # CHECK: ramps

# Without an option nothing is added, and a schedule that is gone leaves nothing behind.
layer = made()
optimizer = AdamW(layer.parameters())
plain = nn.Sparsity(layer, optimizer, GROUP, steps=STEPS)
assert not optimizer._optimizer_step_pre_hooks and set(plain.state_dict()) == {"done", "methods", "history"}
own = nn.Sparsity(layer, optimizer, GROUP, steps=STEPS, new_step="block")
assert len(optimizer._optimizer_step_pre_hooks) == len(optimizer._optimizer_step_post_hooks) == 1
del own
assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
# A block that is old enough is stepped as its matrix: both counts make one step of float16.
layer = made(torch.float16)
optimizer = AdamW(layer.parameters(), lr=1e-3, betas=(0.5, 0.9))
once = Group(method="set", every=2, begin=0, end=3, drop=0.4)
sparsity = nn.Sparsity(layer, optimizer, once, steps=10000, new_step="block")
counts = []
for step in range(100):
    layer.weight.grad = torch.ones_like(layer.weight)
    optimizer.step()
    sparsity.update()
    counts.append(len(sparsity.state_dict()["new_blocks"]["blocks"]))
assert counts == [0, *[1] * 79, *[0] * 20] and 0.9**78 > 2**-12 > 0.9**79, counts
print("nothing is left")  # CHECK: nothing is left

# A run that goes on from a file, a copy and a pickle is the run that was not interrupted.
OPTIONS = dict(new_step="block", new_ramp=7, new_values="random")


def run(kind=NAdam, dtype=torch.float32, **options):
    layer = made(dtype)
    optimizer = kind([{"params": layer.parameters(), "lr": 1e-2}])
    return layer, optimizer, nn.Sparsity(layer, optimizer, GROUP, steps=STEPS, seed=3, **{**OPTIONS, **options})


def is_same(a, b):
    (one, form), (two, other) = tree_flatten(a), tree_flatten(b)
    return form == other and all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(one, two))


# load_state_dict of PyTorch rounds NAdam's product to the type of the weight: not bfloat16 of that.
for kind, dtype in ((NAdam, torch.float32), (AdamW, torch.bfloat16)):
    straight = run(kind, dtype)
    train(*straight, range(43))
    file = pickle.dumps([part.state_dict() for part in straight])
    copied, pickled = copy.deepcopy(straight), pickle.loads(pickle.dumps(straight))
    resumed = run(kind, dtype)
    for part, state in zip(resumed, pickle.loads(file)):
        part.load_state_dict(state)
    for parts in (straight, copied, pickled, resumed):
        train(*parts, range(43, 90))
    for parts in (copied, pickled, resumed):
        for part, wanted in zip(parts, straight):
            assert is_same(part.state_dict(), wanted.state_dict()), part
    other = run(kind, dtype, new_ramp=0)
    train(*other, range(90))
    assert not torch.equal(other[0].weight, straight[0].weight)
# What a model holds itself is copied with it.
layer, optimizer, sparsity = run()
object.__setattr__(layer, "parts", (optimizer, sparsity))
train(layer, optimizer, sparsity, range(25))
other = copy.deepcopy(layer)
for held in (layer, other):
    train(held, *held.parts, range(25, 50))
assert torch.equal(layer.weight, other.weight)
print("goes on")  # CHECK: goes on

# First values are those of a new layer, the same for one seed, and moments the mean of the others.
tables = []
for kind, bound in ((lambda: nn.Linear(64, 128, block=8, density=0.5), 1 / 8), (lambda: nn.Embedding(128, 64, 9, block=8, density=0.5), 0)):
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        layer = kind()
        optimizer = AdamW(layer.parameters())
        layer.weight.grad = torch.randn_like(layer.weight)
        optimizer.step()
        before, held = layer.mask(), layer.dense_weight()
        state = copy.deepcopy(optimizer.state[layer.weight])
        places = layer.pattern.clone()
        nn.update_patterns(layer, optimizer, 0.5, seed=seed, new_values="random", new_state="mean")
        after = layer.mask()
        slots, rows, cols = layer._places()
        is_new = (after & ~before)[rows, cols]
        new, padded = slots[is_new], rows[is_new] == 1
        kept = slots[(after & before)[rows, cols]]
        values = layer.weight.detach()[new]
        found.append(layer.dense_weight())
        stays = (before & after).repeat_interleave(8, 0).repeat_interleave(8, 1)
        assert torch.equal(found[-1] * stays, held * stays)
        if bound:
            assert values.abs().max() <= bound and abs(values.std() / (bound / 3**0.5) - 1) < 0.05
        else:
            assert abs(values[~padded].std() - 1) < 0.1
            assert (padded.any() or seed == 2) and not values[padded, 1].any() and values[padded, 0].all()
        for key in ("exp_avg", "exp_avg_sq"):
            tensor = optimizer.state[layer.weight][key]
            assert torch.equal(tensor[kept], state[key][kept])
            mean = state[key][kept].double().mean()
            assert (tensor[new] - mean).abs().max() <= 1e-6 * mean.abs() and mean != 0, key
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
print("first values and means")  # CHECK: first values and means

# Several weights, in two groups, of which one is trained later: each as if it were alone.


def several():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(nn.Linear(16, 16, block=4, density=0.5, bias=False) for _ in range(3)))
    weights = [layer.weight for layer in model]
    optimizer = Adam([{"params": weights[:2]}, {"params": weights[2:], "betas": (0.8, 0.9)}], lr=1e-2)
    return model, optimizer, nn.Sparsity(model, optimizer, Group(method="set", every=3, drop=0.3), steps=40, new_step="block", new_ramp=4)


def stepped(parts, joined):
    """Gradients by the names of weights; on its own, each weight is stepped by itself."""
    model, optimizer, sparsity = parts
    for step in range(20):
        for i, layer in enumerate(model):
            generator = torch.Generator().manual_seed(10 * step + i)
            layer.weight.grad = torch.randn(layer.weight.shape, generator=generator) if i != 1 or step > 5 else None
        if joined:
            optimizer.step()
        else:
            gradients = [layer.weight.grad for layer in model]
            for i, layer in enumerate(model):
                for j, other in enumerate(model):
                    other.weight.grad = gradients[j] if i == j else None
                optimizer.step()
        sparsity.update()
    return model, sparsity


(one, ages), (two, ages2) = stepped(several(), True), stepped(several(), False)
assert all((a.weight - b.weight).abs().max() < 1e-6 and torch.equal(a.pattern, b.pattern) for a, b in zip(one, two))
assert str(ages.state_dict()) == str(ages2.state_dict()) and len(ages.state_dict()["new_blocks"]["blocks"]["1.weight"]) > 1
for cohorts in ages.state_dict()["new_blocks"]["blocks"].values():
    slots = torch.cat([cohort["slots"] for cohort in cohorts])
    assert len(slots.unique()) == len(slots)
print("several weights")  # CHECK: several weights

# Slots that lost their block keep nothing, and where no other block is left state begins anew.
layer = made()
optimizer = Adagrad(layer.parameters(), initial_accumulator_value=0.5)
train(layer, optimizer, nn.Sparsity(layer, optimizer, {"method": "static"}, steps=9), range(2))
nn.update_patterns(layer, optimizer, method="gmp", density=0.1, new_state="mean")
empty = layer.weight.flatten(1).abs().sum(1) == 0
assert empty.any() and (optimizer.state[layer.weight]["sum"][empty] == 0.5).all()
layer = made()
optimizer = Adagrad(layer.parameters(), initial_accumulator_value=0.5)
train(layer, optimizer, nn.Sparsity(layer, optimizer, {"method": "static"}, steps=9), range(2))
nn.update_patterns(layer, optimizer, 1.0, new_state="mean")
assert (optimizer.state[layer.weight]["sum"] == 0.5).all()
print("no mean")  # CHECK: no mean

layer = made()
optimizer = AdamW(layer.parameters())


def scheduled(optimizer=optimizer, **options):
    return nn.Sparsity(layer, optimizer, GROUP, steps=STEPS, **options)


# CHECK-NEXT: expected an optimizer that corrects bias by its step count (Adam, AdamW, NAdam, RAdam or Adamax) for new_step 'block', but got SGD for 'weight'
# CHECK-NEXT: expected an optimizer that corrects bias by its step count (Adam, AdamW, NAdam, RAdam or Adamax) for new_step 'block', but got Adafactor for 'weight'
refuse(scheduled, SGD(layer.parameters(), lr=0.1), new_step="block")
refuse(scheduled, torch.optim.Adafactor(layer.parameters()), new_step="block")
# CHECK-NEXT: expected one of matrix, block, but got 'own'
# CHECK-NEXT: expected one of zero, random, but got 'kept'
# CHECK-NEXT: expected one of first, mean, but got 'zero'
# CHECK-NEXT: expected new_ramp to be an integer from 0, but got 1.5
# CHECK-NEXT: expected new_ramp to be an integer from 0, but got -1
# CHECK-NEXT: expected new_state 'first' with new_step 'block', which counts from the first step of a block, but got 'mean'
refuse(scheduled, new_step="own")
refuse(scheduled, new_values="kept")
refuse(scheduled, new_state="zero")
refuse(scheduled, new_ramp=1.5)
refuse(scheduled, new_ramp=-1)
refuse(scheduled, new_step="block", new_state="mean")
# CHECK-NEXT: expected one of zero, random, but got None
# CHECK-NEXT: expected one of first, mean, but got 3
refuse(nn.update_patterns, layer, optimizer, new_values=None)
refuse(nn.update_patterns, layer, optimizer, new_state=3)
# CHECK-NEXT: expected new_step or new_ramp for the state of a schedule that had them, but got neither
# CHECK-NEXT: expected new_step 'block', with which the schedule was saved, but got 'matrix'
# CHECK-NEXT: expected 'new_blocks' of what state_dict() returned, but got {}
# CHECK-NEXT: expected 'new_blocks' of what state_dict() returned, but got {'new_step': 'block', 'blocks': {'weight': [3]}}
own = scheduled(new_step="block")
refuse(scheduled().load_state_dict, own.state_dict())
refuse(scheduled(new_ramp=2).load_state_dict, own.state_dict())
for wrong in ({}, {"new_step": "block", "blocks": {"weight": [3]}}):
    refuse(own.load_state_dict, {**own.state_dict(), "new_blocks": wrong})
own.load_state_dict(scheduled().state_dict())
# CHECK-NEXT: expected layers on a processor or an NVIDIA GPU for new_step and new_ramp, but got '0.weight' on 'meta'
elsewhere = torch.nn.Sequential(nn.Linear(16, 16)).to("meta")
refuse(_new_blocks.Ages, elsewhere, [torch.optim.AdamW(elsewhere.parameters())], "block", 0)
# A compiled step has matrices with one count.
# CHECK: expected a step without blocks that have a step count or a ramp of their own, but got some of 'weight': use an nn.Sparsity without new_step and new_ramp, or wait until they are old
model, optimizer, sparsity = run(AdamW)
train(model, optimizer, sparsity, range(EVERY))


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


batch = torch.randn(8, COLS)
refuse(sparse_opt.torch.export, train_step, model, optimizer, batch)
train(model, optimizer, sparsity, range(EVERY, EVERY + 2))
