# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the tests of transformers' own models ask, of models whose tied embeddings and head are in blocks: beside the dense model
# of the same weights.

# RUN: env SPARSE_OPT_CACHE=%t %python %s 2>&1 | FileCheck %s

import copy
import tempfile

import safetensors.torch
import sparse_opt
import sparse_opt.torch
import torch
from refusals import refuse
from sparse_opt.torch import nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS = {
    "GPT-2": (GPT2LMHeadModel, GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, vocab_size=128, bos_token_id=0, eos_token_id=0,
                                          attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
              r"match=(h\.\d.*c_\w+|wte|lm_head)\.weight block=8x16 density=0.5", 9),
    "BERT": (BertForMaskedLM, BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=128, **NO_DROPOUT),
             r"match=(encoder.*(query|dense)|word_embeddings|decoder)\.weight block=8x16 density=0.5", 9),
}
torch.manual_seed(0)
ids = torch.randint(1, 128, (2, 9))
mask = torch.ones_like(ids)
mask[0, 6:] = 0


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    return loss.detach()


def require_close(a, b, what):
    apart = float((a - b).detach().abs().max())
    assert apart < 1e-5, (what, apart)


# CHECK: 9 layers have blocks now
# CHECK-COUNT-3: expected dense embeddings for resize_token_embeddings, but got layers of blocks: call it in front of sparsify, or of nn.densify(model) and sparsify that again
# CHECK: GPT-2
# CHECK: 9 layers have blocks now
# CHECK-COUNT-3: expected dense embeddings for resize_token_embeddings
# CHECK: BERT
for name, (kind, config, mark, count) in MODELS.items():
    torch.manual_seed(1)
    model = nn.sparsify(kind(config), mark, pattern="largest").eval()
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    assert isinstance(table, nn.Embedding) and head.weight is table.weight and head.pattern is table.pattern
    dense = nn.densify(copy.deepcopy(model))
    assert dense.get_output_embeddings().weight is dense.get_input_embeddings().weight

    # Forward: padded tokens, embeddings as inputs, all hidden states and attention.
    for inputs in (
        {"input_ids": ids, "attention_mask": mask},
        {"inputs_embeds": dense.get_input_embeddings()(ids).detach()},
        {"input_ids": ids[:1, :1]},
    ):
        one, other = (m(**inputs, output_hidden_states=True, output_attentions=True) for m in (model, dense))
        require_close(one.logits, other.logits, (name, *inputs))
        for a, b in zip(one.hidden_states, other.hidden_states):
            require_close(a, b, (name, "hidden states"))

    # Saved and loaded: by transformers as a dense model, and as layers, whose tied tensors are in the file once.
    with tempfile.TemporaryDirectory() as folder:
        dense.save_pretrained(folder)
        again = nn.sparsify(kind.from_pretrained(folder), mark, pattern="largest").eval()
        for (key, a), b in zip(model.state_dict().items(), again.state_dict().values()):
            assert torch.equal(a, b), (name, key)
        model.save_pretrained(folder)
        saved = safetensors.torch.load_file(f"{folder}/model.safetensors")
        assert sum(key.endswith(".pattern") for key in saved) == count, sorted(saved)
        torch.manual_seed(2)
        fresh = nn.sparsify(kind(config), mark).eval()
        missing, unexpected = safetensors.torch.load_model(fresh, f"{folder}/model.safetensors", strict=False)
        assert not missing and not unexpected, (missing, unexpected)
        assert torch.equal(fresh(input_ids=ids).logits, model(input_ids=ids).logits)

    # Gradients with checkpointed activations, of both kinds.
    gradients = []
    for options in (None, {"use_reentrant": True}, {"use_reentrant": False}):
        other = copy.deepcopy(model).train()
        if options:
            other.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        other(input_ids=ids, labels=ids).loss.backward()
        gradients.append([p.grad for p in other.parameters()])
    for other in gradients[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients[0], other)), name

    # More tokens: a sentence, of copies too; dense in between, old rows as they were.
    for other in (model, model.base_model, copy.deepcopy(model)):
        refuse(other.resize_token_embeddings, 144)
    larger = copy.deepcopy(dense)
    larger.resize_token_embeddings(144, mean_resizing=False)
    nn.sparsify(larger, mark, pattern="largest").eval()
    assert larger.get_output_embeddings().weight is larger.get_input_embeddings().weight
    assert larger(input_ids=ids).logits.shape[-1] == 144
    grown = larger.get_input_embeddings().dense_weight()
    assert grown.shape == (144, 32) and ((grown[:128] == table.dense_weight()) | (grown[:128] == 0)).all()

    # A whole step, and layers again, beside layers alone.
    model.train()
    twin = copy.deepcopy(model)
    pairs = [(m, torch.optim.AdamW(m.parameters(), lr=1e-3)) for m in (model, twin)]
    step = sparse_opt.compile(sparse_opt.torch.export(train_step, *pairs[0], ids))
    assert len(step.patterns) == count and not step.products["left_dense"], (step.patterns, step.products)
    for _ in range(3):
        require_close(step(ids), train_step(*pairs[1], ids), name)
    step.store()
    for (key, a), b in zip(model.state_dict().items(), twin.state_dict().values()):
        require_close(a, b, (name, key))
    print(name, flush=True)

# CHECK-NEXT: expected a bias [128] of torch.float32 for the layer 'cls.predictions.decoder', but got [16] of torch.float32: tie_weights of transformers takes stored blocks for rows, call it before sparsify
model.tie_weights()
refuse(model, ids)
# CHECK-NEXT: expected a bias of torch.float32, but got one of torch.bfloat16
layer = nn.Linear(32, 32)
layer.bias.data = layer.bias.data.bfloat16()
refuse(layer, torch.randn(2, 32))
