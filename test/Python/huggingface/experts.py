# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Mixtures of experts of transformers as they are by default, their experts sparse:
# a compiled step against the masked eager one.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

import numpy as np
import torch
import transformers
from transformers.integrations import moe

import sparse_opt.torch

MARKS = [
    r"match=experts\..*_proj$ block=8x8 density=0.5 dims=stack,row,col",
    r"match=self_attn\..*_proj\.weight$ block=8x8 density=0.5",
]
SIZES = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64, "use_cache": False,
    "max_position_embeddings": 16, "num_local_experts": 6,
}  # fmt: skip


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def model_of(implementation=None):
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES))
    if implementation:
        model.set_experts_implementation(implementation)
    return model


def batch_of(seed):
    ids = torch.randint(3, 64, (1, 6), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "labels": ids}


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


class Hits:
    """Which experts had a token in each layer and step."""

    def __init__(self, model):
        self.sets = []
        for module in model.modules():
            if hasattr(module, "num_experts") and hasattr(module, "down_proj"):
                module.register_forward_pre_hook(self)

    def __call__(self, module, args):
        self.sets.append(frozenset(args[1].flatten().tolist()))


def compare(name, implementation, marks, is_text=False):
    model = model_of(implementation)
    optimizer = sgd(model)
    exported = sparse_opt.torch.export(train_step, model, optimizer, batch_of(0))
    if is_text:
        exported = sparse_opt.torch.Export.of(str(exported), exported.program)
    step = sparse_opt.compile(exported, marks, options=["-O", "1"])
    eager = model_of("eager")
    eager.load_state_dict(step.state_dict())
    for p in eager.parameters():
        if p.dim() > 1 and (p == 0).any():
            p.register_hook(lambda g, mask=(p != 0).float(): g * mask)
    eager_optimizer, hits = sgd(eager), Hits(eager)
    differences = []
    for i in range(5):
        got, want = step(batch_of(i)), train_step(eager, eager_optimizer, batch_of(i))
        differences.append(abs(float(got) / float(want) - 1))
    state = step.state_dict()
    for key, p in eager.named_parameters():
        differences.append(float((state[key] - p).abs().max() / p.abs().max()))
    worst = np.max(differences)  # NaN is apart
    products = step.products
    print(f"{name}: {'equal' if worst < 1e-5 else f'apart by {worst:.1e}'}", end=", ")
    print(f"{products['sddmm']} sampled, {products['left_dense']} left dense", end=", ")
    print(f"implementation {model.config._experts_implementation}", end=", ")
    print(f"experts without a token {any(len(s) < 6 for s in hits.sets)}")


# Products of groups of tokens, which is the default, and a loop over experts.

# CHECK: default: equal, 32 sampled, 0 left dense, implementation grouped_mm, experts without a token True
compare("default", None, MARKS)
# CHECK: loop: equal, 32 sampled, 0 left dense, implementation eager
compare("loop", "eager", MARKS)
# CHECK: unmarked: equal, 0 sampled, 0 left dense
compare("unmarked", None, [])
# What the user chose stays: each token's own copy of its experts.
# CHECK: batches: equal, 8 sampled, 0 left dense, implementation batched_mm
compare("batches", "batched_mm", MARKS[1:])

# Marks of experts that were exported without: what there is no program for is not exported again.
# CHECK: text: equal, 8 sampled, 24 left dense, implementation grouped_mm
compare("text", None, MARKS, is_text=True)

# Outside of an export transformers does what it did.

# CHECK: own True
print("own", "get_interface" not in moe.ALL_EXPERTS_FUNCTIONS.__dict__)
