// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a result of an attention is stored.

#include "AttentionResult.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

AttentionResult AttentionResult::get(OpBuilder &b, const KernelBody &kernel,
                                     const AttentionTensor &tensor,
                                     unsigned featureDim) {
  AttentionResult result{tensor, featureDim,
                         kernel.outputs.lookup(tensor.tensor), std::nullopt};
  auto type = cast<RankedTensorType>(tensor.tensor.getType());
  int64_t columns = type.getShape().back();
  if (result && columns % 2 == 0 &&
      tensor.map.getDimPosition(type.getRank() - 1) == featureDim)
    result.pairs = createRows(b, kernel.loc, result.buffer,
                              type.getShape().drop_back(), columns,
                              /*length=*/2);
  return result;
}
