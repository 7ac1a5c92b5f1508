# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers under DistributedDataParallel and FSDP2, beside one process.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s %t 2>&1 | FileCheck %s

import os
import sys
import warnings

import sparse_opt
import torch
from sparse_opt.torch import _linear, _updates, nn
from torch import distributed, multiprocessing
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")
MARK = "match=weight$ block=8x8 density=0.25"
STEPS = 8


def network(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
    return nn.sparsify(model, [MARK])


def batch_of(step):
    return torch.randn(48, 64, generator=torch.Generator().manual_seed(step))


def train(model, layers, part=slice(None), steps=range(STEPS), optimizer=None, evaluates=False):
    """Steps of AdamW with updates by random numbers and by gradients; returns the optimizer."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in steps:
        method = {2: "set", 5: "rigl"}.get(step)
        nn.keep_gradients(layers, on=method == "rigl")
        optimizer.zero_grad()
        model(batch_of(step)[part]).square().mean().backward()
        optimizer.step()
        if evaluates:
            model.eval()
            with torch.no_grad():
                model(batch_of(100 + step))
            model.train()
        if method:
            assert nn.update_patterns(layers, optimizer, 0.4, method=method, seed=3) > 0
    return optimizer


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def compare(model, other):
    """Whether layers have the numbers and the patterns of others."""
    for index in (0, 2):
        one, two = model[index], other[index]
        if not torch.equal(one.pattern, two.pattern) or int(one.num_updates) != int(two.num_updates):
            return False
        for name in ("weight", "bias"):
            if (whole(getattr(one, name)) - getattr(two, name)).abs().max() > 1e-5:
                return False
    return True


def part_of(rank, ranks):
    return slice(rank * 48 // ranks, (rank + 1) * 48 // ranks)


def replicated(rank, ranks, **options):
    # Ranks begin with patterns of their own: those of rank 0 count.
    model = network(rank)
    train(DistributedDataParallel(model), model, part_of(rank, ranks), **options)
    return model


def parted_state(rank, ranks):
    """Each rank has the optimizer's state of one layer alone."""
    model = network(0)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    train(DistributedDataParallel(model), model, part_of(rank, ranks), optimizer=optimizer)
    own = [bool(optimizer.optim.state.get(model[index].weight)) for index in (0, 2)]
    assert sorted(own) == [False, True], own
    return model


def scheduled(model, layers, part=slice(None)):
    """Steps of AdamW with updates whose new blocks have counts and ramps of their own."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    group = sparse_opt.Group(method="set", every=2, begin=0, end=STEPS, drop=0.4)
    options = dict(seed=3, new_values="random", new_step="block", new_ramp=3)
    sparsity = nn.Sparsity(layers, optimizer, group, steps=STEPS, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch_of(step)[part]).square().mean().backward()
        optimizer.step()
        sparsity.update()
    return sparsity


def new_blocks(rank, ranks):
    """Replicas, shards and one process make the same of new blocks."""
    part = part_of(rank, ranks)
    alone, model, shards = network(0), network(rank), network(0)
    wanted = scheduled(alone, alone).state_dict()
    states = [scheduled(DistributedDataParallel(model), model, part).state_dict()]
    for index in (0, 2):
        fully_shard(shards[index])
    states.append(scheduled(fully_shard(shards), shards, part).state_dict())
    assert compare(model, alone) and compare(shards, alone)
    assert len(wanted["new_blocks"]["blocks"]["0.weight"]) > 1
    assert all(str(state) == str(wanted) for state in states), (states, wanted)
    optimizer = ZeroRedundancyOptimizer(alone.parameters(), torch.optim.AdamW, lr=1e-2)
    try:
        nn.Sparsity(alone, optimizer, {"method": "static"}, steps=2, new_ramp=2)
    except sparse_opt.StepError as error:
        print(f"rank {rank}: {error}\n", end="", flush=True)
    return None


def averaged(ranks):
    """One process that does what ranks do: each scores the gradient of its part, and the mean of the scores counts."""
    model = network(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    own = _updates._scores
    for step in range(STEPS):
        method = {2: "set", 5: "rigl"}.get(step)
        optimizer.zero_grad()
        parts = batch_of(step).chunk(ranks)
        kept = []
        for part in parts:
            nn.keep_gradients(model, on=method == "rigl")
            (model(part).square().mean() / ranks).backward()
            kept.append({n: list(m.kept) for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        optimizer.step()

        def scores(name, layer):
            found = 0
            for held in kept:
                _linear.KEPT[layer.pattern.data_ptr()] = held[name.removesuffix('.weight')]
                found = found + own(name, layer)
            return found

        _updates._scores = scores
        if method:
            nn.update_patterns(model, optimizer, 0.4, method=method, seed=3)
        _updates._scores = own
    return model


def evaluated(rank, ranks):
    """Layers that a forward pass without a backward pass has gathered, in front of an update."""
    replica = replicated(rank, ranks, evaluates=True)
    model = network(0)
    fully_shard(model[0], reshard_after_forward=False)
    fully_shard(model)
    train(model, model, part_of(rank, ranks), evaluates=True)
    assert compare(model, replica)
    return model


def sharded(rank, ranks, folder):
    model = network(0)
    for index in (0, 2):
        fully_shard(model[index])
    fully_shard(model)
    part = part_of(rank, ranks)
    optimizer = train(model, model, part, range(6))
    # What two ranks write, any number reads.
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    checkpoint.save(state, checkpoint_id=folder)
    train(model, model, part, range(6, STEPS), optimizer)
    return model


def resumed(rank, ranks, folder):
    model = network(rank + 7)
    for index in (0, 2):
        fully_shard(model[index])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(model, model, part_of(rank, ranks), range(6, STEPS), optimizer)
    return model


def work(rank, ranks, folder, what):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet-{what.split()[0]}-{ranks}", rank=rank, world_size=ranks)
    state = f"{folder}/wanted-{2 if what == 'resumed' else ranks}.pt"
    if what == "replicated":
        model = replicated(rank, ranks)
    elif what == "evaluated":
        model = evaluated(rank, ranks)
    elif what == "parted state":
        model = parted_state(rank, ranks)
    elif what == "sharded":
        model = sharded(rank, ranks, f"{folder}/checkpoint")
    elif what == "new blocks":
        model = new_blocks(rank, ranks)
    elif what == "resumed":
        model = resumed(rank, ranks, f"{folder}/checkpoint")
    else:
        model = network(rank)
        optimizer = torch.optim.AdamW(model.parameters())
        try:
            nn.update_patterns(model, optimizer)
        except sparse_opt.StepError as error:
            print(f"rank {rank}: {error}\n", end="", flush=True)
        nn.broadcast_patterns(model)
        for p in model.parameters():
            distributed.broadcast(p.detach(), 0)
        nn.update_patterns(model, optimizer)
        found = [None] * ranks
        distributed.all_gather_object(found, [model[index].pattern.tolist() for index in (0, 2)])
        assert all(f == found[0] for f in found)
    if what not in ("apart", "new blocks"):
        wanted = network(0)
        wanted.load_state_dict(torch.load(state))
        assert compare(model, wanted), (what, ranks, rank)
    distributed.destroy_process_group()


if __name__ == "__main__":
    folder = sys.argv[1]
    torch.set_num_threads(1)
    for ranks in (2, 4):
        torch.save(averaged(ranks).state_dict(), f"{folder}/wanted-{ranks}.pt")
    # CHECK: replicated on 2 ranks
    # CHECK: replicated on 4 ranks
    # CHECK: sharded on 2 ranks
    # CHECK: resumed on 4 ranks
    # CHECK-DAG: rank 0: expected the patterns of rank 0 on all ranks, but got another pattern of '0.weight' on rank 1: give them by broadcast_patterns(model), and update them with one seed
    # CHECK-DAG: rank 1: expected the patterns of rank 0 on all ranks, but got another pattern of '0.weight' on rank 1: give them by broadcast_patterns(model), and update them with one seed
    # CHECK: apart on 2 ranks
    # CHECK: evaluated on 2 ranks
    # CHECK: parted state on 2 ranks
    # CHECK: rank {{.}}: expected an optimizer that steps all weights on each rank for new_step and new_ramp, but got ZeroRedundancyOptimizer
    # CHECK: new blocks on 2 ranks
    for what, ranks in (
        ("replicated", 2), ("replicated", 4), ("sharded", 2), ("resumed", 4), ("apart", 2), ("evaluated", 2),
        ("parted state", 2), ("new blocks", 2),
    ):  # fmt: skip
        multiprocessing.spawn(work, (ranks, folder, what), ranks)
        print(f"{what} on {ranks} ranks", flush=True)
