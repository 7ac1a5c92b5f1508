// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What operations depend on, and what depends on them.

#ifndef BSR_ANALYSIS_DEPENDENTS_H
#define BSR_ANALYSIS_DEPENDENTS_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseSet.h"
#include <optional>

namespace mlir::bsr {

/// True for numbers and tensors of one: what they carry from one matrix to
/// another is no entry.
bool isNumber(Value value);

/// The elements of a tensor, or 1.
int64_t countElements(Value value);

/// Calls `visit` for what `op` reads, and what its regions read of outside.
void visitReads(Operation *op, function_ref<void(Value)> visit);

/// The operations that use a result of `sources`, directly or indirectly, and
/// those whose bodies do.
DenseSet<Operation *> getDependents(ArrayRef<Operation *> sources);

/// The same, found when first asked for: it may be most of the step, and few
/// weights ask.
class Dependents {
public:
  explicit Dependents(ArrayRef<Operation *> sources = {}) : sources(sources) {}

  bool contains(Operation *op) const;

private:
  SmallVector<Operation *> sources;
  mutable std::optional<DenseSet<Operation *>> found;
};

/// Erases the operations of `block` that nothing needs.
void eraseDead(Block &block);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_DEPENDENTS_H
