// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes share about the function of a step.

#ifndef BSR_ANALYSIS_STEP_H
#define BSR_ANALYSIS_STEP_H

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::bsr {

/// Whether `func` is a step: a defined function with `bsr.name` arguments.
bool isStep(func::FuncOp func);

/// Calls `run` for every function of `module` that has a body, until one fails.
LogicalResult forEachBody(ModuleOp module,
                          function_ref<LogicalResult(func::FuncOp)> run);

/// The return of `func`. Reports if `func` is not one block that ends in one.
FailureOr<func::ReturnOp> getReturn(func::FuncOp func);

/// Checks that the arguments of `func` can become others: it has one block that
/// ends in a return, and nothing in `module` calls it. Reports if not.
LogicalResult requireOwnSignature(func::FuncOp func, ModuleOp module);

/// The mark of argument `arg` of `func`: its own, or that of the weight it is a
/// mask of; null if it has none.
MarkAttr getMark(func::FuncOp func, unsigned arg);

/// Whether argument `arg` of `func` is a marked weight itself. A moment may
/// have the name of its weight, but not its role.
bool isMarkedWeight(func::FuncOp func, unsigned arg);

/// The origin of the whole argument `name` of type `type`: the name and shape
/// that the program knows, and where in it the argument lies.
DictionaryAttr createOrigin(StringAttr name, RankedTensorType type);

/// The only step of `module`. Reports if there is none or several, if a name is
/// no text, or if an argument, or a result that carries none, has no name.
FailureOr<func::FuncOp> getStep(ModuleOp module);

/// Checks what every pass relies on of `step`, a program on tensors: it is
/// public, has one block that ends in a return, its arguments are tensors of
/// static shape, with elements of a type that the runtime knows, or patterns,
/// and its results such tensors. Reports if not.
LogicalResult verifySignature(func::FuncOp step);

/// The arguments that carry the results of `step`: `carriers[i]` is the
/// argument whose next value is result `i`, or null.
SmallVector<BlockArgument> getCarriers(func::FuncOp step);

/// Whether result `index` of `step` is scores of the blocks of a weight: role
/// `scores`, the name of the weight.
bool isScores(func::FuncOp step, unsigned index);
/// The first argument with the pattern whose scores are result `index`, a
/// weight; null if there is none.
BlockArgument getScored(func::FuncOp step, unsigned index);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_STEP_H
