// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls the communicator for means over processes.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "bsr/step.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "support/ElementType.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLOWERREDUCTIONS
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The number of `element`, a `bsr_type`: files number types as well.
static int32_t getRuntimeType(Type element) {
  using ::bsr::ElementType;
  if (element.isF16())
    return int32_t(ElementType::F16);
  if (element.isBF16())
    return int32_t(ElementType::BF16);
  return int32_t(element.isF32() ? ElementType::F32 : ElementType::F64);
}

/// Makes `op` a call of `communicator`.
static void lower(AllReduceOp op, Value communicator, Value isThere) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Type ptr = communicator.getType(), i32 = b.getI32Type(), i64 = b.getI64Type();
  auto guard = scf::IfOp::create(b, loc, isThere);
  b.setInsertionPointToStart(guard.thenBlock());
  auto type = cast<MemRefType>(op.getData().getType());
  Value at =
      memref::ExtractAlignedPointerAsIndexOp::create(b, loc, op.getData());
  Value address = arith::IndexCastOp::create(b, loc, i64, at);
  Value data = LLVM::IntToPtrOp::create(b, loc, ptr, address);
  Value count = LLVM::ConstantOp::create(
      b, loc, i64, b.getI64IntegerAttr(type.getNumElements()));
  Value element = LLVM::ConstantOp::create(
      b, loc, i32, b.getI32IntegerAttr(getRuntimeType(type.getElementType())));
  // The first field.
  static_assert(offsetof(bsr_communicator, all_reduce) == 0);
  Value function = LLVM::LoadOp::create(b, loc, ptr, communicator);
  auto signature = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(b.getContext()), {ptr, ptr, i64, i32});
  LLVM::CallOp::create(
      b, loc, signature,
      ValueRange{function, communicator, data, count, element});
  op.erase();
}

namespace {
struct LowerReductions
    : mlir::bsr::impl::BSRLowerReductionsBase<LowerReductions> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(lowerIn(func)))
        return signalPassFailure();
  }

  LogicalResult lowerIn(func::FuncOp func) {
    SmallVector<AllReduceOp> reductions;
    func.walk([&](AllReduceOp op) { reductions.push_back(op); });
    for (AllReduceOp op : reductions)
      if (!isa<MemRefType>(op.getData().getType()))
        return op.emitError("expected a buffer, but got ")
               << op.getData().getType() << ": bufferize it first";
    if (!attrs::communicates.isOn(func)) {
      if (!reductions.empty())
        return reductions.front().emitError(
            "expected a step with bsr.communicates around it, but got none");
      return success();
    }
    OpBuilder b(func.getBody());
    Location loc = func.getLoc();
    Type ptr = LLVM::LLVMPointerType::get(b.getContext());
    if (failed(func.insertArgument(func.getNumArguments(), ptr, {}, loc)))
      return failure();
    Value field = LLVM::GEPOp::create(
        b, loc, ptr, b.getI8Type(), func.getArguments().back(),
        ArrayRef<LLVM::GEPArg>(int32_t(offsetof(bsr_context, communicator))));
    Value communicator = LLVM::LoadOp::create(b, loc, ptr, field);
    Value null = LLVM::ZeroOp::create(b, loc, ptr);
    Value isThere = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne,
                                         communicator, null);
    for (AllReduceOp op : reductions)
      lower(op, communicator, isThere);
    return success();
  }
};
} // namespace
