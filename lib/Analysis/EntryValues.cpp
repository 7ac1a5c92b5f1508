// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an entry of a tensor is in numbers.

#include "bsr/Analysis/EntryValues.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

/// The number that a scalar attribute is.
static std::optional<double> getNumber(Attribute attr) {
  if (auto number = dyn_cast<FloatAttr>(attr))
    return number.getValueAsDouble();
  if (auto number = dyn_cast<IntegerAttr>(attr)) {
    if (number.getType().isInteger(1))
      return number.getValue().isZero() ? 0 : 1;
    return static_cast<double>(number.getValue().getSExtValue());
  }
  return std::nullopt;
}

static bool compare(arith::CmpFPredicate kind, double x, double y) {
  bool isUnordered = std::isnan(x) || std::isnan(y);
  switch (kind) {
  case arith::CmpFPredicate::AlwaysFalse:
    return false;
  case arith::CmpFPredicate::AlwaysTrue:
    return true;
  case arith::CmpFPredicate::ORD:
    return !isUnordered;
  case arith::CmpFPredicate::UNO:
    return isUnordered;
  case arith::CmpFPredicate::OEQ:
    return x == y;
  case arith::CmpFPredicate::OGT:
    return x > y;
  case arith::CmpFPredicate::OGE:
    return x >= y;
  case arith::CmpFPredicate::OLT:
    return x < y;
  case arith::CmpFPredicate::OLE:
    return x <= y;
  case arith::CmpFPredicate::ONE:
    return !isUnordered && x != y;
  case arith::CmpFPredicate::UEQ:
    return isUnordered || x == y;
  case arith::CmpFPredicate::UGT:
    return isUnordered || x > y;
  case arith::CmpFPredicate::UGE:
    return isUnordered || x >= y;
  case arith::CmpFPredicate::ULT:
    return isUnordered || x < y;
  case arith::CmpFPredicate::ULE:
    return isUnordered || x <= y;
  case arith::CmpFPredicate::UNE:
    return isUnordered || x != y;
  }
  llvm_unreachable("no predicate");
}

/// What `op` makes of numbers; nothing if it is not understood. Integers are
/// numbers that no operation here lets overflow.
static std::optional<double> evaluate(Operation *op, ArrayRef<double> in) {
  auto integer = [&](size_t number) {
    return static_cast<int64_t>(in[number]);
  };
  auto largest = [](double x, double y) {
    return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
  };
  using Result = std::optional<double>;
  return TypeSwitch<Operation *, Result>(op)
      .Case([&](arith::ConstantOp op) { return getNumber(op.getValue()); })
      .Case([&](arith::AddFOp) { return in[0] + in[1]; })
      .Case([&](arith::SubFOp) { return in[0] - in[1]; })
      .Case([&](arith::MulFOp) { return in[0] * in[1]; })
      .Case([&](arith::DivFOp) { return in[0] / in[1]; })
      .Case([&](arith::NegFOp) { return -in[0]; })
      .Case([&](arith::MaximumFOp) { return largest(in[0], in[1]); })
      .Case([&](arith::MinimumFOp) { return -largest(-in[0], -in[1]); })
      .Case([&](arith::MaxNumFOp) { return std::fmax(in[0], in[1]); })
      .Case([&](arith::MinNumFOp) { return std::fmin(in[0], in[1]); })
      .Case([&](arith::CmpFOp op) {
        return compare(op.getPredicate(), in[0], in[1]) ? 1.0 : 0.0;
      })
      .Case([&](arith::SelectOp) { return in[0] != 0 ? in[1] : in[2]; })
      .Case<arith::ExtFOp, arith::TruncFOp, arith::ExtSIOp, arith::IndexCastOp,
            BarrierOp>([&](auto) { return in[0]; })
      .Case([&](arith::SIToFPOp op) {
        return op.getIn().getType().isInteger(1) ? -in[0] : in[0];
      })
      .Case([&](arith::UIToFPOp) -> Result {
        return in[0] < 0 ? Result() : in[0];
      })
      .Case<arith::ExtUIOp, arith::IndexCastUIOp>(
          [&](auto) -> Result { return in[0] < 0 ? Result() : in[0]; })
      .Case([&](arith::AddIOp op) -> Result {
        return op.getType().isInteger(1) ? Result() : in[0] + in[1];
      })
      .Case([&](arith::SubIOp op) -> Result {
        return op.getType().isInteger(1) ? Result() : in[0] - in[1];
      })
      .Case([&](arith::MulIOp op) -> Result {
        return op.getType().isInteger(1) ? Result() : in[0] * in[1];
      })
      .Case([&](arith::DivSIOp) -> Result {
        return integer(1) == 0 ? Result() : integer(0) / integer(1);
      })
      .Case([&](arith::RemSIOp) -> Result {
        return integer(1) == 0 ? Result() : integer(0) % integer(1);
      })
      .Case([&](arith::MaxSIOp) { return std::max(in[0], in[1]); })
      .Case([&](arith::MinSIOp) { return std::min(in[0], in[1]); })
      .Case([&](arith::AndIOp op) -> Result {
        return static_cast<double>(integer(0) & integer(1));
      })
      .Case([&](arith::OrIOp) {
        return static_cast<double>(integer(0) | integer(1));
      })
      .Case([&](arith::XOrIOp op) -> Result {
        return static_cast<double>(integer(0) ^ integer(1));
      })
      .Case([&](arith::CmpIOp op) -> Result {
        auto predicate = op.getPredicate();
        bool isSmall = !op.getLhs().getType().isInteger(1);
        switch (predicate) {
        case arith::CmpIPredicate::eq:
          return in[0] == in[1];
        case arith::CmpIPredicate::ne:
          return in[0] != in[1];
        default:
          break;
        }
        // The order of what is below zero depends on the width.
        bool isSigned = predicate == arith::CmpIPredicate::slt ||
                        predicate == arith::CmpIPredicate::sle ||
                        predicate == arith::CmpIPredicate::sgt ||
                        predicate == arith::CmpIPredicate::sge;
        if (!isSmall || (!isSigned && (in[0] < 0 || in[1] < 0)))
          return std::nullopt;
        switch (predicate) {
        case arith::CmpIPredicate::slt:
        case arith::CmpIPredicate::ult:
          return in[0] < in[1];
        case arith::CmpIPredicate::sle:
        case arith::CmpIPredicate::ule:
          return in[0] <= in[1];
        case arith::CmpIPredicate::sgt:
        case arith::CmpIPredicate::ugt:
          return in[0] > in[1];
        default:
          return in[0] >= in[1];
        }
      })
      .Case([&](math::ExpOp) { return std::exp(in[0]); })
      .Case([&](math::Exp2Op) { return std::exp2(in[0]); })
      .Case([&](math::LogOp) { return std::log(in[0]); })
      .Case([&](math::Log2Op) { return std::log2(in[0]); })
      .Case([&](math::Log1pOp) { return std::log1p(in[0]); })
      .Case([&](math::TanhOp) { return std::tanh(in[0]); })
      .Case([&](math::SqrtOp) { return std::sqrt(in[0]); })
      .Case([&](math::RsqrtOp) { return 1 / std::sqrt(in[0]); })
      .Case([&](math::ErfOp) { return std::erf(in[0]); })
      .Case([&](math::AbsFOp) { return std::fabs(in[0]); })
      .Case([&](math::PowFOp) { return std::pow(in[0], in[1]); })
      .Case([&](math::FPowIOp) { return std::pow(in[0], in[1]); })
      .Default([](Operation *) { return std::nullopt; });
}

/// The number that a scalar from outside of a body is.
static std::optional<double> getScalar(Value scalar) {
  auto constant = scalar.getDefiningOp<arith::ConstantOp>();
  return constant ? getNumber(constant.getValue()) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

std::optional<double> EntryValues::get(Value tensor, ArrayRef<int64_t> at) {
  std::optional<double> result = find(tensor, at);
  if (!isKept)
    known.clear();
  return result;
}

std::optional<double> EntryValues::find(Value tensor, ArrayRef<int64_t> at) {
  if (auto number = given.find(tensor); number != given.end())
    return number->second;
  // What is read once is found once.
  if (!isKept && tensor.hasOneUse())
    return compute(tensor, at);
  std::pair<void *, std::vector<int64_t>> key{tensor.getAsOpaquePointer(),
                                              at.vec()};
  auto found = known.find(key);
  if (found != known.end())
    return found->second;
  std::optional<double> result = compute(tensor, at);
  known.emplace(std::move(key), result);
  return result;
}

std::optional<double> EntryValues::evaluate(linalg::GenericOp op,
                                            unsigned result,
                                            ArrayRef<int64_t> loops,
                                            std::optional<double> accumulator) {
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  DenseMap<Value, double> numbers;
  auto getNumber = [&](Value value) -> std::optional<double> {
    auto found = numbers.find(value);
    if (found != numbers.end())
      return found->second;
    return value.getParentBlock() == op.getBody() ? std::nullopt
                                                  : getScalar(value);
  };
  for (auto [number, argument] :
       llvm::enumerate(op.getBody()->getArguments())) {
    if (argument.use_empty())
      continue;
    std::optional<double> value;
    if (accumulator &&
        static_cast<int64_t>(number) == op.getNumDpsInputs() + result)
      value = accumulator;
    else if (!isa<RankedTensorType>(op->getOperand(number).getType()))
      value = getScalar(op->getOperand(number));
    else
      value = find(op->getOperand(number), maps[number].compose(loops));
    if (!value)
      return std::nullopt;
    numbers[argument] = *value;
  }
  for (Operation &inner : op.getBody()->without_terminator()) {
    std::optional<double> value;
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      value = static_cast<double>(loops[index.getDim()]);
    } else {
      SmallVector<double> operands;
      for (Value operand : inner.getOperands()) {
        std::optional<double> number = getNumber(operand);
        if (!number)
          return std::nullopt;
        operands.push_back(*number);
      }
      value = ::evaluate(&inner, operands);
    }
    if (!value)
      return std::nullopt;
    numbers[inner.getResult(0)] = *value;
  }
  return getNumber(op.getBody()->getTerminator()->getOperand(result));
}

std::optional<double> EntryValues::compute(linalg::GenericOp op,
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
  std::optional<double> sum = find(op.getDpsInits()[result], at);
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

std::optional<double> EntryValues::compute(Value tensor, ArrayRef<int64_t> at) {
  Operation *op = tensor.getDefiningOp();
  if (!op || leaves.contains(tensor))
    return leaf(tensor, at);
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    bool isReduction = generic.getNumReductionLoops() != 0;
    if (isComputable(generic) &&
        (!isReduction || (reduced && reduced(generic))))
      return compute(generic, cast<OpResult>(tensor).getResultNumber(), at);
    return leaf(tensor, at);
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!elements)
      return leaf(tensor, at);
    if (elements.isSplat())
      return getNumber(elements.getSplatValue<Attribute>());
    SmallVector<uint64_t> place(at.begin(), at.end());
    return getNumber(elements.getValues<Attribute>()[place]);
  }
  if (auto fill = dyn_cast<linalg::FillOp>(op)) {
    std::optional<double> number = getScalar(fill.getInputs()[0]);
    return number ? number : leaf(tensor, at);
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    if (!slice.hasUnitStride() ||
        slice.getSourceType().getRank() != slice.getType().getRank() ||
        llvm::any_of(slice.getStaticOffsets(), ShapedType::isDynamic))
      return leaf(tensor, at);
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
  return leaf(tensor, at);
}

bool bsr::isComputable(linalg::GenericOp op) {
  for (AffineMap map : op.getIndexingMapsArray())
    for (AffineExpr expr : map.getResults())
      if (!isa<AffineDimExpr, AffineConstantExpr>(expr))
        return false;
  for (Operation &inner : op.getBody()->without_terminator()) {
    if (inner.getNumResults() != 1 || inner.getNumRegions() != 0 ||
        llvm::any_of(inner.getOperandTypes(), llvm::IsaPred<TensorType>))
      return false;
    bool isKnown =
        isa<linalg::IndexOp, BarrierOp>(inner) ||
        isa<arith::ArithDialect, math::MathDialect>(inner.getDialect());
    if (!isKnown)
      return false;
    for (Value operand : inner.getOperands())
      if (operand.getParentBlock() != op.getBody() && !getScalar(operand))
        return false;
  }
  return true;
}
