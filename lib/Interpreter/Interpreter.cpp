// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Goes through a program: calls, control flow, constants, numbers.

#include "bsr/Interpreter/Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;

/// Calls within calls: a program that is meant has few.
static constexpr unsigned deepest = 100;

std::vector<int64_t> interpreter::getShape(Type type) {
  ArrayRef<int64_t> shape = cast<ShapedType>(type).getShape();
  return {shape.begin(), shape.end()};
}

int64_t interpreter::getNumElements(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

Array interpreter::makeUnspecified(Type type) {
  Array array = {getShape(type), {}};
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(type));
  unsigned width = isFloat || getElementTypeOrSelf(type).isIndex()
                       ? 64
                       : getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  array.elements.assign(size_t(getNumElements(array.shape)),
                        isFloat ? fromReal(NAN)
                                : fromInteger(wrap(0x5a5a5a5a5a5a5a5a, width)));
  return array;
}

FailureOr<Array> interpreter::getElements(ElementsAttr attribute) {
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(attribute)) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    ShapedType type = resource.getType();
    bool isSplat;
    if (!blob ||
        !DenseElementsAttr::isValidRawBuffer(type, blob->getData(), isSplat))
      return failure();
    attribute = DenseElementsAttr::getFromRawBuffer(type, blob->getData());
  }
  if (!isa<DenseElementsAttr>(attribute))
    return failure();
  Array array = {getShape(attribute.getType()), {}};
  array.elements.reserve(size_t(attribute.getNumElements()));
  for (Attribute element :
       cast<DenseElementsAttr>(attribute).getValues<Attribute>())
    array.elements.push_back(getNumber(element));
  return array;
}

/// An element of a tensor from outside of a body.
ScalarFunction Interpreter::makeExtract(Operation *op) {
  const Array *array = &getArray(op->getOperand(0));
  return [this, op, array](const Number *in, Number *out) {
    int64_t place = 0;
    for (auto [i, extent] : llvm::enumerate(array->shape)) {
      int64_t index = in[i].integer;
      if (index < 0 || index >= extent) {
        outside = op;
        return;
      }
      place = place * extent + index;
    }
    *out = array->elements[size_t(place)];
  };
}

ScalarFunction Interpreter::getFunction(Operation *op) {
  if (isa<tensor::ExtractOp>(op))
    return makeExtract(op);
  ScalarFunction function = getScalarFunction(op);
  return rounding ? rounding->change(op, std::move(function)) : function;
}

LogicalResult Interpreter::prepare(Body &body, Block &block) {
  Operation *unknown = body.prepare(block, *this);
  if (!unknown)
    return success();
  return unknown->emitError() << "expected an operation on numbers that "
                                 "sparse-run interprets, but got '"
                              << unknown->getName() << "'";
}

LogicalResult Interpreter::finish() const {
  return outside ? outside->emitError(outsideMessage) : success();
}

Number Interpreter::getNumber(Value value) const {
  return std::get<Number>(get(value));
}

const Array &Interpreter::getArray(Value value) const {
  return *std::get<std::shared_ptr<const Array>>(get(value));
}

const Blocks &Interpreter::getPattern(Value value) const {
  return *std::get<std::shared_ptr<const Blocks>>(get(value));
}

int64_t Interpreter::getInteger(OpFoldResult value) const {
  if (auto attribute = dyn_cast<Attribute>(value))
    return cast<IntegerAttr>(attribute).getInt();
  return getNumber(cast<Value>(value)).integer;
}

SmallVector<Datum> Interpreter::getAll(ValueRange range) const {
  return llvm::map_to_vector(range, [&](Value value) { return get(value); });
}

void Interpreter::setAll(ValueRange range, ArrayRef<Datum> data) {
  for (auto [value, datum] : llvm::zip_equal(range, data))
    values[value] = datum;
}

FailureOr<SmallVector<Datum>> Interpreter::call(FunctionOpInterface function,
                                                ArrayRef<Datum> arguments) {
  Region *body = function.getCallableRegion();
  if (!body || !body->hasOneBlock())
    return function.emitError()
           << "expected a function of one block, but got "
           << (body && !body->empty() ? "several" : "a declaration");
  if (llvm::any_of(body->getArgumentTypes(), llvm::IsaPred<BaseMemRefType>))
    return function.emitError()
           << "expected a function on tensors, but got one on memory: "
              "sparse-run takes a step as it is in front of bsr-emit";
  if (depth == deepest)
    return function.emitError() << "expected at most " << deepest
                                << " calls within calls, but got more";
  ++depth;
  FailureOr<SmallVector<Datum>> results = run(body->front(), arguments);
  --depth;
  return results;
}

/// Runs the operations of `block` up to its terminator, whose operands are
/// returned.
FailureOr<SmallVector<Datum>> Interpreter::run(Block &block,
                                               ArrayRef<Datum> arguments) {
  setAll(block.getArguments(), arguments);
  for (Operation &op : block.without_terminator()) {
    if (failed(run(&op)))
      return failure();
    forget(&op);
  }
  return getAll(block.getTerminator()->getOperands());
}

/// Gives back the memory of values that nothing after `op` uses.
void Interpreter::forget(Operation *op) {
  Block *block = op->getBlock();
  auto isUsedLater = [&](Operation *user) {
    Operation *ancestor = block->findAncestorOpInBlock(*user);
    return ancestor && op->isBeforeInBlock(ancestor);
  };
  auto forgetIfLast = [&](Value value) {
    if (value.getParentBlock() == block &&
        llvm::none_of(value.getUsers(), isUsedLater))
      values.erase(value);
  };
  for (Value value : op->getOperands())
    forgetIfLast(value);
  for (Value value : op->getResults())
    forgetIfLast(value);
}

/// Computes an operation on numbers, or of each element of its tensors.
void Interpreter::runElementWise(Operation *op,
                                 const ScalarFunction &function) {
  SmallVector<Number> in(op->getNumOperands()), out(op->getNumResults());
  SmallVector<const Array *> arrays;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    bool isArray = isa<ShapedType>(operand.getType());
    arrays.push_back(isArray ? &getArray(operand) : nullptr);
    if (!isArray)
      in[i] = getNumber(operand);
  }
  if (!isa<ShapedType>(op->getResult(0).getType())) {
    function(in.data(), out.data());
    for (auto [result, number] : llvm::zip_equal(op->getResults(), out))
      set(result, number);
    return;
  }
  SmallVector<Array> results = llvm::map_to_vector(
      op->getResultTypes(), [](Type type) { return makeUnspecified(type); });
  for (size_t k = 0, end = results[0].elements.size(); k < end; ++k) {
    for (auto [i, array] : llvm::enumerate(arrays))
      if (array)
        in[i] = array->elements[k];
    function(in.data(), out.data());
    for (auto [result, number] : llvm::zip_equal(results, out))
      result.elements[k] = number;
  }
  for (auto [value, result] : llvm::zip_equal(op->getResults(), results))
    set(value, std::move(result));
}

LogicalResult Interpreter::runCall(Operation *op, FlatSymbolRefAttr name,
                                   ValueRange arguments) {
  auto callee = symbols.lookup<FunctionOpInterface>(name.getAttr());
  assert(callee && "the verifier looks for what is called");
  FailureOr<SmallVector<Datum>> results = call(callee, getAll(arguments));
  if (failed(results))
    return failure();
  setAll(op->getResults(), *results);
  return success();
}

LogicalResult Interpreter::runFor(scf::ForOp op) {
  int64_t end = getNumber(op.getUpperBound()).integer;
  int64_t step = getNumber(op.getStep()).integer;
  if (step <= 0)
    return op.emitError() << "expected a step of 1 or more, but got " << step;
  SmallVector<Datum> carried = getAll(op.getInitArgs());
  for (int64_t i = getNumber(op.getLowerBound()).integer; i < end; i += step) {
    SmallVector<Datum> arguments = {fromInteger(i)};
    llvm::append_range(arguments, carried);
    FailureOr<SmallVector<Datum>> yielded = run(*op.getBody(), arguments);
    if (failed(yielded))
      return failure();
    carried = std::move(*yielded);
  }
  setAll(op->getResults(), carried);
  return success();
}

LogicalResult Interpreter::runWhile(scf::WhileOp op) {
  SmallVector<Datum> carried = getAll(op.getInits());
  while (true) {
    FailureOr<SmallVector<Datum>> before = run(*op.getBeforeBody(), carried);
    if (failed(before))
      return failure();
    bool goesOn = std::get<Number>(before->front()).integer;
    carried.assign(before->begin() + 1, before->end());
    if (!goesOn)
      break;
    FailureOr<SmallVector<Datum>> after = run(*op.getAfterBody(), carried);
    if (failed(after))
      return failure();
    carried = std::move(*after);
  }
  setAll(op->getResults(), carried);
  return success();
}

LogicalResult Interpreter::run(Operation *op) {
  for (Type type : op->getResultTypes())
    if (auto shaped = dyn_cast<ShapedType>(type))
      if (!isa<RankedTensorType>(type) || !shaped.hasStaticShape() ||
          !shaped.getElementType().isIntOrIndexOrFloat())
        return op->emitError() << "expected results that are tensors of static "
                                  "shape, but got "
                               << type;
  Attribute constant;
  if (matchPattern(op, m_Constant(&constant)) && op->getNumOperands() == 0) {
    if (auto elements = dyn_cast<ElementsAttr>(constant)) {
      FailureOr<Array> array = getElements(elements);
      if (failed(array))
        return op->emitError() << "expected a constant whose elements are in "
                                  "the program, but got one without";
      set(op->getResult(0), std::move(*array));
      return success();
    }
  }
  if (std::optional<Number> number = getConstantNumber(op)) {
    set(op->getResult(0), *number);
    return success();
  }
  if (auto call = dyn_cast<func::CallOp>(op))
    return runCall(op, call.getCalleeAttr(), call.getOperands());
  if (auto launch = dyn_cast<LaunchOp>(op))
    return runCall(op, launch.getKernelAttr(), launch.getInputs());
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return runFor(loop);
  if (auto loop = dyn_cast<scf::WhileOp>(op))
    return runWhile(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    Region &taken = getNumber(branch.getCondition()).integer
                        ? branch.getThenRegion()
                        : branch.getElseRegion();
    if (taken.empty())
      return success();
    FailureOr<SmallVector<Datum>> yielded = run(taken.front(), {});
    if (succeeded(yielded))
      setAll(op->getResults(), *yielded);
    return LogicalResult(yielded);
  }
  for (auto *interpret :
       {interpretLinalg, interpretTensor, interpretBlocks, interpretAttention})
    if (std::optional<LogicalResult> done = interpret(op, *this))
      return *done;
  if (ScalarFunction function = getFunction(op)) {
    runElementWise(op, function);
    return success();
  }
  return op->emitError() << "expected an operation on tensors that sparse-run "
                            "interprets, but got '"
                         << op->getName() << "'";
}
