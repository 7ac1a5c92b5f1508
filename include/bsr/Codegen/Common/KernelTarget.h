// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the passes that make kernels ask of targets.

#ifndef BSR_CODEGEN_COMMON_KERNELTARGET_H
#define BSR_CODEGEN_COMMON_KERNELTARGET_H

#include "bsr/Analysis/ClusterPlan.h"
#include "bsr/Codegen/Common/Blocks.h"

namespace mlir::bsr {

/// What a kernel follows that depends on nothing but a pattern: a kernel of its
/// own makes it, for all that follow an equal one.
struct PatternPlan {
  /// The operation in the cluster that follows it.
  Operation *op;
  /// The argument of the cluster, and the view that is read.
  Value pattern;
  View view;
  /// The arrays of the plan.
  SmallVector<MemRefType> types;
  /// Emits what fills arrays of these types from the blocks of a view.
  std::function<void(OpBuilder &, Location, const PatternView &, ValueRange)>
      emit;
};

/// A kernel whose body is to be emitted, and the buffers of its function.
struct KernelBody {
  KernelBody(Location loc, const ClusterPlan &plan, bool isCut)
      : loc(loc), plan(plan), isCut(isCut) {}

  Location loc;
  const ClusterPlan &plan;
  /// True if buffers are cut in panels.
  bool isCut;
  /// Of each tensor argument of the cluster its buffer, of each number itself.
  DenseMap<Value, Value> inputs;
  /// Where the results and the pieces of a concatenation are written.
  DenseMap<Value, Value> outputs;
  PatternViews patterns;
  /// The arrays of the plans that operations follow.
  DenseMap<Operation *, ValueRange> plans;
  /// The memory of `KernelTargetAttrInterface::getScratch`.
  ValueRange scratch;
};

} // namespace mlir::bsr

#include "bsr/Codegen/Common/AttrInterfaces.h.inc"

namespace mlir::bsr {

/// How kernels are made for the target of the module around `op`.
KernelTargetAttrInterface getKernelTarget(Operation *op);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_KERNELTARGET_H
