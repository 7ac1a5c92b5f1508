// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Marked weights become patterns and values, dense products sparse ones.

#ifndef BSR_TRANSFORMS_SPARSITY_PASSES
#define BSR_TRANSFORMS_SPARSITY_PASSES

include "mlir/Pass/PassBase.td"

def BSRMark : Pass<"bsr-mark", "ModuleOp"> {
  let summary = "Mark weights of a training step as block-sparse, by name";
  let description = [{
    Chooses what is sparse: every argument of a step whose `bsr.name` the regular
    expression `match` (POSIX, extended, found anywhere in the name) matches gets a
    `#bsr.mark` with the block and the density. An argument with a `bsr.role`
    other than `param` is never a weight. Run the pass once per group of weights;
    what an earlier run marked, a mask too, stays as it is, so the first match wins.

    Optimizer moments follow their weight without being listed: they are the
    carried arguments of the weight's shape that the weight's next value depends on
    element by element, whatever the optimizer is called. A parameter is never the
    moment of another. Copies of the weight follow it too: a carried argument whose
    next value is an element-wise function of itself, the weight and its moments (an
    average of the weights), and one that stays as it is and of which the step only
    uses the distance to the weight (where an optimizer began). Like moments, they
    keep only stored blocks, and a regrown block of theirs starts at zero, the
    weight's own new value. A parameter that the step changes so, of a weight that is
    trained, is a copy too (an average or a target network that the step keeps),
    whether `match` matches it or not.

    Code that simulates sparsity multiplies weights or gradients by masks, which are
    arguments too. `mask` says which: the arguments that it matches and that an
    element-wise operation combines with a marked weight, its gradient or its update,
    as they are or transposed, get a `#bsr.mask` that names the weight; a stack of
    weights has a stack of masks. A mask goes with one weight of all that any run
    marks. Bind then puts the pattern in their place. Nothing
    is taken for a mask without this option.

    A mask of attention, ones where queries see keys and zeros elsewhere, is marked with
    `attention-mask`, and has any role. Like a weight, it becomes a pattern and values: blocks
    of queries by keys that may be seen, and which entries of them are
    (`bsr-find-attention`). Its pattern is updated between steps like any other.

    An expression that matches nothing is an error (a warning if the step lists a name
    that it matches in `bsr.unused`, what the program has and the step does not use),
    as is a match that is no float matrix, that the block does not divide, or that is itself a moment.

    A weight of more dimensions is matrices too, if `dims` says what each dimension
    is: `dims=stack,row,col` are matrices stacked along the first, as `lax.scan` over
    layers has them, each with a pattern of its own; `dims=row,col,col` is one matrix
    whose columns are counted by the last two dimensions. Stacks come first, then
    rows, then columns. The block divides the matrix, which a pattern file has the
    shape of.

    A pattern that never changes is chosen here as well: with `pattern` instead of
    a density, the matched weights store the blocks that a file lists, and compiled
    code holds the list. The file is what `bsr_session_write_pattern` writes; four
    blocks on the diagonal of a 64x64 matrix are

    ```json
    {"format": "bsr-pattern", "version": 1, "shape": [64, 64], "block": [16, 16],
     "row_ptr": [0, 1, 2, 3, 4], "col_idx": [0, 1, 2, 3]}
    ```

    where block row `i` stores the block columns `col_idx[row_ptr[i]]` to
    `col_idx[row_ptr[i + 1] - 1]`. A static pattern numbers its slots in this order;
    slots and a column view that the file may hold besides belong to the run that
    wrote it and are not read. A file that breaks an invariant of patterns is an
    error, as is a match of another shape.

    Before, and after `--bsr-mark="match=w$ block=4x4 density=0.5"`:

    ```mlir
    func.func @sgd(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64},
                   %m: tensor<8x8xf32> {bsr.name = "momentum", bsr.result = 1 : i64},
                   %g: tensor<8x8xf32> {bsr.name = "g"})
        -> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %next_m = linalg.add ins(%m, %g : tensor<8x8xf32>, tensor<8x8xf32>)
                           outs(%m : tensor<8x8xf32>) -> tensor<8x8xf32>
      %next_w = linalg.sub ins(%w, %next_m : tensor<8x8xf32>, tensor<8x8xf32>)
                           outs(%w : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %next_w, %next_m : tensor<8x8xf32>, tensor<8x8xf32>
    }
    ```

    ```mlir
    func.func @sgd(%w: tensor<8x8xf32> {
                       bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                       bsr.name = "w", bsr.result = 0 : i64},
                   %m: tensor<8x8xf32> {
                       bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                       bsr.name = "momentum", bsr.result = 1 : i64},
                   %g: tensor<8x8xf32> {bsr.name = "g"})
        -> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %next_m = linalg.add ins(%m, %g : tensor<8x8xf32>, tensor<8x8xf32>)
                           outs(%m : tensor<8x8xf32>) -> tensor<8x8xf32>
      %next_w = linalg.sub ins(%w, %next_m : tensor<8x8xf32>, tensor<8x8xf32>)
                           outs(%w : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %next_w, %next_m : tensor<8x8xf32>, tensor<8x8xf32>
    }
    ```
  }];
  let options = [
    Option<"match", "match", "std::string", /*default=*/"\"\"",
           "Regular expression that the names of the weights match">,
    Option<"block", "block", "std::string", /*default=*/"\"\"",
           "Rows and columns of a block: <rows>x<columns> (default: those of the "
           "pattern file, or 16x16)">,
    Option<"density", "density", "std::string", /*default=*/"\"\"",
           "Share of the blocks that are stored, in (0, 1] (default: 0.1)">,
    Option<"dims", "dims", "std::string", /*default=*/"\"\"",
           "What each dimension of a weight is, separated by commas: stack, row or "
           "col (default: row,col)">,
    Option<"pattern", "pattern", "std::string", /*default=*/"\"\"",
           "File with a pattern that never changes, instead of a density">,
    Option<"mask", "mask", "std::string", /*default=*/"\"\"",
           "Regular expression that the names of the weights' masks match">,
    Option<"attentionMask", "attention-mask", "bool", /*default=*/"false",
           "The arguments that match are masks of attention, whatever their role">,
  ];
  let statistics = [
    Statistic<"numWeights", "num-weights", "Number of weights marked">,
    Statistic<"numMoments", "num-moments", "Number of optimizer moments marked">,
    Statistic<"numMasks", "num-masks", "Number of masks found">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

def BSRFlatten : Pass<"bsr-flatten", "func::FuncOp"> {
  let summary = "Turn marked arguments of several rows or columns into matrices";
  let description = [{
    Attention's weights often have a dimension for the heads, `[features, heads, head
    size]` for queries, keys and values, `[heads, head size, features]` for the output.
    A matrix is one of these all the same: the product with it sums over all of its
    rows, or yields all of its columns. An argument whose mark has several rows or
    columns (`bsr-mark` with `dims`) becomes the matrix, with the other dimensions
    collapsed, and so do its moments and masks, and the results that carry them.
    `bsr.origin` keeps the name and the shape that the program knows.

    Then the reshapes between the matrices and their old shape move away: an operation
    whose operand or result is reshaped so has its loops collapsed instead, if its maps
    allow it, until only what the program has otherwise is reshaped: activations, in
    front of and behind products. Where a product's other operand or its result has the
    dimensions apart (heads in front of tokens), it is transposed. With `w3` the reshaped matrix `w`:

    | | before | after |
    |---|---|---|
    | D1r | `contraction(x, w3)` | `contraction(x', w)`, `x'` being `x` with the summed dimensions collapsed |
    | S3r | `collapse(contraction(a, b))` | `contraction(a', b')`, the weight gradient |
    | R2 | `collapse(f(w3, x, s))` | `f(w, collapse(x), s)`: optimizers, casts, norms |

    Before:

    ```mlir
    #x = affine_map<(t, h, d, e) -> (t, e)>
    #w = affine_map<(t, h, d, e) -> (e, h, d)>
    #y = affine_map<(t, h, d, e) -> (t, h, d)>
    func.func @query(%w: tensor<16x2x8xf32> {
                         bsr.mark = #bsr.mark<block = 4x4, density = 0.5,
                                              dims = [row, col, col], weight = "w">,
                         bsr.name = "w"},
                     %x: tensor<5x16xf32>) -> tensor<5x2x8xf32> {
      %zero = arith.constant dense<0.0> : tensor<5x2x8xf32>
      %y = linalg.generic {indexing_maps = [#x, #w, #y],
                           iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
          ins(%x, %w : tensor<5x16xf32>, tensor<16x2x8xf32>) outs(%zero : tensor<5x2x8xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        %1 = arith.addf %out, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<5x2x8xf32>
      return %y : tensor<5x2x8xf32>
    }
    ```

    After:

    ```mlir
    #x = affine_map<(t, c, e) -> (t, e)>
    #w = affine_map<(t, c, e) -> (e, c)>
    #y = affine_map<(t, c, e) -> (t, c)>
    func.func @query(%w: tensor<16x16xf32> {
                         bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                         bsr.name = "w",
                         bsr.origin = {name = "w", shape = array<i64: 16, 2, 8>,
                                       offsets = array<i64: 0, 0, 0>,
                                       sizes = array<i64: 16, 2, 8>}},
                     %x: tensor<5x16xf32>) -> tensor<5x2x8xf32> {
      %zero = arith.constant dense<0.0> : tensor<5x16xf32>
      %y = linalg.generic {indexing_maps = [#x, #w, #y],
                           iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%x, %w : tensor<5x16xf32>, tensor<16x16xf32>) outs(%zero : tensor<5x16xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        %1 = arith.addf %out, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<5x16xf32>
      %z = tensor.expand_shape %y [[0], [1, 2]] output_shape [5, 2, 8]
          : tensor<5x16xf32> into tensor<5x2x8xf32>
      return %z : tensor<5x2x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numFlattened", "num-flattened", "Number of arguments made matrices">,
  ];
  let dependentDialects = ["bsr::BSRDialect", "linalg::LinalgDialect", "tensor::TensorDialect"];
}

def BSRSplitConcats : Pass<"bsr-split-concats", "func::FuncOp"> {
  let summary = "Compute with each of concatenated weights, not with all of them";
  let description = [{
    Nothing sparse is left of a matrix that the step joins with others before it
    multiplies, queries with keys and values, say; but each of them can be multiplied by
    itself. A matrix that is a concatenation (`tensor.concat`, inserted slices) of which
    one piece at least is a marked argument, or an element-wise function of one (its
    transpose, a cast), goes away from what reads it. With `x'` and `x"` the slices of
    `x` that are read with the pieces `v` and `w`:

    | | before | after |
    |---|---|---|
    | C1 | `contraction(x, concat(v, w))`, columns joined | `concat(contraction(x, v), contraction(x, w))` |
    | C2 | `contraction(x, concat(v, w)) + c`, summed rows joined | `contraction(x", w) + (contraction(x', v) + c)` |
    | C3 | `f(concat(v, w), x)` | `concat(f(v, x'), f(w, x"))` |
    | C4 | `extract(contraction(a, b))`, the gradient of a piece | `contraction(a', b')` |
    | C5 | `extract(f(a, b))`, between that product and a piece | `f(a', b')` |

    C3, and C2 without `x`, also apply to what is concatenated along the same dimension
    of a matrix of the shape of joined weights or of their transpose, cut as these are:
    a gradient whose parts are put together. C4 and C5 apply to slices of the shape of a piece, or of its transpose, if nothing
    else uses what they are taken of and none has entries of another: no entry is
    computed twice. A product with a marked weight is sparse as it is and stays whole.

    Before:

    ```mlir
    func.func @joined(%v: tensor<8x4xf32> {
                          bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "v">,
                          bsr.name = "v"},
                      %w: tensor<8x8xf32> {
                          bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                          bsr.name = "w"},
                      %x: tensor<5x8xf32>) -> tensor<5x12xf32> {
      %zero = arith.constant dense<0.0> : tensor<5x12xf32>
      %both = tensor.concat dim(1) %v, %w
          : (tensor<8x4xf32>, tensor<8x8xf32>) -> tensor<8x12xf32>
      %y = linalg.matmul ins(%x, %both : tensor<5x8xf32>, tensor<8x12xf32>)
                         outs(%zero : tensor<5x12xf32>) -> tensor<5x12xf32>
      return %y : tensor<5x12xf32>
    }
    ```

    After:

    ```mlir
    func.func @joined(%v: tensor<8x4xf32> {
                          bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "v">,
                          bsr.name = "v"},
                      %w: tensor<8x8xf32> {
                          bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                          bsr.name = "w"},
                      %x: tensor<5x8xf32>) -> tensor<5x12xf32> {
      %zw = arith.constant dense<0.0> : tensor<5x8xf32>
      %zv = arith.constant dense<0.0> : tensor<5x4xf32>
      %empty = tensor.empty() : tensor<5x12xf32>
      %xv = linalg.matmul ins(%x, %v : tensor<5x8xf32>, tensor<8x4xf32>)
                          outs(%zv : tensor<5x4xf32>) -> tensor<5x4xf32>
      %left = tensor.insert_slice %xv into %empty[0, 0] [5, 4] [1, 1]
          : tensor<5x4xf32> into tensor<5x12xf32>
      %xw = linalg.matmul ins(%x, %w : tensor<5x8xf32>, tensor<8x8xf32>)
                          outs(%zw : tensor<5x8xf32>) -> tensor<5x8xf32>
      %y = tensor.insert_slice %xw into %left[0, 4] [5, 8] [1, 1]
          : tensor<5x8xf32> into tensor<5x12xf32>
      return %y : tensor<5x12xf32>
    }
    ```
  }];
  let dependentDialects = ["arith::ArithDialect", "linalg::LinalgDialect", "tensor::TensorDialect"];
}

def BSRBind : Pass<"bsr-bind", "ModuleOp"> {
  let summary = "Turn marked arguments into patterns and stored values";
  let description = [{
    A marked argument becomes two. Its pattern is a new argument, shared by a weight
    and its moments: patterns follow all other arguments, in the order of their
    weights, so no argument changes its index; they carry the weight's `bsr.name`,
    the role `pattern` and `bsr.density`. The argument itself keeps its place and
    attributes, holds the stored values, and names its pattern's index in
    `bsr.pattern`; the result that carries its next value holds values too.
    In front of the old uses stands `bsr.to_dense`, in front of the carried result
    `bsr.sample`: the step is legal, right and slow, and `bsr-propagate` makes it fast.

    A static pattern becomes a `bsr.constant_pattern` with the weight's `bsr.name`, and
    no argument. What the manifest says of it stands in the function's `bsr.patterns`;
    `bsr.pattern_number` of the values is the place in that list.

    A mask becomes `to_dense` of ones: the pattern *is* the mask. Its argument and the
    result that carries it on disappear, so later arguments move up; the pattern
    names it in `bsr.masks`. A step that computes a new mask is an error: patterns are
    updated between steps, by the runtime.

    This is the one step that changes meaning: to what `w * mask` means under
    automatic differentiation. So the gradient is masked as well, where it is
    computed, if something besides the update sees it (clipping by norm, trust
    ratios, statistics of rows), and a remark says so: `g` becomes
    `to_dense(sample(g))`.

    What a gradient is, the program may say: `bsr.gradient` marks each, and the value that
    it is one at. Of a weight with marks these alone are gradients: those at the weight, and
    those at entry-wise functions of it and of its gradients that are zero where it is. The
    exporters of PyTorch and JAX mark what the frameworks differentiate.

    What a gradient is, if nothing says so: follow the entries of the weight from its next values and
    its moments' back to where they come from, through every operation that keeps
    entries apart (element-wise ones, transposes, reshapes, slices, concatenations,
    selections of whole tensors, `scf.if`). What enters there by mixing other
    entries, a product, a sum, or a column times a row, is a gradient, unless
    - it depends on no data of the step but through gradients found before: what
      an optimizer makes of them (orthogonalization, factored moments) is its own, or
    - another such one multiplies what the weight is multiplied with, and it neither
      does that nor depends on products with the weight: a factor of the update.

    Where no such way leads to it, the gradient is the product that multiplies what
    the weight was multiplied with, depends on the weight's product, has the weight's
    rows and columns, and belongs to no other parameter: the next value depends on it by more
    than numbers (a preconditioned one), or there is no next value. A gradient that
    is several parameters' at once (`x (a + b)`) is masked where each uses it alone,
    and so is one that is the activations' gradient too, of which those of other
    parameters are computed (a matrix of positions, added to what has no batch).
    The gradient of a weight that is only added to data, say, is an element-wise function
    of both, which nothing tells from the update. Where the derivative of a penalty
    that is not zero where the weight is (of `|w|`) is added to a gradient, the sum is
    masked. Numbers that gradients are scaled by are no gradients, even where they are
    spread over a matrix that two weights share.

    A step may use gradients on the way to its loss, or those of examples: norms as
    penalties, a step within the step, differential privacy. So every other operation is
    a gradient, too, that multiplies what the weight was multiplied with, has the
    dimensions of the weight, those along which that was multiplied from there and the others
    from what else it multiplies, and perhaps dimensions of examples. What was multiplied may
    be a function of the weight's entries: a slice, a stack or a concatenation with others,
    of which the gradient's entries are masked that are the weight's. What else it multiplies is
    what the weight was multiplied with along its other dimension; or it is anything that depends
    on the weight's product if the gradient is used as one: functions of its
    entries are summed up over the matrix, or added to the weight's; and if nothing else
    was multiplied with the same before. Look-ups multiply with the places of ones, so
    products with these, selections by place and sums of rows by place are gradients of a table.
    A gradient that the step takes from the
    weight makes another weight of it, whose gradients are found likewise; sums of one and a penalty's
    derivative are masked here as well. What reads
    the next value of a weight or of a moment, but for their update (an average, a
    norm), sees it masked, as it will be. Where sums of the weight's entries
    change them in front of its products, so that they are not zero off the pattern
    (weight standardization), nothing is masked: right, if only the update sees it.

    Where dimensions are not known (of a convolution, of a weight that had several columns), what
    may be a gradient and is used as one is warned of. So is, of a matrix that is added to
    activations, a sum over copies that is used as a gradient, and a number that is made of as
    many entries and enters next values. So is whatever else has the dimensions of a weight that is
    trained, depends on its products, is no parameter's update and is used as a gradient, if the
    update depends on it.

    Where this leaves a doubt, a warning names the weight and the operation, and the
    function's `bsr.unmasked` the weight: `bsr-propagate=require-sparse` makes it an error.
    `mask-gradients=false` leaves all gradients as they are.

    Before:

    ```mlir
    func.func @sgd(%w: tensor<8x8xf32> {
                       bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                       bsr.name = "w", bsr.result = 0 : i64},
                   %u: tensor<8x8xf32> {
                       bsr.mark = #bsr.mark<block = 4x4, density = 0.25, row_ptr = [0, 0, 1],
                                            col_idx = [1], weight = "u">,
                       bsr.name = "u"}) -> tensor<8x8xf32> {
      %next = linalg.sub ins(%w, %u : tensor<8x8xf32>, tensor<8x8xf32>)
                         outs(%w : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %next : tensor<8x8xf32>
    }
    ```

    After:

    ```mlir
    func.func @sgd(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64,
                                          bsr.result = 0 : i64},
                   %u: tensor<1x4x4xf32> {bsr.name = "u", bsr.pattern_number = 0 : i64},
                   %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {
                       bsr.density = 5.000000e-01 : f64, bsr.name = "w",
                       bsr.role = "pattern"}) -> tensor<2x4x4xf32> attributes {
                     bsr.patterns = [{col_idx = array<i32: 1>, density = 2.500000e-01 : f64,
                                      name = "u", row_ptr = array<i32: 0, 0, 1>,
                                      type = !bsr.pattern<8x8, block = 4x4, slots = 1>} ]} {
      %q = bsr.constant_pattern row_ptr = [0, 0, 1] col_idx = [1] {bsr.name = "u"}
          : !bsr.pattern<8x8, block = 4x4, slots = 1>
      %dense_u = bsr.to_dense %q, %u
          : !bsr.pattern<8x8, block = 4x4, slots = 1>, tensor<1x4x4xf32> -> tensor<8x8xf32>
      %dense = bsr.to_dense %p, %w
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<2x4x4xf32> -> tensor<8x8xf32>
      %next = linalg.sub ins(%dense, %dense_u : tensor<8x8xf32>, tensor<8x8xf32>)
                         outs(%dense : tensor<8x8xf32>) -> tensor<8x8xf32>
      %values = bsr.sample %p, %next
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<8x8xf32> -> tensor<2x4x4xf32>
      return %values : tensor<2x4x4xf32>
    }
    ```
  }];
  let options = [
    Option<"maskGradients", "mask-gradients", "bool", /*default=*/"true",
           "Mask gradients that more than the update uses">,
  ];
  let statistics = [
    Statistic<"numPatterns", "num-patterns", "Number of patterns made">,
    Statistic<"numStatic", "num-static", "Number of patterns that never change">,
    Statistic<"numValues", "num-values", "Number of arguments turned into values">,
    Statistic<"numMasked", "num-masked", "Number of weights whose gradient was masked">,
    Statistic<"numMasks", "num-masks", "Number of masks replaced by patterns">,
  ];
  let dependentDialects = ["bsr::BSRDialect", "linalg::LinalgDialect", "tensor::TensorDialect"];
}

def BSRPropagate : Pass<"bsr-propagate", "func::FuncOp"> {
  let summary = "Rewrite a step to touch only stored blocks";
  let description = [{
    Pulls every `bsr.sample` up through what it samples and pushes every
    `bsr.to_dense` down through what reads it, until they meet and cancel. With
    `p` a pattern, `v` values, `f` element-wise and `s` a scalar or a tensor whose
    entries are all the same:

    | | before | after |
    |---|---|---|
    | S1 | `sample(p, to_dense(p, v))` | `v` |
    | S2 | `sample(p, f(a, b^T, s))` | `f(sample(p, a), sample^T(p, b), s)`: the optimizer |
    | S3 | `sample(p, a^T b + c)` | `sddmm(p, a, b) + sample(p, c)`: the weight gradient |
    | S4 | `sample(p, splat s)` | `splat s` |
    | S5 | `sample(p, a^T)` | `sample^T(p, a)` |
    | S6 | `sample(p, s ? a : b)` | `s ? sample(p, a) : sample(p, b)`: an update that is taken or not |
    | V1 | `sample(p, f(a, rows, cols))` | `f(sample(p, a), sample_vec(p, rows, 0), sample_vec(p, cols, 1))` |
    | D1 | `contraction(x, to_dense(p, v)) + c` | `spmm(p, v, x) + c`, or its transpose |
    | M1 | `f(to_dense(p, splat a), s)` | `to_dense(p, splat f(a, s), f(0, s))`: masks |
    | D2 | `to_dense(p, v)^T` | `to_dense^T(p, v)` |
    | D3 | `f(to_dense(p, v), x, s)` | `to_dense(p, f(v, sample(p, x), s), background)` |
    | D4 | `sum f(to_dense(p, v), s)` | `sum of f(v, s) over live slots + num_absent(p) * f(0, s)` |
    | D5 | `sum over rows or columns of to_dense(p, v)` | `reduce_vec(p, v)`: means of squares |
    | D5b | `sum over rows or columns of f(to_dense(p, v), x, s)` | `sum of to_dense(p, f(v, sample(p, x), s), background)` |
    | E1 | `contraction(one_hot(i), to_dense(p, v))` | `gather_rows(p, v, i)`: embeddings |
    | E2 | `sample(p, one_hot(i)^T b)` | `scatter_rows(p, i, b)` |
    | E3 | `f(to_dense(p, v)[i, :], x)` | `f(gather_rows(p, v, i), x)` |
    | E4 | `sample(p, scatter_add(i, u))` | `scatter_rows(p, i, u)` |

    Each is an equality of real numbers. No rule needs `f(0) = 0`: pulling is
    always exact, and pushing keeps what `f` is off the pattern as the background of
    `to_dense`: a constant, whatever `x` is (found by folding the body), or
    computed by the same body from scalars, or `0 * x` of a finite `x`: one that
    the bounds of what computes it show to be finite, or a vector whose entries are
    looked at when the step runs; NaN stays NaN. Zeros have no sign. The samples are
    pulled by one walk from the results backwards, so the samples of one value are
    merged first; then one walk forward pushes; both repeat while either
    finds work. Contractions are matched by their maps, named or generic, in any
    order of dimensions; transposes in front of an operand are looked through.

    Not covered: two patterns in one element-wise operation, products of two
    sparse matrices, batch dimensions, reductions other than sums, what a branch
    (`scf.if`) reads. What cannot cancel stays, dense and right, and is reported as a remark
    that names the weight and the operation in the way. That no `to_dense` is left
    does not make a step sparse: a dense product of which something else needs
    every entry, although its blocks are sampled, is reported too. With
    `require-sparse` all of these are errors, and so is a gradient that `bsr-bind` did
    not find for sure.

    Before:

    ```mlir
    func.func @layer(%x: tensor<4x8xf32>, %dy: tensor<4x8xf32>, %w: tensor<2x4x4xf32>,
                     %p: !bsr.pattern<8x8, block = 4x4, slots = 2>)
        -> (tensor<4x8xf32>, tensor<2x4x4xf32>) {
      %zero = arith.constant 0.0 : f32
      %dense = bsr.to_dense %p, %w
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<2x4x4xf32> -> tensor<8x8xf32>
      %e0 = tensor.empty() : tensor<4x8xf32>
      %c0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4x8xf32>) -> tensor<4x8xf32>
      %y = linalg.matmul ins(%x, %dense : tensor<4x8xf32>, tensor<8x8xf32>)
                         outs(%c0 : tensor<4x8xf32>) -> tensor<4x8xf32>
      %e1 = tensor.empty() : tensor<8x4xf32>
      %t = linalg.transpose ins(%x : tensor<4x8xf32>) outs(%e1 : tensor<8x4xf32>)
                            permutation = [1, 0]
      %e2 = tensor.empty() : tensor<8x8xf32>
      %c2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<8x8xf32>) -> tensor<8x8xf32>
      %g = linalg.matmul ins(%t, %dy : tensor<8x4xf32>, tensor<4x8xf32>)
                         outs(%c2 : tensor<8x8xf32>) -> tensor<8x8xf32>
      %next = linalg.sub ins(%dense, %g : tensor<8x8xf32>, tensor<8x8xf32>)
                         outs(%e2 : tensor<8x8xf32>) -> tensor<8x8xf32>
      %values = bsr.sample %p, %next
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<8x8xf32> -> tensor<2x4x4xf32>
      return %y, %values : tensor<4x8xf32>, tensor<2x4x4xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
    func.func @layer(%x: tensor<4x8xf32>, %dy: tensor<4x8xf32>, %w: tensor<2x4x4xf32>,
                     %p: !bsr.pattern<8x8, block = 4x4, slots = 2>)
        -> (tensor<4x8xf32>, tensor<2x4x4xf32>) {
      %y = bsr.spmm %p, %w, %x feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<2x4x4xf32>,
            tensor<4x8xf32> -> tensor<4x8xf32>
      %g = bsr.sddmm %p, %x, %dy feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<4x8xf32>,
            tensor<4x8xf32> -> tensor<2x4x4xf32>
      %empty = tensor.empty() : tensor<2x4x4xf32>
      %next = linalg.generic {indexing_maps = [#map, #map, #map],
                              iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%w, %g : tensor<2x4x4xf32>, tensor<2x4x4xf32>)
          outs(%empty : tensor<2x4x4xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %c = arith.subf %a, %b : f32
        linalg.yield %c : f32
      } -> tensor<2x4x4xf32>
      return %y, %next : tensor<4x8xf32>, tensor<2x4x4xf32>
    }
    ```
  }];
  let options = [
    Option<"requireSparse", "require-sparse", "bool", /*default=*/"false",
           "Fail if anything stays dense">,
    Option<"report", "report", "bool", /*default=*/"false",
           "Report each weight's products, and what stays dense, as remarks">,
  ];
  let statistics = [
    Statistic<"numSpMM", "num-spmm", "Number of products with a weight (D1)">,
    Statistic<"numSpMMTransposed", "num-spmm-transposed",
              "Number of products with a transposed weight (D1)">,
    Statistic<"numSDDMM", "num-sddmm", "Number of weight gradients (S3)">,
    Statistic<"numMet", "num-met", "Number of samples that met their to_dense (S1)">,
    Statistic<"numElementWisePulled", "num-element-wise-pulled",
              "Number of element-wise operations on values by pulling (S2, S5)">,
    Statistic<"numElementWisePushed", "num-element-wise-pushed",
              "Number of element-wise operations on values by pushing (D2, D3)">,
    Statistic<"numReduced", "num-reduced", "Number of sums over a matrix (D4)">,
    Statistic<"numGathered", "num-gathered", "Number of look-ups of rows (E1, E3)">,
    Statistic<"numScattered", "num-scattered",
              "Number of gradients of look-ups (E2, E4)">,
    Statistic<"numLeftDense", "num-left-dense",
              "Number of operations that keep a weight dense">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bsr::BSRDialect", "linalg::LinalgDialect",
    "tensor::TensorDialect",
  ];
}

def BSRCountBlocks : Pass<"bsr-count-blocks", "func::FuncOp"> {
  let summary = "Correct the bias of each block by how many steps it has made";
  let description = [{
    Adam and its kin divide moments by `1 - beta^t`, where `t` counts the steps that were
    made with a whole matrix. A block that an update of the pattern brings begins with
    moments of zero, whose bias is that of its own age. This pass lets the step carry the
    age of each block: an argument of `[slots, 1, 1]` in f32, of role `count`, which counts
    as the step's own count does, and which the runtime sets to what `bsr.init` says where
    a block is new. Its name is that of the count and that of the weight:
    `count of w`. What corrects bias is computed of it, one number a block, in
    the types and by the operations that the step has.

    A carried number is a count if its next value is one more (or, by a selection or a
    minimum, a constant or itself), and a product if its next value is it times something
    (or itself). Of what the next value of a weight is made, entry by entry, these are
    computed for each block:

    - `beta^t`, `exp(c t)` and products `p`, of which the step somewhere makes `1 - beta^t`
      and so on: of the same base and exponent. In NAdam's `1 - beta^t / 2`, too;
    - `t` where it multiplies one of these (the `rho` of RAdam);
    - whatever is made of `1 - beta^t`. A learning rate in it, a decay or another function
      of `t`, stays that of the matrix, and so does all else.

    A power or a product that is one of these, and of which something else is made as well
    (`sqrt(beta^t)`), is an error, and so is a trained weight whose update corrects no
    bias. Weights with a static pattern have no new blocks, and stay as they are.

    Before:

    ```mlir
    #number = affine_map<() -> ()>
    #scalar = affine_map<(s, r, c) -> ()>
    #entry = affine_map<(s, r, c) -> (s, r, c)>
    func.func @step(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 3 : i64,
                                           bsr.result = 0 : i64},
                    %m: tensor<2x4x4xf32> {bsr.name = "m", bsr.pattern = 3 : i64,
                                           bsr.role = "state"},
                    %t: tensor<f32> {bsr.name = "t", bsr.result = 1 : i64},
                    %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {
                        bsr.name = "w", bsr.role = "pattern"})
        -> (tensor<2x4x4xf32>, tensor<f32>) {
      %beta = arith.constant 0.9 : f32
      %one = arith.constant 1.0 : f32
      %none = tensor.empty() : tensor<f32>
      %blocks = tensor.empty() : tensor<2x4x4xf32>
      %next = linalg.generic {indexing_maps = [#number, #number], iterator_types = []}
          ins(%t : tensor<f32>) outs(%none : tensor<f32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.addf %a, %one : f32
        linalg.yield %0 : f32
      } -> tensor<f32>
      %bias = linalg.generic {indexing_maps = [#number, #number], iterator_types = []}
          ins(%next : tensor<f32>) outs(%none : tensor<f32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.powf %beta, %a : f32
        %1 = arith.subf %one, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<f32>
      %new = linalg.generic {indexing_maps = [#entry, #entry, #scalar, #entry],
                             iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%w, %m, %bias : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<f32>)
          outs(%blocks : tensor<2x4x4xf32>) {
      ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
        %0 = arith.divf %b, %c : f32
        %1 = arith.subf %a, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<2x4x4xf32>
      return %new, %next : tensor<2x4x4xf32>, tensor<f32>
    }
    ```

    After, without what has become of `%t` itself:

    ```mlir
    #none = affine_map<() -> ()>
    #entry = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
    #scalar = affine_map<(d0, d1, d2) -> (d0, 0, 0)>
    func.func @step(
        %w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 3 : i64, bsr.result = 0 : i64},
        %m: tensor<2x4x4xf32> {bsr.name = "m", bsr.pattern = 3 : i64, bsr.role = "state"},
        %t: tensor<f32> {bsr.name = "t", bsr.result = 1 : i64},
        %p: !bsr.pattern<8x8, block = 4x4, slots = 2>
            {bsr.name = "w", bsr.role = "pattern"},
        %ages: tensor<2x1x1xf32>
            {bsr.init = "zeros", bsr.name = "t of w", bsr.pattern = 3 : i64, bsr.result = 2 : i64, bsr.role = "count"})
        -> (tensor<2x4x4xf32>, tensor<f32>, tensor<2x1x1xf32>) {
      %cst = arith.constant 0.899999976 : f32
      %cst_0 = arith.constant 1.000000e+00 : f32
      %0 = tensor.empty() : tensor<f32>
      %1 = tensor.empty() : tensor<2x4x4xf32>
      %2 = linalg.generic {indexing_maps = [#none, #none], iterator_types = []}
          ins(%t : tensor<f32>)
          outs(%0 : tensor<f32>) {
      ^bb0(%in: f32, %out: f32):
        %9 = arith.addf %in, %cst_0 : f32
        linalg.yield %9 : f32
      } -> tensor<f32>
      %3 = linalg.generic {indexing_maps = [#none, #none], iterator_types = []}
          ins(%2 : tensor<f32>)
          outs(%0 : tensor<f32>) {
      ^bb0(%in: f32, %out: f32):
        %9 = math.powf %cst, %in : f32
        %10 = arith.subf %cst_0, %9 : f32
        linalg.yield %10 : f32
      } -> tensor<f32>
      %4 = tensor.empty() : tensor<2x1x1xf32>
      %5 = linalg.generic {indexing_maps = [#entry, #entry],
                             iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%ages : tensor<2x1x1xf32>)
          outs(%4 : tensor<2x1x1xf32>) {
      ^bb0(%in: f32, %out: f32):
        %cst_1 = arith.constant 1.000000e+00 : f32
        %cst_2 = arith.constant 0.899999976 : f32
        %9 = arith.addf %in, %cst_1 : f32
        %10 = math.powf %cst_2, %9 : f32
        %11 = arith.subf %cst_1, %10 : f32
        linalg.yield %11 : f32
      } -> tensor<2x1x1xf32>
      %6 = linalg.generic {indexing_maps = [#entry, #entry, #scalar, #entry],
                             iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%w, %m, %5 : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x1x1xf32>)
          outs(%1 : tensor<2x4x4xf32>) {
      ^bb0(%in: f32, %in_1: f32, %in_2: f32, %out: f32):
        %9 = arith.divf %in_1, %in_2 : f32
        %10 = arith.subf %in, %9 : f32
        linalg.yield %10 : f32
      } -> tensor<2x4x4xf32>
      %7 = tensor.empty() : tensor<2x1x1xf32>
      %8 = linalg.generic {indexing_maps = [#entry, #entry],
                             iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%ages : tensor<2x1x1xf32>)
          outs(%7 : tensor<2x1x1xf32>) {
      ^bb0(%in: f32, %out: f32):
        %cst_1 = arith.constant 1.000000e+00 : f32
        %9 = arith.addf %in, %cst_1 : f32
        linalg.yield %9 : f32
      } -> tensor<2x1x1xf32>
      return %6, %2, %8 : tensor<2x4x4xf32>, tensor<f32>, tensor<2x1x1xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numCounted", "num-counted", "Number of weights whose blocks are counted">,
  ];
  let dependentDialects = ["bsr::BSRDialect", "arith::ArithDialect", "linalg::LinalgDialect",
                           "tensor::TensorDialect"];
}

def BSRRampBlocks : Pass<"bsr-ramp-blocks", "func::FuncOp"> {
  let summary = "Let the updates of new blocks rise to what the optimizer makes";
  let description = [{
    A block that an update of the pattern brings has moments that have seen few
    gradients. This pass makes its update in its a-th step a/n of what the optimizer
    makes of it, decay and all, until a = n (`steps`). It lets the step carry how old each
    block is, at most n: an argument of `[slots, 1, 1]` in f32, of role `count`,
    `block ramp of w`, which is n for the blocks of the first pattern, and which the
    runtime sets to zero where a block is new. A run that only adds up gradients
    (`apply` is false) makes nothing older. Everything that read the next value of the
    weight (copies in another type, averages) reads the one between.

    Before:

    ```mlir
    #entry = affine_map<(s, r, c) -> (s, r, c)>
    func.func @step(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64,
                                           bsr.result = 0 : i64},
                    %g: tensor<2x4x4xf32> {bsr.name = "g", bsr.pattern = 2 : i64,
                                           bsr.role = "state"},
                    %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {
                        bsr.name = "w", bsr.role = "pattern"})
        -> tensor<2x4x4xf32> {
      %blocks = tensor.empty() : tensor<2x4x4xf32>
      %new = linalg.generic {indexing_maps = [#entry, #entry, #entry],
                             iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%w, %g : tensor<2x4x4xf32>, tensor<2x4x4xf32>)
          outs(%blocks : tensor<2x4x4xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.subf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<2x4x4xf32>
      return %new : tensor<2x4x4xf32>
    }
    ```

    After `--bsr-ramp-blocks="steps=10"`:

    ```mlir
    #entry = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
    #block = affine_map<(d0, d1, d2) -> (d0, 0, 0)>
    func.func @step(
            %w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64, bsr.result = 0 : i64},
            %g: tensor<2x4x4xf32> {bsr.name = "g", bsr.pattern = 2 : i64, bsr.role = "state"},
            %p: !bsr.pattern<8x8, block = 4x4, slots = 2>
                {bsr.name = "w", bsr.role = "pattern"},
            %age: tensor<2x1x1xf32>
                {bsr.init = "constant(10)", bsr.name = "block ramp of w", bsr.pattern = 2 : i64, bsr.result = 1 : i64, bsr.role = "count"})
            -> (tensor<2x4x4xf32>, tensor<2x1x1xf32>) {
      %0 = tensor.empty() : tensor<2x4x4xf32>
      %1 = linalg.generic {indexing_maps = [#entry, #entry, #entry],
                               iterator_types = ["parallel", "parallel", "parallel"]}
            ins(%w, %g : tensor<2x4x4xf32>, tensor<2x4x4xf32>)
            outs(%0 : tensor<2x4x4xf32>) {
      ^bb0(%in: f32, %in_0: f32, %out: f32):
        %6 = arith.subf %in, %in_0 : f32
        linalg.yield %6 : f32
      } -> tensor<2x4x4xf32>
      %2 = tensor.empty() : tensor<2x1x1xf32>
      %3 = linalg.generic {indexing_maps = [#entry, #entry],
                               iterator_types = ["parallel", "parallel", "parallel"]}
            ins(%age : tensor<2x1x1xf32>)
            outs(%2 : tensor<2x1x1xf32>) {
      ^bb0(%in: f32, %out: f32):
        %cst = arith.constant 1.000000e+00 : f32
        %6 = arith.addf %in, %cst : f32
        %cst_0 = arith.constant 1.000000e+01 : f32
        %7 = arith.minimumf %6, %cst_0 : f32
        linalg.yield %7 : f32
      } -> tensor<2x1x1xf32>
      %4 = tensor.empty() : tensor<2x4x4xf32>
      %5 = linalg.generic {indexing_maps = [#entry, #entry, #block, #entry],
                               iterator_types = ["parallel", "parallel", "parallel"]}
            ins(%w, %1, %3 : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x1x1xf32>)
            outs(%4 : tensor<2x4x4xf32>) {
      ^bb0(%in: f32, %in_0: f32, %in_1: f32, %out: f32):
        %cst = arith.constant 1.000000e+01 : f32
        %6 = arith.divf %in_1, %cst : f32
        %7 = arith.subf %in_0, %in : f32
        %8 = arith.mulf %6, %7 : f32
        %9 = arith.addf %in, %8 : f32
        %cst_2 = arith.constant 1.000000e+01 : f32
        %10 = arith.cmpf oge, %in_1, %cst_2 : f32
        %11 = arith.select %10, %in_0, %9 : f32
        linalg.yield %11 : f32
      } -> tensor<2x4x4xf32>
      return %5, %3 : tensor<2x4x4xf32>, tensor<2x1x1xf32>
    }
    ```
  }];
  let options = [
    Option<"steps", "steps", "int64_t", /*default=*/"100",
           "Over how many steps updates rise, from 2">,
  ];
  let statistics = [
    Statistic<"numRamped", "num-ramped", "Number of weights whose new blocks have a ramp">,
  ];
  let dependentDialects = ["bsr::BSRDialect", "arith::ArithDialect", "linalg::LinalgDialect",
                           "tensor::TensorDialect"];
}

def BSRScoreBlocks : Pass<"bsr-score-blocks", "func::FuncOp"> {
  let summary = "Compute the scores of all blocks of each weight's gradient";
  let description = [{
    RigL regrows the blocks whose gradient is largest among those that are not
    stored. For each pattern argument of a step whose weight's gradient is one
    `bsr.sddmm`, this pass adds a result, of role `scores`, with the norm of every
    block of the dense gradient: `bsr.block_scores` of the same operands, or
    `bsr.score_rows` of those of a `bsr.scatter_rows`, the gradient of a look-up. A
    gradient that is a sum of several products (a weight used twice) has no scores,
    which a remark says. Static patterns never change and need none.

    Before:

    ```mlir
    func.func @step(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                    %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                    %x: tensor<16x8xf32> {bsr.name = "x"}, %dy: tensor<16x8xf32> {bsr.name = "dy"})
        -> tensor<2x4x4xf32> {
      %g = bsr.sddmm %p, %x, %dy feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<16x8xf32>, tensor<16x8xf32>
          -> tensor<2x4x4xf32>
      return %g : tensor<2x4x4xf32>
    }
    ```

    After:

    ```mlir
    func.func @step(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                    %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                    %x: tensor<16x8xf32> {bsr.name = "x"}, %dy: tensor<16x8xf32> {bsr.name = "dy"})
        -> (tensor<2x4x4xf32>, tensor<2x2xf32> {bsr.name = "w", bsr.role = "scores"})
        attributes {bsr.score_norm = "l1"} {
      %g = bsr.sddmm %p, %x, %dy feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<16x8xf32>, tensor<16x8xf32>
          -> tensor<2x4x4xf32>
      %s = bsr.block_scores l1 %x, %dy feature_dim = 1
          : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x2xf32>
      return %g, %s : tensor<2x4x4xf32>, tensor<2x2xf32>
    }
    ```
  }];
  let options = [
    Option<"norm", "norm", "std::string", /*default=*/"\"l1\"",
           "The norm of a block: l1, l2 or linf (see `bsr.block_scores`)">,
  ];
  let statistics = [
    Statistic<"numScores", "num-scores", "Number of weights with scores">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

#endif // BSR_TRANSFORMS_SPARSITY_PASSES
