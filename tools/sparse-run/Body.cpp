// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Body.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace tools;
using namespace mlir;

/// New places for `values`, one after the other; returns the first.
unsigned Body::addPlaces(ValueRange range) {
  unsigned first = frame.size();
  for (Value value : range)
    places[value] = frame.size(), frame.push_back(fromInteger(0));
  return first;
}

/// The place of `value`: its own, or a new one for what comes from outside.
unsigned Body::getPlace(Value value, const Interpreter &interpreter) {
  auto found = places.find(value);
  if (found != places.end())
    return found->second;
  unsigned place = addPlaces(value);
  frame[place] = interpreter.getNumber(value);
  return place;
}

/// An element of a tensor from outside of the block.
ScalarFunction Body::makeExtract(Operation *op,
                                 const Interpreter &interpreter) {
  const Array *array =
      &interpreter.getArray(cast<tensor::ExtractOp>(op).getTensor());
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

LogicalResult Body::prepare(Block &block, const Interpreter &interpreter) {
  addPlaces(block.getArguments());
  for (Operation &op : block.without_terminator()) {
    Attribute constant;
    if (op.getNumOperands() == 0 && matchPattern(&op, m_Constant(&constant)) &&
        isa<FloatAttr, IntegerAttr>(constant)) {
      frame[addPlaces(op.getResults())] = getNumber(constant);
      continue;
    }
    Instruction instruction;
    ValueRange operands = op.getOperands();
    if (auto index = dyn_cast<linalg::IndexOp>(op)) {
      instruction.function = [this, dim = index.getDim()](const Number *,
                                                          Number *out) {
        out->integer = point[dim];
      };
    } else if (isa<tensor::ExtractOp>(op)) {
      instruction.function = makeExtract(&op, interpreter);
      operands = operands.drop_front();
    } else {
      instruction.function = interpreter.getFunction(&op);
    }
    if (!instruction.function)
      return op.emitError() << "expected an operation on numbers that "
                               "sparse-run interprets, but got '"
                            << op.getName() << "'";
    for (Value operand : operands)
      instruction.operands.push_back(getPlace(operand, interpreter));
    instruction.result = addPlaces(op.getResults());
    instructions.push_back(std::move(instruction));
  }
  for (Value value : block.getTerminator()->getOperands())
    yielded.push_back(getPlace(value, interpreter));
  return success();
}

void Body::run(const int64_t *at) {
  point = at;
  SmallVector<Number> in;
  for (const Instruction &instruction : instructions) {
    in.clear();
    for (unsigned place : instruction.operands)
      in.push_back(frame[place]);
    instruction.function(in.data(), &frame[instruction.result]);
  }
}

LogicalResult Body::finish() const {
  if (!outside)
    return success();
  return outside->emitError(outsideMessage);
}
