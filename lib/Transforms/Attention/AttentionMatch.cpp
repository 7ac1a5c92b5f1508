// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Labels of dimensions, through reshapes and permutations.

#include "AttentionMatch.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

Type AttentionMatch::getSumType() const {
  SmallVector<LabelledTensor> tensors{q, k, v, output ? y : dy};
  llvm::append_range(tensors, biases);
  llvm::append_range(tensors, factor.tensors);
  Builder b(scores->getContext());
  return llvm::any_of(
             tensors,
             [](const LabelledTensor &tensor) {
               return getElementTypeOrSelf(tensor.tensor.getType()).isF64();
             })
             ? b.getF64Type()
             : b.getF32Type();
}

LabelledTensor bsr::getUnpermuted(LabelledTensor tensor) {
  while (true) {
    SmallVector<int64_t> permutation;
    Value source = getPermutedSource(tensor.tensor, permutation);
    if (!source)
      return tensor;
    Labels labels(permutation.size());
    for (auto [dim, from] : llvm::enumerate(permutation))
      labels[from] = tensor.labels[dim];
    tensor = {source, labels};
  }
}

Labels bsr::getReshaped(Operation *reshape, const Labels &labels,
                        bool isBackward, bool &isWhole) {
  auto expand = dyn_cast<tensor::ExpandShapeOp>(reshape);
  auto collapse = dyn_cast<tensor::CollapseShapeOp>(reshape);
  SmallVector<ReassociationIndices> groups =
      expand ? expand.getReassociationIndices()
             : collapse.getReassociationIndices();
  RankedTensorType split =
      expand ? expand.getResultType() : collapse.getSrcType();
  bool isMerging = expand ? isBackward : !isBackward;
  Labels result(isMerging ? groups.size() : split.getRank(), -1);
  for (auto [number, group] : llvm::enumerate(groups)) {
    SmallVector<int64_t> large = llvm::filter_to_vector(
        group, [&](int64_t dim) { return split.getDimSize(dim) != 1; });
    isWhole &= large.size() <= 1;
    if (large.size() == 1 && isMerging)
      result[number] = labels[large.front()];
    else if (large.size() == 1)
      result[large.front()] = labels[number];
  }
  return result;
}
