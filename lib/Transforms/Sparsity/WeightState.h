// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which arguments of a step follow a weight: its moments, copies and masks.

#ifndef BSR_LIB_TRANSFORMS_SPARSITY_WEIGHTSTATE_H
#define BSR_LIB_TRANSFORMS_SPARSITY_WEIGHTSTATE_H

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {

/// The `bsr.name` of argument `arg`, or null.
StringAttr getArgName(func::FuncOp func, unsigned arg);

/// True if the step's author says that argument `arg` has `role`.
bool hasRole(func::FuncOp func, unsigned arg, StringRef role);

/// True if argument `arg` may be what an optimizer keeps of a weight: numbers
/// that are no parameter and no mask.
bool isKept(func::FuncOp func, unsigned arg,
            function_ref<bool(unsigned)> isMask);

/// True if argument `arg` may be what an optimizer keeps of argument `weight`:
/// it has its shape.
bool isState(func::FuncOp func, unsigned arg, unsigned weight,
             function_ref<bool(unsigned)> isMask);

/// The optimizer moments of argument `weight`: the carried arguments of its
/// shape that its next value depends on entry by entry. What `isMask` says is a
/// mask is none.
SmallVector<unsigned> getMoments(func::FuncOp func, unsigned weight,
                                 function_ref<bool(unsigned)> isMask);

/// True if argument `copy` is a copy of argument `weight` with `moments`, as it
/// was or an average: an entry-wise function of itself and them, or only
/// compared with the weight.
bool isCopy(func::FuncOp func, unsigned copy, unsigned weight,
            ArrayRef<unsigned> moments);

/// Of which of `weights` argument `copy`, a parameter that the step changes, is
/// a copy: an average that the step makes, or a target network.
std::optional<unsigned> findCopied(func::FuncOp func, unsigned copy,
                                   ArrayRef<unsigned> weights,
                                   function_ref<bool(unsigned)> isMask);

/// The arguments that element-wise operations combine with argument `mask`, and
/// whether `mask` lies as their transpose: what it masks, or the gradient or
/// update of which it masks.
llvm::MapVector<BlockArgument, bool> getMasked(BlockArgument mask);

/// Visits the values that `root` is a function of, entry by entry, in the
/// places where `root` has these entries; `isSource` says that a value is none
/// of others.
void walkEntries(Value root, function_ref<void(Value, bool isSource)> visit);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_SPARSITY_WEIGHTSTATE_H
