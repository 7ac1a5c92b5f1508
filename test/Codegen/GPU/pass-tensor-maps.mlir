// A tensor map is passed by value, and read in the memory of the parameters; other pointers are not.
//
// RUN: sparse-opt %s --pass-pipeline='builtin.module(gpu.module(bsr-pass-tensor-maps))' | FileCheck %s

gpu.module @kernels {
  // CHECK: llvm.func @copy(%[[MAP:.*]]: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant}, %{{.*}}: !llvm.ptr<7>, %{{.*}}: !llvm.ptr<3>, %[[OTHER:.*]]: !llvm.ptr,
  llvm.func @copy(%map: !llvm.ptr, %to: !llvm.ptr<7>, %barrier: !llvm.ptr<3>, %other: !llvm.ptr, %i: i32)
      attributes {nvvm.kernel} {
    // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[MAP]],
    nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %barrier, box[%i, %i] : !llvm.ptr<7>, !llvm.ptr
    llvm.store %i, %other : i32, !llvm.ptr
    llvm.return
  }
}
