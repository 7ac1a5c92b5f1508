// What follows a product is evaluated on its sums, four neighbouring columns a lane, and stored by the same
// launch; of a sum over tokens, warps leave parts, which a second launch adds.
//
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

!pattern = !bsr.pattern<64x128, block = 16x16, slots = 32>
#id = affine_map<(f, t) -> (f, t)>
#feature = affine_map<(f, t) -> (f)>

// The product is no buffer; the parts of the sum are of 2 warps along 200 tokens, 128 each.
// CHECK-LABEL: func private @bias(
// CHECK-SAME:    %{{.*}}: memref<32x16x16xbf16>, %{{.*}}: memref<64x200xbf16>, %[[B:[^:]*]]: memref<128xf32>, %[[R:[^:]*]]: memref<128x200xbf16>,
// CHECK-SAME:    memref<2x48xi32>, %[[Y:[^:]*]]: memref<128x200xbf16>, %[[SUM:[^:]*]]: memref<128xf32>,
// CHECK-SAME:    %[[PARTS:[^:]*]]: memref<2x128xf32>)
// CHECK-DAG:     %[[VECTORS:.*]] = memref.reinterpret_cast %[[Y]] {{.*}} to memref<1x128x50x4xbf16>
// CHECK-DAG:     %[[PART:.*]] = memref.reinterpret_cast %[[PARTS]] {{.*}} to memref<1x2x128xf32>
// CHECK:         gpu.launch
// CHECK:           nvvm.mma.sync
// A lane has two columns, and gets two more from its neighbour.
// CHECK:           gpu.shuffle xor
// CHECK:           gpu.shuffle xor
// CHECK:           vector.from_elements {{.*}} : vector<4xf32>
// CHECK:           arith.truncf {{.*}} : vector<4xf32> to vector<4xbf16>
// CHECK:           memref.load %[[B]]
// CHECK:           vector.load %[[R]]{{.*}} {alignment = 8 : i64} : memref<128x200xbf16>, vector<4xbf16>
// CHECK:           vector.store %{{.*}}, %[[VECTORS]]{{.*}} {alignment = 8 : i64}
// CHECK:           memref.store %{{.*}}, %[[PART]]
// CHECK:           gpu.terminator
// CHECK:         gpu.launch
// CHECK:           memref.load %[[PARTS]]
// CHECK:           memref.store %{{.*}}, %[[SUM]]
module attributes {bsr.target = #bsr.gpu<chip = "sm_90", tile_outputs = 64, tile_tokens = 256>} {
  bsr.cluster private @bias(%p: !pattern, %w: tensor<32x16x16xbf16>, %x: tensor<64x200xbf16>, %b: tensor<128xf32>,
                            %r: tensor<128x200xbf16>) -> (tensor<128x200xbf16>, tensor<128xf32>) {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<32x16x16xbf16>, tensor<64x200xbf16> -> tensor<128x200xbf16>
    %e = tensor.empty() : tensor<128x200xbf16>
    %z = linalg.generic {indexing_maps = [#id, #feature, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%y, %b, %r : tensor<128x200xbf16>, tensor<128xf32>, tensor<128x200xbf16>) outs(%e : tensor<128x200xbf16>) {
    ^bb0(%a: bf16, %c: f32, %d: bf16, %o: bf16):
      %0 = arith.extf %a : bf16 to f32
      %1 = arith.addf %0, %c : f32
      %2 = arith.extf %d : bf16 to f32
      %3 = arith.addf %1, %2 : f32
      %4 = arith.truncf %3 : f32 to bf16
      linalg.yield %4 : bf16
    } -> tensor<128x200xbf16>
    %zero = arith.constant dense<0.0> : tensor<128xf32>
    %s = linalg.generic {indexing_maps = [#id, #feature], iterator_types = ["parallel", "reduction"]}
        ins(%z : tensor<128x200xbf16>) outs(%zero : tensor<128xf32>) {
    ^bb0(%a: bf16, %o: f32):
      %0 = arith.extf %a : bf16 to f32
      %1 = arith.addf %o, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<128xf32>
    bsr.yield %z, %s : tensor<128x200xbf16>, tensor<128xf32>
  }
  func.func @step(%p: !pattern, %w: tensor<32x16x16xbf16>, %x: tensor<64x200xbf16>, %b: tensor<128xf32>,
                  %r: tensor<128x200xbf16>) -> (tensor<128x200xbf16>, tensor<128xf32>) {
    %e = tensor.empty() : tensor<128x200xbf16>
    %f = tensor.empty() : tensor<128xf32>
    %z, %s = bsr.launch @bias
        ins(%p, %w, %x, %b, %r : !pattern, tensor<32x16x16xbf16>, tensor<64x200xbf16>, tensor<128xf32>, tensor<128x200xbf16>)
        outs(%e, %f : tensor<128x200xbf16>, tensor<128xf32>) -> tensor<128x200xbf16>, tensor<128xf32>
    return %z, %s : tensor<128x200xbf16>, tensor<128xf32>
  }
}

// -----

#id = affine_map<(r, c) -> (r, c)>
#left = affine_map<(r, c, k) -> (r, k)>
#right = affine_map<(r, c, k) -> (c, k)>
#result = affine_map<(r, c, k) -> (r, c)>

// 66 columns are not in fours: the product is a launch, what follows another one.
// CHECK-LABEL: func private @apart(
// CHECK-SAME:    %[[SUMS:[^:]*]]: memref<32x66xf32>, %[[Z:[^:]*]]: memref<32x66xbf16>)
// CHECK:         gpu.launch
// CHECK:           nvvm.mma.sync
// CHECK:           gpu.terminator
// CHECK:         scf.forall
// CHECK:           vector.load %[[SUMS]]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @apart(%a: tensor<32x64xbf16>, %b: tensor<66x64xbf16>)
      -> (tensor<32x66xf32>, tensor<32x66xbf16>) {
    %zero = arith.constant dense<0.0> : tensor<32x66xf32>
    %y = linalg.generic {indexing_maps = [#left, #right, #result], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<32x64xbf16>, tensor<66x64xbf16>) outs(%zero : tensor<32x66xf32>) {
    ^bb0(%c: bf16, %d: bf16, %o: f32):
      %0 = arith.extf %c : bf16 to f32
      %1 = arith.extf %d : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.addf %o, %2 : f32
      linalg.yield %3 : f32
    } -> tensor<32x66xf32>
    %e = tensor.empty() : tensor<32x66xbf16>
    %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%y : tensor<32x66xf32>) outs(%e : tensor<32x66xbf16>) {
    ^bb0(%c: f32, %o: bf16):
      %0 = arith.truncf %c : f32 to bf16
      linalg.yield %0 : bf16
    } -> tensor<32x66xbf16>
    bsr.yield %y, %z : tensor<32x66xf32>, tensor<32x66xbf16>
  }
  func.func @step(%a: tensor<32x64xbf16>, %b: tensor<66x64xbf16>) -> (tensor<32x66xf32>, tensor<32x66xbf16>) {
    %e = tensor.empty() : tensor<32x66xf32>
    %f = tensor.empty() : tensor<32x66xbf16>
    %y, %z = bsr.launch @apart ins(%a, %b : tensor<32x64xbf16>, tensor<66x64xbf16>)
        outs(%e, %f : tensor<32x66xf32>, tensor<32x66xbf16>) -> tensor<32x66xf32>, tensor<32x66xbf16>
    return %y, %z : tensor<32x66xf32>, tensor<32x66xbf16>
  }
}

// -----

// Stored blocks of a gradient go on in the launch that adds up what thread blocks left of them: a sum over micro-batches, which is
// written over its argument, and a cast. The gradient is no buffer.
// CHECK-LABEL: func private @gradient(
// CHECK-SAME:    %[[SUM:[^:]*]]: memref<32x16x16xf32>, %{{[^:]*}}: memref<4xi32>
// CHECK-SAME:    %[[NEXT:[^:]*]]: memref<32x16x16xf32>, %[[HALF:[^:]*]]: memref<32x16x16xbf16>,
// CHECK:         gpu.launch
// CHECK:           nvvm.mma.sync
// CHECK:           gpu.terminator
// CHECK-DAG:     %[[QUADS:.*]] = memref.reinterpret_cast %[[NEXT]] {{.*}} to memref<32x16x4x4xf32>
// CHECK-DAG:     %[[HALVES:.*]] = memref.reinterpret_cast %[[HALF]] {{.*}} to memref<32x16x4x4xbf16>
// CHECK:         gpu.launch
// CHECK:           gpu.shuffle xor
// CHECK:           %[[FOUR:.*]] = vector.from_elements {{.*}} : vector<4xf32>
// CHECK:           %[[OLD:.*]] = vector.load %[[SUM]]{{.*}} {alignment = 16 : i64} : memref<32x16x16xf32>, vector<4xf32>
// CHECK:           %[[NEW:.*]] = arith.addf %[[OLD]], %[[FOUR]] : vector<4xf32>
// CHECK:           %[[SHORT:.*]] = arith.truncf %[[FOUR]] : vector<4xf32> to vector<4xbf16>
// CHECK:           vector.store %[[NEW]], %[[QUADS]]
// CHECK:           vector.store %[[SHORT]], %[[HALVES]]
// CHECK:           gpu.terminator
// CHECK-NOT:     gpu.launch
// CHECK-LABEL: func @step(
// CHECK:         bsr.launch @gradient ins(%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[SUM:[^,]*]],{{.*}} in_place = [5]
!pattern = !bsr.pattern<64x128, block = 16x16, slots = 32>
#id = affine_map<(s, r, c) -> (s, r, c)>
module attributes {bsr.target = #bsr.gpu<chip = "sm_90">} {
  bsr.cluster private @gradient(%p: !pattern, %a: tensor<64x200xbf16>, %b: tensor<128x200xbf16>, %sum: tensor<32x16x16xf32>)
      -> (tensor<32x16x16xf32>, tensor<32x16x16xbf16>) {
    %dw = bsr.sddmm %p, %a, %b feature_dim = 0 : !pattern, tensor<64x200xbf16>, tensor<128x200xbf16> -> tensor<32x16x16xf32>
    %e = tensor.empty() : tensor<32x16x16xf32>
    %next = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%dw, %sum : tensor<32x16x16xf32>, tensor<32x16x16xf32>) outs(%e : tensor<32x16x16xf32>) {
    ^bb0(%c: f32, %d: f32, %o: f32):
      %0 = arith.addf %d, %c : f32
      linalg.yield %0 : f32
    } -> tensor<32x16x16xf32>
    %f = tensor.empty() : tensor<32x16x16xbf16>
    %half = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%dw : tensor<32x16x16xf32>) outs(%f : tensor<32x16x16xbf16>) {
    ^bb0(%c: f32, %o: bf16):
      %0 = arith.truncf %c : f32 to bf16
      linalg.yield %0 : bf16
    } -> tensor<32x16x16xbf16>
    bsr.yield %next, %half : tensor<32x16x16xf32>, tensor<32x16x16xbf16>
  }
  func.func @step(%p: !pattern, %a: tensor<64x200xbf16>, %b: tensor<128x200xbf16>, %sum: tensor<32x16x16xf32>)
      -> (tensor<32x16x16xf32>, tensor<32x16x16xbf16>) {
    %e = tensor.empty() : tensor<32x16x16xf32>
    %f = tensor.empty() : tensor<32x16x16xbf16>
    %next, %half = bsr.launch @gradient
        ins(%p, %a, %b, %sum : !pattern, tensor<64x200xbf16>, tensor<128x200xbf16>, tensor<32x16x16xf32>)
        outs(%e, %f : tensor<32x16x16xf32>, tensor<32x16x16xbf16>) -> tensor<32x16x16xf32>, tensor<32x16x16xbf16>
    return %next, %half : tensor<32x16x16xf32>, tensor<32x16x16xbf16>
  }
}
