// RUN: sparse-opt %s --bsr-to-llvm="target-cpu=znver4" --canonicalize | FileCheck %s --implicit-check-not=bsr. \
// RUN:   --implicit-check-not=malloc --implicit-check-not=memrefCopy --implicit-check-not=unrealized \
// RUN:   --implicit-check-not=memref. --implicit-check-not=scf. --implicit-check-not=alloca_scope

// CHECK-DAG:   llvm.mlir.global external constant @bsr_step_manifest({{.*}}\22target_cpu\22:\22znver4\22
// CHECK-DAG:   llvm.mlir.global external constant @bsr_step_abi_version(1 : i32)

// One kernel is left of two equal ones; its loop is one parallel region.
// CHECK:       llvm.func internal @scale(
// CHECK:         omp.parallel
// CHECK-NOT:     omp.parallel
// CHECK:         llvm.return
func.func private @scale(%x: memref<8x16xf32>, %lr: memref<f32>, %y: memref<8x16xf32>) {
  scf.forall (%i) in (8) {
    %c0 = arith.constant 0 : index
    %0 = vector.load %x[%i, %c0] : memref<8x16xf32>, vector<16xf32>
    %1 = memref.load %lr[] : memref<f32>
    %2 = vector.broadcast %1 : f32 to vector<16xf32>
    %3 = arith.mulf %0, %2 : vector<16xf32>
    %4 = math.exp %3 : vector<16xf32>
    vector.store %4, %y[%i, %c0] : memref<8x16xf32>, vector<16xf32>
  }
  return
}
func.func private @scale_too(%x: memref<8x16xf32>, %lr: memref<f32>, %y: memref<8x16xf32>) {
  scf.forall (%i) in (8) {
    %c0 = arith.constant 0 : index
    %0 = vector.load %x[%i, %c0] : memref<8x16xf32>, vector<16xf32>
    %1 = memref.load %lr[] : memref<f32>
    %2 = vector.broadcast %1 : f32 to vector<16xf32>
    %3 = arith.mulf %0, %2 : vector<16xf32>
    %4 = math.exp %3 : vector<16xf32>
    vector.store %4, %y[%i, %c0] : memref<8x16xf32>, vector<16xf32>
  }
  return
}

// The weight is updated where it lies: @scale(w, lr, w). What remains of the
// tensor code around the kernels becomes loops; a slice is copied by a loop, too.
// CHECK:       llvm.func internal @step(%[[BUFFERS:.*]]: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK-NOT:     llvm.intr.memcpy
// CHECK:         llvm.call @scale(
// CHECK:         %[[W:.*]] = llvm.load %[[BUFFERS]] :
// CHECK-NEXT:    %[[LR_AT:.*]] = llvm.getelementptr %[[BUFFERS]][1]
// CHECK-NEXT:    %[[LR:.*]] = llvm.load %[[LR_AT]]
// CHECK-NEXT:    llvm.call @scale(%[[W]], %[[LR]], %[[W]])
// CHECK-NOT:     @scale_too
// CHECK:       llvm.func @bsr_step_run(
func.func @step(%w: tensor<8x16xf32> {bsr.name = "w", bsr.result = 0 : i64},
                %lr: tensor<f32> {bsr.name = "lr", bsr.role = "lr"})
    -> (tensor<8x16xf32>, tensor<8x8xf32> {bsr.name = "y"}) {
  %init = tensor.empty() : tensor<8x16xf32>
  %y = bsr.launch @scale_too ins(%w, %lr : tensor<8x16xf32>, tensor<f32>) outs(%init : tensor<8x16xf32>)
      in_place = [0] -> tensor<8x16xf32>
  %part = tensor.extract_slice %y[0, 4] [8, 8] [1, 1] : tensor<8x16xf32> to tensor<8x8xf32>
  %next = bsr.launch @scale ins(%w, %lr : tensor<8x16xf32>, tensor<f32>) outs(%init : tensor<8x16xf32>)
      in_place = [0] -> tensor<8x16xf32>
  return %next, %part : tensor<8x16xf32>, tensor<8x8xf32>
}
