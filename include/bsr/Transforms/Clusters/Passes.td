// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations become clusters, one function per structure.

#ifndef BSR_TRANSFORMS_CLUSTERS_PASSES
#define BSR_TRANSFORMS_CLUSTERS_PASSES

include "mlir/Pass/PassBase.td"

def BSRCountFlops : Pass<"bsr-count-flops", "func::FuncOp"> {
  let summary = "Count the floating-point operations of a step";
  let description = [{
    Notes on a step what its products take, for the manifest: `bsr.work` has `dense`, of the
    products without a pattern, `scores`, what runs with scores of blocks take beside it, and
    in `blocks` for each pattern what one stored block takes, all products with it together.
    A run takes `dense` and, of each pattern, as many times its entry as it has blocks.

    A sum of n products is 2 n operations. What is no product, such as an activation or an
    optimizer, counts as nothing, and what a product is computed for again by the compiler
    counts once: the gradient of attention is four products, however it is computed. Attention
    that leaves blocks out by a mask of the program is of those that are computed. A loop counts as
    often as it runs, once if that is not known, and of branches the one with most.

    Before:

    ```mlir
    !p = !bsr.pattern<4x8, block = 2x2, slots = 3>
    #a = affine_map<(i, j, k) -> (i, k)>
    #b = affine_map<(i, j, k) -> (k, j)>
    #c = affine_map<(i, j, k) -> (i, j)>
    func.func @step(%p: !p {bsr.name = "w", bsr.role = "pattern"},
                    %w: tensor<3x2x2xf32> {bsr.name = "w", bsr.pattern = 0 : i64},
                    %x: tensor<5x4xf32> {bsr.name = "x"}, %h: tensor<8x10xf32> {bsr.name = "h"})
        -> (tensor<5x10xf32> {bsr.name = "z"}) {
      %zero = arith.constant dense<0.0> : tensor<5x10xf32>
      %y = bsr.spmm %p, %w, %x feature_dim = 1 : !p, tensor<3x2x2xf32>, tensor<5x4xf32> -> tensor<5x8xf32>
      %z = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%y, %h : tensor<5x8xf32>, tensor<8x10xf32>) outs(%zero : tensor<5x10xf32>) {
      ^bb0(%0: f32, %1: f32, %sum: f32):
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %sum, %2 : f32
        linalg.yield %3 : f32
      } -> tensor<5x10xf32>
      return %z : tensor<5x10xf32>
    }
    ```

    After:

    ```mlir
    #a = affine_map<(i, j, k) -> (i, k)>
    #b = affine_map<(i, j, k) -> (k, j)>
    #c = affine_map<(i, j, k) -> (i, j)>
    func.func @step(%p: !bsr.pattern<4x8, block = 2x2, slots = 3> {bsr.name = "w", bsr.role = "pattern"},
                    %w: tensor<3x2x2xf32> {bsr.name = "w", bsr.pattern = 0 : i64},
                    %x: tensor<5x4xf32> {bsr.name = "x"}, %h: tensor<8x10xf32> {bsr.name = "h"})
        -> (tensor<5x10xf32> {bsr.name = "z"})
        attributes {bsr.work = {blocks = {w = 40 : i64}, dense = 800 : i64, scores = 0 : i64}} {
      %zero = arith.constant dense<0.0> : tensor<5x10xf32>
      %y = bsr.spmm %p, %w, %x feature_dim = 1
          : !bsr.pattern<4x8, block = 2x2, slots = 3>, tensor<3x2x2xf32>, tensor<5x4xf32> -> tensor<5x8xf32>
      %z = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%y, %h : tensor<5x8xf32>, tensor<8x10xf32>) outs(%zero : tensor<5x10xf32>) {
      ^bb0(%0: f32, %1: f32, %sum: f32):
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %sum, %2 : f32
        linalg.yield %3 : f32
      } -> tensor<5x10xf32>
      return %z : tensor<5x10xf32>
    }
    ```
  }];
  let dependentDialects = ["bsr::BSRDialect"];
}

def BSRDropBarriers : Pass<"bsr-drop-barriers", "func::FuncOp"> {
  let summary = "Drop barriers and keep apart what they kept apart";
  let description = [{
    A program that computes a layer again in the backward pass, to keep less, has
    barriers in front of it (`bsr.barrier`): without them, the second computation and
    the first would be one. Products and optimizers are rewritten with the barriers
    in place; here they go, for a kernel need not copy what it reads. What would be
    equal to an earlier operation now is `bsr.recomputed`, as what `bsr-recompute`
    computes again, so that it is never merged with it.

    Before:

    ```mlir
    #map = affine_map<(i) -> (i)>
    func.func @again(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %e = tensor.empty() : tensor<8xf32>
      %y = math.tanh %x : tensor<8xf32>
      %again = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%in: f32, %out: f32):
        %0 = bsr.barrier %in : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = math.tanh %again : tensor<8xf32>
      return %y, %z : tensor<8xf32>, tensor<8xf32>
    }
    ```

    After:

    ```mlir
    func.func @again(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %e = tensor.empty() : tensor<8xf32>
      %y = math.tanh %x : tensor<8xf32>
      %z = math.tanh %x {bsr.recomputed} : tensor<8xf32>
      return %y, %z : tensor<8xf32>, tensor<8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numDropped", "num-dropped", "Number of barriers dropped">,
    Statistic<"numKeptApart", "num-kept-apart",
              "Number of operations kept apart from an equal one">,
  ];
}

def BSRRecompute : Pass<"bsr-recompute", "func::FuncOp"> {
  let summary = "Compute cheap values again instead of keeping them";
  let description = [{
    A training step keeps what its backward part reads of its forward part, and
    that is most of its memory. Where most bytes are live, an element-wise value
    that is read again later need not be kept if what it was computed from is kept
    anyway: behind that point (`bsr.peak`) its users get a copy (`bsr.recomputed`),
    which `bsr-cluster` computes with them. An activation function is computed again
    from the product before it, a normalised row from the row, probabilities from
    their exponentials. Where a product reads probabilities q = e / s again, they
    are in memory anyway, and it is the exponentials that are not kept: what reads
    e behind that point reads q * s, which differs from e by two roundings. What it is
    computed from may be computed again itself, as early as it is needed, and, where
    operations cost less than traffic, for this alone.

    A dense product that takes more than twice the memory of its operands, as the gradient
    of a large embedding does, moves to where it is read first.

    Weight gradients, `bsr.sddmm`, move behind the last other use of the activation
    gradient that they read, so that what they read of the forward part is computed
    again where other kernels read the same.

    No pass between this one and `bsr-cluster` may merge equal operations.

    Before:

    ```mlir
    #map = affine_map<(i, j) -> (i, j)>
    #all = affine_map<(i, j) -> ()>
    func.func @step(%p: !bsr.pattern<64x16, block = 16x16, slots = 2>, %v: tensor<2x16x16xf32>,
                    %x: tensor<16x8xf32>) -> tensor<16x8xf32> {
      %zero = arith.constant dense<0.0> : tensor<f32>
      %e = tensor.empty() : tensor<16x8xf32>
      %tanh = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.tanh %a : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      %y = bsr.spmm %p, %v, %tanh transpose feature_dim = 0
          : !bsr.pattern<64x16, block = 16x16, slots = 2>, tensor<2x16x16xf32>,
            tensor<16x8xf32> -> tensor<64x8xf32>
      %sum = linalg.generic {indexing_maps = [#map, #all], iterator_types = ["reduction", "reduction"]}
          ins(%y : tensor<64x8xf32>) outs(%zero : tensor<f32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.addf %out, %a : f32
        linalg.yield %0 : f32
      } -> tensor<f32>
      %z = linalg.generic {indexing_maps = [#map, #all, #map], iterator_types = ["parallel", "parallel"]}
          ins(%tanh, %sum : tensor<16x8xf32>, tensor<f32>) outs(%e : tensor<16x8xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      return %z : tensor<16x8xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(i, j) -> (i, j)>
    #all = affine_map<(i, j) -> ()>
    func.func @step(%p: !bsr.pattern<64x16, block = 16x16, slots = 2>, %v: tensor<2x16x16xf32>,
                    %x: tensor<16x8xf32>) -> tensor<16x8xf32> {
      %zero = arith.constant dense<0.0> : tensor<f32>
      %e = tensor.empty() : tensor<16x8xf32>
      %tanh = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.tanh %a : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      %y = bsr.spmm %p, %v, %tanh transpose feature_dim = 0
          : !bsr.pattern<64x16, block = 16x16, slots = 2>, tensor<2x16x16xf32>,
            tensor<16x8xf32> -> tensor<64x8xf32>
      %sum = linalg.generic {indexing_maps = [#map, #all], iterator_types = ["reduction", "reduction"]}
          ins(%y : tensor<64x8xf32>) outs(%zero : tensor<f32>) attrs = {bsr.peak} {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.addf %out, %a : f32
        linalg.yield %0 : f32
      } -> tensor<f32>
      %again = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) attrs = {bsr.recomputed} {
      ^bb0(%a: f32, %out: f32):
        %0 = math.tanh %a : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      %z = linalg.generic {indexing_maps = [#map, #all, #map], iterator_types = ["parallel", "parallel"]}
          ins(%again, %sum : tensor<16x8xf32>, tensor<f32>) outs(%e : tensor<16x8xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<16x8xf32>
      return %z : tensor<16x8xf32>
    }
    ```
  }];
  let options = [
    Option<"maxCost", "max-cost", "int64_t", /*default=*/"40",
           "The most simple operations an element that are done again (an "
           "exponential counts for 12); 0 keeps everything">,
  ];
  let statistics = [
    Statistic<"numRecomputed", "num-recomputed", "Number of values computed again">,
    Statistic<"bytesRecomputed", "bytes-recomputed", "Bytes of these values">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

def BSRHoistScalars : Pass<"bsr-hoist-scalars", "func::FuncOp"> {
  let summary = "Compute scalars as soon as their operands are there";
  let description = [{
    Moves what makes numbers and tensors of one element to the last of its operands, so
    that an update that needs them (a bias correction, a learning rate) need not wait,
    and can be part of an earlier cluster.

    Before:

    ```mlir
    func.func @f(%x: tensor<8xf32>, %rate: tensor<f32>) -> (tensor<8xf32>, f32) {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.exp ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) -> tensor<8xf32>
      %r = tensor.extract %rate[] : tensor<f32>
      return %y, %r : tensor<8xf32>, f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: tensor<8xf32>, %rate: tensor<f32>) -> (tensor<8xf32>, f32) {
      %r = tensor.extract %rate[] : tensor<f32>
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.exp ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) -> tensor<8xf32>
      return %y, %r : tensor<8xf32>, f32
    }
    ```
  }];
  let statistics = [
    Statistic<"numHoisted", "num-hoisted", "Number of operations that make scalars">,
  ];
}

def BSRDropUnitReductions : Pass<"bsr-drop-unit-reductions", "func::FuncOp"> {
  let summary = "Make sums of one summand element-wise";
  let description = [{
    The reduced loops of an operation become parallel if each has one iteration: what is
    reduced is one element then, which joins the init where it is used. A product stays
    one. (Upstream's `linalg-fold-unit-extent-dims` takes the dimension away as well, and
    reshapes all that reads it.)

    Before:

    ```mlir
    #row = affine_map<(d0, d1) -> (d0)>
    #id = affine_map<(d0, d1) -> (d0, d1)>
    func.func @f(%x: tensor<8x1xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
      %y = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%x : tensor<8x1xf32>) outs(%b : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.addf %a, %out : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    #id = affine_map<(d0, d1) -> (d0, d1)>
    #row = affine_map<(d0, d1) -> (d0)>
    func.func @f(%x: tensor<8x1xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
      %y = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<8x1xf32>) outs(%b : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.addf %a, %out : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numDropped", "num-dropped", "Number of sums of one summand">,
  ];
}

def BSRLoosenSlices : Pass<"bsr-loosen-slices", "func::FuncOp"> {
  let summary = "Make offsets of slices values";
  let description = [{
    The steps of an unrolled loop read each a slice of one tensor. If there are more of
    one tensor and shape than the target compiles a kernel for, each (8 for `#bsr.cpu`, 1
    for `#bsr.scalar`), the offset along a dimension of which they take one entry becomes
    a value: an argument of one cluster.

    Before:

    ```mlir
    module attributes {bsr.target = #bsr.scalar} {
      func.func @f(%x: tensor<9x4xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
        %s = tensor.extract_slice %x[3, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<1x4xf32>
        %t = tensor.extract_slice %x[7, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<1x4xf32>
        return %s, %t : tensor<1x4xf32>, tensor<1x4xf32>
      }
    }
    ```

    After:

    ```mlir
    module attributes {bsr.target = #bsr.scalar} {
      func.func @f(%x: tensor<9x4xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
        %c7 = arith.constant 7 : index
        %c3 = arith.constant 3 : index
        %s = tensor.extract_slice %x[%c3, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<1x4xf32>
        %t = tensor.extract_slice %x[%c7, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<1x4xf32>
        return %s, %t : tensor<1x4xf32>, tensor<1x4xf32>
      }
    }
    ```
  }];
  let statistics = [
    Statistic<"numLoosened", "num-loosened", "Number of slices with a value for an offset">,
  ];
  let dependentDialects = ["arith::ArithDialect", "bsr::BSRDialect"];
}

def BSRCluster : Pass<"bsr-cluster", "ModuleOp"> {
  let summary = "Group operations into clusters, one per structure";
  let description = [{
    A cluster is what one kernel computes: a product, a reduction, element-wise
    operations over one space (a weight's whole optimizer update), or a chain of
    element-wise operations and reductions in which every work item, some tokens of
    a sequence, needs only what it computed itself (softmax, layer norm and their
    gradients): its sums stay in registers. What follows a product element by element
    (biases, activations, residuals, scaling, casts and their gradients, sums over
    tokens) is in its cluster: a work item computes it where the sums of a block row,
    or of a tile of a dense product, are, in the cache. Each comes with the views, constants and
    cheap element-wise operations that it reads: these are computed again where they
    are used and never stored. A concatenation is a cluster with what makes pieces of it and
    nothing else, products included: each piece is computed where it belongs. Each
    becomes a `bsr.cluster` and a `bsr.launch` of it. Clusters of the same structure,
    such as those of equal layers, are one. The step becomes straight-line code of
    launches. A function
    whose arguments have names also gets the number of products of each kind
    (`bsr.products`) and of clusters that go between a dense matrix and its stored
    blocks (`bsr.left_dense`). A cluster says what kind of work it does
    (`bsr.kind`) and how many floating-point operations its products are (`bsr.flops`).
    Operations stay together if there is a plan of how one kernel goes through them, for the
    module's target. It is written in the cluster: what work items share in `plan`, what is
    computed before it is read in `bsr.root`. Two decisions can be skipped
    (`--mlir-debug-counter`): `bsr-fuse`, that an operation may join others, and
    `bsr-cluster`, that operations without patterns become a cluster, rather than loops.

    Before:

    ```mlir
    #map = affine_map<(d0) -> (d0)>
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%y : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.exp %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %z : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(d0) -> (d0)>
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %z = bsr.launch @cluster ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>)
          -> tensor<8xf32>
      return %z : tensor<8xf32>
    }
    bsr.cluster private @cluster(%x: tensor<8xf32>) -> tensor<8xf32>
        attributes {bsr.kind = "elementwise", plan = #bsr.plan<nests>} {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%y : tensor<8xf32>) outs(%init : tensor<8xf32>) attrs = {bsr.root = #bsr.root<nest = 0>} {
      ^bb0(%a: f32, %out: f32):
        %0 = math.exp %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      bsr.yield %z : tensor<8xf32>
    }
    ```
  }];
  let options = [
    Option<"isHostApart", "host-apart", "bool", "false",
           "Skip no cluster: nothing outside of clusters can be computed">,
  ];
  let statistics = [
    Statistic<"numClusters", "num-clusters", "Number of clusters">,
    Statistic<"numStructures", "num-structures",
              "Number of different clusters: functions to compile">,
  ];
  let dependentDialects = [
    "bsr::BSRDialect", "func::FuncDialect", "tensor::TensorDialect",
  ];
}

def BSRPlanClusters : Pass<"bsr-plan-clusters", "ModuleOp"> {
  let summary = "Plan clusters that have no plan";
  let description = [{
    `bsr-emit` makes a kernel of a cluster by the plan that is written in it. `bsr-cluster` writes
    plans of the clusters that it makes; this pass does the same for others, such as those
    written by hand: it chooses how one kernel goes through their operations, for the
    module's target. A cluster that no kernel can compute is an error. A piece of a
    concatenation that nothing computes for it alone becomes a copy.

    Before:

    ```mlir
    #map = affine_map<(d0) -> (d0)>
    bsr.cluster private @negate(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      bsr.yield %y : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(d0) -> (d0)>
    bsr.cluster private @negate(%x: tensor<8xf32>) -> tensor<8xf32>
        attributes {plan = #bsr.plan<nests>} {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) attrs = {bsr.root = #bsr.root<nest = 0>} {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      bsr.yield %y : tensor<8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numPlanned", "num-planned", "Number of clusters planned">,
  ];
  let dependentDialects = [
    "bsr::BSRDialect", "linalg::LinalgDialect", "tensor::TensorDialect",
  ];
}

#endif // BSR_TRANSFORMS_CLUSTERS_PASSES
