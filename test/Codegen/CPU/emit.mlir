// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-emit --canonicalize | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-emit --canonicalize | FileCheck %s --check-prefix=NEVER
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-emit --mlir-debug-counter=bsr-emit-count=0 | FileCheck %s --check-prefix=PLAIN

// A kernel that is skipped is one of plain loops.
// PLAIN-NOT: {{vector[.<]}}

// What kernels are made of; emit-tuning.test has how large tiles, panels and packed strips are.
// One level of parallel loops; nothing is allocated in a kernel.
// NEVER-NOT: memref.alloc(
// NEVER-NOT: scf.parallel

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 5>

// The forward product gathers: a work item (panel of tokens, block column) walks the
// column view, with tiles of rows of sums in iter_args, and writes its own block of y.
// They start from zeros, not from what y holds: a tile goes through all blocks of its line.
// The first one prefetches the rows and the values that a later block needs, the others do not.
// CHECK-LABEL: func private @forward
// CHECK-SAME:    %[[PTR:[^:]*]]: memref<5xi32>, %[[IDX:[^:]*]]: memref<5xi32>, %[[SLOT:[^:]*]]: memref<5xi32>
// CHECK-SAME:    %[[W:[^:]*]]: memref<5x16x16xf32>, %[[X:[^:]*]]: memref<32x48xf32>, %[[Y:[^:]*]]: memref<64x48xf32>
// CHECK:         scf.forall (%{{.*}}, %[[COLUMN:.*]]) in ({{[0-9]+}}, 4) {
// CHECK-NOT:       scf.forall
// CHECK:           memref.load %[[PTR]][%[[COLUMN]]]
// CHECK-NOT:       vector.load %[[Y]]
// CHECK:           scf.for {{.*}} iter_args({{.*}} = %[[ZERO:[a-z0-9_]+]], {{.*}}) -> (vector<[[WIDTH:[0-9]+]]xf32>, vector<[[WIDTH]]xf32>
// CHECK-DAG:         memref.load %[[SLOT]]
// CHECK-DAG:         memref.load %[[IDX]]
// CHECK:             scf.for {{.*}} iter_args({{.*}}) -> (vector<[[WIDTH]]xf32>, vector<[[WIDTH]]xf32>
// CHECK:               memref.prefetch %[[W]]
// CHECK:               vector.load %[[X]]{{.*}} vector<[[WIDTH]]xf32>
// CHECK:               memref.prefetch %[[X]]
// CHECK:               memref.load %[[W]]
// CHECK:               vector.broadcast
// CHECK:           vector.store %{{.*}}, %[[Y]]
// CHECK:           scf.for %{{.*}} = %c0 to
// CHECK:             scf.for {{.*}} iter_args({{.*}}) -> (vector<[[WIDTH]]xf32>
// CHECK-NOT:         memref.prefetch
// CHECK:             vector.store %{{.*}}, %[[Y]]
// CHECK:         return
bsr.cluster private @forward(%p: !pattern, %w: tensor<5x16x16xf32>, %x: tensor<32x48xf32>) -> tensor<64x48xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<5x16x16xf32>, tensor<32x48xf32> -> tensor<64x48xf32>
  bsr.yield %y : tensor<64x48xf32>
}

// The transposed product walks the row view.
// CHECK-LABEL: func private @backward
// CHECK-SAME:    %[[PTR:[^:]*]]: memref<3xi32>, %{{[^:]*}}: memref<5xi32>, %{{[^:]*}}: memref<5xi32>
// CHECK:         scf.forall (%{{.*}}, %{{.*}}) in ({{[0-9]+}}, 2) {
// CHECK:           memref.load %[[PTR]]
bsr.cluster private @backward(%p: !pattern, %w: tensor<5x16x16xf32>, %y: tensor<64x48xf32>) -> tensor<32x48xf32> {
  %x = bsr.spmm %p, %w, %y transpose feature_dim = 0 : !pattern, tensor<5x16x16xf32>, tensor<64x48xf32> -> tensor<32x48xf32>
  bsr.yield %x : tensor<32x48xf32>
}

// The sampled product: a work item (block column) lays what it reads of y out along its
// columns, in memory of its own, then sums outer products over tokens, in tiles of rows.
// CHECK-LABEL: func private @gradient
// CHECK-SAME:    %[[PTR:[^:]*]]: memref<5xi32>, {{.*}}, %[[X:[^:]*]]: memref<32x48xf32>, %[[Y:[^:]*]]: memref<64x48xf32>
// CHECK-SAME:    %[[G:[^:]*]]: memref<5x16x16xf32>)
// CHECK:         scf.forall (%[[COLUMN:.*]]) in (4) {
// CHECK:           %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<48x16xf32>
// CHECK:           scf.for
// CHECK:             memref.prefetch %[[Y]]
// CHECK:             vector.load %[[Y]]
// CHECK:             vector.shuffle
// CHECK:             vector.store %{{.*}}, %[[STRIP]]
// CHECK:           memref.load %[[PTR]][%[[COLUMN]]]
// CHECK:           scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>
// CHECK:             memref.prefetch %[[X]]
// CHECK:             scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>
// CHECK:               vector.load %[[STRIP]]
// CHECK:               memref.load %[[X]]
// CHECK:           vector.store %{{.*}}, %[[G]]{{.*}} vector<16xf32>
// CHECK-NOT:       vector.reduction
// CHECK:         return
bsr.cluster private @gradient(%p: !pattern, %x: tensor<32x48xf32>, %y: tensor<64x48xf32>) -> tensor<5x16x16xf32> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !pattern, tensor<32x48xf32>, tensor<64x48xf32> -> tensor<5x16x16xf32>
  bsr.yield %g : tensor<5x16x16xf32>
}

// A launch gets the arrays of the view that its kernel walks.
// CHECK-LABEL: func @products
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern
// CHECK:         %[[CP:.*]], %[[RI:.*]], %[[ST:.*]] = bsr.indices %[[P]] transpose
// CHECK:         %[[Y:.*]] = bsr.launch @forward ins(%[[CP]], %[[RI]], %[[ST]], %{{.*}}, %{{.*}} :
// CHECK:         %[[RP:.*]], %[[CI:.*]], %[[S:.*]] = bsr.indices %[[P]] :
// CHECK:         bsr.launch @backward ins(%[[RP]], %[[CI]], %[[S]], %{{.*}}, %[[Y]] :
// CHECK-NOT:     in_place
func.func @products(%p: !pattern, %w: tensor<5x16x16xf32>, %x: tensor<32x48xf32>)
    -> (tensor<32x48xf32>, tensor<5x16x16xf32>) {
  %e = tensor.empty() : tensor<64x48xf32>
  %y = bsr.launch @forward ins(%p, %w, %x : !pattern, tensor<5x16x16xf32>, tensor<32x48xf32>)
      outs(%e : tensor<64x48xf32>) -> tensor<64x48xf32>
  %d = tensor.empty() : tensor<32x48xf32>
  %dx = bsr.launch @backward ins(%p, %w, %y : !pattern, tensor<5x16x16xf32>, tensor<64x48xf32>)
      outs(%d : tensor<32x48xf32>) -> tensor<32x48xf32>
  %f = tensor.empty() : tensor<5x16x16xf32>
  %g = bsr.launch @gradient ins(%p, %x, %y : !pattern, tensor<32x48xf32>, tensor<64x48xf32>)
      outs(%f : tensor<5x16x16xf32>) -> tensor<5x16x16xf32>
  return %dx, %g : tensor<32x48xf32>, tensor<5x16x16xf32>
}

// -----

!pattern = !bsr.pattern<32x4096, block = 16x16, slots = 5>

// Of many block columns, a work item has several of equal work, found by bisection.
// CHECK-LABEL: func private @wide
// CHECK-SAME:    %[[PTR:[^:]*]]: memref<257xi32>
// CHECK:         scf.forall (%{{.*}}, %{{.*}}) in ({{[0-9]+}}, {{[0-9]+}}) {
// CHECK:           %[[FIRST:.*]]:2 = scf.for
// CHECK:             memref.load %[[PTR]]
// CHECK:           %[[END:.*]]:2 = scf.for
// CHECK:           scf.for %[[COLUMN:.*]] = %[[FIRST]]#0 to %[[END]]#0
// CHECK:           memref.load %[[PTR]][%[[COLUMN]]]
bsr.cluster private @wide(%p: !pattern, %w: tensor<5x16x16xf32>, %x: tensor<32x48xf32>) -> tensor<4096x48xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<5x16x16xf32>, tensor<32x48xf32> -> tensor<4096x48xf32>
  bsr.yield %y : tensor<4096x48xf32>
}

func.func @many_columns(%p: !pattern, %w: tensor<5x16x16xf32>, %x: tensor<32x48xf32>) -> tensor<4096x48xf32> {
  %e = tensor.empty() : tensor<4096x48xf32>
  %y = bsr.launch @wide ins(%p, %w, %x : !pattern, tensor<5x16x16xf32>, tensor<32x48xf32>)
      outs(%e : tensor<4096x48xf32>) -> tensor<4096x48xf32>
  return %y : tensor<4096x48xf32>
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 5>

// Tokens that are no whole number of vectors: sums over tokens in vectors, then across
// lanes.
// CHECK-LABEL: func private @ragged_gradient
// CHECK-SAME:    %{{[^:]*}}: memref<5xi32>, {{.*}}, %[[G:[^:]*]]: memref<5x16x16xf32>)
// CHECK:         scf.forall (%{{.*}}) in (4) {
// CHECK:           scf.for {{.*}} -> (vector<{{[0-9]+}}xf32>, vector<{{[0-9]+}}xf32>
// CHECK:           vector.shuffle
// CHECK:           vector.store %{{.*}}, %[[G]]
bsr.cluster private @ragged_gradient(%p: !pattern, %x: tensor<32x50xf32>, %y: tensor<64x50xf32>) -> tensor<5x16x16xf32> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !pattern, tensor<32x50xf32>, tensor<64x50xf32> -> tensor<5x16x16xf32>
  bsr.yield %g : tensor<5x16x16xf32>
}

func.func @ragged_tokens(%p: !pattern, %x: tensor<32x50xf32>, %y: tensor<64x50xf32>) -> tensor<5x16x16xf32> {
  %e = tensor.empty() : tensor<5x16x16xf32>
  %g = bsr.launch @ragged_gradient ins(%p, %x, %y : !pattern, tensor<32x50xf32>, tensor<64x50xf32>)
      outs(%e : tensor<5x16x16xf32>) -> tensor<5x16x16xf32>
  return %g : tensor<5x16x16xf32>
}

// -----

!pattern = !bsr.pattern<32x64, block = 8x8, slots = 5>

// Blocks narrower than 16 columns: sums over tokens in vectors, then across lanes. A work
// item copies what it reads of a column's operand, all features side by side. Each tile
// prefetches what the next one begins with.
// CHECK-LABEL: func private @narrow
// CHECK-SAME:    %[[PTR:[^:]*]]: memref<9xi32>, {{.*}}, %[[X:[^:]*]]: memref<32x48xf32>, %[[Y:[^:]*]]: memref<64x48xf32>
// CHECK-SAME:    %[[G:[^:]*]]: memref<5x8x8xf32>)
// CHECK:         scf.forall (%[[COLUMN:.*]]) in (8) {
// CHECK:           %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<8x48xf32>
// CHECK:           memref.load %[[PTR]][%[[COLUMN]]]
// CHECK:           scf.for
// CHECK:             memref.prefetch %[[Y]]
// CHECK:             vector.load %[[Y]]
// CHECK:             vector.store %{{.*}}, %[[STRIP]]
// CHECK:           scf.for {{.*}} -> (vector<[[WIDTH:[0-9]+]]xf32>, vector<[[WIDTH]]xf32>
// CHECK:             memref.prefetch %[[X]]
// CHECK:             vector.load %[[X]]{{.*}} vector<[[WIDTH]]xf32>
// CHECK-NOT:         vector.load %[[Y]]
// CHECK:             vector.load %[[STRIP]]{{.*}} vector<[[WIDTH]]xf32>
// CHECK:           vector.shuffle
// CHECK:           vector.store %{{.*}}, %[[G]]
// CHECK:         return
bsr.cluster private @narrow(%p: !pattern, %x: tensor<32x48xf32>, %y: tensor<64x48xf32>) -> tensor<5x8x8xf32> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !pattern, tensor<32x48xf32>, tensor<64x48xf32> -> tensor<5x8x8xf32>
  bsr.yield %g : tensor<5x8x8xf32>
}

func.func @narrow_blocks(%p: !pattern, %x: tensor<32x48xf32>, %y: tensor<64x48xf32>) -> tensor<5x8x8xf32> {
  %e = tensor.empty() : tensor<5x8x8xf32>
  %g = bsr.launch @narrow ins(%p, %x, %y : !pattern, tensor<32x48xf32>, tensor<64x48xf32>)
      outs(%e : tensor<5x8x8xf32>) -> tensor<5x8x8xf32>
  return %g : tensor<5x8x8xf32>
}

// -----

!pattern = !bsr.pattern<12x8, block = 1x1, slots = 50>

// Single weights: several of a line at a time, the last one again where a line ends. More
// rows than columns: row by row, so that the smaller operand is read again and again.
// CHECK-LABEL: func private @single
// CHECK-SAME:    %[[PTR:[^:]*]]: memref<13xi32>, %[[IDX:[^:]*]]: memref<50xi32>, %[[SLOT:[^:]*]]: memref<50xi32>
// CHECK-SAME:    %[[X:[^:]*]]: memref<12x48xf32>, %[[Y:[^:]*]]: memref<8x48xf32>, %[[G:[^:]*]]: memref<50x1x1xf32>)
// CHECK:         scf.forall (%[[ROW:.*]]) in (12) {
// CHECK:           %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<1x48xf32>
// CHECK:           %[[END:.*]] = arith.index_cast
// CHECK:           vector.load %[[X]]
// CHECK:           scf.for %{{.*}} step %{{.*}} {
// CHECK:             arith.minui
// CHECK:             memref.prefetch %[[Y]]
// CHECK:             vector.load %[[Y]]
// CHECK:             memref.store %{{.*}}, %[[G]]
// CHECK:         return
bsr.cluster private @single(%p: !pattern, %x: tensor<12x48xf32>, %y: tensor<8x48xf32>) -> tensor<50x1x1xf32> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !pattern, tensor<12x48xf32>, tensor<8x48xf32> -> tensor<50x1x1xf32>
  bsr.yield %g : tensor<50x1x1xf32>
}

func.func @single_weights(%p: !pattern, %x: tensor<12x48xf32>, %y: tensor<8x48xf32>) -> tensor<50x1x1xf32> {
  %e = tensor.empty() : tensor<50x1x1xf32>
  %g = bsr.launch @single ins(%p, %x, %y : !pattern, tensor<12x48xf32>, tensor<8x48xf32>)
      outs(%e : tensor<50x1x1xf32>) -> tensor<50x1x1xf32>
  return %g : tensor<50x1x1xf32>
}

// -----

!pattern = !bsr.pattern<6x6, block = 3x3, slots = 2>

// Blocks of three rows: a tile of three rows, and vectors of a power of two.
// CHECK-LABEL: func private @three_rows
// CHECK:         iter_args({{.*}}) -> (vector<[[WIDTH:[0-9]+]]xf32>, vector<[[WIDTH]]xf32>, vector<[[WIDTH]]xf32>) {
bsr.cluster private @three_rows(%p: !pattern, %w: tensor<2x3x3xf32>, %x: tensor<6x128xf32>) -> tensor<6x128xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<2x3x3xf32>, tensor<6x128xf32> -> tensor<6x128xf32>
  bsr.yield %y : tensor<6x128xf32>
}
func.func @step(%p: !pattern, %w: tensor<2x3x3xf32>, %x: tensor<6x128xf32>) -> tensor<6x128xf32> {
  %e = tensor.empty() : tensor<6x128xf32>
  %y = bsr.launch @three_rows ins(%p, %w, %x : !pattern, tensor<2x3x3xf32>, tensor<6x128xf32>)
      outs(%e : tensor<6x128xf32>) -> tensor<6x128xf32>
  return %y : tensor<6x128xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#t = affine_map<(i, j) -> (j, i)>
#row = affine_map<(i, j) -> (i)>
#first = affine_map<(i, j) -> (0, j)>

// Read only where the same element is written: %w and %m, not %g, of which an update
// also reads the transposed element, not a row that is broadcast, and not the first
// row of %f.
// CHECK-LABEL: func @in_place
// CHECK:         bsr.launch @update ins({{.*}}) outs({{.*}}) in_place = [0, 1] ->
bsr.cluster private @update(%w: tensor<8x8xf32>, %m: tensor<8x8xf32>, %g: tensor<8x8xf32>, %b: tensor<8xf32>,
                          %f: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %m1 = linalg.generic {indexing_maps = [#id, #id, #t, #first, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %g, %g, %f : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>)
      outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b0: f32, %c: f32, %d: f32, %o: f32):
    %0 = arith.addf %a, %b0 : f32
    %1 = arith.addf %0, %c : f32
    %2 = arith.addf %1, %d : f32
    linalg.yield %2 : f32
  } -> tensor<8x8xf32>
  %w1 = linalg.generic {indexing_maps = [#id, #id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %m1, %b : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b0: f32, %c: f32, %o: f32):
    %0 = arith.subf %a, %b0 : f32
    %1 = arith.mulf %0, %c : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  bsr.yield %m1, %w1 : tensor<8x8xf32>, tensor<8x8xf32>
}
func.func @in_place(%w: tensor<8x8xf32>, %m: tensor<8x8xf32>, %g: tensor<8x8xf32>, %b: tensor<8xf32>, %f: tensor<8x8xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %n:2 = bsr.launch @update ins(%w, %m, %g, %b, %f : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x8xf32>)
      outs(%e, %e : tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>, tensor<8x8xf32>
  return %n#0, %n#1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#t = affine_map<(i, j) -> (j, i)>

// Two results, one of them transposed: each lies where its map says, and no input
// may lie where one of them does.
// CHECK-LABEL: func private @both_ways
// CHECK-SAME:    %{{.*}}: memref<4x8xf32>, %[[Y:.*]]: memref<4x8xf32>, %[[Z:.*]]: memref<8x4xf32>)
// CHECK:         scf.forall (%[[I:.*]]) in (4) {
// CHECK:           vector.store %{{.*}}, %[[Y]][%[[I]], %{{.*}}] : memref<4x8xf32>, vector<8xf32>
// CHECK-COUNT-8:   memref.store %{{.*}}, %[[Z]][%{{.*}}, %[[I]]]
// CHECK-LABEL: func @step
// CHECK-NOT:     in_place
bsr.cluster private @both_ways(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %f = tensor.empty() : tensor<8x4xf32>
  %y:2 = linalg.generic {indexing_maps = [#id, #id, #t], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e, %f : tensor<4x8xf32>, tensor<8x4xf32>) {
  ^bb0(%a: f32, %o: f32, %p: f32):
    %0 = arith.negf %a : f32
    linalg.yield %a, %0 : f32, f32
  } -> (tensor<4x8xf32>, tensor<8x4xf32>)
  bsr.yield %y#0, %y#1 : tensor<4x8xf32>, tensor<8x4xf32>
}
func.func @step(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %f = tensor.empty() : tensor<8x4xf32>
  %y:2 = bsr.launch @both_ways ins(%x : tensor<4x8xf32>) outs(%e, %f : tensor<4x8xf32>, tensor<8x4xf32>)
      -> tensor<4x8xf32>, tensor<8x4xf32>
  return %y#0, %y#1 : tensor<4x8xf32>, tensor<8x4xf32>
}

// -----

#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// A chain of a reduction and of what reads it: two loops of one work item. The sums are
// kept in iter_args, taken across lanes once, and read from there.
// CHECK-LABEL: func private @normalize
// CHECK-SAME:    %[[X:[^:]*]]: memref<4x32xf32>, %[[S:[^:]*]]: memref<4xf32>, %[[Y:[^:]*]]: memref<4x32xf32>)
// CHECK:         scf.forall (%{{.*}}) in (4) {
// CHECK:           %[[SUMS:.*]] = scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>)
// CHECK:             vector.load %[[X]]
// CHECK:           vector.reduction <add>, %[[SUMS]]
// CHECK:           %[[TOTAL:.*]] = arith.addf
// CHECK:           memref.store %[[TOTAL]], %[[S]]
// CHECK:           scf.for
// CHECK-DAG:         vector.load %[[X]]
// CHECK-DAG:         vector.broadcast %[[TOTAL]]
// CHECK:             arith.divf
// CHECK:             vector.store %{{.*}}, %[[Y]]
// CHECK-NOT:     scf.forall
// What a work item reads, it reads before it writes there.
// CHECK-LABEL: func @step
// CHECK:         bsr.launch @normalize {{.*}} in_place = [0]
bsr.cluster private @normalize(%x: tensor<4x32xf32>) -> (tensor<4xf32>, tensor<4x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x32xf32>) outs(%i : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %f = tensor.empty() : tensor<4x32xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<4x32xf32>, tensor<4xf32>) outs(%f : tensor<4x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x32xf32>
  bsr.yield %s, %y : tensor<4xf32>, tensor<4x32xf32>
}
func.func @step(%x: tensor<4x32xf32>) -> (tensor<4xf32>, tensor<4x32xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %f = tensor.empty() : tensor<4x32xf32>
  %y:2 = bsr.launch @normalize ins(%x : tensor<4x32xf32>) outs(%e, %f : tensor<4xf32>, tensor<4x32xf32>)
      -> tensor<4xf32>, tensor<4x32xf32>
  return %y#0, %y#1 : tensor<4xf32>, tensor<4x32xf32>
}

// -----

#id = affine_map<(b, f, t) -> (b, f, t)>
#token = affine_map<(b, f, t) -> (b, t)>

// A chain along tokens: a work item has 16 of them, the rest another, and three loops
// over the rows, one for each stage: the largest, powers and their sum, quotients. Sums
// stay in vectors; what a later loop reads is stored.
// CHECK-LABEL: func private @softmax
// CHECK-SAME:    %[[X:[^:]*]]: memref<2x5x36xf32>, %[[P:[^:]*]]: memref<2x5x36xf32>, %[[Q:[^:]*]]: memref<2x5x36xf32>)
// CHECK:         scf.forall (%[[B:.*]], %[[I:.*]]) in (2, 2) {
// CHECK:           %[[T:.*]] = arith.muli %[[I]], %c16
// CHECK:           %[[M:.*]] = scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>)
// CHECK:             vector.load %[[X]][%[[B]], %{{.*}}, %[[T]]]
// CHECK:             arith.maximumf
// CHECK:           %[[S:.*]] = scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>)
// CHECK:             vector.load %[[X]][%[[B]], %{{.*}}, %[[T]]]
// CHECK:             arith.subf %{{.*}}, %[[M]]
// CHECK:             %[[E:.*]] = math.exp
// CHECK:             arith.addf %[[E]]
// CHECK:             vector.store %[[E]], %[[P]][%[[B]], %{{.*}}, %[[T]]]
// CHECK:           scf.for
// CHECK:             %[[L:.*]] = vector.load %[[P]][%[[B]], %{{.*}}, %[[T]]]
// CHECK:             arith.divf %[[L]], %[[S]]
// CHECK:             vector.store %{{.*}}, %[[Q]][%[[B]], %{{.*}}, %[[T]]]
// CHECK:         scf.forall (%{{.*}}) in (2) {
// CHECK-COUNT-3:   scf.for
// CHECK:             vector.store %{{.*}}, %[[Q]][%{{.*}}, %{{.*}}, %c32] : memref<2x5x36xf32>, vector<4xf32>
// CHECK-NOT:     scf.for
// CHECK:         return
bsr.cluster private @softmax(%x: tensor<2x5x36xf32>) -> (tensor<2x5x36xf32>, tensor<2x5x36xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x5x36xf32>
  %f = tensor.empty() : tensor<2x36xf32>
  %i = linalg.fill ins(%low : f32) outs(%f : tensor<2x36xf32>) -> tensor<2x36xf32>
  %m = linalg.generic {indexing_maps = [#id, #token], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<2x5x36xf32>) outs(%i : tensor<2x36xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x36xf32>
  %p = linalg.generic {indexing_maps = [#id, #token, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %m : tensor<2x5x36xf32>, tensor<2x36xf32>) outs(%e : tensor<2x5x36xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x5x36xf32>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<2x36xf32>) -> tensor<2x36xf32>
  %s = linalg.generic {indexing_maps = [#id, #token], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%p : tensor<2x5x36xf32>) outs(%z : tensor<2x36xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x36xf32>
  %q = linalg.generic {indexing_maps = [#id, #token, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %s : tensor<2x5x36xf32>, tensor<2x36xf32>) outs(%e : tensor<2x5x36xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x5x36xf32>
  bsr.yield %p, %q : tensor<2x5x36xf32>, tensor<2x5x36xf32>
}
// CHECK-LABEL: func @step
// CHECK:         bsr.launch @softmax {{.*}} in_place = [0]
func.func @step(%x: tensor<2x5x36xf32>) -> tensor<2x5x36xf32> {
  %e = tensor.empty() : tensor<2x5x36xf32>
  %y:2 = bsr.launch @softmax ins(%x : tensor<2x5x36xf32>) outs(%e, %e : tensor<2x5x36xf32>, tensor<2x5x36xf32>)
      -> tensor<2x5x36xf32>, tensor<2x5x36xf32>
  return %y#1 : tensor<2x5x36xf32>
}

// -----

#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// The second loop reads what the first one would have overwritten.
// CHECK-LABEL: func @read_again
// CHECK:         bsr.launch @again
// CHECK-NOT:     in_place
bsr.cluster private @again(%x: tensor<4x32xf32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<4x32xf32>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x32xf32>) outs(%f : tensor<4x32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<4x32xf32>
  %e = tensor.empty() : tensor<4xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%t : tensor<4x32xf32>) outs(%i : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<4x32xf32>, tensor<4xf32>) outs(%f : tensor<4x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x32xf32>
  bsr.yield %t, %y : tensor<4x32xf32>, tensor<4x32xf32>
}
func.func @read_again(%x: tensor<4x32xf32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %f = tensor.empty() : tensor<4x32xf32>
  %y:2 = bsr.launch @again ins(%x : tensor<4x32xf32>) outs(%f, %f : tensor<4x32xf32>, tensor<4x32xf32>)
      -> tensor<4x32xf32>, tensor<4x32xf32>
  return %y#0, %y#1 : tensor<4x32xf32>, tensor<4x32xf32>
}

// -----

#batch = affine_map<(b, i, j) -> (b)>
#id = affine_map<(b, i, j) -> (b, i, j)>
#transposed = affine_map<(b, i, j) -> (b, j, i)>

// Nor may a work item overwrite another row that it has yet to read.
// CHECK-LABEL: func @other_row
// CHECK:         bsr.launch @other
// CHECK-NOT:     in_place
bsr.cluster private @other(%x: tensor<4x32x32xf32>) -> (tensor<4xf32>, tensor<4x32x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#id, #batch], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%x : tensor<4x32x32xf32>) outs(%i : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %f = tensor.empty() : tensor<4x32x32xf32>
  %y = linalg.generic {indexing_maps = [#transposed, #batch, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<4x32x32xf32>, tensor<4xf32>) outs(%f : tensor<4x32x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x32x32xf32>
  bsr.yield %s, %y : tensor<4xf32>, tensor<4x32x32xf32>
}
func.func @other_row(%x: tensor<4x32x32xf32>) -> (tensor<4xf32>, tensor<4x32x32xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %f = tensor.empty() : tensor<4x32x32xf32>
  %y:2 = bsr.launch @other ins(%x : tensor<4x32x32xf32>) outs(%e, %f : tensor<4xf32>, tensor<4x32x32xf32>)
      -> tensor<4xf32>, tensor<4x32x32xf32>
  return %y#0, %y#1 : tensor<4xf32>, tensor<4x32x32xf32>
}

// -----

#id = affine_map<(b, f, t) -> (b, f, t)>
#feature = affine_map<(b, f, t) -> (f)>

// A total over tokens (a bias gradient): each work item leaves its part, the sum of its
// lanes for each row, in scratch memory: two work items of 16 tokens and one of 4 for
// each sequence. Then these are summed in order.
// CHECK-LABEL: func private @bias_gradient
// CHECK-SAME:    %[[X:[^:]*]]: memref<2x24x36xf32>, %[[Y:[^:]*]]: memref<2x24x36xf32>, %[[G:[^:]*]]: memref<24xf32>, %[[PARTS:[^:]*]]: memref<2x1x3x24xf32>)
// CHECK:         scf.forall (%[[B:.*]], %[[I:.*]]) in (2, 2) {
// CHECK:           scf.for %[[ROW:.*]] = %c0 to %c24
// CHECK:             %[[E:.*]] = math.tanh
// CHECK:             %[[SUM:.*]] = vector.reduction <add>
// CHECK:             vector.store %[[E]], %[[Y]]
// CHECK:             memref.store %[[SUM]], %[[PARTS]][%[[B]], %c0, %[[I]], %[[ROW]]]
// CHECK:         scf.forall (%{{.*}}) in (2) {
// CHECK:           scf.for
// CHECK:             vector.reduction <add>, %{{.*}} : vector<4xf32> into f32
// CHECK:         %[[TOTAL:.*]] = scf.for %[[B:.*]] = %c0 to %c2 {{.*}} -> (vector<16xf32>)
// CHECK:           scf.for %[[I:.*]] = %c0 to %c3 {{.*}} -> (vector<16xf32>)
// CHECK:             vector.load %[[PARTS]][%[[B]], %c0, %[[I]], %c0]
// CHECK:         vector.store %[[TOTAL]], %[[G]][%c0]
// CHECK:         scf.for %{{.*}} = %c0 to %c2 {{.*}} -> (vector<8xf32>)
// CHECK:         return
bsr.cluster private @bias_gradient(%x: tensor<2x24x36xf32>) -> (tensor<2x24x36xf32>, tensor<24xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x24x36xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<2x24x36xf32>) outs(%e : tensor<2x24x36xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<2x24x36xf32>
  %f = tensor.empty() : tensor<24xf32>
  %i = linalg.fill ins(%zero : f32) outs(%f : tensor<24xf32>) -> tensor<24xf32>
  %g = linalg.generic {indexing_maps = [#id, #feature], iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%y : tensor<2x24x36xf32>) outs(%i : tensor<24xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<24xf32>
  bsr.yield %y, %g : tensor<2x24x36xf32>, tensor<24xf32>
}
// Memory that nothing reads after the launch is no one else's.
// CHECK-LABEL: func @step
// CHECK:         %[[Y:.*]] = bufferization.alloc_tensor() : tensor<2x24x36xf32>
// CHECK:         %[[S:.*]] = bufferization.alloc_tensor() : tensor<2x1x3x24xf32>
// CHECK:         %[[R:.*]]:3 = bsr.launch @bias_gradient ins({{.*}}) outs(%[[Y]], %{{.*}}, %[[S]] :
// CHECK:         return %[[R]]#1
func.func @step(%x: tensor<2x24x36xf32>) -> tensor<24xf32> {
  %e = tensor.empty() : tensor<2x24x36xf32>
  %f = tensor.empty() : tensor<24xf32>
  %y:2 = bsr.launch @bias_gradient ins(%x : tensor<2x24x36xf32>) outs(%e, %f : tensor<2x24x36xf32>, tensor<24xf32>)
      -> tensor<2x24x36xf32>, tensor<24xf32>
  return %y#1 : tensor<24xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#a = affine_map<(h, i, j, k) -> (h, i, k)>
#b = affine_map<(h, i, j, k) -> (h, k, j)>
#c = affine_map<(h, i, j, k) -> (h, i, j)>

// A concatenation is written piece by piece: a product and an element-wise operation
// where they belong, through a view of the whole, and a copy of what is in memory.
// CHECK-LABEL: func private @concatenation
// CHECK-SAME:    %[[X:[^:]*]]: memref<2x3x4xf32>, %[[Y:[^:]*]]: memref<2x4x8xf32>, %[[Z:[^:]*]]: memref<6x8xf32>, %[[ALL:[^:]*]]: memref<6x24xf32>
// CHECK-DAG:     %[[FIRST:.*]] = memref.reinterpret_cast %[[ALL]] to offset: [0], sizes: [2, 3, 8], strides: [72, 24, 1]
// CHECK-DAG:     %[[SECOND:.*]] = memref.reinterpret_cast %[[ALL]] to offset: [8], sizes: [6, 8], strides: [24, 1]
// CHECK-DAG:     %[[THIRD:.*]] = memref.reinterpret_cast %[[ALL]] to offset: [16], sizes: [6, 8], strides: [24, 1]
// CHECK:         scf.forall
// CHECK:           vector.store %{{.*}}, %[[FIRST]]
// CHECK:         scf.forall
// CHECK:           %[[V:.*]] = vector.load %[[Z]]
// CHECK:           %[[N:.*]] = arith.negf %[[V]]
// CHECK:           vector.store %[[N]], %[[SECOND]]
// CHECK:         scf.forall
// CHECK:           %[[V:.*]] = vector.load %[[Z]]
// CHECK:           vector.store %[[V]], %[[THIRD]]
// CHECK-NOT:     store
bsr.cluster private @concatenation(%x: tensor<2x3x4xf32>, %y: tensor<2x4x8xf32>, %z: tensor<6x8xf32>) -> tensor<6x24xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x3x8xf32>
  %f = tensor.empty() : tensor<6x8xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %product = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<2x3x4xf32>, tensor<2x4x8xf32>) outs(%i : tensor<2x3x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x3x8xf32>
  %negated = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z : tensor<6x8xf32>) outs(%f : tensor<6x8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<6x8xf32>
  %merged = tensor.collapse_shape %product [[0, 1], [2]] : tensor<2x3x8xf32> into tensor<6x8xf32>
  %all = tensor.concat dim(1) %merged, %negated, %z : (tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x24xf32>
  bsr.yield %all : tensor<6x24xf32>
}
func.func @step(%x: tensor<2x3x4xf32>, %y: tensor<2x4x8xf32>, %z: tensor<6x8xf32>) -> tensor<6x24xf32> {
  %e = tensor.empty() : tensor<6x24xf32>
  %r = bsr.launch @concatenation ins(%x, %y, %z : tensor<2x3x4xf32>, tensor<2x4x8xf32>, tensor<6x8xf32>)
      outs(%e : tensor<6x24xf32>) -> tensor<6x24xf32>
  return %r : tensor<6x24xf32>
}

// -----

// Kernels that are on buffers already are left alone.
// CHECK-LABEL: func private @written_by_hand(memref<8xf32>, memref<8xf32>)
// CHECK:         bsr.launch @written_by_hand ins({{.*}}) outs({{.*}}) in_place = [0]
func.func private @written_by_hand(memref<8xf32>, memref<8xf32>)
func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %y = bsr.launch @written_by_hand ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) in_place = [0] -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

#rows = affine_map<(m, n, k) -> (m, k)>
#columns = affine_map<(m, n, k) -> (n, k)>
#vectors = affine_map<(m, n, k) -> (k, n)>
#result = affine_map<(m, n, k) -> (m, n)>

// A dense product packs what all rows of a work item load again and again: vectors that
// lie apart in memory, ...
// CHECK-LABEL: func private @packed
// CHECK-SAME:    %[[A:[^:]*]]: memref<960x32xf32>, %[[B:[^:]*]]: memref<32x64xf32>, %[[C:[^:]*]]: memref<960x64xf32>)
// CHECK:         scf.forall
// CHECK:           %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<1x32x[[PANEL:[0-9]+]]xf32>
// CHECK:             vector.load %[[B]]{{.*}} vector<[[PANEL]]xf32>
// CHECK-NEXT:        vector.store %{{.*}}, %[[STRIP]]
// CHECK:           scf.for
// CHECK-NOT:         vector.load %[[B]]
// CHECK:             vector.load %[[STRIP]]{{.*}} vector<[[PANEL]]xf32>
// CHECK:             vector.store %{{.*}}, %[[C]]
bsr.cluster private @packed(%a: tensor<960x32xf32>, %b: tensor<32x64xf32>) -> tensor<960x64xf32> {
  %zero = arith.constant dense<0.0> : tensor<960x64xf32>
  %c = linalg.generic {indexing_maps = [#rows, #vectors, #result], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<960x32xf32>, tensor<32x64xf32>) outs(%zero : tensor<960x64xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<960x64xf32>
  bsr.yield %c : tensor<960x64xf32>
}

// ... or columns of which the summands lie side by side, transposed in squares.
// CHECK-LABEL: func private @transposed
// CHECK-SAME:    %[[A:[^:]*]]: memref<48x32xf32>, %[[B:[^:]*]]: memref<64x32xf32>, %[[C:[^:]*]]: memref<48x64xf32>)
// CHECK:         scf.forall
// CHECK:           %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<1x32x{{[0-9]+}}xf32>
// CHECK:             vector.load %[[B]]
// CHECK:             vector.shuffle
// CHECK:             vector.store %{{.*}}, %[[STRIP]]
// CHECK-NOT:       vector.reduction
// CHECK:           vector.store %{{.*}}, %[[C]]
bsr.cluster private @transposed(%a: tensor<48x32xf32>, %b: tensor<64x32xf32>) -> tensor<48x64xf32> {
  %zero = arith.constant dense<0.0> : tensor<48x64xf32>
  %c = linalg.generic {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<48x32xf32>, tensor<64x32xf32>) outs(%zero : tensor<48x64xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<48x64xf32>
  bsr.yield %c : tensor<48x64xf32>
}

// A large product packs rows too, if a work item reads them for many columns:
// what a register tile reads lies side by side.
// CHECK-LABEL: func private @packed_rows
// CHECK-SAME:    %[[A:[^:]*]]: memref<7680x528xf32>, %[[B:[^:]*]]: memref<528x160xf32>, %[[C:[^:]*]]: memref<7680x160xf32>)
// CHECK:         scf.forall
// CHECK:           %[[ROWS:.*]] = memref.alloca() {{.*}} : memref<1x{{[0-9]+}}x[[K:[0-9]+]]x{{[0-9]+}}xf32>
// CHECK:           %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<1x[[K]]x[[PANEL:[0-9]+]]xf32>
// CHECK:             vector.load %[[A]]
// CHECK:             vector.store %{{.*}}, %[[ROWS]]
// CHECK:             vector.store %{{.*}}, %[[STRIP]]
// CHECK-NOT:         memref.load %[[A]]
// CHECK:             memref.load %[[ROWS]]
// CHECK:             vector.load %[[STRIP]]{{.*}} vector<[[PANEL]]xf32>
// CHECK:             vector.store %{{.*}}, %[[C]]
bsr.cluster private @packed_rows(%a: tensor<7680x528xf32>, %b: tensor<528x160xf32>) -> tensor<7680x160xf32> {
  %zero = arith.constant dense<0.0> : tensor<7680x160xf32>
  %c = linalg.generic {indexing_maps = [#rows, #vectors, #result], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<7680x528xf32>, tensor<528x160xf32>) outs(%zero : tensor<7680x160xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<7680x160xf32>
  bsr.yield %c : tensor<7680x160xf32>
}

// Few rows are not worth it: sums over lanes, in vectors.
// CHECK-LABEL: func private @few_rows
// CHECK-NOT:     memref.alloca
// CHECK:         scf.forall
// CHECK:           scf.for {{.*}} -> (vector<8xf32>
bsr.cluster private @few_rows(%a: tensor<12x32xf32>, %b: tensor<64x32xf32>) -> tensor<12x64xf32> {
  %zero = arith.constant dense<0.0> : tensor<12x64xf32>
  %c = linalg.generic {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<12x32xf32>, tensor<64x32xf32>) outs(%zero : tensor<12x64xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<12x64xf32>
  bsr.yield %c : tensor<12x64xf32>
}

func.func @dense_products(%l: tensor<960x32xf32>, %a: tensor<48x32xf32>, %b: tensor<32x64xf32>, %t: tensor<64x32xf32>, %f: tensor<12x32xf32>,
                          %r: tensor<7680x528xf32>, %c: tensor<528x160xf32>)
    -> (tensor<960x64xf32>, tensor<48x64xf32>, tensor<12x64xf32>, tensor<7680x160xf32>) {
  %d = tensor.empty() : tensor<960x64xf32>
  %e = tensor.empty() : tensor<48x64xf32>
  %x = bsr.launch @packed ins(%l, %b : tensor<960x32xf32>, tensor<32x64xf32>) outs(%d : tensor<960x64xf32>) -> tensor<960x64xf32>
  %y = bsr.launch @transposed ins(%a, %t : tensor<48x32xf32>, tensor<64x32xf32>) outs(%e : tensor<48x64xf32>) -> tensor<48x64xf32>
  %g = tensor.empty() : tensor<12x64xf32>
  %z = bsr.launch @few_rows ins(%f, %t : tensor<12x32xf32>, tensor<64x32xf32>) outs(%g : tensor<12x64xf32>) -> tensor<12x64xf32>
  %h = tensor.empty() : tensor<7680x160xf32>
  %w = bsr.launch @packed_rows ins(%r, %c : tensor<7680x528xf32>, tensor<528x160xf32>) outs(%h : tensor<7680x160xf32>) -> tensor<7680x160xf32>
  return %x, %y, %z, %w : tensor<960x64xf32>, tensor<48x64xf32>, tensor<12x64xf32>, tensor<7680x160xf32>
}

// -----

!pattern = !bsr.pattern<1024x64, block = 16x16, slots = 9>

// Sums of columns: a work item (block column) walks the column view and adds rows of
// blocks, its columns in lanes, then the background for what no block covers.
// CHECK-LABEL: func private @columns
// CHECK-SAME:    %[[PTR:[^:]*]]: memref<5xi32>, %{{[^:]*}}: memref<9xi32>, %[[SLOT:[^:]*]]: memref<9xi32>
// CHECK-SAME:    %[[V:[^:]*]]: memref<9x16x16xf32>, %[[B:[^:]*]]: memref<f32>, %[[SUMS:[^:]*]]: memref<64xf32>)
// CHECK:         scf.forall (%[[COLUMN:.*]]) in (4) {
// CHECK:           scf.for {{.*}} -> (vector<16xf32>)
// CHECK:             memref.load %[[SLOT]]
// CHECK:             scf.for {{.*}} -> (vector<16xf32>)
// CHECK:               %[[ROW:.*]] = vector.load %[[V]]{{.*}} vector<16xf32>
// CHECK:               arith.addf %{{.*}}, %[[ROW]]
// CHECK:           memref.load %[[B]][]
// CHECK:           %[[TOTAL:.*]] = arith.select
// CHECK:           vector.store %[[TOTAL]], %[[SUMS]]
bsr.cluster private @columns(%p: !pattern, %v: tensor<9x16x16xf32>, %b: tensor<f32>) -> tensor<64xf32> {
  %0 = bsr.reduce_vec %p, %v background %b dim = 1 : !pattern, tensor<9x16x16xf32>, tensor<f32> -> tensor<64xf32>
  bsr.yield %0 : tensor<64xf32>
}

// Sums of rows of squares: the squares are computed where they are added. Several rows at a
// time, lanes summed last.
// CHECK-LABEL: func private @rows
// CHECK-SAME:    %[[PTR:[^:]*]]: memref<65xi32>, {{.*}}, %[[V:[^:]*]]: memref<9x16x16xf32>, %[[SUMS:[^:]*]]: memref<1024xf32>)
// CHECK:         scf.forall (%{{.*}}) in ({{[0-9]+}}) {
// CHECK:           scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>
// CHECK:             %[[X:.*]] = vector.load %[[V]]
// CHECK:             %[[SQUARE:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK:             arith.addf %{{.*}}, %[[SQUARE]]
// CHECK:           vector.reduction <add>
// CHECK:           memref.store %{{.*}}, %[[SUMS]]
bsr.cluster private @rows(%p: !pattern, %v: tensor<9x16x16xf32>) -> tensor<1024xf32> {
  %e = tensor.empty() : tensor<9x16x16xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v : tensor<9x16x16xf32>) outs(%e : tensor<9x16x16xf32>) {
  ^bb0(%x: f32, %o: f32):
    %1 = arith.mulf %x, %x : f32
    linalg.yield %1 : f32
  } -> tensor<9x16x16xf32>
  %0 = bsr.reduce_vec %p, %s dim = 0 : !pattern, tensor<9x16x16xf32> -> tensor<1024xf32>
  bsr.yield %0 : tensor<1024xf32>
}

// Entries of a vector: a work item (block rows) writes a column of each of its blocks.
// CHECK-LABEL: func private @entries
// CHECK-SAME:    %[[X:[^:]*]]: memref<1024xf32>, %[[Y:[^:]*]]: memref<9x16x1xf32>)
// CHECK:         scf.forall (%{{.*}}) in ({{[0-9]+}}) {
// CHECK:           vector.load %[[X]]
// CHECK:           vector.store %{{.*}}, %[[Y]]
bsr.cluster private @entries(%p: !pattern, %x: tensor<1024xf32>) -> tensor<9x16x1xf32> {
  %0 = bsr.sample_vec %p, %x dim = 0 : !pattern, tensor<1024xf32> -> tensor<9x16x1xf32>
  bsr.yield %0 : tensor<9x16x1xf32>
}

func.func @launch_vectors(%p: !pattern, %v: tensor<9x16x16xf32>, %b: tensor<f32>, %x: tensor<1024xf32>,
                          %y0: tensor<64xf32>, %y1: tensor<1024xf32>, %y2: tensor<9x16x1xf32>) {
  %0 = bsr.launch @columns ins(%p, %v, %b : !pattern, tensor<9x16x16xf32>, tensor<f32>) outs(%y0 : tensor<64xf32>) -> tensor<64xf32>
  %1 = bsr.launch @rows ins(%p, %v : !pattern, tensor<9x16x16xf32>) outs(%y1 : tensor<1024xf32>) -> tensor<1024xf32>
  %2 = bsr.launch @entries ins(%p, %x : !pattern, tensor<1024xf32>) outs(%y2 : tensor<9x16x1xf32>) -> tensor<9x16x1xf32>
  return
}

// -----

// A slice whose offset is an argument is read from there.
// CHECK-LABEL: func private @row
// CHECK-SAME:    %[[X:[^:]*]]: memref<8x4xf32>, %[[I:[^:]*]]: index, %[[Y:[^:]*]]: memref<4xf32>)
// CHECK:         vector.load %[[X]][%[[I]], %{{.*}}] : memref<8x4xf32>, vector<4xf32>
// CHECK:       func @launch_row
// CHECK-SAME:    %[[X:[^:]*]]: tensor<8x4xf32>, %[[I:[^:]*]]: index
// CHECK:         bsr.launch @row ins(%[[X]], %[[I]] : tensor<8x4xf32>, index)
#map = affine_map<(d0) -> (d0)>
bsr.cluster private @row(%x: tensor<8x4xf32>, %i: index) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %0 = tensor.extract_slice %x[%i, 0] [1, 4] [1, 1] : tensor<8x4xf32> to tensor<1x4xf32>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<1x4xf32> into tensor<4xf32>
  %2 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%1 : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %3 = arith.negf %a : f32
    linalg.yield %3 : f32
  } -> tensor<4xf32>
  bsr.yield %2 : tensor<4xf32>
}
func.func @launch_row(%x: tensor<8x4xf32>, %i: index, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = bsr.launch @row ins(%x, %i : tensor<8x4xf32>, index) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// What is read lane by lane of a reduction of the same work item is a lane of its
// vector, never the reduction's body at one point.
// CHECK-LABEL: func private @likelihood
// CHECK-SAME:    %[[Z:[^:]*]]: memref<64x16xf32>, %[[LABELS:[^:]*]]: memref<16xi64>, %[[Y:[^:]*]]: memref<16xf32>)
// CHECK:         %[[MAX:.*]] = scf.for %{{.*}} = %c0 to %c64
// CHECK:         %[[SUM:.*]] = scf.for %{{.*}} = %c0 to %c64
// CHECK:         %[[LABEL:.*]] = vector.load %[[LABELS]]
// CHECK:         %[[AT:.*]] = arith.index_cast %[[LABEL]]
// CHECK:         %[[ROW3:.*]] = vector.extract %[[AT]][3]
// CHECK:         %[[ELEMENT3:.*]] = memref.load %[[Z]][%[[ROW3]], %c3]
// CHECK:         %[[MAX3:.*]] = vector.extract %[[MAX]][3]
// CHECK:         arith.subf %[[ELEMENT3]], %[[MAX3]]
// CHECK:         %[[SUM3:.*]] = vector.extract %[[SUM]][3]
// CHECK:         math.log %[[SUM3]]
#rows = affine_map<(f, t) -> (f, t)>
#lane = affine_map<(f, t) -> (t)>
#all = affine_map<(t) -> (t)>
bsr.cluster private @likelihood(%z: tensor<64x16xf32>, %label: tensor<16xi64>) -> tensor<16xf32> {
  %least = arith.constant dense<0xFF800000> : tensor<16xf32>
  %zeros = arith.constant dense<0.0> : tensor<16xf32>
  %rows = tensor.empty() : tensor<64x16xf32>
  %row = tensor.empty() : tensor<16xf32>
  %max = linalg.generic {indexing_maps = [#rows, #lane], iterator_types = ["reduction", "parallel"]}
      ins(%z : tensor<64x16xf32>) outs(%least : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %below = linalg.generic {indexing_maps = [#rows, #lane, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%z, %max : tensor<64x16xf32>, tensor<16xf32>) outs(%rows : tensor<64x16xf32>) {
  ^bb0(%a: f32, %m: f32, %o: f32):
    %0 = arith.subf %a, %m : f32
    linalg.yield %0 : f32
  } -> tensor<64x16xf32>
  %sum = linalg.generic {indexing_maps = [#rows, #lane], iterator_types = ["reduction", "parallel"]}
      ins(%below : tensor<64x16xf32>) outs(%zeros : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<16xf32>
  %logs = linalg.generic {indexing_maps = [#rows, #lane, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%below, %sum : tensor<64x16xf32>, tensor<16xf32>) outs(%rows : tensor<64x16xf32>) {
  ^bb0(%a: f32, %s: f32, %o: f32):
    %0 = math.log %s : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64x16xf32>
  %picked = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel"]}
      ins(%label : tensor<16xi64>) outs(%row : tensor<16xf32>) {
  ^bb0(%l: i64, %o: f32):
    %t = linalg.index 0 : index
    %f = arith.index_cast %l : i64 to index
    %0 = tensor.extract %logs[%f, %t] : tensor<64x16xf32>
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  bsr.yield %picked : tensor<16xf32>
}

func.func @launch_likelihood(%z: tensor<64x16xf32>, %label: tensor<16xi64>) -> tensor<16xf32> {
  %e = tensor.empty() : tensor<16xf32>
  %0 = bsr.launch @likelihood ins(%z, %label : tensor<64x16xf32>, tensor<16xi64>)
      outs(%e : tensor<16xf32>) -> tensor<16xf32>
  return %0 : tensor<16xf32>
}
