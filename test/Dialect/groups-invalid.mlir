// RUN: sparse-opt %s --split-input-file --verify-diagnostics

func.func @matmul_features(%x: tensor<8x5xf32>, %w: tensor<3x4x6xf32>, %g: tensor<8xi64>) {
  // expected-error @below {{expected rows of x of 4 features, as many as dimension 1 of w has, but got 5}}
  %y = bsr.grouped_matmul %x, %w, %g : tensor<8x5xf32>, tensor<3x4x6xf32>, tensor<8xi64> -> tensor<8x6xf32>
  return
}

// -----

func.func @matmul_transposed(%x: tensor<8x4xf32>, %w: tensor<3x4x6xf32>, %g: tensor<8xi64>) {
  // expected-error @below {{expected rows of x of 6 features, as many as dimension 2 of w has, but got 4}}
  %y = bsr.grouped_matmul %x, %w, %g transpose : tensor<8x4xf32>, tensor<3x4x6xf32>, tensor<8xi64> -> tensor<8x6xf32>
  return
}

// -----

func.func @matmul_groups(%x: tensor<8x4xf32>, %w: tensor<3x4x6xf32>, %g: tensor<7xi64>) {
  // expected-error @below {{expected groups of type 'tensor<8xi64>', but got 'tensor<7xi64>'}}
  %y = bsr.grouped_matmul %x, %w, %g : tensor<8x4xf32>, tensor<3x4x6xf32>, tensor<7xi64> -> tensor<8x6xf32>
  return
}

// -----

func.func @matmul_type(%x: tensor<8x4xbf16>, %w: tensor<3x4x6xbf16>, %g: tensor<8xi64>) {
  // expected-error @below {{expected y of type 'tensor<8x6xf32>', but got 'tensor<8x6xf64>'}}
  %y = bsr.grouped_matmul %x, %w, %g : tensor<8x4xbf16>, tensor<3x4x6xbf16>, tensor<8xi64> -> tensor<8x6xf64>
  return
}

// -----

func.func @matmul_indices(%x: tensor<8x4xf32>, %w: tensor<3x4x6xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{must be vector of i32 or i64 of static shape, but got 'tensor<8xf32>'}}
  %y = bsr.grouped_matmul %x, %w, %g : tensor<8x4xf32>, tensor<3x4x6xf32>, tensor<8xf32> -> tensor<8x6xf32>
  return
}

// -----

func.func @outer_rows(%a: tensor<8x4xf32>, %b: tensor<7x6xf32>, %g: tensor<8xi64>) {
  // expected-error @below {{expected b of type 'tensor<8x6xf32>', but got 'tensor<7x6xf32>'}}
  %w = bsr.grouped_outer %a, %b, %g : tensor<8x4xf32>, tensor<7x6xf32>, tensor<8xi64> -> tensor<3x4x6xf32>
  return
}

// -----

func.func @outer_groups(%a: tensor<8x4xf32>, %b: tensor<8x6xf32>, %g: tensor<9xi32>) {
  // expected-error @below {{expected groups of type 'tensor<8xi32>', but got 'tensor<9xi32>'}}
  %w = bsr.grouped_outer %a, %b, %g : tensor<8x4xf32>, tensor<8x6xf32>, tensor<9xi32> -> tensor<3x4x6xf32>
  return
}

// -----

func.func @outer_shape(%a: tensor<8x4xf32>, %b: tensor<8x6xf32>, %g: tensor<8xi64>) {
  // expected-error @below {{expected w of type 'tensor<3x4x6xf32>', but got 'tensor<3x6x4xf32>'}}
  %w = bsr.grouped_outer %a, %b, %g : tensor<8x4xf32>, tensor<8x6xf32>, tensor<8xi64> -> tensor<3x6x4xf32>
  return
}
