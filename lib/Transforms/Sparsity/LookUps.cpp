// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules for look-ups of rows by index, and for their gradients.

#include "Propagation.h"
#include "bsr/Analysis/OneHot.h"
#include "bsr/Dialect/Rows.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::bsr;

/// True if the operations of the dialect take indices of type `type`.
static bool isIndexType(Type type) {
  return type.isSignlessInteger(32) || type.isSignlessInteger(64);
}

/// `loops` without `loop`.
static SmallVector<unsigned> getOthers(ArrayRef<unsigned> loops,
                                       unsigned loop) {
  return llvm::filter_to_vector(loops,
                                [&](unsigned other) { return other != loop; });
}

/// The indices of the one of `operands` that is a one-hot matrix choosing among
/// the points of `loop`, with the loops of its other dimensions.
static std::optional<ProductOperand>
findIndices(ArrayRef<ProductOperand> operands, unsigned loop) {
  for (const ProductOperand &operand : operands) {
    std::optional<OneHot> oneHot = matchOneHot(operand.value);
    if (!oneHot || operand.loops[oneHot->dim] != loop)
      continue;
    auto type = cast<RankedTensorType>(oneHot->indices.getType());
    if (isIndexType(type.getElementType()))
      return ProductOperand{oneHot->indices, getOthers(operand.loops, loop)};
  }
  return std::nullopt;
}

static Type getElement(Value value) {
  return cast<RankedTensorType>(value.getType()).getElementType();
}

/// E2: sample(p, one_hot(i)^T b) -> scatter_rows(p, i, b), or the transposed
Value Propagation::createScatter(linalg::LinalgOp op, Value pattern,
                                 ArrayRef<ProductOperand> as,
                                 ArrayRef<ProductOperand> bs, unsigned row,
                                 unsigned col) {
  for (bool transpose : {false, true}) {
    std::optional<ProductOperand> indices =
        findIndices(transpose ? bs : as, transpose ? col : row);
    if (!indices)
      continue;
    ArrayRef<ProductOperand> others = transpose ? as : bs;
    SmallVector<unsigned> loops(indices->loops);
    loops.push_back(transpose ? row : col);
    ProductOperand updates = others.front();
    for (const ProductOperand &other : others)
      if (other.loops == loops)
        updates = other;
    if (getElement(updates.value) != getElement(op->getResult(0)))
      continue;
    return ScatterRowsOp::create(
        rewriter, op.getLoc(), getValuesType(pattern, op->getResult(0)),
        pattern, indices->value, alignTo(rewriter, op.getLoc(), updates, loops),
        transpose, indices->loops.size());
  }
  return {};
}

/// E1: contraction(one_hot(i), to_dense(p, v)) -> gather_rows(p, v, i)
std::optional<ProductOperand>
Propagation::createGather(linalg::LinalgOp op, ToDenseOp toDense,
                          ArrayRef<ProductOperand> xs, unsigned summed,
                          unsigned kept, bool transpose) {
  std::optional<ProductOperand> indices = findIndices(xs, summed);
  if (!indices || getElement(toDense) != getElement(op->getResult(0)))
    return std::nullopt;
  return createGather(op.getLoc(), toDense, *indices, kept, transpose);
}

ProductOperand Propagation::createGather(Location loc, ToDenseOp toDense,
                                         const ProductOperand &indices,
                                         unsigned feature, bool transpose) {
  PatternType pattern = toDense.getPattern().getType();
  SmallVector<int64_t> shape(
      cast<RankedTensorType>(indices.value.getType()).getShape());
  int64_t featureDim = shape.size();
  shape.push_back(transpose ? pattern.getRows() : pattern.getCols());
  ++counts.gathered;
  ProductOperand rows{
      GatherRowsOp::create(rewriter, loc,
                           RankedTensorType::get(shape, getElement(toDense)),
                           toDense.getPattern(), toDense.getValues(),
                           indices.value, transpose, featureDim),
      indices.loops};
  rows.loops.push_back(feature);
  return rows;
}

namespace {
/// An element of a matrix that the body of an operation reads: `row` is
/// computed at each point of all loops but `feature`.
struct LookUp {
  tensor::ExtractOp extract;
  unsigned rowDim;
  unsigned feature;
  /// The operations of the body that compute the row, in their order.
  SmallVector<Operation *> ops;
};
} // namespace

/// What of the body of `op` computes `values`: `visit` is called with each
/// argument and operation, once, and stops the search if it returns false.
/// Nothing is looked for in front of `stop`.
static bool walkBody(linalg::GenericOp op, ArrayRef<Value> values,
                     Operation *stop, function_ref<bool(Value)> visit) {
  SetVector<Value> found;
  auto add = [&](ValueRange more) {
    for (Value value : more)
      if (value.getParentBlock() == op.getBody())
        found.insert(value);
  };
  add(values);
  for (size_t next = 0; next != found.size(); ++next) {
    Operation *inner = found[next].getDefiningOp();
    if (inner && inner == stop)
      continue;
    if (!visit(found[next]))
      return false;
    if (inner)
      add(inner->getOperands());
  }
  return true;
}

/// The operations of the body of `op` that `row` is computed by, if it is the
/// same along loop `feature`.
static std::optional<SmallVector<Operation *>>
getRowOps(linalg::GenericOp op, Value row, unsigned feature) {
  DenseSet<Operation *> needed;
  bool isRow = walkBody(op, row, /*stop=*/nullptr, [&](Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return argument.getArgNumber() < op.getNumDpsInputs() &&
             !op.getIndexingMapsArray()[argument.getArgNumber()]
                  .isFunctionOfDim(feature);
    Operation *inner = value.getDefiningOp();
    auto index = dyn_cast<linalg::IndexOp>(inner);
    needed.insert(inner);
    return !inner->getNumRegions() && isPure(inner) &&
           !(index && index.getDim() == feature);
  });
  if (!isRow)
    return std::nullopt;
  SmallVector<Operation *> ops;
  for (Operation &inner : *op.getBody())
    if (needed.contains(&inner))
      ops.push_back(&inner);
  return ops;
}

/// A look-up of whole rows, or columns, of a matrix of stored blocks in the
/// body of `op`.
static std::optional<LookUp> findLookUp(linalg::GenericOp op) {
  for (auto extract : op.getBody()->getOps<tensor::ExtractOp>()) {
    auto toDense = extract.getTensor().getDefiningOp<ToDenseOp>();
    if (!toDense || toDense.getBackground())
      continue;
    for (unsigned rowDim : {0, 1}) {
      auto index =
          extract.getIndices()[1 - rowDim].getDefiningOp<linalg::IndexOp>();
      if (!index || op.getStaticLoopRanges()[index.getDim()] !=
                        toDense.getDense().getType().getDimSize(1 - rowDim))
        continue;
      unsigned feature = index.getDim();
      if (auto ops = getRowOps(op, extract.getIndices()[rowDim], feature))
        return LookUp{extract, rowDim, feature, *ops};
    }
  }
  return std::nullopt;
}

/// The rows that `lookUp` of `op` looks up, with their loops.
static ProductOperand createIndices(RewriterBase &rewriter,
                                    linalg::GenericOp op,
                                    const LookUp &lookUp) {
  Value row = tensor::ExtractOp(lookUp.extract).getIndices()[lookUp.rowDim];
  // A cast to an index is left to the look-up.
  auto cast = row.getDefiningOp<arith::IndexCastOp>();
  if (cast && isIndexType(cast.getIn().getType()))
    row = cast.getIn();
  auto all = llvm::to_vector(llvm::seq<unsigned>(op.getNumLoops()));
  SmallVector<unsigned> loops = getOthers(all, lookUp.feature);
  SmallVector<AffineExpr> tokens;
  for (unsigned loop : loops)
    tokens.push_back(rewriter.getAffineDimExpr(loop));
  auto map = AffineMap::get(op.getNumLoops(), 0, tokens, op.getContext());
  auto argument = dyn_cast<BlockArgument>(row);
  if (argument && argument.getOwner() == op.getBody() &&
      op.getIndexingMapsArray()[argument.getArgNumber()] == map)
    return {op.getDpsInputs()[argument.getArgNumber()], loops};

  // The loops without that of the features.
  SmallVector<AffineExpr> moved(op.getNumLoops(),
                                rewriter.getAffineConstantExpr(0));
  SmallVector<int64_t> shape;
  for (auto [number, loop] : llvm::enumerate(loops)) {
    moved[loop] = rewriter.getAffineDimExpr(number);
    shape.push_back(op.getStaticLoopRanges()[loop]);
  }
  SmallVector<Value> inputs;
  SmallVector<BlockArgument> arguments;
  SmallVector<AffineMap> maps;
  for (OpOperand *input : op.getDpsInputOperands()) {
    AffineMap read = op.getMatchingIndexingMap(input);
    if (read.isFunctionOfDim(lookUp.feature))
      continue;
    inputs.push_back(input->get());
    arguments.push_back(op.getMatchingBlockArgument(input));
    maps.push_back(read.replaceDimsAndSymbols(moved, {}, loops.size(), 0));
  }
  maps.push_back(rewriter.getMultiDimIdentityMap(loops.size()));
  Type type =
      isIndexType(row.getType()) ? row.getType() : Type(rewriter.getI64Type());
  Value empty = tensor::EmptyOp::create(rewriter, op.getLoc(), shape, type);
  auto indices = linalg::GenericOp::create(
      rewriter, op.getLoc(), empty.getType(), inputs, empty, maps,
      SmallVector<utils::IteratorType>(loops.size(),
                                       utils::IteratorType::parallel),
      [&](OpBuilder &b, Location loc, ValueRange args) {
        IRMapping mapping;
        mapping.map(arguments, args.drop_back());
        for (Operation *inner : lookUp.ops) {
          Operation *copy = b.clone(*inner, mapping);
          if (auto index = dyn_cast<linalg::IndexOp>(copy))
            index.setDim(llvm::find(loops, index.getDim()) - loops.begin());
        }
        Value result = mapping.lookupOrDefault(row);
        if (result.getType() != type)
          result = arith::IndexCastOp::create(b, loc, type, result);
        linalg::YieldOp::create(b, loc, result);
      });
  return {indices.getResult(0), loops};
}

/// `op` with what it looks up read from `rows` instead, its last input, and
/// without what it needed for the look-up alone.
static linalg::GenericOp readRows(RewriterBase &rewriter, linalg::GenericOp op,
                                  tensor::ExtractOp extract,
                                  const ProductOperand &rows) {
  DenseSet<Value> needed;
  walkBody(op, llvm::to_vector(op.getBody()->getTerminator()->getOperands()),
           extract, [&](Value value) {
             needed.insert(value);
             return true;
           });
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  SmallVector<Value> arguments;
  for (OpOperand *input : op.getDpsInputOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(input);
    if (!needed.contains(argument))
      continue;
    inputs.push_back(input->get());
    maps.push_back(op.getMatchingIndexingMap(input));
    arguments.push_back(argument);
  }
  SmallVector<AffineExpr> read;
  for (unsigned loop : rows.loops)
    read.push_back(rewriter.getAffineDimExpr(loop));
  inputs.push_back(rows.value);
  maps.push_back(AffineMap::get(op.getNumLoops(), 0, read, op.getContext()));
  arguments.push_back(extract);
  for (OpOperand &init : op.getDpsInitsMutable())
    maps.push_back(op.getMatchingIndexingMap(&init));
  llvm::append_range(arguments, op.getRegionOutputArgs());
  return linalg::GenericOp::create(
      rewriter, op.getLoc(), op->getResultTypes(), inputs, op.getDpsInits(),
      maps, op.getIteratorTypesArray(),
      [&](OpBuilder &b, Location, ValueRange args) {
        IRMapping mapping;
        mapping.map(arguments, args);
        for (Operation &inner : *op.getBody())
          if (inner.hasTrait<OpTrait::IsTerminator>() ||
              (&inner != extract &&
               llvm::any_of(inner.getResults(),
                            [&](Value v) { return needed.contains(v); })))
            b.clone(inner, mapping);
      });
}

/// E3: f(to_dense(p, v)[i, :], x) -> f(gather_rows(p, v, i), x)
bool Propagation::pushLookUp(linalg::LinalgOp linalgOp) {
  auto op = dyn_cast<linalg::GenericOp>(linalgOp.getOperation());
  if (!op || op.getNumReductionLoops() || op.hasDynamicShape())
    return false;
  std::optional<LookUp> lookUp = findLookUp(op);
  if (!lookUp)
    return false;
  rewriter.setInsertionPoint(op);
  auto toDense = lookUp->extract.getTensor().getDefiningOp<ToDenseOp>();
  ProductOperand rows = createGather(
      op.getLoc(), toDense, createIndices(rewriter, op, *lookUp),
      lookUp->feature, toDense.getTranspose() != (lookUp->rowDim == 1));
  rewriter.replaceOp(op, readRows(rewriter, op, lookUp->extract, rows));
  return true;
}

/// E4: sample(p, scatter_add(i, u)) -> scatter_rows(p, i, u)
Value Propagation::createScatter(ScatterAddOp op, Value pattern,
                                 bool transpose) {
  products[op] = pattern;
  ++counts.scattered;
  return ScatterRowsOp::create(
      rewriter, op.getLoc(), getValuesType(pattern, op), pattern,
      op.getIndices(), op.getUpdates(), transpose, op.getFeatureDim());
}
