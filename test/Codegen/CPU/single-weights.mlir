// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-emit --bsr-verify-kernels --canonicalize | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.cpu<l1_bytes=4096,l2_bytes=16384>" \
// RUN:   --bsr-plan-clusters --bsr-emit --bsr-verify-kernels --canonicalize | FileCheck %s --check-prefix=SMALL
// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.cpu<vector_bits=512,num_registers=32>" \
// RUN:   --bsr-plan-clusters --bsr-emit --bsr-verify-kernels --canonicalize | FileCheck %s --check-prefix=WIDE

!pattern = !bsr.pattern<96x80, block = 1x1, slots = 2500>

// A product of single weights makes an order first: where each line's chunks begin, lines
// sorted by their weights, then rows of 16 bits and weights in this order. The product takes
// three lines of a run at once, with two panels of sums each; a work item is two panels.
// CHECK-LABEL: func private @ordered
// CHECK-SAME:    %[[X:[^:]*]]: memref<96x1024xf32>, %[[Y:[^:]*]]: memref<80x1024xf32>, %[[STARTS:[^:]*]]: memref<80x2xi32>, %[[ENDS:[^:]*]]: memref<1x1x98xi32>, %[[ORDER:[^:]*]]: memref<1x1x80xi32>, %[[SPANS:[^:]*]]: memref<1x1x80x3xi32>, %[[ROWS:[^:]*]]: memref<2500xi16>, %[[WEIGHTS:[^:]*]]: memref<2500xf32>)
// CHECK:         scf.forall (%{{.*}}) in (40) {
// CHECK:           memref.store %{{.*}}, %[[STARTS]]
// CHECK:         memref.store %{{.*}}, %[[ENDS]]
// CHECK:         memref.store %{{.*}}, %[[ORDER]]
// CHECK:         memref.store %{{.*}}, %[[SPANS]]
// CHECK:         scf.forall (%{{.*}}) in (64) {
// CHECK:           memref.store %{{.*}}, %[[ROWS]]
// CHECK:           memref.store %{{.*}}, %[[WEIGHTS]]
// CHECK:         scf.forall (%{{.*}}) in (32) {
// CHECK:           scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c3 {
// CHECK-COUNT-6:     memref.prefetch %[[Y]]{{.*}} write
// CHECK:             scf.for %{{.*}} step %c4 iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>) {
// CHECK:               vector.load %[[ROWS]]{{.*}} vector<4xi16>
// CHECK:               memref.load %[[WEIGHTS]]
// CHECK:               vector.load %[[X]]
// CHECK:         return

// Rows of 32 tokens: 32 fill a first-level cache of 4 KiB, sums of 40 lines three eighths of 16 KiB.
// SMALL-LABEL: func private @ordered
// Each line of a chunk prefetches its share of the rows of the next one.
// SMALL-SAME:    %[[X:[^:]*]]: memref<96x1024xf32>, %{{.*}}: memref<80x4xi32>, %{{[^:]*}}: memref<2x3x34xi32>, %{{[^:]*}}: memref<2x3x40xi32>
// SMALL:         scf.for %{{.*}} step %c3 {
// SMALL:           memref.prefetch %[[X]]{{.*}} read

// Rows of 64 tokens: 128 fill 32 KiB. A work item is one panel.
// WIDE-LABEL:  func private @ordered
// WIDE-SAME:     memref<80x2xi32>, %{{[^:]*}}: memref<1x1x98xi32>
// WIDE:          scf.forall (%{{.*}}) in (16) {
// WIDE:            scf.for %{{.*}} step %c4 iter_args({{.*}}) -> (vector<64xf32>, vector<64xf32>, vector<64xf32>) {
bsr.cluster private @ordered(%p: !pattern, %w: tensor<2500x1x1xf32>, %x: tensor<96x1024xf32>) -> tensor<80x1024xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<2500x1x1xf32>, tensor<96x1024xf32> -> tensor<80x1024xf32>
  bsr.yield %y : tensor<80x1024xf32>
}
func.func @step(%p: !pattern, %w: tensor<2500x1x1xf32>, %x: tensor<96x1024xf32>) -> tensor<80x1024xf32> {
  %e = tensor.empty() : tensor<80x1024xf32>
  %y = bsr.launch @ordered ins(%p, %w, %x : !pattern, tensor<2500x1x1xf32>, tensor<96x1024xf32>)
      outs(%e : tensor<80x1024xf32>) -> tensor<80x1024xf32>
  return %y : tensor<80x1024xf32>
}

// -----

!pattern = !bsr.pattern<96x80, block = 1x1, slots = 300>

// Four weights a line: its sums would be read and written for them.
// CHECK-LABEL: func private @few_weights
// CHECK-NOT:     xi16>
// CHECK:         return
// SMALL-LABEL: func private @few_weights
// WIDE-LABEL:  func private @few_weights
bsr.cluster private @few_weights(%p: !pattern, %w: tensor<300x1x1xf32>, %x: tensor<96x1024xf32>) -> tensor<80x1024xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<300x1x1xf32>, tensor<96x1024xf32> -> tensor<80x1024xf32>
  bsr.yield %y : tensor<80x1024xf32>
}
func.func @step(%p: !pattern, %w: tensor<300x1x1xf32>, %x: tensor<96x1024xf32>) -> tensor<80x1024xf32> {
  %e = tensor.empty() : tensor<80x1024xf32>
  %y = bsr.launch @few_weights ins(%p, %w, %x : !pattern, tensor<300x1x1xf32>, tensor<96x1024xf32>)
      outs(%e : tensor<80x1024xf32>) -> tensor<80x1024xf32>
  return %y : tensor<80x1024xf32>
}

// -----

!pattern = !bsr.pattern<96x80, block = 1x1, slots = 2000>

// 16-bit floats, tokens that are no whole tiles, and 512 of them take blocks in the order of the pattern.
// CHECK-LABEL: func private @others
// CHECK-NOT:     memref<{{[^>]*}}xi16>
// CHECK:         return
// SMALL-LABEL: func private @others
// WIDE-LABEL:  func private @others
bsr.cluster private @others(%p: !pattern, %w: tensor<2000x1x1xbf16>, %x: tensor<96x1024xbf16>, %v: tensor<2000x1x1xf32>, %z: tensor<96x1040xf32>, %a: tensor<96x512xf32>)
    -> (tensor<80x1024xbf16>, tensor<80x1040xf32>, tensor<80x512xf32>) {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<2000x1x1xbf16>, tensor<96x1024xbf16> -> tensor<80x1024xbf16>
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !pattern, tensor<2000x1x1xf32>, tensor<96x1040xf32> -> tensor<80x1040xf32>
  %d = bsr.spmm %p, %v, %a feature_dim = 0 : !pattern, tensor<2000x1x1xf32>, tensor<96x512xf32> -> tensor<80x512xf32>
  bsr.yield %y, %u, %d : tensor<80x1024xbf16>, tensor<80x1040xf32>, tensor<80x512xf32>
}
func.func @step(%p: !pattern, %w: tensor<2000x1x1xbf16>, %x: tensor<96x1024xbf16>, %v: tensor<2000x1x1xf32>, %z: tensor<96x1040xf32>, %a: tensor<96x512xf32>)
    -> (tensor<80x1024xbf16>, tensor<80x1040xf32>, tensor<80x512xf32>) {
  %e = tensor.empty() : tensor<80x1024xbf16>
  %f = tensor.empty() : tensor<80x1040xf32>
  %g = tensor.empty() : tensor<80x512xf32>
  %y:3 = bsr.launch @others ins(%p, %w, %x, %v, %z, %a : !pattern, tensor<2000x1x1xbf16>, tensor<96x1024xbf16>, tensor<2000x1x1xf32>, tensor<96x1040xf32>, tensor<96x512xf32>)
      outs(%e, %f, %g : tensor<80x1024xbf16>, tensor<80x1040xf32>, tensor<80x512xf32>) -> tensor<80x1024xbf16>, tensor<80x1040xf32>, tensor<80x512xf32>
  return %y#0, %y#1, %y#2 : tensor<80x1024xbf16>, tensor<80x1040xf32>, tensor<80x512xf32>
}

// -----

!pattern = !bsr.pattern<96x80, block = 1x1, slots = 2500>

// Single weights that a product makes: lines in their order, no weights. A work item is six of 96 rows, whose sums lie
// on the stack; four weights of a line are summed up across lanes together, and go to their slots when all tokens are.
// CHECK-LABEL: func private @made
// CHECK-SAME:    %[[A:[^:]*]]: memref<96x1024xf32>, %[[B:[^:]*]]: memref<80x1024xf32>, %[[W:[^:]*]]: memref<2500x1x1xf32>, {{.*}}: memref<16x1x6x3xi32>, %[[ROWS:[^:]*]]: memref<2500xi16>)
// CHECK:         scf.forall (%{{.*}}) in (16) {
// CHECK:           %[[SUMS:.*]] = memref.alloca() {{.*}}memref<480xf32>
// CHECK:           scf.for %{{.*}} to %c32
// CHECK:             vector.load %[[A]]{{.*}} vector<8xf32>
// CHECK:             scf.for %{{.*}} step %c4 {
// CHECK:               vector.load %[[ROWS]]{{.*}} vector<4xi16>
// CHECK:               vector.load %[[B]]{{.*}} vector<8xf32>
// CHECK:               vector.store %{{.*}}, %[[SUMS]]{{.*}} vector<4xf32>
// CHECK:           memref.store %{{.*}}, %[[W]]
// CHECK:         return
// SMALL-LABEL: func private @made
// WIDE-LABEL:  func private @made
// WIDE:          vector.load %{{.*}} vector<16xf32>
bsr.cluster private @made(%p: !pattern, %a: tensor<96x1024xf32>, %b: tensor<80x1024xf32>) -> tensor<2500x1x1xf32> {
  %w = bsr.sddmm %p, %a, %b feature_dim = 0 : !pattern, tensor<96x1024xf32>, tensor<80x1024xf32> -> tensor<2500x1x1xf32>
  bsr.yield %w : tensor<2500x1x1xf32>
}
func.func @step(%p: !pattern, %a: tensor<96x1024xf32>, %b: tensor<80x1024xf32>) -> tensor<2500x1x1xf32> {
  %e = tensor.empty() : tensor<2500x1x1xf32>
  %w = bsr.launch @made ins(%p, %a, %b : !pattern, tensor<96x1024xf32>, tensor<80x1024xf32>)
      outs(%e : tensor<2500x1x1xf32>) -> tensor<2500x1x1xf32>
  return %w : tensor<2500x1x1xf32>
}

// -----

!pattern = !bsr.pattern<96x112, block = 8x1, slots = 300>

// Blocks of one output: a line of them reads the same eight features. Their values are put in the order of these lines
// first. Four are taken at once, with their rows of sums in registers; then what is left of a line. Sums are prefetched
// where the first-level cache does not keep them.
// CHECK-LABEL: func private @scattered
// CHECK-SAME:    %[[V:[^:]*]]: memref<300x8x1xf32>, %[[X:[^:]*]]: memref<96x1024xf32>, %[[Y:[^:]*]]: memref<112x1024xf32>, %[[ORDERED:[^:]*]]: memref<300x8x1xf32>)
// CHECK:         scf.forall (%{{.*}}) in (64) {
// CHECK:           memref.load %[[V]]
// CHECK:           memref.store %{{.*}}, %[[ORDERED]]
// CHECK:         scf.forall (%{{.*}}) in (64) {
// CHECK-NOT:       %[[V]]
// CHECK:           vector.store %{{.*}}, %[[Y]]
// CHECK:           scf.for
// CHECK:             scf.for %{{.*}} step %c4 {
// CHECK-NOT:           memref.prefetch
// CHECK-COUNT-4:       vector.load %[[Y]]
// CHECK-NOT:           scf.for
// CHECK:               vector.load %[[X]]
// CHECK-COUNT-4:       memref.load %[[ORDERED]]
// CHECK:               vector.load %[[X]]
// CHECK-COUNT-4:       vector.store %{{.*}}, %[[Y]]
// CHECK:             scf.for %{{.*}} step %c1 {
// CHECK:               vector.load %[[Y]]
// CHECK:               vector.store %{{.*}}, %[[Y]]
// SMALL-LABEL: func private @scattered
// SMALL-SAME:    %[[Y:[^:]*]]: memref<112x1024xf32>, %{{[^:]*}}: memref<300x8x1xf32>)
// SMALL:         memref.prefetch %[[Y]]{{.*}} write
// WIDE-LABEL:  func private @scattered
bsr.cluster private @scattered(%p: !pattern, %w: tensor<300x8x1xf32>, %x: tensor<96x1024xf32>) -> tensor<112x1024xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<300x8x1xf32>, tensor<96x1024xf32> -> tensor<112x1024xf32>
  bsr.yield %y : tensor<112x1024xf32>
}
func.func @step(%p: !pattern, %w: tensor<300x8x1xf32>, %x: tensor<96x1024xf32>) -> tensor<112x1024xf32> {
  %e = tensor.empty() : tensor<112x1024xf32>
  %y = bsr.launch @scattered ins(%p, %w, %x : !pattern, tensor<300x8x1xf32>, tensor<96x1024xf32>)
      outs(%e : tensor<112x1024xf32>) -> tensor<112x1024xf32>
  return %y : tensor<112x1024xf32>
}

// -----

!pattern = !bsr.pattern<160x96, block = 1x8, slots = 600>

// Blocks of one input: their values are put in the order of the view first. For fewer panels they are read where they lie.
// CHECK-LABEL: func private @in_order
// CHECK-SAME:    %[[V:[^:]*]]: memref<600x1x8xf32>, %[[X:[^:]*]]: memref<160x1024xf32>, %{{[^:]*}}: memref<96x1024xf32>, %[[ORDERED:[^:]*]]: memref<600x1x8xf32>)
// CHECK:         scf.forall (%{{.*}}) in (64) {
// CHECK:           vector.load %[[V]]{{.*}} vector<8xf32>
// CHECK:           vector.store %{{.*}}, %[[ORDERED]]{{.*}} vector<8xf32>
// CHECK:         scf.forall
// CHECK-NOT:       %[[V]]
// Each line prefetches its share of the rows of the next panel, 14 of them.
// CHECK-COUNT-14:  memref.prefetch %[[X]]
// The first tile of a line prefetches its rows, four blocks in a step.
// CHECK:           scf.for %{{.*}} step %c4 iter_args
// CHECK-COUNT-4:     memref.prefetch %[[X]]
// CHECK:             memref.load %[[ORDERED]]
// CHECK:           scf.for %{{.*}} step %c1 iter_args
// CHECK:             memref.load %[[ORDERED]]
// The other finds them in the first-level cache.
// CHECK:           scf.for %{{.*}} step %c4 iter_args
// CHECK-NOT:         memref.prefetch
// CHECK:         return
// Where it does not keep them, both do; the second-level cache does not keep two panels.
// SMALL-LABEL: func private @in_order
// SMALL:         scf.forall
// SMALL:         scf.forall
// SMALL-NOT:       memref.prefetch
// SMALL:           scf.for %{{.*}} step %c4 iter_args
// SMALL:             memref.prefetch
// SMALL:           scf.for %{{.*}} step %c1 iter_args
// SMALL:             memref.prefetch
// SMALL:         return
// WIDE-LABEL:  func private @in_order
bsr.cluster private @in_order(%p: !pattern, %w: tensor<600x1x8xf32>, %x: tensor<160x1024xf32>) -> tensor<96x1024xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<600x1x8xf32>, tensor<160x1024xf32> -> tensor<96x1024xf32>
  bsr.yield %y : tensor<96x1024xf32>
}
func.func @step(%p: !pattern, %w: tensor<600x1x8xf32>, %x: tensor<160x1024xf32>) -> tensor<96x1024xf32> {
  %e = tensor.empty() : tensor<96x1024xf32>
  %y = bsr.launch @in_order ins(%p, %w, %x : !pattern, tensor<600x1x8xf32>, tensor<160x1024xf32>)
      outs(%e : tensor<96x1024xf32>) -> tensor<96x1024xf32>
  return %y : tensor<96x1024xf32>
}

// -----

!pattern = !bsr.pattern<80x96, block = 1x8, slots = 300>

// CHECK-LABEL: func private @where_they_lie
// CHECK-SAME:    %[[V:[^:]*]]: memref<300x1x8xf32>, %{{[^:]*}}: memref<80x128xf32>, %{{[^:]*}}: memref<96x128xf32>)
// CHECK:         memref.prefetch %[[V]]
// CHECK:         memref.load %[[V]]
// SMALL-LABEL: func private @where_they_lie
// WIDE-LABEL:  func private @where_they_lie
bsr.cluster private @where_they_lie(%p: !pattern, %w: tensor<300x1x8xf32>, %x: tensor<80x128xf32>) -> tensor<96x128xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<300x1x8xf32>, tensor<80x128xf32> -> tensor<96x128xf32>
  bsr.yield %y : tensor<96x128xf32>
}
func.func @step(%p: !pattern, %w: tensor<300x1x8xf32>, %x: tensor<80x128xf32>) -> tensor<96x128xf32> {
  %e = tensor.empty() : tensor<96x128xf32>
  %y = bsr.launch @where_they_lie ins(%p, %w, %x : !pattern, tensor<300x1x8xf32>, tensor<80x128xf32>)
      outs(%e : tensor<96x128xf32>) -> tensor<96x128xf32>
  return %y : tensor<96x128xf32>
}
