# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the tests of transformers ask of each of its models (tests/test_modeling_common.py, which its wheels do not have), asked of
# models with layers of blocks beside the dense models of the same weights; what concerns tied weights is in tied_layers.py.

# RUN: env SPARSE_OPT_CACHE=%t %python %s 2>&1 | FileCheck %s

import copy
import inspect
import tempfile

import torch
from sparse_opt.torch import nn
from transformers import (
    BertConfig, BertForMaskedLM, BertForSequenceClassification, GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, ViTConfig,
    ViTForImageClassification,
)  # fmt: skip

BERT = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=128,
                  hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, num_labels=3)
# Blocks are of outputs by inputs, also those of Conv1D, which keeps weights the other way round.
GPT2 = GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, vocab_size=128, bos_token_id=0, eos_token_id=0, pad_token_id=0, num_labels=3)
VIT = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=8, patch_size=4, num_labels=3,
                hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
ENCODER = "match=encoder.*(query|key|value|dense)\\.weight block=8x16 density=0.5"
DECODER = "match=h\\.\\d.*c_\\w+\\.weight block=8x16 density=0.5"
random = torch.Generator().manual_seed(0)
ids = torch.randint(1, 128, (3, 9), generator=random)
images = torch.randn(3, 3, 8, 8, generator=random)
classes = torch.tensor([0, 2, 1])
# The class, its configuration, a mark, an input by its name, labels, how many layers there are and how many tokens they see.
MODELS = {
    "BERT": (BertForMaskedLM, BERT, ENCODER, {"input_ids": ids}, ids, 12, 9),
    "BERT classifying": (BertForSequenceClassification, BERT, ENCODER, {"input_ids": ids}, classes, 12, 9),
    "GPT-2": (GPT2LMHeadModel, GPT2, DECODER, {"input_ids": ids}, ids, 8, 9),
    "GPT-2 classifying": (GPT2ForSequenceClassification, GPT2, DECODER, {"input_ids": ids}, classes, 8, 9),
    "ViT": (ViTForImageClassification, VIT, "match=layers?\\..*\\.weight block=8x16 density=0.5", {"pixel_values": images}, classes, 12, 5),
}


def require_close(a, b, what, bound=1e-5):
    apart = float((a - b).detach().abs().max())
    assert apart < bound, (what, apart)


# CHECK: BERT ok
# CHECK: BERT classifying ok
# CHECK: GPT-2 ok
# CHECK: GPT-2 classifying ok
# CHECK: ViT ok
for name, (kind, config, mark, inputs, labels, count, tokens) in MODELS.items():
    torch.manual_seed(0)
    plain = kind(config)
    options = {"fuse_activations": "classifying" not in name}
    model = nn.sparsify(copy.deepcopy(plain), mark, pattern="largest", **options)
    dense = nn.densify(copy.deepcopy(model))
    layers = {path: m for path, m in model.named_modules() if isinstance(m, nn.Linear)}
    assert len(layers) == count, (name, list(layers))
    assert sum(bool(layer.activation) for layer in layers.values()) == 2 * options["fuse_activations"], name

    # test_forward_signature, test_model_get_set_embeddings, test_config: the model's class is its own.
    assert type(model) is kind and inspect.signature(model.forward) == inspect.signature(plain.forward)
    assert model.get_input_embeddings() is not None and model.num_parameters() < plain.num_parameters()
    # test_can_use_safetensors, keys of states: those of the dense model, and of each layer its pattern.
    more = {f"{path}.{key}" for path in layers for key in ("pattern", "num_updates")}
    assert set(model.state_dict()) == set(plain.state_dict()) | more
    assert {n for n, _ in model.named_parameters()} == {n for n, _ in plain.named_parameters()}
    assert set(dense.state_dict()) == set(plain.state_dict())

    # test_determinism, test_model_outputs_equivalence, test_batching_equivalence, test_inputs_embeds.
    model.eval(), dense.eval()
    with torch.no_grad():
        first, second = model(**inputs).logits, model(**inputs).logits
        assert torch.equal(first, second) and torch.equal(model(**inputs, return_dict=False)[0], first)
        require_close(first, dense(**inputs).logits, (name, "dense"))
        require_close(model(**{key: tensor[1:2] for key, tensor in inputs.items()}).logits, first[1:2], (name, "batches"))
        if "input_ids" in inputs:
            require_close(model(inputs_embeds=model.get_input_embeddings()(ids)).logits, first, (name, "embeddings"))

    # test_save_load, test_keep_in_fp32, test_load_save_without_tied_weights: through a folder, as it is and as a dense model.
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        # A class of transformers knows no patterns: it is told of the layers first.
        fresh = nn.sparsify(kind(config), mark, pattern="random", **options).eval()
        fresh.load_state_dict(model.state_dict())
        assert torch.equal(fresh(**inputs).logits, first)
        dense.save_pretrained(folder)
        loaded = kind.from_pretrained(folder).eval()
        require_close(loaded(**inputs).logits, first, (name, "from_pretrained"))
        again = nn.sparsify(loaded, mark, pattern={f"{path}.weight": m.mask().T if m.is_transposed else m.mask() for path, m in layers.items()}, **options)
        assert torch.equal(again(**inputs).logits, first)
        half = kind.from_pretrained(folder, dtype=torch.bfloat16)
        nn.sparsify(half, mark, pattern="largest", **options).eval()
        require_close(half(**inputs).logits.float(), first, (name, "bf16"), 0.1)

    # test_hidden_states_output, test_attention_outputs, test_retain_grad_hidden_states_attentions.
    for net in (model, dense):
        net.set_attn_implementation("eager")
        net.zero_grad()
    found = []
    for net in (model, dense):
        outputs = net(**inputs, output_hidden_states=True, output_attentions=True)
        kept = [outputs.hidden_states[0], outputs.hidden_states[-1], outputs.attentions[0]]
        for tensor in kept:
            tensor.retain_grad()
        outputs.logits.flatten()[0].backward()
        assert len(outputs.hidden_states) == 3 and outputs.attentions[0].shape == (3, 2, tokens, tokens)
        found.append([tensor.grad for tensor in kept])
    for a, b in zip(*found):
        require_close(a, b, (name, "retained"))

    # test_training, test_training_gradient_checkpointing: with dropout, of the same random numbers.
    gradients = []
    for checkpointing in (False, True):
        net = copy.deepcopy(model).train()
        if checkpointing:
            net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        torch.manual_seed(1)
        net(**inputs, labels=labels).loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters()), name
        gradients.append([p.grad for p in net.parameters()])
    for a, b in zip(*gradients):  # of tied weights, sums in another order
        require_close(a, b, (name, "checkpointing"), 1e-6)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    optimizer.step()
    assert all(not torch.equal(p, before[n]) for n, p in net.named_parameters()), name

    # test_problem_types, frozen parts (test_tie_model_weights is elsewhere): only what is to be trained is.
    net = copy.deepcopy(model)
    for path in layers:
        net.get_submodule(path).requires_grad_(False)
    net(**inputs, labels=labels).loss.backward()
    assert all((p.grad is not None) == p.requires_grad for p in net.parameters()), name

    # test_torch_compile_for_training: no part of a layer breaks a graph.
    net = copy.deepcopy(model).eval()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    require_close(compiled(**inputs).logits, net(**inputs).logits, (name, "compiled"))
    wanted = copy.deepcopy(model).eval()
    for each in compiled, wanted:  # of logits: the loss of GPT-2 writes a line to its log, which no graph takes
        each(**inputs).logits.log_softmax(-1).square().mean().backward()
    for (n, a), b in zip(net.named_parameters(), wanted.parameters()):
        require_close(a.grad, b.grad, (name, "compiled", n))
    print(name, "ok", flush=True)

# What the tests of generation (tests/generation/test_utils.py) and of GPT-2 ask: past keys and values, pads on the left, beams.
# CHECK: GPT-2 generating ok
kind, config, mark, *_ = MODELS["GPT-2"]
torch.manual_seed(0)
model = nn.sparsify(kind(config), mark, pattern="largest").eval()
dense = nn.densify(copy.deepcopy(model))
assert model.lm_head.weight is model.transformer.wte.weight and type(model.lm_head) is torch.nn.Linear
with torch.no_grad():
    whole = model(input_ids=ids).logits
    begun = model(input_ids=ids[:, :5], use_cache=True)
    require_close(model(input_ids=ids[:, 5:], past_key_values=begun.past_key_values).logits, whole[:, 5:], "past")
    padded = torch.cat([torch.zeros(3, 4, dtype=torch.int64), ids], 1)
    mask = torch.cat([torch.zeros(3, 4, dtype=torch.int64), torch.ones_like(ids)], 1)
    positions = (mask.cumsum(1) - 1).clamp(0)
    require_close(model(input_ids=padded, attention_mask=mask, position_ids=positions).logits[:, 4:], whole, "left pads")
    for options in ({"use_cache": True}, {"use_cache": False}, {"num_beams": 3}, {"do_sample": True, "top_k": 5}):
        found = []
        for net in (model, dense):
            torch.manual_seed(2)
            found.append(net.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, **options))
        assert torch.equal(*found), options
print("GPT-2 generating ok", flush=True)
