// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls of the functions of a communicator.

#include "CommunicatorCalls.h"
#include "bsr/step.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::bsr;

/// The value of the pointer that lies `offset` bytes behind `address`.
static Value loadPointer(OpBuilder &b, Location loc, Value address,
                         size_t offset) {
  if (offset)
    address =
        LLVM::GEPOp::create(b, loc, address.getType(), b.getI8Type(), address,
                            ArrayRef<LLVM::GEPArg>(int32_t(offset)));
  return LLVM::LoadOp::create(b, loc, address.getType(), address);
}

CommunicatorCalls::CommunicatorCalls(OpBuilder &b, Location loc, Value context)
    : b(b), communicator(loadPointer(b, loc, context,
                                     offsetof(bsr_context, communicator))) {}

Value CommunicatorCalls::getConstant(Location loc, Type type, int64_t value) {
  return LLVM::ConstantOp::create(b, loc, type, b.getIntegerAttr(type, value));
}

Value CommunicatorCalls::getAddress(Location loc, Value buffer) {
  Value at = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, buffer);
  Value address = arith::IndexCastOp::create(b, loc, b.getI64Type(), at);
  return LLVM::IntToPtrOp::create(b, loc, communicator.getType(), address);
}

Value CommunicatorCalls::getBytes(Location loc, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  return getConstant(loc, b.getI64Type(),
                     type.getNumElements() *
                         ((type.getElementTypeBitWidth() + 7) / 8));
}

LLVM::CallOp CommunicatorCalls::call(Location loc, size_t offset, Type result,
                                     ArrayRef<Value> arguments) {
  SmallVector<Value> operands = {loadPointer(b, loc, communicator, offset),
                                 communicator};
  llvm::append_range(operands, arguments);
  auto signature = LLVM::LLVMFunctionType::get(
      result, llvm::to_vector(ValueRange(operands).drop_front().getTypes()));
  return LLVM::CallOp::create(b, loc, signature, operands);
}
