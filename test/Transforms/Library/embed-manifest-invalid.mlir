// RUN: sparse-opt %s --split-input-file --bsr-embed-manifest --verify-diagnostics

// expected-error @+1 {{expected a step with planned memory, but got no bsr.arena_bytes: run bsr-plan-memory first}}
func.func @step(%w: memref<4xf32> {bsr.name = "w"}) {
  return
}

// -----

module attributes {bsr.target = #bsr.gpu<chip = "sm_90">} {
  // expected-error @+1 {{expected a step with kernels in PTX for #bsr.gpu<chip = "sm_90">, but got none: bsr-to-gpu makes them}}
  func.func @step(%w: memref<4xf32> {bsr.name = "w"}) attributes {bsr.arena_bytes = 0 : i64} {
    return
  }
}
