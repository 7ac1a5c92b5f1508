// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adds up what a step takes of a machine's memory.

#include "Memory.h"
#include "../Quantity.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "support/ElementType.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using llvm::createStringError;
using llvm::Error;
using mlir::bsr::CommandLine;
using tools::formatBytes;

llvm::json::Object mlir::bsr::getManifest(ModuleOp module) {
  auto global = module.lookupSymbol<LLVM::GlobalOp>("bsr_step_manifest");
  StringRef text = cast<StringAttr>(global.getValueAttr()).getValue();
  return *llvm::cantFail(llvm::json::parse(text.drop_back())).getAsObject();
}

/// Bytes of `buffer`, or 0 for one that lies in the arena.
static int64_t getBytes(const llvm::json::Object &buffer) {
  if (buffer.getInteger("arena_offset"))
    return 0;
  int64_t bytes = sparse_opt::bytesOf(
      *sparse_opt::findElementType(buffer.getString("type")->str()));
  for (const llvm::json::Value &extent : *buffer.getArray("shape"))
    bytes *= *extent.getAsInteger();
  return bytes;
}

llvm::Expected<double> mlir::bsr::getAllowedMemory(const CommandLine &options) {
  if (!options.memory.getNumOccurrences())
    return INFINITY;
  if (auto bytes = tools::parseQuantity(options.memory, tools::Unit::Bytes))
    return *bytes;
  return createStringError("expected --memory to be " +
                           tools::describeQuantity(tools::Unit::Bytes) +
                           ", but got '" + options.memory + "'");
}

Error mlir::bsr::verifyMemory(const llvm::json::Object &manifest,
                              const CommandLine &options) {
  llvm::Expected<double> allowed = getAllowedMemory(options);
  if (!allowed)
    return allowed.takeError();
  int64_t arena = *manifest.getInteger("arena_bytes"), buffers = 0;
  // Of a weight and moments of its size the weight is named.
  std::pair<int64_t, bool> largest;
  StringRef name;
  for (const llvm::json::Value &value : *manifest.getArray("buffers")) {
    const llvm::json::Object &buffer = *value.getAsObject();
    int64_t bytes = getBytes(buffer);
    buffers += bytes;
    std::pair size(bytes, buffer.getString("role") == "param");
    if (size > largest) {
      largest = size;
      name = *buffer.getString("name");
    }
  }
  if (double(buffers + arena) <= *allowed)
    return Error::success();
  std::string part =
      options.stages.getNumOccurrences()
          ? llvm::formatv("stage {0} of {1}", options.stage.getValue(),
                          options.stages.getValue())
                .str()
          : "the step";
  return createStringError(
      llvm::formatv(
          "expected {0} to take at most {1} of memory, but got {2}: "
          "buffers take {3}, of which '{4}' takes {5}, and the "
          "arena {6}",
          part, formatBytes(*allowed), formatBytes(double(buffers + arena)),
          formatBytes(double(buffers)), name,
          formatBytes(double(largest.first)), formatBytes(double(arena)))
          .str());
}
