// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels become functions of a GPU, and launches of them.

#ifndef BSR_CODEGEN_GPU_PASSES
#define BSR_CODEGEN_GPU_PASSES

include "mlir/Pass/PassBase.td"

def BSROutlineLaunches : Pass<"bsr-outline-launches", "ModuleOp"> {
  let summary = "Run the parallel loops of kernels on a GPU";
  let description = [{
    Each parallel loop of a kernel becomes a `gpu.func` of the module `@kernels`, and a launch
    of it. A thread has one iteration: blocks are of 128 threads, neighbours of which
    have neighbours along the last dimension of the loop, so that what lies side by
    side is read and written together. Kernels of a step are shared by its launches
    as before; what is constant goes into them. A `gpu.launch` of a kernel keeps its blocks, threads
    and shared memory.

    (Upstream's `gpu-map-parallel-loops` gives such loops blocks of one thread, and
    `gpu-kernel-outlining` a module to each launch; the outlining itself is upstream's.)

    Before:

    ```mlir
    module attributes {bsr.target = #bsr.gpu} {
      func.func private @copy(%x: memref<64x32xf32>, %y: memref<64x32xf32>) {
        scf.forall (%i, %j) in (64, 32) {
          %0 = memref.load %x[%i, %j] : memref<64x32xf32>
          memref.store %0, %y[%i, %j] : memref<64x32xf32>
        }
        return
      }
    }
    ```

    After:

    ```mlir
    module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
      func.func private @copy(%x: memref<64x32xf32>, %y: memref<64x32xf32>) {
        %c1 = arith.constant 1 : index
        %c16 = arith.constant 16 : index
        %c128 = arith.constant 128 : index
        gpu.launch_func @kernels::@copy blocks in (%c16, %c1, %c1) threads in (%c128, %c1, %c1)
            args(%x : memref<64x32xf32>, %y : memref<64x32xf32>)
        return
      }
      gpu.module @kernels [#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx80">] {
        gpu.func @copy(%x: memref<64x32xf32>, %y: memref<64x32xf32>) kernel
            attributes {known_block_size = array<i32: 128, 1, 1>, known_grid_size = array<i32: 16, 1, 1>, nvvm.minctasm = 1 : i32} {
          %block = gpu.block_id x
          %thread = gpu.thread_id x
          %c128 = arith.constant 128 : index
          %0 = arith.muli %block, %c128 : index
          %1 = arith.addi %0, %thread : index
          %c32 = arith.constant 32 : index
          %j = arith.remui %1, %c32 : index
          %i = arith.divui %1, %c32 : index
          %2 = memref.load %x[%i, %j] : memref<64x32xf32>
          memref.store %2, %y[%i, %j] : memref<64x32xf32>
          gpu.return
        }
      }
    }
    ```
  }];
  let statistics = [
    Statistic<"numLaunches", "num-launches", "Number of parallel loops and launches outlined">,
  ];
  let dependentDialects = ["arith::ArithDialect", "bsr::BSRDialect", "gpu::GPUDialect",
                           "NVVM::NVVMDialect", "scf::SCFDialect"];
}

def BSRGatherLaunches : Pass<"bsr-gather-launches", "func::FuncOp"> {
  let summary = "Move small launches of one element-wise kernel to one place";
  let description = [{
    Launches of one element-wise cluster, each of which moves fewer bytes than memory moves
    while a launch starts, are moved to where the first of their results is used, as many of
    them as have their operands there: the casts of the weights of all layers to the front of
    a step, for one. All their results are in memory from there on, so that
    `bsr-merge-launches`, which runs when buffers have places, can make them one.

    Before:

    ```mlir
    module attributes {bsr.target = #bsr.gpu} {
      func.func @step(%a: tensor<64x32xf32>, %b: tensor<64x32xf32>)
          -> (tensor<64x32xbf16>, tensor<64x32xbf16>) {
        %0 = tensor.empty() : tensor<64x32xbf16>
        %1 = bsr.launch @cast ins(%a : tensor<64x32xf32>) outs(%0 : tensor<64x32xbf16>)
            -> tensor<64x32xbf16>
        %2 = bsr.launch @negate ins(%1 : tensor<64x32xbf16>) outs(%0 : tensor<64x32xbf16>)
            -> tensor<64x32xbf16>
        %3 = bsr.launch @cast ins(%b : tensor<64x32xf32>) outs(%0 : tensor<64x32xbf16>)
            -> tensor<64x32xbf16>
        return %2, %3 : tensor<64x32xbf16>, tensor<64x32xbf16>
      }
      bsr.cluster private @cast(%x: tensor<64x32xf32>) -> tensor<64x32xbf16>
          attributes {bsr.kind = "elementwise"} {
        %0 = arith.truncf %x : tensor<64x32xf32> to tensor<64x32xbf16>
        bsr.yield %0 : tensor<64x32xbf16>
      }
      bsr.cluster private @negate(%x: tensor<64x32xbf16>) -> tensor<64x32xbf16>
          attributes {bsr.kind = "elementwise"} {
        %0 = arith.negf %x : tensor<64x32xbf16>
        bsr.yield %0 : tensor<64x32xbf16>
      }
    }
    ```

    After, the function is:

    ```mlir
    module attributes {bsr.target = #bsr.gpu} {
      func.func @step(%a: tensor<64x32xf32>, %b: tensor<64x32xf32>)
          -> (tensor<64x32xbf16>, tensor<64x32xbf16>) {
        %0 = tensor.empty() : tensor<64x32xbf16>
        %1 = bsr.launch @cast ins(%a : tensor<64x32xf32>) outs(%0 : tensor<64x32xbf16>)
            -> tensor<64x32xbf16>
        %2 = bsr.launch @cast ins(%b : tensor<64x32xf32>) outs(%0 : tensor<64x32xbf16>)
            -> tensor<64x32xbf16>
        %3 = bsr.launch @negate ins(%1 : tensor<64x32xbf16>) outs(%0 : tensor<64x32xbf16>)
            -> tensor<64x32xbf16>
        return %3, %2 : tensor<64x32xbf16>, tensor<64x32xbf16>
      }
      bsr.cluster private @cast(%x: tensor<64x32xf32>) -> tensor<64x32xbf16>
          attributes {bsr.kind = "elementwise"} {
        %0 = arith.truncf %x : tensor<64x32xf32> to tensor<64x32xbf16>
        bsr.yield %0 : tensor<64x32xbf16>
      }
      bsr.cluster private @negate(%x: tensor<64x32xbf16>) -> tensor<64x32xbf16>
          attributes {bsr.kind = "elementwise"} {
        %0 = arith.negf %x : tensor<64x32xbf16>
        bsr.yield %0 : tensor<64x32xbf16>
      }
    }
    ```
  }];
  let statistics = [
    Statistic<"numMoved", "num-moved", "Number of launches that were moved">,
  ];
}

def BSRMergeLaunches : Pass<"bsr-merge-launches", "ModuleOp"> {
  let summary = "Join launches of one kernel on independent data";
  let description = [{
    Each launch of a graph takes a microsecond beside its work. Up to 16 launches of an
    element-wise kernel become one, in the place of the last: `blockIdx.y` says which of
    them a thread block belongs to, and the kernel chooses among their buffers by it. What
    all of them get is passed once. Launches are moved behind others, or joined, where
    neither writes what the other reads or writes: an argument of the step, or bytes of its
    arena.

    Before:

    ```mlir
    module attributes {gpu.container_module} {
      func.func @step(%x: memref<256xf32>, %y: memref<256xf32>) {
        %c1 = arith.constant 1 : index
        %c2 = arith.constant 2 : index
        %c128 = arith.constant 128 : index
        gpu.launch_func @kernels::@clear blocks in (%c2, %c1, %c1) threads in (%c128, %c1, %c1)
            args(%x : memref<256xf32>) {bsr.kind = "elementwise"}
        gpu.launch_func @kernels::@clear blocks in (%c2, %c1, %c1) threads in (%c128, %c1, %c1)
            args(%y : memref<256xf32>) {bsr.kind = "elementwise"}
        return
      }
      gpu.module @kernels {
        gpu.func @clear(%x: memref<256xf32>) kernel {
          %block = gpu.block_id x
          %thread = gpu.thread_id x
          %c128 = arith.constant 128 : index
          %0 = arith.muli %block, %c128 : index
          %1 = arith.addi %0, %thread : index
          %zero = arith.constant 0.0 : f32
          memref.store %zero, %x[%1] : memref<256xf32>
          gpu.return
        }
      }
    }
    ```

    After:

    ```mlir
    module attributes {gpu.container_module} {
      func.func @step(%x: memref<256xf32>, %y: memref<256xf32>) {
        %c1 = arith.constant 1 : index
        %c2 = arith.constant 2 : index
        %c128 = arith.constant 128 : index
        %count = arith.constant 2 : index
        gpu.launch_func @kernels::@clear_2 blocks in (%c2, %count, %c1) threads in (%c128, %c1, %c1)
            args(%x : memref<256xf32>, %y : memref<256xf32>) {bsr.kind = "elementwise"}
        return
      }
      gpu.module @kernels {
        gpu.func @clear_2(%x: memref<256xf32>, %y: memref<256xf32>) kernel {
          %number = gpu.block_id y
          %c1 = arith.constant 1 : index
          %c0 = arith.constant 0 : index
          %0 = arith.andi %number, %c1 : index
          %1 = arith.cmpi ne, %0, %c0 : index
          %2 = arith.select %1, %y, %x : memref<256xf32>
          %block = gpu.block_id x
          %thread = gpu.thread_id x
          %c128 = arith.constant 128 : index
          %3 = arith.muli %block, %c128 : index
          %4 = arith.addi %3, %thread : index
          %zero = arith.constant 0.0 : f32
          memref.store %zero, %2[%4] : memref<256xf32>
          gpu.return
        }
      }
    }
    ```
  }];
  let statistics = [
    Statistic<"numMerged", "num-merged", "Number of launches that others took in, or took others in">,
  ];
  let dependentDialects = ["arith::ArithDialect", "gpu::GPUDialect"];
}

def BSRLiftNumbers : Pass<"bsr-lift-numbers", "func::FuncOp"> {
  let summary = "Keep numbers that a step computes where its tensors are";
  let description = [{
    A step may take a number out of a tensor, such as the norm of its gradients, compute with it, and
    decide by it. A GPU's host would have to wait for the number. Here it becomes a tensor of
    rank 0, and so does what is computed of it: what takes such a number (a body, a fill, a
    selection of two tensors) reads a tensor, and a branch becomes both of its sides and a
    selection. Numbers that the step is called with stay as they are, and so do branches
    with loops or effects in them.

    Before:

    ```mlir
    func.func @clip(%norm: tensor<f32>, %g: tensor<8xf32>, %h: tensor<8xf32>) -> tensor<8xf32> {
      %one = arith.constant 1.0 : f32
      %0 = tensor.extract %norm[] : tensor<f32>
      %1 = arith.cmpf ogt, %0, %one : f32
      %2 = scf.if %1 -> (tensor<8xf32>) {
        scf.yield %h : tensor<8xf32>
      } else {
        scf.yield %g : tensor<8xf32>
      }
      return %2 : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    func.func @clip(%norm: tensor<f32>, %g: tensor<8xf32>, %h: tensor<8xf32>) -> tensor<8xf32> {
      %one = arith.constant dense<1.0> : tensor<f32>
      %0 = tensor.empty() : tensor<i1>
      %1 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>],
                           iterator_types = []}
          ins(%norm, %one : tensor<f32>, tensor<f32>) outs(%0 : tensor<i1>) {
      ^bb0(%a: f32, %b: f32, %out: i1):
        %4 = arith.cmpf ogt, %a, %b : f32
        linalg.yield %4 : i1
      } -> tensor<i1>
      %2 = tensor.empty() : tensor<8xf32>
      %3 = linalg.generic {indexing_maps = [affine_map<(i) -> ()>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
                                            affine_map<(i) -> (i)>],
                           iterator_types = ["parallel"]}
          ins(%1, %h, %g : tensor<i1>, tensor<8xf32>, tensor<8xf32>) outs(%2 : tensor<8xf32>) {
      ^bb0(%c: i1, %a: f32, %b: f32, %out: f32):
        %4 = arith.select %c, %a, %b : f32
        linalg.yield %4 : f32
      } -> tensor<8xf32>
      return %3 : tensor<8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numBranches", "num-branches", "Number of branches that became selections">,
    Statistic<"numLifted", "num-lifted", "Number of operations that read a tensor now">,
  ];
  let dependentDialects = ["arith::ArithDialect", "linalg::LinalgDialect", "tensor::TensorDialect"];
}

def BSRMoveConstants : Pass<"bsr-move-constants", "ModuleOp"> {
  let summary = "Give kernels the constant arrays that they are called with";
  let description = [{
    A constant array is the host's memory. A kernel that is called with some becomes
    one that has them itself, one for each set of arrays; `bsr-outline-launches` puts them into the
    GPU's module. These are the index arrays of static patterns, above all.

    Before:

    ```mlir
    memref.global "private" constant @ptr : memref<2xi32> = dense<[0, 3]>
    func.func private @first(%ptr: memref<2xi32>, %y: memref<i32>) {
      %c1 = arith.constant 1 : index
      %0 = memref.load %ptr[%c1] : memref<2xi32>
      memref.store %0, %y[] : memref<i32>
      return
    }
    func.func @step(%y: memref<i32>) {
      %0 = memref.get_global @ptr : memref<2xi32>
      func.call @first(%0, %y) : (memref<2xi32>, memref<i32>) -> ()
      return
    }
    ```

    After:

    ```mlir
    memref.global "private" constant @ptr : memref<2xi32> = dense<[0, 3]>
    func.func @step(%y: memref<i32>) {
      func.call @first_0(%y) : (memref<i32>) -> ()
      return
    }
    func.func private @first_0(%y: memref<i32>) {
      %ptr = memref.get_global @ptr : memref<2xi32>
      %c1 = arith.constant 1 : index
      %0 = memref.load %ptr[%c1] : memref<2xi32>
      memref.store %0, %y[] : memref<i32>
      return
    }
    ```
  }];
  let statistics = [
    Statistic<"numKernels", "num-kernels", "Number of kernels with constant arrays of their own">,
  ];
  let dependentDialects = ["memref::MemRefDialect"];
}

def BSRExpandPowers : Pass<"bsr-expand-powers"> {
  let summary = "Compute powers without a C library";
  let description = [{
    `math.powf` of f32 and f64, which a processor's C library computes, becomes 2^(y log2 |x|) in
    f64, with the special values of C: the logarithm by the series of atanh, the power by
    Taylor's, both to 2^-50. What is rounded to f32 is wrong by half a unit in the last place and
    hardly more; a power of f64 by 2^-50 of itself, times |y log2 |x|| where that is above 1: `1 - 0.999^n`
    of an optimizer that counts in f64 has all the digits of f32. GPUs have no C library;
    `bsr-call-intrinsics` refuses what is left, such as powers of bf16, which stay as they are here.

    Before:

    ```mlir
    func.func @power(%x: bf16) -> bf16 {
      %y = math.powf %x, %x : bf16
      return %y : bf16
    }
    ```

    After:

    ```mlir
    func.func @power(%x: bf16) -> bf16 {
      %y = math.powf %x, %x : bf16
      return %y : bf16
    }
    ```
  }];
  let dependentDialects = ["arith::ArithDialect", "math::MathDialect", "vector::VectorDialect"];
}

def BSRExpandSines : Pass<"bsr-expand-sines"> {
  let summary = "Compute sines and cosines of f32 without a C library";
  let description = [{
    `math.sin` and `math.cos` of f32, which `bsr-approximate-math` leaves to a C library beyond 2^22,
    are computed for all numbers: the multiple of pi / 2 in integers, with as many bits of 2 / pi as
    matter for the exponent, and the rest by Taylor's series in f64, rounded to f32. Those of f64 stay as they are.

    Before:

    ```mlir
    func.func @sine(%x: f64) -> f64 {
      %y = math.sin %x : f64
      return %y : f64
    }
    ```

    After:

    ```mlir
    func.func @sine(%x: f64) -> f64 {
      %y = math.sin %x : f64
      return %y : f64
    }
    ```
  }];
  let dependentDialects = ["arith::ArithDialect", "math::MathDialect", "vector::VectorDialect"];
}

def BSRPassTensorMaps : Pass<"bsr-pass-tensor-maps", "gpu::GPUModuleOp"> {
  let summary = "Pass tensor maps to kernels by value";
  let description = [{
    An argument of a kernel by which it copies boxes of a tensor, a pointer, becomes the 128 bytes that
    lie there: a tensor map is passed by value, and read in the memory of the
    parameters (`nvvm.grid_constant`). What launches the kernel hands it the tensor map that
    `nvgpu.tma.create.descriptor` made on the host. (The attributes are those of functions of LLVM: it
    comes after `convert-gpu-to-nvvm`.)

    Before:

    ```mlir
    gpu.module @kernels {
      llvm.func @f(%map: !llvm.ptr, %to: !llvm.ptr<7>, %barrier: !llvm.ptr<3>, %i: i32) attributes {nvvm.kernel} {
        nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %barrier, box[%i, %i] : !llvm.ptr<7>, !llvm.ptr
        llvm.return
      }
    }
    ```

    After:

    ```mlir
    gpu.module @kernels {
      llvm.func @f(%map: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant},
                   %to: !llvm.ptr<7>, %barrier: !llvm.ptr<3>, %i: i32) attributes {nvvm.kernel} {
        nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %barrier, box[%i, %i] : !llvm.ptr<7>, !llvm.ptr
        llvm.return
      }
    }
    ```
  }];
  let dependentDialects = ["NVVM::NVVMDialect"];
}

def BSRCallIntrinsics : Pass<"bsr-call-intrinsics", "gpu::GPUModuleOp"> {
  let summary = "Call LLVM's intrinsics for mathematical functions";
  let description = [{
    Functions that a GPU computes as IEEE 754 says become calls of LLVM's intrinsics by
    their names. (Upstream's conversion of kernels calls CUDA's libdevice for them: results
    would depend on whether, and which, CUDA is installed.) All others are an error:
    `bsr-approximate-math` comes before.

    Before:

    ```mlir
    gpu.module @kernels {
      gpu.func @f(%x: memref<1xf32>) kernel {
        %c0 = arith.constant 0 : index
        %0 = memref.load %x[%c0] : memref<1xf32>
        %1 = math.sqrt %0 : f32
        memref.store %1, %x[%c0] : memref<1xf32>
        gpu.return
      }
    }
    ```

    After:

    ```mlir
    gpu.module @kernels {
      gpu.func @f(%x: memref<1xf32>) kernel {
        %c0 = arith.constant 0 : index
        %0 = memref.load %x[%c0] : memref<1xf32>
        %1 = llvm.call_intrinsic "llvm.sqrt.f32"(%0) : (f32) -> f32
        memref.store %1, %x[%c0] : memref<1xf32>
        gpu.return
      }
    }
    ```
  }];
  let dependentDialects = ["LLVM::LLVMDialect"];
}

#endif // BSR_CODEGEN_GPU_PASSES
