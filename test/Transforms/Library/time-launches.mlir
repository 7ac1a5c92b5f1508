// RUN: sparse-opt %s --bsr-time-launches --split-input-file --verify-diagnostics | FileCheck %s

// A row for the step, one for each kernel and other operation, and one for the
// time between runs.
// CHECK:       memref.global "public" @bsr_step_timers : memref<6x2xi64>
func.func private @spmm(memref<2xi32>, memref<3x4x4xf32>, memref<64xf32>)
    attributes {bsr.kind = "spmm", bsr.flops = 1536 : i64}
func.func private @unknown(memref<64xf32>, memref<64xf32>, f32)

// CHECK-LABEL: func @step
// CHECK-SAME:  bsr.timers = [
// CHECK-SAME:    {kernel = "step", kind = "other"},
// CHECK-SAME:    {bytes = 456 : i64, flops = 1536 : i64, kernel = "spmm", kind = "spmm", operands = "2xi32 3x4x4xf32 64xf32"},
// CHECK-SAME:    {bytes = 512 : i64, kernel = "unknown", kind = "other", operands = "64xf32 64xf32"},
// CHECK-SAME:    {kernel = "memref.copy", kind = "copy"},
// CHECK-SAME:    {kernel = "linalg.fill", kind = "other"}]
func.func @step(%ptr: memref<2xi32> {bsr.name = "w"}, %v: memref<3x4x4xf32> {bsr.name = "v"},
                %x: memref<64xf32> {bsr.name = "x"}, %y: memref<64xf32> {bsr.name = "y"}) {
  // CHECK-NEXT: %[[BETWEEN:.*]] = arith.constant 5
  // CHECK-NEXT: call @bsr_trace_event(%[[BETWEEN]])
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %one = arith.constant 1.0 : f32
  // Loops are timed by what is in them.
  // CHECK:      scf.for
  scf.for %i = %c0 to %c4 step %c1 {
    // CHECK-NEXT: call @spmm
    // CHECK-NEXT: %[[SPMM:.*]] = arith.constant 1
    // CHECK-NEXT: call @bsr_trace_event(%[[SPMM]])
    func.call @spmm(%ptr, %v, %x) : (memref<2xi32>, memref<3x4x4xf32>, memref<64xf32>) -> ()
  }
  // CHECK:      call @unknown
  // CHECK-NEXT: arith.constant 2
  // CHECK-NEXT: call @bsr_trace_event
  func.call @unknown(%x, %y, %one) : (memref<64xf32>, memref<64xf32>, f32) -> ()
  // CHECK:      memref.copy
  // CHECK-NEXT: arith.constant 3
  // CHECK-NEXT: call @bsr_trace_event
  memref.copy %x, %y : memref<64xf32> to memref<64xf32>
  // CHECK:      linalg.fill
  // CHECK-NEXT: arith.constant 4
  // CHECK-NEXT: call @bsr_trace_event
  linalg.fill ins(%one : f32) outs(%x : memref<64xf32>)
  // CHECK:      call @spmm
  // CHECK-NEXT: arith.constant 1
  // CHECK-NEXT: call @bsr_trace_event
  func.call @spmm(%ptr, %v, %x) : (memref<2xi32>, memref<3x4x4xf32>, memref<64xf32>) -> ()
  // CHECK:      %[[STEP:.*]] = arith.constant 0
  // CHECK-NEXT: call @bsr_trace_event(%[[STEP]])
  // CHECK-NEXT: return
  return
}

// -----

// What a step waits for other processes.
// CHECK: bsr.timers = [{kernel = "several", kind = "other"}, {kernel = "bsr.start_reduce", kind = "communication"}, {kernel = "bsr.wait_reduce", kind = "communication"}]
func.func @several(%g: memref<4xf32> {bsr.name = "g"}) attributes {bsr.communicates} {
  %ticket = bsr.start_reduce %g : memref<4xf32>
  bsr.wait_reduce %ticket, %g : memref<4xf32>
  return
}

// -----

// Of two loops of 64 and of 12 work items, the second of which have more to do, the mean is 32: work over span. A
// kernel without any is one thread's.
func.func private @shared(%x: memref<64xf32>) attributes {bsr.kind = "elementwise"} {
  %zero = arith.constant 0.0 : f32
  scf.forall (%i, %j) in (8, 8) {
    %k = affine.linearize_index [%i, %j] by (8, 8) : index
    memref.store %zero, %x[%k] : memref<64xf32>
  }
  scf.forall (%i) in (12) {
    scf.forall (%j) in (2) {
      memref.store %zero, %x[%j] : memref<64xf32>
    }
  }
  return
}
func.func private @alone(%x: memref<64xf32>) attributes {bsr.kind = "elementwise"} {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%x : memref<64xf32>)
  return
}

// CHECK-LABEL: func @loops
// CHECK-SAME:  bsr.timers = [
// CHECK-SAME:    {bytes = 256 : i64, items = 32 : i64, kernel = "shared", kind = "elementwise", operands = "64xf32"},
// CHECK-SAME:    {bytes = 256 : i64, items = 1 : i64, kernel = "alone", kind = "elementwise", operands = "64xf32"}]
func.func @loops(%x: memref<64xf32> {bsr.name = "x"}) {
  func.call @shared(%x) : (memref<64xf32>) -> ()
  func.call @alone(%x) : (memref<64xf32>) -> ()
  return
}

// -----

// expected-error @below {{expected one function with bsr.name arguments, but got none}}
module {
}

// -----

// On a GPU the driver measures: timers are listed, and nothing is added.
// CHECK-LABEL: module attributes {bsr.target = #bsr.gpu
// CHECK:         func.func @step(
// CHECK-SAME:    bsr.timers = [
// CHECK-SAME:      {kernel = "step", kind = "other"},
// CHECK-SAME:      {bytes = 32 : i64, kernel = "plan", kind = "plan", operands = "8xi32"},
// CHECK-SAME:      {bytes = 32 : i64, flops = 8 : i64, kernel = "scale", kind = "elementwise", operands = "4xf32 4xf32"}]
// CHECK-NOT:     call
// CHECK-NOT:     memref.global
module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  func.func @step_plans(%x: memref<4xf32>, %y: memref<8xi32>) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@plan blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%y : memref<8xi32>) {bsr.kind = "plan"}
    return
  }
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %y: memref<8xi32> {bsr.name = "y"}) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@scale blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>, %x : memref<4xf32>) {bsr.kind = "elementwise", bsr.flops = 8 : i64}
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = ".version 8.0">]
}
