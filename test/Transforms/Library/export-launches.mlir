// RUN: sparse-opt %s --bsr-export-launches --split-input-file --verify-diagnostics | FileCheck %s

// CHECK:      module {
// CHECK-NEXT:   llvm.mlir.global external constant @bsr_step_manifest
// CHECK-NEXT:   llvm.mlir.global external constant @bsr_step_ptx(".version 8.0\00")
// CHECK:      {{^}}}
module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  llvm.mlir.global external constant @bsr_step_manifest("{}\00") {addr_space = 0 : i32}
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}) {
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = ".version 8.0">]
}

// -----

// Of timers, their table.
// CHECK:      llvm.mlir.global external @bsr_step_timers() {addr_space = 0 : i32} : !llvm.array<3 x array<2 x i64>> {
// CHECK-NEXT:   %[[ZERO:.*]] = llvm.mlir.zero
// CHECK-NEXT:   llvm.return %[[ZERO]]
module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  llvm.mlir.global external constant @bsr_step_manifest("{}\00") {addr_space = 0 : i32}
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}) attributes {bsr.timers = [{kernel = "step"}, {kernel = "scale"}]} {
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = ".version 8.0">]
}

// -----

// expected-error @+1 {{expected a step with its manifest, but got none: run bsr-embed-manifest first}}
module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = ".version 8.0">]
}
