// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step becomes one of several processes that train together.

#ifndef BSR_TRANSFORMS_PARALLEL_PASSES
#define BSR_TRANSFORMS_PARALLEL_PASSES

include "mlir/Pass/PassBase.td"

def BSRDataParallel : Pass<"bsr-data-parallel", "func::FuncOp"> {
  let summary = "Take the mean of gradients over the processes of a run";
  let description = [{
    Processes that train together have the same parameters and patterns, and each a
    batch of its own. Each gradient, the loss and the scores of blocks become their means over
    all processes (`bsr.all_reduce`), so that all make the same update: that of one
    process that accumulates the gradients of all batches.

    What differs from process to process is what depends on arguments that are not
    carried and whose role is none of `param`, `state`, `lr`, `step`, `apply` and
    `pattern`. Backward from each carried result, through what works entry by entry,
    the first product, sum, `bsr.sample` or `bsr.scatter_add` that differs is a gradient;
    it is reduced there, before anything else reads it: norms for clipping are
    those of the mean. Gradients of marked weights are values there, as `bsr-propagate` leaves them.
    Results that are not carried are reduced if they are one number or scores.

    The pass proves that what is carried to the next step is the same on all
    processes, and refuses a step where it can't: where a next value depends on the batch in
    another way, or a gradient on a gradient.

    Before:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                    %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> tensor<4xf32> {
      %g = linalg.reduce ins(%x : tensor<8x4xf32>) outs(%w : tensor<4xf32>) dimensions = [0]
        (%a: f32, %sum: f32) {
          %0 = arith.addf %a, %sum : f32
          linalg.yield %0 : f32
        }
      return %g : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                    %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> tensor<4xf32>
        attributes {bsr.communicates} {
      %g = linalg.reduce ins(%x : tensor<8x4xf32>) outs(%w : tensor<4xf32>) dimensions = [0]
        (%a: f32, %sum: f32) {
          %0 = arith.addf %a, %sum : f32
          linalg.yield %0 : f32
        }
      %mean = bsr.all_reduce %g : tensor<4xf32> -> tensor<4xf32>
      return %mean : tensor<4xf32>
    }
    ```
  }];
  let options = [
    Option<"cut", "cut", "bool", /*default=*/"false",
           "Take the mean of each gradient where it is made, also of several that one parameter has, for a step that "
           "is cut into stages or micro-batches">,
  ];
  let statistics = [
    Statistic<"numReductions", "num-reductions", "Number of means over processes">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

def BSRShardState : Pass<"bsr-shard-state", "func::FuncOp"> {
  let summary = "Let each process have a share of the optimizer's state";
  let description = [{
    Of each moment and each sum of gradients, a carried argument of role `state` from which next values of
    state and parameters are made entry by entry, each of `processes` processes keeps one shard (`bsr.shard`), and makes the
    next values of that shard alone: of the moment it keeps it, of the parameter all get the shards of all
    (`bsr.unshard`). This is ZeRO-1 (Rajbhandari et al., ZeRO, 2020, P_os). Each entry is computed as before, but
    once. Values of marked weights are cut by slots, so that a block stays where it is for as long as its slot is
    its own.

    What is smaller than `min-elements` stays whole, and so does, with a remark, what something else reads, such as the
    norm of an update (LAMB). The step says how many processes it is for (`bsr.sharded`) and what was whole (`bsr.whole_shapes`).

    Before:

    ```mlir
    #id = affine_map<(d0) -> (d0)>
    func.func @step(%m: tensor<5xf32> {bsr.name = "m", bsr.result = 0 : i64, bsr.role = "state"},
                    %w: tensor<5xf32> {bsr.name = "w", bsr.result = 1 : i64, bsr.role = "param"},
                    %dw: tensor<5xf32> {bsr.name = "dw"}) -> (tensor<5xf32>, tensor<5xf32>)
        attributes {bsr.communicates} {
      %g = bsr.all_reduce %dw : tensor<5xf32> -> tensor<5xf32>
      %empty = tensor.empty() : tensor<5xf32>
      %moment = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
          ins(%m, %g : tensor<5xf32>, tensor<5xf32>) outs(%empty : tensor<5xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.addf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<5xf32>
      %next = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
          ins(%w, %moment : tensor<5xf32>, tensor<5xf32>) outs(%empty : tensor<5xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.subf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<5xf32>
      return %moment, %next : tensor<5xf32>, tensor<5xf32>
    }
    ```

    After `--bsr-shard-state="processes=2 min-elements=1"`:

    ```mlir
    #id = affine_map<(d0) -> (d0)>
    func.func @step(%m: tensor<3xf32> {bsr.name = "m", bsr.result = 0 : i64, bsr.role = "state"},
                    %w: tensor<5xf32> {bsr.name = "w", bsr.result = 1 : i64, bsr.role = "param"},
                    %dw: tensor<5xf32> {bsr.name = "dw"}) -> (tensor<3xf32>, tensor<5xf32>)
        attributes {bsr.communicates, bsr.sharded = 2 : i64, bsr.whole_shapes = {m = array<i64: 5>}} {
      %g = bsr.all_reduce %dw : tensor<5xf32> -> tensor<5xf32>
      %whole = tensor.empty() : tensor<5xf32>
      %mine = bsr.shard %g : tensor<5xf32> -> tensor<3xf32>
      %old = bsr.shard %w : tensor<5xf32> -> tensor<3xf32>
      %empty = tensor.empty() : tensor<3xf32>
      %moment = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
          ins(%m, %mine : tensor<3xf32>, tensor<3xf32>) outs(%empty : tensor<3xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.addf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<3xf32>
      %other = tensor.empty() : tensor<3xf32>
      %part = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
          ins(%old, %moment : tensor<3xf32>, tensor<3xf32>) outs(%other : tensor<3xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.subf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<3xf32>
      %next = bsr.unshard %part into %w : tensor<3xf32>, tensor<5xf32> -> tensor<5xf32>
      return %moment, %next : tensor<3xf32>, tensor<5xf32>
    }
    ```
  }];
  let options = [
    Option<"processes", "processes", "int64_t", /*default=*/"2", "Number of processes, 2 at least">,
    Option<"minElements", "min-elements", "int64_t", /*default=*/"4096",
           "The fewest elements of what is cut in shards">,
  ];
  let statistics = [
    Statistic<"numSharded", "num-sharded", "Number of arguments that became shards">,
  ];
  let dependentDialects = ["bsr::BSRDialect", "tensor::TensorDialect"];
}

def BSRScheduleReductions : Pass<"bsr-schedule-reductions", "func::FuncOp"> {
  let summary = "Let everything run before what needs a mean over processes";
  let description = [{
    Moves what reads a `bsr.all_reduce`, directly or by way of others, behind everything else of a
    step: while the backward pass goes on, means of the gradients that it made before are on their way. What needs
    the means that were started first comes first, so that the last ones are hidden, too.

    The last mean that has an eighth of all bytes or more, such as that of a tied embedding, is started as soon as it can be: what stands in front of
    it and makes other gradients moves behind it, the nearest ones, until what comes behind it has a half of its bytes.
    What these read, activations and their gradients, lives as much longer.

    Before:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w"}, %dw: tensor<4xf32> {bsr.name = "dw"},
                    %v: tensor<4xf32> {bsr.name = "v"}) -> (tensor<4xf32>, tensor<4xf32>) {
      %mean = bsr.all_reduce %dw : tensor<4xf32> -> tensor<4xf32>
      %next = arith.subf %w, %mean : tensor<4xf32>
      %other = arith.mulf %v, %dw : tensor<4xf32>
      return %next, %other : tensor<4xf32>, tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w"}, %dw: tensor<4xf32> {bsr.name = "dw"},
                    %v: tensor<4xf32> {bsr.name = "v"}) -> (tensor<4xf32>, tensor<4xf32>) {
      %mean = bsr.all_reduce %dw : tensor<4xf32> -> tensor<4xf32>
      %other = arith.mulf %v, %dw : tensor<4xf32>
      %next = arith.subf %w, %mean : tensor<4xf32>
      return %next, %other : tensor<4xf32>, tensor<4xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numMoved", "num-moved", "Number of operations that moved">,
  ];
}

def BSRStartReductions : Pass<"bsr-start-reductions", "func::FuncOp"> {
  let summary = "Put means over processes in buckets, and go on while they are taken";
  let description = [{
    Each `bsr.all_reduce` of a buffer in the body of a step becomes a part of a bucket: of
    one element type, of `bucket-bytes` bytes or, where it has the last one of these, more. The bucket is started
    (`bsr.start_reduce`) where its last mean was taken, and waited for (`bsr.wait_reduce`) in front of
    the first operation that touches one of its buffers. Where that comes before the bucket is full, it is started as it is.
    What is nested, scores that not all runs take, stays as it is. Results are the same bits as without: each
    sum is of the same numbers in the same order.

    Before:

    ```mlir
    func.func @step(%a: memref<4xf32> {bsr.name = "a"}, %b: memref<2xf32> {bsr.name = "b"},
                    %out: memref<4xf32> {bsr.name = "out"}) attributes {bsr.communicates} {
      bsr.all_reduce %a : memref<4xf32>
      bsr.all_reduce %b : memref<2xf32>
      memref.copy %a, %out : memref<4xf32> to memref<4xf32>
      return
    }
    ```

    After:

    ```mlir
    func.func @step(%a: memref<4xf32> {bsr.name = "a"}, %b: memref<2xf32> {bsr.name = "b"},
                    %out: memref<4xf32> {bsr.name = "out"}) attributes {bsr.communicates} {
      %ticket = bsr.start_reduce %a, %b : memref<4xf32>, memref<2xf32>
      bsr.wait_reduce %ticket, %a, %b : memref<4xf32>, memref<2xf32>
      memref.copy %a, %out : memref<4xf32> to memref<4xf32>
      return
    }
    ```
  }];
  let options = [
    Option<"bucketBytes", "bucket-bytes", "int64_t", /*default=*/"0",
           "Bytes of a bucket: 1 starts each mean alone; 0: an eighth of all, but 256 KiB at least and 16 MiB at most">,
  ];
  let statistics = [
    Statistic<"numBuckets", "num-buckets", "Number of buckets">,
  ];
}

def BSRLowerReductions : Pass<"bsr-lower-reductions", "ModuleOp"> {
  let summary = "Call the communicator for means over processes";
  let description = [{
    Each `bsr.all_reduce` of a buffer of a step becomes a call of `all_reduce` of the
    communicator in the context of the run (`bsr/step.h`), or nothing where there is
    none; `bsr.start_reduce` and `bsr.wait_reduce` one of `start_reduce` and `wait_reduce`, `bsr.shard` and `bsr.unshard` one of `shard`
    and `unshard`. The step gets the address of the
    context as its last argument.

    Before:

    ```mlir
    func.func @step(%g: memref<4xf32> {bsr.name = "g"}) attributes {bsr.communicates} {
      bsr.all_reduce %g : memref<4xf32>
      return
    }
    ```

    After:

    ```mlir
    func.func @step(%g: memref<4xf32> {bsr.name = "g"}, %context: !llvm.ptr)
        attributes {bsr.communicates} {
      %field = llvm.getelementptr %context[8] : (!llvm.ptr) -> !llvm.ptr, i8
      %communicator = llvm.load %field : !llvm.ptr -> !llvm.ptr
      %null = llvm.mlir.zero : !llvm.ptr
      %some = llvm.icmp "ne" %communicator, %null : !llvm.ptr
      scf.if %some {
        %at = memref.extract_aligned_pointer_as_index %g : memref<4xf32> -> index
        %address = arith.index_cast %at : index to i64
        %data = llvm.inttoptr %address : i64 to !llvm.ptr
        %count = llvm.mlir.constant(4 : i64) : i64
        %type = llvm.mlir.constant(2 : i32) : i32
        %function = llvm.load %communicator : !llvm.ptr -> !llvm.ptr
        llvm.call %function(%communicator, %data, %count, %type)
            : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
      }
      return
    }
    ```
  }];
  let dependentDialects = [
    "arith::ArithDialect", "LLVM::LLVMDialect", "memref::MemRefDialect",
    "scf::SCFDialect",
  ];
}

def BSRSplitStages : Pass<"bsr-split-stages", "func::FuncOp"> {
  let summary = "Keep one of the stages that a step is cut into";
  let description = [{
    Cuts a step as `bsr-propagate` leaves it into `stages` stages of about one time, as
    `sparse-partition` reads it: each has a share of the forward part, with its backward
    part, parameters, moments and patterns. What is left is stage `stage`, the step
    of that rank of as many processes. Where a stage reads what another computes, that one sends
    (`bsr.send`) and this one receives (`bsr.receive`), in the order of the step, so
    that no stage waits for one that waits for it. A parameter that several stages read is
    carried by all of them; they exchange their parts of its gradient and make the
    same update. Norms for clipping are sums over all stages. All stages return the loss, and each
    the scores of blocks of its weights.

    Fails if there are fewer parts than stages, and where something reads parameters of several
    stages at once.

    Before:

    ```mlir
    func.func @step(%w0: tensor<3x4x4xf32> {bsr.name = "w0", bsr.pattern = 3 : i64, bsr.result = 0 : i64},
                    %w1: tensor<3x4x4xf32> {bsr.name = "w1", bsr.pattern = 4 : i64, bsr.result = 1 : i64},
                    %x: tensor<2x8xf32> {bsr.name = "x", bsr.role = "batch"},
                    %p0: !bsr.pattern<8x8, block = 4x4, slots = 3> {bsr.name = "w0", bsr.role = "pattern"},
                    %p1: !bsr.pattern<8x8, block = 4x4, slots = 3> {bsr.name = "w1", bsr.role = "pattern"})
        -> (tensor<3x4x4xf32>, tensor<3x4x4xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
      %zero = arith.constant dense<0.0> : tensor<f32>
      %h = bsr.spmm %p0, %w0, %x feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 3>, tensor<3x4x4xf32>, tensor<2x8xf32> -> tensor<2x8xf32>
      %y = bsr.spmm %p1, %w1, %h feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 3>, tensor<3x4x4xf32>, tensor<2x8xf32> -> tensor<2x8xf32>
      %loss = linalg.reduce {arith.addf} ins(%y : tensor<2x8xf32>) outs(%zero : tensor<f32>) dimensions = [0, 1]
      %dw1 = bsr.sddmm %p1, %h, %y feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 3>, tensor<2x8xf32>, tensor<2x8xf32> -> tensor<3x4x4xf32>
      %dh = bsr.spmm %p1, %w1, %y transpose feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 3>, tensor<3x4x4xf32>, tensor<2x8xf32> -> tensor<2x8xf32>
      %dw0 = bsr.sddmm %p0, %x, %dh feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 3>, tensor<2x8xf32>, tensor<2x8xf32> -> tensor<3x4x4xf32>
      return %dw0, %dw1, %loss : tensor<3x4x4xf32>, tensor<3x4x4xf32>, tensor<f32>
    }
    ```

    After:

    ```mlir
    func.func @step(%w0: tensor<3x4x4xf32> {bsr.name = "w0", bsr.pattern = 2 : i64, bsr.result = 0 : i64},
                    %x: tensor<2x8xf32> {bsr.name = "x", bsr.role = "batch"},
                    %p0: !bsr.pattern<8x8, block = 4x4, slots = 3> {bsr.name = "w0", bsr.role = "pattern"})
        -> (tensor<3x4x4xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"})
        attributes {bsr.communicates, bsr.stages = array<i64: 0, 2>} {
      %h = bsr.spmm %p0, %w0, %x feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 3>, tensor<3x4x4xf32>, tensor<2x8xf32> -> tensor<2x8xf32>
      bsr.send %h to 1 : tensor<2x8xf32>
      %loss = bsr.receive from 1 -> tensor<f32>
      %dh = bsr.receive from 1 -> tensor<2x8xf32>
      %dw0 = bsr.sddmm %p0, %x, %dh feature_dim = 1
          : !bsr.pattern<8x8, block = 4x4, slots = 3>, tensor<2x8xf32>, tensor<2x8xf32> -> tensor<3x4x4xf32>
      return %dw0, %loss : tensor<3x4x4xf32>, tensor<f32>
    }
    ```
  }];
  let options = [
    Option<"stages", "stages", "unsigned", /*default=*/"2", "Number of stages">,
    Option<"stage", "stage", "unsigned", /*default=*/"0", "The stage to keep, from 0">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

def BSRLowerTransfers : Pass<"bsr-lower-transfers", "ModuleOp"> {
  let summary = "Call the communicator for transfers between stages";
  let description = [{
    Each `bsr.send` and `bsr.receive` of a buffer of a step becomes a call of `send` or
    `receive` of the communicator in the context of the run (`bsr/step.h`), which is
    the last argument of the step once `bsr-lower-reductions` has run. Of a stage there is one: the
    runtime runs none without.

    Before:

    ```mlir
    func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %context: !llvm.ptr) attributes {bsr.communicates} {
      bsr.send %x to 1 : memref<4xf32>
      return
    }
    ```

    After:

    ```mlir
    func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %context: !llvm.ptr) attributes {bsr.communicates} {
      %field = llvm.getelementptr %context[8] : (!llvm.ptr) -> !llvm.ptr, i8
      %communicator = llvm.load %field : !llvm.ptr -> !llvm.ptr
      %at = memref.extract_aligned_pointer_as_index %x : memref<4xf32> -> index
      %address = arith.index_cast %at : index to i64
      %data = llvm.inttoptr %address : i64 to !llvm.ptr
      %bytes = llvm.mlir.constant(16 : i64) : i64
      %rank = llvm.mlir.constant(1 : i32) : i32
      %place = llvm.getelementptr %communicator[24] : (!llvm.ptr) -> !llvm.ptr, i8
      %function = llvm.load %place : !llvm.ptr -> !llvm.ptr
      llvm.call %function(%communicator, %data, %bytes, %rank)
          : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
      return
    }
    ```
  }];
  let dependentDialects = ["arith::ArithDialect", "LLVM::LLVMDialect", "memref::MemRefDialect"];
}

def BSRMicroBatches : Pass<"bsr-micro-batches", "func::FuncOp"> {
  let summary = "Go through several micro-batches in a run of a step";
  let description = [{
    Repeats what a step computes of its batch for `count` micro-batches, and takes means of what
    `bsr-data-parallel` found to be a gradient or a loss over them, too: a run with `count` micro-batches is what as many
    processes do together. What follows from means alone, the update, stays once, behind all of them. Arguments that differ from
    micro-batch to micro-batch, those that `bsr-data-parallel` takes for different, stand once for
    each: that of micro-batch i, counted from 0, has the name of the first one behind `micro<i>.`.

    Of a stage (`bsr-split-stages`), what later stages or the loss need of a micro-batch goes forward, and all else
    goes back. `schedule` is their order: `gpipe` has all forward before all back (Huang et al., 2019), `1f1b`
    as many forward as there are stages from this one on, and then one back and one forward in turn (Narayanan et al.,
    PipeDream, 2019), so that only so many have activations. Sums are taken as soon as a micro-batch has gone back, of 16-bit floats in
    f32. Without `replicas` means over processes become means over micro-batches alone.

    Fails if a result is neither carried nor one number, if a micro-batch needs a mean, and if what goes forward
    needs what a later stage sends back.

    Before:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                    %x: tensor<4xf32> {bsr.name = "x", bsr.role = "batch"}) -> tensor<4xf32>
        attributes {bsr.communicates} {
      %g = arith.mulf %x, %x : tensor<4xf32>
      %mean = bsr.all_reduce %g : tensor<4xf32> -> tensor<4xf32>
      %next = arith.subf %w, %mean : tensor<4xf32>
      return %next : tensor<4xf32>
    }
    ```

    After `--bsr-micro-batches="count=2"`:

    ```mlir
    #id = affine_map<(d0) -> (d0)>
    func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                    %x: tensor<4xf32> {bsr.name = "x", bsr.role = "batch"},
                    %y: tensor<4xf32> {bsr.name = "micro1.x", bsr.role = "batch"}) -> tensor<4xf32>
        attributes {bsr.micro_batches = 2 : i64} {
      %g = arith.mulf %x, %x : tensor<4xf32>
      %h = arith.mulf %y, %y : tensor<4xf32>
      %empty = tensor.empty() : tensor<4xf32>
      %sum = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
          ins(%g, %h : tensor<4xf32>, tensor<4xf32>) outs(%empty : tensor<4xf32>) attrs = {bsr.stored} {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.addf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<4xf32>
      %other = tensor.empty() : tensor<4xf32>
      %mean = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%sum : tensor<4xf32>) outs(%other : tensor<4xf32>) {
      ^bb0(%a: f32, %out: f32):
        %two = arith.constant 2.0 : f32
        %0 = arith.divf %a, %two : f32
        linalg.yield %0 : f32
      } -> tensor<4xf32>
      %next = arith.subf %w, %mean : tensor<4xf32>
      return %next : tensor<4xf32>
    }
    ```
  }];
  let options = [
    Option<"count", "count", "int64_t", /*default=*/"1", "Number of micro-batches of a run">,
    Option<"schedule", "schedule", "std::string", /*default=*/"\"1f1b\"", "The order of those of a stage: gpipe or 1f1b">,
    Option<"replicas", "replicas", "bool", /*default=*/"false",
           "Take means over the processes that run the step, or its stage, too">,
  ];
  let dependentDialects = ["arith::ArithDialect", "linalg::LinalgDialect", "tensor::TensorDialect"];
}

#endif // BSR_TRANSFORMS_PARALLEL_PASSES
