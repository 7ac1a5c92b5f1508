// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How tools of the compiler read a step.

#include "StepFile.h"
#include "InputFile.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using llvm::createStringError;
using llvm::Expected;

void tools::printDiagnostic(const llvm::SMDiagnostic &diagnostic, void *) {
  constexpr size_t longest = 200;
  if (diagnostic.getLineContents().size() <= longest)
    return diagnostic.print(/*ProgName=*/nullptr, llvm::errs());
  std::string place =
      llvm::formatv("{0}:{1}:{2}", diagnostic.getFilename(),
                    diagnostic.getLineNo(), diagnostic.getColumnNo() + 1);
  llvm::SMDiagnostic(place, diagnostic.getKind(), diagnostic.getMessage())
      .print(/*ProgName=*/nullptr, llvm::errs());
}

Expected<OwningOpRef<ModuleOp>> tools::parseStep(StringRef path,
                                                 llvm::SourceMgr &sources,
                                                 MLIRContext &context) {
  auto buffer = readModule(path);
  if (!buffer)
    return buffer.takeError();
  sources.AddNewSourceBuffer(std::move(*buffer), SMLoc());
  auto module = parseSourceFile<ModuleOp>(sources, &context);
  FailureOr<func::FuncOp> step = failure();
  if (module)
    step = bsr::getStep(*module);
  if (failed(step) || failed(bsr::verifySignature(*step)))
    return createStringError("expected '" + path +
                             "' to be a step, but got the errors above");
  return std::move(module);
}

llvm::Error tools::addMark(OpPassManager &pm, const std::string &mark) {
  std::unique_ptr<Pass> pass = bsr::createBSRMark();
  std::string reason;
  auto onError = [&](const llvm::Twine &message) {
    reason = message.str();
    return failure();
  };
  if (failed(pass->initializeOptions(mark, onError)))
    return createStringError(
        "expected --mark to be options of bsr-mark, but got '" + mark + "'" +
        (reason.empty() ? "" : " (" + reason + ")"));
  pm.addPass(std::move(pass));
  return llvm::Error::success();
}
