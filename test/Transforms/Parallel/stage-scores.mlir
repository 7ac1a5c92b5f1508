// Scores of blocks are those of the stage that has the weight; of several micro-batches, those of
// the last one, as where one process goes through them.

// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(bsr-mark{match=w block=2x2 density=0.5},func.func(bsr-raise),bsr-bind,func.func(bsr-propagate,canonicalize,cse,bsr-score-blocks{norm=l1},bsr-split-stages{stages=2 stage=0}))" | FileCheck %s --check-prefixes=STAGE,FIRST
// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(bsr-mark{match=w block=2x2 density=0.5},func.func(bsr-raise),bsr-bind,func.func(bsr-propagate,canonicalize,cse,bsr-score-blocks{norm=l1},bsr-split-stages{stages=2 stage=1}))" | FileCheck %s --check-prefixes=STAGE,SECOND
// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(bsr-mark{match=w1 block=2x2 density=0.5},func.func(bsr-raise),bsr-bind,func.func(bsr-propagate,canonicalize,cse,bsr-score-blocks{norm=l1},bsr-split-stages{stages=2 stage=0}))" | FileCheck %s --check-prefix=OTHER
// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(bsr-mark{match=w block=2x2 density=0.5},func.func(bsr-raise),bsr-bind,func.func(bsr-propagate,canonicalize,cse,bsr-score-blocks{norm=l1},bsr-data-parallel{cut=true},bsr-split-stages{stages=2 stage=0},bsr-micro-batches{count=3},canonicalize,cse))" | FileCheck %s --check-prefix=MICRO
// RUN: sparse-opt %S/split-stages.mlir --pass-pipeline="builtin.module(bsr-mark{match=w block=2x2 density=0.5},func.func(bsr-raise),bsr-bind,func.func(bsr-propagate,canonicalize,cse,bsr-score-blocks{norm=l1},bsr-data-parallel{cut=true},bsr-split-stages{stages=2 stage=1},bsr-micro-batches{count=3 replicas=true},canonicalize,cse))" | FileCheck %s --check-prefix=MEAN

// STAGE-LABEL: func.func @step(
// FIRST-SAME:  tensor<2x2xf32> {bsr.name = "w0", bsr.role = "scores"})
// SECOND-SAME: tensor<2x2xf32> {bsr.name = "w1", bsr.role = "scores"})
// STAGE-SAME:  bsr.score_norm = "l1"
// STAGE:       %[[SCORES:.*]] = bsr.block_scores
// STAGE-NOT:   bsr.block_scores
// STAGE:       return {{.*}}, %[[SCORES]] :

// A stage without patterns has none.
// OTHER-LABEL: func.func @step(
// OTHER-NOT:   score
// OTHER:       return

// MICRO-LABEL: func.func @step(
// MICRO:       %{{.*}}: tensor<8x4xf32> {bsr.name = "micro2.x"
// MICRO-NOT:   bsr.block_scores
// MICRO-COUNT-2: bsr.sddmm
// MICRO-NOT:   bsr.block_scores
// MICRO:       %[[BACK:.*]] = bsr.receive from 1 -> tensor<8x4xf32>
// MICRO:       %[[LAST:.*]] = bsr.block_scores {{.*}}, %[[BACK]]
// MICRO-NOT:   bsr.block_scores
// MICRO:       return {{.*}}, %[[LAST]] :

// MEAN-LABEL:  func.func @step(
// MEAN:        %[[LAST:.*]] = bsr.block_scores
// MEAN:        %[[MEAN:.*]] = bsr.all_reduce %[[LAST]]
// MEAN:        return {{.*}}, %[[MEAN]] :
