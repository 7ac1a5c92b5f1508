// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules that pull bsr.sample up through what it samples.

#include "Propagation.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

/// The samples that can be pulled above `op`, by pattern and transpose.
using Samples =
    llvm::MapVector<std::pair<Value, unsigned>, SmallVector<SampleOp>>;

/// True if `pattern` can be used in front of `op`: it enters the region from
/// outside, or is a constant (constants stand at the start of the function).
static bool isAvailable(Value pattern, Operation *op) {
  if (pattern.getDefiningOp<ConstantPatternOp>())
    return true;
  return isa<BlockArgument>(pattern) &&
         pattern.getParentRegion()->isAncestor(op->getParentRegion());
}

static Samples getSamples(Value value, Operation *op) {
  Samples samples;
  for (Operation *user : value.getUsers())
    if (auto sample = dyn_cast<SampleOp>(user);
        sample && sample.getDense() == value &&
        isAvailable(sample.getPattern(), op))
      samples[{sample.getPattern(), sample.getTranspose()}].push_back(sample);
  return samples;
}

void Propagation::replaceSamples(ArrayRef<SampleOp> samples, Value values) {
  for (SampleOp sample : samples)
    rewriter.replaceOp(sample, values);
}

bool Propagation::pull(Operation *op) {
  if (llvm::none_of(op->getUsers(),
                    [](Operation *user) { return isa<SampleOp>(user); }) ||
      !isRewritten(op))
    return false;
  rewriter.setInsertionPoint(op);
  bool changed = false;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    changed = pullElementWise(linalgOp) || pullProduct(linalgOp);
  } else if (op->getNumResults() == 1) {
    Value dense = op->getResult(0);
    Value scalar = uniforms.lookup(dense);
    auto toDense = dyn_cast<ToDenseOp>(op);
    for (auto &[key, samples] : getSamples(dense, op)) {
      auto [pattern, transpose] = key;
      auto type = cast<RankedTensorType>(getValuesType(pattern, dense));
      if (toDense && toDense.getPattern() == pattern &&
          toDense.getTranspose() == static_cast<bool>(transpose)) {
        // S1: sample(p, to_dense(p, v)) -> v
        replaceSamples(samples, toDense.getValues());
        ++counts.met;
      } else if (scalar) {
        // S4: sample(p, splat x) -> splat x
        rewriter.setInsertionPointAfterValue(scalar);
        Value element = scalar;
        if (isa<RankedTensorType>(scalar.getType()))
          element = tensor::ExtractOp::create(rewriter, op->getLoc(), scalar);
        replaceSamples(samples, tensor::SplatOp::create(rewriter, op->getLoc(),
                                                        element, type));
      } else if (isa<tensor::EmptyOp>(op)) {
        replaceSamples(samples, tensor::EmptyOp::create(rewriter, op->getLoc(),
                                                        type.getShape(),
                                                        type.getElementType()));
      } else if (auto select = dyn_cast<arith::SelectOp>(op)) {
        // S6: sample(p, c ? a : b) -> c ? sample(p, a) : sample(p, b)
        SmallVector<Value> operands;
        for (Value operand : select->getOperands())
          operands.push_back(isa<RankedTensorType>(operand.getType())
                                 ? createSample(rewriter, op->getLoc(), pattern,
                                                operand, transpose)
                                 : operand);
        replaceSamples(samples, arith::SelectOp::create(
                                    rewriter, op->getLoc(), operands[0],
                                    operands[1], operands[2]));
      } else if (auto scatter = dyn_cast<ScatterAddOp>(op)) {
        replaceSamples(samples, createScatter(scatter, pattern, transpose));
      } else {
        continue;
      }
      changed = true;
    }
  }
  if (changed && isOpTriviallyDead(op))
    rewriter.eraseOp(op);
  return changed;
}

/// S2, S4, S5, V1:
/// sample(p, f(a, b^T, s, rows, cols)) -> f(sample(p, a), sample^T(p, b), s,
///     sample_vec(p, rows, 0), sample_vec(p, cols, 1))
///
/// Loops (i, j) are the results' dimensions or, for some, swapped: each pattern
/// and orientation seen from the loops gives one operation on values.
bool Propagation::pullElementWise(linalg::LinalgOp op) {
  if (op.getNumLoops() != 2 || !isElementWise(op))
    return false;
  AffineMap identity = rewriter.getMultiDimIdentityMap(2);
  for (OpOperand *input : op.getDpsInputOperands())
    if (!getUniform(input->get()) &&
        getAccess(op, *input, identity) == Access::Other)
      return false;

  llvm::MapVector<std::pair<Value, unsigned>,
                  SmallVector<std::pair<unsigned, SmallVector<SampleOp>>>>
      groups;
  for (OpResult result : op->getResults()) {
    bool swapped = !op.getIndexingMapMatchingResult(result).isIdentity();
    for (auto &[key, samples] : getSamples(result, op))
      groups[{key.first, key.second != swapped}].push_back(
          {result.getResultNumber(), samples});
  }
  for (auto &[key, users] : groups) {
    auto [pattern, transpose] = key;
    SmallVector<Value> inputs;
    for (OpOperand *input : op.getDpsInputOperands()) {
      Access access = getAccess(op, *input, identity);
      bool swapped = access == Access::Transposed;
      Value value;
      if (swapped || access == Access::Same || getUniform(input->get()))
        value = getStored(input->get(), pattern, transpose != swapped);
      inputs.push_back(value ? value
                             : sampleOperand(op, *input, pattern, transpose));
    }
    SmallVector<Value> values =
        rebuildElementWise(rewriter, op, inputs,
                           getValuesType(pattern, op->getResult(0)).getShape());
    ++counts.elementWisePulled;
    for (auto &[result, samples] : users)
      replaceSamples(samples, values[result]);
  }
  return !groups.empty();
}

/// The operands of a product with row and column loops `row` and `col`, without
/// as many transposes in front of them as leaves their dimensions in the same
/// order; as they are, if no choice does.
static std::pair<ProductOperand, ProductOperand>
alignProduct(ArrayRef<ProductOperand> as, ArrayRef<ProductOperand> bs,
             unsigned row, unsigned col) {
  for (const ProductOperand &a : llvm::reverse(as)) {
    SmallVector<unsigned> loops(a.loops);
    llvm::replace(loops, row, col);
    for (const ProductOperand &b : llvm::reverse(bs))
      if (b.loops == loops)
        return {a, b};
  }
  return {as.front(), bs.front()};
}

/// The stored blocks of `op`, the product of one of `as` and one of `bs`. The
/// cheaper one is transposed, if they are not aligned.
static Value createSDDMM(RewriterBase &rewriter, linalg::LinalgOp op,
                         Value pattern, ArrayRef<ProductOperand> as,
                         ArrayRef<ProductOperand> bs, unsigned row,
                         unsigned col) {
  auto [a, b] = alignProduct(as, bs, row, col);
  SmallVector<unsigned> loops = a.loops;
  auto aType = cast<RankedTensorType>(a.value.getType());
  auto bType = cast<RankedTensorType>(b.value.getType());
  if (bType.getNumElements() > aType.getNumElements()) {
    loops = b.loops;
    llvm::replace(loops, col, row);
  }
  Value aligned = alignTo(rewriter, op.getLoc(), a, loops);
  int64_t featureDim = llvm::find(loops, row) - loops.begin();
  llvm::replace(loops, row, col);
  return SDDMMOp::create(
      rewriter, op.getLoc(), getValuesType(pattern, op->getResult(0)), pattern,
      aligned, alignTo(rewriter, op.getLoc(), b, loops), featureDim);
}

/// S3, S3b: sample(p, a^T b + c) -> sddmm(p, a, b) + sample(p, c)
bool Propagation::pullProduct(linalg::LinalgOp op) {
  if (!isFloatContraction(op))
    return false;
  auto dims = linalg::inferContractionDims(op);
  if (failed(dims) || !dims->batch.empty() || dims->m.size() != 1 ||
      dims->n.size() != 1)
    return false;

  OpOperand *init = op.getDpsInitOperand(0);
  AffineMap map = op.getMatchingIndexingMap(init);
  bool changed = false;
  for (auto &[key, samples] : getSamples(op->getResult(0), op)) {
    auto [pattern, transpose] = key;
    unsigned row = map.getDimPosition(transpose),
             col = map.getDimPosition(!transpose);
    OpOperand *lhs = op.getDpsInputOperand(0), *rhs = op.getDpsInputOperand(1);
    if (!op.getMatchingIndexingMap(lhs).isFunctionOfDim(row))
      std::swap(lhs, rhs);
    SmallVector<ProductOperand> as = getProductOperands(op, lhs),
                                bs = getProductOperands(op, rhs);
    Value values = createScatter(op, pattern, as, bs, row, col);
    ++(values ? counts.scattered : counts.sddmm);
    if (!values)
      values = createSDDMM(rewriter, op, pattern, as, bs, row, col);
    if (!isZero(init->get()))
      values = addTo(
          rewriter, op.getLoc(), values,
          createSample(rewriter, op.getLoc(), pattern, init->get(), transpose));
    replaceSamples(samples, values);
    products[op] = pattern;
    changed = true;
  }
  return changed;
}
