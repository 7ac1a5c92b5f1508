// RUN: sparse-opt %s --bsr-embed-manifest="target-cpu=znver4" --split-input-file --verify-diagnostics | FileCheck %s

// Every buffer but the arena, in order; the weight is the values of the
// pattern's name. Two kernels, one of them launched twice.
// CHECK:      bsr_step_manifest
// CHECK-SAME: {\22arena_bytes\22:64,\22buffers\22:[
// CHECK-SAME: {\22carried\22:true,\22init\22:\22zeros\22,\22kind\22:\22values\22,\22name\22:\22w.m\22,\22pattern\22:0,\22role\22:\22state\22,\22shape\22:[3,2,2],\22type\22:\22f32\22},
// CHECK-SAME: {\22carried\22:true,\22kind\22:\22values\22,\22name\22:\22w\22,\22pattern\22:0,\22shape\22:[3,2,2],\22type\22:\22bf16\22},
// CHECK-SAME: {\22carried\22:false,\22kind\22:\22row_ptr\22,\22name\22:\22w\22,\22pattern\22:0,\22role\22:\22pattern\22,\22shape\22:[3],\22type\22:\22i32\22},
// CHECK-SAME: {\22carried\22:false,\22kind\22:\22slot_t\22,\22name\22:\22w\22,\22pattern\22:0,\22shape\22:[3],\22type\22:\22i32\22},
// CHECK-SAME: {\22carried\22:false,\22kind\22:\22output\22,\22name\22:\22loss\22,\22role\22:\22loss\22,\22shape\22:[],\22type\22:\22f32\22}],
// CHECK-SAME: \22flops\22:{\22dense\22:12,\22scores\22:7},\22format\22:\22bsr-step\22,\22kernels\22:{\22functions\22:2,\22launches\22:3},\22left_dense\22:1,\22live_bytes\22:48,\22name\22:\22train\22,
// CHECK-SAME: \22patterns\22:[{\22block\22:[2,2],\22buffers\22:{\22col_idx\22:3,\22col_ptr\22:5,\22row_idx\22:6,\22row_ptr\22:2,\22slot\22:4,\22slot_t\22:7},\22density\22:0.375,\22flops\22:40,\22name\22:\22w\22,\22shape\22:[4,8],\22slots\22:3,\22static\22:false,\22weight\22:1}],
// CHECK-SAME: \22products\22:{\22dense\22:0,\22sddmm\22:0,\22spmm\22:2,\22spmm_transposed\22:0},
// CHECK-SAME: \22target_cpu\22:\22znver4\22,\22version\22:1}\00
// CHECK:      llvm.mlir.global external constant @bsr_step_abi_version(1 : i32)
func.func private @decay(memref<3x2x2xf32>) attributes {bsr.kind = "elementwise"}
func.func private @sum(memref<f32>) attributes {bsr.kind = "reduction"}
func.func private @no_kernel()
func.func @train(
    %m: memref<3x2x2xf32> {bsr.carried, bsr.init = "zeros", bsr.name = "w.m", bsr.pattern_number = 0 : i64, bsr.role = "state"},
    %w: memref<3x2x2xbf16> {bsr.carried, bsr.name = "w", bsr.pattern_number = 0 : i64},
    %ptr: memref<3xi32> {bsr.kind = "row_ptr", bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "pattern"},
    %col_idx: memref<3xi32> {bsr.kind = "col_idx", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %slot: memref<3xi32> {bsr.kind = "slot", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %col_ptr: memref<5xi32> {bsr.kind = "col_ptr", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %row_idx: memref<3xi32> {bsr.kind = "row_idx", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %slot_t: memref<3xi32> {bsr.kind = "slot_t", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %loss: memref<f32> {bsr.kind = "output", bsr.name = "loss", bsr.role = "loss"},
    %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"})
    attributes {bsr.arena_bytes = 64 : i64, bsr.left_dense = 1 : i64, bsr.live_bytes = 48 : i64,
                bsr.products = {spmm = 2 : i64},
                bsr.work = {blocks = {w = 40 : i64}, dense = 12 : i64, scores = 7 : i64},
                bsr.patterns = [{density = 0.375, name = "w", type = !bsr.pattern<4x8, block = 2x2, slots = 3>}]} {
  call @decay(%m) : (memref<3x2x2xf32>) -> ()
  call @decay(%m) : (memref<3x2x2xf32>) -> ()
  call @sum(%loss) : (memref<f32>) -> ()
  call @no_kernel() : () -> ()
  return
}

// -----

// A static pattern has no buffers: the manifest holds it.
// CHECK:      \22patterns\22:[{\22block\22:[2,2],\22col_idx\22:[3,0],\22density\22:0.25,\22name\22:\22w\22,\22row_ptr\22:[0,1,2],\22shape\22:[4,8],\22slots\22:2,\22static\22:true,\22weight\22:0}],
func.func @static(
    %w: memref<2x2x2xf32> {bsr.name = "w", bsr.pattern_number = 0 : i64},
    %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"})
    attributes {bsr.arena_bytes = 64 : i64,
                bsr.patterns = [{col_idx = array<i32: 3, 0>, density = 0.25, name = "w",
                                 row_ptr = array<i32: 0, 1, 2>, type = !bsr.pattern<4x8, block = 2x2, slots = 2>}]} {
  return
}

// -----

// A weight and its moments may have one name: roles tell them apart, and the
// parameter is the pattern's weight.
// CHECK:      \22kind\22:\22values\22,\22name\22:\22w.state\22
// CHECK-SAME: \22kind\22:\22values\22,\22name\22:\22w\22
// CHECK-SAME: \22kind\22:\22dense\22,\22name\22:\22w.buffer\22,\22origin\22:{\22name\22:\22all.buffer\22,\22offsets\22:[1,0],\22shape\22:[2,4],\22sizes\22:[1,4]}
// CHECK-SAME: \22weight\22:1}
func.func @roles(
    %m: memref<2x2x2xf32> {bsr.carried, bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "state"},
    %w: memref<2x2x2xf32> {bsr.carried, bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.role = "param"},
    %r: memref<4xf32> {bsr.carried, bsr.name = "w", bsr.role = "buffer", bsr.origin = {name = "all", shape = array<i64: 2, 4>, offsets = array<i64: 1, 0>, sizes = array<i64: 1, 4>}},
    %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"})
    attributes {bsr.arena_bytes = 64 : i64,
                bsr.patterns = [{col_idx = array<i32: 3, 0>, density = 0.25, name = "w",
                                 row_ptr = array<i32: 0, 1, 2>, type = !bsr.pattern<4x8, block = 2x2, slots = 2>}]} {
  return
}

// -----

// expected-error @below {{expected names and roles that tell arguments apart, but got 'w.state' for argument #0 and argument #2}}
func.func @same_names(%x: memref<4xf32> {bsr.name = "w.state"}, %w: memref<4xf32> {bsr.name = "w"},
                      %m: memref<4xf32> {bsr.name = "w", bsr.role = "state"}, %arena: memref<0xi8> {bsr.name = "arena", bsr.kind = "arena"})
    attributes {bsr.arena_bytes = 0 : i64} {
  return
}

// -----

// expected-error @below {{expected argument #0 to be of f16, bf16, f32, f64, i1, i8, i32 or i64, but got 'i16'}}
func.func @element_type(%x: memref<4xi16> {bsr.name = "x"}, %arena: memref<0xi8> {bsr.name = "arena"})
    attributes {bsr.arena_bytes = 0 : i64} {
  return
}

// -----

// expected-error @below {{expected one function with bsr.name arguments, but got none}}
module {
  func.func @no_name(%x: memref<4xf32>) {
    return
  }
}

// -----

func.func @a(%x: memref<4xf32> {bsr.name = "x"}) {
  return
}
// expected-error @below {{expected one function with bsr.name arguments, but got @a and @b}}
func.func @b(%x: memref<4xf32> {bsr.name = "x"}) {
  return
}

// -----

// expected-error @below {{expected a bsr.name for every argument, but got none for argument #1}}
func.func @argument(%x: memref<4xf32> {bsr.name = "x"}, %y: memref<4xf32>) {
  return
}

// -----

// expected-error @below {{expected a bsr.name for every result that carries no argument, but got none for result #1}}
func.func @result(%x: tensor<4xf32> {bsr.name = "x", bsr.result = 0 : i64}) -> (tensor<4xf32>, tensor<4xf32>) {
  return %x, %x : tensor<4xf32>, tensor<4xf32>
}

// -----

// Scores lie in the arena; the flag is no buffer.
// CHECK:      {\22arena_offset\22:128,\22carried\22:false,\22kind\22:\22scores\22,\22name\22:\22w\22,\22pattern\22:0,\22shape\22:[2,4],\22type\22:\22f32\22}],
// CHECK-SAME: \22score_norm\22:\22l1\22
func.func @scores(
    %w: memref<3x2x2xf32> {bsr.carried, bsr.name = "w", bsr.pattern_number = 0 : i64},
    %row_ptr: memref<3xi32> {bsr.kind = "row_ptr", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %col_idx: memref<3xi32> {bsr.kind = "col_idx", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %slot: memref<3xi32> {bsr.kind = "slot", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %col_ptr: memref<5xi32> {bsr.kind = "col_ptr", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %row_idx: memref<3xi32> {bsr.kind = "row_idx", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %slot_t: memref<3xi32> {bsr.kind = "slot_t", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %flag: i1 {bsr.kind = "flag", bsr.name = "scores"},
    %arena: memref<256xi8> {bsr.kind = "arena", bsr.name = "arena"})
    attributes {bsr.arena_bytes = 256 : i64, bsr.score_norm = "l1",
                bsr.scores = [{name = "w", offset = 128 : i64, type = memref<2x4xf32>}],
                bsr.patterns = [{density = 0.375, name = "w", type = !bsr.pattern<4x8, block = 2x2, slots = 3>}]} {
  return
}

// -----

// expected-error @below {{expected scores of a weight in bsr.patterns, but got scores of "w"}}
func.func @scores_alone(%x: memref<4xf32> {bsr.name = "x"}, %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"})
    attributes {bsr.arena_bytes = 64 : i64, bsr.scores = [{name = "w", offset = 0 : i64, type = memref<16xf32>}]} {
  return
}

// -----

// What is unsigned for the caller.
// CHECK: {\22carried\22:true,\22kind\22:\22dense\22,\22name\22:\22key\22,\22shape\22:[2],\22type\22:\22ui32\22}
func.func @unsigned(%key: memref<2xi32> {bsr.carried, bsr.name = "key", bsr.unsigned},
                    %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"})
    attributes {bsr.arena_bytes = 64 : i64} {
  return
}

// -----

// A manifest that is none is the compiler's own mistake: nothing is written.
// expected-error @below {{expected 'col_idx' of 'buffers' of pattern 0 of the manifest of @incomplete to be an integer in [0, 2147483647], but got nothing}}
func.func @incomplete(
    %w: memref<3x2x2xf32> {bsr.carried, bsr.name = "w", bsr.pattern_number = 0 : i64},
    %row_ptr: memref<3xi32> {bsr.kind = "row_ptr", bsr.name = "w", bsr.pattern_number = 0 : i64},
    %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"})
    attributes {bsr.arena_bytes = 64 : i64,
                bsr.patterns = [{density = 0.375, name = "w", type = !bsr.pattern<4x8, block = 2x2, slots = 3>}]} {
  return
}

// -----

// Nor is a key written that no page has.
// expected-error @below {{expected a key of docs/manifest.md in timer 0 of the manifest of @unknown, but got 'cycles'}}
func.func @unknown(%x: memref<4xf32> {bsr.name = "x"}, %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"})
    attributes {bsr.arena_bytes = 64 : i64, bsr.timers = [{cycles = 1 : i64, kernel = "k", kind = "other"}]} {
  return
}
