// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts the floating-point operations of a step, for the manifest.

#include "bsr/Analysis/Step.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attention.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCOUNTFLOPS
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

static uint64_t add(uint64_t a, uint64_t b) {
  return llvm::SaturatingAdd(a, b);
}

/// `count` as an attribute; what it has no room for is its largest number.
static IntegerAttr getCount(Builder &b, uint64_t count) {
  return b.getI64IntegerAttr(
      std::min<uint64_t>(count, std::numeric_limits<int64_t>::max()));
}

namespace {
/// Floating-point operations.
struct Flops {
  uint64_t dense = 0, scores = 0;
  /// Of each stored block of the patterns of these names.
  llvm::MapVector<StringAttr, uint64_t> blocks;
  /// With all slots in use.
  uint64_t all = 0;

  void add(const Flops &other, uint64_t times = 1) {
    auto addTo = [&](uint64_t &sum, uint64_t count) {
      sum = ::add(sum, llvm::SaturatingMultiply(count, times));
    };
    addTo(dense, other.dense);
    addTo(scores, other.scores);
    addTo(all, other.all);
    for (auto [name, count] : other.blocks)
      addTo(blocks[name], count);
  }
};
} // namespace

/// The pattern that `op`, a product, has blocks of, or null.
static TypedValue<PatternType> getPattern(Operation *op) {
  for (Value operand : op->getOperands())
    if (isa<PatternType>(operand.getType()))
      return cast<TypedValue<PatternType>>(operand);
  return {};
}

/// The name by which the manifest knows `pattern`; null if it does not: the
/// blocks of attention that a mask of the program leaves are the step's own.
static StringAttr getName(Value pattern, func::FuncOp step) {
  if (auto argument = dyn_cast<BlockArgument>(pattern))
    return argument.getOwner() == &step.front()
               ? attrs::name.ofArg(step, argument.getArgNumber())
               : StringAttr();
  auto constant = pattern.getDefiningOp<ConstantPatternOp>();
  StringAttr name = constant ? attrs::name.get(constant) : StringAttr();
  ArrayAttr known = attrs::patterns.get(step);
  bool isKnown = name && known && llvm::any_of(known, [&](Attribute entry) {
                   return cast<DictionaryAttr>(entry).get("name") == name;
                 });
  return isKnown ? name : StringAttr();
}

/// Whether `generic` is a sum of products of two operands: a product of
/// matrices or a convolution.
static bool isSumOfProducts(linalg::GenericOp generic) {
  return generic.getNumReductionLoops() && generic.getNumDpsInputs() == 2 &&
         linalg::detail::isContractionBody(
             *generic.getBody(), [](Operation *product, Operation *sum) {
               return isa<arith::MulFOp>(product) && isa<arith::AddFOp>(sum);
             });
}

/// The operations of `op` itself; 0 if it is no product.
static uint64_t count(Operation *op) {
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    if (!isSumOfProducts(generic))
      return 0;
    uint64_t flops = 2;
    for (int64_t range : generic.getStaticLoopRanges())
      flops = llvm::SaturatingMultiply(flops, uint64_t(range));
    return flops;
  }
  auto flops = uint64_t(getFlops(op));
  auto grad = dyn_cast<AttentionGradOp>(op);
  if (!grad)
    return flops;
  // The gradient makes the scores once more, which the program keeps: of three
  // products over features two count, and both over those of values.
  Attention attention(grad);
  uint64_t features = attention.getFeatures();
  uint64_t values = attention.getValueFeatures();
  return flops / (3 * features + 2 * values) * (2 * features + 2 * values);
}

static Flops count(Region &region, func::FuncOp step);

/// The operations of `op` and of what it runs.
static Flops countAll(Operation *op, func::FuncOp step) {
  Flops flops;
  if (isa<scf::IfOp, scf::IndexSwitchOp>(op)) {
    for (Region &region : op->getRegions())
      if (Flops other = count(region, step); other.all > flops.all)
        flops = std::move(other);
    return flops;
  }
  flops.all = count(op);
  TypedValue<PatternType> pattern = getPattern(op);
  StringAttr name = pattern ? getName(pattern, step) : StringAttr();
  if (getWorkKind(op) == "block_scores")
    flops.scores = flops.all;
  else if (name)
    flops.blocks[name] = flops.all / pattern.getType().getSlots();
  else
    flops.dense = flops.all;
  if (isa<linalg::LinalgOp>(op))
    return flops;
  uint64_t times = 1;
  if (auto loop = dyn_cast<LoopLikeOpInterface>(op))
    if (std::optional<APInt> trips = loop.getStaticTripCount())
      times = trips->getLimitedValue();
  for (Region &region : op->getRegions())
    flops.add(count(region, step), times);
  return flops;
}

/// The operations of what is in `region`, once.
static Flops count(Region &region, func::FuncOp step) {
  Flops flops;
  for (Block &block : region)
    for (Operation &op : block)
      flops.add(countAll(&op, step));
  return flops;
}

namespace {
struct CountFlops : bsr::impl::BSRCountFlopsBase<CountFlops> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    Flops flops = count(step.getBody(), step);
    Builder b(&getContext());
    NamedAttrList blocks;
    for (auto [name, count] : flops.blocks)
      blocks.set(name, getCount(b, count));
    attrs::work.set(
        step,
        b.getDictionaryAttr(
            {b.getNamedAttr("dense", getCount(b, flops.dense)),
             b.getNamedAttr("scores", getCount(b, flops.scores)),
             b.getNamedAttr("blocks", blocks.getDictionary(&getContext()))}));
  }
};
} // namespace
