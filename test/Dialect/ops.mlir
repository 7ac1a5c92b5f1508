// RUN: sparse-opt %s --verify-roundtrip

func.func private @pattern(!bsr.pattern<768x3072, block = 16x16, slots = 922>)

func.func @constant_pattern() {
  %p = bsr.constant_pattern row_ptr = [0, 1, 3] col_idx = [1, 0, 1]
      : !bsr.pattern<32x32, block = 16x16, slots = 3>
  return
}

func.func @indices(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>) {
  %ptr, %idx, %slot = bsr.indices %p
      : !bsr.pattern<32x64, block = 16x16, slots = 3>
      -> tensor<3xi32>, tensor<3xi32>, tensor<3xi32>
  %ptr_t, %idx_t, %slot_t = bsr.indices %p transpose
      : !bsr.pattern<32x64, block = 16x16, slots = 3>
      -> tensor<5xi32>, tensor<3xi32>, tensor<3xi32>
  return
}

func.func @live(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>) {
  %live = bsr.live %p
      : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<3xi1>
  return
}

func.func @barrier(%kept: f32) -> f32 {
  %again = bsr.barrier %kept : f32
  return %again : f32
}

func.func @gradient(%g: tensor<4xf32>, %w: tensor<4xf16>) -> tensor<4xf32> {
  %marked = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                            iterator_types = ["parallel"]}
      ins(%g, %w : tensor<4xf32>, tensor<4xf16>) outs(%g : tensor<4xf32>) {
  ^bb0(%a: f32, %at: f16, %out: f32):
    %r = bsr.gradient %a at %at : f32, f16
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %marked : tensor<4xf32>
}

#id = affine_map<(i, j) -> (i, j)>

func.func @gradient_at_matrix(%product: tensor<32x64xf32>, %w: tensor<32x64xf32>, %empty: tensor<32x64xf32>) -> tensor<32x64xf32> {
  %dw = linalg.generic {indexing_maps = [#id, #id, #id],
                        iterator_types = ["parallel", "parallel"]}
      ins(%product, %w : tensor<32x64xf32>, tensor<32x64xf32>)
      outs(%empty : tensor<32x64xf32>) {
    ^bb0(%g: f32, %at: f32, %out: f32):
      %r = bsr.gradient %g at %at : f32, f32
      linalg.yield %r : f32
  } -> tensor<32x64xf32>
  return %dw : tensor<32x64xf32>
}

func.func @num_absent(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>) {
  %n = bsr.num_absent %p
      : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<f32>
  return
}

func.func @to_dense(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>,
                    %v: tensor<3x16x16xf32>, %c: tensor<f32>) {
  %d = bsr.to_dense %p, %v
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>
      -> tensor<32x64xf32>
  %t = bsr.to_dense %p, %v background %c transpose
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
        tensor<f32> -> tensor<64x32xf32>
  return
}

func.func @sample(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>,
                  %d: tensor<32x64xf32>) {
  %v = bsr.sample %p, %d
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32x64xf32>
      -> tensor<3x16x16xf32>
  return
}

func.func @sample_vec(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>,
                      %rows: tensor<32xf32>, %cols: tensor<64xbf16>) {
  %v = bsr.sample_vec %p, %rows dim = 0
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32xf32>
      -> tensor<3x16x1xf32>
  %u = bsr.sample_vec %p, %cols dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<64xbf16>
      -> tensor<3x1x16xbf16>
  return
}

func.func @reduce_vec(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>,
                      %v: tensor<3x16x16xf32>, %c: tensor<f32>,
                      %scores: tensor<2x4x3x16x16xf32>) {
  %rows = bsr.reduce_vec %p, %v background %c dim = 0
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
        tensor<f32> -> tensor<32xf32>
  %cols = bsr.reduce_vec %p, %v dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>
      -> tensor<64xf32>
  %tops = bsr.reduce_vec %p, %scores max dim = 0
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x4x3x16x16xf32>
      -> tensor<2x4x32xf32>
  return
}

func.func @spmm(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>,
                %v: tensor<3x16x16xf32>, %x: tensor<8x128x32xf32>,
                %dy: tensor<8x64x128xf32>, %b: tensor<64xf32>,
                %probabilities: tensor<2x4x3x16x16xf32>, %keys: tensor<2x4x64x8xf32>) {
  %y = bsr.spmm %p, %v, %x feature_dim = 2
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
        tensor<8x128x32xf32> -> tensor<8x128x64xf32>
  %dx = bsr.spmm %p, %v, %dy transpose feature_dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
        tensor<8x64x128xf32> -> tensor<8x32x128xf32>
  %z = bsr.spmm %p, %v, %x bias %b feature_dim = 2
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
        tensor<8x128x32xf32>, tensor<64xf32> -> tensor<8x128x64xf32>
  %o = bsr.spmm %p, %probabilities, %keys transpose feature_dim = 2
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x4x3x16x16xf32>,
        tensor<2x4x64x8xf32> -> tensor<2x4x32x8xf32>
  return
}

func.func @sddmm(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>,
                 %a: tensor<8x128x32xf32>, %b: tensor<8x128x64xf32>,
                 %queries: tensor<2x4x32x8xf32>, %keys: tensor<2x4x64x8xf32>) {
  %dw = bsr.sddmm %p, %a, %b feature_dim = 2
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<8x128x32xf32>,
        tensor<8x128x64xf32> -> tensor<3x16x16xf32>
  %scores = bsr.sddmm %p, %queries, %keys feature_dim = 2
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x4x32x8xf32>,
        tensor<2x4x64x8xf32> -> tensor<2x4x3x16x16xf32>
  return
}

func.func @block_scores(%a: tensor<8x128x32xf32>, %b: tensor<8x128x64xf32>,
                        %c: tensor<8x128x64xbf16>) {
  %s = bsr.block_scores l1 %a, %b feature_dim = 2
      : tensor<8x128x32xf32>, tensor<8x128x64xf32> -> tensor<2x4xf32>
  %t = bsr.block_scores linf %a, %c feature_dim = 2
      : tensor<8x128x32xf32>, tensor<8x128x64xbf16> -> tensor<32x1xf32>
  return
}

// The attributes of a step's arguments and results.
func.func @step(
    %w: tensor<32x64xf32> {bsr.name = "params.w", bsr.result = 0, bsr.role = "param",
        bsr.init = "normal(0.02)",
        bsr.mark = #bsr.mark<block = 16x16, density = 1.000000e-01, weight = "params.w">},
    %v: tensor<32x32xf32> {bsr.name = "params.v", bsr.role = "param",
        bsr.mark = #bsr.mark<block = 16x16, density = 5.000000e-01, row_ptr = [0, 1, 2], col_idx = [1, 0],
                             weight = "params.v">},
    %u: tensor<3x32x2x8xf32> {bsr.name = "params.layers", bsr.role = "param",
        bsr.mark = #bsr.mark<block = 16x16, density = 1.000000e-01, dims = [stack, row, col, col],
                             weight = "params.layers">},
    %m: tensor<32x64xi1> {bsr.name = "masks.w", bsr.mask = #bsr.mask<weight = "params.w">},
    %mt: tensor<64x32xi1> {bsr.name = "masks.wt",
        bsr.mask = #bsr.mask<weight = "params.w", transpose = true>},
    %x: tensor<8xf32> {bsr.name = "batch.x", bsr.role = "batch"})
    -> (tensor<32x64xf32> {bsr.name = "params.w"}) {
  return %w : tensor<32x64xf32>
}

module attributes {bsr.target = #bsr.cpu} {
}
module attributes {bsr.target = #bsr.scalar} {
}
module attributes {bsr.target = #bsr.gpu} {
}
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
}
module attributes {bsr.target = #bsr.gpu<chip = "sm_90a", tile_outputs = 256, tile_tokens = 128>} {
}
module attributes {bsr.target = #bsr.gpu<chip = "sm_90a", share_outputs = 2>} {
}
module attributes {bsr.target = #bsr.gpu<tf32 = true>} {
}
module attributes {bsr.target = #bsr.gpu<chip = "sm_90a", share_outputs = 2, share_tokens = 2>} {
}
module attributes {bsr.target = #bsr.gpu<chip = "sm_80", tf32 = true>} {
}
module attributes {bsr.target =
    #bsr.cpu<vector_bits = 512, num_registers = 32, l1_bytes = 49152, l2_bytes = 2097152, bf16_dots = native>} {
}
module attributes {bsr.target =
    #bsr.cpu<vector_bits = 512, num_registers = 32, l1_bytes = 49152, l2_bytes = 2097152, bf16_tiles = amx>} {
}

#item = affine_map<(f, t) -> (f, t)>
#token = affine_map<(f, t) -> (t)>
#feature = affine_map<(f, t) -> (f)>
bsr.cluster private @planned_nests(%x: tensor<8x128xf32>, %i: tensor<128xf32>, %e: tensor<8x128xf32>)
    -> (tensor<8x128xf32>, tensor<128xf32>) attributes {plan = #bsr.plan<nests>} {
  %y = linalg.generic {indexing_maps = [#item, #item], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x128xf32>) outs(%e : tensor<8x128xf32>) attrs = {bsr.root = #bsr.root<nest = 0>} {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<8x128xf32>
  %s = linalg.generic {indexing_maps = [#item, #token], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<8x128xf32>) outs(%i : tensor<128xf32>) attrs = {bsr.root = #bsr.root<nest = 1>} {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<128xf32>
  bsr.yield %y, %s : tensor<8x128xf32>, tensor<128xf32>
}
bsr.cluster private @planned_chain(%x: tensor<8x128xf32>, %i: tensor<128xf32>, %j: tensor<8xf32>, %e: tensor<8x128xf32>)
    -> (tensor<8x128xf32>, tensor<8xf32>) attributes {plan = #bsr.plan<chain, shared = [128]>} {
  %y = linalg.generic {indexing_maps = [#item, #item], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x128xf32>) outs(%e : tensor<8x128xf32>)
      attrs = {bsr.root = #bsr.root<nest = 0 loops = [-1, 0] place = 0>} {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<8x128xf32>
  %s = linalg.generic {indexing_maps = [#item, #token], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<8x128xf32>) outs(%i : tensor<128xf32>) attrs = {bsr.root = #bsr.root<nest = 0 loops = [-1, 0]>} {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<128xf32>
  %z = linalg.generic {indexing_maps = [#item, #token, #item], iterator_types = ["parallel", "parallel"]}
      ins(%y, %s : tensor<8x128xf32>, tensor<128xf32>) outs(%e : tensor<8x128xf32>)
      attrs = {bsr.root = #bsr.root<nest = 1 loops = [-1, 0]>} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x128xf32>
  %t = linalg.generic {indexing_maps = [#item, #feature], iterator_types = ["parallel", "reduction"]}
      ins(%z : tensor<8x128xf32>) outs(%j : tensor<8xf32>)
      attrs = {bsr.root = #bsr.root<nest = 1 loops = [-1, 0] total = true>} {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  bsr.yield %z, %t : tensor<8x128xf32>, tensor<8xf32>
}

bsr.cluster private @sum(%x: tensor<4xf32>, %init: tensor<f32>) -> tensor<f32> {
  %sum = linalg.reduce ins(%x : tensor<4xf32>) outs(%init : tensor<f32>) dimensions = [0]
    (%a: f32, %b: f32) {
      %c = arith.addf %a, %b : f32
      linalg.yield %c : f32
    }
  bsr.yield %sum : tensor<f32>
}

func.func private @decay(memref<8x4xf32>, memref<f32>, memref<8x4xf32>)
func.func private @fill(memref<4xf32>, memref<2xi32>)

func.func @launch(%w: tensor<8x4xf32>, %lr: tensor<f32>,
                  %init: tensor<8x4xf32>, %a: tensor<4xf32>, %b: tensor<2xi32>) {
  %new = bsr.launch @decay ins(%w, %lr : tensor<8x4xf32>, tensor<f32>)
      outs(%init : tensor<8x4xf32>) in_place = [0] -> tensor<8x4xf32>
  %0:2 = bsr.launch @fill outs(%a, %b : tensor<4xf32>, tensor<2xi32>)
      -> tensor<4xf32>, tensor<2xi32>
  return
}

func.func @scatter_add(%ids: tensor<8x128xi32>, %u: tensor<8x128x32xf32>) {
  %g = bsr.scatter_add %ids, %u feature_dim = 2
      : tensor<8x128xi32>, tensor<8x128x32xf32> -> tensor<100x32xf32>
  return
}

func.func @gather_rows(%p: !bsr.pattern<96x32, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %ids: tensor<8x128xi32>) {
  %x = bsr.gather_rows %p, %v, %ids feature_dim = 2
      : !bsr.pattern<96x32, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
        tensor<8x128xi32> -> tensor<8x128x32xf32>
  return
}

func.func @gather_columns(%p: !bsr.pattern<96x32, block = 16x16, slots = 3>, %v: tensor<3x16x16xbf16>, %ids: tensor<8xi64>) {
  %x = bsr.gather_rows %p, %v, %ids transpose feature_dim = 0
      : !bsr.pattern<96x32, block = 16x16, slots = 3>, tensor<3x16x16xbf16>, tensor<8xi64> -> tensor<96x8xbf16>
  return
}

func.func @scatter_rows(%p: !bsr.pattern<96x32, block = 16x16, slots = 3>, %ids: tensor<8x128xi32>, %u: tensor<8x128x32xf32>) {
  %dw = bsr.scatter_rows %p, %ids, %u feature_dim = 2
      : !bsr.pattern<96x32, block = 16x16, slots = 3>, tensor<8x128xi32>,
        tensor<8x128x32xf32> -> tensor<3x16x16xf32>
  return
}

func.func @scatter_columns(%p: !bsr.pattern<96x32, block = 16x16, slots = 3>, %ids: tensor<8xi64>, %u: tensor<96x8xf64>) {
  %dw = bsr.scatter_rows %p, %ids, %u transpose feature_dim = 0
      : !bsr.pattern<96x32, block = 16x16, slots = 3>, tensor<8xi64>, tensor<96x8xf64> -> tensor<3x16x16xf64>
  return
}

func.func @score_rows(%ids: tensor<8x128xi32>, %u: tensor<8x128x32xf32>) {
  %s = bsr.score_rows l1 %ids, %u block = 16x16 feature_dim = 2
      : tensor<8x128xi32>, tensor<8x128x32xf32> -> tensor<6x2xf32>
  %t = bsr.score_rows linf %ids, %u block = 8x4 transpose feature_dim = 2
      : tensor<8x128xi32>, tensor<8x128x32xf32> -> tensor<4x3xf32>
  return
}

func.func @grouped_matmul(%x: tensor<256x32xf32>, %dy: tensor<256x64xf32>, %w: tensor<8x32x64xf32>, %groups: tensor<256xi64>) {
  %y = bsr.grouped_matmul %x, %w, %groups
      : tensor<256x32xf32>, tensor<8x32x64xf32>, tensor<256xi64> -> tensor<256x64xf32>
  %dx = bsr.grouped_matmul %dy, %w, %groups transpose
      : tensor<256x64xf32>, tensor<8x32x64xf32>, tensor<256xi64> -> tensor<256x32xf32>
  return
}

func.func @grouped_outer(%x: tensor<256x32xf32>, %dy: tensor<256x64xf32>, %groups: tensor<256xi64>) {
  %dw = bsr.grouped_outer %x, %dy, %groups
      : tensor<256x32xf32>, tensor<256x64xf32>, tensor<256xi64> -> tensor<8x32x64xf32>
  return
}

func.func @grouped_types(%x: tensor<16x4xbf16>, %y: tensor<16x6xf64>, %w: tensor<3x4x6xf16>, %groups: tensor<16xi32>) {
  %0 = bsr.grouped_matmul %x, %w, %groups : tensor<16x4xbf16>, tensor<3x4x6xf16>, tensor<16xi32> -> tensor<16x6xf32>
  %1 = bsr.grouped_outer %x, %y, %groups : tensor<16x4xbf16>, tensor<16x6xf64>, tensor<16xi32> -> tensor<3x4x6xf64>
  return
}

func.func @attention(%q: tensor<2x4x96x64xf32>, %k: tensor<2x4x80x64xf32>, %v: tensor<2x4x80x32xf32>) {
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.250000e-01
      maps = [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
              affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
              affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
              affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>]
      : (tensor<2x4x96x64xf32>, tensor<2x4x80x64xf32>, tensor<2x4x80x32xf32>)
      -> (tensor<2x96x4x32xf32>, tensor<2x2x4x96xf32>)
  return
}

func.func @attention_grad(%q: tensor<8x96x64xf32>, %k: tensor<8x80x64xf32>, %v: tensor<8x80x32xf32>,
                          %y: tensor<8x96x32xf32>, %lse: tensor<2x8x96xf32>, %dy: tensor<8x96x32xf32>) {
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %dy) scale = 1.250000e-01
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>, affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>, affine_map<(t, i, j, d, e) -> (t, i, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>, affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, d, j)>, affine_map<(t, i, j, d, e) -> (t, j, e)>]
      : (tensor<8x96x64xf32>, tensor<8x80x64xf32>, tensor<8x80x32xf32>, tensor<8x96x32xf32>,
         tensor<2x8x96xf32>, tensor<8x96x32xf32>)
      -> (tensor<8x96x64xf32>, tensor<8x64x80xf32>, tensor<8x80x32xf32>)
  return
}

func.func @all_reduce(%dw: tensor<3x16x16xf32>) -> tensor<3x16x16xf32> {
  %mean = bsr.all_reduce %dw : tensor<3x16x16xf32> -> tensor<3x16x16xf32>
  return %mean : tensor<3x16x16xf32>
}

func.func @start_reduce(%dw: memref<3x16x16xf32>, %db: memref<16xf32>) {
  %ticket = bsr.start_reduce %dw, %db : memref<3x16x16xf32>, memref<16xf32>
  bsr.wait_reduce %ticket, %dw, %db : memref<3x16x16xf32>, memref<16xf32>
  return
}

func.func @shards(%w: tensor<5x16xf32>, %a: memref<1x5xf32>, %b: memref<1x3xf32>) -> tensor<5x16xf32> {
  %mine = bsr.shard %w : tensor<5x16xf32> -> tensor<3x16xf32>
  %all = bsr.unshard %mine into %w : tensor<3x16xf32>, tensor<5x16xf32> -> tensor<5x16xf32>
  bsr.shard %a into %b : memref<1x5xf32>, memref<1x3xf32>
  bsr.unshard %b into %a : memref<1x3xf32>, memref<1x5xf32>
  return %all : tensor<5x16xf32>
}

func.func @transfers(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  bsr.send %x to 1 : tensor<4x16xf32>
  %y = bsr.receive from 0 -> tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}
