// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds what work items of a chain can share.

#include "bsr/Analysis/ChainMatcher.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;

void ChainMatcher::drop(int64_t number) {
  extents[number] = 1;
  for (Root &root : roots)
    llvm::replace(root.shared, number, int64_t(-1));
  for (auto &[tensor, shared] : tensors)
    llvm::replace(shared, number, int64_t(-1));
}

bool ChainMatcher::add(linalg::GenericOp op, IsLeaf isLeaf) {
  std::optional<Root> root = getRoot(op, isLeaf);
  if (!root)
    return false;
  for (bool isTotal : {false, true}) {
    ChainMatcher next = *this;
    root->isTotal = isTotal;
    if (!next.add(*root))
      continue;
    *this = std::move(next);
    return true;
  }
  return false;
}

void ChainMatcher::startWith(Operation *op, TargetAttrInterface target) {
  setProduct(op, target);
  auto type = cast<RankedTensorType>(product.getType());
  tensors.try_emplace(product,
                      llvm::to_vector(llvm::seq<int64_t>(type.getRank())));
  if (auto spmm = dyn_cast<SpMMOp>(op))
    drop(spmm.getFeatureDim());
}

bool ChainMatcher::add(Root next) {
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
  // reads beside it.
  bool readsMade = llvm::any_of(root.reads, [&](const Read &access) {
    return access.tensor == product || getProducer(access.tensor);
  });
  if (product && !root.isReduction() && !readsMade) {
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

  for (const Read &access : root.reads)
    tensors.try_emplace(
        access.tensor,
        llvm::map_to_vector(access.at, [&](int64_t loop) -> int64_t {
          return loop < 0 ? -1 : root.shared[loop];
        }));
  for (OpResult result : op->getResults())
    tensors.try_emplace(result, getSharedLoops(root, result));
  auto ignore = [](Operation *, const Twine &) {};
  if (!setLanes(ignore) || (hasLoopInRow() && (keepsRowsInside || !isOfSums())))
    return false;
  setNests();
  return followsProduct(ignore);
}

bool ChainMatcher::hasLoopInRow() const {
  return !product && llvm::any_of(roots, [&](const Root &root) {
    ArrayRef<int64_t> order = root.order;
    const auto *row = llvm::find_if(
        order, [&](int64_t loop) { return root.shared[loop] < 0; });
    return llvm::any_of(ArrayRef(row, order.end()), [&](int64_t loop) {
      return root.shared[loop] >= 0 && root.shared[loop] != lanes;
    });
  });
}

bool ChainMatcher::isOfSums() const {
  auto readsSum = [&](const Root &root) {
    return llvm::any_of(root.reads, [&](const Read &access) {
      const Root *producer = getProducer(access.tensor);
      return producer && producer->isReduction();
    });
  };
  return llvm::all_of(roots,
                      [](const Root &root) { return root.isReduction(); }) ||
         llvm::any_of(roots, readsSum);
}

void ChainMatcher::setNests() {
  SmallVector<SmallVector<int64_t>> spaces;
  for (Root &root : roots) {
    SmallVector<int64_t> space = getRowExtents(root);
    root.nest = 0;
    for (const Read &access : root.reads)
      if (const Root *producer = getProducer(access.tensor))
        root.nest = std::max(
            root.nest, producer->nest + !isAligned(root, access, *producer));
    int64_t count = spaces.size();
    while (root.nest < count && spaces[root.nest] != space)
      ++root.nest;
    if (root.nest >= count) {
      root.nest = count;
      spaces.push_back(std::move(space));
    }
  }
}

std::optional<ChainMatcher> ChainMatcher::match(ArrayRef<Operation *> roots,
                                                IsLeaf isLeaf,
                                                TargetAttrInterface target) {
  ChainMatcher chain;
  chain.keepsRowsInside = target.keepsInRegisters();
  if (target.acceptsEpilogue(roots.front())) {
    chain.startWith(roots.front(), target);
    roots = roots.drop_front();
  }
  for (Operation *root : roots)
    if (!isChainable(root) || !chain.add(cast<linalg::GenericOp>(root), isLeaf))
      return std::nullopt;
  return chain;
}
