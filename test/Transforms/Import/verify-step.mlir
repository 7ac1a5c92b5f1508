// RUN: sparse-opt %s --split-input-file --bsr-verify-step --verify-diagnostics

// What pipelines cannot lower is refused in the program's terms, where it stands.

// A step is found by the names of its arguments.

// expected-error @below {{expected one function with bsr.name arguments, but got none}}
module {
  func.func private @step(%w: tensor<4x8xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4x8xf32>
}

// -----

// expected-error @below {{expected one function with bsr.name arguments, but got none}}
module {
  module {
    func.func @nested(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
      return %w : tensor<4xf32>
    }
  }
}

// -----

// expected-error @below {{expected a public step, but got @step, which is private}}
func.func private @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}

// -----

func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64},
                // expected-error @below {{expected a bsr.name for every argument, but got none for argument #1}}
                %x: tensor<4xf32>) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}

// -----

// Nothing else has an interface.

func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}
// expected-error @below {{expected functions beside the step to be private, but got @other}}
func.func @other(%x: tensor<?xf32>) {
  return
}

// -----

func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}
// expected-error @below {{expected functions beside the step, but got 'llvm.func'}}
llvm.func @bsr_step_run()

// -----

// expected-error @below {{expected no function with a name of the interface of a step, but got @bsr_step_manifest}}
func.func @bsr_step_manifest(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}

// -----

// One block, which ends in a return.

// expected-error @below {{expected a step of one block, but got 3 blocks}}
func.func @blocks(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}, %c: tensor<i1> {bsr.name = "c"}) -> tensor<4xf32> {
  %0 = tensor.extract %c[] : tensor<i1>
  cf.cond_br %0, ^bb1, ^bb2
^bb1:
  %e = linalg.exp ins(%w : tensor<4xf32>) outs(%w : tensor<4xf32>) -> tensor<4xf32>
  return %e : tensor<4xf32>
^bb2:
  return %w : tensor<4xf32>
}

// -----

func.func @no_return(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
  // expected-error @below {{expected a step that ends in 'func.return', but got 'ub.unreachable'}}
  ub.unreachable
}

// -----

// Arguments and results are tensors with elements.

func.func @scalar(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64},
                  // expected-error @below {{expected argument "lr" to have a tensor of static shape, but got 'f32'}}
                  %lr: f32 {bsr.name = "lr"}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}

// -----

// expected-error @below {{expected result #1 to have a tensor of static shape, but got 'f32'}}
func.func @scalar_result(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> (tensor<4xf32>, f32 {bsr.name = "loss"}) {
  %c = arith.constant 1.0 : f32
  return %w, %c : tensor<4xf32>, f32
}

// -----

// expected-error @below {{expected argument "w" to have a tensor of static shape, but got 'tensor<?xf32>'}}
func.func @dynamic(%w: tensor<?xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<?xf32> {
  return %w : tensor<?xf32>
}

// -----

// expected-error @below {{expected argument "w" to have a tensor of static shape, but got 'tensor<*xf32>'}}
func.func @unranked(%w: tensor<*xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<*xf32> {
  return %w : tensor<*xf32>
}

// -----

// expected-error @below {{expected argument "w" to have a tensor of static shape, but got 'vector<4xf32>'}}
func.func @vector(%w: vector<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> vector<4xf32> {
  return %w : vector<4xf32>
}

// -----

// expected-error @below {{expected argument "w" to have a tensor of static shape, but got 'memref<4xf32>'}}
func.func @memref(%w: memref<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> memref<4xf32> {
  return %w : memref<4xf32>
}

// -----

#csr = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>
// expected-error @below {{expected argument "w" to have a tensor without an encoding, but got 'tensor<4x4xf32, #sparse_tensor}}
func.func @encoding(%w: tensor<4x4xf32, #csr> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4x4xf32, #csr> {
  return %w : tensor<4x4xf32, #csr>
}

// -----

// expected-error @below {{expected argument "w" to have elements of f16, bf16, f32, f64, i1, i8, i32 or i64, but got 'tensor<4xindex>'}}
func.func @index(%w: tensor<4xindex> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xindex> {
  return %w : tensor<4xindex>
}

// -----

// expected-error @below {{expected argument "x" to have elements of f16, bf16, f32, f64, i1, i8, i32 or i64, but got 'tensor<4xf8E4M3FN>'}}
func.func @f8(%x: tensor<4xf8E4M3FN> {bsr.name = "x"}) {
  return
}

// -----

// expected-error @below {{expected argument "x" to have elements of f16, bf16, f32, f64, i1, i8, i32 or i64, but got 'tensor<4xi16>'}}
func.func @i16(%x: tensor<4xi16> {bsr.name = "x"}) {
  return
}

// -----

// expected-error @below {{expected argument "x" to have at least one element, but got 'tensor<2x0xf32>'}}
func.func @empty(%x: tensor<2x0xf32> {bsr.name = "x"}) {
  return
}

// -----

// expected-error @below {{expected argument "x" to have at most 2^47 bytes, but got 'tensor<4294967296x4294967296xf32>'}}
func.func @large(%x: tensor<4294967296x4294967296xf32> {bsr.name = "x"}) {
  return
}

// -----

// expected-error @below {{expected result #0 to have a tensor of static shape, but got '!bsr.pattern}}
func.func @pattern(%p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.result = 0 : i64})
    -> !bsr.pattern<8x8, block = 4x4, slots = 2> {
  return %p : !bsr.pattern<8x8, block = 4x4, slots = 2>
}

// -----

// So are the values between.

func.func @empty_inside(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  // expected-error @below {{expected 'tensor.empty' to have at least one element, but got 'tensor<0x4xf32>'}}
  %0 = tensor.empty() : tensor<0x4xf32>
  return %x : tensor<4xf32>
}

// -----

// Operations are those that the pipelines lower.

func.func @tosa(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  // expected-error @below {{expected operations of arith, linalg, math, scf and tensor, but got 'tosa.exp'}}
  %y = tosa.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @cast(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xi32> {bsr.name = "y"}) {
  // expected-error @below {{expected operations of arith, linalg, math, scf and tensor, but got 'builtin.unrealized_conversion_cast'}}
  %y = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tensor<4xi32>
  return %y : tensor<4xi32>
}

// -----

func.func @inner_type(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  // expected-error @below {{expected 'tensor.empty' to have elements of f16, bf16, f32, f64, i1, i8, i16, index, i32 or i64, but got 'tensor<4xi4>'}}
  %0 = tensor.empty() : tensor<4xi4>
  return %x : tensor<4xf32>
}

// -----

func.func @gather(%x: tensor<4x8xf32> {bsr.name = "x"}, %i: tensor<2x1xi32> {bsr.name = "i"}) -> (tensor<2x1x8xf32> {bsr.name = "y"}) {
  // expected-error @below {{expected an operation that works on buffers, too, but got 'tensor.gather' on tensors: write it in terms of others}}
  %y = tensor.gather %x[%i] gather_dims([0]) : (tensor<4x8xf32>, tensor<2x1xi32>) -> tensor<2x1x8xf32>
  return %y : tensor<2x1x8xf32>
}

// -----

func.func @add(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  // expected-error @below {{expected an operation that works on buffers, too, but got 'arith.addf' on tensors: write it in terms of others}}
  %y = arith.addf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @kernel(memref<4xf32>, memref<4xf32>)
func.func @launch(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  // expected-error @below {{expected a kernel with a body, but got @kernel}}
  %0 = bsr.launch @kernel ins(%w : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Calls can be inlined.

func.func private @print(tensor<4xf32>)
func.func private @outer(%x: tensor<4xf32>) {
  // expected-error @below {{expected a call of a function with a body, but got @print}}
  call @print(%x) : (tensor<4xf32>) -> ()
  return
}
func.func @call(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  call @outer(%x) : (tensor<4xf32>) -> ()
  return %x : tensor<4xf32>
}

// -----

func.func private @even(%x: tensor<4xf32>) {
  call @odd(%x) : (tensor<4xf32>) -> ()
  return
}
func.func private @odd(%x: tensor<4xf32>) {
  // expected-error @below {{expected no recursion, but got a call of @even within itself}}
  call @even(%x) : (tensor<4xf32>) -> ()
  return
}
func.func @recursion(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  call @even(%x) : (tensor<4xf32>) -> ()
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{expected a step of one block, but got 2 blocks}}
func.func private @jump(%x: tensor<4xf32>) {
  cf.br ^bb1
^bb1:
  return
}
func.func @call_blocks(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  call @jump(%x) : (tensor<4xf32>) -> ()
  return %x : tensor<4xf32>
}

// -----

// What is right passes: helpers, branches, loops, both signs.

func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = linalg.add ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}, %c: tensor<i1> {bsr.name = "c"},
                %key: tensor<2xui32> {bsr.name = "key"}) -> tensor<4xf32> {
  %0 = builtin.unrealized_conversion_cast %key : tensor<2xui32> to tensor<2xi32>
  %b = tensor.extract %c[] : tensor<i1>
  %1 = scf.if %b -> tensor<4xf32> {
    %2 = func.call @twice(%w) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %2 : tensor<4xf32>
  } else {
    %3 = func.call @twice(%w) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %3 : tensor<4xf32>
  }
  return %1 : tensor<4xf32>
}

// -----

func.func @power(%x: tensor<4xi32> {bsr.name = "x", bsr.result = 0 : i64}) -> tensor<4xi32> {
  %0 = linalg.map ins(%x, %x : tensor<4xi32>, tensor<4xi32>) outs(%x : tensor<4xi32>)
    (%a: i32, %b: i32, %out: i32) {
      // expected-error @below {{expected an operation that becomes code, but got 'math.ipowi': write it in terms of others}}
      %y = math.ipowi %a, %b : i32
      linalg.yield %y : i32
    }
  return %0 : tensor<4xi32>
}

// -----

func.func @normal(%x: tensor<4xf32> {bsr.name = "x", bsr.result = 0 : i64}) -> tensor<4xf32> {
  %0 = linalg.map ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>)
    (%a: f32, %out: f32) {
      // expected-error @below {{expected an operation that becomes code, but got 'math.isnormal': write it in terms of others}}
      %y = math.isnormal %a : f32
      %z = arith.uitofp %y : i1 to f32
      linalg.yield %z : f32
    }
  return %0 : tensor<4xf32>
}

// -----

func.func @eight_bits(%x: tensor<4xf32> {bsr.name = "x", bsr.result = 0 : i64}) -> tensor<4xf32> {
  %0 = linalg.map ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>)
    (%a: f32, %out: f32) {
      // expected-error @below {{expected numbers of f16, bf16, f32 or f64, but got 'arith.truncf' of 'f8E4M3FN'}}
      %y = arith.truncf %a : f32 to f8E4M3FN
      %z = arith.extf %y : f8E4M3FN to f32
      linalg.yield %z : f32
    }
  return %0 : tensor<4xf32>
}

// -----

// What is known of where operations read and write is within their tensors.

func.func @pad_computed(%x: tensor<4xf32> {bsr.name = "x"}, %n: tensor<i32> {bsr.name = "n"}) -> (tensor<6xf32> {bsr.name = "y"}) {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.extract %n[] : tensor<i32>
  %low = arith.index_cast %0 : i32 to index
  // expected-error @below {{expected paddings that are constants, but got a computed one of dimension 0}}
  %y = tensor.pad %x low[%low] high[1] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<6xf32>
  return %y : tensor<6xf32>
}

// -----

func.func @pad_operand(%x: tensor<4x8xf32> {bsr.name = "x"}) -> (tensor<4x8xf32> {bsr.name = "y"}) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 2 : index
  // expected-error @below {{expected dimension 1 to have 10 entries with its paddings, but got 8}}
  %y = tensor.pad %x low[0, %low] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<4x8xf32> to tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @slice(%x: tensor<4x8xf32> {bsr.name = "x"}) -> (tensor<4x2xf32> {bsr.name = "y"}) {
  %at = arith.constant 5 : index
  // expected-error @below {{expected 'tensor.extract_slice' to stay within dimension 1 of 8 entries, but got entries 5 to 8}}
  %y = tensor.extract_slice %x[0, %at] [4, 2] [1, 3] : tensor<4x8xf32> to tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

func.func @insert_slice(%x: tensor<4x2xf32> {bsr.name = "x"}, %z: tensor<4x8xf32> {bsr.name = "z"}) -> (tensor<4x8xf32> {bsr.name = "y"}) {
  %at = arith.constant -1 : index
  // expected-error @below {{expected 'tensor.insert_slice' to stay within dimension 1 of 8 entries, but got entries -1 to 0}}
  %y = tensor.insert_slice %x into %z[0, %at] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// From no offset are there as many.

func.func @insert_longer(%x: tensor<4x4xf32> {bsr.name = "x"}, %z: tensor<4x8xf32> {bsr.name = "z"}, %n: tensor<i32> {bsr.name = "n"})
    -> (tensor<4x8xf32> {bsr.name = "y"}) {
  %0 = tensor.extract %n[] : tensor<i32>
  %at = arith.index_cast %0 : i32 to index
  // expected-error @below {{expected 'tensor.insert_slice' to stay within dimension 1 of 8 entries, but got entries 0 to 9}}
  %y = tensor.insert_slice %x into %z[0, %at] [4, 4] [1, 3] : tensor<4x4xf32> into tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @parallel_insert(%x: tensor<2xf32> {bsr.name = "x"}, %z: tensor<8xf32> {bsr.name = "z"}) -> (tensor<8xf32> {bsr.name = "y"}) {
  %at = arith.constant 7 : index
  %y = scf.forall (%i) in (4) shared_outs(%o = %z) -> tensor<8xf32> {
    scf.forall.in_parallel {
      // expected-error @below {{expected 'tensor.parallel_insert_slice' to stay within dimension 0 of 8 entries, but got entries 7 to 8}}
      tensor.parallel_insert_slice %x into %o[%at] [2] [1] : tensor<2xf32> into tensor<8xf32>
    }
  }
  return %y : tensor<8xf32>
}

// -----

func.func @entry(%x: tensor<4x8xf32> {bsr.name = "x"}) -> (tensor<f32> {bsr.name = "y"}) {
  %i = arith.constant 1 : index
  %j = arith.constant 8 : index
  // expected-error @below {{expected 'tensor.extract' to stay within dimension 1 of 8 entries, but got entries 8 to 8}}
  %0 = tensor.extract %x[%i, %j] : tensor<4x8xf32>
  %y = tensor.from_elements %0 : tensor<f32>
  return %y : tensor<f32>
}

// -----

func.func @insert(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  %zero = arith.constant 0.0 : f32
  %i = arith.constant -1 : index
  // expected-error @below {{expected 'tensor.insert' to stay within dimension 0 of 4 entries, but got entries -1 to -1}}
  %y = tensor.insert %zero into %x[%i] : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @transfer(%x: tensor<4x8xf32> {bsr.name = "x"}) -> (tensor<4x8xf32> {bsr.name = "y"}) {
  %zero = arith.constant dense<0.0> : vector<4xf32>
  %i = arith.constant 1 : index
  %j = arith.constant 6 : index
  // expected-error @below {{expected 'vector.transfer_write' to stay within dimension 1 of 8 entries, but got entries 6 to 9}}
  %y = vector.transfer_write %zero, %x[%i, %j] {in_bounds = [true]} : vector<4xf32>, tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @stride(%x: tensor<4x8xf32> {bsr.name = "x"}, %n: tensor<i32> {bsr.name = "n"}) -> (tensor<4x2xf32> {bsr.name = "y"}) {
  %0 = tensor.extract %n[] : tensor<i32>
  %step = arith.index_cast %0 : i32 to index
  // expected-error @below {{expected strides that are constants, but got a computed one of dimension 1}}
  %y = tensor.extract_slice %x[0, 0] [4, 2] [1, %step] : tensor<4x8xf32> to tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

func.func @dim(%x: tensor<4x8xf32> {bsr.name = "x"}) -> (tensor<4x8xf32> {bsr.name = "y"}) {
  %two = arith.constant 2 : index
  // expected-error @below {{expected 'tensor.dim' of one of 2 dimensions, but got dimension 2}}
  %n = tensor.dim %x, %two : tensor<4x8xf32>
  return %x : tensor<4x8xf32>
}

// -----

func.func @vector_gather(%x: tensor<8xf32> {bsr.name = "x"}) -> (tensor<8xf32> {bsr.name = "y"}) {
  %at = arith.constant dense<9> : vector<4xindex>
  %all = arith.constant dense<true> : vector<4xi1>
  %none = arith.constant dense<0.0> : vector<4xf32>
  %i = arith.constant 0 : index
  // expected-error @below {{expected entries of a tensor to be read by 'tensor.extract', but got 'vector.gather'}}
  %v = vector.gather %x[%i] [%at], %all, %none : tensor<8xf32>, vector<4xindex>, vector<4xi1>, vector<4xf32> into vector<4xf32>
  %y = vector.transfer_write %v, %x[%i] : vector<4xf32>, tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

func.func @buffer(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  %zero = arith.constant 0.0 : f32
  // expected-error @below {{expected operations on tensors, but got 'bufferization.to_buffer' on a buffer}}
  %0 = bufferization.to_buffer %x : tensor<4xf32> to memref<4xf32>
  affine.store %zero, %0[9] : memref<4xf32>
  return %x : tensor<4xf32>
}

// -----

// What is in range passes.

func.func @in_range(%x: tensor<4x8xf32> {bsr.name = "x"}, %n: tensor<i32> {bsr.name = "n"}) -> (tensor<4x8xf32> {bsr.name = "y"}) {
  %last = arith.constant 7 : index
  %zero = arith.constant dense<0.0> : vector<4xf32>
  %0 = tensor.extract %n[] : tensor<i32>
  %at = arith.index_cast %0 : i32 to index
  %1 = tensor.extract_slice %x[0, %last] [4, 1] [1, 9] : tensor<4x8xf32> to tensor<4x1xf32>
  %2 = tensor.insert_slice %1 into %x[0, %at] [4, 1] [1, 1] : tensor<4x1xf32> into tensor<4x8xf32>
  %3 = vector.transfer_write %zero, %2[%at, %last] : vector<4xf32>, tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}

// -----

// Names are texts that a manifest, a message and a terminal can show.

// expected-error @below {{expected names of UTF-8 without control characters, but got "w\FF"}}
func.func @not_utf8(%w: tensor<4xf32> {bsr.name = "w\FF", bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}

// -----

// expected-error @below {{expected names of UTF-8 without control characters, but got "y\00z"}}
func.func @nul(%w: tensor<4xf32> {bsr.name = "w"}) -> (tensor<4xf32> {bsr.name = "y\00z"}) {
  return %w : tensor<4xf32>
}

// -----

// expected-error @below {{expected names of UTF-8 without control characters, but got "w\0A"}}
func.func @line(%w: tensor<4xf32> {bsr.name = "w", bsr.aliases = ["w\0A"], bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}

// -----

func.func @step(%w: tensor<4xf32> {bsr.name = "gewicht/\C3\A4", bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}
// expected-error @below {{expected names of UTF-8 without control characters, but got "\1B[0m"}}
func.func private @"\1B[0m"(%x: tensor<4xf32>) {
  return
}

// -----

func.func @wide(%x: tensor<4xf32> {bsr.name = "x", bsr.result = 0 : i64}) -> tensor<4xf32> {
  %0 = linalg.map ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>)
    (%a: f32, %out: f32) {
      // expected-error @below {{expected numbers of f16, bf16, f32 or f64, but got 'arith.extf' of 'f128'}}
      %y = arith.extf %a : f32 to f128
      %z = arith.truncf %y : f128 to f32
      linalg.yield %z : f32
    }
  return %0 : tensor<4xf32>
}

// -----

func.func @wide_integer(%x: tensor<4xf16> {bsr.name = "x", bsr.result = 0 : i64}) -> tensor<4xf16> {
  %0 = linalg.map ins(%x : tensor<4xf16>) outs(%x : tensor<4xf16>)
    (%a: f16, %out: f16) {
      // expected-error @below {{expected integers of at most 64 bits, but got 'arith.fptosi' of 'i128'}}
      %y = arith.fptosi %a : f16 to i128
      %z = arith.sitofp %y : i128 to f16
      linalg.yield %z : f16
    }
  return %0 : tensor<4xf16>
}
