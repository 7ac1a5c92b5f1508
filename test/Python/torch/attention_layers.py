# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# torch.nn.MultiheadAttention and the transformers of PyTorch with projections in blocks.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import copy
import itertools
import warnings

import torch
from refusals import refuse
from sparse_opt.torch import nn
from sparse_opt.torch._attention import MultiheadAttention

torch.manual_seed(0)
warnings.simplefilter("ignore")  # PyTorch's, of masks of two types


def masks(queries, keys, batch, is_batched):
    """Masks of each kind that PyTorch takes."""
    padding = torch.rand(batch, keys) < 0.3
    padding[:, 0] = False
    padding = padding if is_batched else padding[0]
    forbidden = torch.rand(queries, keys) < 0.3
    forbidden[:, 0] = False
    heads = (batch if is_batched else 1) * 4
    paddings = [None, padding, torch.where(padding, -3.0, 0.0)]
    for key_padding_mask, attn_mask in itertools.product(paddings, [None, forbidden, torch.randn(heads, queries, keys)]):
        yield {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask}
        if attn_mask is forbidden and queries == keys:
            causal = torch.nn.Transformer.generate_square_subsequent_mask(queries)
            yield {"key_padding_mask": key_padding_mask, "attn_mask": causal, "is_causal": True}


# Attention by parts is PyTorch's, for all that it takes.
count = 0
for batch_first, bias, sizes, is_batched, is_cross in itertools.product(
    (False, True), (False, True), ((32, 32), (24, 40)), (False, True), (False, True)
):
    dense = torch.nn.MultiheadAttention(
        32, 4, bias=bias, kdim=sizes[0], vdim=sizes[1], batch_first=batch_first
    )
    if bias:
        torch.nn.init.normal_(dense.in_proj_bias)
    parts = MultiheadAttention(dense)

    def draw(length, size):
        return torch.randn(*((3, length) if batch_first else (length, 3)) if is_batched else (length,), size)

    keys = 7 if is_cross else 5
    query = draw(5, 32)
    key, value = (query, query) if sizes[0] == 32 and not is_cross else (draw(keys, sizes[0]), draw(keys, sizes[1]))
    for given in masks(5, keys, 3, is_batched):
        for need_weights, average in itertools.product((False, True), (False, True)):
            options = {**given, "need_weights": need_weights, "average_attn_weights": average}
            (want, weights), (got, found) = (m(query, key, value, **options) for m in (dense, parts))
            assert got.shape == want.shape and torch.allclose(got, want, atol=1e-5), options
            assert (weights is None) == (found is None)
            assert weights is None or (found.shape == weights.shape and torch.allclose(found, weights, atol=1e-6)), options
            count += 1
    again = MultiheadAttention(torch.nn.MultiheadAttention(32, 4, bias=bias, kdim=sizes[0], vdim=sizes[1], batch_first=batch_first))
    again.load_state_dict(dense.state_dict())
    assert torch.equal(again(query, key, value)[0], parts(query, key, value)[0])
print(count, "calls")  # CHECK: 1344 calls


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        options = {"batch_first": True, "dropout": 0.0, "dim_feedforward": 64}
        self.encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, **options), 2)
        self.decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(32, 4, **options), 1)

    def forward(self, source, target):
        return self.decoder(target, self.encoder(source))


source, target = torch.randn(2, 9, 32), torch.randn(2, 5, 32)
first = Model()
model = nn.sparsify(copy.deepcopy(first), ["match=(in_proj_|out_proj.)weight$ block=16x8 density=0.5", "match=linear block=8x8 density=0.5"])
# CHECK: 22 layers have blocks now
assert type(model.encoder.layers[0].self_attn) is MultiheadAttention
print(*[n for n, m in model.named_modules() if type(m) is nn.Linear][:6])
# CHECK: encoder.layers.0.self_attn.q_proj encoder.layers.0.self_attn.k_proj encoder.layers.0.self_attn.v_proj encoder.layers.0.self_attn.out_proj encoder.layers.0.linear1 encoder.layers.0.linear2
plain = nn.densify(copy.deepcopy(model))
direction = torch.randn(2, 5, 32)
assert type(plain.encoder.layers[0].self_attn) is torch.nn.MultiheadAttention
assert plain.state_dict().keys() == first.state_dict().keys()
print(*nn.marks_of(model)[:2])
# CHECK: match=^encoder\.layers\.0\.self_attn\.in_proj_weight$ block=16x8 density=0.5 match=^encoder\.layers\.0\.self_attn\.out_proj\.weight$ block=16x8 density=0.5
apart = nn.sparsify(torch.nn.Sequential(torch.nn.MultiheadAttention(32, 4, kdim=24)), ["match=k_proj_weight block=8x8 density=0.5"])
print(*nn.marks_of(apart))  # CHECK: match=^0\.k_proj_weight$ block=8x8 density=0.5
mixed = nn.sparsify(torch.nn.Sequential(torch.nn.MultiheadAttention(32, 4)), ["match=in_proj_weight block=8x8 density=0.5"])
mixed[0].k_proj = torch.nn.Linear(32, 32)
refuse(nn.marks_of, mixed)
# CHECK: expected blocks of one size in all of '0.in_proj_weight', one mark of which says it, but got Linear(
for is_training in (True, False):
    for each in (model, plain):
        each.train(is_training)
        each.zero_grad()
        (each(source, target) * direction).sum().backward()
    assert torch.allclose(model(source, target), plain(source, target), atol=1e-5)
layer, dense = (m.decoder.layers[0].multihead_attn for m in (model, plain))
other = copy.deepcopy(layer.v_proj)
with torch.no_grad():
    other.weight.copy_(layer.v_proj.weight.grad)
want = dense.in_proj_weight.grad[64:] * layer.v_proj.mask().repeat_interleave(16, 0).repeat_interleave(8, 1)
assert torch.allclose(other.dense_weight(), want, atol=1e-5 * float(want.abs().max()))
model.load_state_dict(first.state_dict())
assert torch.equal(
    model.encoder.layers[0].self_attn.k_proj.bias, first.encoder.layers[0].self_attn.in_proj_bias[32:64]
)
print("trained, loaded")  # CHECK: trained, loaded

# What is not of blocks stays, also where something else is refused.
odd = torch.nn.ModuleDict({"a": torch.nn.MultiheadAttention(32, 4, add_bias_kv=True), "b": torch.nn.Linear(32, 32)})
nn.sparsify(odd, ["match=weight block=16x16 density=0.5"])
# CHECK: 1 layer has blocks now, 512 of 1,024 numbers ({{.*}}); dense as they are: a.in_proj_weight (add_bias_kv)
model = Model()
refuse(nn.sparsify, model, ["match=in_proj_weight block=16x16 density=0.5", "match=nowhere block=16x16 density=0.5"])
# CHECK: expected 'match=nowhere' to match the weight of a layer
assert type(model.encoder.layers[0].self_attn) is torch.nn.MultiheadAttention
model.encoder.layers[0].self_attn.register_forward_hook(lambda *arguments: None)
refuse(nn.sparsify, model, ["match=in_proj_weight block=16x16 density=0.5"])
# CHECK: expected a layer without hooks to replace, but got some on that of 'encoder.layers.0.self_attn': register them after sparsify
refuse(layer, source, source, source, is_causal=True)
# CHECK: expected an attn_mask beside is_causal, which is a hint, but got none
