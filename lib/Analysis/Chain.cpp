// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What chains of element-wise operations and reductions are.

#include "bsr/Analysis/Chain.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;

void bsr::emitReport(Operation *op, const Twine &sentence) {
  op->emitError(sentence);
}

//===----------------------------------------------------------------------===//
// What roots read
//===----------------------------------------------------------------------===//

/// The loops of more than one iteration in the order of the dimensions of
/// `map`; nothing if `map` lacks one.
static std::optional<SmallVector<int64_t>> getOrder(linalg::GenericOp op,
                                                    AffineMap map) {
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  SmallVector<int64_t> order;
  for (AffineExpr expr : map.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      if (ranges[dim.getPosition()] != 1 &&
          !llvm::is_contained(order, dim.getPosition()))
        order.push_back(dim.getPosition());
  if (static_cast<int64_t>(order.size()) !=
      llvm::count_if(ranges, [](int64_t range) { return range != 1; }))
    return std::nullopt;
  return order;
}

/// The map that says in which order `op` walks memory: of the results of an
/// element-wise operation, of the tensor that a reduction goes over.
static std::optional<AffineMap> getWalk(linalg::GenericOp op) {
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (op.getNumReductionLoops() == 0) {
    ArrayRef<AffineMap> results =
        ArrayRef(maps).drop_front(op.getNumDpsInputs());
    return llvm::all_equal(results) ? std::optional(results.front())
                                    : std::nullopt;
  }
  std::optional<AffineMap> walk;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (!isa<RankedTensorType>(input->get().getType()))
      continue;
    if (walk)
      return std::nullopt;
    walk = maps[input->getOperandNumber()];
  }
  return walk;
}

std::optional<Chain::Root> Chain::getRoot(linalg::GenericOp op, IsLeaf isLeaf) {
  std::optional<AffineMap> walk = getWalk(op);
  if (!walk)
    return std::nullopt;
  std::optional<SmallVector<int64_t>> order = getOrder(op, *walk);
  if (!order)
    return std::nullopt;
  Root root{op, std::move(*order), {}, {}};
  root.shared.assign(op.getNumLoops(), -1);
  root.reads = getReads(op, isLeaf);
  return root;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

bool bsr::isChainable(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && canCompute(op) && getWalk(generic);
}

const Chain::Root *Chain::getProducer(Value tensor) const {
  for (const Root &root : roots)
    if (root.op == tensor.getDefiningOp())
      return &root;
  return nullptr;
}

SmallVector<int64_t> Chain::getRows(const Root &root) const {
  return llvm::filter_to_vector(
      root.order, [&](int64_t loop) { return root.shared[loop] < 0; });
}

void Chain::setProduct(Operation *op, TargetAttrInterface target) {
  product = op->getResult(0);
  transposes = target.transposesSums(op);
  auto type = cast<RankedTensorType>(product.getType());
  llvm::append_range(extents, type.getShape());
  if (auto spmm = dyn_cast<SpMMOp>(op))
    extents[spmm.getFeatureDim()] = 1;
}

SmallVector<int64_t> Chain::getSharedLoops(const Root &root,
                                           OpResult result) const {
  linalg::GenericOp op = root.op;
  return llvm::map_to_vector(
      op.getIndexingMapMatchingResult(result).getResults(),
      [&](AffineExpr expr) -> int64_t {
        auto dim = dyn_cast<AffineDimExpr>(expr);
        return dim ? root.shared[dim.getPosition()] : -1;
      });
}

SmallVector<int64_t> Chain::getProductRows() const {
  ArrayRef<int64_t> shape = cast<ShapedType>(product.getType()).getShape();
  return llvm::filter_to_vector(
      llvm::seq<int64_t>(shape.size()),
      [&](int64_t dim) { return extents[dim] != shape[dim]; });
}

bool Chain::isTransposed(const Root &root) const {
  if (!transposes || lanes < 0 || root.isReduction() || root.order.size() < 2 ||
      getRows(root) != SmallVector<int64_t>{root.order.back()})
    return false;
  return root.shared[*(root.order.end() - 2)] == lanes;
}

//===----------------------------------------------------------------------===//
// What work items can do
//===----------------------------------------------------------------------===//

bool Chain::setLanes(Report report) {
  auto getLast = [](const Root &root) {
    return root.order.empty() ? -1 : root.shared[root.order.back()];
  };
  lanes = product ? static_cast<int64_t>(extents.size()) - 1
                  : getLast(roots.front());
  for (const Root &root : roots)
    if (getLast(root) != lanes && !isTransposed(root))
      lanes = -1;
  for (const Root &root : roots) {
    // The rest of the shared loops is outside of the rows, unless a product
    // goes through them, or each vector lies along the last row.
    bool isAlongRow =
        lanes < 0 && !root.order.empty() && root.shared[root.order.back()] < 0;
    bool inRows = false;
    for (int64_t loop : root.order) {
      int64_t shared = root.shared[loop];
      if (shared >= 0 && shared != lanes && inRows && !product && !isAlongRow) {
        report(root.op, "expected shared loops outside of rows, but got loop " +
                            Twine(loop) + " inside of one");
        return false;
      }
      inRows |= shared < 0;
    }
    if (root.isReduction() && !verifyReduction(root, report))
      return false;
  }
  if (llvm::any_of(extents, [](int64_t extent) { return extent != 1; }))
    return true;
  report(roots.front().op,
         "expected a shared loop of more than one iteration, but got none");
  return false;
}

bool Chain::verifyReduction(const Root &root, Report report) const {
  // A work item makes all of a root's sums, or its part of totals for all rows.
  SmallVector<utils::IteratorType> kinds = root.op.getIteratorTypesArray();
  for (int64_t row : getRows(root))
    if ((kinds[row] == utils::IteratorType::parallel) != root.isTotal) {
      report(root.op, "expected rows of a " +
                          Twine(root.isTotal ? "total" : "sum") + " to be " +
                          (root.isTotal ? "parallel" : "reduced") +
                          ", but got loop " + Twine(row));
      return false;
    }
  if (root.isTotal && lanes < 0) {
    report(root.op, "expected lanes for a total, a shared loop that is the "
                    "last one of every root, but got none");
    return false;
  }
  // Sums across lanes.
  if (root.isTotal || lanes < 0)
    for (unsigned result = 0; result != root.op->getNumResults(); ++result)
      if (!getCombiner(root.op, result)) {
        report(root.op, "expected one operation to combine lanes, but got "
                        "another body");
        return false;
      }
  return true;
}

bool Chain::followsProduct(Report report) const {
  if (!product)
    return true;
  ArrayRef<int64_t> shape = cast<ShapedType>(product.getType()).getShape();
  SmallVector<int64_t> dims = getProductRows();
  auto follows = [&](const Root &root) {
    SmallVector<int64_t> rows = getRows(root);
    if (root.nest || root.isSum() || rows.size() != dims.size())
      return false;
    SmallVector<int64_t> ranges = root.op.getStaticLoopRanges();
    for (auto [row, dim] : llvm::zip_equal(rows, dims)) {
      if (ranges[row] != shape[dim])
        return false;
      for (const Read &access : root.reads)
        if (access.tensor == product && access.at[dim] != row)
          return false;
    }
    return true;
  };
  // Slots without a block have no sums.
  bool areAllStored = !isa<SDDMMOp>(product.getDefiningOp());
  for (const Root &root : roots) {
    if (root.isTotal && !areAllStored) {
      report(root.op, "expected no total behind the stored blocks of a "
                      "product, but got one");
      return false;
    }
    if (lanes + 1 == static_cast<int64_t>(shape.size()) && follows(root))
      continue;
    report(root.op, "expected an epilogue that goes with lanes over the rows "
                    "of its product, but got other loops");
    return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Nests
//===----------------------------------------------------------------------===//

/// True if `reader` needs of `tensor`, which `producer` makes, no more than the
/// element of the row that it is at itself.
bool Chain::isAligned(const Root &reader, const Read &access,
                      const Root &producer) const {
  SmallVector<int64_t> rows = getRows(reader), made = getRows(producer);
  if (producer.isReduction() || rows.size() != made.size())
    return false;
  AffineMap map =
      producer.op.getIndexingMapMatchingResult(cast<OpResult>(access.tensor));
  for (auto [row, other] : llvm::zip_equal(rows, made)) {
    std::optional<unsigned> dim =
        map.getResultPosition(getAffineDimExpr(other, map.getContext()));
    if (!dim || access.at[*dim] != row)
      return false;
  }
  return true;
}

SmallVector<int64_t> Chain::getRowExtents(const Root &root) const {
  SmallVector<int64_t> ranges = root.op.getStaticLoopRanges();
  return llvm::map_to_vector(getRows(root),
                             [&](int64_t row) { return ranges[row]; });
}

SmallVector<Chain::Nest> Chain::getNests() const {
  SmallVector<Nest> nests;
  for (const Root &root : roots) {
    if (root.nest == static_cast<int64_t>(nests.size()))
      nests.push_back({getRowExtents(root), {}});
    nests[root.nest].roots.push_back(&root);
  }
  return nests;
}

DenseSet<Value> Chain::getStored() const {
  DenseSet<Value> stored;
  DenseSet<const Root *> done;
  for (const Nest &nest : getNests()) {
    for (const Root *root : nest.roots)
      for (const Read &access : root->reads)
        if (const Root *producer = getProducer(access.tensor))
          if (done.contains(producer) && !getRows(*producer).empty() &&
              !producer->isReduction())
            stored.insert(access.tensor);
    done.insert(nest.roots.begin(), nest.roots.end());
  }
  return stored;
}

/// True if `reader` reads by `access` what the work item that it is in writes
/// as `result` of `writer`; if `isOneRow`, in the row that it is at.
bool Chain::isOfItem(const Root &reader, const Read &access, const Root &writer,
                     OpResult result, bool isOneRow) const {
  SmallVector<int64_t> read = getRows(reader), made = getRows(writer);
  AffineMap map = writer.op.getIndexingMapMatchingResult(result);
  ArrayRef<int64_t> shape = cast<ShapedType>(result.getType()).getShape();
  for (auto [loop, expr, extent] :
       llvm::zip_equal(access.at, map.getResults(), shape)) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (extent == 1)
      continue;
    if (loop < 0 || !dim)
      return false;
    int64_t other = dim.getPosition();
    bool isRow = reader.shared[loop] < 0;
    if (reader.shared[loop] != writer.shared[other] ||
        (isOneRow && isRow &&
         llvm::find(read, loop) - read.begin() !=
             llvm::find(made, other) - made.begin()))
      return false;
  }
  return true;
}

bool Chain::isReadFirst(Value tensor,
                        llvm::function_ref<bool(Value)> isKept) const {
  auto type = cast<ShapedType>(tensor.getType());
  // The sums of a product lie where its followers write.
  if (product)
    return false;
  SmallVector<Nest> nests = getNests();
  // Any row in an earlier nest than `place`, that which is written in the same.
  auto isReadBefore = [&](const Root &writer, OpResult result, size_t place) {
    for (auto [number, nest] : llvm::enumerate(nests))
      for (const Root *reader : nest.roots)
        for (const Read &access : reader->reads)
          if (access.tensor == tensor &&
              (number > place ||
               !isOfItem(*reader, access, writer, result, number == place)))
            return false;
    return true;
  };
  for (auto [place, nest] : llvm::enumerate(nests))
    for (const Root *writer : nest.roots)
      for (OpResult result : writer->op->getResults()) {
        auto made = cast<ShapedType>(result.getType());
        if (!isKept(result) || made.getNumElements() != type.getNumElements())
          continue;
        if (writer->isReduction() || made.getShape() != type.getShape() ||
            !isReadBefore(*writer, result, place))
          return false;
      }
  return true;
}

/// True if a work item stores `a` before it stores `b`: in an earlier nest, or
/// before it in each row of the same one.
static bool isStoredBefore(const Chain::Root &a, const Chain::Root &b) {
  return a.nest != b.nest ? a.nest < b.nest : a.op->isBeforeInBlock(b.op);
}

bool Chain::canLieAt(Value value, Value place) const {
  const Root *writer = getProducer(place), *maker = getProducer(value);
  if (!writer || writer->isReduction() || isTransposed(*writer) ||
      place.getType() != value.getType() ||
      (maker && !isStoredBefore(*maker, *writer)))
    return false;
  // What follows a product and has its type is written where it is read, but
  // before squares are.
  if (hasTransposed())
    return false;
  return product ||
         isReadFirst(value, [&](Value other) { return other == place; });
}
