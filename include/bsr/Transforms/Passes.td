// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes, in the order of the pipeline: why, Before, After, options, statistics.

#ifndef BSR_TRANSFORMS_PASSES
#define BSR_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// Import
//===----------------------------------------------------------------------===//

def BSRUnroll : Pass<"bsr-unroll"> {
  let summary = "Unroll short loops of tensor operations";
  let description = [{
    A loop of a known number of steps becomes its steps, if these are at most
    `max-operations` linalg operations in all. What was apart, in front of the
    loop, in it and behind it, can then become one kernel. JAX's random numbers
    (threefry) are such loops: five rounds of shifts, additions and exclusive ors,
    and dropout has one for each mask; so are recurrent layers, `lax.scan` over time,
    forward and backward. A loop that multiplies by a marked weight and is longer than
    that is an error (`bsr-lower-patterns`).

    A loop over the matrices of a stacked weight (`bsr-mark` with `dims`) is unrolled
    whatever it becomes: its steps use different patterns. Where indices went
    through tensors of one entry, as JAX counts, they are scalars then.

    Before:

    ```mlir
    func.func @double_twice(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %y = scf.for %i = %c0 to %c2 step %c1 iter_args(%z = %x) -> tensor<4xf32> {
        %next = linalg.add ins(%z, %z : tensor<4xf32>, tensor<4xf32>)
                           outs(%z : tensor<4xf32>) -> tensor<4xf32>
        scf.yield %next : tensor<4xf32>
      }
      return %y : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @double_twice(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %step = arith.constant 2 : index // of the loop that is left: none
      %y = linalg.add ins(%x, %x : tensor<4xf32>, tensor<4xf32>)
                      outs(%x : tensor<4xf32>) -> tensor<4xf32>
      %z = linalg.add ins(%y, %y : tensor<4xf32>, tensor<4xf32>)
                      outs(%y : tensor<4xf32>) -> tensor<4xf32>
      return %z : tensor<4xf32>
    }
    ```
  }];
  let options = [
    Option<"maxOperations", "max-operations", "uint64_t", /*default=*/"65536",
           "The most linalg operations that a loop becomes">,
  ];
  let statistics = [
    Statistic<"numUnrolled", "num-unrolled", "Number of loops unrolled">,
  ];
}

def BSRForwardSlices : Pass<"bsr-forward-slices", "func::FuncOp"> {
  let summary = "Replace slices of what was inserted by what was inserted";
  let description = [{
    A loop that saves a value of each step for another, as the forward pass of
    `lax.scan` does for the backward one, inserts them into a tensor of all steps,
    of which the other loop takes slices. Once both are unrolled (`bsr-unroll`), a
    slice is the value that was inserted at its place, and the tensor of all steps
    is in nobody's way, or gone. Copies that only add dimensions of one entry, as
    stand between the two, become reshapes, and slices keep all dimensions, the ones
    of one entry, too, which reshapes drop: what follows knows one form.

    Before:

    ```mlir
    func.func @saved(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
      %e = tensor.empty() : tensor<2x4xf32>
      %0 = tensor.insert_slice %x into %e[0, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<2x4xf32>
      %1 = tensor.insert_slice %y into %0[1, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<2x4xf32>
      %z = tensor.extract_slice %1[0, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
      return %z : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @saved(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```
  }];
  let dependentDialects = ["tensor::TensorDialect"];
}

def BSRUnstack : Pass<"bsr-unstack", "ModuleOp"> {
  let summary = "Turn stacks of marked matrices into their matrices";
  let description = [{
    Weights of equal layers come stacked, `[layers, rows, columns]`, from
    `lax.scan` over layers or `vmap`. Each matrix has a pattern of its own, so an
    argument whose mark has a dimension `stack` becomes as many arguments as it has
    matrices: `w` becomes `w.0`, `w.1` and so on, moments and masks likewise, and so
    do the results that carry their next values. `bsr.origin` has the name and the shape
    of what they come from. All else (one pattern a matrix, methods, checkpoints,
    equal layers in one function) is then as for weights that were apart.

    What the step computes with stacks it computes matrix by matrix. With `s` a
    stack, `s[i]` its matrix `i` and `f` any `linalg` operation:

    | before | after |
    |---|---|
    | `extract_slice(s, i)` | `s[i]`, or a slice of it |
    | `insert_slice(x, s, i)[j]` | `x` if `j` is `i`, else `s[j]` |
    | `f(s, t, x)[i]`, its loop over matrices parallel | `f(s[i], t[i], x)`: the optimizer, batch products |
    | `sum f(s, x)` over matrices | `f(s[n], x) + ... + f(s[0], x)`: norms |
    | `reshape(s)[i]` | `reshape(s[i])` |
    | `fill[i]`, `splat[i]`, `empty[i]` | `fill`, `splat`, `empty` |

    Each is an equality, applied to all that stacks are part of, producers and
    users. In front of what is none of these, the matrices are stacked again: right,
    dense, and reported by `bsr-propagate`. Where a loop takes `n` layers at a time
    (`unroll=n`), stacks are split into stacks of `n` and joined again; slices are then
    those of the stack that was split.

    Before:

    ```mlir
    #map = affine_map<(l, r, c) -> (l, r, c)>
    func.func @step(%w: tensor<2x8x8xf32> {
                        bsr.mark = #bsr.mark<block = 4x4, density = 0.5,
                                             dims = [stack, row, col], weight = "w">,
                        bsr.name = "w", bsr.result = 0 : i64},
                    %x: tensor<4x8xf32> {bsr.name = "x"})
        -> (tensor<2x8x8xf32>, tensor<4x8xf32> {bsr.name = "y"}) {
      %zero = arith.constant dense<0.0> : tensor<4x8xf32>
      %first = tensor.extract_slice %w[0, 0, 0] [1, 8, 8] [1, 1, 1]
          : tensor<2x8x8xf32> to tensor<8x8xf32>
      %y = linalg.matmul ins(%x, %first : tensor<4x8xf32>, tensor<8x8xf32>)
                         outs(%zero : tensor<4x8xf32>) -> tensor<4x8xf32>
      %empty = tensor.empty() : tensor<2x8x8xf32>
      %next = linalg.generic {indexing_maps = [#map, #map],
                              iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%w : tensor<2x8x8xf32>) outs(%empty : tensor<2x8x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %b = arith.negf %a : f32
        linalg.yield %b : f32
      } -> tensor<2x8x8xf32>
      return %next, %y : tensor<2x8x8xf32>, tensor<4x8xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(r, c) -> (r, c)>
    func.func @step(%w0: tensor<8x8xf32> {
                        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w.0">,
                        bsr.name = "w.0",
                        bsr.origin = {name = "w", shape = array<i64: 2, 8, 8>},
                        bsr.result = 0 : i64},
                    %w1: tensor<8x8xf32> {
                        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w.1">,
                        bsr.name = "w.1",
                        bsr.origin = {name = "w", shape = array<i64: 2, 8, 8>},
                        bsr.result = 1 : i64},
                    %x: tensor<4x8xf32> {bsr.name = "x"})
        -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<4x8xf32> {bsr.name = "y"}) {
      %zero = arith.constant dense<0.0> : tensor<4x8xf32>
      %y = linalg.matmul ins(%x, %w0 : tensor<4x8xf32>, tensor<8x8xf32>)
                         outs(%zero : tensor<4x8xf32>) -> tensor<4x8xf32>
      %e0 = tensor.empty() : tensor<8x8xf32>
      %next0 = linalg.generic {indexing_maps = [#map, #map],
                               iterator_types = ["parallel", "parallel"]}
          ins(%w0 : tensor<8x8xf32>) outs(%e0 : tensor<8x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %b = arith.negf %a : f32
        linalg.yield %b : f32
      } -> tensor<8x8xf32>
      %e1 = tensor.empty() : tensor<8x8xf32>
      %next1 = linalg.generic {indexing_maps = [#map, #map],
                               iterator_types = ["parallel", "parallel"]}
          ins(%w1 : tensor<8x8xf32>) outs(%e1 : tensor<8x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %b = arith.negf %a : f32
        linalg.yield %b : f32
      } -> tensor<8x8xf32>
      return %next0, %next1, %y : tensor<8x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numMatrices", "num-matrices", "Number of matrices made of arguments">,
  ];
  let dependentDialects = ["bsr::BSRDialect", "linalg::LinalgDialect", "tensor::TensorDialect"];
}

//===----------------------------------------------------------------------===//
// Sparsity: mark, bind, propagate
//===----------------------------------------------------------------------===//

def BSRMark : Pass<"bsr-mark", "ModuleOp"> {
  let summary = "Mark weights of a training step as block-sparse, by name";
  let description = [{
    Chooses what is sparse: every argument of a step whose `bsr.name` the regular
    expression `match` (POSIX, extended, found anywhere in the name) matches gets a
    `#bsr.mark` with the block and the density. An argument with a `bsr.role`
    other than `param` is never a weight. Run the pass once per group of weights;
    what an earlier run marked stays as it is, so the first match wins.

    Optimizer moments follow their weight without being listed: they are the
    carried arguments of the weight's shape that the weight's next value depends on
    element by element, whatever the optimizer is called. A parameter is never the
    moment of another.

    Code that simulates sparsity multiplies weights or gradients by masks, which are
    arguments too. `mask` says which: the arguments that it matches and that an
    element-wise operation combines with a marked weight, its gradient or its update,
    as they are or transposed, get a `#bsr.mask` that names the weight; a stack of
    weights has a stack of masks. Bind then puts the pattern in their place. Nothing
    is taken for a mask without this option.

    An expression that matches nothing is an error, as is a match that is no float
    matrix, that the block does not divide, or that is itself a moment.

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
    front of and behind products. With `w3` the reshaped matrix `w`:

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
                         bsr.origin = {name = "w", shape = array<i64: 16, 2, 8>}},
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
    automatic differentiation. So the gradient is masked as well where something
    besides the update uses it (clipping by norm, trust ratios), and a remark says
    so: `g` becomes `to_dense(sample(g))`. The gradients are the products that the
    next values depend on element by element, but not products of those, which are
    part of an optimizer. `mask-gradients=false` leaves them as they are.

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
    | V1 | `sample(p, f(a, rows, cols))` | `f(sample(p, a), sample_vec(p, rows, 0), sample_vec(p, cols, 1))` |
    | D1 | `contraction(x, to_dense(p, v)) + c` | `spmm(p, v, x) + c`, or its transpose |
    | M1 | `f(to_dense(p, splat a), s)` | `to_dense(p, splat f(a, s), f(0, s))`: masks |
    | D2 | `to_dense(p, v)^T` | `to_dense^T(p, v)` |
    | D3 | `f(to_dense(p, v), x, s)` | `to_dense(p, f(v, sample(p, x), s), background)` |
    | D4 | `sum f(to_dense(p, v), s)` | `sum of f(v, s) over live slots + num_absent(p) * f(0, s)` |
    | D5 | `sum over rows or columns of to_dense(p, v)` | `reduce_vec(p, v)`: means of squares |

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
    sparse matrices, batch dimensions, reductions other than sums. What cannot cancel stays, dense and right, and is reported as a remark
    that names the weight and the operation in the way. That no `to_dense` is left
    does not make a step sparse: a dense product of which something else needs
    every entry, although its blocks are sampled, is reported too. With
    `require-sparse` all of these are errors.

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
    Statistic<"numLeftDense", "num-left-dense",
              "Number of operations that keep a weight dense">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bsr::BSRDialect", "linalg::LinalgDialect",
    "tensor::TensorDialect",
  ];
}

def BSRScoreBlocks : Pass<"bsr-score-blocks", "func::FuncOp"> {
  let summary = "Compute the scores of all blocks of each weight's gradient";
  let description = [{
    RigL regrows the blocks whose gradient is largest among those that are not
    stored. For each pattern argument of a step whose weight's gradient is one
    `bsr.sddmm`, this pass adds a result, of role `scores`, with the norm of every
    block of the dense gradient: `bsr.block_scores` of the same operands. A
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

def BSRRaise : Pass<"bsr-raise", "func::FuncOp"> {
  let summary = "Turn products with one-hot matrices into gathers and scatter-adds";
  let description = [{
    A one-hot matrix is sparse too: a product with it looks rows up, and its
    gradient adds rows. Front ends write the gradient of an embedding look-up as
    such a product. The one-hot matrix is recognised by what it computes:
    `index(d) == indices` turned into 1 and 0. An index outside of the matrix gives
    a row of zeros, as it does in the product.

    Before:

    ```mlir
    #t = affine_map<(t, v) -> (t)>
    #tv = affine_map<(t, v) -> (t, v)>
    #a = affine_map<(v, f, t) -> (t, v)>
    #b = affine_map<(v, f, t) -> (t, f)>
    #c = affine_map<(v, f, t) -> (v, f)>
    func.func @gradient(%ids: tensor<6xi32>, %u: tensor<6x8xf32>) -> tensor<10x8xf32> {
      %one = arith.constant 1.0 : f32
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<6x10xf32>
      %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
          ins(%ids : tensor<6xi32>) outs(%e : tensor<6x10xf32>) {
      ^bb0(%id: i32, %out: f32):
        %i = linalg.index 1 : index
        %v = arith.index_cast %i : index to i32
        %is = arith.cmpi eq, %v, %id : i32
        %x = arith.select %is, %one, %zero : f32
        linalg.yield %x : f32
      } -> tensor<6x10xf32>
      %empty = tensor.empty() : tensor<10x8xf32>
      %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<10x8xf32>) -> tensor<10x8xf32>
      %g = linalg.generic {indexing_maps = [#a, #b, #c],
                           iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%hot, %u : tensor<6x10xf32>, tensor<6x8xf32>) outs(%init : tensor<10x8xf32>) {
      ^bb0(%x: f32, %y: f32, %sum: f32):
        %m = arith.mulf %x, %y : f32
        %s = arith.addf %sum, %m : f32
        linalg.yield %s : f32
      } -> tensor<10x8xf32>
      return %g : tensor<10x8xf32>
    }
    ```

    After:

    ```mlir
    func.func @gradient(%ids: tensor<6xi32>, %u: tensor<6x8xf32>) -> tensor<10x8xf32> {
      %g = bsr.scatter_add %ids, %u feature_dim = 1
          : tensor<6xi32>, tensor<6x8xf32> -> tensor<10x8xf32>
      return %g : tensor<10x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numGathers", "num-gathers", "Number of products made gathers">,
    Statistic<"numScatterAdds", "num-scatter-adds",
              "Number of products made scatter-adds">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bsr::BSRDialect", "linalg::LinalgDialect",
    "tensor::TensorDialect",
  ];
}

def BSRConcatenate : Pass<"bsr-concatenate", "func::FuncOp"> {
  let summary = "Turn chains of inserted slices into concatenations";
  let description = [{
    Front ends write a concatenation, and the gradient of a split, as slices that
    are inserted one after the other: copies between kernels. As one operation it is
    laid out as a whole, and a kernel computes it. The slices may come in any order,
    along one dimension, without overlaps. What no slice covers stays as it is, unless it
    is filled with one value: then that is a piece as well, and padding is a
    concatenation. More than 16 pieces, such as what the steps of a loop make, are
    concatenated 16 at a time, and what that makes again: a few kernels, equal ones,
    whatever the number of steps is.

    Before:

    ```mlir
    func.func @gradient(%q: tensor<8x16xf32>, %k: tensor<8x16xf32>) -> tensor<8x48xf32> {
      %zeros = arith.constant dense<0.0> : tensor<8x48xf32>
      %0 = tensor.insert_slice %q into %zeros[0, 0] [8, 16] [1, 1]
          : tensor<8x16xf32> into tensor<8x48xf32>
      %1 = tensor.insert_slice %k into %0[0, 16] [8, 16] [1, 1]
          : tensor<8x16xf32> into tensor<8x48xf32>
      return %1 : tensor<8x48xf32>
    }
    ```

    After:

    ```mlir
    func.func @gradient(%q: tensor<8x16xf32>, %k: tensor<8x16xf32>) -> tensor<8x48xf32> {
      %zeros = arith.constant dense<0.0> : tensor<8x48xf32>
      %rest = tensor.extract_slice %zeros[0, 32] [8, 16] [1, 1]
          : tensor<8x48xf32> to tensor<8x16xf32>
      %0 = tensor.concat dim(1) %q, %k, %rest
          : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x48xf32>
      return %0 : tensor<8x48xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numConcatenations", "num-concatenations",
              "Number of chains made concatenations">,
  ];
  let dependentDialects = ["tensor::TensorDialect"];
}

def BSRLayout : Pass<"bsr-layout", "func::FuncOp"> {
  let summary = "Lay activations out feature-major, lanes along tokens";
  let description = [{
    The products walk blocks of features; tokens are what every block size has
    plenty of. With tokens adjacent in memory, vectors run along them: a weight is
    a broadcast, 1x1 blocks use full vectors, the transposed product costs what
    the forward one does, and layer norm and softmax reduce across rows
    without one horizontal sum.

    The layout is a fixpoint over indexing maps, from the token dimension of the
    products through everything that touches their operands and results: the
    token dimension of each value moves last, its type and the maps of its users
    are permuted, nothing is packed. Arguments and results of the function keep
    their layout. Where an operation cannot take the layout, one copy converts.
    Operations whose results have lanes are marked, `bsr.lanes`, for `bsr-panel`.
    Operations that only move elements vanish into the maps of their users first.

    Before:

    ```mlir
    !pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>
    #map = affine_map<(d0, d1) -> (d0, d1)>
    func.func @layers(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<48x32xf32>)
        -> tensor<48x32xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 1
          : !pattern, tensor<3x16x16xf32>, tensor<48x32xf32> -> tensor<48x64xf32>
      %init = tensor.empty() : tensor<48x64xf32>
      %h = linalg.generic {indexing_maps = [#map, #map],
                           iterator_types = ["parallel", "parallel"]}
          ins(%y : tensor<48x64xf32>) outs(%init : tensor<48x64xf32>) {
      ^bb0(%in: f32, %out: f32):
        %0 = math.tanh %in : f32
        linalg.yield %0 : f32
      } -> tensor<48x64xf32>
      %z = bsr.spmm %p, %w, %h transpose feature_dim = 1
          : !pattern, tensor<3x16x16xf32>, tensor<48x64xf32> -> tensor<48x32xf32>
      return %z : tensor<48x32xf32>
    }
    ```

    After:

    ```mlir
    !pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>
    #map = affine_map<(d0, d1) -> (d1, d0)>
    #map1 = affine_map<(d0, d1) -> (d0, d1)>
    func.func @layers(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<48x32xf32>)
        -> tensor<48x32xf32> {
      %0 = tensor.empty() : tensor<32x48xf32>
      %xt = linalg.generic {indexing_maps = [#map, #map1],
                            iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<48x32xf32>) outs(%0 : tensor<32x48xf32>) attrs = {bsr.lanes} {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<32x48xf32>
      %y = bsr.spmm %p, %w, %xt feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<64x48xf32>
      %1 = tensor.empty() : tensor<64x48xf32>
      %h = linalg.generic {indexing_maps = [#map, #map],
                           iterator_types = ["parallel", "parallel"]}
          ins(%y : tensor<64x48xf32>) outs(%1 : tensor<64x48xf32>) attrs = {bsr.lanes} {
      ^bb0(%in: f32, %out: f32):
        %3 = math.tanh %in : f32
        linalg.yield %3 : f32
      } -> tensor<64x48xf32>
      %z = bsr.spmm %p, %w, %h transpose feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<64x48xf32> -> tensor<32x48xf32>
      %2 = tensor.empty() : tensor<48x32xf32>
      %zt = linalg.generic {indexing_maps = [#map, #map1],
                            iterator_types = ["parallel", "parallel"]}
          ins(%z : tensor<32x48xf32>) outs(%2 : tensor<48x32xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<48x32xf32>
      return %zt : tensor<48x32xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numLaidOut", "num-laid-out", "Number of values laid out anew">,
    Statistic<"numConversions", "num-conversions",
              "Number of copies from one layout to another">,
  ];
  let dependentDialects = ["linalg::LinalgDialect", "tensor::TensorDialect"];
}

def BSRFoldBias : Pass<"bsr-fold-bias", "func::FuncOp"> {
  let summary = "Let sums of sparse products start from their bias";
  let description = [{
    Where all that reads a `bsr.spmm` is the sum of it and a value for each feature,
    that value becomes its `bias`: the kernel starts its sums from it, and nothing
    is written and read again in between. The bias must be there when the product is
    computed, and all types must be the same, f32 or f64.

    Before:

    ```mlir
    func.func @layer(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>,
                     %x: tensor<32x8xf32>, %b: tensor<64xf32>) -> tensor<64x8xf32> {
      %y = bsr.spmm %p, %v, %x feature_dim = 0
          : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
            tensor<32x8xf32> -> tensor<64x8xf32>
      %e = tensor.empty() : tensor<64x8xf32>
      %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                            affine_map<(i, j) -> (i, j)>],
                           iterator_types = ["parallel", "parallel"]}
          ins(%y, %b : tensor<64x8xf32>, tensor<64xf32>) outs(%e : tensor<64x8xf32>) {
      ^bb0(%s: f32, %t: f32, %out: f32):
        %0 = arith.addf %s, %t : f32
        linalg.yield %0 : f32
      } -> tensor<64x8xf32>
      return %z : tensor<64x8xf32>
    }
    ```

    After:

    ```mlir
    func.func @layer(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>,
                     %x: tensor<32x8xf32>, %b: tensor<64xf32>) -> tensor<64x8xf32> {
      %z = bsr.spmm %p, %v, %x bias %b feature_dim = 0
          : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
            tensor<32x8xf32>, tensor<64xf32> -> tensor<64x8xf32>
      %e = tensor.empty() : tensor<64x8xf32>
      return %z : tensor<64x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numFolded", "num-folded", "Number of biases that sums start from">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

def BSRDropBarriers : Pass<"bsr-drop-barriers", "func::FuncOp"> {
  let summary = "Drop barriers and keep apart what they kept apart";
  let description = [{
    A program that computes a layer again in the backward pass, to keep less, has
    barriers in front of it (`bsr.barrier`): without them, the second computation and
    the first would be one. Products and optimizers are rewritten with the barriers
    in place; here they go, for a kernel need not copy what it reads. What would be
    equal to an earlier operation now is `bsr.recomputed`, as what `bsr-recompute`
    computes again, so that it is never merged with it.

    Before:

    ```mlir
    #map = affine_map<(i) -> (i)>
    func.func @again(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %e = tensor.empty() : tensor<8xf32>
      %y = math.tanh %x : tensor<8xf32>
      %again = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%in: f32, %out: f32):
        %0 = bsr.barrier %in : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = math.tanh %again : tensor<8xf32>
      return %y, %z : tensor<8xf32>, tensor<8xf32>
    }
    ```

    After:

    ```mlir
    func.func @again(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %e = tensor.empty() : tensor<8xf32>
      %y = math.tanh %x : tensor<8xf32>
      %z = math.tanh %x {bsr.recomputed} : tensor<8xf32>
      return %y, %z : tensor<8xf32>, tensor<8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numDropped", "num-dropped", "Number of barriers dropped">,
    Statistic<"numKeptApart", "num-kept-apart",
              "Number of operations kept apart from an equal one">,
  ];
}

def BSRRecompute : Pass<"bsr-recompute", "func::FuncOp"> {
  let summary = "Compute cheap values again instead of keeping them";
  let description = [{
    A training step keeps what its backward part reads of its forward part, and
    that is most of its memory. Where most bytes are live, an element-wise value
    that is read again later need not be kept if what it was computed from is kept
    anyway: behind that point (`bsr.peak`) its users get a copy (`bsr.recomputed`),
    which `bsr-cluster` computes with them. An activation function is computed again
    from the product before it, a normalised row from the row, probabilities from
    their exponentials. Where a product reads probabilities q = e / s again, they
    are in memory anyway, and it is the exponentials that are not kept: what reads
    e behind that point reads q * s, which differs from e by two roundings.

    Weight gradients, `bsr.sddmm`, move behind the last other use of the activation
    gradient that they read, so that what they read of the forward part is computed
    again where other kernels read the same.

    No pass between this one and `bsr-cluster` may merge equal operations.

    Before:

    ```mlir
    #map = affine_map<(i, j) -> (i, j)>
    #all = affine_map<(i, j) -> ()>
    func.func @step(%p: !bsr.pattern<64x16, block = 16x16, slots = 2>, %v: tensor<2x16x16xf32>,
                    %x: tensor<16x8xf32>) -> tensor<16x8xf32> {
      %zero = arith.constant dense<0.0> : tensor<f32>
      %e = tensor.empty() : tensor<16x8xf32>
      %tanh = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.tanh %a : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      %y = bsr.spmm %p, %v, %tanh transpose feature_dim = 0
          : !bsr.pattern<64x16, block = 16x16, slots = 2>, tensor<2x16x16xf32>,
            tensor<16x8xf32> -> tensor<64x8xf32>
      %sum = linalg.generic {indexing_maps = [#map, #all], iterator_types = ["reduction", "reduction"]}
          ins(%y : tensor<64x8xf32>) outs(%zero : tensor<f32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.addf %out, %a : f32
        linalg.yield %0 : f32
      } -> tensor<f32>
      %z = linalg.generic {indexing_maps = [#map, #all, #map], iterator_types = ["parallel", "parallel"]}
          ins(%tanh, %sum : tensor<16x8xf32>, tensor<f32>) outs(%e : tensor<16x8xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      return %z : tensor<16x8xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(i, j) -> (i, j)>
    #all = affine_map<(i, j) -> ()>
    func.func @step(%p: !bsr.pattern<64x16, block = 16x16, slots = 2>, %v: tensor<2x16x16xf32>,
                    %x: tensor<16x8xf32>) -> tensor<16x8xf32> {
      %zero = arith.constant dense<0.0> : tensor<f32>
      %e = tensor.empty() : tensor<16x8xf32>
      %tanh = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.tanh %a : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      %y = bsr.spmm %p, %v, %tanh transpose feature_dim = 0
          : !bsr.pattern<64x16, block = 16x16, slots = 2>, tensor<2x16x16xf32>,
            tensor<16x8xf32> -> tensor<64x8xf32>
      %sum = linalg.generic {indexing_maps = [#map, #all], iterator_types = ["reduction", "reduction"]}
          ins(%y : tensor<64x8xf32>) outs(%zero : tensor<f32>) attrs = {bsr.peak} {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.addf %out, %a : f32
        linalg.yield %0 : f32
      } -> tensor<f32>
      %again = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) attrs = {bsr.recomputed} {
      ^bb0(%a: f32, %out: f32):
        %0 = math.tanh %a : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      %z = linalg.generic {indexing_maps = [#map, #all, #map], iterator_types = ["parallel", "parallel"]}
          ins(%again, %sum : tensor<16x8xf32>, tensor<f32>) outs(%e : tensor<16x8xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      return %z : tensor<16x8xf32>
    }
    ```
  }];
  let options = [
    Option<"maxCost", "max-cost", "int64_t", /*default=*/"40",
           "The most simple operations an element that are done again (an "
           "exponential counts for 12); 0 keeps everything">,
  ];
  let statistics = [
    Statistic<"numRecomputed", "num-recomputed", "Number of values computed again">,
    Statistic<"bytesRecomputed", "bytes-recomputed", "Bytes of these values">,
  ];
}

def BSRCluster : Pass<"bsr-cluster", "ModuleOp"> {
  let summary = "Group operations into clusters, one function per structure";
  let description = [{
    A cluster is what one kernel computes: a product, a reduction, element-wise
    operations over one space (a weight's whole optimizer update), or a chain of
    element-wise operations and reductions in which every work item, some tokens of
    a sequence, needs only what it computed itself (softmax, layer norm and their
    gradients): its sums stay in registers. What follows a sparse product element by
    element (activations, residuals, scaling, casts and their gradients, sums over
    tokens) is in its cluster: a work item computes it where the sums of a block row
    are, in the cache. Each comes with the views, constants and
    cheap element-wise operations that it reads: these are computed again where they
    are used and never stored. So is a reduction over loops of one iteration: it is
    element-wise then. A concatenation is a cluster with what makes pieces of it and
    nothing else, products included: each piece is computed where it belongs. Each
    cluster becomes a private function on tensors and a `bsr.launch` of it. Clusters
    of the same structure, such as those of equal layers, are one function. So are the
    steps of an unrolled loop that read each a slice of one tensor: of more than 8
    slices of one shape, an offset at which they have one entry is an argument of the
    function, an index. The step becomes straight-line code of launches. A function
    whose arguments have names also gets the number of products of each kind
    (`bsr.products`) and of clusters that go between a dense matrix and its stored
    blocks (`bsr.left_dense`). The function of a cluster says what kind of work it does
    (`bsr.kind`) and how many floating-point operations its products are (`bsr.flops`).

    Before:

    ```mlir
    #map = affine_map<(d0) -> (d0)>
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%y : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.exp %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %z : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(d0) -> (d0)>
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %z = bsr.launch @cluster ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>)
          -> tensor<8xf32>
      return %z : tensor<8xf32>
    }
    func.func private @cluster(%x: tensor<8xf32>) -> tensor<8xf32>
        attributes {bsr.kind = "elementwise"} {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%y : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.exp %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %z : tensor<8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numClusters", "num-clusters", "Number of clusters">,
    Statistic<"numStructures", "num-structures",
              "Number of different clusters: functions to compile">,
  ];
  let dependentDialects = [
    "bsr::BSRDialect", "func::FuncDialect", "tensor::TensorDialect",
  ];
}

def BSRPanel : Pass<"bsr-panel", "ModuleOp"> {
  let summary = "Choose the activations whose buffers are cut in panels";
  let description = [{
    A product reads a few lanes of many rows of an activation `[..., rows, lanes]`.
    Cut in panels, `[..., lanes / panel, rows, panel]`, what a register tile reads
    is one run of memory: no conflicts in the caches, few pages, and a panel stays
    in the second-level cache while all blocks of a weight stream over it. A panel
    is as wide as the register tile (16 lanes with 16 registers of 256 bits, 64
    with 32 of 512). Kernels compute positions from the tensor's own indices, so
    nothing else changes and nothing is repacked between layers.

    The attribute `bsr.panels` of a launch lists those of its operands that are
    cut; `bsr-emit` makes their buffers and types so. Results of kernels are cut
    that `bsr-layout` gave lanes (`bsr.lanes`), which the panel divides, and which
    only kernels read: arguments and results of the step stay as they are.

    Before:

    ```mlir
    !pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
    func.func private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32> -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    }
    func.func @step(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %init = tensor.empty() : tensor<32x64xf32>
      %h = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32>)
          outs(%init : tensor<32x64xf32>) -> tensor<32x64xf32>
      %y = bsr.launch @product ins(%p, %w, %h : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32>)
          outs(%init : tensor<32x64xf32>) -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    }
    ```

    After:

    ```mlir
    !pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
    func.func private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32> -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    }
    func.func @step(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %init = tensor.empty() : tensor<32x64xf32>
      %h = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32>)
          outs(%init : tensor<32x64xf32>) {bsr.panels = array<i64: 3>} -> tensor<32x64xf32>
      %y = bsr.launch @product ins(%p, %w, %h : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32>)
          outs(%init : tensor<32x64xf32>) {bsr.panels = array<i64: 2>} -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    }
    ```
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "Width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "Number of vector registers">,
  ];
  let statistics = [
    Statistic<"numPanels", "num-panels", "Number of activations cut in panels">,
  ];
}

def BSREmit : Pass<"bsr-emit", "ModuleOp"> {
  let summary = "Turn clusters into kernels on buffers";
  let description = [{
    Each function that a `bsr.launch` calls, a cluster of tensor operations,
    becomes a function on buffers of the same name: one level of `scf.forall`
    over independent work items, loops, and vectors in them. Accumulators stay in
    registers (`iter_args`), element-wise operations are computed where they are
    used, transposes, broadcasts and slices are index arithmetic. A chain's work item
    has the lanes of a register tile and goes through the rows in a loop a stage:
    sums that do not need each other, and what they are sums of, share a loop; of
    sums over all tokens it leaves its part in scratch memory. Forward products and
    input gradients gather over one view of the pattern and write disjointly, the
    weight gradient writes each block once, a sum over tokens is taken in a fixed
    order: no atomics, the same bits for any number of threads. A concatenation is a
    nest for each piece, which writes to a view of the whole. Patterns become the
    index arrays that the kernel walks.

    Before:

    ```mlir
    func.func private @double(%x: tensor<8xf32>) -> tensor<8xf32> {
      %two = arith.constant dense<2.0> : tensor<8xf32>
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {
          indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
                           affine_map<(d0) -> (d0)>],
          iterator_types = ["parallel"]}
          ins(%x, %two : tensor<8xf32>, tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = bsr.launch @double ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>)
          -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    func.func private @double(%x: memref<8xf32>, %y: memref<8xf32>) {
      %c0 = arith.constant 0 : index
      %0 = vector.load %x[%c0] : memref<8xf32>, vector<8xf32>
      %two = arith.constant 2.0 : f32
      %1 = vector.broadcast %two : f32 to vector<8xf32>
      %2 = arith.mulf %0, %1 : vector<8xf32>
      vector.store %2, %y[%c0] : memref<8xf32>, vector<8xf32>
      return
    }
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = bsr.launch @double ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) in_place = [0]
          -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    ```
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "Width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "Number of vector registers">,
  ];
  let statistics = [
    Statistic<"numKernels", "num-kernels", "Number of kernels emitted">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bufferization::BufferizationDialect",
    "linalg::LinalgDialect", "math::MathDialect",
    "memref::MemRefDialect", "scf::SCFDialect", "tensor::TensorDialect",
    "vector::VectorDialect",
  ];
}

def BSRVerifyKernels : Pass<"bsr-verify-kernels", "ModuleOp"> {
  let summary = "Fail if a kernel allocates or its parallel loops race";
  let description = [{
    The contract of kernels. A kernel allocates nothing but stack of a size that is
    known at compile time. No two iterations of a `scf.forall` touch an element that
    one of them writes: of each buffer that the loop writes, the indices of all its
    loads and stores together tell which iteration they belong to.

    An index tells iterations apart if it is a sum of multiples of induction
    variables, plus less than the smallest of these multiples (the constant range of
    inner loops and lanes), and each multiple is larger than all smaller ones
    together: like the digits of a number. The quotient and the rest of a division are
    such digits, too, where they are two indices: a panel and a lane in it. What holds for
    a buffer holds for a view of it, if different indices of the view are different
    elements and the loop touches the buffer in no other way. Positions and slots of
    blocks tell the lines of a pattern apart: in a loop from `ptr[i]` to `ptr[i + 1]`, the
    position `k` belongs to line `i`, and `slot[k]` is the slot of no other block.
    So does a loop from `f(i)` to `f(i + 1)`, where the same operations compute both
    from nothing but pointers: the lines of one part of a balanced division.

    What is assumed: the invariants of a pattern, which the runtime checks where one
    enters; that such an `f` does not decrease; that buffers which are different
    arguments do not overlap, but for inputs in `in_place`, of which an iteration
    reads no element that another one writes.

    Before, and after:

    ```mlir
    func.func private @double(%x: memref<8x64xf32>, %y: memref<8x64xf32>) {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c64 = arith.constant 64 : index
      scf.forall (%i) in (8) {
        scf.for %j = %c0 to %c64 step %c16 {
          %0 = vector.load %x[%i, %j] : memref<8x64xf32>, vector<16xf32>
          %1 = arith.addf %0, %0 : vector<16xf32>
          vector.store %1, %y[%i, %j] : memref<8x64xf32>, vector<16xf32>
        }
      }
      return
    }
    func.func @step(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
      %init = tensor.empty() : tensor<8x64xf32>
      %y = bsr.launch @double ins(%x : tensor<8x64xf32>) outs(%init : tensor<8x64xf32>)
          -> tensor<8x64xf32>
      return %y : tensor<8x64xf32>
    }
    ```

    ```mlir
    func.func private @double(%x: memref<8x64xf32>, %y: memref<8x64xf32>) {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c64 = arith.constant 64 : index
      scf.forall (%i) in (8) {
        scf.for %j = %c0 to %c64 step %c16 {
          %0 = vector.load %x[%i, %j] : memref<8x64xf32>, vector<16xf32>
          %1 = arith.addf %0, %0 : vector<16xf32>
          vector.store %1, %y[%i, %j] : memref<8x64xf32>, vector<16xf32>
        }
      }
      return
    }
    func.func @step(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
      %init = tensor.empty() : tensor<8x64xf32>
      %y = bsr.launch @double ins(%x : tensor<8x64xf32>) outs(%init : tensor<8x64xf32>)
          -> tensor<8x64xf32>
      return %y : tensor<8x64xf32>
    }
    ```
  }];
}

//===----------------------------------------------------------------------===//
// From launches to LLVM
//===----------------------------------------------------------------------===//

def BSRLowerPatterns : Pass<"bsr-lower-patterns", "ModuleOp"> {
  let summary = "Turn patterns into index arrays";
  let description = [{
    A pattern argument becomes six arguments, the index arrays of its two views;
    they keep its name and role, `bsr.kind` tells which array each is. A constant
    pattern becomes constant arrays. By now nothing but `bsr.indices` may use a
    pattern. The types of the patterns stay on the function (`bsr.patterns`, behind the
    static ones); `bsr.pattern_number` of values and index arrays is the place in that
    list. A use in a loop is an error: `bsr-unroll` with `max-operations` did not
    unroll it.

    Before:

    ```mlir
    func.func @step(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>
                        {bsr.density = 0.375, bsr.name = "w", bsr.role = "pattern"})
        -> tensor<3xi32> {
      %ptr, %idx, %slot = bsr.indices %p
          : !bsr.pattern<32x64, block = 16x16, slots = 3>
          -> tensor<3xi32>, tensor<3xi32>, tensor<3xi32>
      return %slot : tensor<3xi32>
    }
    ```

    After:

    ```mlir
    func.func @step(
        %row_ptr: tensor<3xi32> {bsr.kind = "row_ptr", bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "pattern"},
        %col_idx: tensor<3xi32> {bsr.kind = "col_idx", bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "pattern"},
        %slot: tensor<3xi32> {bsr.kind = "slot", bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "pattern"},
        %col_ptr: tensor<5xi32> {bsr.kind = "col_ptr", bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "pattern"},
        %row_idx: tensor<3xi32> {bsr.kind = "row_idx", bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "pattern"},
        %slot_t: tensor<3xi32> {bsr.kind = "slot_t", bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "pattern"})
        -> tensor<3xi32> attributes {
          bsr.patterns = [{density = 0.375, name = "w",
                           type = !bsr.pattern<32x64, block = 16x16, slots = 3>} ]} {
      return %slot : tensor<3xi32>
    }
    ```
  }];
  let options = [
    Option<"maxOperations", "max-operations", "uint64_t", /*default=*/"65536",
           "That of `bsr-unroll`, for the message about a loop that is longer">,
  ];
  let dependentDialects = ["arith::ArithDialect"];
}

def BSRReuseOperands : Pass<"bsr-reuse-operands", "func::FuncOp"> {
  let summary = "Write results over operands that nobody reads later";
  let description = [{
    Where a kernel may write a result over an operand (`in_place`), another kernel
    made that operand, and nothing behind reads it, the operand becomes the init of
    the result: bufferization gives both one buffer, and so on, of at most 8 kernels in
    a row. The arena need not hold both
    (the gradient of the logits lies where the logits lay), and memory that was just
    read is written without being fetched again.

    Before:

    ```mlir
    func.func private @make(memref<4xf32>, memref<4xf32>)
    func.func private @negate(memref<4xf32>, memref<4xf32>)
    func.func @step(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "z"}) {
      %0 = tensor.empty() : tensor<4xf32>
      %y = bsr.launch @make ins(%x : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
      %1 = tensor.empty() : tensor<4xf32>
      %z = bsr.launch @negate ins(%y : tensor<4xf32>) outs(%1 : tensor<4xf32>) in_place = [0]
          -> tensor<4xf32>
      return %z : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func private @make(memref<4xf32>, memref<4xf32>)
    func.func private @negate(memref<4xf32>, memref<4xf32>)
    func.func @step(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "z"}) {
      %0 = tensor.empty() : tensor<4xf32>
      %y = bsr.launch @make ins(%x : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
      %1 = tensor.empty() : tensor<4xf32>
      %z = bsr.launch @negate ins(%y : tensor<4xf32>) outs(%y : tensor<4xf32>) in_place = [0]
          -> tensor<4xf32>
      return %z : tensor<4xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numReused", "num-reused", "Number of results that a kernel writes over an operand">,
  ];
}

def BSRSeparateResults : Pass<"bsr-separate-results", "func::FuncOp"> {
  let summary = "Give every kernel of a step memory of its own";
  let description = [{
    Equal empty tensors are one value by now, the init of many launches.
    Bufferization would compare each of these with all others that write to it, and
    with all that read those: cubic time, for a step that was a long loop. A result
    that is written over nothing gets a tensor of its own instead; `bsr-plan-memory`
    finds out what may lie in one place.

    Before:

    ```mlir
    func.func private @make(memref<4xf32>, memref<4xf32>)
    func.func @step(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "z"}) {
      %0 = tensor.empty() : tensor<4xf32>
      %y = bsr.launch @make ins(%x : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
      %z = bsr.launch @make ins(%y : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
      return %z : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func private @make(memref<4xf32>, memref<4xf32>)
    func.func @step(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "z"}) {
      %0 = tensor.empty() : tensor<4xf32>
      %1 = bufferization.alloc_tensor() : tensor<4xf32>
      %y = bsr.launch @make ins(%x : tensor<4xf32>) outs(%1 : tensor<4xf32>) -> tensor<4xf32>
      %2 = bufferization.alloc_tensor() : tensor<4xf32>
      %z = bsr.launch @make ins(%y : tensor<4xf32>) outs(%2 : tensor<4xf32>) -> tensor<4xf32>
      return %z : tensor<4xf32>
    }
    ```
  }];
  let dependentDialects = ["bufferization::BufferizationDialect"];
}

def BSRReuseState : Pass<"bsr-reuse-state", "func::FuncOp"> {
  let summary = "Write the next value of an argument over the old one";
  let description = [{
    Where a kernel makes the next value of an argument (`bsr.result`), its init
    becomes that argument, so that bufferization updates the argument where it
    lies and a step copies no parameter. If the old value is read later, the kernel
    moves behind the last reader, and with it what needs its results; where that
    is not possible because a reader needs the new value too, nothing changes and
    `bsr-store-results` copies at the end of the step. Loops leave what they carry
    from round to round in one buffer, too, by a copy where need be.

    Before:

    ```mlir
    func.func private @decay(memref<4xf32>, memref<4xf32>)
    func.func private @norm(memref<4xf32>, memref<f32>)
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64})
        -> (tensor<4xf32>, tensor<f32> {bsr.name = "norm"}) {
      %0 = tensor.empty() : tensor<4xf32>
      %next = bsr.launch @decay ins(%w : tensor<4xf32>) outs(%0 : tensor<4xf32>) in_place = [0]
          -> tensor<4xf32>
      %1 = tensor.empty() : tensor<f32>
      %norm = bsr.launch @norm ins(%w : tensor<4xf32>) outs(%1 : tensor<f32>) -> tensor<f32>
      return %next, %norm : tensor<4xf32>, tensor<f32>
    }
    ```

    After:

    ```mlir
    func.func private @decay(memref<4xf32>, memref<4xf32>)
    func.func private @norm(memref<4xf32>, memref<f32>)
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64})
        -> (tensor<4xf32>, tensor<f32> {bsr.name = "norm"}) {
      %0 = tensor.empty() : tensor<4xf32>
      %1 = tensor.empty() : tensor<f32>
      %norm = bsr.launch @norm ins(%w : tensor<4xf32>) outs(%1 : tensor<f32>) -> tensor<f32>
      %next = bsr.launch @decay ins(%w : tensor<4xf32>) outs(%w : tensor<4xf32>) in_place = [0]
          -> tensor<4xf32>
      return %next, %norm : tensor<4xf32>, tensor<f32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numReused", "num-reused", "Number of arguments that a kernel updates in place">,
  ];
  let dependentDialects = [
    "bufferization::BufferizationDialect", "tensor::TensorDialect",
  ];
}

def BSRStoreResults : Pass<"bsr-store-results", "func::FuncOp"> {
  let summary = "Leave the results of a step in buffers of the caller";
  let description = [{
    A compiled step returns nothing. After bufferization, a result that carries an
    argument is dropped if it is that argument's buffer (it was updated in place)
    and copied to it at the end otherwise, with a remark; the argument is marked
    `bsr.carried`. Every other result becomes an argument, of `bsr.kind` `output`,
    but for scores (`bsr-score-blocks`): they stay in memory of the step's own,
    marked `bsr.scores`.

    Before:

    ```mlir
    func.func private @update(memref<4xf32>, memref<f32>)
    func.func @step(%w: memref<4xf32> {bsr.name = "w", bsr.result = 0 : i64})
        -> (memref<4xf32>, memref<f32> {bsr.name = "loss", bsr.role = "loss"}) {
      %loss = memref.alloc() : memref<f32>
      call @update(%w, %loss) : (memref<4xf32>, memref<f32>) -> ()
      return %w, %loss : memref<4xf32>, memref<f32>
    }
    ```

    After:

    ```mlir
    func.func private @update(memref<4xf32>, memref<f32>)
    func.func @step(%w: memref<4xf32> {bsr.carried, bsr.name = "w"},
                    %loss: memref<f32> {bsr.kind = "output", bsr.name = "loss", bsr.role = "loss"}) {
      call @update(%w, %loss) : (memref<4xf32>, memref<f32>) -> ()
      return
    }
    ```
  }];
  let statistics = [
    Statistic<"numCopied", "num-copied", "Number of arguments updated by a copy">,
  ];
  let dependentDialects = ["memref::MemRefDialect"];
}

def BSRGuardScores : Pass<"bsr-guard-scores", "func::FuncOp"> {
  let summary = "Compute scores only when asked to";
  let description = [{
    The scores of `bsr-score-blocks` cost as much as the dense gradients, and only
    a step before a pattern update needs them. A bufferized step with scores
    (`bsr.scores`) takes a flag more, and calls the kernels that write them if it
    is set. The
    library then has two entry points of one function, `bsr_step_run` and
    `bsr_step_run_scores`, and the same memory for both.

    Before:

    ```mlir
    func.func private @block_scores(memref<8x4xf32>, memref<8x4xf32>, memref<2x2xf32>)
    func.func @step(%x: memref<8x4xf32> {bsr.name = "x"}, %dy: memref<8x4xf32> {bsr.name = "dy"}) {
      %s = memref.alloc() {bsr.scores = "w"} : memref<2x2xf32>
      call @block_scores(%x, %dy, %s)
          : (memref<8x4xf32>, memref<8x4xf32>, memref<2x2xf32>) -> ()
      return
    }
    ```

    After:

    ```mlir
    func.func private @block_scores(memref<8x4xf32>, memref<8x4xf32>, memref<2x2xf32>)
    func.func @step(%x: memref<8x4xf32> {bsr.name = "x"}, %dy: memref<8x4xf32> {bsr.name = "dy"},
                    %scores: i1 {bsr.kind = "flag", bsr.name = "scores"}) {
      %s = memref.alloc() {bsr.scores = "w"} : memref<2x2xf32>
      scf.if %scores {
        func.call @block_scores(%x, %dy, %s)
            : (memref<8x4xf32>, memref<8x4xf32>, memref<2x2xf32>) -> ()
      }
      return
    }
    ```
  }];
  let statistics = [
    Statistic<"numGuarded", "num-guarded", "Number of calls under the flag">,
  ];
  let dependentDialects = ["scf::SCFDialect"];
}

def BSRPlanMemory : Pass<"bsr-plan-memory", "func::FuncOp"> {
  let summary = "Place the buffers of a step in one arena";
  let description = [{
    A step allocates nothing: its buffers, all of static shape, become views of one
    argument, the arena, whose size is known (`bsr.arena_bytes`). Buffers that are
    not live at the same time share memory. Every buffer starts on a cache line.
    Scores live to the end of the step: whoever ran it finds them there
    (`bsr.scores`).

    Before:

    ```mlir
    func.func private @scale(memref<4xf32>, memref<4xf32>)
    func.func @step(%x: memref<4xf32> {bsr.name = "x"},
                    %y: memref<4xf32> {bsr.kind = "output", bsr.name = "y"}) {
      %a = memref.alloc() : memref<4xf32>
      call @scale(%x, %a) : (memref<4xf32>, memref<4xf32>) -> ()
      %b = memref.alloc() : memref<4xf32>
      call @scale(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
      %c = memref.alloc() : memref<4xf32>
      call @scale(%b, %c) : (memref<4xf32>, memref<4xf32>) -> ()
      call @scale(%c, %y) : (memref<4xf32>, memref<4xf32>) -> ()
      return
    }
    ```

    After:

    ```mlir
    func.func private @scale(memref<4xf32>, memref<4xf32>)
    func.func @step(%x: memref<4xf32> {bsr.name = "x"},
                    %y: memref<4xf32> {bsr.kind = "output", bsr.name = "y"},
                    %arena: memref<128xi8> {bsr.kind = "arena", bsr.name = "arena"})
        attributes {bsr.arena_bytes = 128 : i64} {
      %c0 = arith.constant 0 : index
      %a = memref.view %arena[%c0][] : memref<128xi8> to memref<4xf32>
      call @scale(%x, %a) : (memref<4xf32>, memref<4xf32>) -> ()
      %c64 = arith.constant 64 : index
      %b = memref.view %arena[%c64][] : memref<128xi8> to memref<4xf32>
      call @scale(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
      %zero = arith.constant 0 : index
      %c = memref.view %arena[%zero][] : memref<128xi8> to memref<4xf32>
      call @scale(%b, %c) : (memref<4xf32>, memref<4xf32>) -> ()
      call @scale(%c, %y) : (memref<4xf32>, memref<4xf32>) -> ()
      return
    }
    ```
  }];
  let statistics = [
    Statistic<"numBuffers", "num-buffers", "Number of buffers placed">,
    Statistic<"peakLive", "peak-live-bytes", "Most bytes live at one operation">,
    Statistic<"arenaBytes", "arena-bytes", "Bytes of the arena">,
  ];
  let dependentDialects = ["arith::ArithDialect", "memref::MemRefDialect"];
}

def BSRTimeLaunches : Pass<"bsr-time-launches", "ModuleOp"> {
  let summary = "Measure the time of each kernel";
  let description = [{
    Reads a clock after each call of a kernel in a step, each copy and each
    operation that is no kernel, and adds the time since the last reading to a
    table in the library, `bsr_step_timers`: for each timer its nanoseconds and how
    often it ran. Every nanosecond of a step counts for one timer; the first timer
    is the step's own and has what comes behind its last kernel, once a run. The
    row behind the last timer takes the time between two runs. The manifest lists
    the timers (`bsr.timers`) with what `bsr-cluster` knows of the kernels.

    The clock is the operating system's, `clock_gettime`: nanoseconds that need no
    calibration, in 20 to 30 ns, on every processor. A cycle counter would be
    twice as fast and a second unit of time; OpenMP's clock counts microseconds.

    Before:

    ```mlir
    func.func private @scale(memref<4xf32>) attributes {bsr.kind = "elementwise"}
    func.func @step(%x: memref<4xf32> {bsr.name = "x"}) {
      call @scale(%x) : (memref<4xf32>) -> ()
      return
    }
    ```

    After:

    ```mlir
    memref.global "public" @bsr_step_timers : memref<3x2xi64> = dense<0>
    memref.global "private" @bsr_lap_time : memref<2xi64> = dense<0>
    memref.global "private" @bsr_lap_last : memref<i64> = dense<0>
    func.func private @clock_gettime(i32, memref<2xi64>) -> i32
    func.func private @bsr_lap(%timer: index) {
      %0 = memref.get_global @bsr_lap_time : memref<2xi64>
      %c1_i32 = arith.constant 1 : i32
      %1 = call @clock_gettime(%c1_i32, %0) : (i32, memref<2xi64>) -> i32
      %c0 = arith.constant 0 : index
      %2 = memref.load %0[%c0] : memref<2xi64>
      %c1000000000_i64 = arith.constant 1000000000 : i64
      %3 = arith.muli %2, %c1000000000_i64 : i64
      %c1 = arith.constant 1 : index
      %4 = memref.load %0[%c1] : memref<2xi64>
      %5 = arith.addi %3, %4 : i64
      %6 = memref.get_global @bsr_lap_last : memref<i64>
      %7 = memref.load %6[] : memref<i64>
      %8 = arith.subi %5, %7 : i64
      memref.store %5, %6[] : memref<i64>
      %9 = memref.get_global @bsr_step_timers : memref<3x2xi64>
      %c1_i64 = arith.constant 1 : i64
      %c0_0 = arith.constant 0 : index
      %10 = memref.load %9[%timer, %c0_0] : memref<3x2xi64>
      %11 = arith.addi %10, %8 : i64
      memref.store %11, %9[%timer, %c0_0] : memref<3x2xi64>
      %c1_1 = arith.constant 1 : index
      %12 = memref.load %9[%timer, %c1_1] : memref<3x2xi64>
      %13 = arith.addi %12, %c1_i64 : i64
      memref.store %13, %9[%timer, %c1_1] : memref<3x2xi64>
      return
    }
    func.func private @scale(memref<4xf32>) attributes {bsr.kind = "elementwise"}
    func.func @step(%x: memref<4xf32> {bsr.name = "x"}) attributes {bsr.timers = [{kernel = "step", kind = "other"}, {bytes = 16 : i64, kernel = "scale", kind = "elementwise", operands = "4xf32"} ]} {
      %c2 = arith.constant 2 : index
      call @bsr_lap(%c2) : (index) -> ()
      call @scale(%x) : (memref<4xf32>) -> ()
      %c1 = arith.constant 1 : index
      call @bsr_lap(%c1) : (index) -> ()
      %c0 = arith.constant 0 : index
      call @bsr_lap(%c0) : (index) -> ()
      return
    }
    ```
  }];
  let dependentDialects = ["arith::ArithDialect", "memref::MemRefDialect"];
}

def BSREmbedManifest : Pass<"bsr-embed-manifest", "ModuleOp"> {
  let summary = "Write the manifest of a step into its module";
  let description = [{
    A compiled step describes itself: `bsr_step_manifest`, JSON text, lists its
    buffers in the order in which `bsr_step_run` takes them, and its patterns;
    `bsr_step_abi_version` is the version of both.

    Before:

    ```mlir
    func.func @step(%x: memref<4xf32> {bsr.name = "x", bsr.role = "batch"},
                    %arena: memref<0xi8> {bsr.kind = "arena", bsr.name = "arena"})
        attributes {bsr.arena_bytes = 0 : i64} {
      return
    }
    ```

    After:

    ```mlir
    llvm.mlir.global external constant @bsr_step_manifest("{\22arena_bytes\22:0,\22buffers\22:[{\22carried\22:false,\22kind\22:\22dense\22,\22name\22:\22x\22,\22role\22:\22batch\22,\22shape\22:[4],\22type\22:\22f32\22}\5D,\22format\22:\22bsr-step\22,\22left_dense\22:0,\22name\22:\22step\22,\22patterns\22:[],\22products\22:{\22dense\22:0,\22sddmm\22:0,\22spmm\22:0,\22spmm_transposed\22:0},\22target_cpu\22:\22generic\22,\22version\22:1}\00") {addr_space = 0 : i32}
    llvm.mlir.global external constant @bsr_step_abi_version(1 : i32) {addr_space = 0 : i32} : i32
    func.func @step(%x: memref<4xf32> {bsr.name = "x", bsr.role = "batch"},
                    %arena: memref<0xi8> {bsr.kind = "arena", bsr.name = "arena"})
        attributes {bsr.arena_bytes = 0 : i64} {
      return
    }
    ```
  }];
  let options = [
    Option<"targetCpu", "target-cpu", "std::string", /*default=*/"\"generic\"",
           "The processor that the step is compiled for">,
  ];
  let dependentDialects = ["LLVM::LLVMDialect"];
}

def BSRLowerCopies : Pass<"bsr-lower-copies", "func::FuncOp"> {
  let summary = "Turn copies between views into parallel loops";
  let description = [{
    A copy of contiguous memory becomes `memcpy`. Any other would become a call of
    a runtime library that walks the elements. This pass makes it a parallel loop
    over the longest contiguous parts (or, where the innermost dimension is
    strided, a linalg operation).

    Before:

    ```mlir
    func.func @f(%x: memref<4x4xf32, strided<[8, 1]>>, %y: memref<4x4xf32>) {
      memref.copy %x, %y : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
      return
    }
    ```

    After:

    ```mlir
    func.func @f(%x: memref<4x4xf32, strided<[8, 1]>>, %y: memref<4x4xf32>) {
      scf.forall (%i) in (4) {
        %from = memref.subview %x[%i, 0] [1, 4] [1, 1] : memref<4x4xf32, strided<[8, 1]>>
            to memref<1x4xf32, strided<[8, 1], offset: ?>>
        %to = memref.subview %y[%i, 0] [1, 4] [1, 1] : memref<4x4xf32>
            to memref<1x4xf32, strided<[4, 1], offset: ?>>
        memref.copy %from, %to : memref<1x4xf32, strided<[8, 1], offset: ?>>
            to memref<1x4xf32, strided<[4, 1], offset: ?>>
      }
      return
    }
    ```
  }];
  let dependentDialects = [
    "linalg::LinalgDialect", "memref::MemRefDialect", "scf::SCFDialect",
  ];
}

def BSRHoistMemory : Pass<"bsr-hoist-memory"> {
  let summary = "Make memory of work items memory of threads";
  let description = [{
    Kernels pack operands into memory on the stack of a work item. Inside of a
    parallel region of OpenMP, each thread allocates that memory once, before its
    first work item: a work item does not read what another left there, and the
    scope around its body has nothing to free.

    Before:

    ```mlir
    func.func @f(%x: memref<8xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      omp.parallel {
        omp.wsloop {
          omp.loop_nest (%i) : index = (%c0) to (%c8) step (%c1) {
            memref.alloca_scope {
              %scratch = memref.alloca() : memref<1xf32>
              %0 = memref.load %x[%i] : memref<8xf32>
              memref.store %0, %scratch[%c0] : memref<1xf32>
            }
            omp.yield
          }
        }
        omp.terminator
      }
      return
    }
    ```

    After:

    ```mlir
    func.func @f(%x: memref<8xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      omp.parallel {
        %scratch = memref.alloca() : memref<1xf32>
        omp.wsloop {
          omp.loop_nest (%i) : index = (%c0) to (%c8) step (%c1) {
            memref.alloca_scope {
              %0 = memref.load %x[%i] : memref<8xf32>
              memref.store %0, %scratch[%c0] : memref<1xf32>
            }
            omp.yield
          }
        }
        omp.terminator
      }
      return
    }
    ```
  }];
  let statistics = [
    Statistic<"numHoisted", "num-hoisted", "Allocations moved to threads">,
  ];
}

def BSRApproximateMath : Pass<"bsr-approximate-math"> {
  let summary = "Compute mathematical functions by polynomials";
  let description = [{
    Upstream's polynomial approximations of `exp`, `tanh`, `log`, `erf` and others run in
    vectors, 12 times (exp) to 46 times (tanh) as fast as calls of the C library,
    and are exact to 5 units in the last place of f32; f16 and bf16 go through
    f32. What has no approximation, and f64, is left for the C library.

    Before:

    ```mlir
    func.func @f(%x: f32) -> f32 {
      %y = math.rsqrt %x : f32
      return %y : f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: f32) -> f32 {
      %one = arith.constant 1.0 : f32
      %root = math.sqrt %x : f32
      %y = arith.divf %one, %root : f32
      return %y : f32
    }
    ```
  }];
  let dependentDialects = [
    "arith::ArithDialect", "math::MathDialect", "vector::VectorDialect",
  ];
}

def BSRExpandBF16 : Pass<"bsr-expand-bf16", "ModuleOp"> {
  let summary = "Make bf16 integers";
  let description = [{
    A bf16 is the upper half of an f32, rounded to nearest even. Few processors have
    instructions for the conversion and the C library of Debian 12 has no function;
    shifts and sums run in vectors everywhere. After the conversions nothing is left
    to do with a bf16 but to move it: it becomes an i16, for LLVM takes vectors of
    bf16 apart where it selects between two. Arithmetic on bf16 must have been
    emulated in f32 before (`arith-emulate-unsupported-floats`).

    Before:

    ```mlir
    func.func @f(%x: bf16) -> f32 {
      %y = arith.extf %x : bf16 to f32
      return %y : f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: i16) -> f32 {
      %c16_i32 = arith.constant 16 : i32
      %wide = arith.extui %x : i16 to i32
      %shifted = arith.shli %wide, %c16_i32 : i32
      %y = arith.bitcast %shifted : i32 to f32
      return %y : f32
    }
    ```
  }];
  let dependentDialects = ["arith::ArithDialect", "vector::VectorDialect"];
}

def BSRFastMath : Pass<"bsr-fast-math"> {
  let summary = "Say what the compiler may do with floating-point numbers";
  let description = [{
    Compiled steps are deterministic: the same input gives the same bits, whatever
    the number of threads. Within that, the code generator may

    - fuse a product and a sum (`contract`): one rounding less;
    - divide by multiplying with a reciprocal (`arcp`): at most one more rounding;
    - take either zero as the maximum of -0 and +0 (`nsz` on maxima and minima);
    - sum the lanes of a vector in the order that suits it (`reassoc` on
      reductions): an order fixed at compile time.

    It may not assume that there are no NaN or infinite values: a loss that becomes
    NaN is seen as NaN.

    Before:

    ```mlir
    func.func @f(%x: f32, %y: f32) -> f32 {
      %0 = arith.divf %x, %y : f32
      %1 = arith.maximumf %0, %x : f32
      %2 = arith.mulf %1, %x : f32
      return %2 : f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: f32, %y: f32) -> f32 {
      %0 = arith.divf %x, %y fastmath<arcp,contract> : f32
      %1 = arith.maximumf %0, %x fastmath<nsz> : f32
      %2 = arith.mulf %1, %x fastmath<contract> : f32
      return %2 : f32
    }
    ```
  }];
}

def BSRExportStep : Pass<"bsr-export-step", "ModuleOp"> {
  let summary = "Give a lowered step its C entry point";
  let description = [{
    `bsr_step_run(buffers, arena)` is the only function that a compiled step
    exports. It calls the step with the pointers in `buffers`. Everything else
    becomes internal; kernels are not inlined, since one serves many layers.

    Before:

    ```mlir
    llvm.func @step(%w: !llvm.ptr {bsr.name = "w"}, %arena: !llvm.ptr {bsr.name = "arena"})
        attributes {bsr.arena_bytes = 64 : i64} {
      llvm.return
    }
    ```

    After:

    ```mlir
    llvm.func internal @step(%w: !llvm.ptr, %arena: !llvm.ptr) attributes {no_inline} {
      llvm.return
    }
    llvm.func @bsr_step_run(%buffers: !llvm.ptr, %arena: !llvm.ptr) {
      %0 = llvm.getelementptr %buffers[0] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
      %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
      llvm.call @step(%1, %arena) : (!llvm.ptr, !llvm.ptr) -> ()
      llvm.return
    }
    ```
  }];
  let dependentDialects = ["LLVM::LLVMDialect"];
}

def BSRVerifyLowered : Pass<"bsr-verify-lowered"> {
  let summary = "Fail if a lowered step is not what was promised";
  let description = [{
    The contract at the end of a lowering pipeline: no `bsr` operation or type is
    left, and nothing calls `malloc` or one of its kin: all memory of a step is in
    its buffers and its arena. What breaks it is reported where it stands.

    Before:

    ```mlir
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```
  }];
}

def BSRToSparseTensor : Pass<"bsr-to-sparse-tensor", "func::FuncOp"> {
  let summary = "Make sparse tensors of patterns and values";
  let description = [{
    The way out to MLIR's own sparse pipelines: each `bsr.to_dense` becomes a sparse
    tensor, assembled from the index arrays of the pattern and the stored blocks in
    the order of the view (slots are in any order). Operations of linalg read it as
    it is, anything else a dense copy. Run after `bsr-bind`, in place of
    `bsr-propagate`; then `bsr-lower-patterns` makes index arrays arguments, and
    nothing of this project is left.

    | here | there |
    |---|---|
    | blocks | `(i floordiv r : dense, j floordiv c : compressed, i mod r : dense, j mod c : dense)` |
    | blocks of one row or column | the same without the level that has one entry |
    | `row_ptr`, `col_idx` | positions and coordinates, 32 bits |

    Before:

    ```mlir
    func.func @f(%p: !bsr.pattern<8x8, block = 4x4, slots = 2>, %v: tensor<2x4x4xf32>,
                 %x: tensor<8x8xf32>, %z: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %w = bsr.to_dense %p, %v
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<2x4x4xf32> -> tensor<8x8xf32>
      %y = linalg.matmul ins(%w, %x : tensor<8x8xf32>, tensor<8x8xf32>)
                         outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %y : tensor<8x8xf32>
    }
    ```

    After:

    ```mlir
    #id = affine_map<(k, i, j) -> (k, i, j)>
    #block = affine_map<(k, i, j) -> (k)>
    #bsr = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 4 : dense, j floordiv 4 : compressed,
                                                     i mod 4 : dense, j mod 4 : dense),
                                    posWidth = 32, crdWidth = 32}>
    func.func @f(%p: !bsr.pattern<8x8, block = 4x4, slots = 2>, %v: tensor<2x4x4xf32>,
                 %x: tensor<8x8xf32>, %z: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %ptr, %idx, %slot = bsr.indices %p
          : !bsr.pattern<8x8, block = 4x4, slots = 2> -> tensor<3xi32>, tensor<2xi32>, tensor<2xi32>
      %e = tensor.empty() : tensor<2x4x4xf32>
      %sorted = linalg.generic {indexing_maps = [#block, #id],
                                iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%slot : tensor<2xi32>) outs(%e : tensor<2x4x4xf32>) {
      ^bb0(%s: i32, %out: f32):
        %c0 = arith.constant 0 : i32
        %c1 = arith.constant 1 : i32
        %0 = arith.maxsi %s, %c0 : i32
        %1 = arith.minsi %0, %c1 : i32
        %2 = arith.index_cast %1 : i32 to index
        %3 = linalg.index 1 : index
        %4 = linalg.index 2 : index
        %5 = tensor.extract %v[%2, %3, %4] : tensor<2x4x4xf32>
        linalg.yield %5 : f32
      } -> tensor<2x4x4xf32>
      %flat = tensor.collapse_shape %sorted [[0, 1, 2]] : tensor<2x4x4xf32> into tensor<32xf32>
      %w = sparse_tensor.assemble (%ptr, %idx), %flat
          : (tensor<3xi32>, tensor<2xi32>), tensor<32xf32> to tensor<8x8xf32, #bsr>
      %y = linalg.matmul ins(%w, %x : tensor<8x8xf32, #bsr>, tensor<8x8xf32>)
                         outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %y : tensor<8x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numAssembled", "num-assembled", "Number of sparse tensors made">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bsr::BSRDialect", "linalg::LinalgDialect",
    "sparse_tensor::SparseTensorDialect", "tensor::TensorDialect",
  ];
}

def BSRFromSparseTensor : Pass<"bsr-from-sparse-tensor", "func::FuncOp"> {
  let summary = "Make patterns and values of sparse tensors";
  let description = [{
    The way in from MLIR's own sparse pipelines: an argument whose type is a sparse
    tensor in blocks (the encodings of `bsr-to-sparse-tensor`, of any width of
    positions and coordinates) becomes its values and a pattern, like an argument
    that `bsr-bind` binds. How many blocks may be stored is no part of an encoding:
    the option `density` says it.

    Before, and after `--bsr-from-sparse-tensor=density=0.5`:

    ```mlir
    #bsr = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 4 : dense, j floordiv 4 : compressed,
                                                     i mod 4 : dense, j mod 4 : dense)}>
    func.func @f(%w: tensor<8x8xf32, #bsr>, %x: tensor<8x8xf32>, %z: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %y = linalg.matmul ins(%w, %x : tensor<8x8xf32, #bsr>, tensor<8x8xf32>)
                         outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %y : tensor<8x8xf32>
    }
    ```

    ```mlir
    func.func @f(%v: tensor<2x4x4xf32>, %x: tensor<8x8xf32>, %z: tensor<8x8xf32>,
                 %p: !bsr.pattern<8x8, block = 4x4, slots = 2>) -> tensor<8x8xf32> {
      %w = bsr.to_dense %p, %v
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<2x4x4xf32> -> tensor<8x8xf32>
      %y = linalg.matmul ins(%w, %x : tensor<8x8xf32>, tensor<8x8xf32>)
                         outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %y : tensor<8x8xf32>
    }
    ```
  }];
  let options = [
    Option<"density", "density", "double", /*default=*/"1",
           "The share of blocks that may be stored, in (0, 1]">,
  ];
  let statistics = [
    Statistic<"numReplaced", "num-replaced", "Number of sparse arguments">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

#endif // BSR_TRANSFORMS_PASSES
