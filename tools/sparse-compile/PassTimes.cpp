// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Processor seconds of passes.

#include "PassTimes.h"
#include "mlir/Pass/Pass.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <ctime>

using namespace mlir;
using namespace mlir::bsr;

static double getProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

void PassTimes::lap() {
  double now = getProcessorSeconds();
  if (!running.empty())
    seconds[running.back()] += now - last;
  last = now;
}

void PassTimes::runBeforePass(Pass *pass, Operation *) {
  lap();
  // What runs the passes of a nested pipeline has no name of its own.
  running.push_back(pass->getArgument().empty() ? "pipelines"
                                                : pass->getArgument());
}

void PassTimes::runAfterPass(Pass *, Operation *) {
  lap();
  running.pop_back();
}

void PassTimes::runAfterPassFailed(Pass *pass, Operation *op) {
  runAfterPass(pass, op);
}

PassTimes::~PassTimes() {
  auto sorted = seconds.takeVector();
  llvm::sort(sorted,
             [](const auto &a, const auto &b) { return a.second > b.second; });
  for (auto [pass, spent] : sorted)
    llvm::errs() << llvm::formatv("{0,10:f4} s  {1}\n", spent, pass);
}
