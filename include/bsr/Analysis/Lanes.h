// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which dimension of tensors the lanes run along.

#ifndef BSR_ANALYSIS_LANES_H
#define BSR_ANALYSIS_LANES_H

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <set>

namespace mlir::bsr {

/// True for operations whose results may be laid out anew.
bool hasFreeLayout(Operation *op);

/// The token dimension of `x` to run lanes along: the last one.
std::optional<unsigned> getTokenDim(Value x, int64_t featureDim);

/// What a reshape makes of dimension `dim` of the longer of two shapes, or of
/// the shorter: a dimension of the other, if only units share its group.
/// `groups` are of the longer shape.
std::optional<unsigned> mapThroughReshape(ArrayRef<ReassociationIndices> groups,
                                          ArrayRef<int64_t> longer,
                                          bool fromLonger, unsigned dim);

/// The dimension of each value of a block that lanes run along, if there is
/// one: a fixpoint over indexing maps from the tokens of the sparse products.
class Lanes {
public:
  explicit Lanes(Block &block);

  /// The dimension of `value`, as the program has it, that has the lanes.
  std::optional<unsigned> get(Value value) const {
    auto found = lanes.find(value);
    return found == lanes.end() ? std::nullopt
                                : std::optional<unsigned>(found->second);
  }
  /// The dimensions of `value` in their new order: lanes last.
  SmallVector<int64_t> getOrder(Value value) const;

private:
  bool set(Value value, std::optional<unsigned> dim);
  bool link(Value a, Value b,
            llvm::function_ref<std::optional<unsigned>(bool, unsigned)> map);
  bool visit(Operation *op);
  bool visitDown();
  bool visitUp();
  bool decide();
  bool visitGeneric(linalg::GenericOp op, bool decide);
  bool visitAttention(Operation *op);
  bool isPinned(Value value) const;

  DenseMap<Value, unsigned> lanes;
  /// The operations of the block, and where they are.
  SmallVector<Operation *> ops;
  DenseMap<Operation *, unsigned> positions;
  /// Where values got lanes since an operation was last visited, and since it
  /// last had to choose.
  std::set<unsigned> unsettled, undecided;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_LANES_H
