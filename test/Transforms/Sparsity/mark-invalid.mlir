// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-mark="match=^w block=4x8"

// expected-error @below {{expected '^w' to match the bsr.name of a weight, but got no match in 1 names: the nearest are 'x'}}
module {
  func.func @no_match(%x: tensor<8x8xf32> {bsr.name = "x"}, %w: tensor<8x8xf32>) { return }
  func.func private @declaration(tensor<8x8xf32> {bsr.name = "w"})
}

// -----

// expected-error @below {{argument "w": expected a float matrix of static shape to mark, but got 'tensor<8xf32>'}}
func.func @vector(%w: tensor<8xf32> {bsr.name = "w"}) { return }

// -----

// expected-error @below {{argument "w": expected dims to say what each dimension of 'tensor<8x8x8xf32>' is, as in dims=stack,row,col for matrices stacked along the first, or dims=row,col,col,col for a convolution's channels and windows, but got none}}
func.func @rank(%w: tensor<8x8x8xf32> {bsr.name = "w"}) { return }

// -----

// expected-error @below {{argument "w": expected a float matrix of static shape to mark, but got 'tensor<8x8xi32>'}}
func.func @integer(%w: tensor<8x8xi32> {bsr.name = "w"}) { return }

// -----

// expected-error @below {{argument "w": expected matrix 8x12 to be a multiple of block 4x8: pad it or choose another block}}
func.func @ragged(%w: tensor<8x12xf32> {bsr.name = "w"}) { return }

// -----

// expected-error @below {{argument "w": expected a matrix of at least 1x1, but got 0x8}}
func.func @empty(%w: tensor<0x8xf32> {bsr.name = "w"}) { return }

// -----

// expected-error @below {{argument "w": expected at most 2147483647 blocks (indices have 32 bits), but got 8589934592}}
func.func @blocks_overflow(%w: tensor<524288x524288xf32> {bsr.name = "w"}) { return }

// -----

// expected-error @below {{argument "w": expected fewer than 2^63 entries, but got 'tensor<4294967296x4294967296xf32>'}}
func.func @entries_overflow(%w: tensor<4294967296x4294967296xf32> {bsr.name = "w"}) { return }

// -----

// expected-error @below {{expected '^w' to match weights only, but got "w.m", a moment of "w": moments follow their weight}}
func.func @moment(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64},
                  %m: tensor<8x8xf32> {bsr.name = "w.m", bsr.result = 1 : i64})
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.add ins(%w, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %m : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// expected-error @below {{expected moment "m" to follow one weight, but got "w0" and "w1"}}
func.func @two_weights(%w0: tensor<8x8xf32> {bsr.name = "w0", bsr.result = 0 : i64},
                       %w1: tensor<8x8xf32> {bsr.name = "w1", bsr.result = 1 : i64},
                       %m: tensor<8x8xf32> {bsr.name = "m", bsr.result = 2 : i64})
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.add ins(%w0, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = linalg.add ins(%w1, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1, %m : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// expected-error @below {{expected a step of one block, but got 2 blocks}}
func.func @blocks(%w: tensor<8x8xf32> {bsr.name = "w"}) {
  cf.br ^bb1
^bb1:
  return
}
