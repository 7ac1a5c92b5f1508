// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the numbers of a step have to do with how many steps were made.

#ifndef LIB_TRANSFORMS_SPARSITY_BIASCORRECTION_H
#define LIB_TRANSFORMS_SPARSITY_BIASCORRECTION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace mlir::bsr {

/// What a value is to the correction of bias.
enum class Part {
  Blocks,     ///< No number: it differs from entry to entry.
  Fixed,      ///< Depends on no step count.
  Schedule,   ///< Depends on one, and corrects no bias.
  Count,      ///< A linear function of a step count t.
  Power,      ///< c b^t, where 1 - b^t is somewhere in the step.
  CountPower, ///< c t b^t.
  Product,    ///< A carried number that each step multiplies.
  Correction, ///< 1 - b^t, 1 - b^t / 2, 1 - a product, or made of one.
};

/// Tells the corrections of bias of a step from its schedules.
class BiasCorrections {
public:
  explicit BiasCorrections(func::FuncOp step);

  /// What `value`, a tensor or an entry of one, is.
  Part getPart(Value value);

  /// Whether blocks of different ages have different values for `value`.
  bool isOfBlocks(Value value);

  /// Whether `operand` of an operation that is computed for each block is
  /// computed for each block, too.
  bool isOwn(OpOperand &operand);

  /// Whether all entries of `value` are one number.
  bool isUniform(Value value);

  /// What `value`, all of whose entries are one number, is that number of: the
  /// result of an operation on numbers, or an argument of the step.
  Value getNumber(Value value);

  /// An operation that uses a power or a product otherwise than in a
  /// correction, among what `getPart` was asked for; null if there is none.
  Operation *getUnknown() const { return unknown; }

private:
  /// What tells powers of the same base and exponent from others, and products
  /// from each other, wherever they are computed.
  using Key = std::pair<size_t, size_t>;

  Part compute(Value value);
  Part combine(Operation *op, ArrayRef<Part> parts);
  bool isOneMinus(Operation *op);
  bool isCorrecting(Value subtracted);
  Key getKey(Value power);
  size_t hash(Value value);
  Value strip(Value value);
  bool countsOn(Value next, BlockArgument state);
  bool multipliesOn(Value next, BlockArgument state);

  func::FuncOp step;
  DenseMap<Value, BlockArgument> next; // the states by their next numbers
  DenseSet<Value> counts, products;    // states
  DenseSet<Key> corrected;
  bool isComplete = false; // whether `corrected` is
  DenseMap<Value, Part> parts;
  DenseMap<Value, bool> uniform;
  Operation *unknown = nullptr;
};

} // namespace mlir::bsr

#endif // LIB_TRANSFORMS_SPARSITY_BIASCORRECTION_H
