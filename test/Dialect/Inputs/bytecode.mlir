#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
#map2 = affine_map<(d0, d1) -> (d0)>
module {
  func.func private @pattern(!bsr.pattern<768x3072, block = 16x16, slots = 922>)
  func.func @constant_pattern() {
    %0 = bsr.constant_pattern row_ptr = [0, 1, 3] col_idx = [1, 0, 1] : !bsr.pattern<32x32, block = 16x16, slots = 3>
    return
  }
  func.func @indices(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>) {
    %ptr, %idx, %slot = bsr.indices %arg0 : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<3xi32>, tensor<3xi32>, tensor<3xi32>
    %ptr_0, %idx_1, %slot_2 = bsr.indices %arg0 transpose : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<5xi32>, tensor<3xi32>, tensor<3xi32>
    return
  }
  func.func @live(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>) {
    %0 = bsr.live %arg0 : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<3xi1>
    return
  }
  func.func @barrier(%arg0: f32) -> f32 {
    %0 = bsr.barrier %arg0 : f32
    return %0 : f32
  }
  func.func @num_absent(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>) {
    %0 = bsr.num_absent %arg0 : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<f32>
    return
  }
  func.func @to_dense(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>, %arg1: tensor<3x16x16xf32>, %arg2: tensor<f32>) {
    %0 = bsr.to_dense %arg0, %arg1 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32> -> tensor<32x64xf32>
    %1 = bsr.to_dense %arg0, %arg1 background %arg2 transpose : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<f32> -> tensor<64x32xf32>
    return
  }
  func.func @sample(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>, %arg1: tensor<32x64xf32>) {
    %0 = bsr.sample %arg0, %arg1 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32x64xf32> -> tensor<3x16x16xf32>
    return
  }
  func.func @sample_vec(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>, %arg1: tensor<32xf32>, %arg2: tensor<64xbf16>) {
    %0 = bsr.sample_vec %arg0, %arg1 dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32xf32> -> tensor<3x16x1xf32>
    %1 = bsr.sample_vec %arg0, %arg2 dim = 1 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<64xbf16> -> tensor<3x1x16xbf16>
    return
  }
  func.func @reduce_vec(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>, %arg1: tensor<3x16x16xf32>, %arg2: tensor<f32>) {
    %0 = bsr.reduce_vec %arg0, %arg1 background %arg2 dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<f32> -> tensor<32xf32>
    %1 = bsr.reduce_vec %arg0, %arg1 dim = 1 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32> -> tensor<64xf32>
    return
  }
  func.func @spmm(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>, %arg1: tensor<3x16x16xf32>, %arg2: tensor<8x128x32xf32>, %arg3: tensor<8x64x128xf32>, %arg4: tensor<64xf32>) {
    %0 = bsr.spmm %arg0, %arg1, %arg2 feature_dim = 2 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<8x128x32xf32> -> tensor<8x128x64xf32>
    %1 = bsr.spmm %arg0, %arg1, %arg3 transpose feature_dim = 1 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<8x64x128xf32> -> tensor<8x32x128xf32>
    %2 = bsr.spmm %arg0, %arg1, %arg2 bias %arg4 feature_dim = 2 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<8x128x32xf32>, tensor<64xf32> -> tensor<8x128x64xf32>
    return
  }
  func.func @sddmm(%arg0: !bsr.pattern<32x64, block = 16x16, slots = 3>, %arg1: tensor<8x128x32xf32>, %arg2: tensor<8x128x64xf32>) {
    %0 = bsr.sddmm %arg0, %arg1, %arg2 feature_dim = 2 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<8x128x32xf32>, tensor<8x128x64xf32> -> tensor<3x16x16xf32>
    return
  }
  func.func @block_scores(%arg0: tensor<8x128x32xf32>, %arg1: tensor<8x128x64xf32>, %arg2: tensor<8x128x64xbf16>) {
    %0 = bsr.block_scores l1 %arg0, %arg1 feature_dim = 2 : tensor<8x128x32xf32>, tensor<8x128x64xf32> -> tensor<2x4xf32>
    %1 = bsr.block_scores linf %arg0, %arg2 feature_dim = 2 : tensor<8x128x32xf32>, tensor<8x128x64xbf16> -> tensor<32x1xf32>
    return
  }
  func.func @step(%arg0: tensor<32x64xf32> {bsr.init = "normal(0.02)", bsr.mark = #bsr.mark<block = 16x16, density = 1.000000e-01, weight = "params.w">, bsr.name = "params.w", bsr.result = 0 : i64, bsr.role = "param"}, %arg1: tensor<32x32xf32> {bsr.mark = #bsr.mark<block = 16x16, density = 5.000000e-01, row_ptr = [0, 1, 2], col_idx = [1, 0], weight = "params.v">, bsr.name = "params.v", bsr.role = "param"}, %arg2: tensor<3x32x2x8xf32> {bsr.mark = #bsr.mark<block = 16x16, density = 1.000000e-01, dims = [stack, row, col, col], weight = "params.layers">, bsr.name = "params.layers", bsr.role = "param"}, %arg3: tensor<32x64xi1> {bsr.mask = #bsr.mask<weight = "params.w">, bsr.name = "masks.w"}, %arg4: tensor<64x32xi1> {bsr.mask = #bsr.mask<weight = "params.w", transpose = true>, bsr.name = "masks.wt"}, %arg5: tensor<8xf32> {bsr.name = "batch.x", bsr.role = "batch"}) -> (tensor<32x64xf32> {bsr.name = "params.w"}) {
    return %arg0 : tensor<32x64xf32>
  }
  module attributes {bsr.target = #bsr.cpu} {
  }
  module attributes {bsr.target = #bsr.scalar} {
  }
  module attributes {bsr.target = #bsr.gpu} {
  }
  module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  }
  module attributes {bsr.target = #bsr.gpu<tile_outputs = 256, tile_tokens = 128>} {
  }
  module attributes {bsr.target = #bsr.gpu<share_outputs = 2>} {
  }
  module attributes {bsr.target = #bsr.gpu<tf32 = true>} {
  }
  module attributes {bsr.target = #bsr.gpu<share_outputs = 2, share_tokens = 2>} {
  }
  module attributes {bsr.target = #bsr.gpu<chip = "sm_80", tf32 = true>} {
  }
  module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32, l1_bytes = 49152, l2_bytes = 2097152>} {
  }
  bsr.cluster private @planned_nests(%arg0: tensor<8x128xf32>, %arg1: tensor<128xf32>, %arg2: tensor<8x128xf32>) -> (tensor<8x128xf32>, tensor<128xf32>) attributes {plan = #bsr.plan<nests>} {
    %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<8x128xf32>) outs(%arg2 : tensor<8x128xf32>) attrs =  {bsr.root = #bsr.root<nest = 0>} {
    ^bb0(%in: f32, %out: f32):
      %2 = math.exp %in : f32
      linalg.yield %2 : f32
    } -> tensor<8x128xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["reduction", "parallel"]} ins(%0 : tensor<8x128xf32>) outs(%arg1 : tensor<128xf32>) attrs =  {bsr.root = #bsr.root<nest = 1>} {
    ^bb0(%in: f32, %out: f32):
      %2 = arith.addf %in, %out : f32
      linalg.yield %2 : f32
    } -> tensor<128xf32>
    bsr.yield %0, %1 : tensor<8x128xf32>, tensor<128xf32>
  }
  bsr.cluster private @planned_chain(%arg0: tensor<8x128xf32>, %arg1: tensor<128xf32>, %arg2: tensor<8xf32>, %arg3: tensor<8x128xf32>) -> (tensor<8x128xf32>, tensor<8xf32>) attributes {plan = #bsr.plan<chain, shared = [128]>} {
    %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<8x128xf32>) outs(%arg3 : tensor<8x128xf32>) attrs =  {bsr.root = #bsr.root<nest = 0 loops = [-1, 0] place = 0>} {
    ^bb0(%in: f32, %out: f32):
      %4 = math.exp %in : f32
      linalg.yield %4 : f32
    } -> tensor<8x128xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["reduction", "parallel"]} ins(%0 : tensor<8x128xf32>) outs(%arg1 : tensor<128xf32>) attrs =  {bsr.root = #bsr.root<nest = 0 loops = [-1, 0]>} {
    ^bb0(%in: f32, %out: f32):
      %4 = arith.addf %in, %out : f32
      linalg.yield %4 : f32
    } -> tensor<128xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<8x128xf32>, tensor<128xf32>) outs(%arg3 : tensor<8x128xf32>) attrs =  {bsr.root = #bsr.root<nest = 1 loops = [-1, 0]>} {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %4 = arith.divf %in, %in_0 : f32
      linalg.yield %4 : f32
    } -> tensor<8x128xf32>
    %3 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "reduction"]} ins(%2 : tensor<8x128xf32>) outs(%arg2 : tensor<8xf32>) attrs =  {bsr.root = #bsr.root<nest = 1 loops = [-1, 0] total = true>} {
    ^bb0(%in: f32, %out: f32):
      %4 = arith.addf %in, %out : f32
      linalg.yield %4 : f32
    } -> tensor<8xf32>
    bsr.yield %2, %3 : tensor<8x128xf32>, tensor<8xf32>
  }
  bsr.cluster private @sum(%arg0: tensor<4xf32>, %arg1: tensor<f32>) -> tensor<f32> {
    %reduced = linalg.reduce ins(%arg0 : tensor<4xf32>) outs(%arg1 : tensor<f32>) dimensions = [0] 
      (%in: f32, %init: f32) {
        %0 = arith.addf %in, %init : f32
        linalg.yield %0 : f32
      }
    bsr.yield %reduced : tensor<f32>
  }
  func.func private @decay(memref<8x4xf32>, memref<f32>, memref<8x4xf32>)
  func.func private @fill(memref<4xf32>, memref<2xi32>)
  func.func @launch(%arg0: tensor<8x4xf32>, %arg1: tensor<f32>, %arg2: tensor<8x4xf32>, %arg3: tensor<4xf32>, %arg4: tensor<2xi32>) {
    %0 = bsr.launch @decay ins(%arg0, %arg1 : tensor<8x4xf32>, tensor<f32>) outs(%arg2 : tensor<8x4xf32>) in_place = [0] -> tensor<8x4xf32>
    %1:2 = bsr.launch @fill outs(%arg3, %arg4 : tensor<4xf32>, tensor<2xi32>) -> tensor<4xf32>, tensor<2xi32>
    return
  }
  func.func @scatter_add(%arg0: tensor<8x128xi32>, %arg1: tensor<8x128x32xf32>) {
    %0 = bsr.scatter_add %arg0, %arg1 feature_dim = 2 : tensor<8x128xi32>, tensor<8x128x32xf32> -> tensor<100x32xf32>
    return
  }
}

