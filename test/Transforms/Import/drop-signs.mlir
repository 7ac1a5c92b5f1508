// RUN: sparse-opt %s --bsr-drop-signs | FileCheck %s --implicit-check-not=ui --implicit-check-not=unrealized

// Types change everywhere, bits nowhere; only the step says what was unsigned.

// CHECK-LABEL: func private @shift
// CHECK-SAME:    %[[KEY:.*]]: tensor<2xi32>) -> tensor<2xi32> {
// CHECK-NEXT:    %[[C:.*]] = arith.constant dense<[-1, 7]> : tensor<2xi32>
// CHECK-NEXT:    linalg.add ins(%[[KEY]], %[[C]] : tensor<2xi32>, tensor<2xi32>)
func.func private @shift(%key: tensor<2xui32>) -> tensor<2xui32> {
  %c = arith.constant dense<[4294967295, 7]> : tensor<2xui32>
  %0 = builtin.unrealized_conversion_cast %key : tensor<2xui32> to tensor<2xi32>
  %1 = builtin.unrealized_conversion_cast %c : tensor<2xui32> to tensor<2xi32>
  %2 = linalg.add ins(%0, %1 : tensor<2xi32>, tensor<2xi32>) outs(%0 : tensor<2xi32>) -> tensor<2xi32>
  %3 = builtin.unrealized_conversion_cast %2 : tensor<2xi32> to tensor<2xui32>
  return %3 : tensor<2xui32>
}

// CHECK-LABEL: func @step
// CHECK-SAME:    %{{.*}}: tensor<2xi32> {bsr.name = "key", bsr.result = 0 : i64, bsr.unsigned},
// CHECK-SAME:    %{{.*}}: tensor<4xi64> {bsr.name = "n"})
// CHECK-SAME:    -> (tensor<2xi32> {bsr.unsigned}, tensor<i8> {bsr.name = "byte", bsr.unsigned}) {
// CHECK:         %[[SLICE:.*]] = tensor.extract_slice %{{.*}}[0] [1] [1] : tensor<2xi32> to tensor<i32>
// CHECK:         linalg.generic {{.*}} ins(%[[SLICE]] : tensor<i32>) outs(%{{.*}} : tensor<i8>)
// CHECK-NEXT:    ^bb0(%[[IN:.*]]: i32, %{{.*}}: i8):
// CHECK-NEXT:      arith.trunci %[[IN]] : i32 to i8
func.func @step(%key: tensor<2xui32> {bsr.name = "key", bsr.result = 0 : i64}, %n: tensor<4xi64> {bsr.name = "n"})
    -> (tensor<2xui32>, tensor<ui8> {bsr.name = "byte"}) {
  %0 = call @shift(%key) : (tensor<2xui32>) -> tensor<2xui32>
  %1 = tensor.extract_slice %0[0] [1] [1] : tensor<2xui32> to tensor<ui32>
  %e = tensor.empty() : tensor<ui8>
  %2 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%1 : tensor<ui32>) outs(%e : tensor<ui8>) {
  ^bb0(%a: ui32, %b: ui8):
    %3 = builtin.unrealized_conversion_cast %a : ui32 to i32
    %4 = arith.trunci %3 : i32 to i8
    %5 = builtin.unrealized_conversion_cast %4 : i8 to ui8
    linalg.yield %5 : ui8
  } -> tensor<ui8>
  return %0, %2 : tensor<2xui32>, tensor<ui8>
}
