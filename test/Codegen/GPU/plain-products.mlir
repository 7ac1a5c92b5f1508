// Products that no kernel of products takes say what one lacks of them: each sum is a thread's. Tiles that are given, and that no kernel of
// tensor cores can have, are named.
//
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-panel --bsr-emit --verify-diagnostics -o %t

module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @doubles(%p: !bsr.pattern<32x32, block = 16x16, slots = 3>, %w: tensor<3x16x16xf64>, %x: tensor<32x48xf64>)
      -> tensor<32x48xf64> {
    // expected-remark @below {{expected elements of bf16, f16 or f32, but got f64: each sum of 'bsr.spmm' is one thread's}}
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !bsr.pattern<32x32, block = 16x16, slots = 3>, tensor<3x16x16xf64>, tensor<32x48xf64> -> tensor<32x48xf64>
    bsr.yield %y : tensor<32x48xf64>
  }
  func.func @step(%p: !bsr.pattern<32x32, block = 16x16, slots = 3>, %w: tensor<3x16x16xf64>, %x: tensor<32x48xf64>) -> tensor<32x48xf64> {
    %e = tensor.empty() : tensor<32x48xf64>
    %y = bsr.launch @doubles ins(%p, %w, %x : !bsr.pattern<32x32, block = 16x16, slots = 3>, tensor<3x16x16xf64>, tensor<32x48xf64>)
        outs(%e : tensor<32x48xf64>) -> tensor<32x48xf64>
    return %y : tensor<32x48xf64>
  }
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @dense(%a: tensor<32x48xf64>, %b: tensor<48x16xf64>) -> tensor<32x16xf64> {
    %zero = arith.constant dense<0.0> : tensor<32x16xf64>
    // expected-remark @below {{expected elements of bf16, f16 or f32, but got f64: each sum of 'linalg.generic' is one thread's}}
    %y = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
                         iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<32x48xf64>, tensor<48x16xf64>) outs(%zero : tensor<32x16xf64>) {
    ^bb0(%c: f64, %d: f64, %o: f64):
      %0 = arith.mulf %c, %d : f64
      %1 = arith.addf %o, %0 : f64
      linalg.yield %1 : f64
    } -> tensor<32x16xf64>
    bsr.yield %y : tensor<32x16xf64>
  }
  func.func @step(%a: tensor<32x48xf64>, %b: tensor<48x16xf64>) -> tensor<32x16xf64> {
    %e = tensor.empty() : tensor<32x16xf64>
    %y = bsr.launch @dense ins(%a, %b : tensor<32x48xf64>, tensor<48x16xf64>) outs(%e : tensor<32x16xf64>) -> tensor<32x16xf64>
    return %y : tensor<32x16xf64>
  }
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @blocks(%p: !bsr.pattern<36x40, block = 12x8, slots = 3>, %x: tensor<36x48xbf16>, %y: tensor<40x48xbf16>)
      -> tensor<3x12x8xf32> {
    // expected-remark @below {{expected blocks of 1, 2, 4, 8, 16, 32 or 64 rows and columns, but got 12x8: each sum of 'bsr.sddmm' is one thread's}}
    %d = bsr.sddmm %p, %x, %y feature_dim = 0
        : !bsr.pattern<36x40, block = 12x8, slots = 3>, tensor<36x48xbf16>, tensor<40x48xbf16> -> tensor<3x12x8xf32>
    bsr.yield %d : tensor<3x12x8xf32>
  }
  func.func @step(%p: !bsr.pattern<36x40, block = 12x8, slots = 3>, %x: tensor<36x48xbf16>, %y: tensor<40x48xbf16>) -> tensor<3x12x8xf32> {
    %e = tensor.empty() : tensor<3x12x8xf32>
    %d = bsr.launch @blocks ins(%p, %x, %y : !bsr.pattern<36x40, block = 12x8, slots = 3>, tensor<36x48xbf16>, tensor<40x48xbf16>)
        outs(%e : tensor<3x12x8xf32>) -> tensor<3x12x8xf32>
    return %d : tensor<3x12x8xf32>
  }
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @tokens(%p: !bsr.pattern<32x32, block = 16x16, slots = 3>, %w: tensor<3x16x16xbf16>, %x: tensor<32x44xbf16>)
      -> tensor<32x44xbf16> {
    // expected-remark @below {{expected tokens last, in rows of a multiple of 16 bytes, but got 'tensor<32x44xbf16>' with features in dimension 0: each sum of 'bsr.spmm' is one thread's}}
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !bsr.pattern<32x32, block = 16x16, slots = 3>, tensor<3x16x16xbf16>, tensor<32x44xbf16> -> tensor<32x44xbf16>
    bsr.yield %y : tensor<32x44xbf16>
  }
  func.func @step(%p: !bsr.pattern<32x32, block = 16x16, slots = 3>, %w: tensor<3x16x16xbf16>, %x: tensor<32x44xbf16>) -> tensor<32x44xbf16> {
    %e = tensor.empty() : tensor<32x44xbf16>
    %y = bsr.launch @tokens ins(%p, %w, %x : !bsr.pattern<32x32, block = 16x16, slots = 3>, tensor<3x16x16xbf16>, tensor<32x44xbf16>)
        outs(%e : tensor<32x44xbf16>) -> tensor<32x44xbf16>
    return %y : tensor<32x44xbf16>
  }
}

// -----

module attributes {bsr.target = #bsr.gpu<chip = "sm_86", tile_outputs = 512, tile_tokens = 256>} {
  bsr.cluster private @tile(%p: !bsr.pattern<512x512, block = 16x16, slots = 99>, %w: tensor<99x16x16xbf16>, %x: tensor<512x256xbf16>)
      -> tensor<512x256xbf16> {
    // expected-remark @below {{expected a tile whose sums fit registers, and its stages the 99 KiB of shared memory of sm_86, but got tile_outputs = 512 and tile_tokens = 256: no tensor cores multiply 'bsr.spmm'}}
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !bsr.pattern<512x512, block = 16x16, slots = 99>, tensor<99x16x16xbf16>, tensor<512x256xbf16> -> tensor<512x256xbf16>
    bsr.yield %y : tensor<512x256xbf16>
  }
  func.func @step(%p: !bsr.pattern<512x512, block = 16x16, slots = 99>, %w: tensor<99x16x16xbf16>, %x: tensor<512x256xbf16>) -> tensor<512x256xbf16> {
    %e = tensor.empty() : tensor<512x256xbf16>
    %y = bsr.launch @tile ins(%p, %w, %x : !bsr.pattern<512x512, block = 16x16, slots = 99>, tensor<99x16x16xbf16>, tensor<512x256xbf16>)
        outs(%e : tensor<512x256xbf16>) -> tensor<512x256xbf16>
    return %y : tensor<512x256xbf16>
  }
}
