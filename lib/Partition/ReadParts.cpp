// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step as a chain of parts, and where its operations belong.

#include "bsr/Partition/ReadParts.h"
#include "StepReader.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::partition;

/// Gives parts and shared parameters the state that they need and short names.
void StepReader::nameParts() {
  for (Group &group : groups) {
    SmallVector<unsigned> parts(group.parts.getArrayRef());
    llvm::sort(parts);
    if (parts.size() > 1) {
      result.shared.push_back(
          {group.name, group.stateBytes, group.gradientBytes, parts});
      continue;
    }
    StepPart &part = result.parts[parts.empty() ? 0 : parts.front()];
    part.stateBytes += group.stateBytes;
    part.gradientBytes += group.gradientBytes;
  }
  // What all names begin with, up to a dot.
  std::string prefix = result.parts.front().name;
  for (const StepPart &part : result.parts)
    while (!prefix.empty() && !StringRef(part.name).starts_with(prefix))
      prefix.pop_back();
  size_t length =
      prefix.rfind('.') == std::string::npos ? 0 : prefix.rfind('.') + 1;
  for (StepPart &part : result.parts)
    part.name.erase(0, length);
  for (SharedState &shared : result.shared)
    if (StringRef(shared.name).starts_with(prefix.substr(0, length)))
      shared.name.erase(0, length);
}

FailureOr<StepParts> StepReader::read() {
  if (failed(findLoss()) || failed(findSamples()))
    return failure();
  findGroups();
  if (failed(readForward()))
    return failure();
  mergeStates();
  findReach();
  readBackward();
  countCuts();
  nameParts();
  return std::move(result);
}

/// True of what is computed where it is read rather than sent: numbers that are
/// no tensors, and what only reorders.
static bool isComputedWhereRead(Operation *op) {
  return !llvm::all_of(op->getResultTypes(), llvm::IsaPred<RankedTensorType>) ||
         getSource(op->getResult(0)) != op->getResult(0);
}

StepPlaces StepReader::getPlaces() {
  StepPlaces places;
  auto getParts = [&](unsigned group) {
    SmallVector<unsigned, 1> parts(groups[group].parts.begin(),
                                   groups[group].parts.end());
    llvm::sort(parts);
    if (parts.empty())
      parts.push_back(0);
    return parts;
  };
  // A pattern is where its values are, and so is what reads it alone.
  DenseMap<Value, SmallVector<unsigned, 1>> patterns;
  for (auto [argument, group] : groupOf) {
    SmallVector<unsigned, 1> parts = getParts(group);
    unsigned number = cast<BlockArgument>(argument).getArgNumber();
    if (auto pattern = attrs::pattern.ofArg(step, number))
      patterns[step.getArgument(pattern.getInt())] = parts;
    places.arguments[argument] = std::move(parts);
  }
  for (Operation &op : step.front()) {
    if (!op.getNumResults() || isComputedWhereRead(&op))
      continue;
    Value first = op.getResult(0);
    if (auto mean = dyn_cast<AllReduceOp>(op)) {
      // Where that is which it is of, a number, too.
      Operation *made = getSource(mean.getData()).getDefiningOp();
      if (auto place = places.operations.find(made);
          place != places.operations.end())
        places.operations[&op] = SmallVector<unsigned, 1>(place->second);
    } else if (auto part = partOf.find(first); part != partOf.end()) {
      // What is made of data alone, all have.
      if (activations.contains(first))
        places.operations[&op] = {part->second};
    } else if (auto found = backward.find(first);
               found != backward.end() && found->second.part >= 0) {
      if (found->second.isSum)
        places.operations[&op] = getParts(found->second.group);
      else
        places.operations[&op] = {unsigned(found->second.part)};
    } else if (!getGroups(first).empty()) {
      // What is made of parameters alone is where all of these are.
      SmallVector<unsigned, 1> parts = getParts(getGroups(first).front());
      for (unsigned group : getGroups(first))
        llvm::erase_if(parts, [&](unsigned part) {
          return !llvm::is_contained(getParts(group), part);
        });
      if (!parts.empty())
        places.operations[&op] = parts;
    } else {
      for (Value operand : op.getOperands())
        if (auto parts = patterns.find(operand); parts != patterns.end())
          places.operations[&op] = parts->second;
    }
  }
  return places;
}

FailureOr<StepParts> bsr::readParts(func::FuncOp step) {
  StepPlaces places;
  return readParts(step, places);
}

FailureOr<StepParts> bsr::readParts(func::FuncOp step, StepPlaces &places) {
  if (failed(getReturn(step)))
    return failure();
  StepReader reader(step);
  FailureOr<StepParts> parts = reader.read();
  if (succeeded(parts))
    places = reader.getPlaces();
  return parts;
}
