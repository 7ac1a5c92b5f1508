# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers in models of transformers, beside the masked models, in loops as they are.

# RUN: env SPARSE_OPT_CACHE=%t %python %s 2>&1 | FileCheck %s

import copy

import torch
from sparse_opt.torch import nn
from transformers import (
    BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, T5Config,
    T5ForConditionalGeneration,
)  # fmt: skip

SIZES = {"vocab_size": 128}
MODELS = {
    "GPT-2": (GPT2LMHeadModel, GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, **SIZES),
              r"match=h\.\d.*(c_attn|c_proj|c_fc)\.weight block=8x16 density=0.5"),
    "BERT": (BertForMaskedLM, BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                         hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES), r"match=encoder.*dense\.weight block=8x8 density=0.5"),
    "LLaMA": (LlamaForCausalLM, LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, **SIZES),
              r"match=_proj\.weight block=16x8 density=0.5"),
    "T5": (T5ForConditionalGeneration, T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0, **SIZES),
           r"match=(SelfAttention|EncDecAttention|DenseReluDense).*weight block=8x8 density=0.5"),
}
# CHECK: 8 layers have blocks now, 12,288 of 24,576 numbers
# CHECK: GPT-2
# CHECK: 6 layers have blocks now
# CHECK: BERT
# CHECK: LLaMA
# CHECK: T5
for name, (kind, config, mark) in MODELS.items():
    torch.manual_seed(0)
    model = kind(config)
    plain = {n: p.shape for n, p in model.named_parameters()}
    nn.sparsify(model, [mark], pattern="largest")
    masked = nn.densify(copy.deepcopy(model))
    assert {n: p.shape for n, p in masked.named_parameters()} == plain, name
    layers = {f"{n}.weight": m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    masks = {n: m.mask().repeat_interleave(m.block[0], 0).repeat_interleave(m.block[1], 1) for n, m in layers.items()}
    masks = {n: mask.T if layers[n].is_transposed else mask for n, mask in masks.items()}
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (model, masked)]
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for step, length in enumerate((17, 5, 30, 1 if name == "T5" else 2)):
        ids = torch.randint(0, 128, (3, length))
        losses = []
        for net, optimizer in zip((model, masked), optimizers):
            net.train()
            optimizer.zero_grad()
            loss = net(input_ids=ids, labels=ids).loss
            loss.backward()
            if net is masked:
                for weight, mask in masks.items():
                    masked.get_parameter(weight).grad *= mask
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) < 1e-5 * losses[1], (name, step, losses)
    other = kind(config)
    other.load_state_dict(nn.densify(copy.deepcopy(model)).state_dict())
    model.eval(), other.eval()
    ids = torch.randint(0, 128, (2, 7))
    options = {"decoder_input_ids": ids} if name == "T5" else {}
    assert (model(input_ids=ids, **options).logits - other(input_ids=ids, **options).logits).abs().max() < 1e-5, name
    if name != "BERT":
        generated = [m.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0) for m in (model, other)]
        assert torch.equal(*generated), name
    fresh = nn.sparsify(kind(config), [mark], pattern="largest")
    fresh.load_state_dict(model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(fresh.state_dict().values(), model.state_dict().values())), name
    print(name, flush=True)
