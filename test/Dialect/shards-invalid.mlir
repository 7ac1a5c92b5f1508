// RUN: sparse-opt %s --split-input-file --verify-diagnostics

func.func @kinds(%w: tensor<5x16xf32>, %b: memref<3x16xf32>) {
  // expected-error @below {{expected two tensors or two buffers, but got 'memref<3x16xf32>' and 'tensor<5x16xf32>'}}
  bsr.shard %w into %b : tensor<5x16xf32>, memref<3x16xf32>
  return
}

// -----

func.func @strided(%w: memref<5x16xf32>, %b: memref<3x16xf32, strided<[32, 2]>>) {
  // expected-error @below {{expected a row-major buffer, but got 'memref<3x16xf32, strided<[32, 2]>>'}}
  bsr.shard %w into %b : memref<5x16xf32>, memref<3x16xf32, strided<[32, 2]>>
  return
}

// -----

func.func @unshard_result(%w: memref<5x16xf32>, %b: memref<3x16xf32>) {
  // expected-error @below {{expected no result of buffers, but got 'tensor<5x16xf32>'}}
  %0 = bsr.unshard %b into %w : memref<3x16xf32>, memref<5x16xf32> -> tensor<5x16xf32>
  return
}

// -----

func.func @unshard_other(%w: tensor<5x16xf32>, %b: tensor<3x16xf32>) {
  // expected-error @below {{expected a result as its operands, but got 'tensor<6x16xf32>'}}
  %0 = bsr.unshard %b into %w : tensor<3x16xf32>, tensor<5x16xf32> -> tensor<6x16xf32>
  return
}

// -----

func.func @columns(%w: tensor<5x16xf32>) {
  // expected-error @below {{expected rows of 'tensor<5x16xf32>', but got 'tensor<5x8xf32>'}}
  %0 = bsr.shard %w : tensor<5x16xf32> -> tensor<5x8xf32>
  return
}

// -----

func.func @both(%w: memref<5x16xf32>, %b: memref<3x16xf32>) {
  // expected-error @below {{expected a buffer or a result, but got both}}
  %0 = bsr.shard %w into %b : memref<5x16xf32>, memref<3x16xf32> -> tensor<3x16xf32>
  return
}

// -----

func.func @none(%w: tensor<5x16xf32>) {
  // expected-error @below {{expected a buffer or a result, but got none}}
  bsr.shard %w : tensor<5x16xf32>
  return
}
