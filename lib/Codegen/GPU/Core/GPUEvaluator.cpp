// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An evaluator for threads.

#include "bsr/Codegen/GPU/Core/GPUEvaluator.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

void GPUEvaluator::forEach(ArrayRef<int64_t> extents,
                           llvm::function_ref<void(ArrayRef<Index>)> body) {
  if (llvm::any_of(extents, [](int64_t extent) { return extent != 1; }))
    return forall(extents, body);
  SmallVector<OpFoldResult> one{b.getIndexAttr(1)};
  auto once = scf::ForallOp::create(b, loc, one, ValueRange(), std::nullopt);
  scope([&] {
    b.setInsertionPointToStart(once.getBody());
    body(SmallVector<Index>(extents.size(), Index::constant(0)));
  });
}

std::optional<int64_t> GPUEvaluator::getAlignment(Value memref,
                                                  ArrayRef<Index> at) const {
  auto type = cast<MemRefType>(memref.getType());
  auto [strides, offset] = type.getStridesAndOffset();
  bool isWhole = offset % width == 0 && at.back().align % width == 0 &&
                 llvm::all_of(llvm::drop_end(strides), [&](int64_t stride) {
                   return stride % width == 0;
                 });
  int64_t bytes = width * type.getElementTypeBitWidth() / 8;
  return isWhole && llvm::isPowerOf2_64(bytes) ? std::optional(bytes)
                                               : std::nullopt;
}
