// A plan is made once for all kernels that follow an equal one of the same view of the same pattern; one kernel makes
// equal plans of other patterns.
//
// RUN: sparse-opt %s --bsr-plan-clusters --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 30>
#id = affine_map<(f, t) -> (f, t)>

// CHECK:       func.func private @product_plan(
// CHECK:       func.func private @product(
// CHECK-NOT:   @negative_plan
// CHECK:       func.func private @negative(
// CHECK:       func.func private @transposed_plan(
// CHECK-LABEL: func.func @step(
// CHECK-SAME:    %[[P:[a-z0-9]+]]: !bsr.pattern{{[^:]*}}, %[[Q:[a-z0-9]+]]: !bsr.pattern
// CHECK:         %[[ROWS:[^,]*]], %{{.*}} = bsr.indices %[[P]] :
// CHECK:         bsr.launch @transposed_plan ins(%[[ROWS]], {{.*}} {bsr.kind = "plan"}
// CHECK:         %[[OTHER:[^,]*]], %{{.*}} = bsr.indices %[[Q]] transpose
// CHECK:         %[[QPLAN:.*]]:7 = bsr.launch @product_plan ins(%[[OTHER]], {{.*}} {bsr.kind = "plan"}
// CHECK:         %[[COLS:[^,]*]], %{{.*}} = bsr.indices %[[P]] transpose
// CHECK:         %[[PLAN:.*]]:7 = bsr.launch @product_plan ins(%[[COLS]], {{.*}} {bsr.kind = "plan"}
// CHECK-NOT:     _plan
// CHECK:         bsr.launch @product ins({{.*}}, %[[PLAN]]#0, %[[PLAN]]#1, %[[PLAN]]#2, %[[PLAN]]#3,
// CHECK:         bsr.launch @product ins({{.*}}, %[[QPLAN]]#0, %[[QPLAN]]#1, %[[QPLAN]]#2, %[[QPLAN]]#3,
// CHECK:         bsr.launch @negative ins({{.*}}, %[[PLAN]]#0, %[[PLAN]]#1, %[[PLAN]]#2, %[[PLAN]]#3,
// CHECK-NOT:     _plan
module attributes {bsr.target = #bsr.gpu<chip = "sm_90", tile_outputs = 256, tile_tokens = 128>} {
  bsr.cluster private @product(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<64x200xbf16>) -> tensor<320x200xbf16> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<30x16x16xbf16>, tensor<64x200xbf16> -> tensor<320x200xbf16>
    bsr.yield %y : tensor<320x200xbf16>
  }
  bsr.cluster private @negative(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<64x200xbf16>) -> tensor<320x200xbf16> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<30x16x16xbf16>, tensor<64x200xbf16> -> tensor<320x200xbf16>
    %e = tensor.empty() : tensor<320x200xbf16>
    %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%y : tensor<320x200xbf16>) outs(%e : tensor<320x200xbf16>) {
    ^bb0(%a: bf16, %out: bf16):
      %0 = arith.negf %a : bf16
      linalg.yield %0 : bf16
    } -> tensor<320x200xbf16>
    bsr.yield %z : tensor<320x200xbf16>
  }
  bsr.cluster private @transposed(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<320x200xbf16>) -> tensor<64x200xbf16> {
    %y = bsr.spmm %p, %w, %x transpose feature_dim = 0
        : !pattern, tensor<30x16x16xbf16>, tensor<320x200xbf16> -> tensor<64x200xbf16>
    bsr.yield %y : tensor<64x200xbf16>
  }
  func.func @step(%p: !pattern, %q: !pattern,
                  %w: tensor<30x16x16xbf16>, %x: tensor<64x200xbf16>)
      -> (tensor<320x200xbf16>, tensor<320x200xbf16>, tensor<320x200xbf16>, tensor<64x200xbf16>) {
    %init = tensor.empty() : tensor<320x200xbf16>
    %y = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<30x16x16xbf16>, tensor<64x200xbf16>)
        outs(%init : tensor<320x200xbf16>) -> tensor<320x200xbf16>
    %z = bsr.launch @product ins(%q, %w, %x : !pattern, tensor<30x16x16xbf16>, tensor<64x200xbf16>)
        outs(%init : tensor<320x200xbf16>) -> tensor<320x200xbf16>
    %u = bsr.launch @negative ins(%p, %w, %x : !pattern, tensor<30x16x16xbf16>, tensor<64x200xbf16>)
        outs(%init : tensor<320x200xbf16>) -> tensor<320x200xbf16>
    %other = tensor.empty() : tensor<64x200xbf16>
    %t = bsr.launch @transposed ins(%p, %w, %u : !pattern, tensor<30x16x16xbf16>, tensor<320x200xbf16>)
        outs(%other : tensor<64x200xbf16>) -> tensor<64x200xbf16>
    return %y, %z, %u, %t : tensor<320x200xbf16>, tensor<320x200xbf16>, tensor<320x200xbf16>, tensor<64x200xbf16>
  }
}
