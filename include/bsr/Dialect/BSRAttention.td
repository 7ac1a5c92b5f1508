// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention and its gradient: two operations whose scores are never a tensor.

#ifndef BSR_DIALECT_BSRATTENTION
#define BSR_DIALECT_BSRATTENTION

def BSR_BoolTensor : Type<And<[RankedTensorOf<[I1]>.predicate, HasStaticShapePred]>,
                    "i1 tensor of static shape", "::mlir::RankedTensorType">;
def BSR_Statistics : Type<And<[RankedTensorOf<[F32, F64]>.predicate, HasStaticShapePred]>,
                          "f32 or f64 tensor of static shape", "::mlir::RankedTensorType">;

class BSR_AttentionBase<string mnemonic> : BSR_Op<mnemonic,
    [Pure, AttrSizedOperandSegments,
     DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getFlops", "getLineView"]>]> {
  let hasVerifier = 1;
}

def BSR_AttentionOp : BSR_AttentionBase<"attention"> {
  let summary = "Attention: products with a softmax in between";
  let description = [{
    For each point `t` of the batch dimensions (sequences, heads) and each query `i`:

        x[t, i, j] = scale * sum_d q[t, i, d] k[t, j, d] + bias[t, i, j]
        p[t, i, j] = exp(x[t, i, j]) / sum_j' exp(x[t, i, j'])
        y[t, i, e] = sum_j factor[t, i, j] p[t, i, j] v[t, j, e]
        lse[:, t, i] = (m, log(sum_j exp(x[t, i, j] - m))) with m = max_j x[t, i, j]

    Where `mask` is false, `x` is `fill` instead (negative infinity if absent): no
    product is part of it, and no gradient reaches one. Sums over `j` are over the keys
    of the blocks that `pattern` stores, a pattern of queries by keys, or over all keys
    without one: what is not stored has probability 0. A row in which every `x` is
    negative infinity is NaN, as a softmax in floating point is; with `zero_empty` it is
    0. A row without a stored block is that row. `factor` (1 if absent) is what dropout
    multiplies probabilities with: 0, or one divided by the share that is kept.

    `maps` says how the tensors lie: for each of q, k, v, y, and then of the bias, the mask
    and the factor if they are there, a map from the dimensions `(t..., i, j, d, e)` to those
    of the tensor. The maps of q, k, v and y are permutations of what the formulas index them
    by, but k and v may leave out batch dimensions: keys and values that several heads of
    queries share (Ainslie et al., "GQA", EMNLP 2023). The maps of the bias, the mask and the
    factor may leave out dimensions and have 0 for dimensions of extent 1. `lse` lies as
    `(2, t..., i)`.

    Kernels take keys block by block with a running maximum and sum (Milakov and
    Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
    "FlashAttention", NeurIPS 2022): neither `x` nor `p` is ever in memory. Sums are taken
    in f32 (f64 if an operand is f64).

    Example:

    ```mlir
    %y, %lse = bsr.attention(%q, %k, %v) scale = 1.250000e-01
        maps = [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
                affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
                affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
                affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>]
        : (tensor<2x4x96x64xf32>, tensor<2x4x80x64xf32>, tensor<2x4x80x32xf32>)
        -> (tensor<2x96x4x32xf32>, tensor<2x2x4x96xf32>)
    ```
  }];
  let arguments = (ins BSR_Activations:$q, BSR_Activations:$k, BSR_Activations:$v,
                       Optional<BSR_Activations>:$bias, Optional<BSR_BoolTensor>:$mask,
                       Optional<BSR_Activations>:$factor,
                       Optional<BSR_Pattern>:$pattern, F64Attr:$scale,
                       OptionalAttr<F64Attr>:$fill, UnitAttr:$zeroEmpty,
                       AffineMapArrayAttr:$maps);
  let results = (outs BSR_Activations:$y, BSR_Statistics:$lse);
  let assemblyFormat = [{
    `(` $q `,` $k `,` $v `)` (`bias` $bias^)? (`mask` $mask^)? (`factor` $factor^)?
    (`pattern` $pattern^)?
    `scale` `=` $scale (`fill` `=` $fill^)? (`zero_empty` $zeroEmpty^)?
    `maps` `=` $maps attr-dict `:` functional-type(operands, results)
  }];
}

def BSR_AttentionGradOp : BSR_AttentionBase<"attention_grad"> {
  let summary = "Gradients of attention";
  let description = [{
    What `bsr.attention` hands back to `q`, `k` and `v` for the gradient `dy` of `y`, with
    `x` and `p` as there and the same bias, mask, factor, fill and pattern:

        dp[t, i, j] = factor[t, i, j] sum_e dy[t, i, e] v[t, j, e]
        g[t, i, j]  = p[t, i, j] (dp[t, i, j] - sum_e dy[t, i, e] y[t, i, e])
        dq[t, i, d] = scale * sum_j g[t, i, j] k[t, j, d]
        dk[t, j, d] = scale * sum_i g[t, i, j] q[t, i, d]
        dv[t, j, e] = sum_i factor[t, i, j] p[t, i, j] dy[t, i, e]
        dbias[t, i, j] = g[t, i, j]

    Where `mask` is false or no block is stored, `g` is 0. `p` is computed again from `lse`,
    block by block; neither `p` nor `g` is ever in memory, but for `dbias`, the gradient of a
    bias that is trained (relative positions), which is there if the operation has that result.

    `maps` has a map for each of q, k, v, y, dy, dq, dk, dv and of dbias if it is there, then
    of the bias, the mask and the factor if they are there. The maps of dk and dv may leave
    out batch dimensions, both the same, and that of dbias any: what they are the gradients
    of is the same for all points along these, and gradients are summed up. A kernel's work
    item is a point along the batch dimensions that are left: every sum is taken in one order,
    whatever the number of threads.

    Example:

    ```mlir
    %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %dy) scale = 1.250000e-01
        maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>, affine_map<(t, i, j, d, e) -> (t, j, d)>,
                affine_map<(t, i, j, d, e) -> (t, j, e)>, affine_map<(t, i, j, d, e) -> (t, i, e)>,
                affine_map<(t, i, j, d, e) -> (t, i, e)>, affine_map<(t, i, j, d, e) -> (t, i, d)>,
                affine_map<(t, i, j, d, e) -> (t, d, j)>, affine_map<(t, i, j, d, e) -> (t, j, e)>]
        : (tensor<8x96x64xf32>, tensor<8x80x64xf32>, tensor<8x80x32xf32>, tensor<8x96x32xf32>,
           tensor<2x8x96xf32>, tensor<8x96x32xf32>)
        -> (tensor<8x96x64xf32>, tensor<8x64x80xf32>, tensor<8x80x32xf32>)
    ```
  }];
  let arguments = (ins BSR_Activations:$q, BSR_Activations:$k, BSR_Activations:$v,
                       BSR_Activations:$y, BSR_Statistics:$lse, BSR_Activations:$dy,
                       Optional<BSR_Activations>:$bias, Optional<BSR_BoolTensor>:$mask,
                       Optional<BSR_Activations>:$factor,
                       Optional<BSR_Pattern>:$pattern, F64Attr:$scale,
                       OptionalAttr<F64Attr>:$fill, UnitAttr:$zeroEmpty,
                       AffineMapArrayAttr:$maps);
  let results = (outs BSR_Activations:$dq, BSR_Activations:$dk, BSR_Activations:$dv,
                      Optional<BSR_Statistics>:$dbias);
  let assemblyFormat = [{
    `(` $q `,` $k `,` $v `,` $y `,` $lse `,` $dy `)`
    (`bias` $bias^)? (`mask` $mask^)? (`factor` $factor^)? (`pattern` $pattern^)?
    `scale` `=` $scale (`fill` `=` $fill^)? (`zero_empty` $zeroEmpty^)?
    `maps` `=` $maps attr-dict `:` functional-type(operands, results)
  }];
}

#endif // BSR_DIALECT_BSRATTENTION
