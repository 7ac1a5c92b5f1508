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
  let statistics = [
    Statistic<"numReductions", "num-reductions", "Number of means over processes">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

def BSRScheduleReductions : Pass<"bsr-schedule-reductions", "func::FuncOp"> {
  let summary = "Let everything run before what needs a mean over processes";
  let description = [{
    Moves what reads a `bsr.all_reduce`, directly or by way of others, behind everything else of a
    step: while the backward pass goes on, means of the gradients that it made before are on their way. What needs
    the means that were started first comes first, so that the last ones are hidden, too.

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
    none; `bsr.start_reduce` and `bsr.wait_reduce` one of `start_reduce` and `wait_reduce`. The step gets the address of the
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

#endif // BSR_TRANSFORMS_PARALLEL_PASSES
