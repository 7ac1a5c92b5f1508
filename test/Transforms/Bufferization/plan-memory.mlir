// RUN: sparse-opt %s --bsr-plan-memory --split-input-file --verify-diagnostics | FileCheck %s

func.func private @use(memref<16xf32>)
func.func private @use_wide(memref<32xf32>)
func.func private @use_flat(memref<4x4xf32>)
func.func private @use_bits(memref<65xi1>)

// The buffer that lives longest lies first, the others around it: %a and %c share
// memory, %b is live with both, and a view keeps its buffer alive.
// CHECK-LABEL: func @place
// CHECK-SAME:    %[[ARENA:[^:]*]]: memref<320xi8> {bsr.kind = "arena", bsr.name = "arena"}
// CHECK-SAME:    bsr.arena_bytes = 320 : i64, bsr.live_bytes = 320
func.func @place(%x: memref<16xf32> {bsr.name = "x"}) {
  // CHECK:     %[[O:[^ ]*]] = arith.constant 128
  // CHECK:     memref.view %[[ARENA]][%[[O]]][]
  %a = memref.alloc() : memref<16xf32>
  // CHECK:     %[[O:[^ ]*]] = arith.constant 0
  // CHECK:     memref.view %[[ARENA]][%[[O]]][] : memref<320xi8> to memref<32xf32>
  %b = memref.alloc() : memref<32xf32>
  call @use(%a) : (memref<16xf32>) -> ()
  call @use_wide(%b) : (memref<32xf32>) -> ()
  %flat = memref.expand_shape %a [[0, 1]] output_shape [4, 4] : memref<16xf32> into memref<4x4xf32>
  // CHECK:     %[[O:[^ ]*]] = arith.constant 192
  // CHECK:     memref.view %[[ARENA]][%[[O]]][] : memref<320xi8> to memref<65xi1>
  %bits = memref.alloc() : memref<65xi1>
  call @use_bits(%bits) : (memref<65xi1>) -> ()
  call @use_flat(%flat) : (memref<4x4xf32>) -> ()
  // CHECK:     %[[O:[^ ]*]] = arith.constant 128
  // CHECK:     memref.view %[[ARENA]][%[[O]]][] : memref<320xi8> to memref<16xf32>
  %c = memref.alloc() : memref<16xf32>
  call @use(%c) : (memref<16xf32>) -> ()
  call @use_wide(%b) : (memref<32xf32>) -> ()
  return
}

// -----

func.func private @use(memref<16xf32>)
func.func private @use_wide(memref<32xf32>)
func.func private @use_both(memref<16xf32>, memref<16xf32>)

// The arena is as large as what is live at the peak, %b and %d. Largest first, %a
// and %b would lie below the others and %c above %d, out of these bytes; so it would
// if %b lay below %d.
// CHECK-LABEL: func @peak
// CHECK-SAME:    bsr.arena_bytes = 192 : i64, bsr.live_bytes = 192
func.func @peak(%x: memref<16xf32> {bsr.name = "x"}) {
  %a = memref.alloc() : memref<32xf32>
  %b = memref.alloc() : memref<32xf32>
  %c = memref.alloc() : memref<16xf32>
  %d = memref.alloc() : memref<16xf32>
  call @use(%d) : (memref<16xf32>) -> ()
  call @use_wide(%b) : (memref<32xf32>) -> ()
  call @use_both(%c, %d) : (memref<16xf32>, memref<16xf32>) -> ()
  call @use_wide(%a) : (memref<32xf32>) -> ()
  call @use(%c) : (memref<16xf32>) -> ()
  call @use_wide(%a) : (memref<32xf32>) -> ()
  return
}

// -----

func.func private @use(memref<16xf32>, memref<16xf32>)

// What is allocated in a loop has its place all the time the loop runs.
// CHECK-LABEL: func @loop
// CHECK:         %[[ZERO:.*]] = arith.constant 0 : index
// CHECK:         memref.view %{{.*}}[%[[ZERO]]][] : memref<128xi8>
// CHECK:         scf.for
// CHECK:           %[[C64:.*]] = arith.constant 64
// CHECK:           memref.view %{{.*}}[%[[C64]]][] : memref<128xi8>
func.func @loop(%x: memref<16xf32> {bsr.name = "x"}, %lo: index, %hi: index, %step: index) {
  %a = memref.alloc() : memref<16xf32>
  scf.for %i = %lo to %hi step %step {
    %b = memref.alloc() : memref<16xf32>
    func.call @use(%b, %b) : (memref<16xf32>, memref<16xf32>) -> ()
    func.call @use(%b, %a) : (memref<16xf32>, memref<16xf32>) -> ()
  }
  return
}

// -----

func.func @dynamic(%n: index {bsr.name = "n"}) {
  // expected-error @below {{expected a buffer of static shape, but got 'memref<?xf32>'}}
  %a = memref.alloc(%n) : memref<?xf32>
  return
}

// -----

// CHECK-LABEL: func @no_step
// CHECK-NEXT:    memref.alloc
func.func @no_step() {
  %a = memref.alloc() : memref<4xf32>
  return
}

// -----

func.func private @use(memref<16xf32>)

// Scores live to the end, where their readers find them.
// CHECK-LABEL: func @scores
// CHECK-SAME:    bsr.arena_bytes = 128
// CHECK-SAME:    bsr.scores = [{name = "w", offset = [[OFFSET:[0-9]+]] : i64, type = memref<16xf32>}]
// CHECK:         %[[O:[^ ]*]] = arith.constant [[OFFSET]]
// CHECK:         memref.view %{{.*}}[%[[O]]][] : memref<128xi8> to memref<16xf32>
func.func @scores(%x: memref<16xf32> {bsr.name = "x"}, %flag: i1) {
  %s = memref.alloc() {bsr.scores = "w"} : memref<16xf32>
  scf.if %flag {
    func.call @use(%s) : (memref<16xf32>) -> ()
  }
  %a = memref.alloc() : memref<16xf32>
  call @use(%a) : (memref<16xf32>) -> ()
  return
}

// -----

func.func private @plan(memref<16xf32>, memref<16xi32>)
func.func private @use(memref<16xf32>, memref<16xi32>)
func.func private @scale(memref<16xf32>, memref<16xf32>)

// Plans keep from step to step: neither what is used before them nor what is used after them lies there. They are the first of the
// arena, in front of what is larger and lives as long.
// CHECK-LABEL: func @plans
// CHECK-SAME:    bsr.arena_bytes = 128
// CHECK:         %[[FIRST:[^ ]*]] = arith.constant 64
// CHECK-NEXT:    memref.view %{{.*}}[%[[FIRST]]][] : memref<128xi8> to memref<16xf32>
// CHECK:         %[[PLAN:[^ ]*]] = arith.constant 0
// CHECK-NEXT:    memref.view %{{.*}}[%[[PLAN]]][] : memref<128xi8> to memref<16xi32>
// CHECK:         %[[LAST:[^ ]*]] = arith.constant 64
// CHECK-NEXT:    memref.view %{{.*}}[%[[LAST]]][] : memref<128xi8> to memref<16xf32>
func.func @plans(%x: memref<16xf32> {bsr.name = "x"}) {
  %a = memref.alloc() : memref<16xf32>
  call @scale(%x, %a) : (memref<16xf32>, memref<16xf32>) -> ()
  %p = memref.alloc() : memref<16xi32>
  call @plan(%x, %p) {bsr.kind = "plan"} : (memref<16xf32>, memref<16xi32>) -> ()
  call @use(%x, %p) : (memref<16xf32>, memref<16xi32>) -> ()
  %b = memref.alloc() : memref<16xf32>
  call @scale(%x, %b) : (memref<16xf32>, memref<16xf32>) -> ()
  return
}

// -----

func.func private @plan(memref<16xf32>, memref<16xi32>)
func.func private @use(memref<64xf32>, memref<64xf32>)

// CHECK-LABEL: func @plans_first
// CHECK-SAME:    bsr.arena_bytes = 384
// CHECK:         %[[LARGE:[^ ]*]] = arith.constant 128
// CHECK-NEXT:    memref.view %{{.*}}[%[[LARGE]]][] : memref<384xi8> to memref<64xf32>
// CHECK:         %[[PLAN:[^ ]*]] = arith.constant 0
// CHECK-NEXT:    memref.view %{{.*}}[%[[PLAN]]][] : memref<384xi8> to memref<16xi32>
// CHECK:         %[[OTHER:[^ ]*]] = arith.constant 64
// CHECK-NEXT:    memref.view %{{.*}}[%[[OTHER]]][] : memref<384xi8> to memref<16xi32>
func.func @plans_first(%x: memref<16xf32> {bsr.name = "x"}) {
  %large = memref.alloc() : memref<64xf32>
  call @use(%large, %large) : (memref<64xf32>, memref<64xf32>) -> ()
  %p = memref.alloc() : memref<16xi32>
  call @plan(%x, %p) {bsr.kind = "plan"} : (memref<16xf32>, memref<16xi32>) -> ()
  %q = memref.alloc() : memref<16xi32>
  call @plan(%x, %q) {bsr.kind = "plan"} : (memref<16xf32>, memref<16xi32>) -> ()
  call @use(%large, %large) : (memref<64xf32>, memref<64xf32>) -> ()
  return
}

// -----

// What the launches of one kernel leave each other, below 4 MiB, keeps its memory on a GPU: what reads it may wait for that of others.
// What is larger is used again, and so is all of it on processors.

// CHECK-LABEL: func @partial_sums
// CHECK-SAME:    bsr.arena_bytes = 4194432 : i64
module attributes {bsr.target = #bsr.gpu} {
func.func private @sum(memref<16xf32>)
func.func private @sum_large(memref<1048576xf32>)
func.func @partial_sums(%x: memref<16xf32> {bsr.name = "x"}) {
  %a = memref.alloc() : memref<16xf32>
  call @sum(%a) : (memref<16xf32>) -> ()
  %b = memref.alloc() : memref<16xf32>
  call @sum(%b) : (memref<16xf32>) -> ()
  %c = memref.alloc() : memref<1048576xf32>
  call @sum_large(%c) : (memref<1048576xf32>) -> ()
  %d = memref.alloc() : memref<1048576xf32>
  call @sum_large(%d) : (memref<1048576xf32>) -> ()
  return
}
}

// -----

// CHECK-LABEL: func @on_a_processor
// CHECK-SAME:    bsr.arena_bytes = 64 : i64
func.func private @sum(memref<16xf32>)
func.func @on_a_processor(%x: memref<16xf32> {bsr.name = "x"}) {
  %a = memref.alloc() : memref<16xf32>
  call @sum(%a) : (memref<16xf32>) -> ()
  %b = memref.alloc() : memref<16xf32>
  call @sum(%b) : (memref<16xf32>) -> ()
  return
}
