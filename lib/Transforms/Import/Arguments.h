// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives a step several arguments in place of one.

#ifndef BSR_TRANSFORMS_IMPORT_ARGUMENTS_H
#define BSR_TRANSFORMS_IMPORT_ARGUMENTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace mlir::bsr {

/// How a tensor is apart: along `dim`, part `i` from `starts[i]` to
/// `starts[i + 1]`. The parts of a stack, its matrices, lack that dimension.
struct Partition {
  int64_t dim = 0;
  SmallVector<int64_t> starts;
  bool isStack = false;

  /// The partition of a stack of `size` matrices.
  static Partition ofStack(int64_t size);

  int64_t size() const { return starts.size() - 1; }
  /// The type of part `index` of a tensor of type `whole`.
  RankedTensorType getType(RankedTensorType whole, int64_t index) const;
  /// Part `index` of `whole`, as a slice of it.
  Value extract(OpBuilder &b, Location loc, Value whole, int64_t index) const;
  /// The tensor that has these parts.
  Value join(OpBuilder &b, Location loc, ArrayRef<Value> parts) const;
};

/// What is called `name`, of part `index`.
StringAttr getPartName(StringAttr name, int64_t index);

/// Checks that the names of the parts of the arguments that `partitions` takes
/// apart are new.
LogicalResult verifyPartNames(func::FuncOp func,
                              ArrayRef<std::optional<Partition>> partitions);

/// Gives `func` the parts of each argument with a partition in its place, and
/// those of its next value: the arguments are joined from the ones at the
/// start, the others sliced from the next values at the end. Names, marks,
/// masks and origins are those of parts. Says so: `joined` gets each argument
/// and its parts, `cut` each next value.
void splitArguments(func::FuncOp func,
                    ArrayRef<std::optional<Partition>> partitions,
                    function_ref<void(Value, ArrayRef<Value>)> joined,
                    function_ref<void(Value)> cut);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_IMPORT_ARGUMENTS_H
