// RUN: sparse-opt %s --bsr-define-integers | FileCheck %s

// CHECK-LABEL: func @fptosi
// CHECK:         %[[WIDE:.*]] = arith.extf %{{.*}} : vector<4xf16> to vector<4xf32>
// CHECK:         %[[SAFE:.*]] = arith.select %{{.*}}, %[[WIDE]], %{{.*}} : vector<4xi1>, vector<4xf32>
// CHECK:         %[[INSIDE:.*]] = arith.fptosi %[[SAFE]] : vector<4xf32> to vector<4xi32>
// CHECK:         %[[LOW:.*]] = arith.select %{{.*}}, %{{.*}}, %[[INSIDE]]
// CHECK:         %[[ALL:.*]] = arith.select %{{.*}}, %{{.*}}, %[[LOW]]
// CHECK:         return %[[ALL]]
func.func @fptosi(%x: vector<4xf16>) -> vector<4xi32> {
  %0 = arith.fptosi %x : vector<4xf16> to vector<4xi32>
  return %0 : vector<4xi32>
}

// CHECK-LABEL: func @divsi
// CHECK-SAME:    %[[X:[^:]*]]: i32, %[[Y:[^:]*]]: i32
// CHECK:         %[[SAFE:.*]] = arith.select %{{.*}}, %{{.*}}, %[[Y]]
// CHECK:         %[[Q:.*]] = arith.divsi %[[X]], %[[SAFE]]
// CHECK:         %[[ALL:.*]] = arith.select %{{.*}}, %{{.*}}, %[[Q]]
// CHECK:         return %[[ALL]]
func.func @divsi(%x: i32, %y: i32) -> i32 {
  %0 = arith.divsi %x, %y : i32
  return %0 : i32
}

// Divisions that round down or up are guarded as a whole.
// CHECK-LABEL: func @floordivsi
// CHECK-SAME:    %[[X:[^:]*]]: i32, %[[Y:[^:]*]]: i32
// CHECK-DAG:     %[[ZERO:.*]] = arith.cmpi eq, %[[Y]], %{{.*}} : i32
// CHECK-DAG:     arith.cmpi eq, %[[X]], %{{.*}} : i32
// CHECK:         %[[SAFE:.*]] = arith.select %{{.*}}, %{{.*}}, %[[Y]]
// CHECK:         %[[Q:.*]] = arith.floordivsi %[[X]], %[[SAFE]]
// CHECK:         %[[ALL:.*]] = arith.select %[[ZERO]], %{{.*}}, %[[Q]]
// CHECK:         return %[[ALL]]
func.func @floordivsi(%x: i32, %y: i32) -> i32 {
  %0 = arith.floordivsi %x, %y : i32
  return %0 : i32
}

// CHECK-LABEL: func @ceildivui
// CHECK-SAME:    %[[X:[^:]*]]: i32, %[[Y:[^:]*]]: i32
// CHECK:         %[[ZERO:.*]] = arith.cmpi eq, %[[Y]]
// CHECK:         %[[SAFE:.*]] = arith.select %[[ZERO]], %{{.*}}, %[[Y]]
// CHECK:         %[[Q:.*]] = arith.ceildivui %[[X]], %[[SAFE]]
// CHECK:         arith.select %[[ZERO]], %{{.*}}, %[[Q]]
func.func @ceildivui(%x: i32, %y: i32) -> i32 {
  %0 = arith.ceildivui %x, %y : i32
  return %0 : i32
}

// CHECK-LABEL: func @shrsi
// CHECK-SAME:    %[[X:[^:]*]]: i8, %[[N:[^:]*]]: i8
// CHECK:         %[[FAR:.*]] = arith.cmpi ugt, %[[N]]
// CHECK:         %[[NEAR:.*]] = arith.select %[[FAR]], %{{.*}}, %[[N]]
// CHECK:         %[[ALL:.*]] = arith.shrsi %[[X]], %[[NEAR]]
// CHECK:         return %[[ALL]]
func.func @shrsi(%x: i8, %n: i8) -> i8 {
  %0 = arith.shrsi %x, %n : i8
  return %0 : i8
}

// Nothing is open with constants, and the compiler's own indices are in range.
// CHECK-LABEL: func @constants
// CHECK-NOT:     arith.select
// CHECK:         return
func.func @constants(%x: i32, %i: index) -> (i32, i32, index) {
  %c3 = arith.constant 3 : i32
  %0 = arith.remsi %x, %c3 : i32
  %1 = arith.shli %x, %c3 : i32
  %2 = arith.divui %i, %i : index
  return %0, %1, %2 : i32, i32, index
}
