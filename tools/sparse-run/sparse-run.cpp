// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interprets a training step: slow, plain, in doubles.

#include "../StepFile.h"
#include "../Version.h"
#include "Files.h"
#include "Interpreter.h"

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/WithColor.h"
#include <cmath>

namespace cl = llvm::cl;
using namespace mlir;
using namespace tools;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

static cl::OptionCategory category("Options");
static cl::opt<std::string> input(cl::Positional, cl::init("-"),
                                  cl::desc("<step.mlir>"), cl::cat(category));
static cl::list<std::string> valueFiles(
    "values",
    cl::desc("Arrays of the names of the step's arguments: a safetensors file, "
             "such as a checkpoint, a .npy file, or a folder of them "
             "(repeatable; the last one that has a name counts). A pattern 'w' "
             "is w.bsr.row_ptr, w.bsr.col_idx and, unless slots are in their "
             "order, w.bsr.slot"),
    cl::value_desc("path"), cl::cat(category));
static cl::opt<std::string>
    output("o",
           cl::desc("The safetensors file of the results to write; what an "
                    "argument becomes is under the argument's name (default: "
                    "print what they are)"),
           cl::value_desc("file"), cl::cat(category));

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

/// The arguments of `step`, of `arrays`.
static Expected<SmallVector<Datum>> takeArguments(func::FuncOp step,
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

/// The name of result `index` of `step`: that of the argument it is the next
/// value of, or its own; the scores of a weight have the weight's.
static std::string getName(func::FuncOp step, unsigned index,
                           ArrayRef<BlockArgument> carriers) {
  if (carriers[index])
    return bsr::attrs::name.ofArg(step, carriers[index].getArgNumber()).str();
  StringAttr name = bsr::attrs::name.ofResult(step, index);
  return (bsr::isScores(step, index) ? "scores." : "") + name.str();
}

/// A line about `array`: its one number, or what its numbers are like.
static void printArray(StringRef name, Type type, const Array &array) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(type));
  auto get = [&](Number number) {
    return isFloat ? number.real : double(number.integer);
  };
  llvm::outs() << name << "  " << type << "  ";
  if (array.elements.size() == 1) {
    llvm::outs() << llvm::format("%.10g", get(array.elements[0])) << "\n";
    return;
  }
  double sum = 0, squares = 0;
  for (Number number : array.elements)
    sum += get(number), squares += get(number) * get(number);
  double count = double(array.elements.size());
  llvm::outs() << llvm::format("mean %.10g, root mean square %.10g\n",
                               sum / count, std::sqrt(squares / count));
}

static Error run(MLIRContext &context, llvm::SourceMgr &sources) {
  auto module = parseStep(input, sources, context);
  if (!module)
    return module.takeError();
  FailureOr<func::FuncOp> step = bsr::getStep(**module);
  if (failed(step))
    return createStringError("expected a step, but got the errors above");
  NamedArrays arrays;
  for (const std::string &path : valueFiles)
    if (std::string error = readArrays(path, arrays); !error.empty())
      return createStringError(error);
  Expected<SmallVector<Datum>> arguments = takeArguments(*step, arrays);
  if (!arguments)
    return arguments.takeError();
  FailureOr<SmallVector<Datum>> results =
      Interpreter(**module).call(*step, *arguments);
  if (failed(results))
    return createStringError(
        "expected a step that can be interpreted, but got the errors above");
  SmallVector<BlockArgument> carriers = bsr::getCarriers(*step);
  NamedArrays named;
  for (auto [i, result] : llvm::enumerate(*results)) {
    Type type = step->getResultTypes()[i];
    std::string name = getName(*step, unsigned(i), carriers);
    const Array &array = *std::get<std::shared_ptr<const Array>>(result);
    if (output.empty()) {
      printArray(name, type, array);
      continue;
    }
    Type element = getElementTypeOrSelf(type);
    NamedArray::Kind kind = isa<FloatType>(element) ? NamedArray::Floats
                            : element.isInteger(1)  ? NamedArray::Booleans
                                                    : NamedArray::Integers;
    if (!named.try_emplace(name, NamedArray{kind, array}).second)
      return createStringError(
          "expected results of different names, but got '" + name + "' twice");
  }
  if (output.empty())
    return Error::success();
  std::string error = writeArrays(output, named);
  return error.empty() ? Error::success() : createStringError(error);
}

int main(int argc, char **argv) {
  // What is printed never goes into a file that got a closed stream's number.
  if (llvm::sys::Process::FixupStandardFileDescriptors())
    return 1;
  llvm::setBugReportMsg(describeCrash("sparse-run"));
  llvm::InitLLVM init(argc, argv);
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << describeVersion("sparse-run") << ", LLVM " LLVM_VERSION_STRING "\n";
  });
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv,
      "Interprets a training step on tensors, as it is or after the first "
      "stages of a\npipeline: slow, plain, every float a double. For comparing "
      "others with.\n");
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  bsr::registerDialect(registry);
  MLIRContext context(registry);
  context.printOpOnDiagnostic(false);
  llvm::SourceMgr sources;
  sources.setDiagHandler(printDiagnostic);
  SourceMgrDiagnosticHandler handler(sources, &context);
  if (Error error = run(context, sources)) {
    llvm::WithColor::error(llvm::errs(), "sparse-run")
        << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  return 0;
}
