// RUN: sparse-opt --split-input-file --bsr-split-weights --canonicalize --verify-diagnostics %s | FileCheck %s

// A matrix, its moment and its mask, which lies as the transpose, are cut where slices of a cast
// begin and end; the next values are those of the parts.

// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<4x12xf32> {bsr.aliases = ["tied.0"], bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w.0">, bsr.name = "w.0", bsr.origin = {name = "w", offsets = array<i64: 0, 0>, shape = array<i64: 16, 12>, sizes = array<i64: 4, 12>}, bsr.result = 0 : i64},
// CHECK-SAME:    %[[W1:[^:]*]]: tensor<8x12xf32> {bsr.aliases = ["tied.1"], bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w.1">, bsr.name = "w.1", bsr.origin = {name = "w", offsets = array<i64: 4, 0>, shape = array<i64: 16, 12>, sizes = array<i64: 8, 12>}, bsr.result = 1 : i64},
// CHECK-SAME:    %[[W2:[^:]*]]: tensor<4x12xf32> {bsr.aliases = ["tied.2"], bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w.2">, bsr.name = "w.2", bsr.origin = {name = "w", offsets = array<i64: 12, 0>, shape = array<i64: 16, 12>, sizes = array<i64: 4, 12>}, bsr.result = 2 : i64},
// CHECK-SAME:    %{{[^:]*}}: tensor<4x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w.0">, bsr.name = "m.0",
// CHECK-SAME:    tensor<8x12xf32> {{{.*}}bsr.name = "m.1",
// CHECK-SAME:    tensor<4x12xf32> {{{.*}}bsr.name = "m.2",
// CHECK-SAME:    tensor<12x4xi1> {bsr.mask = #bsr.mask<weight = "w.0", transpose = true>, bsr.name = "mask.0", bsr.origin = {name = "mask", offsets = array<i64: 0, 0>, shape = array<i64: 12, 16>, sizes = array<i64: 12, 4>}},
// CHECK-SAME:    tensor<12x8xi1> {{{.*}}offsets = array<i64: 0, 4>
// CHECK-SAME:    tensor<12x4xi1> {{{.*}}offsets = array<i64: 0, 12>
// CHECK-SAME:    %[[X:[^:]*]]: tensor<5x12xf32> {bsr.name = "x", bsr.result = 6 : i64})
// CHECK-SAME:    -> (tensor<4x12xf32> {bsr.name = "next.0"}, tensor<8x12xf32> {bsr.name = "next.1"}, tensor<4x12xf32> {bsr.name = "next.2"}, tensor<4x12xf32>, tensor<8x12xf32>, tensor<4x12xf32>, tensor<5x12xf32>, tensor<8x12xbf16> {bsr.name = "y"})
// CHECK:         %[[CAST:.*]] = linalg.generic
// CHECK:         %[[Y:.*]] = tensor.extract_slice %[[CAST]][4, 0] [8, 12]
// CHECK:         return %[[W0]], %[[W1]], %[[W2]], {{.*}}, %[[X]], %[[Y]]
#id = affine_map<(r, c) -> (r, c)>
// expected-warning @below {{weight "w" becomes matrices with patterns of their own, because the step takes slices of it: "w.0" from row 0, "w.1" from row 4, "w.2" from row 12}}
func.func @rows(%w: tensor<16x12xf32> {bsr.aliases = ["tied"],
                    bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                    bsr.name = "w", bsr.result = 0 : i64},
                %m: tensor<16x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                    bsr.name = "m", bsr.result = 1 : i64},
                %mask: tensor<12x16xi1> {bsr.mask = #bsr.mask<weight = "w", transpose = true>, bsr.name = "mask"},
                %x: tensor<5x12xf32> {bsr.name = "x", bsr.result = 2 : i64})
    -> (tensor<16x12xf32> {bsr.name = "next"}, tensor<16x12xf32>, tensor<5x12xf32>, tensor<8x12xbf16> {bsr.name = "y"}) {
  %empty = tensor.empty() : tensor<16x12xbf16>
  %cast = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<16x12xf32>) outs(%empty : tensor<16x12xbf16>) {
  ^bb0(%a: f32, %out: bf16):
    %b = arith.truncf %a : f32 to bf16
    linalg.yield %b : bf16
  } -> tensor<16x12xbf16>
  %y = tensor.extract_slice %cast[4, 0] [8, 12] [1, 1] : tensor<16x12xbf16> to tensor<8x12xbf16>
  return %w, %m, %x, %y : tensor<16x12xf32>, tensor<16x12xf32>, tensor<5x12xf32>, tensor<8x12xbf16>
}

// -----

// A slice of rows of the transpose is one of columns; a slice of the argument is a part.

// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    tensor<16x8xf32> {{{.*}}bsr.name = "w.0", bsr.origin = {name = "w", offsets = array<i64: 0, 0>, shape = array<i64: 16, 12>, sizes = array<i64: 16, 8>}},
// CHECK-SAME:    %[[W1:[^:]*]]: tensor<16x4xf32> {{{.*}}bsr.name = "w.1", bsr.origin = {name = "w", offsets = array<i64: 0, 8>, shape = array<i64: 16, 12>, sizes = array<i64: 16, 4>}})
// CHECK:         return %{{.*}}, %[[W1]]
// expected-warning @below {{"w.0" from column 0, "w.1" from column 8}}
func.func @columns(%w: tensor<16x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                                          bsr.name = "w"})
    -> (tensor<8x16xf32> {bsr.name = "y"}, tensor<16x4xf32> {bsr.name = "z"}) {
  %empty = tensor.empty() : tensor<12x16xf32>
  %t = linalg.transpose ins(%w : tensor<16x12xf32>) outs(%empty : tensor<12x16xf32>) permutation = [1, 0]
  %y = tensor.extract_slice %t[0, 0] [8, 16] [1, 1] : tensor<12x16xf32> to tensor<8x16xf32>
  %z = tensor.extract_slice %w[0, 8] [16, 4] [1, 1] : tensor<16x12xf32> to tensor<16x4xf32>
  return %y, %z : tensor<8x16xf32>, tensor<16x4xf32>
}

// -----

// A matrix of a stack has an origin already: its parts lie in that.

// CHECK-LABEL: func.func @of_stack(
// CHECK-SAME:    bsr.name = "w.1.0", bsr.origin = {name = "w", offsets = array<i64: 1, 0, 0>, shape = array<i64: 2, 16, 12>, sizes = array<i64: 1, 8, 12>}},
// CHECK-SAME:    bsr.name = "w.1.1", bsr.origin = {name = "w", offsets = array<i64: 1, 8, 0>, shape = array<i64: 2, 16, 12>, sizes = array<i64: 1, 8, 12>}})
// expected-warning @below {{weight "w.1" becomes matrices}}
func.func @of_stack(%w: tensor<16x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w.1">,
                        bsr.name = "w.1",
                        bsr.origin = {name = "w", shape = array<i64: 2, 16, 12>, offsets = array<i64: 1, 0, 0>, sizes = array<i64: 1, 16, 12>}})
    -> (tensor<8x12xf32> {bsr.name = "y"}) {
  %y = tensor.extract_slice %w[0, 0] [8, 12] [1, 1] : tensor<16x12xf32> to tensor<8x12xf32>
  return %y : tensor<8x12xf32>
}

// -----

// These stay: cut in both dimensions, vectors, a static pattern, no slices at all.

// CHECK-LABEL: func.func @stay(
// CHECK-SAME:    tensor<16x12xf32> {{{.*}}bsr.name = "both"
// CHECK-SAME:    tensor<16x12xf32> {{{.*}}bsr.name = "vector"
// CHECK-SAME:    tensor<4x8xf32> {{{.*}}bsr.name = "static"
// CHECK-SAME:    tensor<16x12xf32> {{{.*}}bsr.name = "whole"
func.func @stay(%b: tensor<16x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "both">, bsr.name = "both"},
                %v: tensor<16x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "vector">, bsr.name = "vector"},
                %s: tensor<4x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, row_ptr = [0, 1], col_idx = [1], weight = "static">, bsr.name = "static"},
                %w: tensor<16x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "whole">, bsr.name = "whole"})
    -> (tensor<8x4xf32> {bsr.name = "y"}, tensor<12xf32> {bsr.name = "z"}, tensor<4x4xf32> {bsr.name = "u"}) {
  %y = tensor.extract_slice %b[0, 0] [8, 4] [1, 1] : tensor<16x12xf32> to tensor<8x4xf32>
  %z = tensor.extract_slice %v[0, 0] [1, 12] [1, 1] : tensor<16x12xf32> to tensor<12xf32>
  %u = tensor.extract_slice %s[0, 4] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  return %y, %z, %u : tensor<8x4xf32>, tensor<12xf32>, tensor<4x4xf32>
}

// -----

// CHECK-LABEL: func.func @in_blocks(
// CHECK-SAME:    tensor<16x12xf32> {{{.*}}bsr.name = "w"
// expected-warning @below {{weight "w": expected slices to begin and end at multiples of 4 columns, its blocks', but got column 6: what is computed with them stays dense}}
func.func @in_blocks(%w: tensor<16x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                                            bsr.name = "w"}) -> (tensor<16x6xf32> {bsr.name = "y"}) {
  %y = tensor.extract_slice %w[0, 0] [16, 6] [1, 1] : tensor<16x12xf32> to tensor<16x6xf32>
  return %y : tensor<16x6xf32>
}

// -----

// expected-warning @below {{weight "w" becomes matrices}}
// expected-error @below {{expected no argument named "w.1" beside "w", which has a part of that name, but got argument #1}}
func.func @taken(%w: tensor<16x12xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">, bsr.name = "w"},
                 %x: tensor<4xf32> {bsr.name = "w.1"}) -> (tensor<8x12xf32> {bsr.name = "y"}) {
  %y = tensor.extract_slice %w[0, 0] [8, 12] [1, 1] : tensor<16x12xf32> to tensor<8x12xf32>
  return %y : tensor<8x12xf32>
}

// -----

// A part of one entry would be a number, which has no pattern.
// CHECK-LABEL: func.func @one_entry(
// CHECK-SAME:    tensor<1x3xf32> {{{.*}}bsr.name = "w"
// CHECK-SAME:    tensor<1x3xf32> {{{.*}}bsr.name = "w.m"
// expected-warning @below {{weight "w": expected slices of more than one entry, but got one: what is computed with them stays dense}}
func.func @one_entry(%w: tensor<1x3xf32> {bsr.mark = #bsr.mark<block = 1x1, density = 0.5, weight = "w">, bsr.name = "w"},
                     %m: tensor<1x3xf32> {bsr.mark = #bsr.mark<block = 1x1, density = 0.5, weight = "w">, bsr.name = "w.m"})
    -> (tensor<1x2xf32> {bsr.name = "y"}, tensor<1x3xf32> {bsr.name = "z"}) {
  %y = tensor.extract_slice %w[0, 1] [1, 2] [1, 1] : tensor<1x3xf32> to tensor<1x2xf32>
  return %y, %m : tensor<1x2xf32>, tensor<1x3xf32>
}
