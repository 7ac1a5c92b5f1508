# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Weights go from transformers into a step on a GPU, which is the PTX interpreter behind a
# driver, and back: the files of the processor, but for rounding once it has trained.

# REQUIRES: ptx-run
# RUN: rm -rf %t && mkdir %t
# RUN: env LD_LIBRARY_PATH=%fake_driver %python %s %t 2>/dev/null | FileCheck %s

import sys
from pathlib import Path

import safetensors.torch
import torch
from transformers import BertConfig, BertForMaskedLM

import sparse_opt
import sparse_opt.torch
from sparse_opt import huggingface

folder = Path(sys.argv[1])
ids = torch.arange(16).view(2, 8)


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    return loss.detach()


torch.manual_seed(1)
model = BertForMaskedLM(
    BertConfig(
        vocab_size=48, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=8, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
)  # fmt: skip
model.save_pretrained(folder / "dense")
exported = sparse_opt.torch.export(
    train_step,
    model,
    torch.optim.AdamW(model.parameters(), lr=1e-2),
    {"input_ids": ids, "labels": ids},
)


def compare(what):
    """Says whether the files of both devices are the same, and how far they are apart."""
    for file in huggingface.DENSE, huggingface.SPARSE:
        host, device = (
            safetensors.torch.load_file(folder / name / file) for name in ("cpu", "cuda")
        )
        assert host.keys() == device.keys()
        same = all(torch.equal(host[key], device[key]) for key in host)
        near = all(
            torch.allclose(host[key].double(), device[key].double(), atol=1e-5)
            for key in host
        )
        print(f"{what} {file}: {len(host)} tensors, same {same}, near {near}")


# CHECK: cpu: missing () unexpected ()
# CHECK-NEXT: cuda: missing () unexpected ()
# CHECK-NEXT: loaded model.safetensors: 26 tensors, same True, near True
# CHECK-NEXT: loaded sparse.safetensors: {{[0-9]+}} tensors, same True, near True
# CHECK-NEXT: losses near True
# CHECK-NEXT: trained model.safetensors: 26 tensors, same False, near True
# CHECK-NEXT: trained sparse.safetensors: {{[0-9]+}} tensors, same False, near True
# CHECK-NEXT: BertForMaskedLM
steps = {}
for name in "cpu", "cuda":
    marks = [r"match=layer.*(query|dense).weight$ block=4x4 density=0.25"]
    step = steps[name] = sparse_opt.compile(exported, marks, device=name)
    loaded = huggingface.load(step, folder / "dense")
    print(f"{name}: missing {loaded.missing} unexpected {loaded.unexpected}")
    huggingface.save(step, folder / name, config=folder / "dense")
compare("loaded")
losses = [
    [float(step({"input_ids": ids, "labels": ids})) for _ in range(2)]
    for step in steps.values()
]
print("losses near", torch.allclose(*map(torch.tensor, losses), rtol=1e-5))
for name, step in steps.items():
    huggingface.save(step, folder / name, config=folder / "dense")
compare("trained")
print(type(model.from_pretrained(folder / "cuda")).__name__)
