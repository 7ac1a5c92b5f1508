// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What chains of element-wise operations and reductions are.

#include "bsr/Analysis/Chain.h"
#include "bsr/Analysis/Kernels.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;

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
// Shared loops
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

void Chain::drop(int64_t number) {
  extents[number] = 1;
  for (Root &root : roots)
    llvm::replace(root.shared, number, int64_t(-1));
  for (auto &[tensor, shared] : tensors)
    llvm::replace(shared, number, int64_t(-1));
}

bool Chain::add(linalg::GenericOp op, IsLeaf isLeaf) {
  std::optional<Root> root = getRoot(op, isLeaf);
  if (!root)
    return false;
  for (bool isTotal : {false, true}) {
    Chain next = *this;
    root->isTotal = isTotal;
    if (!next.add(*root))
      continue;
    *this = std::move(next);
    return true;
  }
  return false;
}

void Chain::setProduct(Operation *op) {
  product = op->getResult(0);
  auto type = cast<RankedTensorType>(product.getType());
  llvm::append_range(extents, type.getShape());
  tensors.try_emplace(product,
                      llvm::to_vector(llvm::seq<int64_t>(type.getRank())));
  if (auto spmm = dyn_cast<SpMMOp>(op))
    drop(spmm.getFeatureDim());
}

SmallVector<int64_t> Chain::getProductRows() const {
  ArrayRef<int64_t> shape = cast<ShapedType>(product.getType()).getShape();
  return llvm::filter_to_vector(
      llvm::seq<int64_t>(shape.size()),
      [&](int64_t dim) { return extents[dim] != shape[dim]; });
}

bool Chain::followsProduct() const {
  ArrayRef<int64_t> shape = cast<ShapedType>(product.getType()).getShape();
  SmallVector<int64_t> dims = getProductRows();
  if (lanes + 1 != static_cast<int64_t>(shape.size()))
    return false;
  for (const Root &root : roots) {
    SmallVector<int64_t> rows = getRows(root);
    if (root.isSum() || rows.size() != dims.size())
      return false;
    SmallVector<int64_t> ranges = root.op.getStaticLoopRanges();
    for (auto [row, dim] : llvm::zip_equal(rows, dims)) {
      if (ranges[row] != shape[dim])
        return false;
      for (const Read &access : root.reads)
        if (access.tensor == product && access.at[dim] != row)
          return false;
    }
  }
  return getNests().size() == 1;
}

bool Chain::add(Root next) {
  bool isFirst = roots.empty() && !product;
  roots.push_back(std::move(next));
  Root &root = roots.back();
  linalg::GenericOp op = root.op;
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  auto canShare = [&](int64_t loop) {
    return (kinds[loop] == utils::IteratorType::parallel) != root.isTotal;
  };

  // Loops are shared through what roots read of each other, and beyond that
  // through what several of them read.
  if (isFirst) {
    for (int64_t loop : root.order) {
      if (!canShare(loop))
        continue;
      root.shared[loop] = extents.size();
      extents.push_back(ranges[loop]);
    }
  }
  // What follows a product element by element goes over its tokens, whatever it
  // reads.
  if (product && !root.isReduction()) {
    ArrayRef<int64_t> at = tensors.find(product)->second;
    AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs()];
    if (cast<ShapedType>(op->getResult(0).getType()).getShape() ==
        cast<ShapedType>(product.getType()).getShape())
      for (auto [expr, number] : llvm::zip_equal(map.getResults(), at))
        if (auto loop = dyn_cast<AffineDimExpr>(expr); loop && number >= 0)
          root.shared[loop.getPosition()] = number;
  }
  for (bool isMade : {true, false}) {
    for (const Read &access : root.reads) {
      auto known = tensors.find(access.tensor);
      const Root *producer = getProducer(access.tensor);
      if (known == tensors.end() ||
          isMade != (producer || access.tensor == product))
        continue;
      if (producer && producer->isTotal)
        return false;
      for (auto [loop, number] : llvm::zip_equal(access.at, known->second)) {
        if (number < 0)
          continue;
        bool isFree = loop >= 0 && root.shared[loop] < 0 && canShare(loop) &&
                      ranges[loop] == extents[number] &&
                      !llvm::is_contained(root.shared, number);
        if (isFree)
          root.shared[loop] = number;
        else if (isMade && (loop < 0 || root.shared[loop] != number))
          drop(number);
      }
    }
  }
  for (int64_t number = 0; number != static_cast<int64_t>(extents.size());
       ++number)
    if (!llvm::is_contained(root.shared, number))
      drop(number);

  auto remember = [&](Value tensor, ArrayRef<int64_t> at) {
    tensors.try_emplace(tensor,
                        llvm::map_to_vector(at, [&](int64_t loop) -> int64_t {
                          return loop < 0 ? -1 : root.shared[loop];
                        }));
  };
  for (const Read &access : root.reads)
    remember(access.tensor, access.at);
  for (OpResult result : op->getResults()) {
    SmallVector<int64_t> at;
    for (AffineExpr expr :
         op.getIndexingMapMatchingResult(result).getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      at.push_back(dim ? static_cast<int64_t>(dim.getPosition()) : -1);
    }
    remember(result, at);
  }
  return setLanes() && (!product || followsProduct());
}

bool Chain::setLanes() {
  auto getLast = [](const Root &root) {
    return root.order.empty() ? -1 : root.shared[root.order.back()];
  };
  lanes = getLast(roots.front());
  for (const Root &root : roots)
    if (getLast(root) != lanes)
      lanes = -1;
  for (const Root &root : roots) {
    // The rest of the shared loops is outside of the rows, unless a product
    // goes through them.
    bool inRows = false;
    for (int64_t loop : root.order) {
      int64_t shared = root.shared[loop];
      if (shared >= 0 && shared != lanes && inRows && !product)
        return false;
      inRows |= shared < 0;
    }
    if (!root.isReduction())
      continue;
    // A work item makes all of a root's sums, or its part of totals for all
    // rows.
    SmallVector<utils::IteratorType> kinds = root.op.getIteratorTypesArray();
    for (int64_t row : getRows(root))
      if ((kinds[row] == utils::IteratorType::parallel) != root.isTotal)
        return false;
    if (root.isTotal && lanes < 0)
      return false;
    // Sums across lanes.
    if (root.isTotal || lanes < 0)
      for (unsigned result = 0; result != root.op->getNumResults(); ++result)
        if (!getCombiner(root.op, result))
          return false;
  }
  return llvm::any_of(extents, [](int64_t extent) { return extent != 1; });
}

std::optional<Chain> Chain::match(ArrayRef<Operation *> roots, IsLeaf isLeaf,
                                  TargetAttrInterface target) {
  Chain chain;
  if (target.acceptsEpilogue(roots.front())) {
    chain.setProduct(roots.front());
    roots = roots.drop_front();
  }
  for (Operation *root : roots)
    if (!isChainable(root) || !chain.add(cast<linalg::GenericOp>(root), isLeaf))
      return std::nullopt;
  return chain;
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

SmallVector<Chain::Nest> Chain::getNests() const {
  SmallVector<Nest> nests;
  DenseMap<const Root *, size_t> places;
  for (const Root &root : roots) {
    SmallVector<int64_t> ranges = root.op.getStaticLoopRanges();
    SmallVector<int64_t> space = llvm::map_to_vector(
        getRows(root), [&](int64_t row) { return ranges[row]; });
    size_t place = 0;
    for (const Read &access : root.reads)
      if (const Root *producer = getProducer(access.tensor))
        place = std::max(place, places[producer] +
                                    !isAligned(root, access, *producer));
    while (place < nests.size() && nests[place].extents != space)
      ++place;
    if (place >= nests.size()) {
      place = nests.size();
      nests.push_back({std::move(space), {}});
    }
    nests[place].roots.push_back(&root);
    places[&root] = place;
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

SmallVector<Value>
Chain::getPlaces(ArrayRef<Value> values,
                 llvm::function_ref<bool(Value)> isResult) const {
  DenseSet<Value> taken;
  auto isPlace = [&](Value value, const Root &root, Value result) {
    if (root.isReduction() || taken.contains(result) || !isResult(result) ||
        result.getType() != value.getType())
      return false;
    // What follows a product and has its type is written where it is read.
    return product ||
           isReadFirst(value, [&](Value other) { return other == result; });
  };
  return llvm::map_to_vector(values, [&](Value value) -> Value {
    for (const Root &root : roots)
      for (Value result : root.op->getResults())
        if (isPlace(value, root, result)) {
          taken.insert(result);
          return result;
        }
    return {};
  });
}
