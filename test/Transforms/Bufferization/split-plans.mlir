// Plans of patterns leave the step for a function of their own.
//
// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-split-plans | FileCheck %s

func.func private @plan(memref<3xi32>, memref<4xi32>, memref<2xi32>)
func.func private @product(memref<4xi32>, memref<4xf32>)

// CHECK-LABEL: func @step(
// CHECK-SAME:    %[[PTR:.*]]: memref<3xi32> {{.*}}, %[[Y:.*]]: memref<4xf32> {{.*}}, %[[ARENA:.*]]: memref<192xi8>
// CHECK-NOT:     @plan
// CHECK:         %[[PLAN:.*]] = memref.view %[[ARENA]]
// CHECK:         call @product(%[[PLAN]], %[[Y]])
// CHECK-NOT:     @plan
// CHECK:         return
// CHECK-LABEL: func @step_plans(
// CHECK-SAME:    %[[PTR:.*]]: memref<3xi32>, %{{.*}}: memref<4xf32>, %[[ARENA:.*]]: memref<192xi8>) {
// CHECK-NEXT:    %[[C0:.*]] = arith.constant 0 : index
// CHECK-NEXT:    %[[PLAN:.*]] = memref.view %[[ARENA]][%[[C0]]][]
// CHECK-NEXT:    %[[C64:.*]] = arith.constant 64 : index
// CHECK-NEXT:    %[[SIZES:.*]] = memref.view %[[ARENA]][%[[C64]]][]
// CHECK-NEXT:    call @plan(%[[PTR]], %[[PLAN]], %[[SIZES]]) {bsr.kind = "plan"}
// CHECK-NEXT:    %[[C128:.*]] = arith.constant 128 : index
// CHECK-NEXT:    %[[OTHER:.*]] = memref.view %[[ARENA]][%[[C128]]][]
// CHECK-NEXT:    call @plan(%[[PTR]], %[[OTHER]], %[[SIZES]]) {bsr.kind = "plan"}
// CHECK-NEXT:    return
func.func @step(%ptr: memref<3xi32> {bsr.kind = "row_ptr", bsr.name = "w"},
                %y: memref<4xf32> {bsr.kind = "output", bsr.name = "y"},
                %arena: memref<192xi8> {bsr.kind = "arena", bsr.name = "arena"}) {
  %c0 = arith.constant 0 : index
  %plan = memref.view %arena[%c0][] : memref<192xi8> to memref<4xi32>
  %c64 = arith.constant 64 : index
  %sizes = memref.view %arena[%c64][] : memref<192xi8> to memref<2xi32>
  call @plan(%ptr, %plan, %sizes) {bsr.kind = "plan"} : (memref<3xi32>, memref<4xi32>, memref<2xi32>) -> ()
  call @product(%plan, %y) : (memref<4xi32>, memref<4xf32>) -> ()
  %c128 = arith.constant 128 : index
  %other = memref.view %arena[%c128][] : memref<192xi8> to memref<4xi32>
  call @plan(%ptr, %other, %sizes) {bsr.kind = "plan"} : (memref<3xi32>, memref<4xi32>, memref<2xi32>) -> ()
  return
}

// -----

func.func private @product(memref<4xi32>, memref<4xf32>)

// A step that follows no plan stays as it is.
// CHECK-LABEL: func @no_plans(
// CHECK-NEXT:    call @product
// CHECK-NOT:   @no_plans_plans
func.func @no_plans(%x: memref<4xi32> {bsr.name = "x"}, %y: memref<4xf32> {bsr.kind = "output", bsr.name = "y"}) {
  call @product(%x, %y) : (memref<4xi32>, memref<4xf32>) -> ()
  return
}

// -----

func.func private @plan(memref<3xi32>, memref<4xi32>)

func.func @step(%ptr: memref<3xi32> {bsr.kind = "row_ptr", bsr.name = "w"}) {
  // expected-error@+1 {{expected plans to be made of patterns alone, but got 'memref.alloc'}}
  %plan = memref.alloc() : memref<4xi32>
  call @plan(%ptr, %plan) {bsr.kind = "plan"} : (memref<3xi32>, memref<4xi32>) -> ()
  return
}

// -----

func.func private @plan(memref<3xi32>, memref<3xi32>)

// expected-error@+1 {{expected no function of the name that the one of its plans has, but got @step_plans}}
func.func @step(%ptr: memref<3xi32> {bsr.kind = "row_ptr", bsr.name = "w"}, %to: memref<3xi32> {bsr.name = "to"}) {
  call @plan(%ptr, %to) {bsr.kind = "plan"} : (memref<3xi32>, memref<3xi32>) -> ()
  return
}
func.func @step_plans() {
  return
}
