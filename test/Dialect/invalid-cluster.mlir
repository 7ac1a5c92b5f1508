// RUN: sparse-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{'bsr.cluster' op expects region #0 to have 0 or 1 blocks}}
bsr.cluster private @two_blocks(%x: tensor<4xf32>) -> tensor<4xf32> {
  cf.br ^end
^end:
  %y = arith.negf %x : tensor<4xf32>
  bsr.yield %y : tensor<4xf32>
}

// -----

// expected-error @below {{'bsr.cluster' op region #0 ('body') failed to verify constraint: region with 1 blocks}}
bsr.cluster private @declaration(tensor<4xf32>) -> tensor<4xf32>

// -----

// expected-error @below {{'bsr.cluster' op expected to end in 'bsr.yield', but got 'ub.unreachable'}}
bsr.cluster private @no_yield(%x: tensor<4xf32>) -> tensor<4xf32> {
  ub.unreachable
}

// -----

// expected-error @below {{'bsr.cluster' op expected at least 1 result, but got 0}}
bsr.cluster private @no_result(%x: tensor<4xf32>) {
  "bsr.yield"() : () -> ()
}

// -----

bsr.cluster private @types(%x: tensor<4xf32>) -> tensor<8xf32> {
  %y = arith.negf %x : tensor<4xf32>
  // expected-error @below {{'bsr.yield' op expected operands of types 'tensor<8xf32>', but got 'tensor<4xf32>'}}
  bsr.yield %y : tensor<4xf32>
}

// -----

// expected-error @below {{'bsr.cluster' op expected to compute its results, but got argument #0}}
bsr.cluster private @argument(%x: tensor<4xf32>) -> tensor<4xf32> {
  bsr.yield %x : tensor<4xf32>
}

// -----

// Nothing comes from outside: it is a symbol of the module.
func.func @inside(%x: tensor<4xf32>) {
  // expected-error @below {{'bsr.cluster' op symbol's parent must have the SymbolTable trait}}
  bsr.cluster private @cluster(%z: tensor<4xf32>) -> tensor<4xf32> {
    %y = arith.negf %z : tensor<4xf32>
    bsr.yield %y : tensor<4xf32>
  }
  return
}

// -----

func.func @outside(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'bsr.yield' op expects parent op 'bsr.cluster'}}
  bsr.yield %x : tensor<4xf32>
}
