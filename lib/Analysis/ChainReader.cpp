// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads chains that are written down.

#include "bsr/Analysis/ChainReader.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// A chain whose shared loops and nests are given: each root is checked as it
/// comes.
class ChainReader : public Chain {
public:
  ChainReader(TargetAttrInterface target, Report report)
      : target(target), report(report) {}

  /// False, and a report, if the roots are none.
  bool read(ArrayRef<Operation *> ops, ArrayRef<int64_t> shared, IsLeaf isLeaf);

private:
  bool readProduct(Operation *op, ArrayRef<int64_t> shared);
  bool readRoot(Operation *op, IsLeaf isLeaf);
  /// Report shared loops, reads and a nest of `root` that do not fit the roots
  /// before it.
  bool verifyLoops(const Root &root) const;
  bool verifyReads(const Root &root) const;
  bool verifyNest(const Root &root) const;

  TargetAttrInterface target;
  Report report;
};
} // namespace

static RootAttr getAttr(Operation *op) { return attrs::root.get(op); }

bool ChainReader::readProduct(Operation *op, ArrayRef<int64_t> shared) {
  if (!target.acceptsEpilogue(op)) {
    report(op,
           "expected a product that takes an epilogue, or loops, but got '" +
               op->getName().getStringRef() + "' without");
    return false;
  }
  setProduct(op, target);
  for (auto [extent, given] : llvm::zip(extents, shared))
    if (given == 1)
      extent = 1;
  if (ArrayRef(extents) == shared)
    return true;
  report(op, "expected the dimensions of the product that are not its rows as "
             "shared loops, but got others");
  return false;
}

bool ChainReader::verifyLoops(const Root &root) const {
  linalg::GenericOp op = root.op;
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  if (root.shared.size() != ranges.size()) {
    report(op, "expected " + Twine(ranges.size()) + " loops, but got " +
                   Twine(root.shared.size()));
    return false;
  }
  auto isShared = [&](int64_t loop, int64_t number) {
    return number < static_cast<int64_t>(extents.size()) &&
           ranges[loop] == extents[number] &&
           (kinds[loop] == utils::IteratorType::parallel) != root.isTotal &&
           llvm::count(root.shared, number) == 1;
  };
  for (auto [loop, number] : llvm::enumerate(root.shared))
    if (number >= 0 && !isShared(loop, number)) {
      report(op, "expected each shared loop to be one " +
                     Twine(root.isTotal ? "reduced" : "parallel") +
                     " loop of its extent, but got loop " + Twine(loop));
      return false;
    }
  for (auto [number, extent] : llvm::enumerate(extents))
    if (extent != 1 && !llvm::is_contained(root.shared, number)) {
      report(op, "expected every root to have shared loop " + Twine(number) +
                     ", but got one without");
      return false;
    }
  return true;
}

bool ChainReader::verifyReads(const Root &root) const {
  for (const Read &access : root.reads) {
    const Root *producer = getProducer(access.tensor);
    if (!producer && access.tensor != product)
      continue;
    bool isOfItem = !producer || !producer->isTotal;
    SmallVector<int64_t> made =
        producer ? getSharedLoops(*producer, cast<OpResult>(access.tensor))
                 : llvm::to_vector(llvm::seq<int64_t>(access.at.size()));
    for (auto [loop, number] : llvm::zip_equal(access.at, made))
      isOfItem &= number < 0 || extents[number] == 1 ||
                  (loop >= 0 && root.shared[loop] == number);
    if (!isOfItem) {
      report(root.op, "expected to read of other roots what the same work item "
                      "makes, but got another element");
      return false;
    }
  }
  return true;
}

bool ChainReader::verifyNest(const Root &root) const {
  int64_t count = 0;
  for (const Root &other : roots)
    count = std::max(count, other.nest + 1);
  if (root.nest > count) {
    report(root.op, "expected a nest of 0 to " + Twine(count) + ", but got " +
                        Twine(root.nest));
    return false;
  }
  for (const Root &other : roots)
    if (other.nest == root.nest &&
        getRowExtents(other) != getRowExtents(root)) {
      report(root.op, "expected the rows of nest " + Twine(root.nest) +
                          ", but got others");
      return false;
    }
  for (const Read &access : root.reads) {
    const Root *producer = getProducer(access.tensor);
    if (producer &&
        producer->nest + !isAligned(root, access, *producer) > root.nest) {
      report(root.op, "expected a nest after those that make what it reads, "
                      "but got " +
                          Twine(root.nest));
      return false;
    }
  }
  return true;
}

bool ChainReader::readRoot(Operation *op, IsLeaf isLeaf) {
  std::optional<Root> root;
  if (isChainable(op))
    root = getRoot(cast<linalg::GenericOp>(op), isLeaf);
  if (!root) {
    report(op, "expected an element-wise operation or a reduction of one "
               "tensor in a chain, but got '" +
                   op->getName().getStringRef() + "'");
    return false;
  }
  RootAttr attr = getAttr(op);
  root->shared.assign(attr.getLoops().begin(), attr.getLoops().end());
  root->isTotal = attr.getIsTotal();
  root->nest = attr.getNest();
  if (!verifyLoops(*root) || !verifyReads(*root) || !verifyNest(*root))
    return false;
  roots.push_back(std::move(*root));
  return true;
}

bool ChainReader::read(ArrayRef<Operation *> ops, ArrayRef<int64_t> shared,
                       IsLeaf isLeaf) {
  if (getAttr(ops.front()).getLoops().empty()) {
    if (!readProduct(ops.front(), shared))
      return false;
    ops = ops.drop_front();
  } else {
    extents.assign(shared.begin(), shared.end());
  }
  for (Operation *op : ops)
    if (!readRoot(op, isLeaf))
      return false;
  if (roots.empty()) {
    report(product.getDefiningOp(),
           "expected an epilogue, but got a product alone");
    return false;
  }
  return setLanes(report) && followsProduct(report);
}

std::optional<Chain> bsr::readChain(ArrayRef<Operation *> roots,
                                    ArrayRef<int64_t> extents, IsLeaf isLeaf,
                                    TargetAttrInterface target, Report report) {
  ChainReader chain(target, report);
  if (!chain.read(roots, extents, isLeaf))
    return std::nullopt;
  return chain;
}
