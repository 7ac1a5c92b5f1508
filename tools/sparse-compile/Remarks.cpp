// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes decided, as a file. (Upstream's streamer opens its file before
// passes run, and says nothing of what it could not write.)

#include "Remarks.h"
#include "Output.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Remarks/RemarkSerializer.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

namespace {
/// Appends remarks in YAML to a text.
class Streamer : public remark::detail::MLIRRemarkStreamerBase {
public:
  explicit Streamer(std::shared_ptr<std::string> text)
      : text(std::move(text)), os(*this->text) {
    serializer = llvm::cantFail(
        llvm::remarks::createRemarkSerializer(llvm::remarks::Format::YAML, os));
  }

  void streamOptimizationRemark(const remark::detail::Remark &remark) override {
    serializer->emit(remark.generateRemark());
  }

private:
  std::shared_ptr<std::string> text;
  llvm::raw_string_ostream os;
  std::unique_ptr<llvm::remarks::RemarkSerializer> serializer;
};
} // namespace

Expected<Remarks> Remarks::collect(MLIRContext &context,
                                   const CommandLine &options) {
  Remarks remarks;
  if (options.remarks.empty()) {
    if (options.remarksFilter.getNumOccurrences())
      return createStringError("expected --remarks=FILE beside "
                               "--remarks-filter, but got none");
    return remarks;
  }
  std::string reason;
  if (!llvm::Regex(options.remarksFilter).isValid(reason))
    return createStringError("expected --remarks-filter to be a regular "
                             "expression, but got '" +
                             options.remarksFilter + "' (" + reason + ")");
  // Of files that are not there neither is the other.
  if (options.remarks == options.output ||
      llvm::sys::fs::equivalent(options.remarks, options.output) ||
      llvm::sys::fs::equivalent(options.remarks, options.input))
    return createStringError("expected --remarks to be another file than the "
                             "step and what is made of it, but got '" +
                             options.remarks + "'");
  // One after the other, and in the same order each time.
  context.disableMultithreading();
  remarks.text = std::make_shared<std::string>();
  // Upstream asks `all` of those kinds alone that have an expression, too.
  remark::RemarkCategories categories;
  categories.passed = categories.missed = categories.analysis =
      categories.failed = options.remarksFilter.getValue();
  LogicalResult enabled = remark::enableOptimizationRemarks(
      context, std::make_unique<Streamer>(remarks.text),
      std::make_unique<remark::RemarkEmittingPolicyAll>(), categories);
  assert(succeeded(enabled) && "the streamer opens nothing");
  (void)enabled;
  return remarks;
}

Error Remarks::write(const CommandLine &options) const {
  if (!text)
    return Error::success();
  return writeFile(options.remarks, [&](llvm::raw_pwrite_stream &os) -> Error {
    os << *text;
    return Error::success();
  });
}
