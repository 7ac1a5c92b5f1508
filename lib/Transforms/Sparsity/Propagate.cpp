// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rewrites a step to touch only stored blocks, and reports what stays dense.

#include "Propagation.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Rows.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRPROPAGATE
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The operations of `func` in program order, without the bodies of linalg
/// operations.
static SmallVector<Operation *> getOperations(func::FuncOp func) {
  SmallVector<Operation *> ops;
  func.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
    ops.push_back(op);
    return isa<linalg::LinalgOp>(op) ? WalkResult::skip()
                                     : WalkResult::advance();
  });
  return ops;
}

/// The name of the weight that `pattern` belongs to, if it has one.
static StringAttr findWeightName(func::FuncOp func, Value pattern) {
  if (Operation *constant = pattern.getDefiningOp())
    return attrs::name.get(constant);
  if (pattern.getParentBlock() == &func.getBody().front())
    return attrs::name.ofArg(func, cast<BlockArgument>(pattern).getArgNumber());
  return {};
}

/// What the report calls the weight that `pattern` belongs to.
static std::string getWeightName(func::FuncOp func, Value pattern) {
  std::string name;
  llvm::raw_string_ostream os(name);
  if (StringAttr attr = findWeightName(func, pattern))
    os << attr;
  else
    pattern.printAsOperand(os, OpPrintingFlags());
  return name;
}

/// Why `op`, which could have been element-wise or on blocks, is not: ": its
/// ...", or "".
static std::string explain(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (linalgOp && op->getParentOfType<scf::IfOp>())
    return ": it is in a branch";
  if (!linalgOp || linalgOp.getNumReductionLoops())
    return "";
  StringRef obstacle = getElementWiseObstacle(linalgOp);
  return obstacle.empty() ? "" : (": " + obstacle).str();
}

namespace {
/// What the report says of one pattern.
struct Summary {
  unsigned spmm = 0, spmmTransposed = 0, sddmm = 0, leftDense = 0;
  unsigned gathered = 0, scattered = 0;
};

struct Propagate : bsr::impl::BSRPropagateBase<Propagate> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration())
      return;
    // Constants can be used wherever a sample is pulled to.
    func.walk([&](ConstantPatternOp op) {
      op->moveBefore(&func.getBody().front(), func.getBody().front().begin());
    });

    Propagation propagation(func);
    bool changed;
    do {
      changed = false;
      SmallVector<Operation *> ops = getOperations(func);
      for (Operation *op : llvm::reverse(ops))
        changed |= propagation.pull(op);
      for (Operation *op : getOperations(func))
        changed |= propagation.push(op);
      propagation.eraseDead(func);
    } while (changed);
    propagation.eraseDead(func, /*isLast=*/true);

    const PropagationCounts &counts = propagation.counts;
    numSpMM += counts.spmm;
    numSpMMTransposed += counts.spmmTransposed;
    numSDDMM += counts.sddmm;
    numMet += counts.met;
    numElementWisePulled += counts.elementWisePulled;
    numElementWisePushed += counts.elementWisePushed;
    numReduced += counts.reduced;
    numGathered += counts.gathered;
    numScattered += counts.scattered;
    // What bsr-bind warned of.
    ArrayAttr unmasked = attrs::unmasked.get(func);
    attrs::unmasked.remove(func);
    if (requireSparse && unmasked)
      for (Attribute weight : unmasked) {
        PassRemark::failed("bsr-propagate", "GradientNotMasked",
                           {func.getLoc(), func}, DiagnosticSeverity::Error)
                .add("Weight", cast<StringAttr>(weight))
            << "expected the gradient of " << weight
            << " to be masked, but got one that was not found for sure";
        signalPassFailure();
      }
    summarize(propagation);
  }

  /// Says that `op` keeps the weight of `pattern` dense.
  void leaveDense(Operation *op, Value pattern, StringRef reason) {
    PassRemark::Place place(op->getLoc(), op);
    PassRemark remark =
        requireSparse ? PassRemark::failed("bsr-propagate", "LeftDense", place,
                                           DiagnosticSeverity::Error)
                      : PassRemark::missed("bsr-propagate", "LeftDense", place,
                                           DiagnosticSeverity::Remark);
    std::string why = reason.str() + explain(op);
    remark << "expected only stored blocks of "
           << getWeightName(getOperation(), pattern) << ", but got '"
           << op->getName() << "', which " << why;
    remark.add("Weight", findWeightName(getOperation(), pattern))
        .add("Operation", op->getName())
        .add("Reason", why)
        .add("FLOPs", getFlops(op));
    ++summaries[pattern].leftDense;
    ++numLeftDense;
    if (requireSparse)
      signalPassFailure();
  }

  void summarize(const Propagation &propagation) {
    func::FuncOp func = getOperation();
    summaries.clear();
    for (BlockArgument arg : func.getArguments())
      if (isa<PatternType>(arg.getType()))
        summaries[arg];
    for (Operation *op : getOperations(func)) {
      if (auto spmm = dyn_cast<SpMMOp>(op))
        ++(spmm.getTranspose() ? summaries[spmm.getPattern()].spmmTransposed
                               : summaries[spmm.getPattern()].spmm);
      if (auto sddmm = dyn_cast<SDDMMOp>(op))
        ++summaries[sddmm.getPattern()].sddmm;
      if (auto gather = dyn_cast<GatherRowsOp>(op))
        ++summaries[gather.getPattern()].gathered;
      if (auto scatter = dyn_cast<ScatterRowsOp>(op))
        ++summaries[scatter.getPattern()].scattered;
      if (auto toDense = dyn_cast<ToDenseOp>(op))
        for (Operation *user : toDense->getUsers())
          leaveDense(user, toDense.getPattern(), "reads the whole matrix");
      if (auto sample = dyn_cast<SampleOp>(op)) {
        Operation *source = sample.getDense().getDefiningOp();
        leaveDense(source ? source : op, sample.getPattern(),
                   source ? "computes the whole matrix"
                          : "reads a dense argument");
      }
    }
    for (auto [op, pattern] : propagation.products)
      leaveDense(op, pattern, "computes the whole gradient for another use");
    Summary total;
    for (auto &[pattern, summary] : summaries) {
      if (PassRemark remark = summarize("Weight"))
        addCounts(remark.add("Weight", findWeightName(func, pattern))
                      << "weight " << getWeightName(func, pattern) << ": "
                      << describe(summary),
                  summary);
      total.spmm += summary.spmm;
      total.spmmTransposed += summary.spmmTransposed;
      total.sddmm += summary.sddmm;
      total.leftDense += summary.leftDense;
      total.gathered += summary.gathered;
      total.scattered += summary.scattered;
    }
    if (PassRemark remark = summarize("Total"))
      addCounts(remark << "total of " << summaries.size()
                       << " weights: " << describe(total),
                total);
  }

  /// A remark on what became of all products of a weight or of the step.
  PassRemark summarize(StringRef name) {
    func::FuncOp func = getOperation();
    return PassRemark::analysis("bsr-propagate", name, {func.getLoc(), func},
                                PassRemark::remarkIf(report));
  }

  static void addCounts(PassRemark &remark, const Summary &summary) {
    remark.add("SpMM", summary.spmm)
        .add("SpMMTransposed", summary.spmmTransposed)
        .add("SDDMM", summary.sddmm)
        .add("LeftDense", summary.leftDense)
        .add("Gathered", summary.gathered)
        .add("Scattered", summary.scattered);
  }

  static std::string describe(const Summary &summary) {
    std::string text = llvm::formatv(
        "{0} spmm, {1} spmm transposed, {2} sddmm, {3} left dense",
        summary.spmm, summary.spmmTransposed, summary.sddmm, summary.leftDense);
    if (summary.gathered || summary.scattered)
      text += llvm::formatv(", {0} gathered, {1} scattered", summary.gathered,
                            summary.scattered);
    return text;
  }

  llvm::MapVector<Value, Summary> summaries;
};
} // namespace
