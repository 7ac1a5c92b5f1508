// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clusters of operations, and their launches.

#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/ClusterVerifier.h"
#include "bsr/Dialect/Schedules.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/FunctionImplementation.h"

using namespace mlir;
using namespace mlir::bsr;

//===----------------------------------------------------------------------===//
// ClusterOp
//===----------------------------------------------------------------------===//

void ClusterOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                      FunctionType type) {
  state.addAttribute(getSymNameAttrName(state.name),
                     builder.getStringAttr(name));
  state.addAttribute(getFunctionTypeAttrName(state.name), TypeAttr::get(type));
  state.addAttribute(getSymVisibilityAttrName(state.name),
                     builder.getStringAttr("private"));
  OpBuilder::InsertionGuard guard(builder);
  Region *body = state.addRegion();
  SmallVector<Location> locs(type.getNumInputs(), state.location);
  builder.createBlock(body, {}, type.getInputs(), locs);
}

ParseResult ClusterOp::parse(OpAsmParser &parser, OperationState &result) {
  auto buildType = [](Builder &builder, ArrayRef<Type> inputs,
                      ArrayRef<Type> results,
                      function_interface_impl::VariadicFlag, std::string &) {
    return builder.getFunctionType(inputs, results);
  };
  return function_interface_impl::parseFunctionOp(
      parser, result, /*allowVariadic=*/false,
      getFunctionTypeAttrName(result.name), buildType,
      getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void ClusterOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(
      printer, *this, /*isVariadic=*/false, getFunctionTypeAttrName(),
      getArgAttrsAttrName(), getResAttrsAttrName());
}

void ClusterOp::setYielded(ValueRange values) {
  setFunctionType(
      FunctionType::get(getContext(), getArgumentTypes(), values.getTypes()));
  getBody().front().getTerminator()->setOperands(values);
}

LogicalResult ClusterOp::verifyRegions() {
  auto yield = dyn_cast<YieldOp>(getBody().front().getTerminator());
  if (!yield)
    return emitOpError("expected to end in 'bsr.yield', but got '")
           << getBody().front().getTerminator()->getName() << "'";
  if (getResultTypes().empty())
    return emitOpError("expected at least 1 result, but got 0");
  if (TypeRange(getResultTypes()) != yield.getOperandTypes())
    return yield.emitOpError("expected operands of types ")
           << getResultTypes() << ", but got " << yield.getOperandTypes();
  for (Value result : yield.getResults())
    if (auto argument = dyn_cast<BlockArgument>(result))
      return emitOpError("expected to compute its results, but got argument #")
             << argument.getArgNumber();
  for (Operation &op : getBody().front())
    if (failed(verifySchedule(&op)))
      return failure();
  if (!getPlan()) {
    for (Operation &op : getBody().front())
      if (attrs::root.isOn(&op))
        return op.emitError("expected a plan of the cluster around a "
                            "#bsr.root, but got none");
    return success();
  }
  auto *verifier =
      (*this)->getDialect()->getRegisteredInterface<ClusterVerifierInterface>();
  return success(!verifier || succeeded(verifier->verifyPlan(*this)));
}

//===----------------------------------------------------------------------===//
// LaunchOp
//===----------------------------------------------------------------------===//

MemRefType mlir::bsr::getDenseBufferType(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return MemRefType::get(tensor.getShape(), tensor.getElementType());
}

LogicalResult LaunchOp::verify() {
  int64_t numInputs = getInputs().size();
  if (getInits().empty())
    return emitOpError("expected at least 1 init, but got 0");
  for (int64_t input : getInPlace())
    if (input < 0 || input >= numInputs)
      return emitOpError("expected in_place to list inputs (0 to ")
             << numInputs - 1 << "), but got " << input;
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  Operation *callee =
      symbolTable.lookupNearestSymbolFrom(*this, getKernelAttr());
  if (auto cluster = dyn_cast_or_null<ClusterOp>(callee)) {
    auto expected = FunctionType::get(getContext(), getInputs().getTypes(),
                                      getResultTypes());
    if (cluster.getFunctionType() != expected)
      return emitOpError("expected cluster ")
             << getKernelAttr() << " to have type " << expected << ", but got "
             << cluster.getFunctionType();
    return success();
  }
  auto kernel = dyn_cast_or_null<func::FuncOp>(callee);
  if (!kernel)
    return emitOpError("expected a cluster or a kernel, but got ")
           << getKernelAttr();
  FunctionType type = kernel.getFunctionType();
  if (type.getNumResults() != 0)
    return emitOpError("expected kernel ")
           << getKernelAttr() << " to return nothing, but got " << type;
  if (type.getNumInputs() != getNumOperands())
    return emitOpError("expected kernel ")
           << getKernelAttr() << " to take " << getNumOperands()
           << " buffers, but got " << type.getNumInputs();
  for (auto [index, actual, operand] :
       llvm::enumerate(type.getInputs(), getOperandTypes())) {
    if (isa<PatternType>(operand))
      return emitOpError("expected operand #")
             << index << " of kernel " << getKernelAttr()
             << " to be a tensor, but got " << operand;
    Type expected =
        operand.isIndex() ? operand : Type(getDenseBufferType(operand));
    if (actual != expected)
      return emitOpError("expected argument #")
             << index << " of kernel " << getKernelAttr() << " to be "
             << expected << ", but got " << actual;
  }
  return success();
}

bool LaunchOp::bufferizesToMemoryRead(OpOperand &operand,
                                      const bufferization::AnalysisState &) {
  return isDpsInput(&operand);
}

bool LaunchOp::bufferizesToMemoryWrite(OpOperand &operand,
                                       const bufferization::AnalysisState &) {
  return isDpsInit(&operand);
}

bool LaunchOp::bufferizesToElementwiseAccess(
    const bufferization::AnalysisState &, ArrayRef<OpOperand *> operands) {
  return llvm::all_of(operands, [&](OpOperand *operand) {
    return isDpsInit(operand) ||
           llvm::is_contained(getInPlace(), operand->getOperandNumber());
  });
}

bufferization::AliasingValueList
LaunchOp::getAliasingValues(OpOperand &operand,
                            const bufferization::AnalysisState &) {
  if (!isDpsInit(&operand))
    return {};
  return {
      {getTiedOpResult(&operand), bufferization::BufferRelation::Equivalent}};
}

/// launch -> call; a kernel takes dense buffers, so an operand that is a view
/// of another shape goes through a copy.
LogicalResult
LaunchOp::bufferize(RewriterBase &rewriter,
                    const bufferization::BufferizationOptions &options,
                    bufferization::BufferizationState &state) {
  SmallVector<Value> arguments, results;
  SmallVector<std::pair<Value, Value>> copiesBack;
  for (OpOperand &operand : getOperation()->getOpOperands()) {
    if (operand.get().getType().isIndex()) {
      arguments.push_back(operand.get());
      continue;
    }
    if (!isa<TensorType>(operand.get().getType()))
      return emitOpError("expected patterns to be lowered (bsr-lower-patterns) "
                         "before bufferization, but got operand #")
             << operand.getOperandNumber() << " of type "
             << operand.get().getType();
    FailureOr<Value> buffer =
        getBuffer(rewriter, operand.get(), options, state);
    if (failed(buffer))
      return failure();
    if (isDpsInit(&operand))
      results.push_back(*buffer);
    MemRefType type = getDenseBufferType(operand.get().getType());
    if (buffer->getType() == type) {
      arguments.push_back(*buffer);
      continue;
    }
    FailureOr<Value> dense =
        options.createAlloc(rewriter, getLoc(), type, /*dynShape=*/{});
    if (failed(dense))
      return failure();
    arguments.push_back(*dense);
    if (isDpsInit(&operand))
      copiesBack.emplace_back(*dense, *buffer);
    else if (failed(options.createMemCpy(rewriter, getLoc(), *buffer, *dense)))
      return failure();
  }
  auto call = func::CallOp::create(rewriter, getLoc(), getKernelAttr(),
                                   TypeRange(), arguments);
  if (auto kind = attrs::kind.get(*this))
    attrs::kind.set(call, kind);
  for (auto [dense, buffer] : copiesBack)
    if (failed(options.createMemCpy(rewriter, getLoc(), dense, buffer)))
      return failure();
  bufferization::replaceOpWithBufferizedValues(rewriter, *this, results);
  return success();
}
