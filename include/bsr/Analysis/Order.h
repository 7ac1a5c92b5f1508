// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where operations are in a block while some of them move.

#ifndef BSR_ANALYSIS_ORDER_H
#define BSR_ANALYSIS_ORDER_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::bsr {

/// The order of the operations of a block. `Operation::isBeforeInBlock` numbers
/// the whole block again after every move; here an operation that moves gets a
/// number between those of its neighbours, as long as there is one.
class Order {
public:
  explicit Order(Block &block) : block(block) { renumber(); }

  bool isBefore(Operation *a, Operation *b) const {
    return numbers.at(a) < numbers.at(b);
  }

  /// Moves `op` behind `after`, or to the front if that is null.
  void moveAfter(Operation *op, Operation *after) {
    if (after)
      op->moveAfter(after);
    else
      op->moveBefore(&block, block.begin());
    // What was added since has no number.
    Operation *next = op->getNextNode();
    while (next && !numbers.contains(next))
      next = next->getNextNode();
    uint64_t low = after ? numbers.at(after) : 0;
    uint64_t high = next ? numbers.at(next) : low + 2 * gap;
    if (high - low < 2)
      renumber();
    else
      numbers[op] = low + (high - low) / 2;
  }

private:
  void renumber() {
    uint64_t last = 0;
    for (Operation &op : block)
      numbers[&op] = last += gap;
  }

  static constexpr uint64_t gap = uint64_t(1) << 32;

  Block &block;
  llvm::DenseMap<Operation *, uint64_t> numbers;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_ORDER_H
