// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an entry of a tensor is in numbers, for numbers that are chosen for what
// it is computed from.

#ifndef BSR_INTERPRETER_ENTRYVALUES_H
#define BSR_INTERPRETER_ENTRYVALUES_H

#include "bsr/Interpreter/Body.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <map>
#include <memory>

namespace mlir::bsr {

/// Computes entries of tensors, in double precision, through element-wise
/// operations, views, constants and some reductions.
class EntryValues {
public:
  /// The entry of a tensor that is not computed here; nothing if there is none.
  using Leaf = std::function<std::optional<double>(Value, ArrayRef<int64_t>)>;
  /// The positions that a reduction takes along each of its reduced loops;
  /// nothing if its results are leaves.
  using Reduced =
      std::function<std::optional<SmallVector<int64_t>>(linalg::GenericOp)>;

  explicit EntryValues(Leaf leaf, Reduced reduced = {})
      : leaf(std::move(leaf)), reduced(std::move(reduced)) {}

  /// Keeps entries for one call of `get` alone: each entry of a large tensor is
  /// asked for once.
  void forget() { isKept = false; }

  /// Rounds what operations compute to its type, as a step does: what depends
  /// on the last digit, as a comparison may, is what it is there.
  void round() { isRounded = true; }

  /// Makes `number` all entries of `tensor`.
  void set(Value tensor, double number) { given[tensor] = number; }

  /// Makes `tensor` a leaf, whatever computes it.
  void setLeaf(Value tensor) { leaves.insert(tensor); }

  /// The entry of `tensor` at `at`; nothing if a leaf it depends on has none.
  /// An operation that is not understood is a leaf.
  std::optional<double> get(Value tensor, ArrayRef<int64_t> at);

private:
  using Number = interpreter::Number;

  std::optional<Number> getLeaf(Value tensor, ArrayRef<int64_t> at);
  std::optional<Number> find(Value tensor, ArrayRef<int64_t> at);
  std::optional<Number> compute(Value tensor, ArrayRef<int64_t> at);
  std::optional<Number> compute(linalg::GenericOp op, unsigned result,
                                ArrayRef<int64_t> at);
  interpreter::Body *getBody(linalg::GenericOp op);
  std::optional<Number> evaluate(linalg::GenericOp op, unsigned result,
                                 ArrayRef<int64_t> loops,
                                 std::optional<Number> accumulator);

  bool isKept = true, isRounded = false;
  DenseSet<Value> leaves;
  DenseMap<Value, double> given;
  Leaf leaf;
  Reduced reduced;
  std::map<std::pair<void *, std::vector<int64_t>>, std::optional<Number>>
      known;
  DenseMap<Operation *, std::unique_ptr<interpreter::Body>> bodies;
};

/// True if `EntryValues` can compute the body of `op`.
bool isComputable(linalg::GenericOp op);

} // namespace mlir::bsr

#endif // BSR_INTERPRETER_ENTRYVALUES_H
