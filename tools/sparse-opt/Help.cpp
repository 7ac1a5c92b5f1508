// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// MLIR's own help sorts a thousand lines by name; this one has the project's
// passes, by stage.

#include "Help.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using llvm::outs;
using llvm::StringLiteral;

namespace {
/// A stage of a pipeline, as docs/architecture.md has them.
struct Stage {
  StringLiteral title;
  ArrayRef<StringLiteral> passes;
};
} // namespace

// The passes of each stage: CMake makes it of the stages' Passes.td.
#include "Stages.inc"

static constexpr StringLiteral pipelines[] = {
    "bsr-to-cpu",    "bsr-to-gpu",  "bsr-to-bound",
    "bsr-to-sparse", "bsr-to-llvm", "bsr-launches-to-llvm"};

static const Stage stages[] = {
    {"Sparsity: weights are marked, and become patterns and values",
     passesOfSparsity},
    {"Import: what front ends write becomes one function without loops",
     passesOfImport},
    {"Parallel: several processes, stages of a step", passesOfParallel},
    {"Layout: tokens become the last dimension", passesOfLayout},
    {"Attention: without its scores in memory", passesOfAttention},
    {"Clusters: what one kernel computes", passesOfClusters},
    {"Code: clusters become kernels on buffers", passesOfCommon},
    {"Bufferization: tensors become buffers in one arena",
     passesOfBufferization},
    {"CPU: what only processors need", passesOfCPU},
    {"GPU: launches of PTX", passesOfGPU},
    {"Library: the manifest and the entry point", passesOfLibrary},
    {"MLIR's sparse tensors: to and from", passesOfSparseTensors},
};

bool tools::asksForHelp(int argc, char **argv) {
  return llvm::any_of(ArrayRef(argv, argc).drop_front(), [](StringRef text) {
    return text == "--help" || text == "-help";
  });
}

void tools::printHelp() {
  outs() << "Block-sparse training compiler driver: mlir-opt with the dialect "
            "bsr\n\n"
            "USAGE: sparse-opt [passes and options] <input file>\n\n"
            "Passes run in the order in which they stand. --help-hidden has "
            "the passes and options\nof MLIR, too.\n\nPipelines:\n";
  size_t width = 0;
  for (StringRef name : pipelines)
    width = std::max(width, PassPipelineInfo::lookup(name)->getOptionWidth());
  for (const Stage &stage : stages)
    for (StringRef name : stage.passes)
      width = std::max(width, PassInfo::lookup(name)->getOptionWidth());
  for (StringRef name : pipelines)
    PassPipelineInfo::lookup(name)->printHelpStr(/*indent=*/2, width);
  for (const Stage &stage : stages) {
    outs() << "\n" << stage.title << ":\n";
    for (StringRef name : stage.passes)
      PassInfo::lookup(name)->printHelpStr(/*indent=*/2, width);
  }
}
