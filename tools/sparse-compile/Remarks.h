// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes decided, as a file.

#ifndef BSR_TOOLS_SPARSE_COMPILE_REMARKS_H
#define BSR_TOOLS_SPARSE_COMPILE_REMARKS_H

#include "CommandLine.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/Error.h"

namespace mlir::bsr {

/// Collects the structured remarks of passes in `context`, if the command line
/// asks for them.
class Remarks {
public:
  /// Fails if the command line asks for what is no file or no filter.
  static llvm::Expected<Remarks> collect(MLIRContext &context,
                                         const CommandLine &options);

  /// Writes the file, if the command line asks for one.
  llvm::Error write(const CommandLine &options) const;

private:
  std::shared_ptr<std::string> text;
};

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_REMARKS_H
