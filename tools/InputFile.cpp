// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How tools of the compiler read files of MLIR.

#include "InputFile.h"
#include "Nesting.h"
#include "support/File.h"

using namespace llvm;

Expected<std::unique_ptr<MemoryBuffer>> tools::readModule(StringRef path) {
  // Places in a source are numbers of 32 bits.
  constexpr uint64_t mostBytes = UINT32_MAX;
  auto [isRead, text] =
      sparse_opt::tryReadFile(path.str(), mostBytes, /*takesPipe=*/true);
  if (!isRead)
    return createStringError(text);
  if (Error error = verifyNesting(path, text))
    return std::move(error);
  return MemoryBuffer::getMemBufferCopy(text, path == "-" ? "<stdin>" : path);
}
