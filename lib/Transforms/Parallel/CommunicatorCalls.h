// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls of the functions of a communicator, whose table is in bsr/step.h.

#ifndef BSR_LIB_TRANSFORMS_PARALLEL_COMMUNICATORCALLS_H
#define BSR_LIB_TRANSFORMS_PARALLEL_COMMUNICATORCALLS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"

namespace mlir::bsr {

/// Emits calls of the communicator of a step at the insertion point of a
/// builder.
class CommunicatorCalls {
public:
  /// Loads the communicator from `context`, the address of the step's.
  CommunicatorCalls(OpBuilder &b, Location loc, Value context);

  /// The address of the communicator, which may be null.
  Value getCommunicator() const { return communicator; }

  Value getConstant(Location loc, Type type, int64_t value);
  /// The address of the elements of `buffer`.
  Value getAddress(Location loc, Value buffer);
  /// The number of bytes of `buffer`.
  Value getBytes(Location loc, Value buffer);

  /// Calls the function whose address is `offset` bytes in the communicator.
  LLVM::CallOp call(Location loc, size_t offset, Type result,
                    ArrayRef<Value> arguments);
  LLVM::CallOp call(Location loc, size_t offset, ArrayRef<Value> arguments) {
    return call(loc, offset, LLVM::LLVMVoidType::get(b.getContext()),
                arguments);
  }

private:
  OpBuilder &b;
  Value communicator;
};

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_PARALLEL_COMMUNICATORCALLS_H
