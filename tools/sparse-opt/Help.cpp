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

static constexpr StringLiteral import[] = {
    "bsr-verify-step",    "bsr-drop-signs", "bsr-unroll",
    "bsr-forward-slices", "bsr-unstack",    "bsr-split-weights",
    "bsr-drop-updates"};
static constexpr StringLiteral sparsity[] = {
    "bsr-mark", "bsr-flatten",   "bsr-split-concats",
    "bsr-bind", "bsr-propagate", "bsr-score-blocks"};
static constexpr StringLiteral parallel[] = {
    "bsr-data-parallel",    "bsr-shard-state",         "bsr-split-stages",
    "bsr-micro-batches",    "bsr-schedule-reductions", "bsr-start-reductions",
    "bsr-lower-reductions", "bsr-lower-transfers"};
static constexpr StringLiteral layout[] = {"bsr-raise",      "bsr-concatenate",
                                           "bsr-widen-sums", "bsr-fold-copies",
                                           "bsr-layout",     "bsr-fold-bias"};
static constexpr StringLiteral clusters[] = {
    "bsr-find-attention", "bsr-drop-barriers",        "bsr-recompute",
    "bsr-hoist-scalars",  "bsr-drop-unit-reductions", "bsr-loosen-slices",
    "bsr-cluster",        "bsr-plan-clusters"};
static constexpr StringLiteral kernels[] = {
    "bsr-set-target",     "bsr-panel",        "bsr-emit",
    "bsr-verify-kernels", "bsr-lower-copies", "bsr-define-integers",
    "bsr-fast-math"};
static constexpr StringLiteral bufferization[] = {
    "bsr-lower-patterns",   "bsr-reuse-state", "bsr-reuse-operands",
    "bsr-separate-results", "bsr-bufferize",   "bsr-store-results",
    "bsr-guard-scores",     "bsr-plan-memory", "bsr-split-plans"};
static constexpr StringLiteral cpu[] = {"bsr-approximate-math", "bsr-expand-i1",
                                        "bsr-expand-bf16", "bsr-hoist-memory"};
static constexpr StringLiteral gpu[] = {
    "bsr-lift-numbers",    "bsr-expand-powers",    "bsr-expand-sines",
    "bsr-move-constants",  "bsr-outline-launches", "bsr-call-intrinsics",
    "bsr-pass-tensor-maps"};
static constexpr StringLiteral library[] = {
    "bsr-time-launches",   "bsr-embed-manifest", "bsr-export-step",
    "bsr-export-launches", "bsr-verify-lowered", "bsr-verify-module"};
static constexpr StringLiteral sparseTensors[] = {"bsr-to-sparse-tensor",
                                                  "bsr-from-sparse-tensor"};

static constexpr StringLiteral pipelines[] = {
    "bsr-to-cpu",    "bsr-to-gpu",  "bsr-to-bound",
    "bsr-to-sparse", "bsr-to-llvm", "bsr-launches-to-llvm"};

static const Stage stages[] = {
    {"Sparsity: weights are marked, and become patterns and values", sparsity},
    {"Import: what front ends write becomes one function without loops",
     import},
    {"Parallel: several processes, stages of a step", parallel},
    {"Layout: tokens become the last dimension", layout},
    {"Clusters: what one kernel computes", clusters},
    {"Code: clusters become kernels on buffers", kernels},
    {"Bufferization: tensors become buffers in one arena", bufferization},
    {"CPU: what only processors need", cpu},
    {"GPU: launches of PTX", gpu},
    {"Library: the manifest and the entry point", library},
    {"MLIR's sparse tensors: to and from", sparseTensors},
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
