// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the passes that make kernels ask of targets.

#ifndef BSR_CODEGEN_COMMON_KERNELTARGET_H
#define BSR_CODEGEN_COMMON_KERNELTARGET_H

#include "bsr/Analysis/ClusterPlan.h"
#include "bsr/Codegen/Common/Blocks.h"

namespace mlir::bsr {

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
