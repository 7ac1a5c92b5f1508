// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors become buffers: carried state is updated where it lies, everything
// else lies in one arena.

#ifndef BSR_TRANSFORMS_BUFFERIZATION_PASSES
#define BSR_TRANSFORMS_BUFFERIZATION_PASSES

include "mlir/Pass/PassBase.td"

def BSRLowerPatterns : Pass<"bsr-lower-patterns", "ModuleOp"> {
  let summary = "Turn patterns into index arrays";
  let description = [{
    A pattern argument becomes six arguments, the index arrays of its two views;
    they keep its name and role, `bsr.kind` tells which array each is. A constant
    pattern becomes constant arrays. By now nothing but `bsr.indices` may use a
    pattern. The types of the patterns stay on the function (`bsr.patterns`, behind the
    static ones); `bsr.pattern_number` of values and index arrays is the place in that
    list. A use in a loop is an error: `bsr-unroll` with `max-operations` did not
    unroll it. Requires `bsr-bind`, where arguments are marked.

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
  let dependentDialects = ["arith::ArithDialect"];
}

def BSRReuseState : Pass<"bsr-reuse-state", "func::FuncOp"> {
  let summary = "Write the next value of an argument over the old one";
  let description = [{
    Where a kernel makes the next value of an argument (`bsr.result`), its init
    becomes that argument, so that bufferization updates the argument where it
    lies and a step copies no parameter. If the old value is read later, the kernel
    moves behind the last reader, and with it what needs its results; where that
    is not possible because a reader needs the new value too, nothing changes and
    `bsr-store-results` copies at the end of the step. Loops (`scf.for`, `scf.while`)
    leave what they carry from round to round in one buffer, too, by a copy where need
    be.

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

def BSRReuseOperands : Pass<"bsr-reuse-operands", "func::FuncOp"> {
  let summary = "Write results over operands that are not read later";
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
    Equal empty tensors are one value by now, the init of many launches: what is
    written over nothing, and would share a buffer where it can. A result
    that is written over nothing gets a tensor of its own instead; `bsr-plan-memory`
    finds out what may lie in one place. `bsr-reuse-operands` requires that it has not
    run yet.

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

def BSRBufferize : Pass<"bsr-bufferize", "ModuleOp"> {
  let summary = "Turn the tensors of steps into buffers";
  let description = [{
    One-shot bufferization, with function boundaries of identity layout. Upstream's
    analysis compares each operand with all reads and writes of what may lie in its
    buffer: quadratic where a step reads a weight, a rate or a table in many places,
    as a loop that was unrolled does. A step of launches has a simpler form: one
    block, in which nothing but launches and insertions writes. Two walks find where
    each value lies and is read last. A launch that would write over what is read
    later gets a buffer of its own, without a copy, for it reads no init; an insertion
    gets a copy. Any other module goes through upstream's analysis. Requires
    `bsr-emit`, where there are clusters.

    Before:

    ```mlir
    func.func private @double(memref<4xf32>, memref<4xf32>)
    func.func @step(%x: tensor<4xf32> {bsr.name = "x"})
        -> (tensor<4xf32> {bsr.name = "y"}, tensor<4xf32> {bsr.name = "z"}) {
      %y = bsr.launch @double ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) in_place = [0]
          -> tensor<4xf32>
      %z = bsr.launch @double ins(%y : tensor<4xf32>) outs(%y : tensor<4xf32>) in_place = [0]
          -> tensor<4xf32>
      return %y, %z : tensor<4xf32>, tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func private @double(memref<4xf32>, memref<4xf32>)
    func.func @step(%x: memref<4xf32> {bsr.name = "x"})
        -> (memref<4xf32> {bsr.name = "y"}, memref<4xf32> {bsr.name = "z"}) {
      call @double(%x, %x) : (memref<4xf32>, memref<4xf32>) -> ()
      %z = memref.alloc() {alignment = 64 : i64} : memref<4xf32>
      call @double(%x, %z) : (memref<4xf32>, memref<4xf32>) -> ()
      return %x, %z : memref<4xf32>, memref<4xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numSeparated", "num-separated", "Number of results that get a buffer instead of their init's">,
  ];
  let dependentDialects = [
    "bufferization::BufferizationDialect", "memref::MemRefDialect",
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
    not live at the same time share memory; no arena can be smaller than what is
    live at one operation (`bsr.live_bytes`). Every buffer starts on a cache line.
    Scores live to the end of the step: the runtime reads them there
    (`bsr.scores`). Plans of patterns, which calls of `bsr.kind` "plan" make, live all of
    the time, and from step to step: nothing else lies there. Requires `bsr-guard-scores`, where there are scores.

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
        attributes {bsr.arena_bytes = 128 : i64, bsr.live_bytes = 128 : i64} {
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

def BSRSplitPlans : Pass<"bsr-split-plans", "ModuleOp"> {
  let summary = "Give a step's plans of patterns a function of their own";
  let description = [{
    Patterns change only between steps. What calls of `bsr.kind` "plan" make of them stays
    valid as long as they do, and `bsr-plan-memory` gave it memory that nothing else uses. So
    these calls move to a function of the step's name and `_plans`, with the same arguments: it is
    to be called before the first step, and again when a pattern has changed, with the
    arena of the steps, which keeps from call to call. A step without plans has none.

    Before:

    ```mlir
    func.func private @plan(memref<3xi32>, memref<4xi32>)
    func.func private @product(memref<4xi32>, memref<4xf32>)
    func.func @step(%ptr: memref<3xi32> {bsr.kind = "row_ptr", bsr.name = "w"},
                    %y: memref<4xf32> {bsr.kind = "output", bsr.name = "y"},
                    %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"}) {
      %c0 = arith.constant 0 : index
      %plan = memref.view %arena[%c0][] : memref<64xi8> to memref<4xi32>
      call @plan(%ptr, %plan) {bsr.kind = "plan"} : (memref<3xi32>, memref<4xi32>) -> ()
      call @product(%plan, %y) : (memref<4xi32>, memref<4xf32>) -> ()
      return
    }
    ```

    After:

    ```mlir
    func.func private @plan(memref<3xi32>, memref<4xi32>)
    func.func private @product(memref<4xi32>, memref<4xf32>)
    func.func @step(%ptr: memref<3xi32> {bsr.kind = "row_ptr", bsr.name = "w"},
                    %y: memref<4xf32> {bsr.kind = "output", bsr.name = "y"},
                    %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"}) {
      %c0 = arith.constant 0 : index
      %plan = memref.view %arena[%c0][] : memref<64xi8> to memref<4xi32>
      call @product(%plan, %y) : (memref<4xi32>, memref<4xf32>) -> ()
      return
    }
    func.func @step_plans(%ptr: memref<3xi32>, %y: memref<4xf32>, %arena: memref<64xi8>) {
      %c0 = arith.constant 0 : index
      %plan = memref.view %arena[%c0][] : memref<64xi8> to memref<4xi32>
      call @plan(%ptr, %plan) {bsr.kind = "plan"} : (memref<3xi32>, memref<4xi32>) -> ()
      return
    }
    ```
  }];
  let statistics = [
    Statistic<"numPlans", "num-plans", "Number of plans that left the step">,
  ];
}

#endif // BSR_TRANSFORMS_BUFFERIZATION_PASSES
