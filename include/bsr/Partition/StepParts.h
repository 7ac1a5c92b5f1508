// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step as a chain of parts that devices can share.

#ifndef BSR_PARTITION_STEPPARTS_H
#define BSR_PARTITION_STEPPARTS_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include <string>

namespace mlir::bsr {

/// What an operation takes: floating-point operations of products, of stored
/// blocks alone, and bytes of its tensors. Element-wise operations and copies
/// are part of the kernels around them, and take nothing of their own.
struct Work {
  double flops = 0, bytes = 0;
};

/// A part of a step that is not cut: what follows, in the forward part, from
/// one weight, up to the next product with a weight; and its backward part.
/// Work and activations are those of all samples of the step.
struct StepPart {
  /// The weight that it begins with, without what all names begin with.
  std::string name;
  SmallVector<Work> forward, backward;
  /// Bytes of activations that it makes and its backward part reads.
  double savedBytes = 0;
  /// Bytes of what is carried from step to step for its parameters alone:
  /// these and their moments; of the parameters' gradients.
  double stateBytes = 0, gradientBytes = 0;
};

/// Bytes that pass between a part and the next, of all samples.
struct StepCut {
  double forwardBytes = 0, backwardBytes = 0;
};

/// A parameter that several parts read.
struct SharedState {
  std::string name;
  double stateBytes = 0, gradientBytes = 0;
  SmallVector<unsigned> parts; ///< sorted
};

/// A step as a chain.
struct StepParts {
  SmallVector<StepPart> parts;
  SmallVector<StepCut> cuts; ///< one less than parts
  SmallVector<SharedState> shared;
  /// Samples of its batch: the first extent of its data.
  int64_t samples = 0;
  /// Whether it sums gradients up itself, over calls.
  bool accumulates = false;
};

/// Where operations and carried arguments of a step belong.
struct StepPlaces {
  /// The parts that an operation belongs to: one, or all that read the
  /// parameter whose gradient it sums up or whose next value it makes. One that
  /// is not here is computed where it is read.
  DenseMap<Operation *, SmallVector<unsigned, 1>> operations;
  /// The parts that read a carried argument or make its next value; one that is
  /// not here, such as a count of steps, belongs to all.
  DenseMap<Value, SmallVector<unsigned, 1>> arguments;
};

} // namespace mlir::bsr

#endif // BSR_PARTITION_STEPPARTS_H
