// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products and the softmax between them become attention.

#ifndef BSR_TRANSFORMS_ATTENTION_PASSES
#define BSR_TRANSFORMS_ATTENTION_PASSES

include "mlir/Pass/PassBase.td"

def BSRImportAttention : Pass<"bsr-import-attention", "ModuleOp"> {
  let summary = "Make attention of calls of functions that say that they compute it";
  let description = [{
    A front end that knows of attention, as PyTorch's of `scaled_dot_product_attention`, puts
    it into functions of its own, whose attribute `bsr.attention` says what their operands
    are (`include/bsr/Dialect/Attention.h`). Their bodies are of operations of upstream: who
    does not know the attribute inlines them. This pass makes `bsr.attention` of calls in
    front of that, and `bsr.attention_grad` of those of gradients, which need no proof.
    What a call of a gradient has in common with one of the forward pass is computed once.

    Calls stay, and are inlined, where there are fewer than `min-keys` keys, in regions, and
    where the target has no kernels for what they compute (`TargetAttrInterface::hasAttention`):
    `bsr-find-attention` says so, if it does not find it either.

    Before:

    ```mlir
    func.func @f(%q: tensor<2x8x4xf32> {bsr.name = "q"}, %k: tensor<2x8x4xf32> {bsr.name = "k"},
                 %v: tensor<2x8x4xf32> {bsr.name = "v"}) -> (tensor<2x8x4xf32> {bsr.name = "y"}) {
      %y = call @attend(%q, %k, %v)
          : (tensor<2x8x4xf32>, tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
      return %y : tensor<2x8x4xf32>
    }
    func.func private @attend(%q: tensor<2x8x4xf32>, %k: tensor<2x8x4xf32>,
                              %v: tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
        attributes {bsr.attention = {operands = ["q", "k", "v"], scale = 0.5 : f64}} {
      %0 = tensor.empty() : tensor<2x8x4xf32>
      return %0 : tensor<2x8x4xf32>
    }
    ```

    After:

    ```mlir
    func.func @f(%q: tensor<2x8x4xf32> {bsr.name = "q"}, %k: tensor<2x8x4xf32> {bsr.name = "k"},
                 %v: tensor<2x8x4xf32> {bsr.name = "v"}) -> (tensor<2x8x4xf32> {bsr.name = "y"}) {
      %y, %lse = bsr.attention(%q, %k, %v) scale = 5.000000e-01
          maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
                  affine_map<(t, i, j, d, e) -> (t, j, d)>,
                  affine_map<(t, i, j, d, e) -> (t, j, e)>,
                  affine_map<(t, i, j, d, e) -> (t, i, e)>]
          : (tensor<2x8x4xf32>, tensor<2x8x4xf32>, tensor<2x8x4xf32>)
          -> (tensor<2x8x4xf32>, tensor<2x2x8xf32>)
      return %y : tensor<2x8x4xf32>
    }
    func.func private @attend(%q: tensor<2x8x4xf32>, %k: tensor<2x8x4xf32>,
                              %v: tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
        attributes {bsr.attention = {operands = ["q", "k", "v"], scale = 0.5 : f64}} {
      %0 = tensor.empty() : tensor<2x8x4xf32>
      return %0 : tensor<2x8x4xf32>
    }
    ```
  }];
  let options = [
    Option<"minKeys", "min-keys", "int64_t", /*default=*/"1",
           "Leave attention to fewer keys as it is">,
  ];
  let statistics = [
    Statistic<"numImported", "num-imported", "Number of attentions made of calls">,
    Statistic<"numGradients", "num-gradients", "Number of gradients made of calls">,
  ];
  let dependentDialects = ["::mlir::bsr::BSRDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def BSRFindAttention : Pass<"bsr-find-attention", "func::FuncOp"> {
  let summary = "Make attention, and its gradient, of products and a softmax";
  let description = [{
    A product of queries and keys whose rows go through a softmax to a product with values
    becomes a `bsr.attention`, and the products that the backward pass makes of the same
    probabilities become a `bsr.attention_grad`: nothing of the size of queries by keys
    is in memory. The score may be scaled by a constant, then have biases added, then be
    replaced by a constant where a mask is false. However the softmax and its gradient
    are written, what counts is what they compute: the row-wise operations between the
    products are evaluated for random rows, and must give what the formulas of the
    operations give.

    A mask that depends on positions alone (causal, a sliding window, any comparison of
    positions, a constant) is evaluated: blocks of queries by keys in which it is false
    everywhere are left out, by a constant pattern, if each row has an entry or the
    program fills in negative infinity. Where it is filled with a number, that is taken to
    be so far below all scores that its power is 0: -1e9 at most.

    All uses of scores and probabilities must be part of it. What is almost attention stays,
    with a remark that names the operation in the way (`report`), an error if scores of
    at least `min-keys` keys go through a softmax (`require-sparse`), and so does attention to
    fewer than `min-keys` keys: what is saved in memory then costs time. Targets without kernels
    for an attention (`TargetAttrInterface::hasAttention`) leave it alone. A result that all
    its readers round is rounded by the operation, and the gradient reads it rounded, too.

    A mask that is an argument which `bsr-mark` marked is zero where its pattern stores no
    block: if that is where it is false, its pattern is that of the attention, and changes
    from step to step as patterns do.

    `marks` imposes patterns, which changes what the step means: scores outside of their blocks
    are left out, as if a mask of the program did it. An attention is named by its place in
    the step, `attention.0` for the first product of queries and keys, then by the line of
    the program and the scopes around it; a mark is for all whose name its regular
    expression matches, but the first that matches counts. `attention=. window=3 global=1
    random=2 block=64x64 seed=0`: each row of blocks of 64 queries has the 3 blocks of keys
    around the diagonal, the first 1, which also see everything, and 2 random ones of the
    others. What the program masks stays masked. What it matches and is no attention, or is
    computed again for a gradient, is an error, and so is a query that would see nothing.

    Before:

    ```mlir
    #q = affine_map<(t, i, j, d) -> (t, i, d)>
    #k = affine_map<(t, i, j, d) -> (t, j, d)>
    #s = affine_map<(t, i, j, d) -> (t, i, j)>
    #p = affine_map<(t, i, e, j) -> (t, i, j)>
    #v = affine_map<(t, i, e, j) -> (t, j, e)>
    #y = affine_map<(t, i, e, j) -> (t, i, e)>
    #id = affine_map<(t, i, j) -> (t, i, j)>
    #row = affine_map<(t, i, j) -> (t, i)>
    func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x8x4xf32>, %v: tensor<2x8x4xf32>)
        -> tensor<2x8x4xf32> {
      %zero = arith.constant 0.0 : f32
      %low = arith.constant 0xFF800000 : f32
      %es = tensor.empty() : tensor<2x8x8xf32>
      %er = tensor.empty() : tensor<2x8xf32>
      %ey = tensor.empty() : tensor<2x8x4xf32>
      %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
      %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
      %l0 = linalg.fill ins(%zero : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
      %y0 = linalg.fill ins(%zero : f32) outs(%ey : tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
      %s = linalg.generic {indexing_maps = [#q, #k, #s],
                           iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
          ins(%q, %k : tensor<2x8x4xf32>, tensor<2x8x4xf32>) outs(%s0 : tensor<2x8x8xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %0 = arith.mulf %a, %b : f32
        %1 = arith.addf %o, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<2x8x8xf32>
      %m = linalg.generic {indexing_maps = [#id, #row],
                           iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%s : tensor<2x8x8xf32>) outs(%m0 : tensor<2x8xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = arith.maximumf %a, %o : f32
        linalg.yield %0 : f32
      } -> tensor<2x8xf32>
      %x = linalg.generic {indexing_maps = [#id, #row, #id],
                           iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%s, %m : tensor<2x8x8xf32>, tensor<2x8xf32>) outs(%es : tensor<2x8x8xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %0 = arith.subf %a, %b : f32
        %1 = math.exp %0 : f32
        linalg.yield %1 : f32
      } -> tensor<2x8x8xf32>
      %l = linalg.generic {indexing_maps = [#id, #row],
                           iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%x : tensor<2x8x8xf32>) outs(%l0 : tensor<2x8xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = arith.addf %a, %o : f32
        linalg.yield %0 : f32
      } -> tensor<2x8xf32>
      %p = linalg.generic {indexing_maps = [#id, #row, #id],
                           iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%x, %l : tensor<2x8x8xf32>, tensor<2x8xf32>) outs(%es : tensor<2x8x8xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %0 = arith.divf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<2x8x8xf32>
      %y = linalg.generic {indexing_maps = [#p, #v, #y],
                           iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
          ins(%p, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>) outs(%y0 : tensor<2x8x4xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %0 = arith.mulf %a, %b : f32
        %1 = arith.addf %o, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<2x8x4xf32>
      return %y : tensor<2x8x4xf32>
    }
    ```

    After:

    ```mlir
    func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x8x4xf32>, %v: tensor<2x8x4xf32>)
        -> tensor<2x8x4xf32> {
      %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
          maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
                  affine_map<(t, i, j, d, e) -> (t, j, d)>,
                  affine_map<(t, i, j, d, e) -> (t, j, e)>,
                  affine_map<(t, i, j, d, e) -> (t, i, e)>]
          : (tensor<2x8x4xf32>, tensor<2x8x4xf32>, tensor<2x8x4xf32>)
          -> (tensor<2x8x4xf32>, tensor<2x2x8xf32>)
      return %y : tensor<2x8x4xf32>
    }
    ```
  }];
  let options = [
    Option<"report", "report", "bool", /*default=*/"false",
           "Say of what is almost attention which operation is in the way">,
    Option<"minKeys", "min-keys", "int64_t", /*default=*/"1",
           "Leave attention to fewer keys as it is">,
    Option<"requireSparse", "require-sparse", "bool", /*default=*/"false",
           "Fail if a softmax of a product with as many keys is no attention">,
    ListOption<"marks", "marks", "std::string",
               "Patterns to impose: attention=<regex> and options, separated by spaces, "
               "for each (separated by commas)">,
  ];
  let statistics = [
    Statistic<"numFound", "num-found", "Number of attentions found">,
    Statistic<"numGradients", "num-gradients", "Number of gradients found">,
    Statistic<"numPatterns", "num-patterns",
              "Number of attentions of which blocks are left out">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bsr::BSRDialect", "linalg::LinalgDialect",
    "tensor::TensorDialect",
  ];
}

#endif // BSR_TRANSFORMS_ATTENTION_PASSES
