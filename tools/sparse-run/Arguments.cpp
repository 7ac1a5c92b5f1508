// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes what a step is called with from arrays of the names of its arguments.

#include "Arguments.h"

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::bsr::interpreter;
using namespace tools;
using llvm::createStringError;
using llvm::Expected;

static std::string print(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// What an array of a file is: "2x3 of floats".
static std::string describe(const NamedArray &array) {
  static constexpr StringLiteral kinds[] = {"floats", "integers", "booleans"};
  std::string shape = llvm::join(
      llvm::map_range(array.array.shape,
                      [](int64_t extent) { return std::to_string(extent); }),
      "x");
  return (shape.empty() ? "one" : shape) + " of " + kinds[array.kind].str();
}

/// The array `name` of `arrays`, for a tensor of type `type`.
static Expected<Array> takeArray(const NamedArrays &arrays,
                                 const std::string &name, Type type) {
  auto found = arrays.find(name);
  if (found == arrays.end())
    return createStringError("expected --values to have '" + name + "', " +
                             print(type) + ", but got none");
  const NamedArray &array = found->second;
  Type element = getElementTypeOrSelf(type);
  bool isFloat = array.kind == NamedArray::Floats;
  if (array.array.shape != getShape(type) || isFloat != isa<FloatType>(element))
    return createStringError("expected '" + name + "' of --values to be " +
                             print(type) + ", but got " + describe(array));
  Array taken = array.array;
  if (!isFloat && !element.isIndex()) {
    unsigned width = element.getIntOrFloatBitWidth();
    for (Number &number : taken.elements)
      number.integer = wrap(number.integer, width);
  }
  return taken;
}

/// The integers of `name`, an index array.
static Expected<SmallVector<int32_t>> takeIndices(const NamedArrays &arrays,
                                                  const std::string &name,
                                                  std::optional<int64_t> size) {
  auto found = arrays.find(name);
  std::string wanted =
      size ? std::to_string(*size) + " of integers" : "a row of integers";
  if (found == arrays.end())
    return createStringError("expected --values to have '" + name + "', " +
                             wanted + ", but got none");
  const NamedArray &array = found->second;
  if (array.kind != NamedArray::Integers || array.array.shape.size() != 1 ||
      (size && array.array.shape[0] < *size))
    return createStringError("expected '" + name + "' of --values to be " +
                             wanted + ", but got " + describe(array));
  SmallVector<int32_t> indices;
  for (Number number : array.array.elements)
    indices.push_back(
        int32_t(std::clamp<int64_t>(number.integer, INT32_MIN, INT32_MAX)));
  return indices;
}

/// The pattern `name` of `arrays`.
static Expected<Blocks> takePattern(const NamedArrays &arrays,
                                    const std::string &name,
                                    bsr::PatternType type, Location loc) {
  std::string prefix = name + ".bsr.";
  auto rowPtr = takeIndices(arrays, prefix + "row_ptr", type.getGridRows() + 1);
  if (!rowPtr)
    return rowPtr.takeError();
  int64_t count = std::max(rowPtr->back(), 0);
  auto colIdx = takeIndices(arrays, prefix + "col_idx", count);
  if (!colIdx)
    return colIdx.takeError();
  if (count > type.getSlots())
    return createStringError("expected pattern '" + name + "' of at most " +
                             std::to_string(type.getSlots()) +
                             " blocks, but got " + std::to_string(count));
  colIdx->truncate(size_t(count)); // what is behind is unspecified
  if (failed(bsr::verifyRowView([&] { return emitError(loc); }, type, *rowPtr,
                                *colIdx)))
    return createStringError("expected a pattern '" + name +
                             "', but got the errors above");
  SmallVector<int32_t> slots = llvm::to_vector(llvm::seq<int32_t>(0, count));
  if (arrays.count(prefix + "slot")) {
    auto taken = takeIndices(arrays, prefix + "slot", count);
    if (!taken)
      return taken.takeError();
    slots = std::move(*taken);
  }
  Blocks pattern = {type, {}};
  pattern.slots.assign(size_t(type.getGridRows() * type.getGridCols()),
                       Blocks::absent);
  llvm::DenseSet<int32_t> used;
  for (int64_t row = 0; row < type.getGridRows(); ++row)
    for (int32_t k = (*rowPtr)[size_t(row)]; k < (*rowPtr)[size_t(row) + 1];
         ++k) {
      int32_t slot = slots[size_t(k)];
      if (slot < 0 || slot >= type.getSlots() || !used.insert(slot).second)
        return createStringError(
            "expected the slots of pattern '" + name + "' to be from 0 to " +
            std::to_string(type.getSlots() - 1) + ", each once, but got " +
            std::to_string(slot));
      pattern.slots[size_t(row * type.getGridCols() + (*colIdx)[size_t(k)])] =
          slot;
    }
  return pattern;
}

Expected<SmallVector<Datum>> tools::takeArguments(func::FuncOp step,
                                                  const NamedArrays &arrays) {
  SmallVector<Datum> arguments;
  llvm::StringSet<> names;
  for (BlockArgument argument : step.getArguments()) {
    std::string name =
        bsr::attrs::name.ofArg(step, argument.getArgNumber()).str();
    if (auto type = dyn_cast<bsr::PatternType>(argument.getType())) {
      Expected<Blocks> pattern =
          takePattern(arrays, name, type, argument.getLoc());
      if (!pattern)
        return pattern.takeError();
      arguments.push_back(std::make_shared<const Blocks>(std::move(*pattern)));
      continue;
    }
    if (!names.insert(name).second)
      return createStringError("expected arguments of different names, but got "
                               "'" +
                               name + "' twice");
    Expected<Array> array = takeArray(arrays, name, argument.getType());
    if (!array)
      return array.takeError();
    arguments.push_back(std::make_shared<const Array>(std::move(*array)));
  }
  return arguments;
}

std::string tools::getResultName(func::FuncOp step, unsigned index,
                                 ArrayRef<BlockArgument> carriers) {
  if (carriers[index])
    return bsr::attrs::name.ofArg(step, carriers[index].getArgNumber()).str();
  StringAttr name = bsr::attrs::name.ofResult(step, index);
  return (bsr::isScores(step, index) ? "scores." : "") + name.str();
}
