// RUN: sparse-opt --bsr-shard-state="processes=2 min-elements=4" --split-input-file --verify-diagnostics %s | FileCheck %s
// RUN: not sparse-opt --bsr-shard-state=processes=1 --split-input-file %s 2>&1 | FileCheck %s --check-prefix=ONE
// ONE: error: expected processes to be 2 at least, but got 1

#id = affine_map<(d0) -> (d0)>

// Of a moment each process has a shard, and of its parameter all get the next
// value: as the pass's description has it.
// CHECK-LABEL: func.func @moment(
// CHECK-SAME: %[[M:[a-z0-9]+]]: tensor<3xf32> {{{.*}}"m"{{.*}}, %[[W:[a-z0-9]+]]: tensor<5xf32> {{{.*}}"w"
// CHECK-SAME: -> (tensor<3xf32>, tensor<5xf32>) attributes {bsr.sharded = 2 : i64, bsr.whole_shapes = {m = array<i64: 5>}}
// CHECK: %[[G:.*]] = bsr.all_reduce
// CHECK: %[[MINE:.*]] = bsr.shard %[[G]] : tensor<5xf32> -> tensor<3xf32>
// CHECK: %[[OLD:.*]] = bsr.shard %[[W]] : tensor<5xf32> -> tensor<3xf32>
// CHECK: %[[NEXT:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[MINE]] : tensor<3xf32>, tensor<3xf32>)
// CHECK: %[[PART:.*]] = linalg.generic {{.*}} ins(%[[OLD]], %[[NEXT]] : tensor<3xf32>, tensor<3xf32>)
// CHECK: %[[ALL:.*]] = bsr.unshard %[[PART]] into %[[W]] : tensor<3xf32>, tensor<5xf32> -> tensor<5xf32>
// CHECK: return %[[NEXT]], %[[ALL]]
func.func @moment(%m: tensor<5xf32> {bsr.name = "m", bsr.result = 0 : i64, bsr.role = "state"},
                  %w: tensor<5xf32> {bsr.name = "w", bsr.result = 1 : i64, bsr.role = "param"},
                  %dw: tensor<5xf32> {bsr.name = "dw"}) -> (tensor<5xf32>, tensor<5xf32>) {
  %g = bsr.all_reduce %dw : tensor<5xf32> -> tensor<5xf32>
  %empty = tensor.empty() : tensor<5xf32>
  %moment = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%m, %g : tensor<5xf32>, tensor<5xf32>) outs(%empty : tensor<5xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<5xf32>
  %next = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%w, %moment : tensor<5xf32>, tensor<5xf32>) outs(%empty : tensor<5xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<5xf32>
  return %moment, %next : tensor<5xf32>, tensor<5xf32>
}

// -----

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#scalar = affine_map<(d0, d1, d2) -> ()>
#row = affine_map<(d0, d1, d2) -> (d2)>

// Values are cut by slots, what is one number or the same in all rows is not. What
// only shards are made of is made of shards, constants too.
// CHECK-LABEL: func.func @values(
// CHECK-SAME: tensor<2x4x4xf32> {{{.*}}"m"
// CHECK: %[[CLIPPED:.*]] = bsr.all_reduce
// CHECK-DAG: %[[MINE:.*]] = bsr.shard %[[CLIPPED]] : tensor<3x4x4xf32> -> tensor<2x4x4xf32>
// CHECK-DAG: %[[DECAY:.*]] = arith.constant dense<0.899999976> : tensor<2x4x4xf32>
// CHECK: %[[G:.*]] = linalg.generic {{.*}} ins(%[[MINE]], %{{.*}}, %{{.*}} : tensor<2x4x4xf32>, tensor<f32>, tensor<4xf32>) outs(%{{.*}} : tensor<2x4x4xf32>)
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[DECAY]], %[[G]] : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>)
// CHECK-NOT: bsr.unshard
// CHECK: return
func.func @values(%m: tensor<3x4x4xf32> {bsr.name = "m", bsr.pattern = 3 : i64, bsr.result = 0 : i64, bsr.role = "state"},
                  %lr: tensor<f32> {bsr.name = "lr", bsr.role = "lr"}, %row: tensor<4xf32> {bsr.name = "row", bsr.role = "batch"},
                  %p: !bsr.pattern<8x8, block = 4x4, slots = 3> {bsr.name = "w", bsr.role = "pattern"},
                  %dw: tensor<3x4x4xf32> {bsr.name = "dw", bsr.role = "batch"}) -> tensor<3x4x4xf32> {
  %decay = arith.constant dense<0.9> : tensor<3x4x4xf32>
  %mean = bsr.all_reduce %dw : tensor<3x4x4xf32> -> tensor<3x4x4xf32>
  %empty = tensor.empty() : tensor<3x4x4xf32>
  %g = linalg.generic {indexing_maps = [#id, #scalar, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%mean, %lr, %row : tensor<3x4x4xf32>, tensor<f32>, tensor<4xf32>) outs(%empty : tensor<3x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %c : f32
    linalg.yield %1 : f32
  } -> tensor<3x4x4xf32>
  %next = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %decay, %g : tensor<3x4x4xf32>, tensor<3x4x4xf32>, tensor<3x4x4xf32>) outs(%empty : tensor<3x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> tensor<3x4x4xf32>
  return %next : tensor<3x4x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#all = affine_map<(d0, d1) -> ()>

// What is read in another way stays whole, and what would need a part of it; one row and
// few elements, without a word.
// CHECK-LABEL: func.func @whole(
// CHECK-NOT: sharded
// CHECK-NOT: bsr.shard
func.func @whole(
    // expected-remark @below {{expected state "m" to be read entry by entry, for its own next value and those of parameters, but got the next value of 'v', which stays whole: each process keeps all of it}}
    %m: tensor<4x2xf32> {bsr.name = "m", bsr.result = 0 : i64, bsr.role = "state"},
    // expected-remark @below {{expected state "v" to be read entry by entry, for its own next value and those of parameters, but got 'linalg.generic': each process keeps all of it}}
    %v: tensor<4x2xf32> {bsr.name = "v", bsr.result = 1 : i64, bsr.role = "state"},
    %few: tensor<3xf32> {bsr.name = "few", bsr.result = 3 : i64, bsr.role = "state"},
    // expected-remark @below {{expected state "r" to be read entry by entry, for its own next value and those of parameters, but got a result that is not carried: each process keeps all of it}}
    %r: tensor<4x2xf32> {bsr.name = "r", bsr.result = 4 : i64, bsr.role = "state"})
    -> (tensor<4x2xf32>, tensor<4x2xf32>, tensor<f32> {bsr.name = "norm"}, tensor<3xf32>, tensor<4x2xf32>,
        tensor<4x2xf32> {bsr.name = "seen"}) {
  %empty = tensor.empty() : tensor<4x2xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %sum = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %v : tensor<4x2xf32>, tensor<4x2xf32>) outs(%empty : tensor<4x2xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x2xf32>
  %norm = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction", "reduction"]}
      ins(%v : tensor<4x2xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %m, %sum, %norm, %few, %r, %r
      : tensor<4x2xf32>, tensor<4x2xf32>, tensor<f32>, tensor<3xf32>, tensor<4x2xf32>, tensor<4x2xf32>
}
