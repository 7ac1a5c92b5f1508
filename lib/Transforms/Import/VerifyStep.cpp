// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that a module is a step that the pipelines can lower.

#include "VerifyBounds.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Index/IR/IndexDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRVERIFYSTEP
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

FailureOr<func::ReturnOp> bsr::getReturn(func::FuncOp func) {
  if (!func.getBody().hasOneBlock())
    return emitError(func.getLoc(), "expected a step of one block, but got ")
           << func.getBody().getBlocks().size() << " blocks";
  Operation *last = func.getBody().front().getTerminator();
  if (auto returned = dyn_cast<func::ReturnOp>(last))
    return returned;
  return emitError(last->getLoc(), "expected a step that ends in '")
         << func::ReturnOp::getOperationName() << "', but got '"
         << last->getName() << "'";
}

/// Whether tensors of a step can have elements of `type`; `isBuffer` means
/// those that the runtime sees.
static bool isElement(Type type, bool isBuffer = false) {
  if (type.isF16() || type.isBF16() || type.isF32() || type.isF64())
    return true;
  if (type.isIndex())
    return !isBuffer;
  if (!type.isInteger() || type.isSignedInteger())
    return false;
  unsigned width = type.getIntOrFloatBitWidth();
  return llvm::is_contained({1, 8, 32, 64}, width) ||
         (width == 16 && !isBuffer);
}

/// Checks that `type` is a tensor that compiled code can hold: of static shape,
/// with elements, of a type that the runtime knows if it `isBuffer` of the
/// caller. Completes the sentence that `emitError` begins if not.
static LogicalResult verifyTensor(function_ref<InFlightDiagnostic()> emitError,
                                  Type type, bool isBuffer = false) {
  // What the runtime takes, and more than any machine has.
  constexpr int64_t mostBytes = int64_t(1) << 47;
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return emitError() << "a tensor of static shape, but got " << type;
  if (tensor.getEncoding())
    return emitError() << "a tensor without an encoding, but got " << type;
  if (!isElement(tensor.getElementType(), isBuffer))
    return emitError() << "elements of f16, bf16, f32, f64, i1, i8, "
                       << (isBuffer ? "" : "i16, index, ")
                       << "i32 or i64, but got " << type;
  Type element = tensor.getElementType();
  int64_t bytes =
      element.isIndex() ? 8 : (element.getIntOrFloatBitWidth() + 7) / 8;
  for (int64_t extent : tensor.getShape()) {
    if (extent == 0)
      return emitError() << "at least one element, but got " << type;
    if (extent > mostBytes / bytes)
      return emitError() << "at most 2^47 bytes, but got " << type;
    bytes *= extent;
  }
  return success();
}

LogicalResult bsr::verifySignature(func::FuncOp step) {
  if (!step.isPublic())
    return emitError(step.getLoc(), "expected a public step, but got @")
           << step.getName() << ", which is private";
  if (failed(getReturn(step)))
    return failure();
  for (BlockArgument argument : step.getArguments()) {
    auto error = [&] {
      return emitError(argument.getLoc(), "expected argument ")
             << attrs::name.ofArg(step, argument.getArgNumber()) << " to have ";
    };
    if (!isa<PatternType>(argument.getType()) &&
        failed(verifyTensor(error, argument.getType(), /*isBuffer=*/true)))
      return failure();
  }
  for (auto [index, type] : llvm::enumerate(step.getResultTypes())) {
    auto error = [&, index = index] {
      return emitError(step.getLoc(), "expected result #")
             << index << " to have ";
    };
    if (failed(verifyTensor(error, type, /*isBuffer=*/true)))
      return failure();
  }
  return success();
}

/// Whether `op` casts between integers that differ in their sign only.
static bool isSignCast(Operation *op) {
  auto cast = dyn_cast<UnrealizedConversionCastOp>(op);
  if (!cast || cast.getInputs().size() != 1 || cast.getNumResults() != 1)
    return false;
  Type from = cast.getInputs().getTypes()[0], to = cast.getResultTypes()[0];
  auto fromTensor = dyn_cast<RankedTensorType>(from);
  auto toTensor = dyn_cast<RankedTensorType>(to);
  if (fromTensor && toTensor) {
    if (fromTensor.getShape() != toTensor.getShape())
      return false;
    from = fromTensor.getElementType();
    to = toTensor.getElementType();
  }
  auto isUnsigned = [](Type type) {
    return type.isSignlessInteger() || type.isUnsignedInteger();
  };
  return isUnsigned(from) && isUnsigned(to) &&
         from.getIntOrFloatBitWidth() == to.getIntOrFloatBitWidth();
}

/// Whether the pipelines lower operations like `op`, as far as its name tells.
static bool isKnown(Operation *op) {
  if (isa<func::CallOp, func::ReturnOp, cf::AssertOp>(op) || isSignCast(op))
    return true;
  return isa_and_nonnull<
      affine::AffineDialect, arith::ArithDialect, BSRDialect,
      bufferization::BufferizationDialect, index::IndexDialect,
      linalg::LinalgDialect, math::MathDialect, scf::SCFDialect,
      tensor::TensorDialect, ub::UBDialect, vector::VectorDialect>(
      op->getDialect());
}

/// Whether `op` can work on buffers: it has no tensors, or is one that
/// bufferization knows. Casts of signs go before it.
static bool isBufferizable(Operation *op) {
  if (isa<bufferization::BufferizableOpInterface>(op) || isSignCast(op) ||
      isa_and_nonnull<BSRDialect>(op->getDialect()))
    return true;
  return llvm::none_of(op->getOperandTypes(), llvm::IsaPred<TensorType>) &&
         llvm::none_of(op->getResultTypes(), llvm::IsaPred<TensorType>);
}

/// Checks that `type` of a result of `op` is a number that code can compute
/// with: LLVM converts no float of 16 bits to an integer of more than 64.
static LogicalResult verifyNumber(Operation *op, Type type) {
  if (type.isInteger() && type.getIntOrFloatBitWidth() > 64)
    return emitError(op->getLoc(),
                     "expected integers of at most 64 bits, but got '")
           << op->getName() << "' of " << type;
  if (!isa<FloatType>(type) || isElement(type))
    return success();
  return emitError(op->getLoc(),
                   "expected numbers of f16, bf16, f32 or f64, but got '")
         << op->getName() << "' of " << type;
}

/// Checks the operation `op` of a step.
static LogicalResult verifyOperation(Operation *op) {
  if (!isKnown(op))
    return emitError(op->getLoc(), "expected operations of arith, linalg, "
                                   "math, scf and tensor, but got '")
           << op->getName() << "'";
  // What no conversion to LLVM knows.
  if (isa<math::IPowIOp, math::IsNormalOp>(op))
    return emitError(op->getLoc(),
                     "expected an operation that becomes code, but got '")
           << op->getName() << "': write it in terms of others";
  // Nothing checks where in a buffer it is read and written.
  if (llvm::any_of(op->getOperandTypes(), llvm::IsaPred<BaseMemRefType>) ||
      llvm::any_of(op->getResultTypes(), llvm::IsaPred<BaseMemRefType>))
    return emitError(op->getLoc(), "expected operations on tensors, but got '")
           << op->getName() << "' on a buffer";
  if (!isBufferizable(op))
    return emitError(op->getLoc(),
                     "expected an operation that works on buffers, too, but "
                     "got '")
           << op->getName() << "' on tensors: write it in terms of others";
  auto error = [&] {
    return emitError(op->getLoc(), "expected '")
           << op->getName() << "' to have ";
  };
  for (Value result : op->getResults())
    if (isa<TensorType>(result.getType()) &&
        failed(verifyTensor(error, result.getType())))
      return failure();
  for (Type type : op->getResultTypes())
    if (!isa<ShapedType>(type) && failed(verifyNumber(op, type)))
      return failure();
  if (failed(verifyBounds(op)))
    return failure();
  if (auto launch = dyn_cast<LaunchOp>(op)) {
    auto kernel = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
        op, launch.getKernelAttr());
    if (!kernel || kernel.isExternal())
      return emitError(op->getLoc(), "expected a kernel with a body, but got ")
             << launch.getKernelAttr();
  }
  return success();
}

namespace {
struct VerifyStep : bsr::impl::BSRVerifyStepBase<VerifyStep> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<func::FuncOp> step = getStep(module);
    if (failed(step) || failed(verifySignature(*step)) ||
        failed(verifyModule(*step)))
      return signalPassFailure();
    SymbolTable symbols(module);
    SmallVector<func::FuncOp> callers;
    if (failed(verifyBody(*step, symbols, callers)))
      signalPassFailure();
  }

  /// Checks that the module of `step` is functions, of which others see one.
  LogicalResult verifyModule(func::FuncOp step) {
    for (Operation &op : *getOperation().getBody()) {
      auto func = dyn_cast<func::FuncOp>(op);
      if (!func)
        return emitError(op.getLoc(),
                         "expected functions beside the step, but got '")
               << op.getName() << "'";
      if (func.getName().starts_with("bsr_step_"))
        return emitError(func.getLoc(), "expected no function with a name of "
                                        "the interface of a step, but got @")
               << func.getName();
      if (func != step && func.isPublic() && !func.isExternal())
        return emitError(func.getLoc(), "expected functions beside the step to "
                                        "be private, but got @")
               << func.getName();
    }
    return success();
  }

  /// Checks the operations of `func` and of what it calls; `callers` called it.
  LogicalResult verifyBody(func::FuncOp func, SymbolTable &symbols,
                           SmallVectorImpl<func::FuncOp> &callers) {
    callers.push_back(func);
    WalkResult result =
        func.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
          if (failed(verifyOperation(op)))
            return WalkResult::interrupt();
          auto call = dyn_cast<func::CallOp>(op);
          return WalkResult(
              success(!call || succeeded(verifyCall(call, symbols, callers))));
        });
    callers.pop_back();
    verified.insert(func);
    return success(!result.wasInterrupted());
  }

  /// Checks that `call` can be inlined, and the operations of its callee.
  LogicalResult verifyCall(func::CallOp call, SymbolTable &symbols,
                           SmallVectorImpl<func::FuncOp> &callers) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!callee || callee.isExternal())
      return emitError(call.getLoc(),
                       "expected a call of a function with a body, but got @")
             << call.getCallee();
    if (llvm::is_contained(callers, callee))
      return emitError(call.getLoc(),
                       "expected no recursion, but got a call of @")
             << call.getCallee() << " within itself";
    if (verified.contains(callee))
      return success();
    if (failed(getReturn(callee)))
      return failure();
    return verifyBody(callee, symbols, callers);
  }

  /// The functions that are checked.
  DenseSet<func::FuncOp> verified;
};
} // namespace
