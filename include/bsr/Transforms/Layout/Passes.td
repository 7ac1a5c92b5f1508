// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vectors will run along tokens.

#ifndef BSR_TRANSFORMS_LAYOUT_PASSES
#define BSR_TRANSFORMS_LAYOUT_PASSES

include "mlir/Pass/PassBase.td"

def BSRRaise : Pass<"bsr-raise", "func::FuncOp"> {
  let summary = "Turn products with one-hot matrices into gathers and scatter-adds";
  let description = [{
    A one-hot matrix is sparse too: a product with it looks rows up, and its
    gradient adds rows. Front ends write the gradient of an embedding look-up as
    such a product. The one-hot matrix is recognised by what it computes:
    `index(d) == indices` turned into 1 and 0. An index outside of the matrix gives
    a row of zeros, as it does in the product.

    Before:

    ```mlir
    #t = affine_map<(t, v) -> (t)>
    #tv = affine_map<(t, v) -> (t, v)>
    #a = affine_map<(v, f, t) -> (t, v)>
    #b = affine_map<(v, f, t) -> (t, f)>
    #c = affine_map<(v, f, t) -> (v, f)>
    func.func @gradient(%ids: tensor<6xi32>, %u: tensor<6x8xf32>) -> tensor<10x8xf32> {
      %one = arith.constant 1.0 : f32
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<6x10xf32>
      %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
          ins(%ids : tensor<6xi32>) outs(%e : tensor<6x10xf32>) {
      ^bb0(%id: i32, %out: f32):
        %i = linalg.index 1 : index
        %v = arith.index_cast %i : index to i32
        %is = arith.cmpi eq, %v, %id : i32
        %x = arith.select %is, %one, %zero : f32
        linalg.yield %x : f32
      } -> tensor<6x10xf32>
      %empty = tensor.empty() : tensor<10x8xf32>
      %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<10x8xf32>) -> tensor<10x8xf32>
      %g = linalg.generic {indexing_maps = [#a, #b, #c],
                           iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%hot, %u : tensor<6x10xf32>, tensor<6x8xf32>) outs(%init : tensor<10x8xf32>) {
      ^bb0(%x: f32, %y: f32, %sum: f32):
        %m = arith.mulf %x, %y : f32
        %s = arith.addf %sum, %m : f32
        linalg.yield %s : f32
      } -> tensor<10x8xf32>
      return %g : tensor<10x8xf32>
    }
    ```

    After:

    ```mlir
    func.func @gradient(%ids: tensor<6xi32>, %u: tensor<6x8xf32>) -> tensor<10x8xf32> {
      %g = bsr.scatter_add %ids, %u feature_dim = 1
          : tensor<6xi32>, tensor<6x8xf32> -> tensor<10x8xf32>
      return %g : tensor<10x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numGathers", "num-gathers", "Number of products made gathers">,
    Statistic<"numScatterAdds", "num-scatter-adds",
              "Number of products made scatter-adds">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bsr::BSRDialect", "linalg::LinalgDialect",
    "tensor::TensorDialect",
  ];
}

def BSRConcatenate : Pass<"bsr-concatenate", "func::FuncOp"> {
  let summary = "Turn chains of inserted slices into concatenations";
  let description = [{
    Front ends write a concatenation, and the gradient of a split, as slices that
    are inserted one after the other: copies between kernels. As one operation it is
    laid out as a whole, and a kernel computes it. The slices may come in any order,
    along one dimension, without overlaps. What no slice covers stays as it is, unless it
    is filled with one value: then that is a piece as well, and padding is a
    concatenation. More than 16 pieces, such as what the steps of a loop make, are
    concatenated 16 at a time, and what that makes again: a few kernels, equal ones,
    whatever the number of steps is.

    Before:

    ```mlir
    func.func @gradient(%q: tensor<8x16xf32>, %k: tensor<8x16xf32>) -> tensor<8x48xf32> {
      %zeros = arith.constant dense<0.0> : tensor<8x48xf32>
      %0 = tensor.insert_slice %q into %zeros[0, 0] [8, 16] [1, 1]
          : tensor<8x16xf32> into tensor<8x48xf32>
      %1 = tensor.insert_slice %k into %0[0, 16] [8, 16] [1, 1]
          : tensor<8x16xf32> into tensor<8x48xf32>
      return %1 : tensor<8x48xf32>
    }
    ```

    After:

    ```mlir
    func.func @gradient(%q: tensor<8x16xf32>, %k: tensor<8x16xf32>) -> tensor<8x48xf32> {
      %zeros = arith.constant dense<0.0> : tensor<8x48xf32>
      %rest = tensor.extract_slice %zeros[0, 32] [8, 16] [1, 1]
          : tensor<8x48xf32> to tensor<8x16xf32>
      %0 = tensor.concat dim(1) %q, %k, %rest
          : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x48xf32>
      return %0 : tensor<8x48xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numConcatenations", "num-concatenations",
              "Number of chains made concatenations">,
  ];
  let dependentDialects = ["tensor::TensorDialect"];
}

def BSRWidenSums : Pass<"bsr-widen-sums", "func::FuncOp"> {
  let summary = "Take sums of halves in f32";
  let description = [{
    A sum of bf16 that is rounded after every addition stands still when it is 256
    times as large as what is added. Sums of f16 and bf16, products and reductions
    alike, are taken in f32, from products that are not rounded, and rounded once at
    the end, as frameworks do. The operations of the dialect do so by themselves.

    Before:

    ```mlir
    func.func @product(%a: tensor<4x8xbf16>, %b: tensor<8x2xbf16>, %i: tensor<4x2xbf16>) -> tensor<4x2xbf16> {
      %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
                                            affine_map<(i, j, k) -> (i, j)>],
                           iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<4x8xbf16>, tensor<8x2xbf16>) outs(%i : tensor<4x2xbf16>) {
      ^bb0(%x: bf16, %z: bf16, %out: bf16):
        %0 = arith.mulf %x, %z : bf16
        %1 = arith.addf %out, %0 : bf16
        linalg.yield %1 : bf16
      } -> tensor<4x2xbf16>
      return %y : tensor<4x2xbf16>
    }
    ```

    After:

    ```mlir
    #id = affine_map<(i, j) -> (i, j)>
    func.func @product(%a: tensor<4x8xbf16>, %b: tensor<8x2xbf16>, %i: tensor<4x2xbf16>) -> tensor<4x2xbf16> {
      %e = tensor.empty() : tensor<4x2xf32>
      %init = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%i : tensor<4x2xbf16>) outs(%e : tensor<4x2xf32>) {
      ^bb0(%x: bf16, %out: f32):
        %0 = arith.extf %x : bf16 to f32
        linalg.yield %0 : f32
      } -> tensor<4x2xf32>
      %wide = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
                                               affine_map<(i, j, k) -> (i, j)>],
                              iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<4x8xbf16>, tensor<8x2xbf16>) outs(%init : tensor<4x2xf32>) {
      ^bb0(%x: bf16, %z: bf16, %out: f32):
        %0 = arith.extf %x : bf16 to f32
        %1 = arith.extf %z : bf16 to f32
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %out, %2 : f32
        linalg.yield %3 : f32
      } -> tensor<4x2xf32>
      %h = tensor.empty() : tensor<4x2xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%wide : tensor<4x2xf32>) outs(%h : tensor<4x2xbf16>) {
      ^bb0(%x: f32, %out: bf16):
        %0 = arith.truncf %x : f32 to bf16
        linalg.yield %0 : bf16
      } -> tensor<4x2xbf16>
      return %y : tensor<4x2xbf16>
    }
    ```
  }];
  let statistics = [
    Statistic<"numWidened", "num-widened", "Number of operations whose sums are f32 now">,
  ];
  let dependentDialects = ["arith::ArithDialect", "linalg::LinalgDialect", "tensor::TensorDialect"];
}

def BSRWidenBodies : Pass<"bsr-widen-bodies", "func::FuncOp"> {
  let summary = "Compute each element-wise operation of halves in f32, and round its result";
  let description = [{
    Frameworks compute an element-wise operation of f16 or bf16 (`gelu`, `sigmoid`) in
    f32 and round what comes of it. As a `linalg.generic` its body is several operations,
    each of which would round. Here the body computes in f32 and rounds at its end; one
    that does a single thing with halves stays as it is.

    Before:

    ```mlir
    #id = affine_map<(i) -> (i)>
    func.func @sigmoid(%x: tensor<8xbf16>) -> tensor<8xbf16> {
      %one = arith.constant 1.0 : bf16
      %e = tensor.empty() : tensor<8xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%x : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
      ^bb0(%in: bf16, %out: bf16):
        %0 = arith.negf %in : bf16
        %1 = math.exp %0 : bf16
        %2 = arith.addf %1, %one : bf16
        %3 = arith.divf %one, %2 : bf16
        linalg.yield %3 : bf16
      } -> tensor<8xbf16>
      return %y : tensor<8xbf16>
    }
    ```

    After:

    ```mlir
    #id = affine_map<(i) -> (i)>
    func.func @sigmoid(%x: tensor<8xbf16>) -> tensor<8xbf16> {
      %one = arith.constant 1.0 : bf16
      %e = tensor.empty() : tensor<8xbf16>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%x : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
      ^bb0(%in: bf16, %out: bf16):
        %0 = arith.extf %in : bf16 to f32
        %1 = arith.negf %0 : f32
        %2 = math.exp %1 : f32
        %3 = arith.extf %one : bf16 to f32
        %4 = arith.addf %2, %3 : f32
        %5 = arith.divf %3, %4 : f32
        %6 = arith.truncf %5 : f32 to bf16
        linalg.yield %6 : bf16
      } -> tensor<8xbf16>
      return %y : tensor<8xbf16>
    }
    ```
  }];
  let statistics = [
    Statistic<"numWidened", "num-widened", "Number of operations that are computed in f32 now">,
  ];
  let dependentDialects = ["arith::ArithDialect"];
}

def BSRFoldCopies : Pass<"bsr-fold-copies", "func::FuncOp"> {
  let summary = "Fold transposes and broadcasts into the maps of what reads them";
  let description = [{
    An element-wise operation, a reduction or a product reads a transposed or broadcast
    tensor through its indexing maps as well as the tensor itself: `generic(copy(x))`
    becomes `generic(x)` with the composed map, where the extents of all loops still
    follow from the operands. Copies without readers are dead.

    Before:

    ```mlir
    #id = affine_map<(d0, d1) -> (d0, d1)>
    #t = affine_map<(d0, d1) -> (d1, d0)>
    func.func @f(%x: tensor<8x4xf32>) -> tensor<4x8xf32> {
      %init = tensor.empty() : tensor<4x8xf32>
      %xt = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<8x4xf32>) outs(%init : tensor<4x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        linalg.yield %a : f32
      } -> tensor<4x8xf32>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%xt : tensor<4x8xf32>) outs(%init : tensor<4x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.exp %a : f32
        linalg.yield %0 : f32
      } -> tensor<4x8xf32>
      return %y : tensor<4x8xf32>
    }
    ```

    After:

    ```mlir
    #t = affine_map<(d0, d1) -> (d1, d0)>
    #id = affine_map<(d0, d1) -> (d0, d1)>
    func.func @f(%x: tensor<8x4xf32>) -> tensor<4x8xf32> {
      %init = tensor.empty() : tensor<4x8xf32>
      %xt = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<8x4xf32>) outs(%init : tensor<4x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        linalg.yield %a : f32
      } -> tensor<4x8xf32>
      %y = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<8x4xf32>) outs(%init : tensor<4x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.exp %a : f32
        linalg.yield %0 : f32
      } -> tensor<4x8xf32>
      return %y : tensor<4x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numFolded", "num-folded", "Number of reads of copies folded">,
  ];
}

def BSRLayout : Pass<"bsr-layout", "func::FuncOp"> {
  let summary = "Lay activations out feature-major, lanes along tokens";
  let description = [{
    The products walk blocks of features; tokens are what every block size has
    plenty of. With tokens adjacent in memory, vectors run along them: a weight is
    a broadcast, 1x1 blocks use full vectors, the transposed product costs what
    the forward one does, and layer norm and softmax reduce across rows
    without one horizontal sum.

    Requires `linalg-generalize-named-ops`: a product that is no `linalg.generic` is an
    error. Does nothing for a target without vectors (`#bsr.scalar`). `bsr-fold-copies`
    before it leaves fewer operations that only move elements, which have a layout on
    each side.

    The layout is a fixpoint over indexing maps, from the token dimension of the
    products through everything that touches their operands and results: the
    token dimension of each value moves last, its type and the maps of its users
    are permuted, nothing is packed. Arguments and results of the function keep
    their layout. Where an operation cannot take the layout, one copy converts; with
    `report`, a remark says so.
    Operations whose results have lanes are marked, `bsr.lanes`, for `bsr-panel`.

    Before:

    ```mlir
    !pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>
    #map = affine_map<(d0, d1) -> (d0, d1)>
    func.func @layers(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<48x32xf32>)
        -> tensor<48x32xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 1
          : !pattern, tensor<3x16x16xf32>, tensor<48x32xf32> -> tensor<48x64xf32>
      %init = tensor.empty() : tensor<48x64xf32>
      %h = linalg.generic {indexing_maps = [#map, #map],
                           iterator_types = ["parallel", "parallel"]}
          ins(%y : tensor<48x64xf32>) outs(%init : tensor<48x64xf32>) {
      ^bb0(%in: f32, %out: f32):
        %0 = math.tanh %in : f32
        linalg.yield %0 : f32
      } -> tensor<48x64xf32>
      %z = bsr.spmm %p, %w, %h transpose feature_dim = 1
          : !pattern, tensor<3x16x16xf32>, tensor<48x64xf32> -> tensor<48x32xf32>
      return %z : tensor<48x32xf32>
    }
    ```

    After:

    ```mlir
    !pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>
    #map = affine_map<(d0, d1) -> (d1, d0)>
    #map1 = affine_map<(d0, d1) -> (d0, d1)>
    func.func @layers(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<48x32xf32>)
        -> tensor<48x32xf32> {
      %0 = tensor.empty() : tensor<32x48xf32>
      %xt = linalg.generic {indexing_maps = [#map, #map1],
                            iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<48x32xf32>) outs(%0 : tensor<32x48xf32>) attrs = {bsr.lanes} {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<32x48xf32>
      %y = bsr.spmm %p, %w, %xt feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<64x48xf32>
      %1 = tensor.empty() : tensor<64x48xf32>
      %h = linalg.generic {indexing_maps = [#map, #map],
                           iterator_types = ["parallel", "parallel"]}
          ins(%y : tensor<64x48xf32>) outs(%1 : tensor<64x48xf32>) attrs = {bsr.lanes} {
      ^bb0(%in: f32, %out: f32):
        %3 = math.tanh %in : f32
        linalg.yield %3 : f32
      } -> tensor<64x48xf32>
      %z = bsr.spmm %p, %w, %h transpose feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<64x48xf32> -> tensor<32x48xf32>
      %2 = tensor.empty() : tensor<48x32xf32>
      %zt = linalg.generic {indexing_maps = [#map, #map1],
                            iterator_types = ["parallel", "parallel"]}
          ins(%z : tensor<32x48xf32>) outs(%2 : tensor<48x32xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<48x32xf32>
      return %zt : tensor<48x32xf32>
    }
    ```
  }];
  let options = [
    Option<"report", "report", "bool", /*default=*/"false",
           "Say in a remark what is copied from one layout to another">,
  ];
  let statistics = [
    Statistic<"numLaidOut", "num-laid-out", "Number of values laid out anew">,
    Statistic<"numConversions", "num-conversions",
              "Number of copies from one layout to another">,
  ];
  let dependentDialects = [
    "bsr::BSRDialect", "linalg::LinalgDialect", "tensor::TensorDialect",
  ];
}

def BSRFoldBias : Pass<"bsr-fold-bias", "func::FuncOp"> {
  let summary = "Let sums of sparse products start from their bias";
  let description = [{
    Where all that reads a `bsr.spmm` is the sum of it and a value for each feature,
    that value becomes its `bias`: the kernel starts its sums from it, and nothing
    is written and read again in between. The bias must be there when the product is
    computed, and all types must be the same, f32 or f64.

    Before:

    ```mlir
    func.func @layer(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>,
                     %x: tensor<32x8xf32>, %b: tensor<64xf32>) -> tensor<64x8xf32> {
      %y = bsr.spmm %p, %v, %x feature_dim = 0
          : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
            tensor<32x8xf32> -> tensor<64x8xf32>
      %e = tensor.empty() : tensor<64x8xf32>
      %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                            affine_map<(i, j) -> (i, j)>],
                           iterator_types = ["parallel", "parallel"]}
          ins(%y, %b : tensor<64x8xf32>, tensor<64xf32>) outs(%e : tensor<64x8xf32>) {
      ^bb0(%s: f32, %t: f32, %out: f32):
        %0 = arith.addf %s, %t : f32
        linalg.yield %0 : f32
      } -> tensor<64x8xf32>
      return %z : tensor<64x8xf32>
    }
    ```

    After:

    ```mlir
    func.func @layer(%p: !bsr.pattern<32x64, block = 16x16, slots = 3>, %v: tensor<3x16x16xf32>,
                     %x: tensor<32x8xf32>, %b: tensor<64xf32>) -> tensor<64x8xf32> {
      %z = bsr.spmm %p, %v, %x bias %b feature_dim = 0
          : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
            tensor<32x8xf32>, tensor<64xf32> -> tensor<64x8xf32>
      %e = tensor.empty() : tensor<64x8xf32>
      return %z : tensor<64x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numFolded", "num-folded", "Number of biases that sums start from">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

#endif // BSR_TRANSFORMS_LAYOUT_PASSES
