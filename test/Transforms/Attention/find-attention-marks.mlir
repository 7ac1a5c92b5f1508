// DEFINE: %{mark} =
// DEFINE: %{find} = sparse-opt %s --bsr-find-attention="report=true marks='%{mark}'" 2>&1

// Patterns that a user imposes: the window of a block, two blocks (one before), global blocks, random ones, all.

// REDEFINE: %{mark} = attention=. window=1 block=2x2
// RUN: %{find} | FileCheck %s --check-prefix=WINDOW
// WINDOW: remark: imposed on attention.0 {{.*}}find-attention-marks.mlir:{{[0-9]+}}: 4 blocks of 2x2
// WINDOW: bsr.constant_pattern row_ptr = [0, 1, 2, 3, 4] col_idx = [0, 1, 2, 3] : !bsr.pattern<8x8, block = 2x2, slots = 4>
// WINDOW: bsr.attention({{.*}}) pattern
// REDEFINE: %{mark} = attention=. window=2 block=2x2
// RUN: %{find} | FileCheck %s --check-prefix=EVEN
// EVEN: row_ptr = [0, 1, 3, 5, 7] col_idx = [0, 0, 1, 1, 2, 2, 3]
// REDEFINE: %{mark} = attention=attention.0 window=0 global=1 block=2x4
// RUN: %{find} | FileCheck %s --check-prefix=GLOBAL
// GLOBAL: row_ptr = [0, 2, 3, 4, 5] col_idx = [0, 1, 0, 0, 0] : !bsr.pattern<8x8, block = 2x4, slots = 5>
// REDEFINE: %{mark} = attention=. window=1 random=1 seed=3 block=2x2
// RUN: %{find} | FileCheck %s --check-prefix=RANDOM
// RANDOM: row_ptr = [0, 2, 4, 6, 8]
// REDEFINE: %{mark} = attention=. block=8x8
// RUN: %{find} | FileCheck %s --check-prefix=ALL
// ALL: row_ptr = [0, 1] col_idx = [0]

// The first mark that matches counts; each has to match.

// REDEFINE: %{mark} = attention=[.]0 window=1 block=2x2,attention=. block=8x8
// RUN: %{find} | FileCheck %s --check-prefix=WINDOW
// REDEFINE: %{mark} = attention=decoder
// RUN: not %{find} | FileCheck %s --check-prefix=NONE
// NONE: error: expected 'decoder' to match the name of an attention, but got no match in 1 names: 'attention.0

// Every other message; those of attention are at the line of the program.

// REDEFINE: %{mark} = attention=. block=3x2
// RUN: not %{find} | FileCheck %s --check-prefix=DIVIDE
// DIVIDE: find-attention-marks.mlir:[[#]]:{{[0-9]+}}: error: attention.0 {{.*}}: expected blocks that divide 8 queries by 8 keys, but got 3x2
// REDEFINE: %{mark} = attention=. window=0 block=2x2
// RUN: not %{find} | FileCheck %s --check-prefix=QUERY
// QUERY: error: attention.0 {{.*}}: expected a pattern in which each query sees a key, but got none for query 0
// REDEFINE: %{mark} = attention=(
// RUN: not %{find} | FileCheck %s --check-prefix=REGEX
// REGEX: error: expected attention of a mark to be a regular expression, but got '('
// REDEFINE: %{mark} = window=3
// RUN: not %{find} | FileCheck %s --check-prefix=EMPTY
// EMPTY: error: expected attention of a mark to be a regular expression, but got ''
// REDEFINE: %{mark} = attention=. window=-1
// RUN: not %{find} | FileCheck %s --check-prefix=NUMBER
// NUMBER: error: expected window of a mark of attention to be a number of 0 or more, but got '-1'
// REDEFINE: %{mark} = attention=. block=64
// RUN: not %{find} | FileCheck %s --check-prefix=BLOCK
// BLOCK: error: expected block of a mark of attention to be <queries>x<keys>, but got '64'
// REDEFINE: %{mark} = attention=. width=3
// RUN: not %{find} | FileCheck %s --check-prefix=KEY
// KEY: error: expected attention, block, window, global, random or seed of a mark of attention, but got 'width'

#q = affine_map<(t, i, j, d) -> (t, i, d)>
#k = affine_map<(t, i, j, d) -> (t, j, d)>
#s = affine_map<(t, i, j, d) -> (t, i, j)>
#p = affine_map<(t, i, e, j) -> (t, i, j)>
#v = affine_map<(t, i, e, j) -> (t, j, e)>
#y = affine_map<(t, i, e, j) -> (t, i, e)>
#id = affine_map<(t, i, j) -> (t, i, j)>
#row = affine_map<(t, i, j) -> (t, i)>

func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x8x4xf32>, %v: tensor<2x8x4xf32>)
    -> tensor<2x8x4xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<2x8x8xf32>
  %er = tensor.empty() : tensor<2x8xf32>
  %ey = tensor.empty() : tensor<2x8x4xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
  %y0 = linalg.fill ins(%zero : f32) outs(%ey : tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x8x4xf32>, tensor<2x8x4xf32>) outs(%s0 : tensor<2x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x8x8xf32>
  %m = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<2x8x8xf32>) outs(%m0 : tensor<2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %m : tensor<2x8x8xf32>, tensor<2x8xf32>) outs(%es : tensor<2x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x8x8xf32>
  %l = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x8x8xf32>) outs(%l0 : tensor<2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %l : tensor<2x8x8xf32>, tensor<2x8xf32>) outs(%es : tensor<2x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x8x8xf32>
  %y = linalg.generic {indexing_maps = [#p, #v, #y],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>) outs(%y0 : tensor<2x8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x8x4xf32>
  return %y : tensor<2x8x4xf32>
}
