// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step of one kernel of another step.

#ifndef BSR_TOOLS_SPARSE_COMPILE_KERNELSTEP_H
#define BSR_TOOLS_SPARSE_COMPILE_KERNELSTEP_H

#include "bsr/Dialect/BSR.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir::bsr {

/// A kernel of a step with sparse products that may go several ways: a cluster,
/// and how it is launched.
struct TunedKernel {
  ClusterOp cluster;
  /// One of its launches, with `bsr.panels` as all `launches` of them.
  LaunchOp launch;
  int64_t launches = 0;
  /// Floating-point operations of one.
  int64_t flops = 0;
  /// The products of the cluster that have no schedule, in their order.
  SmallVector<Operation *> products = {};
};

/// A schedule for each product of a kernel; null for what the compiler chooses.
using Way = SmallVector<DictionaryAttr, 1>;

/// The names of kernels in such a step begin so.
inline constexpr StringLiteral wayName = "bsr_way_";

/// A step that launches `kernel` once for each of `ways`, in this order, on the
/// same operands, which lie in memory as they do in the step of `kernel`.
/// Result `i` of launch `j` is `y<i>.<j>`.
OwningOpRef<ModuleOp> createKernelStep(TunedKernel &kernel, ArrayRef<Way> ways);

/// Whether there is such a step: the operands of `launch` are tensors, indices,
/// and patterns that the step has.
bool hasKernelStep(LaunchOp launch);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_KERNELSTEP_H
