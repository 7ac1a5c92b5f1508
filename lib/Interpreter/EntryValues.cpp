// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an entry of a tensor is in numbers.

#include "bsr/Interpreter/EntryValues.h"
#include "bsr/Interpreter/Rounding.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

/// The number that a scalar from outside of a body is.
static std::optional<Number> getScalar(Value scalar) {
  Operation *op = scalar.getDefiningOp();
  return op ? getConstantNumber(op) : std::nullopt;
}

namespace {
/// Bodies that take nothing but constants from outside.
struct Constants : Surroundings {
  explicit Constants(bool isRounded = false) : isRounded(isRounded) {}

  std::optional<Number> findNumber(Value value) const override {
    return getScalar(value);
  }
  ScalarFunction getFunction(Operation *op) override {
    ScalarFunction function = getScalarFunction(op);
    return isRounded ? roundResult(op, std::move(function)) : function;
  }

  bool isRounded;
};
} // namespace

/// True if `op` reads its operands where its loops are.
static bool readsAtLoops(linalg::GenericOp op) {
  return llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) {
    return llvm::all_of(map.getResults(),
                        llvm::IsaPred<AffineDimExpr, AffineConstantExpr>);
  });
}

bool bsr::isComputable(linalg::GenericOp op) {
  Constants constants;
  return readsAtLoops(op) && !Body().prepare(*op.getBody(), constants);
}

/// The body of `op`, or null if it is not computed here.
Body *EntryValues::getBody(linalg::GenericOp op) {
  auto [known, isNew] = bodies.try_emplace(op);
  if (isNew && readsAtLoops(op)) {
    Constants constants(isRounded);
    auto body = std::make_unique<Body>();
    if (!body->prepare(*op.getBody(), constants))
      known->second = std::move(body);
  }
  return known->second.get();
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

static bool isReal(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value.getType()));
}

/// Converts an entry of `tensor` to the callers' form, and back.
static std::optional<double> toDouble(Value tensor,
                                      std::optional<Number> number) {
  if (!number)
    return std::nullopt;
  return isReal(tensor) ? number->real : double(number->integer);
}

static std::optional<Number> toNumber(Value tensor,
                                      std::optional<double> number) {
  if (!number)
    return std::nullopt;
  return isReal(tensor) ? fromReal(*number) : fromInteger(int64_t(*number));
}

std::optional<Number> EntryValues::getLeaf(Value tensor, ArrayRef<int64_t> at) {
  return toNumber(tensor, leaf(tensor, at));
}

std::optional<double> EntryValues::get(Value tensor, ArrayRef<int64_t> at) {
  std::optional<Number> result = find(tensor, at);
  if (!isKept)
    known.clear();
  return toDouble(tensor, result);
}

std::optional<Number> EntryValues::find(Value tensor, ArrayRef<int64_t> at) {
  if (auto number = given.find(tensor); number != given.end())
    return toNumber(tensor, number->second);
  // What is read once is found once.
  if (!isKept && tensor.hasOneUse())
    return compute(tensor, at);
  std::pair<void *, std::vector<int64_t>> key{tensor.getAsOpaquePointer(),
                                              at.vec()};
  auto found = known.find(key);
  if (found != known.end())
    return found->second;
  std::optional<Number> result = compute(tensor, at);
  known.emplace(std::move(key), result);
  return result;
}

std::optional<Number> EntryValues::evaluate(linalg::GenericOp op,
                                            unsigned result,
                                            ArrayRef<int64_t> loops,
                                            std::optional<Number> accumulator) {
  Body &body = *getBody(op);
  for (auto [operand, argument, map] :
       llvm::zip_equal(op->getOpOperands(), op.getBody()->getArguments(),
                       op.getIndexingMapsArray())) {
    if (argument.use_empty())
      continue;
    std::optional<Number> value;
    if (accumulator && op.isDpsInit(&operand) &&
        op.getTiedOpResult(&operand).getResultNumber() == result)
      value = accumulator;
    else if (!isa<RankedTensorType>(operand.get().getType()))
      value = getScalar(operand.get());
    else
      value = find(operand.get(), map.compose(loops));
    if (!value)
      return std::nullopt;
    body.getArguments()[argument.getArgNumber()] = *value;
  }
  body.run(loops.data());
  return body.getYielded(result);
}

std::optional<Number> EntryValues::compute(linalg::GenericOp op,
                                           unsigned result,
                                           ArrayRef<int64_t> at) {
  AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs() + result];
  SmallVector<int64_t> loops(op.getNumLoops(), 0);
  for (auto [expr, position] : llvm::zip_equal(map.getResults(), at))
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      loops[dim.getPosition()] = position;
  if (op.getNumReductionLoops() == 0)
    return evaluate(op, result, loops, std::nullopt);
  std::optional<SmallVector<int64_t>> positions = reduced(op);
  std::optional<Number> sum = find(op.getDpsInits()[result], at);
  SmallVector<unsigned> dims;
  op.getReductionDims(dims);
  for (int64_t position : *positions) {
    for (unsigned dim : dims)
      loops[dim] = position;
    if (sum)
      sum = evaluate(op, result, loops, sum);
  }
  return sum;
}

std::optional<Number> EntryValues::compute(Value tensor, ArrayRef<int64_t> at) {
  Operation *op = tensor.getDefiningOp();
  if (!op || leaves.contains(tensor))
    return getLeaf(tensor, at);
  if (std::optional<Number> number = getConstantNumber(op))
    return number;
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    bool isReduction = generic.getNumReductionLoops() != 0;
    if ((!isReduction || (reduced && reduced(generic))) && getBody(generic))
      return compute(generic, cast<OpResult>(tensor).getResultNumber(), at);
    return getLeaf(tensor, at);
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!elements || !elements.getElementType().isIntOrIndexOrFloat())
      return getLeaf(tensor, at);
    if (elements.isSplat())
      return getNumber(elements.getSplatValue<Attribute>());
    SmallVector<uint64_t> place(at.begin(), at.end());
    return getNumber(elements.getValues<Attribute>()[place]);
  }
  if (auto fill = dyn_cast<linalg::FillOp>(op)) {
    std::optional<Number> number = getScalar(fill.getInputs()[0]);
    return number ? number : getLeaf(tensor, at);
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    if (!slice.hasUnitStride() ||
        slice.getSourceType().getRank() != slice.getType().getRank() ||
        llvm::any_of(slice.getStaticOffsets(), ShapedType::isDynamic))
      return getLeaf(tensor, at);
    SmallVector<int64_t> source(at);
    for (auto [position, offset] :
         llvm::zip_equal(source, slice.getStaticOffsets()))
      position += offset;
    return find(slice.getSource(), source);
  }
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    ArrayRef<int64_t> shape = expand.getResultType().getShape();
    SmallVector<int64_t> source;
    for (ArrayRef<int64_t> group : expand.getReassociationIndices()) {
      int64_t position = 0;
      for (int64_t dim : group)
        position = position * shape[dim] + at[dim];
      source.push_back(position);
    }
    return find(expand.getSrc(), source);
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
    SmallVector<int64_t> source(shape.size(), 0);
    for (auto [position, group] :
         llvm::zip(at, collapse.getReassociationIndices())) {
      int64_t rest = position;
      for (int64_t dim : llvm::reverse(group)) {
        source[dim] = rest % shape[dim];
        rest /= shape[dim];
      }
    }
    return find(collapse.getSrc(), source);
  }
  return getLeaf(tensor, at);
}
