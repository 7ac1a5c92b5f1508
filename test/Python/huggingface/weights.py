# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Weights go from transformers into a step and back.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %s %t 2>/dev/null | FileCheck %s

import sys
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
)

import sparse_opt
import sparse_opt.torch
from refusals import refuse
from sparse_opt import huggingface

folder = Path(sys.argv[1])


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    return loss.detach()


def bert():
    return BertForMaskedLM(
        BertConfig(
            vocab_size=48, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=8,
        )
    )  # fmt: skip


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=48, n_embd=16, n_layer=1, n_head=2, n_positions=8,
            use_cache=False, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


ids = torch.arange(16).view(2, 8)
steps = {}


def compiled(name, make, match):
    model = make()
    exported = sparse_opt.torch.export(
        train_step,
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        {"input_ids": ids, "labels": ids},
    )
    marks = [f"match={match} block=4x4 density=0.25"]
    return sparse_opt.compile(exported, marks, options=["-O", "1"])


# The largest blocks of a saved model come in; what goes out is the model with
# zeros between them, for a fresh model of transformers too.

# CHECK: bert: missing () unexpected ()
# CHECK: bert: density 0.25, kept largest True, logits equal True, trained apart True
# CHECK: gpt2: missing () unexpected ()
# CHECK: gpt2: density 0.25, kept largest True, logits equal True, trained apart True
for name, make, match, weight in (
    ("bert", bert, r"layer.*(query|dense).weight$",
     "bert.encoder.layer.0.intermediate.dense.weight"),
    ("gpt2", gpt2, r"mlp\..*weight$", "transformer.h.0.mlp.c_fc.weight"),
):  # fmt: skip
    torch.manual_seed(1)
    pretrained = make()
    pretrained.save_pretrained(folder / name)
    step = steps[name] = compiled(name, make, match)
    loaded = huggingface.load(step, folder / name)
    print(f"{name}: missing {loaded.missing} unexpected {loaded.unexpected}")
    huggingface.save(step, folder / f"{name}-sparse", config=folder / name)
    again = type(pretrained).from_pretrained(folder / f"{name}-sparse").eval()

    # The same blocks, from PyTorch's side.
    own = pretrained.state_dict()[weight]
    grid = own.unfold(0, 4, 4).unfold(1, 4, 4).abs().sum((2, 3))
    kept = again.state_dict()[weight].unfold(0, 4, 4).unfold(1, 4, 4)
    stored = kept.abs().sum((2, 3)) > 0
    largest = bool(grid[stored].min() >= grid[~stored].max())
    with torch.no_grad():
        for key in step.patterns:
            p = pretrained.get_parameter(key)
            p.mul_(torch.from_numpy(step.read(key)) != 0)
    equal = torch.equal(pretrained.eval()(ids).logits, again(ids).logits)

    step({"input_ids": ids, "labels": ids})
    huggingface.save(step, folder / f"{name}-trained", config=folder / name)
    trained = type(pretrained).from_pretrained(folder / f"{name}-trained").eval()
    apart = not torch.equal(trained(ids).logits, again(ids).logits)
    print(
        f"{name}: density {float(stored.float().mean())}, kept largest {largest},"
        f" logits equal {equal}, trained apart {apart}"
    )

# The stored blocks alone.

# CHECK: torch.Size([9]) torch.Size([8]) torch.Size([8, 4, 4]) 32x16 in 4x4
key = "bert.encoder.layer.0.intermediate.dense.weight"
with safetensors.safe_open(folder / "bert-sparse" / "sparse.safetensors", "pt") as file:
    parts = [file.get_tensor(f"{key}.bsr.{p}") for p in ("row_ptr", "col_idx", "values")]
    print(*(p.shape for p in parts), file.metadata()[key])

# Names of old, without the head's prefix, in halves.

# CHECK: old: missing ('cls.predictions.bias', 'cls.predictions.transform.LayerNorm.bias', {{.*}}) unexpected ('pooler.dense.weight',), equal True
old = {"pooler.dense.weight": torch.ones(16, 16)}
model = bert()
for key, value in model.bert.state_dict().items():
    key = key.replace("LayerNorm.weight", "LayerNorm.gamma")
    old[key.replace("LayerNorm.bias", "LayerNorm.beta")] = value.bfloat16()
safetensors.torch.save_file(old, folder / "old.safetensors")
loaded = huggingface.load(steps["bert"], folder / "old.safetensors", pattern="keep")
name = "embeddings.LayerNorm.weight"
equal = torch.equal(
    torch.from_numpy(steps["bert"].read("bert." + name)),
    model.bert.state_dict()[name],
)
print(f"old: missing {loaded.missing} unexpected {loaded.unexpected}, equal {equal}")

# CHECK: expected a model.safetensors at '{{.*}}none', but got none: save the model with safe_serialization
refuse(huggingface.load, steps["bert"], folder / "none")

# CHECK: expected 'bert.embeddings.LayerNorm.weight' of shape [16], but got [4]
safetensors.torch.save_file({"embeddings.LayerNorm.weight": torch.ones(4)}, folder / "odd.safetensors")
refuse(huggingface.load, steps["bert"], folder / "odd.safetensors")
