// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops over the elements of an operation.

#ifndef BSR_CODEGEN_COMMON_NESTS_H
#define BSR_CODEGEN_COMMON_NESTS_H

#include "bsr/Codegen/Common/KernelTarget.h"

namespace mlir::bsr {

/// Emits the loops that compute `op`, a `linalg.generic` or an operation of the
/// dialect, into the buffers `outputs`; a result without one is not stored.
/// Elements that do not depend on each other are those of one
/// `Evaluator::forEach`, of which there may be several, one after the other;
/// along the last of its dimensions, results lie side by side. `patterns` has
/// the line view (`getLineView`) of the operation's pattern.
void emitLoops(Evaluator &evaluator, Operation *op,
               const DenseMap<Value, Value> &outputs,
               const PatternViews &patterns);

/// The memory that `emitNests` needs: each operation of a cluster that others
/// read has its results there.
SmallVector<MemRefType> getNestScratch(const ClusterPlan &plan);

/// Emits the operations of a nest, as `emitLoops` does one.
using EmitNest = llvm::function_ref<void(Evaluator &, ArrayRef<Operation *>,
                                         const DenseMap<Value, Value> &,
                                         const PatternViews &)>;

/// Emits `kernel` as its nests, one after the other; each root of a chain is
/// one. What cannot be emitted is reported.
LogicalResult emitNests(Evaluator &evaluator, KernelBody &kernel);
LogicalResult emitNests(Evaluator &evaluator, KernelBody &kernel,
                        EmitNest emitNest);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_NESTS_H
