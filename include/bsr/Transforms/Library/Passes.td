// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface of a compiled step to the runtime.

#ifndef BSR_TRANSFORMS_LIBRARY_PASSES
#define BSR_TRANSFORMS_LIBRARY_PASSES

include "mlir/Pass/PassBase.td"

def BSRTimeLaunches : Pass<"bsr-time-launches", "ModuleOp"> {
  let summary = "Measure the time of each kernel";
  let description = [{
    Reads a clock after each call of a kernel in a step, each copy and each
    operation that is no kernel, and adds the time since the last reading to a
    table in the library, `bsr_step_timers`: for each timer its nanoseconds and how
    often it ran. Every nanosecond of a step counts for one timer; the first timer
    is the step's own and has what comes behind its last kernel, once a run. The
    row behind the last timer takes the time between two runs. The last readings, each with its
    timer, are in `bsr_step_trace_events` (`bsr/step.h`). The manifest lists
    the timers (`bsr.timers`) with what `bsr-cluster` knows of the kernels.

    A step for a GPU only lists them, the kernels of its plans too: the runtime
    launches one kernel at a time between two events of the driver.

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
    memref.global "public" @bsr_step_trace_events : memref<65537x2xi64> = dense<0>
    memref.global "private" @bsr_trace_time : memref<2xi64> = dense<0>
    memref.global "private" @bsr_trace_last : memref<i64> = dense<0>
    func.func private @clock_gettime(i32, memref<2xi64>) -> i32
    func.func private @bsr_trace_event(%timer: index) {
      %0 = memref.get_global @bsr_trace_time : memref<2xi64>
      %c1_i32 = arith.constant 1 : i32
      %1 = call @clock_gettime(%c1_i32, %0) : (i32, memref<2xi64>) -> i32
      %c0 = arith.constant 0 : index
      %2 = memref.load %0[%c0] : memref<2xi64>
      %c1000000000_i64 = arith.constant 1000000000 : i64
      %3 = arith.muli %2, %c1000000000_i64 : i64
      %c1 = arith.constant 1 : index
      %4 = memref.load %0[%c1] : memref<2xi64>
      %5 = arith.addi %3, %4 : i64
      %6 = memref.get_global @bsr_trace_last : memref<i64>
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
      %14 = memref.get_global @bsr_step_trace_events : memref<65537x2xi64>
      %c0_2 = arith.constant 0 : index
      %c0_3 = arith.constant 0 : index
      %15 = memref.load %14[%c0_2, %c0_3] : memref<65537x2xi64>
      %c65535_i64 = arith.constant 65535 : i64
      %16 = arith.andi %15, %c65535_i64 : i64
      %17 = arith.index_cast %16 : i64 to index
      %c1_4 = arith.constant 1 : index
      %18 = arith.addi %17, %c1_4 : index
      %19 = arith.index_cast %timer : index to i64
      %c0_5 = arith.constant 0 : index
      memref.store %19, %14[%18, %c0_5] : memref<65537x2xi64>
      %c1_6 = arith.constant 1 : index
      memref.store %5, %14[%18, %c1_6] : memref<65537x2xi64>
      %c1_i64_7 = arith.constant 1 : i64
      %20 = arith.addi %15, %c1_i64_7 : i64
      memref.store %20, %14[%c0_2, %c0_3] : memref<65537x2xi64>
      return
    }
    func.func private @scale(memref<4xf32>) attributes {bsr.kind = "elementwise"}
    func.func @step(%x: memref<4xf32> {bsr.name = "x"}) attributes {bsr.timers = [{kernel = "step", kind = "other"}, {bytes = 16 : i64, kernel = "scale", kind = "elementwise", operands = "4xf32"} ]} {
      %c2 = arith.constant 2 : index
      call @bsr_trace_event(%c2) : (index) -> ()
      call @scale(%x) : (memref<4xf32>) -> ()
      %c1 = arith.constant 1 : index
      call @bsr_trace_event(%c1) : (index) -> ()
      %c0 = arith.constant 0 : index
      call @bsr_trace_event(%c0) : (index) -> ()
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
    buffers in the order in which `bsr_step_run` takes them, and its patterns. Of
    arguments with one `bsr.name` the parameter, or the one without a role, has this
    name; a moment that goes by its weight's is `<name>.<role>`. The manifest also
    counts what it computes: bytes of the arena, products, functions of kernels and
    their launches; `docs/manifest.md` has every key, and a manifest that is not as
    it says is an error. `bsr_step_abi_version` is the version of `bsr/step.h`, which
    has the interface of a step. `sparse-compile` adds what it knows once there is code: its hash (`code`), the features that a
    processor needs to run it (`target_features`), and the choices that it depends
    on (`compiler`).

    Of a step for a GPU, whose kernels are PTX by then, the manifest has the chip and
    every launch: kernel, extents and arguments. The host does nothing else.

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
    llvm.mlir.global external constant @bsr_step_manifest("{\22arena_bytes\22:0,\22buffers\22:[{\22carried\22:false,\22kind\22:\22dense\22,\22name\22:\22x\22,\22role\22:\22batch\22,\22shape\22:[4],\22type\22:\22f32\22}\5D,\22format\22:\22bsr-step\22,\22kernels\22:{\22functions\22:0,\22launches\22:0},\22left_dense\22:0,\22live_bytes\22:0,\22name\22:\22step\22,\22patterns\22:[],\22products\22:{\22dense\22:0,\22sddmm\22:0,\22spmm\22:0,\22spmm_transposed\22:0},\22target_cpu\22:\22generic\22,\22version\22:1}\00") {addr_space = 0 : i32}
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

def BSRExportStep : Pass<"bsr-export-step", "ModuleOp"> {
  let summary = "Give a lowered step its C entry point";
  let description = [{
    `bsr_step_run(context, buffers, arena)` is the only function that a compiled
    step exports, with `bsr_step_run_scores` if there are scores. It calls the step
    if the context (`bsr/step.h`) is of the version and the device that the step was
    compiled for; if not, it touches no buffer, says in the context what it expected,
    and returns a status. The step takes `buffers` and loads each pointer in front of
    the calls that take it: of thousands that live from the start, LLVM's instruction
    selection and register allocation would take quadratic time. Everything else
    becomes internal; kernels are not inlined, since one serves many layers.

    Before:

    ```mlir
    llvm.func @kernel(!llvm.ptr, !llvm.ptr)
    llvm.func @step(%w: !llvm.ptr {bsr.name = "w"}, %arena: !llvm.ptr {bsr.name = "arena"})
        attributes {bsr.arena_bytes = 64 : i64} {
      llvm.call @kernel(%w, %arena) : (!llvm.ptr, !llvm.ptr) -> ()
      llvm.return
    }
    ```

    After:

    ```mlir
    llvm.func @kernel(!llvm.ptr, !llvm.ptr)
    llvm.func internal @step(%buffers: !llvm.ptr, %arena: !llvm.ptr) attributes {no_inline} {
      %0 = llvm.getelementptr %buffers[0] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
      %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
      llvm.call @kernel(%1, %arena) : (!llvm.ptr, !llvm.ptr) -> ()
      llvm.return
    }
    llvm.func @bsr_step_run(%context: !llvm.ptr, %buffers: !llvm.ptr, %arena: !llvm.ptr) -> i32 {
      %0 = llvm.getelementptr %context[0] : (!llvm.ptr) -> !llvm.ptr, i8
      %1 = llvm.load %0 : !llvm.ptr -> i32
      %2 = llvm.mlir.constant(1 : i32) : i32
      %3 = llvm.icmp "eq" %1, %2 : i32
      %4 = llvm.mlir.constant(1 : i32) : i32
      llvm.cond_br %3, ^device, ^refuse(%4, %2 : i32, i32)
    ^device:
      %5 = llvm.getelementptr %context[4] : (!llvm.ptr) -> !llvm.ptr, i8
      %6 = llvm.load %5 : !llvm.ptr -> i32
      %7 = llvm.mlir.constant(0 : i32) : i32
      %8 = llvm.icmp "eq" %6, %7 : i32
      %9 = llvm.mlir.constant(2 : i32) : i32
      llvm.cond_br %8, ^run, ^refuse(%9, %7 : i32, i32)
    ^run:
      llvm.call @step(%buffers, %arena) : (!llvm.ptr, !llvm.ptr) -> ()
      %10 = llvm.mlir.constant(0 : i32) : i32
      llvm.return %10 : i32
    ^refuse(%status: i32, %expected: i32):
      %13 = llvm.getelementptr %context[16] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.store %expected, %13 : i32, !llvm.ptr
      llvm.return %status : i32
    }
    ```
  }];
  let dependentDialects = ["LLVM::LLVMDialect"];
}

def BSRDivideStep : Pass<"bsr-divide-step", "ModuleOp"> {
  let summary = "Move the calls of a lowered step into functions of bounded size";
  let description = [{
    A step of 96 layers is one block of 3,400 calls, whose addresses are values of that
    block: LLVM's register allocation alone took more than half of the time of all code
    generation. Each `max-calls` calls that follow one another, the loads that only they
    read, and the addresses that these need become a function. What else they read is
    its arguments. Calls that return something stay, and so does what is left in the end.

    Before:

    ```mlir
    llvm.func @kernel(!llvm.ptr)
    llvm.func @step(%buffers: !llvm.ptr, %arena: !llvm.ptr) {
      %0 = llvm.getelementptr %arena[64] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.call @kernel(%0) : (!llvm.ptr) -> ()
      %1 = llvm.load %buffers : !llvm.ptr -> !llvm.ptr
      llvm.call @kernel(%1) : (!llvm.ptr) -> ()
      llvm.call @kernel(%0) : (!llvm.ptr) -> ()
      llvm.return
    }
    ```

    After, by `--bsr-divide-step=max-calls=2`:

    ```mlir
    llvm.func @kernel(!llvm.ptr)
    llvm.func internal @step_part(%arena: !llvm.ptr, %buffers: !llvm.ptr) attributes {no_inline} {
      %0 = llvm.getelementptr %arena[64] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.call @kernel(%0) : (!llvm.ptr) -> ()
      %1 = llvm.load %buffers : !llvm.ptr -> !llvm.ptr
      llvm.call @kernel(%1) : (!llvm.ptr) -> ()
      llvm.return
    }
    llvm.func @step(%buffers: !llvm.ptr, %arena: !llvm.ptr) {
      %0 = llvm.getelementptr %arena[64] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.call @step_part(%arena, %buffers) : (!llvm.ptr, !llvm.ptr) -> ()
      llvm.call @kernel(%0) : (!llvm.ptr) -> ()
      llvm.return
    }
    ```
  }];
  let options = [
    Option<"maxCalls", "max-calls", "unsigned", /*default=*/"64",
           "How many calls a function makes">,
  ];
  let dependentDialects = ["LLVM::LLVMDialect"];
}

def BSRExportLaunches : Pass<"bsr-export-launches", "ModuleOp"> {
  let summary = "Leave of a step for a GPU what its library has";
  let description = [{
    The library of a step for a GPU has no code for processors: its manifest says
    which kernels are launched on what (`bsr-embed-manifest`), and `bsr_step_ptx` is
    their text, which ends in a zero. Functions of the host and `gpu.binary` go.

    Before:

    ```mlir
    module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
      llvm.mlir.global external constant @bsr_step_manifest("{}\00") {addr_space = 0 : i32}
      func.func @step(%x: memref<4xf32> {bsr.name = "x"}) {
        return
      }
      gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = ".version 8.0">]
    }
    ```

    After:

    ```mlir
    module {
      llvm.mlir.global external constant @bsr_step_manifest("{}\00") {addr_space = 0 : i32}
      llvm.mlir.global external constant @bsr_step_ptx(".version 8.0\00") {addr_space = 0 : i32}
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

def BSRVerifyModule : Pass<"bsr-verify-module"> {
  let summary = "Verify a module at the end of a stage";
  let description = [{
    What MLIR's pass manager does after each pass, where it is asked to: `sparse-opt`
    does, and so do the tests. That takes three quarters of the time of lowering, so that
    `sparse-compile` has the pass at the ends of stages alone. A pass that leaves an
    invalid module is found there, and not by what later passes make of it.

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
  let options = [
    Option<"stage", "stage", "std::string", "",
           "What to call the stage in an error">,
  ];
}

#endif // BSR_TRANSFORMS_LIBRARY_PASSES
