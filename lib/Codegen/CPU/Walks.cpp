// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which kernels of a sparse product there are, and which one is taken.

#include "bsr/Codegen/CPU/Walks.h"
#include "GroupedTiles.h"
#include "PairProducts.h"
#include "SparseKernels.h"
#include "TileProducts.h"
#include "WeightOrder.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Panels of tokens, at least: values take as long to be put in order as about
/// one of them, and panels are work items where blocks scatter.
static constexpr int64_t minPanels = 16;
/// Features of a block that scatters, at least: a row of sums is read and
/// written for as many.
static constexpr int64_t minRows = 4;

/// Features of a block whose sums lie in memory of a work item until they are
/// transposed: a panel of as many, at most, fits in the first-level cache. Of
/// lower blocks a square is many lines, and small ones are few multiply-adds,
/// each with its prefetches.
static constexpr int64_t minOwnFeatures = 4, maxOwnFeatures = 64;

/// True if the values of `op` can be put in order: they are numbers of one
/// type, f32 or f64, of one product.
static bool canOrder(SpMMOp op) {
  Type type = op.getY().getType().getElementType();
  auto hasType = [&](Value tensor) {
    return getElementTypeOrSelf(tensor.getType()) == type;
  };
  return !op.getNumBatchDims() && (type.isF32() || type.isF64()) &&
         hasType(op.getValues()) && hasType(op.getX());
}

/// The walks of which there is a kernel for `op`; first the one that is taken
/// if it has no schedule.
static SmallVector<Walk> getWalks(SpMMOp op, CPUTarget target) {
  PatternType pattern = op.getPattern().getType();
  View read = getView(op.getTranspose());
  int64_t readBlock = pattern.getBlockExtent(read);
  int64_t madeBlock = pattern.getBlockExtent(getOther(read));
  Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
  bool hasPanels = llvm::product_of(activations.leading) * activations.tokens >=
                   minPanels * target.panel();
  SmallVector<Walk> walks;
  // What is worth it comes first.
  auto add = [&](Walk walk, bool isWorthIt) {
    walks.insert(isWorthIt ? walks.begin() : walks.end(), walk);
  };
  add(Walk::Gather, true);
  if (canOrder(op) && readBlock == 1)
    add(Walk::OrderedGather, hasPanels && madeBlock > 1);
  if (canOrder(op) && madeBlock == 1 && activations.hasLanes &&
      activations.tokens % target.panel() == 0)
    add(Walk::Scatter, hasPanels && readBlock >= minRows);
  if (std::optional<WeightOrder> order = WeightOrder::find(op, target))
    add(Walk::SingleWeights, order->isWorthIt);
  return walks;
}

/// True if `op` can be a sum of outer products: vectors along columns of blocks
/// of the product or of its transpose, whose sums are as the result, and of
/// which squares of tokens are transposed.
static bool canSumOuter(SDDMMOp op, CPUTarget target) {
  PatternType pattern = op.getPattern().getType();
  Activations activations(op.getA().getType().getShape(), op.getFeatureDim());
  OpBuilder b(op);
  Type outType = op.getValues().getType().getElementType();
  Type sumType =
      getSumType(b, {op.getA().getType(), op.getB().getType(), outType});
  int64_t cols =
      isOfColumns(pattern) ? pattern.getBlockRows() : pattern.getBlockCols();
  return sumType == outType && activations.tokens % target.lanes == 0 &&
         cols % target.lanes == 0 &&
         !arePaired(target, op.getA(), op.getB(), sumType);
}

static SmallVector<Walk> getWalks(SDDMMOp op, CPUTarget target) {
  SmallVector<Walk> walks{Walk::Inner};
  // Of blocks that are narrower, inner products need fewer loads, and of any
  // blocks with groups.
  if (canSumOuter(op, target)) {
    View view = getWalkedView(op, Walk::Inner, target);
    bool isWorthIt = isWide(op.getPattern().getType()) &&
                     !GroupedTiles::find(op, view, target);
    walks.insert(isWorthIt ? walks.begin() : walks.end(), Walk::Outer);
  }
  if (std::optional<WeightOrder> order = WeightOrder::find(op, target))
    walks.insert(order->isWorthIt ? walks.begin() : walks.end(),
                 Walk::SingleWeights);
  return walks;
}

static SmallVector<Walk> getWalks(Operation *op, CPUTarget target) {
  if (auto spmm = dyn_cast<SpMMOp>(op))
    return getWalks(spmm, target);
  return getWalks(cast<SDDMMOp>(op), target);
}

/// Features of a block that `op` makes.
static int64_t getMadeBlock(SpMMOp op) {
  return op.getPattern().getType().getBlockExtent(getView(!op.getTranspose()));
}

static bool gathers(Walk walk) {
  return walk == Walk::Gather || walk == Walk::OrderedGather;
}

/// Rows of a register tile, at most, that takes so many panels of tokens: of
/// one, twice as many where it takes half of it, which has to be whole cache
/// lines.
static int64_t getMaxRows(CPUTarget target, int64_t panels) {
  bool hasHalves = panels == 1 && 2 * target.panel() % lineBytes == 0;
  return CPUTarget::tileRows * (hasHalves ? 2 : 1) / panels;
}

ProductSchedule cpu::getSchedule(Operation *op, CPUTarget target) {
  ProductSchedule schedule = ProductSchedule::get(op);
  if (!schedule.walk)
    schedule.walk = getWalks(op, target).front();
  if (!gathers(*schedule.walk))
    return schedule;
  auto spmm = cast<SpMMOp>(op);
  int64_t block = getMadeBlock(spmm);
  // Lines that are too low for a tile of their own take several panels.
  if (!schedule.panels) {
    int64_t rows = std::min(schedule.rows.value_or(1), block);
    schedule.panels =
        std::max<int64_t>(1, std::min(4 / block, CPUTarget::tileRows / rows));
  }
  if (schedule.rows)
    return schedule;
  // Lines of two tiles are one of half a panel, if there is such a tile: it
  // reads rows once. Numbers that are converted are so for both tiles at once.
  bool isHalf = block > CPUTarget::tileRows &&
                block <= getMaxRows(target, *schedule.panels) &&
                getElementTypeOrSelf(spmm.getValues().getType()).isF32();
  schedule.rows = isHalf ? block : CPUTarget::tileRows / *schedule.panels;
  return schedule;
}

bool cpu::transposesSums(Operation *op, CPUTarget target) {
  auto spmm = dyn_cast<SpMMOp>(op);
  if (!spmm || !acceptsEpilogue(op) || !gathers(*getSchedule(op, target).walk))
    return false;
  // Sums of tiles are of few tokens.
  if (TiledSpMM::find(spmm, target))
    return false;
  int64_t block = getMadeBlock(spmm), square = Epilogue::squareFeatures;
  View made = getView(!spmm.getTranspose());
  int64_t features = spmm.getPattern().getType().getNumLines(made) * block;
  int64_t read =
      spmm.getPattern().getType().getBlockExtent(getView(spmm.getTranspose()));
  // Lines of few features of 16 bits leave no registers for prefetches.
  if (block < square &&
      getElementTypeOrSelf(spmm.getY().getType()).getIntOrFloatBitWidth() == 16)
    return false;
  // With shorter vectors it was not measured: a square is several of them.
  return target.lanes >= square && std::min(block, read) >= minOwnFeatures &&
         block <= maxOwnFeatures && features % square == 0 &&
         (block % square == 0 || square % block == 0);
}

LogicalResult cpu::verifySchedule(Operation *op, CPUTarget target) {
  SmallVector<Walk> walks = getWalks(op, target);
  ProductSchedule schedule = ProductSchedule::get(op);
  if (!llvm::is_contained(walks, *schedule.walk)) {
    InFlightDiagnostic error = op->emitOpError("expected the walk of ")
                               << attrs::schedule.name << " to be ";
    llvm::interleave(
        walks, [&](Walk walk) { error << stringifyWalk(walk); },
        [&] { error << " or "; });
    return error << ", but got " << stringifyWalk(*schedule.walk);
  }
  if (!schedule.rows && !schedule.panels)
    return success();
  int64_t rows = schedule.rows.value_or(1),
          panels = schedule.panels.value_or(1);
  if (rows > getMaxRows(target, panels))
    return op->emitOpError("expected rows times panels of ")
           << attrs::schedule.name << " to be at most "
           << (panels == 1 ? getMaxRows(target, 1) : CPUTarget::tileRows)
           << ", as registers have sums, but got " << rows << " times "
           << panels;
  return success();
}

/// The rows of the highest tile of `block` features, of tiles of at most `rows`
/// which are nearly equal.
static int64_t getHeight(int64_t block, int64_t rows) {
  return llvm::divideCeil(block, llvm::divideCeil(block, rows));
}

/// Calls `add` with the rows and panels of each tile that there is for `op`.
static void forTiles(SpMMOp op, CPUTarget target,
                     llvm::function_ref<void(int64_t, int64_t)> add) {
  // A multiply-add takes four cycles, and two start in each.
  constexpr int64_t sumsUnderWay = 8;
  int64_t block = getMadeBlock(op);
  Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
  int64_t mostPanels = std::clamp<int64_t>(activations.tokens / target.panel(),
                                           1, CPUTarget::tileRows);
  for (int64_t panels = 1; panels <= mostPanels; ++panels)
    for (int64_t rows = 1; rows <= getMaxRows(target, panels); ++rows)
      if (rows == getHeight(block, rows) &&
          rows * panels * target.tileVectors() >= sumsUnderWay)
        add(rows, panels);
}

SmallVector<ProductSchedule> cpu::getAlternatives(Operation *op,
                                                  CPUTarget target) {
  ProductSchedule own = getSchedule(op, target);
  SmallVector<ProductSchedule> alternatives;
  for (Walk walk : getWalks(op, target))
    if (walk != own.walk)
      alternatives.emplace_back().walk = walk;
  if (!gathers(*own.walk))
    return alternatives;
  auto spmm = cast<SpMMOp>(op);
  int64_t ownRows = getHeight(getMadeBlock(spmm), *own.rows);
  forTiles(spmm, target, [&](int64_t rows, int64_t panels) {
    if (rows == ownRows && panels == own.panels)
      return;
    ProductSchedule &other = alternatives.emplace_back(own);
    other.rows = rows;
    other.panels = panels;
  });
  return alternatives;
}

SmallVector<ProductSchedule> cpu::getDistances(Operation *op,
                                               CPUTarget target) {
  ProductSchedule own = getSchedule(op, target);
  SmallVector<ProductSchedule> distances;
  if (!gathers(*own.walk))
    return distances;
  auto spmm = cast<SpMMOp>(op);
  int64_t readBlock =
      spmm.getPattern().getType().getBlockExtent(getView(spmm.getTranspose()));
  // Rows that are far ahead leave the first-level cache before they are read.
  int64_t bytes = 4 * readBlock * *own.panels * target.panel();
  int64_t most = std::min(ProductSchedule::maxAhead,
                          std::max<int64_t>(1, target.streamedBytes() / bytes));
  for (int64_t ahead = 0; ahead <= most;
       ahead = std::max<int64_t>(1, 2 * ahead))
    if (ahead != own.ahead)
      distances.emplace_back(own).ahead = ahead;
  return distances;
}
