// A step becomes launches of kernels that all have PTX; shapes are in it, constants too.
//
// RUN: sparse-opt %s --bsr-mark="match=w block=4x4 density=0.5" --bsr-to-gpu=require-sparse \
// RUN:   | sed 's/\\0A/\n/g; s/\\09/ /g' | FileCheck %s
// RUN: sparse-opt %s --bsr-mark="match=w block=4x4 density=0.5" --bsr-to-gpu=target='#bsr.gpu<chip="sm_80">' \
// RUN:   | sed 's/\\0A/\n/g; s/\\09/ /g' | FileCheck %s --check-prefix=CHIP

// CHECK-LABEL: func.func @step(
// CHECK-SAME:    %[[X:[^:]*]]: memref<12x16xf32> {bsr.name = "x"}
// CHECK-SAME:    %[[ARENA:[^:]*]]: memref<{{[0-9]+}}xi8>
// CHECK:         %[[PLAN:.*]] = memref.view %[[ARENA]][%[[AT:c[0-9_]*]]][] : memref<{{[0-9]+}}xi8> to memref<1xi32>
// CHECK:         %[[XT:.*]] = memref.view %[[ARENA]]{{.*}} to memref<16x12xf32>
// CHECK:         gpu.launch_func  @kernels::@[[COPY:[a-z0-9_]+]] blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1) args(%[[X]] : memref<12x16xf32>, %[[XT]] : memref<16x12xf32>)
// CHECK:         gpu.launch_func  @kernels::@[[PRODUCT:[a-z0-9_]+]] blocks in (%c1, %c1, %c1) threads in (%c256, %c1, %c1)  dynamic_shared_memory_size %c65536_i32
// CHECK-SAME:      %[[PLAN]] :
// CHECK:         gpu.launch_func  @kernels::
// CHECK-NOT:     {{memref\.(load|store|copy)|scf\.|linalg\.}}
// CHECK:         return
// The plan of the pattern is made apart, in the same place of the arena.
// CHECK-LABEL: func.func @step_plans(
// CHECK:         %[[PLAN:.*]] = memref.view %{{.*}}[%[[AT]]][] : memref<{{[0-9]+}}xi8> to memref<1xi32>
// CHECK:         gpu.launch_func  @kernels::@[[MAKER:[a-z0-9_]+]] {{.*}}, %[[PLAN]] :
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
// CHECK:       gpu.binary @kernels [#gpu.object<#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx80">
// CHECK:       .target sm_90a
// CHECK:       .visible .entry [[COPY]](
// CHECK:       .maxntid 128, 1, 1
// CHECK:       .visible .entry [[PRODUCT]](
// CHECK:         cp.async
// CHECK:         ld.shared
// CHECK:         fma.rn.f32
// CHECK:         st.global
// CHECK-NOT:   .extern .func
// CHECK-NOT:   call

// CHIP: .version 7.0
// CHIP: .target sm_80
func.func @step(%w: tensor<16x24xf32> {bsr.name = "w"}, %x: tensor<12x16xf32> {bsr.name = "x"})
    -> (tensor<12x24xf32> {bsr.name = "y"}) {
  %zero = arith.constant dense<0.0> : tensor<12x24xf32>
  %product = linalg.matmul ins(%x, %w : tensor<12x16xf32>, tensor<16x24xf32>)
                           outs(%zero : tensor<12x24xf32>) -> tensor<12x24xf32>
  %e = tensor.empty() : tensor<12x24xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%product : tensor<12x24xf32>) outs(%e : tensor<12x24xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<12x24xf32>
  return %y : tensor<12x24xf32>
}
