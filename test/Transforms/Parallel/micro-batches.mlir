// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(func.func(bsr-data-parallel{cut=true},bsr-split-stages{stages=2 stage=0},bsr-micro-batches{count=3}))" | FileCheck %s --check-prefix=FIRST
// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(func.func(bsr-data-parallel{cut=true},bsr-split-stages{stages=2 stage=0},bsr-micro-batches{count=3 schedule=gpipe}))" | FileCheck %s --check-prefix=GPIPE
// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(func.func(bsr-data-parallel{cut=true},bsr-split-stages{stages=2 stage=1},bsr-micro-batches{count=3}))" | FileCheck %s --check-prefix=SECOND
// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(func.func(bsr-data-parallel{cut=true},bsr-split-stages{stages=2 stage=1},bsr-micro-batches{count=3 replicas=true}))" | FileCheck %s --check-prefix=REPLICAS
// RUN: sparse-opt %S/split-stages.mlir --bsr-data-parallel="cut=true" --bsr-micro-batches="count=2" | FileCheck %s --check-prefix=ALONE

// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-micro-batches="count=2"
// RUN: not sparse-opt %S/split-stages.mlir --bsr-micro-batches="count=0" 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not sparse-opt %S/split-stages.mlir --bsr-micro-batches="schedule=zero" 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// COUNT: error: expected one micro-batch or more, but got 0
// SCHEDULE: error: expected schedule gpipe or 1f1b, but got 'zero'

// Two are forward before one goes back, and sums are taken of one after another; all
// messages of an update, here its norm, come behind all micro-batches.

// FIRST-LABEL: func.func @step(
// FIRST-SAME: %[[W:[a-z0-9]*]]: tensor<4x4xf32> {bsr.name = "w0", bsr.result = 0 : i64, bsr.role = "param"},
// FIRST-SAME: %[[X:[a-z0-9]*]]: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"},
// FIRST-SAME: %[[X1:[a-z0-9]*]]: tensor<8x4xf32> {bsr.name = "micro1.x", bsr.role = "batch"},
// FIRST-SAME: %[[X2:[a-z0-9]*]]: tensor<8x4xf32> {bsr.name = "micro2.x", bsr.role = "batch"})
// FIRST-SAME: attributes {bsr.communicates, bsr.micro_batches = 3 : i64, bsr.stages = array<i64: 0, 2>}
// FIRST:      %[[H0:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[W]] :
// FIRST:      bsr.send %[[H0]] to 1
// FIRST-NEXT: %[[H1:.*]] = linalg.generic {{.*}} ins(%[[X1]], %[[W]] :
// FIRST:      bsr.send %[[H1]] to 1
// FIRST-NEXT: %[[D0:.*]] = bsr.receive from 1 -> tensor<8x4xf32>
// FIRST-NEXT: %[[G0:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[D0]] :
// FIRST:      %[[H2:.*]] = linalg.generic {{.*}} ins(%[[X2]], %[[W]] :
// FIRST:      bsr.send %[[H2]] to 1
// FIRST-NEXT: %[[D1:.*]] = bsr.receive from 1 -> tensor<8x4xf32>
// FIRST-NEXT: %[[G1:.*]] = linalg.generic {{.*}} ins(%[[X1]], %[[D1]] :
// FIRST:      %[[S1:.*]] = linalg.generic {{.*}} ins(%[[G0]], %[[G1]] : {{.*}} attrs = {bsr.stored}
// FIRST:      %[[D2:.*]] = bsr.receive from 1 -> tensor<8x4xf32>
// FIRST-NEXT: %[[G2:.*]] = linalg.generic {{.*}} ins(%[[X2]], %[[D2]] :
// FIRST:      %[[S2:.*]] = linalg.generic {{.*}} ins(%[[S1]], %[[G2]] : {{.*}} attrs = {bsr.stored}
// FIRST:      %[[MEAN:.*]] = linalg.generic {{.*}} ins(%[[S2]] :
// FIRST:      arith.divf
// FIRST:      %[[OWN:.*]] = linalg.generic {{.*}} ins(%[[MEAN]] :
// FIRST-NEXT: ^bb0
// FIRST:      %[[OTHER:.*]] = bsr.receive from 1 once -> tensor<f32>
// FIRST-NEXT: %[[NORM:.*]] = linalg.generic {{.*}} ins(%[[OWN]], %[[OTHER]] :
// FIRST:      bsr.send %[[NORM]] to 1
// FIRST:      %[[LOSS:.*]] = bsr.receive from 1 once -> tensor<f32>
// FIRST-NEXT: return %{{.*}}, %[[LOSS]]

// GPIPE-LABEL: func.func @step(
// GPIPE-COUNT-3: bsr.send %{{.*}} to 1 : tensor<8x4xf32>
// GPIPE-COUNT-3: bsr.receive from 1 -> tensor<8x4xf32>
// GPIPE-NOT:     bsr.send %{{.*}} to 1 : tensor<8x4xf32>

// SECOND-LABEL: func.func @step(
// SECOND:      bsr.receive from 0 -> tensor<8x4xf32>
// SECOND:      bsr.send %{{.*}} to 0 : tensor<8x4xf32>
// SECOND:      bsr.receive from 0 -> tensor<8x4xf32>
// SECOND:      bsr.send %{{.*}} to 0 : tensor<8x4xf32>
// SECOND:      bsr.receive from 0 -> tensor<8x4xf32>
// SECOND:      bsr.send %{{.*}} to 0 : tensor<8x4xf32>
// SECOND-NOT:  bsr.all_reduce
// SECOND:      bsr.send %{{.*}} to 0 : tensor<f32>
// SECOND:      return

// REPLICAS-LABEL: func.func @step(
// REPLICAS-SAME: bsr.replicas
// REPLICAS-COUNT-3: bsr.receive from 0 -> tensor<8x4xf32>
// REPLICAS-NOT:  bsr.receive
// The means of the loss and of a gradient are taken while the last micro-batch goes
// on and back.
// REPLICAS:      arith.divf
// REPLICAS:      bsr.all_reduce %{{.*}} : tensor<f32>
// REPLICAS-NEXT: linalg.generic
// REPLICAS:      arith.divf
// REPLICAS:      bsr.all_reduce %{{.*}} : tensor<4x4xf32>
// REPLICAS-NEXT: linalg.generic
// REPLICAS:      bsr.send %{{.*}} to 0 : tensor<8x4xf32>

// ALONE-LABEL: func.func @step(
// ALONE-SAME: bsr.micro_batches = 2
// ALONE-NOT:  bsr.communicates
// ALONE-NOT:  bsr.all_reduce
// ALONE:      return

func.func @result(%x: tensor<4xf32> {bsr.name = "x", bsr.role = "batch"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  // expected-error @below {{expected results of a step of 2 micro-batches to be carried or numbers, of which means are taken, but got "y" of type 'tensor<4xf32>'}}
  %y = arith.addf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @mean(%x: tensor<f32> {bsr.name = "x", bsr.role = "batch"}) -> (tensor<f32> {bsr.name = "y"}) {
  %mean = bsr.all_reduce %x : tensor<f32> -> tensor<f32>
  // expected-error @below {{expected what a micro-batch computes not to depend on means over all of them, but got 'arith.addf' that does}}
  %y = arith.addf %x, %mean : tensor<f32>
  %all = bsr.all_reduce %y : tensor<f32> -> tensor<f32>
  return %all : tensor<f32>
}

// -----

// expected-error @below {{expected no argument of the name of that of a micro-batch, but got "micro1.x"}}
func.func @name(%x: tensor<f32> {bsr.name = "x", bsr.role = "batch"},
                %y: tensor<f32> {bsr.name = "micro1.x", bsr.role = "batch"}) -> (tensor<f32> {bsr.name = "y"}) {
  %z = arith.addf %x, %y : tensor<f32>
  %mean = bsr.all_reduce %z : tensor<f32> -> tensor<f32>
  return %mean : tensor<f32>
}

// -----

func.func @back(%a: tensor<f32> {bsr.name = "a", bsr.role = "lr"}) -> (tensor<f32> {bsr.name = "y"})
    attributes {bsr.communicates, bsr.stages = array<i64: 1, 3>} {
  // expected-error @below {{expected what stage 1 computes for later stages to follow from earlier ones, but got what stage 2 sends back}}
  %x = bsr.receive from 2 -> tensor<f32>
  bsr.send %x to 2 : tensor<f32>
  %y = bsr.receive from 2 once -> tensor<f32>
  return %y : tensor<f32>
}

// -----

func.func @buffers(%x: memref<4xf32> {bsr.name = "x", bsr.role = "batch"}) {
  // expected-error @below {{expected means of tensors, but got one of 'memref<4xf32>'}}
  bsr.all_reduce %x : memref<4xf32>
  return
}
