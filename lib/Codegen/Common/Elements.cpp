// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes elements of tensors where they are used.

#include "bsr/Codegen/Common/Evaluator.h"
#include "bsr/Codegen/Common/WindowOffsets.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;

bool Evaluator::Key::operator<(const Key &other) const {
  auto rank = [](const Index &i) {
    return std::make_tuple(i.base.getAsOpaquePointer(), i.offset, i.lanes);
  };
  if (tensor != other.tensor)
    return tensor.getAsOpaquePointer() < other.tensor.getAsOpaquePointer();
  if (width != other.width)
    return width < other.width;
  return std::lexicographical_compare(
      at.begin(), at.end(), other.at.begin(), other.at.end(),
      [&](const Index &x, const Index &y) { return rank(x) < rank(y); });
}

Evaluator::Key Evaluator::getKey(Value tensor, ArrayRef<Index> at) const {
  bool lanes = llvm::any_of(at, [](const Index &i) { return i.lanes; });
  return {tensor, SmallVector<Index>(at), lanes ? width : 1};
}

/// True if `tensor` is what a reduction or a sparse product makes.
static bool isSum(Value tensor) {
  Operation *op = tensor.getDefiningOp();
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  return generic ? generic.getNumReductionLoops() != 0
                 : isa_and_nonnull<SpMMOp>(op);
}

Value Evaluator::read(Value tensor, ArrayRef<Index> at) {
  Key key = getKey(tensor, at);
  auto found = memory.find(key);
  if (found != memory.end())
    return found->second;
  Value value = isSum(tensor) && !getBuffer(tensor)
                    ? readSum(cast<OpResult>(tensor), at)
                    : readUncached(tensor, at);
  memory[key] = value;
  return value;
}

/// True if the body of `op` has more than additions and multiplications.
static bool isExpensive(linalg::GenericOp op) {
  return llvm::any_of(*op.getBody(), [](Operation &inner) {
    return isa<arith::DivFOp>(inner) ||
           isa<math::MathDialect>(inner.getDialect());
  });
}

void Evaluator::readBefore(Operation *loop, Value tensor, ArrayRef<Index> at) {
  if (!isa<RankedTensorType>(tensor.getType()) || getBuffer(tensor) ||
      memory.count(getKey(tensor, at)))
    return;
  Operation *op = tensor.getDefiningOp();
  if (isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                      tensor::ExtractSliceOp>(op)) {
    if (std::optional<SmallVector<Index>> source = getSource(op, at))
      readBefore(loop, op->getOperand(0), *source);
    return;
  }
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || generic.getNumReductionLoops() != 0)
    return;
  auto isInside = [&](Index index) {
    return index.base &&
           loop->isAncestor(index.base.getParentRegion()->getParentOp());
  };
  if (isExpensive(generic) && llvm::none_of(at, isInside)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(loop);
    read(tensor, at);
    return;
  }
  unsigned result = cast<OpResult>(tensor).getResultNumber();
  readBefore(loop, generic, getLoops(generic, result, at));
}

void Evaluator::readBefore(Operation *loop, linalg::GenericOp op,
                           ArrayRef<Index> loops) {
  for (OpOperand *input : op.getDpsInputOperands())
    readBefore(loop, input->get(),
               applyMap(op.getMatchingIndexingMap(input), loops));
}

Value Evaluator::readScalar(Value scalar) {
  if (auto constant = scalar.getDefiningOp<arith::ConstantOp>())
    return b.clone(*constant)->getResult(0);
  return read(scalar.getDefiningOp<tensor::ExtractOp>().getTensor(), {});
}

std::optional<SmallVector<Index>> Evaluator::getSource(Operation *view,
                                                       ArrayRef<Index> at) {
  SmallVector<Index> source;
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(view)) {
    for (auto [index, offset] : llvm::zip_equal(at, slice.getMixedOffsets())) {
      // Of an offset that is a value, one entry is taken.
      if (auto value = dyn_cast<Value>(offset))
        source.push_back(Index::of(getBuffer(value)));
      else
        source.push_back(index.plus(*getConstantIntValue(offset)));
    }
    return source;
  }
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(view)) {
    for (ArrayRef<int64_t> group : expand.getReassociationIndices()) {
      Index linear = Index::constant(0);
      for (int64_t dim : group) {
        int64_t extent = expand.getResultType().getDimSize(dim);
        if (extent == 1)
          continue;
        std::optional<Index> next = linearize(linear, extent, at[dim]);
        if (!next)
          return std::nullopt;
        linear = *next;
      }
      source.push_back(linear);
    }
    return source;
  }
  auto collapse = cast<tensor::CollapseShapeOp>(view);
  ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
  source.assign(shape.size(), Index::constant(0));
  for (auto [index, group] :
       llvm::zip_equal(at, collapse.getReassociationIndices())) {
    Index rest = index;
    SmallVector<int64_t> dims = llvm::filter_to_vector(
        group, [&](int64_t dim) { return shape[dim] != 1; });
    for (int64_t dim : llvm::reverse(dims)) {
      if (dim == dims.front()) {
        source[dim] = rest;
        break;
      }
      if (rest.lanes && (shape[dim] % width || rest.align % width))
        return std::nullopt;
      std::tie(rest, source[dim]) = split(rest, shape[dim]);
    }
  }
  return source;
}

/// What windows that are read in a line have at `at`.
static Value readWindows(Evaluator &e, tensor::ConcatOp op,
                         ArrayRef<Index> at) {
  Windows windows = *Windows::get(op);
  return e.read(windows.line,
                {at[0], addOffset(e, windows.offsets, at[1], at[2])});
}

/// How far `to` is behind the first lane of `from`; nothing if that is unknown.
static std::optional<int64_t> getDistance(Index from, Index to) {
  return from.base == to.base ? std::optional(to.offset - from.offset)
                              : std::nullopt;
}

Value Evaluator::readSum(OpResult sum, ArrayRef<Index> at) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(sum.getType()).getShape();
  int64_t count = getKey(sum, at).width;
  for (const auto &[key, value] : memory) {
    if (key.tensor != sum)
      continue;
    // The lanes of `value` that are asked for, if they are among its own.
    int64_t first = 0;
    bool isThere = true;
    for (auto [from, to, extent] : llvm::zip_equal(key.at, at, shape)) {
      std::optional<int64_t> distance = getDistance(from, to);
      if (extent == 1)
        continue;
      isThere &= distance && (from.lanes ? *distance >= 0 : *distance == 0) &&
                 (from.lanes || !to.lanes);
      if (isThere && from.lanes)
        first = *distance;
    }
    if (!isThere || first + count > key.width)
      continue;
    if (!isa<VectorType>(value.getType()) || count == key.width)
      return value;
    if (count == 1)
      return vector::ExtractOp::create(b, loc, value, first);
    return vector::ExtractStridedSliceOp::create(
        b, loc, value, ArrayRef<int64_t>{first}, ArrayRef<int64_t>{count},
        ArrayRef<int64_t>{1});
  }
  sum.getOwner()->emitError(
      "expected a sum to be read where the work item that "
      "computes it has it, but got a read elsewhere");
  hasFailed = true;
  return arith::ConstantOp::create(
      b, loc, b.getZeroAttr(getElementTypeOrSelf(sum.getType())));
}

Value Evaluator::readUncached(Value tensor, ArrayRef<Index> at) {
  if (!isa<RankedTensorType>(tensor.getType()))
    return readScalar(tensor);
  if (Value buffer = getBuffer(tensor))
    return load(buffer, at);
  Operation *op = tensor.getDefiningOp();
  Type elementType = cast<RankedTensorType>(tensor.getType()).getElementType();
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return arith::ConstantOp::create(
        b, loc,
        cast<SplatElementsAttr>(constant.getValue())
            .getSplatValue<TypedAttr>());
  if (isa<tensor::EmptyOp>(op))
    return arith::ConstantOp::create(b, loc, b.getZeroAttr(elementType));
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return readScalar(fill.getInputs()[0]);
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    unsigned result = cast<OpResult>(tensor).getResultNumber();
    return evaluate(generic, getLoops(generic, result, at))[result];
  }
  if (auto concat = dyn_cast<tensor::ConcatOp>(op))
    return readWindows(*this, concat, at);
  if (std::optional<SmallVector<Index>> source = getSource(op, at))
    return read(op->getOperand(0), *source);
  return readPerLane(tensor, at);
}

/// The element of `tensor` at `indices`; `positions` are what is known of them.
Value Evaluator::extract(Value tensor, ArrayRef<Value> indices,
                         ArrayRef<std::optional<Index>> positions) {
  bool known = llvm::all_of(llvm::zip_equal(indices, positions), [](auto it) {
    auto [index, position] = it;
    return position || !isa<VectorType>(index.getType());
  });
  auto at = [&](std::optional<int64_t> lane) {
    SmallVector<Index> result;
    for (auto [index, position] : llvm::zip_equal(indices, positions)) {
      if (position) {
        result.push_back(lane && position->lanes
                             ? position->scalar().plus(*lane)
                             : *position);
      } else if (isa<VectorType>(index.getType())) {
        result.push_back(
            Index::of(vector::ExtractOp::create(b, loc, index, *lane)));
      } else {
        result.push_back(Index::of(index));
      }
    }
    return result;
  };
  if (known)
    return read(tensor, at(std::nullopt));
  SmallVector<Value> elements;
  int64_t lanes = width;
  for (int64_t lane = 0; lane != lanes; ++lane) {
    SmallVector<Index> scalars = at(lane);
    llvm::SaveAndRestore scalar(width, int64_t(1));
    elements.push_back(read(tensor, scalars));
  }
  return vector::FromElementsOp::create(
      b, loc, VectorType::get({lanes}, elements.front().getType()), elements);
}

SmallVector<Value> Evaluator::evaluate(linalg::GenericOp op,
                                       ArrayRef<Index> loops,
                                       ValueRange accumulators) {
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  DenseMap<Value, Value> values;
  DenseMap<Value, Index> positions;
  auto value = [&](Value v) {
    // What is defined outside of the body is a scalar.
    Value known = values.lookup(v);
    return known ? known : values[v] = readScalar(v);
  };
  for (auto [number, argument] :
       llvm::enumerate(op.getBody()->getArguments())) {
    if (argument.use_empty())
      continue;
    int64_t init = static_cast<int64_t>(number) - op.getNumDpsInputs();
    values[argument] =
        init >= 0 && !accumulators.empty()
            ? accumulators[init]
            : read(op->getOperand(number), applyMap(maps[number], loops));
  }
  for (Operation &inner : op.getBody()->without_terminator()) {
    Value result = inner.getResult(0);
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      Index position = loops[index.getDim()];
      positions[result] = position;
      Value scalar = materialize(position);
      if (position.lanes) {
        // No vector.step, which upstream lowers for processors only.
        Value step = arith::ConstantOp::create(
            b, loc,
            DenseIntElementsAttr::get(
                VectorType::get({width}, b.getIndexType()),
                llvm::to_vector(llvm::seq<int64_t>(width))));
        scalar = arith::AddIOp::create(b, loc, broadcast(scalar), step);
      }
      values[result] = scalar;
      continue;
    }
    SmallVector<Value> operands =
        llvm::map_to_vector(inner.getOperands(), [&](Value v) {
          return isa<TensorType>(v.getType()) ? v : value(v);
        });
    if (auto extractOp = dyn_cast<tensor::ExtractOp>(inner)) {
      SmallVector<std::optional<Index>> known;
      for (Value index : extractOp.getIndices()) {
        auto found = positions.find(index);
        known.push_back(found == positions.end()
                            ? std::nullopt
                            : std::optional<Index>(found->second));
      }
      values[result] = extract(extractOp.getTensor(),
                               ArrayRef(operands).drop_front(), known);
      continue;
    }
    // What was packed is wide already.
    if (isa<arith::ExtFOp>(inner) &&
        getElementTypeOrSelf(operands[0].getType()) == result.getType()) {
      values[result] = operands[0];
      continue;
    }
    bool vectors = llvm::any_of(
        operands, [](Value v) { return isa<VectorType>(v.getType()); });
    if (vectors)
      for (Value &operand : operands)
        operand = broadcast(operand);
    Type type = result.getType();
    if (vectors)
      type = VectorType::get({width}, type);
    OperationState state(loc, inner.getName(), operands, TypeRange(type));
    state.propertiesAttr = inner.getPropertiesAsAttribute();
    if (isa<arith::ConstantOp>(inner))
      values[result] = b.clone(inner)->getResult(0);
    else
      values[result] = b.create(state)->getResult(0);
  }
  return llvm::map_to_vector(op.getBody()->getTerminator()->getOperands(),
                             value);
}
