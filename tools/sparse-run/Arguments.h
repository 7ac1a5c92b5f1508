// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an interpreted step is called with, and what its results are called.

#ifndef BSR_TOOLS_SPARSERUN_ARGUMENTS_H
#define BSR_TOOLS_SPARSERUN_ARGUMENTS_H

#include "Files.h"
#include "bsr/Interpreter/Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Error.h"

namespace tools {

/// The arguments of `step`, of `arrays` of their names; a pattern 'w' is
/// w.bsr.row_ptr, w.bsr.col_idx and, unless slots are in their order,
/// w.bsr.slot.
llvm::Expected<llvm::SmallVector<mlir::bsr::interpreter::Datum>>
takeArguments(mlir::func::FuncOp step, const NamedArrays &arrays);

/// The name of result `index` of `step`: that of the argument it is the next
/// value of, or its own; the scores of a weight have the weight's.
std::string getResultName(mlir::func::FuncOp step, unsigned index,
                          llvm::ArrayRef<mlir::BlockArgument> carriers);

} // namespace tools

#endif // BSR_TOOLS_SPARSERUN_ARGUMENTS_H
