// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where operations are in a block while some of them move.

#ifndef BSR_ANALYSIS_ORDER_H
#define BSR_ANALYSIS_ORDER_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::bsr {

/// The order of the operations of a block. `Operation::isBeforeInBlock` numbers
/// the whole block again after every move; here an operation that moves or is
/// added gets a number between those of its neighbours. Where there is none
/// left, as many of the next ones get others as leave room: O(log n) for each
/// operation that moves, all in all (Dietz and Sleator, "Two algorithms for
/// maintaining order in a list", 1987).
class Order {
public:
  explicit Order(Block &block) : block(block) {
    uint64_t last = 0;
    for (Operation &op : block)
      numbers[&op] = last += gap;
  }

  bool isBefore(Operation *a, Operation *b) const {
    return numbers.at(a) < numbers.at(b);
  }

  /// Moves `op` behind `after`, or to the front if that is null.
  void moveAfter(Operation *op, Operation *after) {
    if (after)
      op->moveAfter(after);
    else
      op->moveBefore(&block, block.begin());
    add(op);
  }

  void moveBefore(Operation *op, Operation *before) {
    op->moveBefore(before);
    add(op);
  }

  /// Numbers `op`, which was added to the block.
  void add(Operation *op) {
    // What else was added has no number.
    auto isNumbered = [&](Operation *other) {
      return !other || numbers.contains(other);
    };
    auto getNext = [&](Operation *other) {
      do
        other = other->getNextNode();
      while (!isNumbered(other));
      return other;
    };
    Operation *before = op->getPrevNode();
    while (!isNumbered(before))
      before = before->getPrevNode();
    uint64_t low = before ? numbers.at(before) : 0;
    llvm::SmallVector<Operation *> moved = {op};
    Operation *end = getNext(op);
    auto isNarrow = [&] {
      uint64_t parts = moved.size() + 1;
      return end && numbers.at(end) - low < parts * parts;
    };
    while (isNarrow()) {
      moved.push_back(end);
      end = getNext(end);
    }
    uint64_t parts = moved.size() + 1;
    uint64_t step = end ? (numbers.at(end) - low) / parts : gap;
    for (Operation *other : moved)
      numbers[other] = low += step;
  }

  /// Forgets `op`, which will be erased.
  void erase(Operation *op) { numbers.erase(op); }

private:
  static constexpr uint64_t gap = uint64_t(1) << 32;

  Block &block;
  llvm::DenseMap<Operation *, uint64_t> numbers;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_ORDER_H
