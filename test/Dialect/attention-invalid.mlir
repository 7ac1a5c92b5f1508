// RUN: sparse-opt %s --split-input-file --verify-diagnostics

// A map for each tensor.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected 4 maps, but got 3}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// Queries have rows and features.
func.func @f(%q: tensor<8xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected q of at least 2 dimensions, but got 'tensor<8xf32>'}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<8xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// Maps are from all dimensions.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected a map of k from 5 dimensions to 3, but got affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d) -> (t, i, j)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// Keys are not indexed by queries.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected a map of k to some batch dimensions, d2 and d3 in some order, but got affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3)>}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// A dimension is there once.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected a map of v to some batch dimensions, d2 and d4 in some order, but got affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d2)>}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, j)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// As many keys as values.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x7x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected v to have extent 6 along d2, but got 'tensor<3x7x5xf32>'}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x7x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// No empty attention.
func.func @f(%q: tensor<3x0x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected q to have extent 1 along d1, but got 'tensor<3x0x4xf32>'}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x0x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// A bias has dimensions of scores.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>, %b: tensor<8x4xf32>) {
  // expected-error @below {{'bsr.attention' op expected a map of bias to dimensions of the scores, each at most once, or to 0 where its extent is 1, but got affine_map<(d0, d1, d2, d3, d4) -> (d1, d3)> for 'tensor<8x4xf32>'}}
  %y, %lse = bsr.attention(%q, %k, %v) bias %b scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>,
              affine_map<(t, i, j, d, e) -> (i, d)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<8x4xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// A mask is as large as the scores.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>, %b: tensor<8x5xi1>) {
  // expected-error @below {{'bsr.attention' op expected mask to have extent 6 along d2, but got 'tensor<8x5xi1>'}}
  %y, %lse = bsr.attention(%q, %k, %v) mask %b scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>,
              affine_map<(t, i, j, d, e) -> (i, j)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<8x5xi1>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// f16 and bf16 do not meet.
func.func @f(%q: tensor<3x8x4xf16>, %k: tensor<3x6x4xbf16>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected elements of f16 or of bf16, but got both in one product}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf16>, tensor<3x6x4xbf16>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// Statistics are of rows.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected lse of type 'tensor<2x3x8xf32>', but got 'tensor<2x3x6xf32>'}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x6xf32>)
  return
}

// -----

// Statistics of f64 are f64.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf64>) {
  // expected-error @below {{'bsr.attention' op expected lse of type 'tensor<2x3x8xf64>', but got 'tensor<2x3x8xf32>'}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf64>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// The scale is a number.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected a finite scale, but got 0x7FF0000000000000 : f64}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 0x7FF0000000000000
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// What is filled in is below infinity.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected a fill below infinity, but got 0x7FF0000000000000 : f64}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00 fill = 0x7FF0000000000000
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// A pattern is of queries and keys.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>, %p: !bsr.pattern<6x8, block = 2x4, slots = 3>) {
  // expected-error @below {{'bsr.attention' op expected a pattern of 8x6 queries and keys, but got '!bsr.pattern<6x8, block = 2x4, slots = 3>'}}
  %y, %lse = bsr.attention(%q, %k, %v) pattern %p scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, !bsr.pattern<6x8, block = 2x4, slots = 3>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// Gradients lie as their maps say.
#q = affine_map<(t, i, j, d, e) -> (t, i, d)>
#k = affine_map<(t, i, j, d, e) -> (t, j, d)>
#v = affine_map<(t, i, j, d, e) -> (t, j, e)>
#y = affine_map<(t, i, j, d, e) -> (t, i, e)>
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>, %y: tensor<3x8x5xf32>,
             %lse: tensor<2x3x8xf32>) {
  // expected-error @below {{'bsr.attention_grad' op expected dk to have extent 6 along d2, but got 'tensor<3x8x4xf32>'}}
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %y) scale = 1.000000e+00
      maps = [#q, #k, #v, #y, #y, #q, #k, #v]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<3x8x5xf32>, tensor<2x3x8xf32>,
         tensor<3x8x5xf32>) -> (tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<3x6x5xf32>)
  return
}

// -----

// Keys leave out batch dimensions, but queries have all.
func.func @f(%q: tensor<8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected a map of q from 4 dimensions to 2, but got affine_map<(d0, d1, d2, d3, d4) -> (d1, d3)>}}
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (i, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// The factor has a map, too.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<6x4xf32>, %v: tensor<3x6x5xf32>, %f: tensor<3x8x6xf32>) {
  // expected-error @below {{'bsr.attention' op expected 5 maps, but got 4}}
  %y, %lse = bsr.attention(%q, %k, %v) factor %f scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>]
      : (tensor<3x8x4xf32>, tensor<6x4xf32>, tensor<3x6x5xf32>, tensor<3x8x6xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

// The factor is one of scores.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<6x4xf32>, %v: tensor<3x6x5xf32>, %f: tensor<3x8x5xf32>) {
  // expected-error @below {{'bsr.attention' op expected factor to have extent 6 along d2, but got 'tensor<3x8x5xf32>'}}
  %y, %lse = bsr.attention(%q, %k, %v) factor %f scale = 1.000000e+00
      maps = [affine_map<(t, i, j, d, e) -> (t, i, d)>,
              affine_map<(t, i, j, d, e) -> (j, d)>,
              affine_map<(t, i, j, d, e) -> (t, j, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, e)>,
              affine_map<(t, i, j, d, e) -> (t, i, j)>]
      : (tensor<3x8x4xf32>, tensor<6x4xf32>, tensor<3x6x5xf32>, tensor<3x8x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  return
}

// -----

#q = affine_map<(t, i, j, d, e) -> (t, i, d)>
#k = affine_map<(t, i, j, d, e) -> (t, j, d)>
#v = affine_map<(t, i, j, d, e) -> (t, j, e)>
#y = affine_map<(t, i, j, d, e) -> (t, i, e)>
#shared = affine_map<(t, i, j, d, e) -> (j, d)>

// Keys and values are shared by the same heads.
func.func @f(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>, %y: tensor<3x8x5xf32>, %lse: tensor<2x3x8xf32>) {
  // expected-error @below {{'bsr.attention_grad' op expected dk and dv to have the same batch dimensions, but got d0 in one of them}}
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %y) scale = 1.000000e+00
      maps = [#q, #k, #v, #y, #y, #q, #shared, #v]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<3x8x5xf32>, tensor<2x3x8xf32>, tensor<3x8x5xf32>)
      -> (tensor<3x8x4xf32>, tensor<6x4xf32>, tensor<3x6x5xf32>)
  return
}

// -----

#q = affine_map<(t, i, j, d, e) -> (t, i, d)>
#k = affine_map<(t, i, j, d, e) -> (t, j, d)>
#v = affine_map<(t, i, j, d, e) -> (t, j, e)>
#y = affine_map<(t, i, j, d, e) -> (t, i, e)>

// The gradient of the bias is a sum, in the type of sums.
func.func @f(%q: tensor<3x8x4xf64>, %k: tensor<3x6x4xf64>, %v: tensor<3x6x5xf64>, %y: tensor<3x8x5xf64>, %lse: tensor<2x3x8xf64>) {
  // expected-error @below {{'bsr.attention_grad' op expected dbias of elements as lse has, but got 'tensor<8x6xf32>'}}
  %dq, %dk, %dv, %db = bsr.attention_grad(%q, %k, %v, %y, %lse, %y) scale = 1.000000e+00
      maps = [#q, #k, #v, #y, #y, #q, #k, #v, affine_map<(t, i, j, d, e) -> (i, j)>]
      : (tensor<3x8x4xf64>, tensor<3x6x4xf64>, tensor<3x6x5xf64>, tensor<3x8x5xf64>, tensor<2x3x8xf64>, tensor<3x8x5xf64>)
      -> (tensor<3x8x4xf64>, tensor<3x6x4xf64>, tensor<3x6x5xf64>, tensor<8x6xf32>)
  return
}
