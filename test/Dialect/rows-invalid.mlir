// RUN: sparse-opt %s --split-input-file --verify-diagnostics

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @gather_values(%p: !p, %v: tensor<3x16x8xf32>, %ids: tensor<8xi32>) {
  // expected-error @below {{expected values of type 'tensor<3x16x16xf32>', but got 'tensor<3x16x8xf32>'}}
  %x = bsr.gather_rows %p, %v, %ids feature_dim = 1 : !p, tensor<3x16x8xf32>, tensor<8xi32> -> tensor<8x32xf32>
  return
}

// -----

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @gather_elements(%p: !p, %v: tensor<3x16x16xbf16>, %ids: tensor<8xi32>) {
  // expected-error @below {{expected values of type 'tensor<3x16x16xf32>', but got 'tensor<3x16x16xbf16>'}}
  %x = bsr.gather_rows %p, %v, %ids feature_dim = 1 : !p, tensor<3x16x16xbf16>, tensor<8xi32> -> tensor<8x32xf32>
  return
}

// -----

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @gather_features(%p: !p, %v: tensor<3x16x16xf32>, %ids: tensor<8xi32>) {
  // expected-error @below {{expected dimension 1 of rows to have 96 features, but got 32}}
  %x = bsr.gather_rows %p, %v, %ids transpose feature_dim = 1 : !p, tensor<3x16x16xf32>, tensor<8xi32> -> tensor<8x32xf32>
  return
}

// -----

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @gather_feature_dim(%p: !p, %v: tensor<3x16x16xf32>, %ids: tensor<8xi32>) {
  // expected-error @below {{expected feature_dim in 0 to 1, but got 2}}
  %x = bsr.gather_rows %p, %v, %ids feature_dim = 2 : !p, tensor<3x16x16xf32>, tensor<8xi32> -> tensor<8x32xf32>
  return
}

// -----

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @gather_tokens(%p: !p, %v: tensor<3x16x16xf32>, %ids: tensor<4x2xi32>) {
  // expected-error @below {{expected indices of type 'tensor<8xi32>', but got 'tensor<4x2xi32>'}}
  %x = bsr.gather_rows %p, %v, %ids feature_dim = 1 : !p, tensor<3x16x16xf32>, tensor<4x2xi32> -> tensor<8x32xf32>
  return
}

// -----

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @gather_index_type(%p: !p, %v: tensor<3x16x16xf32>, %ids: tensor<8xi8>) {
  // expected-error @below {{must be tensor of i32 or i64 of static shape, but got 'tensor<8xi8>'}}
  %x = bsr.gather_rows %p, %v, %ids feature_dim = 1 : !p, tensor<3x16x16xf32>, tensor<8xi8> -> tensor<8x32xf32>
  return
}

// -----

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @scatter_values(%p: !p, %ids: tensor<8xi32>, %u: tensor<8x32xf32>) {
  // expected-error @below {{expected values of type 'tensor<3x16x16xf32>', but got 'tensor<4x16x16xf32>'}}
  %x = bsr.scatter_rows %p, %ids, %u feature_dim = 1 : !p, tensor<8xi32>, tensor<8x32xf32> -> tensor<4x16x16xf32>
  return
}

// -----

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @scatter_features(%p: !p, %ids: tensor<8xi32>, %u: tensor<8x16xf32>) {
  // expected-error @below {{expected dimension 1 of updates to have 32 features, but got 16}}
  %x = bsr.scatter_rows %p, %ids, %u feature_dim = 1 : !p, tensor<8xi32>, tensor<8x16xf32> -> tensor<3x16x16xf32>
  return
}

// -----

!p = !bsr.pattern<96x32, block = 16x16, slots = 3>

func.func @scatter_tokens(%p: !p, %ids: tensor<9xi32>, %u: tensor<8x32xf32>) {
  // expected-error @below {{expected indices of type 'tensor<8xi32>', but got 'tensor<9xi32>'}}
  %x = bsr.scatter_rows %p, %ids, %u feature_dim = 1 : !p, tensor<9xi32>, tensor<8x32xf32> -> tensor<3x16x16xf32>
  return
}

// -----

func.func @score_block(%ids: tensor<8xi32>, %u: tensor<8x32xf32>) {
  // expected-error @below {{expected a block of 1x1 at least, but got 0x16}}
  %x = "bsr.score_rows"(%ids, %u) {norm = 0 : i32, blockRows = 0 : i64, blockCols = 16 : i64, featureDim = 1 : i64}
      : (tensor<8xi32>, tensor<8x32xf32>) -> tensor<6x2xf32>
  return
}

// -----

func.func @score_shape(%ids: tensor<8xi32>, %u: tensor<8x32xf32>) {
  // expected-error @below {{expected rows and columns of a block, but got 1 numbers}}
  %x = bsr.score_rows l1 %ids, %u block = 16 feature_dim = 1 : tensor<8xi32>, tensor<8x32xf32> -> tensor<6x2xf32>
  return
}

// -----

func.func @score_features(%ids: tensor<8xi32>, %u: tensor<8x32xf32>) {
  // expected-error @below {{expected dimension 1 of updates to have 48 features, but got 32}}
  %x = bsr.score_rows l1 %ids, %u block = 16x16 feature_dim = 1 : tensor<8xi32>, tensor<8x32xf32> -> tensor<6x3xf32>
  return
}

// -----

func.func @score_tokens(%ids: tensor<9xi32>, %u: tensor<8x32xf32>) {
  // expected-error @below {{expected indices of type 'tensor<8xi32>', but got 'tensor<9xi32>'}}
  %x = bsr.score_rows l1 %ids, %u block = 16x16 feature_dim = 1 : tensor<9xi32>, tensor<8x32xf32> -> tensor<6x2xf32>
  return
}

// -----

func.func @scatter_add_type(%i: tensor<8xi32>, %u: tensor<8x4xf32>) -> tensor<16x4xf64> {
  // expected-error @below {{expected rows element type 'f32', but got 'f64'}}
  %y = bsr.scatter_add %i, %u feature_dim = 1 : tensor<8xi32>, tensor<8x4xf32> -> tensor<16x4xf64>
  return %y : tensor<16x4xf64>
}
