// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect; its description is the rationale.

#ifndef BSR_DIALECT_BSRDIALECT
#define BSR_DIALECT_BSRDIALECT

include "mlir/IR/OpBase.td"

def BSR_Dialect : Dialect {
  let name = "bsr";
  let cppNamespace = "::mlir::bsr";
  let summary = "Block-sparse training with patterns that change at run time";
  let description = [{
    A block-sparse matrix is two SSA values. A *pattern* (`!bsr.pattern`) says
    which blocks are stored: run-time data, shared by a weight, its gradient and
    its optimizer moments. The *values* are an ordinary tensor
    `tensor<slots x br x bc x T>` that holds the stored blocks. A *slot* is the
    address of a block in the values for the block's whole life: a pattern update
    between two steps moves no value and needs no recompilation.

    **Why the values are a plain tensor.** Everything upstream that works on
    tensors (element-wise optimizers, bufferization, fusion) works on the values
    as it is. An optimizer on a block-sparse weight is the dense optimizer with
    another shape. No type with an encoding has to be taught to any pass.

    **Why the pattern is a value, not an attribute.** Patterns change during
    training; the code must not. What is static is the type: the shape of the
    matrix, the shape of a block and the number of slots. A pattern that never
    changes is a `bsr.constant_pattern`, and the same operations use it.

    **Two index views over one set of slots.** A pattern is passed to compiled
    code as six arrays of 32-bit integers: `row_ptr[rows/br + 1]`,
    `col_idx[slots]`, `slot[slots]` list the blocks in row order, `col_ptr[cols/bc
    + 1]`, `row_idx[slots]`, `slot_t[slots]` the same blocks in column order.
    Forward products walk one view and transposed products the other, so both
    gather, write disjointly, and no transposed copy of the values exists.
    `row_ptr` starts at 0 and ends in the number of blocks, which may be smaller
    than the number of slots; indices within a row are sorted and unique; `slot`
    is a partial permutation. The runtime checks this wherever a pattern enters.

    **Ragged shapes are refused.** The block must divide the matrix. Products
    then run full blocks only, and the values of one slot are one contiguous
    block. Models pad ragged matrices themselves, where the padding
    is visible; 1x1 blocks, or rectangular ones such as 16x1, divide whatever
    has to be divided. The verifier of the type names the dimension and the block.

    **Products name the dimension that carries features.** `bsr.spmm` and
    `bsr.sddmm` take activations of any rank with one feature dimension; the
    others are token dimensions. A change of layout from token-major (as JAX and
    PyTorch write it) to feature-major (as vector units want it: lanes are
    tokens) permutes a type and changes one attribute; nothing is reshaped.

    **What tiles.** `bsr.spmm` implements upstream's tiling interface for its token
    dimensions: a tile of `y` is the product of a slice of `x` and the whole
    matrix. `bsr.scatter_add` tiles along features. Tiles divide the dimension, for
    shapes are static, and the dimension that gathers (the features of `y`, the rows
    that indices choose) stays whole. The others do not tile: a tile of
    `bsr.to_dense` would need a part of a pattern and a tile of `bsr.sample` or
    `bsr.sddmm` some of its slots, and which blocks these are is data. `bsr.sddmm`
    could be cut along the tokens it sums over, but its tiles would round partial
    sums to the type of the values, where the whole operation sums in f32.

    **Arithmetic.** Products accumulate in f32, or f64 for f64 operands, whatever
    the element type. Rewrites are equalities of real numbers: they may change
    the order of sums, never what is summed.

    **Attributes of a step's function.** A training step is one `func.func` whose
    arguments carry `bsr.name` (a dotted path, unique per role), where they are
    updated `bsr.result` (the index of the result that is the argument's next
    value), and optionally `bsr.role` (`param`, `state`, `buffer`, `constant`, `batch`,
    `lr`, `seed`, `step`, `apply`, `pattern`, and `count`, of numbers that each block counts for
    itself, `[slots, 1, 1]` in f32; of results `loss`, `metric`, `scores`), `bsr.init` (how a driver may initialise it: `zeros`, `ones`,
    `constant(x)`, `normal(stddev)`), `bsr.aliases` (other names of a tied weight),
    and, after `bsr-mark`, `bsr.mark` or, on masks, `bsr.mask`. An argument of which the
    step as it was exported had another form, as `bsr-unstack`, `bsr-split-weights`
    and `bsr-flatten` leave it, carries `bsr.origin`: the `name` and `shape` of what it is a part of, and the
    `offsets` and `sizes` of the slice of it whose entries, row-major, are its own. After `bsr-bind` a
    pattern argument carries `bsr.density` and, of arguments that were its masks, names
    and types in `bsr.masks`; a values argument `bsr.pattern` (the index of its pattern
    argument) or, if its pattern is static, `bsr.pattern_number`. Results carry `bsr.name` and `bsr.role`; one
    of role `scores` has the scores of the blocks of the weight of its name. The dialect verifies them. Towards the end of the pipeline,
    `bsr.kind` tells what an argument is that was none before: `row_ptr`, `col_idx`,
    `slot`, `col_ptr`, `row_idx` or `slot_t` of a pattern, an `output`, a `flag`, the `arena`;
    `bsr.pattern_number` tells which pattern of the function's `bsr.patterns` values and
    index arrays belong to; `bsr.carried` marks the buffers that a step updates in place,
    `bsr.unsigned` those whose integers the caller takes for unsigned.
    An entry of `bsr.patterns` has the pattern's `name`, `type`, `density` and `masks`, and if it
    is static its `row_ptr` and `col_idx`.

    **The target.** A module says in `bsr.target` what it is compiled for: a processor
    with registers and caches, `#bsr.cpu<...>`. A module without it is for `#bsr.cpu`.

    **Attributes of functions and operations.** Functions carry what their arguments do not
    tell. For the manifest: `bsr.patterns`, `bsr.arena_bytes` and `bsr.live_bytes`,
    `bsr.products` and `bsr.left_dense` (how many products of which kind the step runs),
    `bsr.scores` (where they lie) and `bsr.score_norm`, `bsr.communicates`, `bsr.timers`. For warnings:
    `bsr.unused`, the weights that a program has and its step does not use, and
    `bsr.unmasked`, those whose gradient was not found. A private function that computes
    attention says in `bsr.attention` what its arguments are; one of a product of groups, in
    `bsr.grouped` which it is (`Groups.h`). Clusters and kernels say in `bsr.kind`
    and `bsr.flops` what they compute. On operations, `bsr.lanes`, `bsr.peak` and
    `bsr.recomputed` are internal, set by one pass and read by a later one; on those of a cluster, `bsr.root` is
    a part of its plan. On a `bsr.spmm` or a `bsr.sddmm`, `bsr.schedule` says how its kernel goes through it
    (`Schedules.h`). A `bsr.constant_pattern` has the `bsr.name` of its weight, a
    `bsr.launch` in `bsr.panels` the operands that are cut in panels, an allocation in
    `bsr.scores` the weight whose scores it holds. The dialect
    verifies these, too, and refuses every other name that begins with `bsr.`.
  }];

  // Attributes that front ends and passes leave on functions, arguments, results and
  // operations: their names and types. The verifiers say where each may stand and what
  // it has to hold. `attrs` (Attributes.h) reads and writes them.
  let discardableAttrs = (ins
    // Of a step: it takes means over processes only in runs whose argument of role `apply`
    // is not 0; in others, each process adds up gradients.
    "::mlir::UnitAttr":$accumulates,
    // Of an argument: other names of a tied weight.
    "::mlir::ArrayAttr":$aliases,
    // Of a step: the bytes of its arena.
    "::mlir::IntegerAttr":$arena_bytes,
    // Of a private function: it computes attention, or its gradient, of these arguments.
    "::mlir::DictionaryAttr":$attention,
    // Of an argument: a buffer that the step updates in place.
    "::mlir::UnitAttr":$carried,
    // Of a step: it reduces over the processes of a run.
    "::mlir::UnitAttr":$communicates,
    // Of a pattern argument: the share of blocks that it starts with.
    "::mlir::FloatAttr":$density,
    // Of a cluster or a kernel: the floating-point operations of its products.
    "::mlir::IntegerAttr":$flops,
    // Of a private function: it computes this product of groups of rows.
    "::mlir::StringAttr":$grouped,
    // Of an argument: how a driver may initialise it.
    "::mlir::StringAttr":$init,
    // Of an argument: what it is that was none before; of a cluster or a kernel: the
    // kind of its work.
    "::mlir::StringAttr":$kind,
    // Of an operation: its results have tokens last.
    "::mlir::UnitAttr":$lanes,
    // Of a step: the clusters that go between a dense matrix and its stored blocks.
    "::mlir::IntegerAttr":$left_dense,
    // Of a step: the bytes that are live at once.
    "::mlir::IntegerAttr":$live_bytes,
    // Of an argument: it is to be block-sparse.
    "::mlir::bsr::MarkAttr":$mark,
    // Of an argument: it is the mask of a weight.
    "::mlir::bsr::MaskAttr":$mask,
    // Of a pattern argument: the arguments that were its masks.
    "::mlir::ArrayAttr":$masks,
    // Of a step: how many micro-batches a run of it goes through.
    "::mlir::IntegerAttr":$micro_batches,
    // Of an argument or a result: its path; of a constant pattern: its weight.
    "::mlir::StringAttr":$name,
    // Of an argument: what it is a part of.
    "::mlir::DictionaryAttr":$origin,
    // Of a launch: the operands that are cut in panels.
    "::mlir::DenseI64ArrayAttr":$panels,
    // Of an argument of values: the index of its pattern.
    "::mlir::IntegerAttr":$pattern,
    // Of an argument: the entry of the step's patterns that it belongs to.
    "::mlir::IntegerAttr":$pattern_number,
    // Of a step: its patterns.
    "::mlir::ArrayAttr":$patterns,
    // Of an operation: most bytes are live there.
    "::mlir::UnitAttr":$peak,
    // Of a step: how many products of each kind its clusters compute.
    "::mlir::DictionaryAttr":$products,
    // Of an operation: it is computed a second time.
    "::mlir::UnitAttr":$recomputed,
    // Of a stage of a step: several processes may run it, which take means.
    "::mlir::UnitAttr":$replicas,
    // Of an argument: the index of the result that is its next value.
    "::mlir::IntegerAttr":$result,
    // Of an argument or a result: what it is for.
    "::mlir::StringAttr":$role,
    // Of an operation in a cluster: what the plan of the cluster says of it.
    "::mlir::bsr::RootAttr":$root,
    // Of a product: how its kernel goes through it.
    "::mlir::DictionaryAttr":$schedule,
    // Of a step: the norm that its scores are.
    "::mlir::StringAttr":$score_norm,
    // Of a step: where its scores lie; of an allocation: whose scores it holds.
    "::mlir::Attribute":$scores,
    // Of a step: the number of processes among which its state is sharded.
    "::mlir::IntegerAttr":$sharded,
    // Of a stage of a step: which it is, and how many there are.
    "::mlir::DenseI64ArrayAttr":$stages,
    // Of an operation: its result lies in memory before something reads it.
    "::mlir::UnitAttr":$stored,
    // Of a module: what it is compiled for.
    "::mlir::bsr::TargetAttrInterface":$target,
    // Of a step: what its timers measure.
    "::mlir::ArrayAttr":$timers,
    // Of a step: the weights whose gradient was not found.
    "::mlir::ArrayAttr":$unmasked,
    // Of an argument or a result: the caller takes its integers for unsigned.
    "::mlir::UnitAttr":$unsigned,
    // Of a step: the weights that the program has and the step does not use.
    "::mlir::ArrayAttr":$unused,
    // Of a step: the whole shapes of the arguments whose shards it takes, by their
    // `bsr.name`.
    "::mlir::DictionaryAttr":$whole_shapes,
    // Of a step: the floating-point operations of its products, as `bsr-count-flops` counts
    // them.
    "::mlir::DictionaryAttr":$work
  );

  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif // BSR_DIALECT_BSRDIALECT
