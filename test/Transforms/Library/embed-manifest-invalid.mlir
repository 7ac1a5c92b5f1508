// RUN: sparse-opt %s --bsr-embed-manifest --verify-diagnostics

// expected-error @+1 {{expected a step with planned memory, but got no bsr.arena_bytes: run bsr-plan-memory first}}
func.func @step(%w: memref<4xf32> {bsr.name = "w"}) {
  return
}
