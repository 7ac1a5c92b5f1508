// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interprets a training step: slow, plain, in doubles.

#include "../StepFile.h"
#include "../Version.h"
#include "Arguments.h"
#include "Files.h"

#include "bsr/Analysis/Step.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/WithColor.h"
#include <cmath>

namespace cl = llvm::cl;
using namespace mlir;
using namespace mlir::bsr::interpreter;
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
  assert(succeeded(step) && "parseStep takes nothing else");
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
    std::string name = getResultName(*step, unsigned(i), carriers);
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
