// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers, folders and canonicalisation of the operations, in .td order.

#include "DialectInterfaces.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "support/RowView.h"

using namespace mlir;
using namespace mlir::bsr;

#define GET_OP_CLASSES
#include "bsr/Dialect/BSROps.cpp.inc"

/// `shape` with `batch` in front.
static SmallVector<int64_t> addBatch(ArrayRef<int64_t> batch,
                                     ArrayRef<int64_t> shape) {
  SmallVector<int64_t> result(batch);
  llvm::append_range(result, shape);
  return result;
}

/// The dimensions that `values` are batched along.
static ArrayRef<int64_t> getBatch(RankedTensorType values) {
  return values.getShape().drop_back(3);
}

/// Checks that `values` are the stored blocks of `pattern`, or a batch of them.
static LogicalResult verifyValues(Operation *op, PatternType pattern,
                                  RankedTensorType values) {
  RankedTensorType expected = pattern.getValuesType(values.getElementType());
  expected = expected.clone(addBatch(getBatch(values), expected.getShape()));
  if (values != expected)
    return op->emitOpError("expected values of type ")
           << expected << ", but got " << values;
  return success();
}

/// Checks the stored blocks and the dense matrix of a conversion: they are
/// those of its pattern, and of one element type.
template <typename OpTy>
static LogicalResult verifyConversion(OpTy op) {
  PatternType pattern = op.getPattern().getType();
  RankedTensorType values = op.getValues().getType();
  RankedTensorType dense = op.getDense().getType();
  if (failed(verifyValues(op, pattern, values)))
    return failure();
  RankedTensorType expected =
      pattern.getDenseType(values.getElementType(), op.getTranspose());
  if (dense != expected)
    return op.emitOpError("expected dense matrix of type ")
           << expected << ", but got " << dense;
  return success();
}

/// Checks that `background` is of the element type of `values`.
static LogicalResult verifyBackground(Operation *op, Value background,
                                      RankedTensorType values) {
  if (!background)
    return success();
  Type expected = values.getElementType();
  Type element = getElementTypeOrSelf(background.getType());
  if (element != expected)
    return op->emitOpError("expected background element type ")
           << expected << ", but got " << element;
  return success();
}

/// Drops a background of zero: f(p, v, background = 0) -> f(p, v)
template <typename OpTy>
static LogicalResult dropBackground(OpTy op, PatternRewriter &rewriter) {
  DenseFPElementsAttr background;
  if (!op.getBackground() ||
      !matchPattern(op.getBackground(), m_Constant(&background)) ||
      !background.template getSplatValue<APFloat>().isPosZero())
    return failure();
  rewriter.modifyOpInPlace(op, [&] { op.getBackgroundMutable().clear(); });
  return success();
}

/// Checks that `vec`, or each vector of a batch, runs along dimension `dim` of
/// the matrix of `pattern`.
static LogicalResult verifyVector(Operation *op, PatternType pattern,
                                  ArrayRef<int64_t> batch, RankedTensorType vec,
                                  int64_t dim) {
  if (dim != 0 && dim != 1)
    return op->emitOpError("expected dim to be 0 or 1, but got ") << dim;
  RankedTensorType expected =
      vec.clone(addBatch(batch, dim ? pattern.getCols() : pattern.getRows()));
  if (vec != expected)
    return op->emitOpError("expected vec of type ")
           << expected << ", but got " << vec;
  return success();
}

/// Checks that `type` has a dimension `featureDim`.
static LogicalResult verifyFeatureDim(Operation *op, RankedTensorType type,
                                      int64_t featureDim) {
  if (featureDim < 0 || featureDim >= type.getRank())
    return op->emitOpError("expected feature_dim in 0 to ")
           << type.getRank() - 1 << ", but got " << featureDim;
  return success();
}

/// Checks that `type` has the dimensions `batch` in front of that of its
/// features.
static LogicalResult verifyBatch(Operation *op, StringRef name,
                                 RankedTensorType type, int64_t featureDim,
                                 ArrayRef<int64_t> batch) {
  int64_t numBatchDims = batch.size();
  if (type.getRank() <= numBatchDims ||
      type.getShape().take_front(numBatchDims) != batch) {
    InFlightDiagnostic error = op->emitOpError("expected ")
                               << name << " to begin with the dimensions ";
    llvm::interleave(batch, error, "x");
    return error << " of the values, but got " << type;
  }
  if (featureDim >= 0 && featureDim < numBatchDims)
    return op->emitOpError("expected feature_dim in ")
           << numBatchDims << " to " << type.getRank() - 1 << ", but got "
           << featureDim;
  return success();
}

/// Checks that dimension `featureDim` of `type` has `extent` features.
static LogicalResult verifyFeatures(Operation *op, StringRef name,
                                    RankedTensorType type, int64_t featureDim,
                                    int64_t extent) {
  if (failed(verifyFeatureDim(op, type, featureDim)))
    return failure();
  if (type.getDimSize(featureDim) != extent)
    return op->emitOpError("expected dimension ")
           << featureDim << " of " << name << " to have " << extent
           << " features, but got " << type.getDimSize(featureDim);
  return success();
}

/// Checks the element types of all tensors of a product: floats that a sum in
/// f32 or f64 holds, and not two kinds of halves.
static LogicalResult verifyElements(Operation *op) {
  SmallVector<Type> types(op->getOperandTypes());
  llvm::append_range(types, op->getResultTypes());
  for (Type &type : types)
    type = getElementTypeOrSelf(type);
  if (llvm::is_contained(types, Float16Type::get(op->getContext())) &&
      llvm::is_contained(types, BFloat16Type::get(op->getContext())))
    return op->emitOpError(
        "expected elements of f16 or of bf16, but got both in one product");
  return success();
}

//===----------------------------------------------------------------------===//
// ConstantPatternOp
//===----------------------------------------------------------------------===//

LogicalResult
mlir::bsr::verifyRowView(function_ref<InFlightDiagnostic()> emitError,
                         PatternType type, ArrayRef<int32_t> rowPtr,
                         ArrayRef<int32_t> colIdx) {
  int64_t rows = type.getGridRows(), blocks = colIdx.size();
  if (static_cast<int64_t>(rowPtr.size()) != rows + 1)
    return emitError() << "expected " << rows + 1 << " row pointers, but got "
                       << rowPtr.size();
  if (blocks > type.getSlots())
    return emitError() << "expected at most " << type.getSlots()
                       << " blocks, but got " << blocks;
  using Fault = sparse_opt::RowViewFault;
  Fault fault = sparse_opt::findFault(rows, type.getGridCols(), blocks,
                                      rowPtr.data(), colIdx.data());
  int64_t place = fault.place;
  switch (fault.kind) {
  case Fault::None:
    return success();
  case Fault::Start:
    return emitError() << "expected row_ptr[0] to be 0, but got " << rowPtr[0];
  case Fault::Pointer:
    if (rowPtr[place] < fault.least)
      return emitError() << "expected row_ptr[" << place << "] to be at least "
                         << fault.least << ", but got " << rowPtr[place];
    if (place != rows)
      return emitError() << "expected row_ptr[" << place
                         << "] to be at most the number of blocks (" << blocks
                         << "), but got " << rowPtr[place];
    [[fallthrough]];
  case Fault::End:
    return emitError() << "expected row_ptr[" << rows
                       << "] to be the number of blocks (" << blocks
                       << "), but got " << rowPtr[rows];
  case Fault::Column:
    if (colIdx[place] < 0 || colIdx[place] > fault.most)
      return emitError() << "expected col_idx[" << place << "] in 0 to "
                         << fault.most << ", but got " << colIdx[place];
    return emitError() << "expected col_idx[" << place
                       << "] to be greater than " << fault.least - 1
                       << " (sorted and unique in block row " << fault.row
                       << "), but got " << colIdx[place];
  }
  llvm_unreachable("all faults of a row view are reported");
}

LogicalResult ConstantPatternOp::verify() {
  return verifyRowView([&] { return emitOpError(); }, getPattern().getType(),
                       getRowPtr(), getColIdx());
}

//===----------------------------------------------------------------------===//
// IndicesOp
//===----------------------------------------------------------------------===//

void IndicesOp::build(OpBuilder &builder, OperationState &state, Value pattern,
                      View view) {
  auto [ptr, idx, slot] =
      cast<PatternType>(pattern.getType()).getIndexTypes(view);
  build(builder, state, ptr, idx, slot, pattern, view == View::Columns);
}

LogicalResult IndicesOp::verify() {
  std::array types = getPattern().getType().getIndexTypes(getView());
  StringRef names[] = {"ptr", "idx", "slot"};
  for (auto [name, type, result] :
       llvm::zip_equal(names, types, getResults())) {
    Type expected = type;
    if (isa<MemRefType>(result.getType()))
      expected = getDenseBufferType(type);
    if (result.getType() != expected)
      return emitOpError("expected ") << name << " of type " << expected
                                      << ", but got " << result.getType();
  }
  return success();
}

/// indices(constant_pattern) -> constants
LogicalResult IndicesOp::fold(FoldAdaptor adaptor,
                              SmallVectorImpl<OpFoldResult> &results) {
  auto constant = getPattern().getDefiningOp<ConstantPatternOp>();
  if (!constant || isa<MemRefType>(getPtr().getType()))
    return failure();
  PatternType type = getPattern().getType();
  ArrayRef<int32_t> rowPtr = constant.getRowPtr();
  ArrayRef<int32_t> colIdx = constant.getColIdx();
  SmallVector<int32_t> ptr(rowPtr), idx(colIdx), slot;
  if (getTranspose()) {
    // Counting sort by column; row order within a column stays.
    ptr.assign(type.getGridCols() + 1, 0);
    for (int32_t col : colIdx)
      ++ptr[col + 1];
    for (size_t i = 1; i != ptr.size(); ++i)
      ptr[i] += ptr[i - 1];
    SmallVector<int32_t> next(ptr);
    slot.assign(colIdx.size(), 0);
    for (int64_t row = 0; row != type.getGridRows(); ++row) {
      for (int32_t k = rowPtr[row]; k != rowPtr[row + 1]; ++k) {
        int32_t at = next[colIdx[k]]++;
        idx[at] = row;
        slot[at] = k;
      }
    }
  } else {
    for (int32_t k = 0; k != static_cast<int32_t>(colIdx.size()); ++k)
      slot.push_back(k);
  }
  idx.resize(type.getSlots(), 0);
  slot.resize(type.getSlots(), 0);
  ArrayRef<int32_t> arrays[] = {ptr, idx, slot};
  for (auto [array, result] : llvm::zip_equal(arrays, getResults()))
    results.push_back(
        DenseIntElementsAttr::get(cast<ShapedType>(result.getType()), array));
  return success();
}

//===----------------------------------------------------------------------===//
// LiveOp
//===----------------------------------------------------------------------===//

LogicalResult LiveOp::verify() {
  int64_t slots = getPattern().getType().getSlots();
  auto expected =
      RankedTensorType::get({slots}, IntegerType::get(getContext(), 1));
  if (getLive().getType() != expected)
    return emitOpError("expected live of type ")
           << expected << ", but got " << getLive().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// BarrierOp
//===----------------------------------------------------------------------===//

/// A constant is never kept.
OpFoldResult BarrierOp::fold(FoldAdaptor adaptor) { return adaptor.getInput(); }

//===----------------------------------------------------------------------===//
// GradientOp
//===----------------------------------------------------------------------===//

LogicalResult GradientOp::verify() {
  Operation *parent = (*this)->getParentOp();
  auto op = dyn_cast_or_null<linalg::GenericOp>(parent);
  if (!op || op.getNumReductionLoops() || op.getNumResults() != 1) {
    InFlightDiagnostic error = emitOpError(
        "expected an element-wise linalg.generic with one result around it");
    if (parent)
      error << ", but got '" << parent->getName() << "'";
    return error;
  }
  Block *body = op.getBody();
  // The operation around it finds what is wrong with itself.
  if (body->getNumArguments() != op->getNumOperands() ||
      op.getIndexingMaps().size() != op->getNumOperands())
    return success();
  if (body->getOperations().size() != 2 || !getOutput().hasOneUse())
    return emitOpError("expected to be all that its operation computes, but "
                       "got a body of ")
           << body->getOperations().size() << " operations";
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  auto requireIdentity = [&](AffineMap map, StringRef what) -> LogicalResult {
    if (map.isIdentity())
      return success();
    return emitOpError("expected an identity map of ")
           << what << ", but got " << AffineMapAttr::get(map);
  };
  if (auto arg = dyn_cast<BlockArgument>(getAt());
      arg && arg.getOwner() == body &&
      failed(requireIdentity(maps[arg.getArgNumber()], "the value")))
    return failure();
  return requireIdentity(maps.back(), "the result");
}

//===----------------------------------------------------------------------===//
// ToDenseOp
//===----------------------------------------------------------------------===//

LogicalResult ToDenseOp::verify() {
  if (failed(verifyConversion(*this)))
    return failure();
  return verifyBackground(*this, getBackground(), getValues().getType());
}

LogicalResult ToDenseOp::canonicalize(ToDenseOp op, PatternRewriter &rewriter) {
  return dropBackground(op, rewriter);
}

//===----------------------------------------------------------------------===//
// SampleOp
//===----------------------------------------------------------------------===//

LogicalResult SampleOp::verify() { return verifyConversion(*this); }

/// sample(p, to_dense(p, v)) -> v
OpFoldResult SampleOp::fold(FoldAdaptor) {
  auto dense = getDense().getDefiningOp<ToDenseOp>();
  if (dense && dense.getPattern() == getPattern() &&
      dense.getTranspose() == getTranspose())
    return dense.getValues();
  return {};
}

//===----------------------------------------------------------------------===//
// SampleVecOp
//===----------------------------------------------------------------------===//

LogicalResult SampleVecOp::verify() {
  PatternType pattern = getPattern().getType();
  RankedTensorType vec = getVec().getType();
  ArrayRef<int64_t> batch = vec.getShape().drop_back();
  if (failed(verifyVector(*this, pattern, batch, vec, getDim())))
    return failure();
  int64_t shape[] = {pattern.getSlots(), pattern.getBlockRows(),
                     pattern.getBlockCols()};
  shape[getDim() ? 1 : 2] = 1;
  RankedTensorType expected = vec.clone(addBatch(batch, shape));
  if (getValues().getType() != expected)
    return emitOpError("expected values of type ")
           << expected << ", but got " << getValues().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// ReduceVecOp
//===----------------------------------------------------------------------===//

LogicalResult ReduceVecOp::verify() {
  PatternType pattern = getPattern().getType();
  RankedTensorType values = getValues().getType();
  RankedTensorType vec = getVec().getType();
  if (failed(verifyValues(*this, pattern, values)) ||
      failed(verifyBackground(*this, getBackground(), values)) ||
      failed(verifyVector(*this, pattern, getBatch(values), vec, getDim())))
    return failure();
  if (getMax() && getBackground())
    return emitOpError("expected no background of maxima, but got ")
           << getBackground().getType();
  if (vec.getElementType() != values.getElementType())
    return emitOpError("expected vec element type ")
           << values.getElementType() << ", but got " << vec.getElementType();
  return success();
}

LogicalResult ReduceVecOp::canonicalize(ReduceVecOp op,
                                        PatternRewriter &rewriter) {
  return dropBackground(op, rewriter);
}

//===----------------------------------------------------------------------===//
// SpMMOp
//===----------------------------------------------------------------------===//

LogicalResult SpMMOp::verify() {
  PatternType pattern = getPattern().getType();
  RankedTensorType x = getX().getType();
  RankedTensorType y = getY().getType();
  int64_t in = pattern.getRows(), out = pattern.getCols();
  if (getTranspose())
    std::swap(in, out);
  if (failed(verifyElements(*this)) ||
      failed(verifyValues(*this, pattern, getValues().getType())) ||
      failed(verifyBatch(*this, "x", x, getFeatureDim(),
                         getBatch(getValues().getType()))) ||
      failed(verifyFeatures(*this, "x", x, getFeatureDim(), in)))
    return failure();
  SmallVector<int64_t> shape(x.getShape());
  shape[getFeatureDim()] = out;
  auto expected = RankedTensorType::get(shape, y.getElementType());
  if (y != expected)
    return emitOpError("expected y of type ") << expected << ", but got " << y;
  auto expectedBias = RankedTensorType::get({out}, y.getElementType());
  if (getBias() && getBias().getType() != expectedBias)
    return emitOpError("expected bias of type ")
           << expectedBias << ", but got " << getBias().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// SDDMMOp
//===----------------------------------------------------------------------===//

LogicalResult SDDMMOp::verify() {
  PatternType pattern = getPattern().getType();
  RankedTensorType a = getA().getType();
  RankedTensorType b = getB().getType();
  int64_t featureDim = getFeatureDim();
  if (failed(verifyElements(*this)) ||
      failed(verifyValues(*this, pattern, getValues().getType())) ||
      failed(verifyBatch(*this, "a", a, featureDim,
                         getBatch(getValues().getType()))) ||
      failed(verifyFeatures(*this, "a", a, featureDim, pattern.getRows())) ||
      failed(verifyFeatures(*this, "b", b, featureDim, pattern.getCols())))
    return failure();
  SmallVector<int64_t> shape(a.getShape());
  shape[featureDim] = pattern.getCols();
  auto expected = RankedTensorType::get(shape, b.getElementType());
  if (b != expected)
    return emitOpError("expected b of type ") << expected << ", but got " << b;
  return success();
}

//===----------------------------------------------------------------------===//
// BlockScoresOp
//===----------------------------------------------------------------------===//

LogicalResult BlockScoresOp::verify() {
  RankedTensorType a = getA().getType();
  RankedTensorType b = getB().getType();
  int64_t featureDim = getFeatureDim();
  if (failed(verifyFeatureDim(*this, a, featureDim)) ||
      failed(verifyFeatureDim(*this, b, featureDim)))
    return failure();
  SmallVector<int64_t> shape(a.getShape());
  shape[featureDim] = b.getDimSize(featureDim);
  auto expected = RankedTensorType::get(shape, b.getElementType());
  if (b != expected)
    return emitOpError("expected b of type ") << expected << ", but got " << b;
  for (auto [name, type, blocks] :
       {std::tuple("a", a, getScores().getType().getDimSize(0)),
        std::tuple("b", b, getScores().getType().getDimSize(1))})
    if (blocks == 0 || type.getDimSize(featureDim) % blocks != 0)
      return emitOpError("expected a number of scores that divides the ")
             << type.getDimSize(featureDim) << " features of " << name
             << ", but got " << blocks;
  return success();
}

//===----------------------------------------------------------------------===//
// AllReduceOp
//===----------------------------------------------------------------------===//

LogicalResult ScatterAddOp::verify() {
  RankedTensorType updates = getUpdates().getType();
  RankedTensorType rows = getRows().getType();
  int64_t featureDim = getFeatureDim();
  if (failed(verifyFeatures(*this, "updates", updates, featureDim,
                            rows.getDimSize(1))))
    return failure();
  SmallVector<int64_t> shape(updates.getShape());
  shape.erase(shape.begin() + featureDim);
  auto expected = RankedTensorType::get(
      shape, getElementTypeOrSelf(getIndices().getType()));
  if (getIndices().getType() != expected)
    return emitOpError("expected indices of type ")
           << expected << ", but got " << getIndices().getType();
  if (rows.getElementType() != updates.getElementType())
    return emitOpError("expected rows element type ")
           << updates.getElementType() << ", but got " << rows.getElementType();
  return success();
}
