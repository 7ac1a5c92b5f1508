# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The LLaMA of examples/generate.py is that of transformers: its loss and its gradients, of the same parameters.

# REQUIRES: jax
# RUN: %python %s | FileCheck %s
# CHECK: 21 gradients

import generate
import jax
import jax.numpy as jnp
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = generate.CONFIGS["llama_tiny"]
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=config.vocabulary, hidden_size=config.hidden, intermediate_size=config.gated,
    num_hidden_layers=config.layers, num_attention_heads=config.heads, rms_norm_eps=1e-6,
    tie_word_embeddings=False, attn_implementation="eager"))
NAMES = {
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "out": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}
theirs = {"token_embedding": "model.embed_tokens", "final_gain": "model.norm", "head_w": "lm_head"}
for i in range(config.layers):
    theirs |= {f"layers.{i}.{ours}_w": f"model.layers.{i}.{name}" for ours, name in NAMES.items()}
    norms = {"attention": "input_layernorm", "ffn": "post_attention_layernorm"}
    theirs |= {f"layers.{i}.{ours}_gain": f"model.layers.{i}.{name}" for ours, name in norms.items()}
parameters = {ours: model.get_parameter(f"{name}.weight") for ours, name in theirs.items()}
assert len(parameters) == len(list(model.parameters()))
with torch.no_grad():
    for parameter in parameters.values():
        parameter.add_(0.1 * torch.randn(parameter.shape))


def ours_of(tensor, name):
    """A matrix of theirs is [outputs, inputs]."""
    array = jnp.asarray(tensor.detach().numpy())
    return array.T if name.endswith("_w") else array


flat = {name: ours_of(parameter, name) for name, parameter in parameters.items()}
layers = [{name.split(".")[2]: value for name, value in flat.items() if name.startswith(f"layers.{i}.")}
          for i in range(config.layers)]
params = {name: value for name, value in flat.items() if "." not in name} | {"layers": layers}
ids = np.random.default_rng(0).integers(0, config.vocabulary, (config.batch, config.tokens + 1))
loss, gradient = jax.value_and_grad(generate.loss)(params, {"ids": ids[:, :-1], "labels": ids[:, 1:]}, config)
logits = model(input_ids=torch.tensor(ids[:, :-1])).logits
want = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(ids[:, 1:]).flatten())
want.backward()
np.testing.assert_allclose(loss, want.item(), rtol=1e-6)
for name, parameter in parameters.items():
    got = gradient
    for part in name.split("."):
        got = got[int(part)] if part.isdigit() else got[part]
    right = np.asarray(ours_of(parameter.grad, name))
    np.testing.assert_allclose(got, right, atol=2e-5 * np.abs(right).max(), err_msg=name)
print(f"{len(parameters)} gradients")
