// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block goes through the plan of a product.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_SPMMMAINLOOP_H
#define BSR_LIB_CODEGEN_GPU_SPMM_SPMMMAINLOOP_H

#include "SpMMPlan.h"
#include "SpMMTile.h"
#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "bsr/Codegen/GPU/Core/TensorCopies.h"
#include "bsr/Dialect/BSR.h"

namespace mlir::bsr::gpu {

/// What the threads of a launch are handed.
struct SpMMLaunch {
  KernelBody &kernel;
  /// The arrays of the plan, and then the memory of `SpMMKernel::getScratch`.
  SmallVector<Value> memory;
  /// Where sums are stored, if there is no epilogue.
  StoredRows y;
  /// What tensor copies bring: the activations, and the tensor map of the
  /// values.
  ActivationBoxes x;
  Value valuesMap;
};

/// A product as a thread block goes through it.
struct SpMMContext {
  SpMMOp op;
  const SpMMShape &shape;
  const SpMMPlan &plan;
  const SpMMLaunch &launch;
  ChunkRange range;
};

/// The mainloop of a thread block through the chunks of its group of lines: a
/// stage of shared memory holds the activations of a chunk and its blocks,
/// while copies for the next stages are under way. Classes that derive from it
/// say which threads copy what, and what multiplies. A warp has the sums of
/// several accumulators, each of which is what a multiplier adds to, and all of
/// the same tokens.
class SpMMMainloop {
public:
  virtual ~SpMMMainloop() = default;

  using Begin = llvm::function_ref<SmallVector<Value>()>;
  using Finish = llvm::function_ref<void(ValueRange sums)>;

  /// What multiplies blocks, its left operand, by activations.
  virtual std::unique_ptr<Multiplier> createMultiplier() = 0;
  /// In the warps that multiply: the sums that `begin` returns, those of one
  /// accumulator behind those of the other, go to `finish` when the products of
  /// all chunks have been added to them.
  virtual void run(const Multiplier &multiplier, Begin begin,
                   Finish finish) = 0;
  /// The output of `row` of an accumulator.
  virtual Value getOutput(int64_t accumulator, Value row) = 0;

  const SpMMContext product;
  const int64_t numAccumulators;
  /// The outputs of the accumulators follow each other.
  const bool areNeighbours;
  /// The batch, and the first token of the warp in it.
  Value batch, firstToken;
  /// Tokens may be beyond the last; of a cluster, whole thread blocks beyond
  /// the last batch.
  bool areTokensRagged, areBatchesRagged;
  /// The thread block among those that share the plan of a group.
  Value rank;

protected:
  /// That of a launch with `grid`.
  SpMMMainloop(const SpMMContext &product, int64_t numAccumulators,
               bool areNeighbours, const SpMMGrid &grid, BlockBuilder &b);

  /// The entries of an array of the plan that are the group's, `each` of a
  /// chunk.
  Value getPlanArray(unsigned array, int64_t each);
  /// `chunk`, or the last one that there is memory for.
  Value clampChunk(Value chunk) {
    return b.min(chunk, b.constant(plan.getMaxChunks() - 1));
  }

  const SpMMShape &shape;
  const SpMMPlan &plan;
  BlockBuilder &b;
  Type i32;
  /// The first token of the thread block in its batch.
  Value tokenTile;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_SPMMMAINLOOP_H
