// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says which kernel a product has, and why it has none of its own.

#include "ProductRemarks.h"
#include "GPUDispatch.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "bsr/Codegen/GPU/SpMM/SpMM.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// The tensors that `op` multiplies, if it is a product.
static SmallVector<Value> getFactors(Operation *op) {
  if (auto spmm = dyn_cast<SpMMOp>(op))
    return {spmm.getX(), spmm.getValues()};
  if (auto sddmm = dyn_cast<SDDMMOp>(op))
    return {sddmm.getA(), sddmm.getB()};
  if (auto scores = dyn_cast<BlockScoresOp>(op))
    return {scores.getA(), scores.getB()};
  auto dense = dyn_cast<linalg::LinalgOp>(op);
  if (dense && linalg::isaContractionOpInterface(dense))
    return dense.getDpsInputs();
  return {};
}

/// What kernels of products expect of `op`, and what it has instead; nothing if
/// that is not known.
static std::string explain(Operation *op, ArrayRef<Value> factors) {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (Value factor : factors) {
    Type type = getElementTypeOrSelf(factor.getType());
    if (!type.isBF16() && !type.isF16() && !type.isF32()) {
      out << "expected elements of bf16, f16 or f32, but got " << type;
      return text;
    }
  }
  auto spmm = dyn_cast<SpMMOp>(op);
  auto sddmm = dyn_cast<SDDMMOp>(op);
  if (!spmm && !sddmm)
    return text;
  PatternType pattern =
      (spmm ? spmm.getPattern() : sddmm.getPattern()).getType();
  if (!isLane(pattern.getBlockRows()) || !isLane(pattern.getBlockCols())) {
    out << "expected blocks of 1, 2, 4, 8, 16, 32 or 64 rows and columns, but "
           "got "
        << pattern.getBlockRows() << "x" << pattern.getBlockCols();
    return text;
  }
  int64_t dim = spmm ? spmm.getFeatureDim() : sddmm.getFeatureDim();
  for (Value factor : factors) {
    bool isOfTokens = !spmm || factor == spmm.getX();
    if (isOfTokens && !Activations::match(factor, dim)) {
      out << "expected tokens last, in rows of a multiple of 16 bytes, but got "
             "'"
          << factor.getType() << "' with features in dimension " << dim;
      return text;
    }
  }
  return text;
}

void bsr::remarkPlainProduct(Operation *op, GPUAttr chip) {
  SmallVector<Value> factors = getFactors(op);
  if (factors.empty())
    return;
  if (lacksTile(op, chip)) {
    PassRemark::missed("bsr-emit", "NoTile", op, DiagnosticSeverity::Remark)
            .add("Operation", op->getName())
            .add("FLOPs", getFlops(op))
        << "expected a tile whose sums fit registers, and its stages the "
        << findChip(chip.getChip())->sharedLimit / 1024
        << " KiB of shared memory of " << chip.getChip()
        << ", but got tile_outputs = " << chip.getTileOutputs()
        << " and tile_tokens = " << chip.getTileTokens()
        << ": no tensor cores multiply '" << op->getName() << "'";
    return;
  }
  std::string reason;
  if (!matchProduct(op, chip))
    reason = explain(op, factors);
  if (!reason.empty())
    PassRemark::missed("bsr-emit", "PlainProduct", op,
                       DiagnosticSeverity::Remark)
            .add("Operation", op->getName())
            .add("Reason", reason)
            .add("FLOPs", getFlops(op))
        << reason << ": each sum of '" << op->getName() << "' is one thread's";
}

void bsr::remarkTile(Operation *op, const Product &product) {
  PassRemark remark = PassRemark::analysis("bsr-emit", "TileChosen", op);
  if (!remark)
    return;
  std::string tile = product.describeTile();
  remark.add("Operation", op->getName()).add("FLOPs", getFlops(op));
  if (!tile.empty())
    remark.add("Tile", tile);
}
