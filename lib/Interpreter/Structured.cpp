// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations of linalg: every point of the loops, in their order.

#include "Points.h"
#include "bsr/Interpreter/Interpreter.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;

/// Where an operand's element is read at a point, or the number that it is.
namespace {
struct Operand {
  const Number *elements;
  LinearMap map;

  Number at(const std::vector<int64_t> &point) const {
    return elements[map.at(point)];
  }
};
} // namespace

static LogicalResult run(linalg::LinalgOp op, Interpreter &interpreter) {
  assert(op.hasPureTensorSemantics() && !op.hasDynamicShape() &&
         "the interpreter refuses results that are no such tensors");
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  std::vector<int64_t> extents(ranges.begin(), ranges.end());
  std::vector<Number> numbers(op->getNumOperands());
  std::vector<Operand> operands;
  SmallVector<Array> results;
  for (Value init : op.getDpsInits())
    results.push_back(interpreter.getArray(init));
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned number = operand.getOperandNumber();
    Operand access = {nullptr, {}};
    if (!isa<ShapedType>(operand.get().getType())) {
      numbers[number] = interpreter.getNumber(operand.get());
      access.elements = &numbers[number];
      access.map.strides.assign(extents.size(), 0);
    } else {
      std::optional<LinearMap> map =
          getLinearMap(op.getMatchingIndexingMap(&operand),
                       getShape(operand.get().getType()));
      if (!map)
        return op->emitError()
               << "expected indexing maps without division, but got one with";
      access.map = *map;
      access.elements =
          op.isDpsInit(&operand)
              ? results[number - op.getNumDpsInputs()].elements.data()
              : interpreter.getArray(operand.get()).elements.data();
    }
    operands.push_back(access);
  }
  Body body;
  if (failed(interpreter.prepare(body, *op.getBlock())))
    return failure();
  forEachPoint(extents, [&](const std::vector<int64_t> &point) {
    for (auto [i, operand] : llvm::enumerate(operands))
      body.getArguments()[i] = operand.at(point);
    body.run(point.data());
    for (auto [i, result] : llvm::enumerate(results))
      result.elements[size_t(operands[size_t(op.getNumDpsInputs()) + i].map.at(
          point))] = body.getYielded(unsigned(i));
  });
  for (auto [value, result] : llvm::zip_equal(op->getResults(), results))
    interpreter.set(value, std::move(result));
  return interpreter.finish();
}

std::optional<LogicalResult>
interpreter::interpretLinalg(Operation *op, Interpreter &interpreter) {
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return run(linalgOp, interpreter);
  return std::nullopt;
}
