// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "bsr/Interpreter/Body.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr::interpreter;

/// New places for `values`, one after the other; returns the first.
unsigned Body::addPlaces(ValueRange values) {
  unsigned first = frame.size();
  for (Value value : values)
    places[value] = frame.size(), frame.push_back(fromInteger(0));
  return first;
}

/// Adds the places of what `op` reads, of numbers from outside new ones. False
/// if such a number is not known.
bool Body::addOperands(Operation *op, SmallVectorImpl<unsigned> &operands,
                       const Surroundings &surroundings) {
  for (Value value : op->getOperands()) {
    if (isa<ShapedType>(value.getType()))
      continue;
    if (!places.count(value)) {
      std::optional<Number> number = surroundings.findNumber(value);
      if (!number)
        return false;
      frame[addPlaces(value)] = *number;
    }
    operands.push_back(places[value]);
  }
  return true;
}

bool Body::add(Operation *op, Surroundings &surroundings) {
  if (std::optional<Number> constant = getConstantNumber(op)) {
    frame[addPlaces(op->getResults())] = *constant;
    return true;
  }
  Instruction instruction;
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    instruction.function = [this, dim = index.getDim()](const Number *,
                                                        Number *out) {
      out->integer = point[dim];
    };
  else
    instruction.function = surroundings.getFunction(op);
  if (!instruction.function ||
      !addOperands(op, instruction.operands, surroundings))
    return false;
  instruction.result = addPlaces(op->getResults());
  instructions.push_back(std::move(instruction));
  return true;
}

Operation *Body::prepare(Block &block, Surroundings &surroundings) {
  addPlaces(block.getArguments());
  for (Operation &op : block.without_terminator())
    if (!add(&op, surroundings))
      return &op;
  Operation *terminator = block.getTerminator();
  return addOperands(terminator, yielded, surroundings) ? nullptr : terminator;
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
