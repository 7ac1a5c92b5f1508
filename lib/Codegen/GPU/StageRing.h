// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stages of shared memory that tensor copies fill and warps read, in a ring.

#ifndef BSR_LIB_CODEGEN_GPU_STAGERING_H
#define BSR_LIB_CODEGEN_GPU_STAGERING_H

#include "BlockBuilder.h"

namespace mlir::bsr {

/// Stages that follow each other in shared memory, from a multiple of
/// `swizzlePeriod` on, and of each two mbarriers: its phases end when the stage
/// is full, and when it is empty, that is when all that it was copied to have
/// read it. One thread or warp of a block of threads copies, others read.
class StageRing {
public:
  /// A stage, and what the phases of its mbarriers are.
  struct Stage {
    Value number, parity;
  };

  StageRing(BlockBuilder &b, int64_t stages, int64_t bytes);

  /// Bytes of shared memory, with mbarriers and what aligns stages.
  static int64_t getSharedBytes(int64_t stages, int64_t bytes);
  /// The most stages, up to `most`, that fit in what a block of threads of a
  /// chip may have, `sharedLimit`.
  static int64_t getStages(int64_t sharedLimit, int64_t bytes, int64_t most);

  /// Makes the mbarriers: a stage is full after one arrival and the bytes that
  /// it expects, and empty after `readers` arrivals. All threads of the
  /// cluster, of `blocks` blocks of threads, come here.
  void init(int64_t readers, int64_t blocks);
  /// Waits for all threads of a cluster of `blocks` blocks of threads.
  void waitForAll(int64_t blocks);

  Stage getFirst();
  Stage getNext(Stage stage);
  /// Where `stage` begins, in bytes of shared memory.
  Value getBegin(Stage stage);
  Value getFull(Stage stage);
  Value getEmpty(Stage stage);

  /// Waits until `stage` is empty, before it is copied to; the first time, it
  /// is.
  void waitForEmpty(Stage stage);
  void waitForFull(Stage stage);
  /// The warp has read `stage`: says so to the first `blocks` blocks of threads
  /// of the cluster, which copy to this one.
  void release(Stage stage, int64_t blocks);

  /// Iterations from `low` to below `high`, each with a stage, from `stage` on,
  /// which becomes the one behind the last; `body` returns what it carries on.
  SmallVector<Value>
  forStages(Value low, Value high, Stage &stage, ValueRange carried,
            llvm::function_ref<SmallVector<Value>(Value number, Stage stage,
                                                  ValueRange carried)>
                body);

private:
  static constexpr int64_t barrierBytes = 8;

  BlockBuilder &b;
  int64_t stages, bytes;
  /// Where stages begin, and mbarriers: first those of full stages.
  Value begin, barriers;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_STAGERING_H
