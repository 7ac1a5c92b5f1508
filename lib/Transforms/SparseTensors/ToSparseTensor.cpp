// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes sparse tensors of patterns and values, for pipelines of others.

#include "SparseTensors.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/SparseTensors/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRTOSPARSETENSOR
#include "bsr/Transforms/SparseTensors/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The stored blocks of `op` one after the other, in the order of its view of
/// the pattern; what follows the last is unspecified.
static Value sortBlocks(OpBuilder &b, ToDenseOp op, Value slots) {
  Location loc = op.getLoc();
  RankedTensorType type = op.getValues().getType();
  SmallVector<int64_t> shape(type.getShape());
  if (op.getTranspose())
    std::swap(shape[1], shape[2]);
  Value init = tensor::EmptyOp::create(b, loc, shape, type.getElementType());
  SmallVector<AffineMap> maps{AffineMap::get(3, 0, b.getAffineDimExpr(0)),
                              b.getMultiDimIdentityMap(3)};
  SmallVector<utils::IteratorType> kinds(3, utils::IteratorType::parallel);
  auto sorted = linalg::GenericOp::create(
      b, loc, init.getType(), slots, init, maps, kinds,
      [&](OpBuilder &nested, Location loc, ValueRange args) {
        // Slots past the last block are anything.
        Value none =
            arith::ConstantOp::create(nested, loc, nested.getI32IntegerAttr(0));
        Value most = arith::ConstantOp::create(
            nested, loc, nested.getI32IntegerAttr(shape[0] - 1));
        Value slot = arith::MinSIOp::create(
            nested, loc, arith::MaxSIOp::create(nested, loc, args[0], none),
            most);
        Value at = arith::IndexCastOp::create(nested, loc,
                                              nested.getIndexType(), slot);
        Value row = linalg::IndexOp::create(nested, loc, 1);
        Value col = linalg::IndexOp::create(nested, loc, 2);
        if (op.getTranspose())
          std::swap(row, col);
        Value element = tensor::ExtractOp::create(nested, loc, op.getValues(),
                                                  ValueRange{at, row, col});
        linalg::YieldOp::create(nested, loc, element);
      });
  return tensor::CollapseShapeOp::create(
      b, loc, sorted.getResult(0), ArrayRef<ReassociationIndices>{{0, 1, 2}});
}

/// Checks that `op` can be a sparse tensor that upstream's sparsifier takes.
static LogicalResult verify(ToDenseOp op) {
  if (op.getBackground())
    return op.emitError(
        "expected absent blocks to be zero, but got a background");
  auto pattern = cast<PatternType>(op.getPattern().getType());
  int64_t rows = pattern.getBlockRows(), cols = pattern.getBlockCols();
  if (op.getTranspose())
    std::swap(rows, cols);
  // MLIR 22 crashes on (i floordiv r : dense, j : compressed, i mod r : dense).
  if (rows != 1 && cols == 1)
    return op.emitError("expected blocks of one element or of several columns, "
                        "but got ")
           << rows << "x" << cols;
  return success();
}

/// to_dense(p, v) -> assemble(indices(p), v in the order of the view)
static void assemble(ToDenseOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto pattern = cast<PatternType>(op.getPattern().getType());
  View view = getView(op.getTranspose());
  auto indices = IndicesOp::create(b, loc, op.getPattern(), view);
  RankedTensorType type =
      getSparseType(op.getDense().getType(), pattern.getBlockExtent(view),
                    pattern.getBlockExtent(getOther(view)));
  Value sparse = sparse_tensor::AssembleOp::create(
      b, loc, type, ValueRange{indices.getPtr(), indices.getIdx()},
      sortBlocks(b, op, indices.getSlot()));
  Value dense;
  for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
    auto user = dyn_cast<linalg::LinalgOp>(use.getOwner());
    if (user && user.isDpsInput(&use)) {
      use.set(sparse);
      continue;
    }
    if (!dense)
      dense = sparse_tensor::ConvertOp::create(b, loc, op.getDense().getType(),
                                               sparse);
    use.set(dense);
  }
  op.erase();
}

namespace {
struct ToSparseTensor : bsr::impl::BSRToSparseTensorBase<ToSparseTensor> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<ToDenseOp> ops;
    getOperation().walk([&](ToDenseOp op) { ops.push_back(op); });
    for (ToDenseOp op : ops) {
      if (failed(verify(op)))
        return signalPassFailure();
      assemble(op);
      ++numAssembled;
    }
  }
};
} // namespace
