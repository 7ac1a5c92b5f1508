// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the importers leave becomes one function without loops, every marked
// weight a matrix.

#ifndef BSR_TRANSFORMS_IMPORT_PASSES
#define BSR_TRANSFORMS_IMPORT_PASSES

include "mlir/Pass/PassBase.td"

def BSRVerifyStep : Pass<"bsr-verify-step", "ModuleOp"> {
  let summary = "Fail if a module is not a step that the pipelines can lower";
  let description = [{
    The contract at the beginning of a lowering pipeline: what the passes behind it
    rely on is checked here, once, and reported in the program's own terms.

    The module is functions, and one of them the step: the only public one, the only
    one whose arguments have names (`bsr.name`). Every argument has one, and every
    result that carries no argument. The step is one block that ends in `func.return`.
    Its arguments are tensors or patterns, its results tensors: of static shape,
    without an encoding, with at least one element of a type that the runtime knows. Operations
    are of dialects that the pipelines lower, work on buffers if they work on tensors, and
    make tensors that have elements, and numbers that code computes with: integers of at most 64
    bits. What the step calls has a body that is one block, too,
    and does not call itself. What breaks this is reported where it stands: an argument
    at its own location.

    Before:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
      return %w : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
      return %w : tensor<4xf32>
    }
    ```
  }];
}

def BSRImportGroups : Pass<"bsr-import-groups", "ModuleOp"> {
  let summary = "Make products of groups of calls of functions that say that they compute them";
  let description = [{
    A front end that knows of mixtures of experts, as PyTorch's of transformers' models, puts the
    products of rows with the matrices of their experts, and their gradients, into functions
    of their own, whose attribute `bsr.grouped` says what they compute
    (`include/bsr/Dialect/Groups.h`). Their bodies are of operations of upstream, which multiply all
    rows with each matrix: who does not know the attribute inlines them. This pass makes
    `bsr.grouped_matmul` and `bsr.grouped_outer` of calls in front of that.

    Calls stay, and are inlined, where the matrices are of an argument with a mark: in
    products of its own, each can be block-sparse.

    Before:

    ```mlir
    func.func @f(%x: tensor<8x4xf32> {bsr.name = "x"}, %w: tensor<3x6x4xf32> {bsr.name = "w"},
                 %groups: tensor<8xi64> {bsr.name = "groups"}) -> (tensor<8x6xf32> {bsr.name = "y"}) {
      %y = call @multiply(%x, %w, %groups)
          : (tensor<8x4xf32>, tensor<3x6x4xf32>, tensor<8xi64>) -> tensor<8x6xf32>
      return %y : tensor<8x6xf32>
    }
    func.func private @multiply(%x: tensor<8x4xf32>, %w: tensor<3x6x4xf32>,
                                %groups: tensor<8xi64>) -> tensor<8x6xf32>
        attributes {bsr.grouped = "matmul_transposed"} {
      %0 = tensor.empty() : tensor<8x6xf32>
      return %0 : tensor<8x6xf32>
    }
    ```

    After:

    ```mlir
    func.func @f(%x: tensor<8x4xf32> {bsr.name = "x"}, %w: tensor<3x6x4xf32> {bsr.name = "w"},
                 %groups: tensor<8xi64> {bsr.name = "groups"}) -> (tensor<8x6xf32> {bsr.name = "y"}) {
      %y = bsr.grouped_matmul %x, %w, %groups transpose
          : tensor<8x4xf32>, tensor<3x6x4xf32>, tensor<8xi64> -> tensor<8x6xf32>
      return %y : tensor<8x6xf32>
    }
    func.func private @multiply(%x: tensor<8x4xf32>, %w: tensor<3x6x4xf32>,
                                %groups: tensor<8xi64>) -> tensor<8x6xf32>
        attributes {bsr.grouped = "matmul_transposed"} {
      %0 = tensor.empty() : tensor<8x6xf32>
      return %0 : tensor<8x6xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numImported", "num-imported", "Number of products made of calls">,
  ];
  let dependentDialects = ["::mlir::bsr::BSRDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def BSRDropSigns : Pass<"bsr-drop-signs", "ModuleOp"> {
  let summary = "Make unsigned integers signless";
  let description = [{
    What JAX's programs lower to has arguments of unsigned integers, above all the keys
    of random numbers (`tensor<2xui32>`), with casts between them and the signless
    integers that `arith` computes with. The operations know what they do (`arith.divui`): the
    sign in the type says nothing to them, and bufferization does not know the casts. So
    every unsigned integer becomes signless, bit for bit, and the casts go. What the
    caller gives and gets stays unsigned in the manifest: arguments and results of the step
    carry `bsr.unsigned`.

    Before:

    ```mlir
    func.func @step(%key: tensor<2xui32> {bsr.name = "key", bsr.result = 0 : i64}) -> tensor<2xui32> {
      %0 = builtin.unrealized_conversion_cast %key : tensor<2xui32> to tensor<2xi32>
      %1 = linalg.add ins(%0, %0 : tensor<2xi32>, tensor<2xi32>) outs(%0 : tensor<2xi32>) -> tensor<2xi32>
      %2 = builtin.unrealized_conversion_cast %1 : tensor<2xi32> to tensor<2xui32>
      return %2 : tensor<2xui32>
    }
    ```

    After:

    ```mlir
    func.func @step(%key: tensor<2xi32> {bsr.name = "key", bsr.result = 0 : i64, bsr.unsigned}) -> (tensor<2xi32> {bsr.unsigned}) {
      %0 = linalg.add ins(%key, %key : tensor<2xi32>, tensor<2xi32>) outs(%key : tensor<2xi32>) -> tensor<2xi32>
      return %0 : tensor<2xi32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numUnsigned", "num-unsigned", "Number of arguments that were unsigned">,
  ];
}

def BSRCropPads : Pass<"bsr-crop-pads", "ModuleOp"> {
  let summary = "Write paddings below zero as slices";
  let description = [{
    `tensor.pad` takes entries away where `low` or `high` is below zero: so torch-mlir
    writes `F.pad(x, (-1, -1))` and the gradient of every padding. What is left of the
    source is a slice of it, and what is added to that a padding. If nothing is left, the
    result is what the region of the padding yields. This comes first: MLIR's bufferization
    copies the whole source into the result, whatever its sign, and its canonicalization
    adds the paddings of a padding to those of its source.

    Before:

    ```mlir
    func.func @step(%x: tensor<2x8xf32> {bsr.name = "x"}) -> (tensor<2x8xf32> {bsr.name = "y"}) {
      %zero = arith.constant 0.0 : f32
      %y = tensor.pad %x low[0, -1] high[0, 1] {
      ^bb0(%i: index, %j: index):
        tensor.yield %zero : f32
      } : tensor<2x8xf32> to tensor<2x8xf32>
      return %y : tensor<2x8xf32>
    }
    ```

    After:

    ```mlir
    func.func @step(%x: tensor<2x8xf32> {bsr.name = "x"}) -> (tensor<2x8xf32> {bsr.name = "y"}) {
      %zero = arith.constant 0.0 : f32
      %left = tensor.extract_slice %x[0, 1] [2, 7] [1, 1] : tensor<2x8xf32> to tensor<2x7xf32>
      %y = tensor.pad %left low[0, 0] high[0, 1] {
      ^bb0(%i: index, %j: index):
        tensor.yield %zero : f32
      } : tensor<2x7xf32> to tensor<2x8xf32>
      return %y : tensor<2x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numCropped", "num-cropped", "Number of paddings below zero">,
  ];
  let dependentDialects = ["tensor::TensorDialect"];
}

def BSRClampIndices : Pass<"bsr-clamp-indices", "func::FuncOp"> {
  let summary = "Keep indices that are computed within their tensors";
  let description = [{
    Upstream leaves open what `tensor.extract`, `tensor.insert`, slices and transfers of
    vectors do at an index outside of their tensor, and code that is made of them reads
    and writes there, in whatever memory follows. Constants are checked (`bsr-verify-step`).
    An index that is computed becomes the nearest one within the tensor, as
    XLA's `dynamic_slice` and `gather` have it; of a slice as the nearest with which it
    ends there, too. Nothing is added where how the index is computed shows that it is
    within: loops, minima and maxima, remainders, also of entries of tensors that an
    element-wise operation computes. Programs of JAX have these already.

    Before:

    ```mlir
    func.func @step(%x: tensor<8xf32>, %i: index) -> tensor<2xf32> {
      %y = tensor.extract_slice %x[%i] [2] [1] : tensor<8xf32> to tensor<2xf32>
      return %y : tensor<2xf32>
    }
    ```

    After:

    ```mlir
    func.func @step(%x: tensor<8xf32>, %i: index) -> tensor<2xf32> {
      %c0 = arith.constant 0 : index
      %c6 = arith.constant 6 : index
      %0 = arith.maxsi %i, %c0 : index
      %1 = arith.minsi %0, %c6 : index
      %y = tensor.extract_slice %x[%1] [2] [1] : tensor<8xf32> to tensor<2xf32>
      return %y : tensor<2xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numClamped", "num-clamped", "Number of indices that may be outside">,
  ];
  let dependentDialects = ["arith::ArithDialect"];
}

def BSRMoveReads : Pass<"bsr-move-reads"> {
  let summary = "Make destinations that element-wise operations read operands";
  let description = [{
    An update in place, as it is written by hand and as MLIR's in-place forms are, has the
    weight as the destination of a `linalg.generic` whose body reads it. Whether an
    operation is element-wise, and so can work on stored blocks alone, is asked of its
    operands: a destination that a body reads becomes one, and what is written has a
    destination of its own. `bsr-reuse-state` and `bsr-reuse-operands` let it lie where it
    lay.

    A sum with a destination of zeros, as front ends write the outer product of two
    vectors, is what is added: a gradient that is such a product is found like others.

    Before:

    ```mlir
    #map = affine_map<(i, j) -> (i, j)>
    func.func @step(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64},
                    %dw: tensor<8x8xf32> {bsr.name = "dw"}) -> tensor<8x8xf32> {
      %next = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
          ins(%dw : tensor<8x8xf32>) outs(%w : tensor<8x8xf32>) {
      ^bb0(%g: f32, %out: f32):
        %0 = arith.subf %out, %g : f32
        linalg.yield %0 : f32
      } -> tensor<8x8xf32>
      return %next : tensor<8x8xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(i, j) -> (i, j)>
    func.func @step(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64},
                    %dw: tensor<8x8xf32> {bsr.name = "dw"}) -> tensor<8x8xf32> {
      %empty = tensor.empty() : tensor<8x8xf32>
      %next = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]}
          ins(%dw, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%empty : tensor<8x8xf32>) {
      ^bb0(%g: f32, %in: f32, %out: f32):
        %0 = arith.subf %in, %g : f32
        linalg.yield %0 : f32
      } -> tensor<8x8xf32>
      return %next : tensor<8x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numMoved", "num-moved", "Number of operations that read their destination">,
  ];
  let dependentDialects = ["linalg::LinalgDialect", "tensor::TensorDialect"];
}

def BSRDropUpdates : Pass<"bsr-drop-updates", "func::FuncOp"> {
  let summary = "Leave of a step what it returns beside its state";
  let description = [{
    Evaluation wants the loss of a step, and none of its updates. The next values of
    the state go, with all that only they need, the backward pass and the optimizer
    above all; what is left is a program that carries nothing. Arguments that nothing
    uses any more, moments, counters and the learning rate, go as well; but parameters,
    buffers and batches stay, and so do masks, which the driver knows.

    It runs when weights are bound to their patterns in name but not yet in form, so
    that names, stacks and patterns are those of the whole step: both programs can
    work on the same memory (`bsr_session_share`).

    Before:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.role = "param"},
                    %m: tensor<4xf32> {bsr.name = "m", bsr.result = 1 : i64, bsr.role = "state"})
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32> {bsr.name = "y"}) {
      %next = linalg.add ins(%w, %m : tensor<4xf32>, tensor<4xf32>)
                         outs(%w : tensor<4xf32>) -> tensor<4xf32>
      %y = linalg.mul ins(%w, %w : tensor<4xf32>, tensor<4xf32>)
                      outs(%w : tensor<4xf32>) -> tensor<4xf32>
      return %next, %m, %y : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param"})
        -> (tensor<4xf32> {bsr.name = "y"}) {
      %y = linalg.mul ins(%w, %w : tensor<4xf32>, tensor<4xf32>)
                      outs(%w : tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numDropped", "num-dropped", "Number of next values dropped">,
  ];
}

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

    A loop that adds one row of a tensor in each step, to a row of zeros that an
    index names, is no sequence of operations on the whole but `bsr.scatter_add`: so
    the gradient of an embedding arrives where scatters were lowered to loops. The
    sums have the same order.

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
    Statistic<"numScatterAdds", "num-scatter-adds",
              "Number of loops made scatter-adds">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

def BSRForwardSlices : Pass<"bsr-forward-slices", "func::FuncOp"> {
  let summary = "Replace slices of what was inserted by what was inserted";
  let description = [{
    A loop that saves a value of each step for another, as the forward pass of
    `lax.scan` does for the backward one, inserts them into a tensor of all steps,
    of which the other loop takes slices. Once both are unrolled (`bsr-unroll`), a
    slice is the value that was inserted at its place, and the tensor of all steps
    has no other readers left, or is gone. Copies that only add dimensions of one entry, as
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
    of what they come from, and where in it they lie. All else (one pattern a matrix, methods, checkpoints,
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
                        bsr.origin = {name = "w", shape = array<i64: 2, 8, 8>,
                                      offsets = array<i64: 0, 0, 0>, sizes = array<i64: 1, 8, 8>},
                        bsr.result = 0 : i64},
                    %w1: tensor<8x8xf32> {
                        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w.1">,
                        bsr.name = "w.1",
                        bsr.origin = {name = "w", shape = array<i64: 2, 8, 8>,
                                      offsets = array<i64: 1, 0, 0>, sizes = array<i64: 1, 8, 8>},
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

def BSRSplitWeights : Pass<"bsr-split-weights", "ModuleOp"> {
  let summary = "Turn marked matrices of which the step takes slices into these";
  let description = [{
    Queries, keys and values come as one matrix of which a model takes slices
    (`nn.MultiheadAttention` between two sequences, `chunk`, `split`). A product with a
    slice is none with the matrix: it would be dense. So an argument that is a
    marked matrix, or a moment or a mask of one, becomes its parts, cut where slices
    of its rows, or of its columns, begin and end: `w` becomes `w.0`, `w.1` and so on, as
    for `bsr-unstack`, each with a pattern of its own, which a warning says. Where
    the step reads the whole matrix, the parts are joined; `bsr-split-concats` computes
    with each of them.

    A slice may be taken of what is computed of the weight entry by entry: a cast,
    its transpose. A matrix stays as it is, and what is computed with its slices
    dense, if these cut rows and columns, are vectors, cut blocks or leave a part of
    one entry, which a warning says of both, or if the pattern is static.

    Before:

    ```mlir
    func.func @step(%w: tensor<8x12xf32> {
                        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                        bsr.name = "w", bsr.result = 0 : i64},
                    %x: tensor<5x8xf32> {bsr.name = "x"})
        -> (tensor<8x12xf32>, tensor<5x4xf32> {bsr.name = "y"}) {
      %zero = arith.constant dense<0.0> : tensor<5x4xf32>
      %v = tensor.extract_slice %w[0, 8] [8, 4] [1, 1] : tensor<8x12xf32> to tensor<8x4xf32>
      %y = linalg.matmul ins(%x, %v : tensor<5x8xf32>, tensor<8x4xf32>)
                         outs(%zero : tensor<5x4xf32>) -> tensor<5x4xf32>
      return %w, %y : tensor<8x12xf32>, tensor<5x4xf32>
    }
    ```

    After:

    ```mlir
    func.func @step(%w0: tensor<8x8xf32> {
                        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w.0">,
                        bsr.name = "w.0",
                        bsr.origin = {name = "w", shape = array<i64: 8, 12>,
                                      offsets = array<i64: 0, 0>, sizes = array<i64: 8, 8>},
                        bsr.result = 0 : i64},
                    %w1: tensor<8x4xf32> {
                        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w.1">,
                        bsr.name = "w.1",
                        bsr.origin = {name = "w", shape = array<i64: 8, 12>,
                                      offsets = array<i64: 0, 8>, sizes = array<i64: 8, 4>},
                        bsr.result = 1 : i64},
                    %x: tensor<5x8xf32> {bsr.name = "x"})
        -> (tensor<8x8xf32>, tensor<8x4xf32>, tensor<5x4xf32> {bsr.name = "y"}) {
      %zero = arith.constant dense<0.0> : tensor<5x4xf32>
      %y = linalg.matmul ins(%x, %w1 : tensor<5x8xf32>, tensor<8x4xf32>)
                         outs(%zero : tensor<5x4xf32>) -> tensor<5x4xf32>
      return %w0, %w1, %y : tensor<8x8xf32>, tensor<8x4xf32>, tensor<5x4xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numParts", "num-parts", "Number of matrices made of arguments">,
  ];
  let dependentDialects = ["bsr::BSRDialect", "tensor::TensorDialect"];
}

#endif // BSR_TRANSFORMS_IMPORT_PASSES
