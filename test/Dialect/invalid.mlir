// RUN: sparse-opt %s --split-input-file --verify-diagnostics

// The pattern type.

// expected-error @below {{expected a matrix of at least 1x1, but got 0x16}}
func.func private @no_rows(!bsr.pattern<0x16, block = 16x16, slots = 1>)

// -----

// expected-error @below {{expected a block of at least 1x1, but got 16x0}}
func.func private @empty_block(!bsr.pattern<16x16, block = 16x0, slots = 1>)

// -----

// expected-error @below {{expected matrix 32x40 to be a multiple of block 16x16: pad it or choose another block}}
func.func private @ragged(!bsr.pattern<32x40, block = 16x16, slots = 1>)

// -----

// expected-error @below {{expected 1 to 4 slots, but got 5}}
func.func private @many_slots(!bsr.pattern<32x32, block = 16x16, slots = 5>)

// -----

// expected-error @below {{expected 1 to 4 slots, but got 0}}
func.func private @no_slots(!bsr.pattern<32x32, block = 16x16, slots = 0>)

// -----

// expected-error @below {{expected at most 2147483647 blocks (indices have 32 bits), but got 4294967296}}
func.func private @many_blocks(!bsr.pattern<65536x65536, block = 1x1, slots = 1>)

// -----

// expected-error @below {{expected a matrix of fewer than 2^63 entries, but got 4294967296x4294967296}}
func.func private @many_entries(!bsr.pattern<4294967296x4294967296, block = 4294967296x4294967296, slots = 1>)

// -----

// expected-error @below {{expected 2 extents, but got 3}}
func.func private @extents(!bsr.pattern<8x8x8, block = 1x1, slots = 1>)

// -----

// The mark attribute.

// expected-error @below {{expected a block of at least 1x1, but got 0x4}}
func.func private @mark_block(tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 0x4, density = 0.5, weight = "w">})

// -----

// expected-error @below {{argument #0: expected a weight or a mask, but got #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w"> and #bsr.mask<weight = "w">}}
func.func private @mark_and_mask(tensor<8x8xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">,
                                                  bsr.mask = #bsr.mask<weight = "w">})

// -----

// expected-error @below {{expected density in (0, 1], but got 2}}
func.func private @mark_density(tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 2.0, weight = "w">})

// -----

// expected-error @below {{argument #0: expected a float matrix of static shape to mark, but got 'tensor<?x8xf32>'}}
func.func private @mark_dynamic(tensor<?x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">})

// -----

// expected-error @below {{argument #0: expected matrix 8x6 to be a multiple of block 4x4: pad it or choose another block}}
func.func private @mark_ragged(tensor<8x6xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">})

// -----

// expected-error @below {{argument #0: expected 1 to 4 slots, but got 5}}
func.func private @mark_blocks(tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, row_ptr = [0, 2, 5], col_idx = [0, 1, 0, 1, 1], weight = "w">})

// -----

// expected-error @below {{argument #0: expected row_ptr[2] to be the number of blocks (2), but got 1}}
func.func private @mark_pattern(tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, row_ptr = [0, 1, 1], col_idx = [0, 1], weight = "w">})

// -----

// expected-error @below {{expected dims to be stacks, then at least one row, then at least one col, but got col,row}}
func.func private @mark_order(tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [col, row], weight = "w">})

// -----

// expected-error @below {{argument #0: expected dims for each of the 2 dimensions of 'tensor<8x8xf32>', but got 3}}
func.func private @mark_dims(tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">})

// -----

// expected-error @below {{argument #0: expected matrix 8x24 to be a multiple of block 4x16: pad it or choose another block}}
func.func private @mark_product(tensor<8x4x6xf32> {bsr.mark = #bsr.mark<block = 4x16, density = 0.5, dims = [row, col, col], weight = "w">})

// -----

// expected-error @below {{argument #0: expected bsr.mask to be a #bsr.mask, but got "w"}}
func.func private @mask_string(tensor<8x8xf32> {bsr.mask = "w"})

// -----

// expected-error @below {{argument #0: expected a mask to be a tensor of numbers of static shape, but got 'tensor<8x?xf32>'}}
func.func private @mask_dynamic(tensor<8x?xf32> {bsr.mask = #bsr.mask<weight = "w">})

// -----

// expected-error @below {{argument #0: expected bsr.masks to be an array of dictionaries with a name, a type and transpose, but got ["mask"]}}
func.func private @masks_strings(!bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.masks = ["mask"]})

// -----

// expected-error @below {{argument #0: expected bsr.origin to have a name, a shape, and the offsets and sizes of a slice of it, but got {name = "w"}}}
func.func private @origin(tensor<8x8xf32> {bsr.origin = {name = "w"}})

// -----

// expected-error @below {{to have a name, a shape, and the offsets and sizes of a slice of it, but got {name = "w", offsets = array<i64: 8, 0>, shape = array<i64: 12, 8>, sizes = array<i64: 8, 8>}}}
func.func private @origin_outside(tensor<8x8xf32> {
    bsr.origin = {name = "w", offsets = array<i64: 8, 0>, shape = array<i64: 12, 8>, sizes = array<i64: 8, 8>}})

// -----

// expected-error @below {{to have a name, a shape, and the offsets and sizes of a slice of it, but got {name = "w", offsets = array<i64: 0>, shape = array<i64: 12, 8>, sizes = array<i64: 8, 8>}}}
func.func private @origin_rank(tensor<8x8xf32> {
    bsr.origin = {name = "w", offsets = array<i64: 0>, shape = array<i64: 12, 8>, sizes = array<i64: 8, 8>}})

// -----

// expected-error @below {{argument #0: expected bsr.mark to be a #bsr.mark, but got 4}}
func.func private @mark_kind(tensor<8x8xf32> {bsr.mark = 4 : i64})

// -----

// The attributes of a step's arguments and results.

// expected-error @below {{argument #1: expected bsr.name to be a non-empty string, but got ""}}
func.func private @name_empty(tensor<f32>, tensor<f32> {bsr.name = ""})

// -----

// expected-error @below {{argument #0: expected bsr.role to be a non-empty string, but got 1}}
func.func private @role_kind(tensor<f32> {bsr.role = 1 : i64})

// -----

// expected-error @below {{argument #0: expected bsr.role to be apply, batch, buffer, constant, count, loss, lr, metric, param, pattern, scores, seed, state or step, but got "wheight"}}
func.func private @role(tensor<f32> {bsr.role = "wheight"})

// -----

// expected-error @below {{result #0: expected bsr.role to be apply, batch, buffer, constant, count, loss, lr, metric, param, pattern, scores, seed, state or step, but got "los"}}
func.func private @result_role() -> (tensor<f32> {bsr.role = "los"})

// -----

// expected-error @below {{argument #0: expected bsr.masks to be an array of dictionaries with a name, a type and transpose, but got}}
func.func private @masks_transpose(!bsr.pattern<8x8, block = 4x4, slots = 2>
    {bsr.masks = [{name = "m", type = tensor<8x8xi1>}]})

// -----

// expected-error @below {{argument #0: expected bsr.unsigned to be a unit attribute, but got 1}}
func.func private @unsigned(tensor<i32> {bsr.unsigned = 1 : i64})

// -----

// An argument is found where it stands.

func.func @place(%x: tensor<f32>,
                 // expected-error @below {{argument #1: expected bsr.name to be a non-empty string, but got ""}}
                 %y: tensor<f32> {bsr.name = ""}) {
  return
}

// -----

// expected-error @below {{argument #2: expected a name of its own, but got "w", the name of argument #1 with the same role}}
func.func private @name_twice(tensor<f32> {bsr.name = "w"}, tensor<f32> {bsr.name = "w", bsr.role = "param"},
                              tensor<f32> {bsr.name = "w", bsr.role = "param"})

// -----

// expected-error @below {{argument #0: expected bsr.aliases to be an array of strings, but got [1]}}
func.func private @aliases(tensor<f32> {bsr.aliases = [1]})

// -----

// expected-error @below {{argument #0: expected bsr.result to be an integer, but got "w"}}
func.func private @result_kind(tensor<f32> {bsr.result = "w"}) -> tensor<f32>

// -----

// expected-error @below {{argument #0: expected bsr.result in 0 to 0, but got 1}}
func.func private @result_index(tensor<f32> {bsr.result = 1 : i64}) -> tensor<f32>

// -----

// expected-error @below {{argument #0: expected result #0 to have the argument's type 'tensor<f32>', but got 'tensor<4xf32>'}}
func.func private @result_type(tensor<f32> {bsr.result = 0 : i64}) -> tensor<4xf32>

// -----

// expected-error @below {{argument #1: expected a result of its own, but got result #0, which carries argument #0}}
func.func private @result_twice(tensor<f32> {bsr.result = 0 : i64}, tensor<f32> {bsr.result = 0 : i64}) -> tensor<f32>

// -----

// expected-error @below {{argument #0: expected bsr.init to be zeros, ones, constant(x) or normal(stddev), but got "uniform(1)"}}
func.func private @init(tensor<f32> {bsr.init = "uniform(1)"})

// -----

// expected-error @below {{argument #0: expected bsr.init to be zeros, ones, constant(x) or normal(stddev), but got "normal(x)"}}
func.func private @init_number(tensor<f32> {bsr.init = "normal(x)"})

// -----

// expected-error @below {{argument #0: expected bsr.init to be zeros, ones, constant(x) or normal(stddev), but got "normal(-1)"}}
func.func private @init_negative(tensor<f32> {bsr.init = "normal(-1)"})

// -----

// expected-error @below {{argument #0: expected bsr.init to be zeros, ones, constant(x) or normal(stddev), but got "normal(inf)"}}
func.func private @init_infinite(tensor<f32> {bsr.init = "normal(inf)"})

// -----

// expected-error @below {{argument #0: expected bsr.init to be zeros, ones, constant(x) or normal(stddev), but got "constant(nan)"}}
func.func private @init_nan(tensor<f32> {bsr.init = "constant(nan)"})

// -----

// expected-error @below {{argument #0: expected bsr.init to be a rule for i32, but got "constant(0.5)"}}
func.func private @init_integer(tensor<i32> {bsr.init = "constant(0.5)"})

// -----

// expected-error @below {{argument #0: expected bsr.init to be a rule for i64, but got "normal(1)"}}
func.func private @init_normal_integer(memref<4xi64> {bsr.init = "normal(1)"})

// -----

// expected-error @below {{argument #0: expected bsr.init to be a rule for ui8, but got "constant(256)"}}
func.func private @init_range(tensor<4xui8> {bsr.init = "constant(256)"})

// -----

// expected-error @below {{argument #0: expected bsr.init to be a rule for ui8, but got "constant(-1)"}}
func.func private @init_unsigned(tensor<4xi8> {bsr.unsigned, bsr.init = "constant(-1)"})

// -----

// expected-error @below {{argument #0: expected bsr.density to be a float, but got 1}}
func.func private @density_kind(!bsr.pattern<8x8, block = 4x4, slots = 1> {bsr.density = 1 : i64})

// -----

// expected-error @below {{argument #0: expected density in (0, 1], but got 0}}
func.func private @density(!bsr.pattern<8x8, block = 4x4, slots = 1> {bsr.density = 0.0 : f64})

// -----

// expected-error @below {{argument #0: expected bsr.pattern to be an integer, but got "p"}}
func.func private @pattern_kind(tensor<1x4x4xf32> {bsr.pattern = "p"})

// -----

// expected-error @below {{argument #0: expected bsr.pattern to be the index of a pattern argument, but got 0}}
func.func private @pattern_index(tensor<1x4x4xf32> {bsr.pattern = 0 : i64})

// -----

// expected-error @below {{argument #0: expected values of type 'tensor<1x4x4xf32>', but got 'tensor<2x4x4xf32>'}}
func.func private @pattern_values(tensor<2x4x4xf32> {bsr.pattern = 1 : i64},
                                  !bsr.pattern<8x8, block = 4x4, slots = 1>)

// -----

// expected-error @below {{argument #0: expected values of type 'tensor<1x1x1xf32>', but got 'tensor<1x4x4xf32>'}}
func.func private @pattern_counts(tensor<1x4x4xf32> {bsr.pattern = 1 : i64, bsr.role = "count"},
                                  !bsr.pattern<8x8, block = 4x4, slots = 1>)

// -----

// expected-error @below {{argument #0: expected bsr.name, bsr.result, bsr.role, bsr.init, bsr.aliases, bsr.origin, bsr.mark, bsr.mask, bsr.masks, bsr.density, bsr.pattern, bsr.kind, bsr.pattern_number, bsr.carried or bsr.unsigned, but got bsr.nme}}
func.func private @unknown(tensor<f32> {bsr.nme = "w"})

// -----

// expected-error @below {{result #0: expected bsr.name, bsr.role or the unit attribute bsr.unsigned, but got bsr.result}}
func.func private @result_unknown() -> (tensor<f32> {bsr.result = 0 : i64})

// -----

// expected-error @below {{result #1: expected bsr.name to be a non-empty string, but got unit}}
func.func private @result_name() -> (tensor<f32>, tensor<f32> {bsr.name})

// -----

// bsr.constant_pattern

func.func @row_pointers() {
  // expected-error @below {{expected 3 row pointers, but got 2}}
  %p = bsr.constant_pattern row_ptr = [0, 1] col_idx = [0] : !bsr.pattern<32x32, block = 16x16, slots = 3>
  return
}

// -----

func.func @row_first() {
  // expected-error @below {{expected row_ptr[0] to be 0, but got 1}}
  %p = bsr.constant_pattern row_ptr = [1, 1, 1] col_idx = [0] : !bsr.pattern<32x32, block = 16x16, slots = 3>
  return
}

// -----

func.func @row_decreasing() {
  // expected-error @below {{expected row_ptr[2] to be at least 2, but got 1}}
  %p = bsr.constant_pattern row_ptr = [0, 2, 1] col_idx = [0, 1] : !bsr.pattern<32x32, block = 16x16, slots = 3>
  return
}

// -----

func.func @row_beyond() {
  // expected-error @below {{expected row_ptr[1] to be at most the number of blocks (1), but got 2}}
  %p = bsr.constant_pattern row_ptr = [0, 2, 1] col_idx = [0] : !bsr.pattern<32x32, block = 16x16, slots = 3>
  return
}

// -----

func.func @row_last() {
  // expected-error @below {{expected row_ptr[2] to be the number of blocks (1), but got 2}}
  %p = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [0] : !bsr.pattern<32x32, block = 16x16, slots = 3>
  return
}

// -----

func.func @more_blocks_than_slots() {
  // expected-error @below {{expected at most 1 blocks, but got 2}}
  %p = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [0, 0] : !bsr.pattern<32x32, block = 16x16, slots = 1>
  return
}

// -----

func.func @column_range() {
  // expected-error @below {{expected col_idx[1] in 0 to 1, but got 2}}
  %p = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [0, 2] : !bsr.pattern<32x32, block = 16x16, slots = 3>
  return
}

// -----

func.func @column_order() {
  // expected-error @below {{expected col_idx[2] to be greater than 1 (sorted and unique in block row 1), but got 1}}
  %p = bsr.constant_pattern row_ptr = [0, 1, 3] col_idx = [0, 1, 1] : !bsr.pattern<32x32, block = 16x16, slots = 3>
  return
}

// -----

// The other operations.

func.func @indices_type(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>) {
  // expected-error @below {{expected ptr of type 'tensor<5xi32>', but got 'tensor<3xi32>'}}
  %ptr, %idx, %slot = bsr.indices %p transpose
      : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<3xi32>, tensor<3xi32>, tensor<3xi32>
  return
}

// -----

func.func @live_type(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>) {
  // expected-error @below {{expected live of type 'tensor<3xi1>', but got 'tensor<8xi1>'}}
  %live = bsr.live %p : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<8xi1>
  return
}

// -----

func.func @values_type(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x8xf32>) {
  // expected-error @below {{expected values of type 'tensor<3x16x16xf32>', but got 'tensor<3x16x8xf32>'}}
  %d = bsr.to_dense %p, %v : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x8xf32> -> tensor<32x64xf32>
  return
}

// -----

func.func @dense_type(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>) {
  // expected-error @below {{expected dense matrix of type 'tensor<64x32xf32>', but got 'tensor<32x64xf32>'}}
  %d = bsr.to_dense %p, %v transpose : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32> -> tensor<32x64xf32>
  return
}

// -----

func.func @dense_element(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>) {
  // expected-error @below {{expected dense matrix of type 'tensor<32x64xf32>', but got 'tensor<32x64xbf16>'}}
  %d = bsr.to_dense %p, %v : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32> -> tensor<32x64xbf16>
  return
}

// -----

func.func @background_element(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %c: tensor<bf16>) {
  // expected-error @below {{expected background element type 'f32', but got 'bf16'}}
  %d = bsr.to_dense %p, %v background %c : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<bf16> -> tensor<32x64xf32>
  return
}

// -----

func.func @sample_dense(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %d: tensor<64x32xf32>) {
  // expected-error @below {{expected dense matrix of type 'tensor<32x64xf32>', but got 'tensor<64x32xf32>'}}
  %v = bsr.sample %p, %d : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<64x32xf32> -> tensor<3x16x16xf32>
  return
}

// -----

func.func @sample_element(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %d: tensor<32x64xf32>) {
  // expected-error @below {{expected dense matrix of type 'tensor<32x64xf16>', but got 'tensor<32x64xf32>'}}
  %v = bsr.sample %p, %d : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32x64xf32> -> tensor<3x16x16xf16>
  return
}

// -----

func.func @sample_vec_dim(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %x: tensor<32xf32>) {
  // expected-error @below {{expected dim to be 0 or 1, but got 2}}
  %v = bsr.sample_vec %p, %x dim = 2 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32xf32> -> tensor<3x16x1xf32>
  return
}

// -----

func.func @sample_vec_length(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %x: tensor<32xf32>) {
  // expected-error @below {{expected vec of type 'tensor<64xf32>', but got 'tensor<32xf32>'}}
  %v = bsr.sample_vec %p, %x dim = 1 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32xf32> -> tensor<3x1x16xf32>
  return
}

// -----

func.func @sample_vec_values(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %x: tensor<32xf32>) {
  // expected-error @below {{expected values of type 'tensor<3x16x1xf32>', but got 'tensor<3x1x16xf32>'}}
  %v = bsr.sample_vec %p, %x dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32xf32> -> tensor<3x1x16xf32>
  return
}

// -----

func.func @reduce_vec_values(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x8xf32>) {
  // expected-error @below {{expected values of type 'tensor<3x16x16xf32>', but got 'tensor<3x16x8xf32>'}}
  %x = bsr.reduce_vec %p, %v dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x8xf32> -> tensor<32xf32>
  return
}

// -----

func.func @reduce_vec_background(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %c: tensor<bf16>) {
  // expected-error @below {{expected background element type 'f32', but got 'bf16'}}
  %x = bsr.reduce_vec %p, %v background %c dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<bf16> -> tensor<32xf32>
  return
}

// -----

func.func @reduce_vec_dim(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>) {
  // expected-error @below {{expected dim to be 0 or 1, but got -1}}
  %x = bsr.reduce_vec %p, %v dim = -1 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32> -> tensor<32xf32>
  return
}

// -----

func.func @reduce_vec_length(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>) {
  // expected-error @below {{expected vec of type 'tensor<32xf32>', but got 'tensor<64xf32>'}}
  %x = bsr.reduce_vec %p, %v dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32> -> tensor<64xf32>
  return
}

// -----

func.func @reduce_vec_element(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>) {
  // expected-error @below {{expected vec element type 'f32', but got 'bf16'}}
  %x = bsr.reduce_vec %p, %v dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32> -> tensor<32xbf16>
  return
}

// -----

func.func @feature_range(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %x: tensor<8x32xf32>) {
  // expected-error @below {{expected feature_dim in 0 to 1, but got 2}}
  %y = bsr.spmm %p, %v, %x feature_dim = 2
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<8x32xf32> -> tensor<8x64xf32>
  return
}

// -----

func.func @features(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %x: tensor<8x32xf32>) {
  // expected-error @below {{expected dimension 1 of x to have 64 features, but got 32}}
  %y = bsr.spmm %p, %v, %x transpose feature_dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<8x32xf32> -> tensor<8x64xf32>
  return
}

// -----

func.func @spmm_result(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %x: tensor<8x32xf32>) {
  // expected-error @below {{expected y of type 'tensor<8x64xf32>', but got 'tensor<9x64xf32>'}}
  %y = bsr.spmm %p, %v, %x feature_dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<8x32xf32> -> tensor<9x64xf32>
  return
}

// -----

func.func @sample_vec_batch(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %x: tensor<2x32xf32>) {
  // expected-error @below {{expected values of type 'tensor<2x3x16x1xf32>', but got 'tensor<3x16x1xf32>'}}
  %v = bsr.sample_vec %p, %x dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x32xf32> -> tensor<3x16x1xf32>
  return
}

// -----

func.func @reduce_vec_batch(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<2x3x16x16xf32>) {
  // expected-error @below {{expected vec of type 'tensor<2x32xf32>', but got 'tensor<32xf32>'}}
  %x = bsr.reduce_vec %p, %v dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x3x16x16xf32> -> tensor<32xf32>
  return
}

// -----

func.func @reduce_vec_max(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %c: tensor<f32>) {
  // expected-error @below {{expected no background of maxima, but got 'tensor<f32>'}}
  %x = bsr.reduce_vec %p, %v background %c max dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<f32> -> tensor<32xf32>
  return
}

// -----

func.func @spmm_batched_values(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<2x4x16x16xf32>, %x: tensor<2x8x32xf32>) {
  // expected-error @below {{expected values of type 'tensor<2x3x16x16xf32>', but got 'tensor<2x4x16x16xf32>'}}
  %y = bsr.spmm %p, %v, %x feature_dim = 2 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x4x16x16xf32>, tensor<2x8x32xf32> -> tensor<2x8x64xf32>
  return
}

// -----

func.func @spmm_batch(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<2x4x3x16x16xf32>, %x: tensor<4x2x32xf32>) {
  // expected-error @below {{expected x to begin with the dimensions 2x4 of the values, but got 'tensor<4x2x32xf32>'}}
  %y = bsr.spmm %p, %v, %x feature_dim = 2 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x4x3x16x16xf32>, tensor<4x2x32xf32> -> tensor<4x2x64xf32>
  return
}

// -----

func.func @spmm_batch_feature_dim(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<32x3x16x16xf32>, %x: tensor<32x8xf32>) {
  // expected-error @below {{expected feature_dim in 1 to 1, but got 0}}
  %y = bsr.spmm %p, %v, %x feature_dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32x3x16x16xf32>, tensor<32x8xf32> -> tensor<64x8xf32>
  return
}

// -----

func.func @sddmm_batch(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %a: tensor<8x32xf32>, %b: tensor<8x64xf32>) {
  // expected-error @below {{expected a to begin with the dimensions 2 of the values, but got 'tensor<8x32xf32>'}}
  %v = bsr.sddmm %p, %a, %b feature_dim = 1 : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<8x32xf32>, tensor<8x64xf32> -> tensor<2x3x16x16xf32>
  return
}

// -----

func.func @sddmm_a(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %a: tensor<8x64xf32>, %b: tensor<8x64xf32>) {
  // expected-error @below {{expected dimension 1 of a to have 32 features, but got 64}}
  %v = bsr.sddmm %p, %a, %b feature_dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<8x64xf32>, tensor<8x64xf32> -> tensor<3x16x16xf32>
  return
}

// -----

func.func @sddmm_tokens(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %a: tensor<8x32xf32>, %b: tensor<9x64xf32>) {
  // expected-error @below {{expected b of type 'tensor<8x64xf32>', but got 'tensor<9x64xf32>'}}
  %v = bsr.sddmm %p, %a, %b feature_dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<8x32xf32>, tensor<9x64xf32> -> tensor<3x16x16xf32>
  return
}

// -----

func.func @block_scores_tokens(%a: tensor<8x32xf32>, %b: tensor<9x64xf32>) {
  // expected-error @below {{expected b of type 'tensor<8x64xf32>', but got 'tensor<9x64xf32>'}}
  %s = bsr.block_scores l2 %a, %b feature_dim = 1 : tensor<8x32xf32>, tensor<9x64xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @block_scores_feature_dim(%a: tensor<8x32xf32>, %b: tensor<8x64xf32>) {
  // expected-error @below {{expected feature_dim in 0 to 1, but got 2}}
  %s = bsr.block_scores l2 %a, %b feature_dim = 2 : tensor<8x32xf32>, tensor<8x64xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @block_scores_rows(%a: tensor<8x32xf32>, %b: tensor<8x64xf32>) {
  // expected-error @below {{expected a number of scores that divides the 32 features of a, but got 3}}
  %s = bsr.block_scores l2 %a, %b feature_dim = 1 : tensor<8x32xf32>, tensor<8x64xf32> -> tensor<3x4xf32>
  return
}

// -----

func.func @block_scores_cols(%a: tensor<8x32xf32>, %b: tensor<8x64xf32>) {
  // expected-error @below {{expected a number of scores that divides the 64 features of b, but got 0}}
  %s = bsr.block_scores l2 %a, %b feature_dim = 1 : tensor<8x32xf32>, tensor<8x64xf32> -> tensor<2x0xf32>
  return
}

// -----

func.func @spmm_halves(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %x: tensor<8x32xbf16>) {
  // expected-error @below {{expected elements of f16 or of bf16, but got both in one product}}
  %y = bsr.spmm %p, %v, %x feature_dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<8x32xbf16> -> tensor<8x64xf16>
  return
}

// -----

func.func @sddmm_halves(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %a: tensor<8x32xf16>, %b: tensor<8x64xf16>) {
  // expected-error @below {{expected elements of f16 or of bf16, but got both in one product}}
  %v = bsr.sddmm %p, %a, %b feature_dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<8x32xf16>, tensor<8x64xf16> -> tensor<3x16x16xbf16>
  return
}

// -----

func.func @spmm_bias(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>, %x: tensor<8x32xf32>, %b: tensor<32xf32>) {
  // expected-error @below {{expected bias of type 'tensor<64xf32>', but got 'tensor<32xf32>'}}
  %y = bsr.spmm %p, %v, %x bias %b feature_dim = 1
      : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>, tensor<8x32xf32>, tensor<32xf32> -> tensor<8x64xf32>
  return
}

// -----

// Attributes of functions and operations: what the dialect does not know, or
// knows of others, is refused with the names that it knows.

// expected-error @below {{'func.func' op expected bsr.accumulates, bsr.arena_bytes, bsr.attention, bsr.communicates, bsr.flops, bsr.grouped, bsr.kind, bsr.left_dense, bsr.live_bytes, bsr.micro_batches, bsr.patterns, bsr.products, bsr.replicas, bsr.score_norm, bsr.scores, bsr.sharded, bsr.stages, bsr.timers, bsr.unmasked, bsr.unused, bsr.whole_shapes or bsr.work, but got bsr.arena}}
func.func private @function_unknown() attributes {bsr.arena = 64 : i64}

// -----

// expected-error @below {{'builtin.module' op expected bsr.lanes, bsr.peak, bsr.recomputed, bsr.stored or bsr.target, but got bsr.tarket}}
module attributes {bsr.tarket = #bsr.cpu} {
}

// -----

// expected-error @below {{expected bsr.target to be a target, such as #bsr.cpu, but got "avx"}}
module attributes {bsr.target = "avx"} {
}

// -----

// expected-error @below {{expected chip to be sm_80, sm_86, sm_89, sm_90, sm_90a or sm_100a, but got 'sm_70'}}
module attributes {bsr.target = #bsr.gpu<chip = "sm_70">} {
}

// -----

// expected-error @below {{expected tile_outputs to be 0 or a power of 2 from 64 to 512, but got 96}}
module attributes {bsr.target = #bsr.gpu<tile_outputs = 96>} {
}

// -----

// expected-error @below {{expected tile_tokens to be 0 or a power of 2 from 32 to 256, but got 512}}
module attributes {bsr.target = #bsr.gpu<tile_tokens = 512>} {
}

// -----

// expected-error @below {{expected share_outputs to be 0 or a power of 2 from 1 to 8, but got 3}}
module attributes {bsr.target = #bsr.gpu<share_outputs = 3, share_tokens = 1>} {
}

// -----

// expected-error @below {{expected share_tokens to be 0 or a power of 2 from 1 to 4, but got 8}}
module attributes {bsr.target = #bsr.gpu<share_outputs = 1, share_tokens = 8>} {
}

// -----

// expected-error @below {{expected share_outputs and share_tokens to be at most 8 together, and share_tokens 0 where share_outputs is, but got 4 and 4}}
module attributes {bsr.target = #bsr.gpu<share_outputs = 4, share_tokens = 4>} {
}

// -----

// expected-error @below {{expected share_outputs and share_tokens to be at most 8 together, and share_tokens 0 where share_outputs is, but got 0 and 2}}
module attributes {bsr.target = #bsr.gpu<share_tokens = 2>} {
}

// -----

// expected-error @below {{expected share_outputs and share_tokens on a chip with wgmma, but got 'sm_90'}}
module attributes {bsr.target = #bsr.gpu<chip = "sm_90", share_outputs = 2, share_tokens = 1>} {
}

// -----

// expected-error @below {{expected vector_bits to be a power of 2 from 64 to 4096, but got 96}}
module attributes {bsr.target = #bsr.cpu<vector_bits = 96>} {
}

// -----

// expected-error @below {{expected num_registers to be 8 to 256, but got 0}}
module attributes {bsr.target = #bsr.cpu<num_registers = 0>} {
}

// -----

// expected-error @below {{expected l1_bytes to be 4096 to 16777216, but got 100}}
module attributes {bsr.target = #bsr.cpu<l1_bytes = 100>} {
}

// -----

// expected-error @below {{expected l2_bytes to be from l1_bytes, 32768, to 16777216, but got 4096}}
module attributes {bsr.target = #bsr.cpu<l2_bytes = 4096>} {
}

// -----

func.func @operation_unknown(%x: tensor<f32>) {
  // expected-error @below {{'tensor.extract' op expected bsr.lanes, bsr.peak, bsr.recomputed or bsr.stored, but got bsr.name}}
  %0 = tensor.extract %x[] {bsr.name = "x"} : tensor<f32>
  return
}

// -----

func.func @constant_unknown() {
  // expected-error @below {{'bsr.constant_pattern' op expected bsr.lanes, bsr.name, bsr.peak, bsr.recomputed or bsr.stored, but got bsr.panels}}
  %0 = bsr.constant_pattern row_ptr = [0, 1, 1] col_idx = [0] {bsr.panels = array<i64: 0>} : !bsr.pattern<8x8, block = 4x4, slots = 1>
  return
}

// -----

// expected-error @below {{but got bsr.nme}}
module attributes {bsr.nme = "w"} {}

// -----

// expected-error @below {{expected bsr.arena_bytes to be a 64-bit integer, 0 or greater, but got "64"}}
func.func private @arena_bytes() attributes {bsr.arena_bytes = "64"}

// -----

// expected-error @below {{expected bsr.grouped to be matmul, matmul_transposed or outer, but got "product"}}
func.func private @grouped_kind() attributes {bsr.grouped = "product"}

// -----

// expected-error @below {{expected bsr.attention to be a dictionary of operands, some of q, k, v, dy, bias, mask and kept in this order, of the first three all, a scale, and of a kept_factor if there is kept, finite numbers of 64 bits, but got {operands = ["q", "v", "k"], scale = 1.000000e+00 : f64}}}
func.func private @attention_order() attributes {bsr.attention = {operands = ["q", "v", "k"], scale = 1.0}}

// -----

// expected-error @below {{expected bsr.attention to be a dictionary of operands}}
func.func private @attention_operands() attributes {bsr.attention = {operands = ["q", "k"], scale = 1.0}}

// -----

// expected-error @below {{expected bsr.attention to be a dictionary of operands}}
func.func private @attention_name() attributes {bsr.attention = {operands = ["q", "k", "v", "lse"], scale = 1.0}}

// -----

// expected-error @below {{expected bsr.attention to be a dictionary of operands}}
func.func private @attention_scale() attributes {bsr.attention = {operands = ["q", "k", "v"], scale = 0x7F800000 : f32}}

// -----

// expected-error @below {{expected bsr.attention to be a dictionary of operands}}
func.func private @attention_kept() attributes {bsr.attention = {operands = ["q", "k", "v", "kept"], scale = 1.0}}

// -----

// expected-error @below {{expected bsr.live_bytes to be a 64-bit integer, 0 or greater, but got 4 : i32}}
func.func private @live_bytes() attributes {bsr.live_bytes = 4 : i32}

// -----

// expected-error @below {{expected bsr.left_dense to be a 64-bit integer, 0 or greater, but got -1}}
func.func private @left_dense() attributes {bsr.left_dense = -1 : i64}

// -----

// expected-error @below {{expected bsr.flops to be a 64-bit integer, 0 or greater, but got 1.000000e+00}}
func.func private @flops() attributes {bsr.flops = 1.0 : f64}

// -----

// expected-error @below {{expected bsr.kind to be a non-empty string, but got ""}}
func.func private @kind() attributes {bsr.kind = ""}

// -----

// expected-error @below {{expected bsr.patterns to be a list of patterns, each with a name, a type, and its row_ptr and col_idx if it is static, but got [{}]}}
func.func private @patterns() attributes {bsr.patterns = [{}]}

// -----

// expected-error @below {{expected bsr.patterns to be a list of patterns}}
func.func private @patterns_static() attributes {
    bsr.patterns = [{name = "w", type = !bsr.pattern<8x8, block = 4x4, slots = 2>, row_ptr = array<i32: 0, 1, 2>}]}

// -----

// expected-error @below {{expected bsr.patterns to be a list of patterns}}
func.func private @patterns_masks() attributes {
    bsr.patterns = [{name = "w", type = !bsr.pattern<8x8, block = 4x4, slots = 2>, masks = ["m"]}]}

// -----

// expected-error @below {{expected bsr.products to be a dictionary of 64-bit integers, 0 or greater, but got {spmm = "x"}}}
func.func private @products() attributes {bsr.products = {spmm = "x"}}

// -----

// expected-error @below {{expected bsr.work to be a dictionary of dense and scores, 64-bit integers, 0 or greater, and blocks, a dictionary of these, but got {blocks = {w = -1 : i64}, dense = 0 : i64, scores = 0 : i64}}}
func.func private @work() attributes {bsr.work = {blocks = {w = -1 : i64}, dense = 0 : i64, scores = 0 : i64}}

// -----

// expected-error @below {{expected bsr.score_norm to be l1, l2 or linf, but got "l3"}}
func.func private @score_norm() attributes {bsr.score_norm = "l3"}

// -----

// expected-error @below {{expected bsr.scores to be a list of scores, each with a name, an offset and a type, but got [{}]}}
func.func private @scores() attributes {bsr.scores = [{}]}

// -----

// expected-error @below {{expected bsr.timers to be a list of dictionaries of strings and 64-bit integers, but got [1]}}
func.func private @timers() attributes {bsr.timers = [1]}

// -----

// expected-error @below {{expected bsr.stages to be the number of a stage and a greater one, that of all stages, but got array<i64: 2, 2>}}
func.func private @stages() attributes {bsr.stages = array<i64: 2, 2>}

// -----

// expected-error @below {{expected bsr.whole_shapes to be a dictionary of arrays of 64-bit integers, but got {a = 1 : i64}}}
func.func private @shapes() attributes {bsr.whole_shapes = {a = 1 : i64}}

// -----

// expected-error @below {{expected bsr.unmasked to be a list of non-empty strings, but got [""]}}
func.func private @unmasked() attributes {bsr.unmasked = [""]}

// -----

// expected-error @below {{expected bsr.unused to be a list of non-empty strings, but got "w"}}
func.func private @unused() attributes {bsr.unused = "w"}

// -----

func.func @units(%x: tensor<f32>) {
  // expected-error @below {{expected bsr.recomputed to be a unit attribute, but got 1}}
  %0 = tensor.extract %x[] {bsr.recomputed = 1 : i64} : tensor<f32>
  return
}

// -----

func.func @constant_name() {
  // expected-error @below {{expected bsr.name to be a non-empty string, but got unit}}
  %0 = bsr.constant_pattern row_ptr = [0, 1, 1] col_idx = [0] {bsr.name} : !bsr.pattern<8x8, block = 4x4, slots = 1>
  return
}

// -----

func.func private @kernel(%x: memref<4xf32>, %y: memref<4xf32>) { return }
func.func @panels(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{expected bsr.panels to be an array of 64-bit integers, but got "x"}}
  %0 = bsr.launch @kernel ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {bsr.panels = "x"} -> tensor<4xf32>
  return
}

// -----

func.func @scores_of() {
  // expected-error @below {{expected bsr.scores to be a non-empty string, but got []}}
  %0 = memref.alloc() {bsr.scores = []} : memref<4xf32>
  return
}

// -----

// expected-error @below {{argument #0: expected a matrix of more than one entry to mark, but got 'tensor<3x1x1xf32>'}}
func.func private @one_entry(tensor<3x1x1xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 1x1, density = 1.0, dims = [stack, row, col], weight = "w">})

// -----

// expected-error @below {{argument #0: expected a bsr.name beside bsr.mark, but got none}}
func.func private @nameless_weight(tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">})

// -----

// expected-error @below {{argument #0: expected a bsr.name beside bsr.mask, but got none}}
func.func private @nameless_mask(tensor<8x8xi1> {bsr.mask = #bsr.mask<weight = "w">})

// -----

func.func @gradient_outside(%g: f32) -> f32 {
  // expected-error @below {{'bsr.gradient' op expected an element-wise linalg.generic with one result around it, but got 'func.func'}}
  %r = bsr.gradient %g at %g : f32, f32
  return %r : f32
}

// -----

func.func @gradient_sum(%g: tensor<4xf32>, %s: tensor<f32>) -> tensor<f32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
      ins(%g : tensor<4xf32>) outs(%s : tensor<f32>) {
  ^bb0(%a: f32, %out: f32):
    // expected-error @below {{expected an element-wise linalg.generic with one result around it, but got 'linalg.generic'}}
    %r = bsr.gradient %a at %a : f32, f32
    linalg.yield %r : f32
  } -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func @gradient_computed(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%g : tensor<4xf32>) outs(%g : tensor<4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %n = arith.negf %a : f32
    // expected-error @below {{expected to be all that its operation computes, but got a body of 3 operations}}
    %r = bsr.gradient %n at %a : f32, f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @gradient_of_transpose(%g: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%g, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%g : tensor<4x4xf32>) {
  ^bb0(%a: f32, %at: f32, %out: f32):
    // expected-error @below {{expected an identity map of the value, but got affine_map<(d0, d1) -> (d1, d0)>}}
    %r = bsr.gradient %a at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

func.func @gradient_transposed(%g: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%g, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%g : tensor<4x4xf32>) {
  ^bb0(%a: f32, %at: f32, %out: f32):
    // expected-error @below {{expected an identity map of the result, but got affine_map<(d0, d1) -> (d1, d0)>}}
    %r = bsr.gradient %a at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
