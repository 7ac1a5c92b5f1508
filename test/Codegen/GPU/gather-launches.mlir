// RUN: sparse-opt %s --split-input-file --bsr-gather-launches | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-gather-launches --mlir-disable-threading --mlir-debug-counter=bsr-gather-launches-count=0 | FileCheck %s --check-prefix=SKIPPED
// SKIPPED: bsr.launch @cast
// SKIPPED: bsr.launch @sum
// SKIPPED: bsr.launch @cast
// RUN: sparse-opt %s --split-input-file --bsr-gather-launches --mlir-disable-threading --remarks-filter=bsr-gather-launches -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: [Passed] LaunchesGathered | Category:bsr-gather-launches | Function=step | Kernel=cast, Launches=4

// Casts are where the first of them is used, with the buffer that one has of its own; one whose operand is not there yet
// stays, as do sums. What is computed again, late, goes with them if it is tiny.

// CHECK-LABEL: func @step
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<64x32xf32>, %[[B:[a-z0-9]+]]: tensor<64x32xf32>, %[[C:[a-z0-9]+]]: tensor<64x32xf32>
// CHECK:         %[[CA:.*]] = bsr.launch @cast ins(%[[A]]
// CHECK-NEXT:    %[[INIT:.*]] = tensor.empty() : tensor<64x32xbf16>
// CHECK-NEXT:    %[[CB:.*]] = bsr.launch @cast ins(%[[B]] : {{.*}} outs(%[[INIT]]
// CHECK-NEXT:    %[[CC:.*]] = bsr.launch @cast ins(%[[C]]
// CHECK-NEXT:    %[[AGAIN:.*]] = bsr.launch @cast ins(%[[A]] : {{.*}} {bsr.recomputed}
// CHECK-NEXT:    %[[S:.*]] = bsr.launch @sum ins(%[[CA]]
// CHECK-NEXT:    %[[W:.*]] = bsr.launch @widen ins(%[[S]]
// CHECK-NEXT:    %[[T:.*]] = bsr.launch @sum ins(%[[CB]]
// CHECK-NEXT:    %[[CW:.*]] = bsr.launch @cast ins(%[[W]]
// CHECK-NEXT:    %[[U:.*]] = bsr.launch @sum ins(%[[CC]]
// CHECK-NEXT:    return %[[T]], %[[U]], %[[CW]], %[[AGAIN]]
module attributes {bsr.target = #bsr.gpu} {
func.func @step(%a: tensor<64x32xf32>, %b: tensor<64x32xf32>, %c: tensor<64x32xf32>)
    -> (tensor<64xf32>, tensor<64xf32>, tensor<64x32xbf16>, tensor<64x32xbf16>) {
  %e = tensor.empty() : tensor<64x32xbf16>
  %s = tensor.empty() : tensor<64xf32>
  %f = tensor.empty() : tensor<64x32xf32>
  %0 = bsr.launch @cast ins(%a : tensor<64x32xf32>) outs(%e : tensor<64x32xbf16>) -> tensor<64x32xbf16>
  %1 = bsr.launch @sum ins(%0 : tensor<64x32xbf16>) outs(%s : tensor<64xf32>) -> tensor<64xf32>
  %2 = bsr.launch @widen ins(%1 : tensor<64xf32>) outs(%f : tensor<64x32xf32>) -> tensor<64x32xf32>
  %own = tensor.empty() : tensor<64x32xbf16>
  %3 = bsr.launch @cast ins(%b : tensor<64x32xf32>) outs(%own : tensor<64x32xbf16>) -> tensor<64x32xbf16>
  %4 = bsr.launch @sum ins(%3 : tensor<64x32xbf16>) outs(%s : tensor<64xf32>) -> tensor<64xf32>
  %5 = bsr.launch @cast ins(%2 : tensor<64x32xf32>) outs(%e : tensor<64x32xbf16>) -> tensor<64x32xbf16>
  %6 = bsr.launch @cast ins(%c : tensor<64x32xf32>) outs(%e : tensor<64x32xbf16>) -> tensor<64x32xbf16>
  %7 = bsr.launch @sum ins(%6 : tensor<64x32xbf16>) outs(%s : tensor<64xf32>) -> tensor<64xf32>
  %8 = bsr.launch @cast ins(%a : tensor<64x32xf32>) outs(%e : tensor<64x32xbf16>) {bsr.recomputed} -> tensor<64x32xbf16>
  return %4, %7, %5, %8 : tensor<64xf32>, tensor<64xf32>, tensor<64x32xbf16>, tensor<64x32xbf16>
}
bsr.cluster private @cast(%x: tensor<64x32xf32>) -> tensor<64x32xbf16> attributes {bsr.kind = "elementwise"} {
  %0 = arith.truncf %x : tensor<64x32xf32> to tensor<64x32xbf16>
  bsr.yield %0 : tensor<64x32xbf16>
}
bsr.cluster private @sum(%x: tensor<64x32xbf16>) -> tensor<64xf32> attributes {bsr.kind = "reduction"} {
  %e = tensor.empty() : tensor<64xf32>
  bsr.yield %e : tensor<64xf32>
}
bsr.cluster private @widen(%x: tensor<64xf32>) -> tensor<64x32xf32> attributes {bsr.kind = "elementwise"} {
  %e = tensor.empty() : tensor<64x32xf32>
  bsr.yield %e : tensor<64x32xf32>
}
}

// -----

// Not where a launch moves more than memory does while one starts, not what is computed again to lie nowhere before, and not on processors.

// CHECK-LABEL: func @large
// CHECK:         bsr.launch @cast
// CHECK-NEXT:    bsr.launch @sum
// CHECK-NEXT:    bsr.launch @cast
module attributes {bsr.target = #bsr.gpu} {
func.func @large(%a: tensor<1024x1024xf32>, %b: tensor<1024x1024xf32>) -> (tensor<1024xf32>, tensor<1024x1024xbf16>) {
  %e = tensor.empty() : tensor<1024x1024xbf16>
  %s = tensor.empty() : tensor<1024xf32>
  %0 = bsr.launch @cast ins(%a : tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  %1 = bsr.launch @sum ins(%0 : tensor<1024x1024xbf16>) outs(%s : tensor<1024xf32>) -> tensor<1024xf32>
  %2 = bsr.launch @cast ins(%b : tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  return %1, %2 : tensor<1024xf32>, tensor<1024x1024xbf16>
}
bsr.cluster private @cast(%x: tensor<1024x1024xf32>) -> tensor<1024x1024xbf16> attributes {bsr.kind = "elementwise"} {
  %0 = arith.truncf %x : tensor<1024x1024xf32> to tensor<1024x1024xbf16>
  bsr.yield %0 : tensor<1024x1024xbf16>
}
bsr.cluster private @sum(%x: tensor<1024x1024xbf16>) -> tensor<1024xf32> attributes {bsr.kind = "reduction"} {
  %e = tensor.empty() : tensor<1024xf32>
  bsr.yield %e : tensor<1024xf32>
}
}

// -----

// CHECK-LABEL: func @again
// CHECK:         bsr.launch @cast
// CHECK-NEXT:    bsr.launch @sum
// CHECK-NEXT:    bsr.launch @cast
module attributes {bsr.target = #bsr.gpu} {
func.func @again(%a: tensor<256x256xf32>) -> (tensor<256xf32>, tensor<256x256xbf16>) {
  %e = tensor.empty() : tensor<256x256xbf16>
  %s = tensor.empty() : tensor<256xf32>
  %0 = bsr.launch @cast ins(%a : tensor<256x256xf32>) outs(%e : tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %1 = bsr.launch @sum ins(%0 : tensor<256x256xbf16>) outs(%s : tensor<256xf32>) -> tensor<256xf32>
  %2 = bsr.launch @cast ins(%a : tensor<256x256xf32>) outs(%e : tensor<256x256xbf16>) {bsr.recomputed} -> tensor<256x256xbf16>
  return %1, %2 : tensor<256xf32>, tensor<256x256xbf16>
}
bsr.cluster private @cast(%x: tensor<256x256xf32>) -> tensor<256x256xbf16> attributes {bsr.kind = "elementwise"} {
  %0 = arith.truncf %x : tensor<256x256xf32> to tensor<256x256xbf16>
  bsr.yield %0 : tensor<256x256xbf16>
}
bsr.cluster private @sum(%x: tensor<256x256xbf16>) -> tensor<256xf32> attributes {bsr.kind = "reduction"} {
  %e = tensor.empty() : tensor<256xf32>
  bsr.yield %e : tensor<256xf32>
}
}

// -----

// CHECK-LABEL: func @processor
// CHECK:         bsr.launch @cast
// CHECK-NEXT:    bsr.launch @sum
// CHECK-NEXT:    bsr.launch @cast
func.func @processor(%a: tensor<64x32xf32>, %b: tensor<64x32xf32>) -> (tensor<64xf32>, tensor<64x32xbf16>) {
  %e = tensor.empty() : tensor<64x32xbf16>
  %s = tensor.empty() : tensor<64xf32>
  %0 = bsr.launch @cast ins(%a : tensor<64x32xf32>) outs(%e : tensor<64x32xbf16>) -> tensor<64x32xbf16>
  %1 = bsr.launch @sum ins(%0 : tensor<64x32xbf16>) outs(%s : tensor<64xf32>) -> tensor<64xf32>
  %2 = bsr.launch @cast ins(%b : tensor<64x32xf32>) outs(%e : tensor<64x32xbf16>) -> tensor<64x32xbf16>
  return %1, %2 : tensor<64xf32>, tensor<64x32xbf16>
}
bsr.cluster private @cast(%x: tensor<64x32xf32>) -> tensor<64x32xbf16> attributes {bsr.kind = "elementwise"} {
  %0 = arith.truncf %x : tensor<64x32xf32> to tensor<64x32xbf16>
  bsr.yield %0 : tensor<64x32xbf16>
}
bsr.cluster private @sum(%x: tensor<64x32xbf16>) -> tensor<64xf32> attributes {bsr.kind = "reduction"} {
  %e = tensor.empty() : tensor<64xf32>
  bsr.yield %e : tensor<64xf32>
}
