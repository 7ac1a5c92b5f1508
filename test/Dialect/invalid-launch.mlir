// RUN: sparse-opt %s --split-input-file --verify-diagnostics

func.func @no_kernel(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.launch' op expected a cluster or a kernel, but got @k}}
  %y = bsr.launch @k outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(memref<4xf32>)

func.func @number_of_buffers(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.launch' op expected kernel @k to take 2 buffers, but got 1}}
  %y = bsr.launch @k ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(memref<4xf32>) -> i32

func.func @kernel_results(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.launch' op expected kernel @k to return nothing, but got '(memref<4xf32>) -> i32'}}
  %y = bsr.launch @k outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

bsr.cluster private @k(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = arith.negf %x : tensor<8xf32>
  bsr.yield %y : tensor<8xf32>
}

func.func @cluster_type(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.launch' op expected cluster @k to have type '(tensor<4xf32>) -> tensor<4xf32>', but got '(tensor<8xf32>) -> tensor<8xf32>'}}
  %y = bsr.launch @k ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(memref<4xf32, strided<[1], offset: ?>>)

func.func @kernel_argument(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.launch' op expected argument #0 of kernel @k to be 'memref<4xf32>', but got 'memref<4xf32, strided<[1], offset: ?>>'}}
  %y = bsr.launch @k outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(memref<4xf32>, memref<4xf32>)

func.func @in_place(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.launch' op expected in_place to list inputs (0 to 0), but got 1}}
  %y = bsr.launch @k ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) in_place = [1] -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k()

func.func @no_init() {
  // expected-error @below {{'bsr.launch' op expected at least 1 init, but got 0}}
  "bsr.launch"() <{kernel = @k, operandSegmentSizes = array<i32: 0, 0>}> : () -> ()
  return
}

// -----

func.func private @k(memref<?xf32>)

func.func @dynamic(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @below {{'bsr.launch' op operand #0 must be variadic of tensor of static shape, but got 'tensor<?xf32>'}}
  %y = bsr.launch @k outs(%x : tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func private @k(memref<1xindex>, memref<4xf32>)

func.func @kernel_index(%i: index, %x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.launch' op expected argument #0 of kernel @k to be 'index', but got 'memref<1xindex>'}}
  %y = bsr.launch @k ins(%i : index) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(memref<4xf32>, memref<4xf32>)

func.func @kernel_pattern(%p: !bsr.pattern<8x8, block = 4x4, slots = 2>, %x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.launch' op expected operand #0 of kernel @k to be a tensor, but got '!bsr.pattern<8x8, block = 4x4, slots = 2>'}}
  %y = bsr.launch @k ins(%p : !bsr.pattern<8x8, block = 4x4, slots = 2>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
