// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which dimension of tensors the lanes run along.

#include "bsr/Analysis/Lanes.h"
#include "bsr/Dialect/Attention.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bsr;

/// The loop at result `dim` of `map`, if it is one.
static std::optional<unsigned> getLoop(AffineMap map, unsigned dim) {
  auto expr = dyn_cast<AffineDimExpr>(map.getResult(dim));
  return expr ? std::optional<unsigned>(expr.getPosition()) : std::nullopt;
}

static std::optional<unsigned> getDim(AffineMap map, unsigned loop) {
  for (unsigned dim = 0; dim != map.getNumResults(); ++dim)
    if (getLoop(map, dim) == loop)
      return dim;
  return std::nullopt;
}

static ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

std::optional<unsigned>
bsr::mapThroughReshape(ArrayRef<ReassociationIndices> groups,
                       ArrayRef<int64_t> longer, bool fromLonger,
                       unsigned dim) {
  for (auto [number, group] : llvm::enumerate(groups)) {
    if (fromLonger ? !llvm::is_contained(group, static_cast<int64_t>(dim))
                   : number != dim)
      continue;
    std::optional<unsigned> only;
    for (int64_t member : group) {
      if (longer[member] == 1)
        continue;
      if (only)
        return std::nullopt;
      only = member;
    }
    if (!only || (fromLonger && *only != dim))
      return std::nullopt;
    return fromLonger ? std::optional<unsigned>(number) : only;
  }
  return std::nullopt;
}

/// What `op` reads and makes that are activations.
static SmallVector<Value, 2> getActivations(ActivationsOpInterface op) {
  SmallVector<Value, 2> values;
  for (OpOperand *operand : op.getReadActivations())
    values.push_back(operand->get());
  if (Value made = op.getMadeActivations())
    values.push_back(made);
  return values;
}

bool bsr::hasFreeLayout(Operation *op) {
  return TypeSwitch<Operation *, bool>(op)
      .Case([](linalg::GenericOp op) { return op.hasPureTensorSemantics(); })
      .Case([](tensor::ExtractSliceOp op) {
        return op.hasUnitStride() && op.getOffsets().empty() &&
               op.getSizes().empty() &&
               op.getSourceType().getRank() == op.getType().getRank();
      })
      .Case([](ActivationsOpInterface op) {
        return !op.getReadActivations().empty() || op.getMadeActivations();
      })
      .Case<tensor::ConcatOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
            tensor::EmptyOp, AttentionOp, AttentionGradOp>(
          [](auto) { return true; })
      .Case([](tensor::ExtractOp op) {
        return isa<linalg::GenericOp>(op->getParentOp());
      })
      .Case([](arith::ConstantOp op) {
        return isa<SplatElementsAttr>(op.getValue());
      })
      .Default(false);
}

/// True if the user takes what it reads by `use`, a value of `block`, in any
/// layout: `bsr-layout` rewrites the operations of `block` alone, and the reads
/// in their bodies.
static bool takesAnyLayout(OpOperand &use, Block *block) {
  Operation *op = use.getOwner();
  if (!hasFreeLayout(op))
    return false;
  if (auto onActivations = dyn_cast<ActivationsOpInterface>(op))
    if (!llvm::is_contained(onActivations.getReadActivations(), &use))
      return false;
  return (isa<tensor::ExtractOp>(op) ? op->getParentOp() : op)->getBlock() ==
         block;
}

bool Lanes::isPinned(Value value) const {
  Operation *op = value.getDefiningOp();
  if (!op || !isa<RankedTensorType>(value.getType()) || !hasFreeLayout(op))
    return true;
  // Statistics of rows lie as they do.
  if (getAttention(op) && !llvm::is_contained(getMappedTensors(op), value))
    return true;
  auto onActivations = dyn_cast<ActivationsOpInterface>(op);
  return (onActivations && onActivations.getMadeActivations() != value) ||
         !llvm::all_of(value.getUses(), [&](OpOperand &use) {
           return takesAnyLayout(use, op->getBlock());
         });
}

bool Lanes::set(Value value, std::optional<unsigned> dim) {
  if (!dim || lanes.contains(value) || isPinned(value))
    return false;
  lanes.try_emplace(value, *dim);
  // Its producer and its readers may propagate it, or choose anew.
  auto wake = [&](Operation *op) {
    auto position = positions.find(op);
    if (position == positions.end())
      return; // inside of a region
    unsettled.insert(position->second);
    undecided.insert(position->second);
  };
  wake(value.getDefiningOp());
  llvm::for_each(value.getUsers(), wake);
  return true;
}

/// Carries lanes from `a` to `b` and back; `map` maps a dimension of `a` (true)
/// or of `b` (false) to one of the other.
bool Lanes::link(
    Value a, Value b,
    llvm::function_ref<std::optional<unsigned>(bool, unsigned)> map) {
  bool changed = false;
  if (auto lane = get(a))
    changed |= set(b, map(true, *lane));
  if (auto lane = get(b))
    changed |= set(a, map(false, *lane));
  return changed;
}

/// Carries lanes through `op` along its loops. Without `decide`, nothing
/// happens where the operands suggest several loops of the result.
bool Lanes::visitGeneric(linalg::GenericOp op, bool decide) {
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  SmallVector<std::pair<Value, AffineMap>> values;
  for (OpOperand &operand : op->getOpOperands())
    if (isa<RankedTensorType>(operand.get().getType()))
      values.push_back({operand.get(), maps[operand.getOperandNumber()]});
  auto carry = [&](unsigned loop) {
    bool changed = false;
    for (auto [value, map] : values)
      changed |= set(value, getDim(map, loop));
    for (auto [number, result] : llvm::enumerate(op->getResults()))
      changed |= set(result, getDim(maps[op.getNumDpsInputs() + number], loop));
    return changed;
  };
  // A product reads each operand along other loops than it writes: what its
  // result wants is a preference.
  bool product = op.getNumReductionLoops() && op.getNumDpsInputs() > 1;
  for (auto [number, result] : llvm::enumerate(op->getResults()))
    if (auto lane = get(result))
      if (auto loop = getLoop(maps[op.getNumDpsInputs() + number], *lane))
        return (!product || decide) && carry(*loop);
  AffineMap resultMap = maps[op.getNumDpsInputs()];
  SmallVector<unsigned> kept, reduced;
  for (auto [value, map] : values) {
    auto lane = get(value);
    if (!lane)
      continue;
    auto loop = getLoop(map, *lane);
    if (!loop)
      continue;
    SmallVector<unsigned> &list = getDim(resultMap, *loop) ? kept : reduced;
    if (!llvm::is_contained(list, *loop))
      list.push_back(*loop);
  }
  if (kept.size() == 1)
    return carry(kept.front());
  if (!decide)
    return false;
  if (kept.size() > 1) {
    // Attention scores: queries come first, and keys are what softmax reduces.
    llvm::sort(kept, [&](unsigned x, unsigned y) {
      return *getDim(resultMap, x) < *getDim(resultMap, y);
    });
    return carry(kept.front());
  }
  return llvm::any_of(reduced, carry);
}

/// Carries lanes along the queries of `op`, an attention or a gradient, and
/// along its keys.
bool Lanes::visitAttention(Operation *op) {
  SmallVector<Value> tensors = getMappedTensors(op);
  SmallVector<AffineMap> maps = getTensorMaps(op);
  Attention attention = *getAttention(op);
  // Of each, q or k and what has features.
  size_t numFeatured = isa<AttentionOp>(op) ? 4 : 8;
  bool changed = false;
  for (unsigned loop : {attention.getQueryDim(), attention.getKeyDim()}) {
    bool hasLanes = llvm::any_of(llvm::seq(numFeatured), [&](size_t number) {
      auto lane = get(tensors[number]);
      return lane && getLoop(maps[number], *lane) == loop;
    });
    for (size_t number = 0; hasLanes && number != numFeatured; ++number)
      changed |= set(tensors[number], getDim(maps[number], loop));
  }
  return changed;
}

bool Lanes::visit(Operation *op) {
  auto same = [](bool, unsigned dim) { return std::optional<unsigned>(dim); };
  return TypeSwitch<Operation *, bool>(op)
      .Case([&](linalg::GenericOp op) { return visitGeneric(op, false); })
      .Case<AttentionOp, AttentionGradOp>(
          [&](auto op) { return visitAttention(op); })
      .Case([&](ActivationsOpInterface op) {
        bool changed = false;
        SmallVector<Value, 2> all = getActivations(op);
        if (all.empty())
          return false;
        for (auto [a, b] : llvm::zip(all, ArrayRef(all).drop_front()))
          changed |= link(a, b, same);
        return changed;
      })
      .Case([&](tensor::ExtractSliceOp op) {
        return link(op.getSource(), op.getResult(), same);
      })
      .Case([&](tensor::ConcatOp op) {
        bool changed = false;
        for (Value input : op.getInputs())
          changed |= link(input, op.getResult(), same);
        return changed;
      })
      .Case([&](tensor::ExpandShapeOp op) {
        auto groups = op.getReassociationIndices();
        return link(op.getSrc(), op.getResult(),
                    [&](bool fromSrc, unsigned dim) {
                      return mapThroughReshape(groups, getShape(op.getResult()),
                                               !fromSrc, dim);
                    });
      })
      .Case([&](tensor::CollapseShapeOp op) {
        auto groups = op.getReassociationIndices();
        return link(op.getSrc(), op.getResult(),
                    [&](bool fromSrc, unsigned dim) {
                      return mapThroughReshape(groups, getShape(op.getSrc()),
                                               fromSrc, dim);
                    });
      })
      .Default(false);
}

std::optional<unsigned> bsr::getTokenDim(Value x, int64_t featureDim) {
  ArrayRef<int64_t> shape = getShape(x);
  for (int64_t dim = shape.size(); dim-- != 0;)
    if (dim != featureDim && shape[dim] != 1)
      return dim;
  return std::nullopt;
}

/// Visits what is unsettled from top to bottom. What wakes where the sweep has
/// been is left to the next one.
bool Lanes::visitDown() {
  bool changed = false;
  for (auto next = unsettled.begin(); next != unsettled.end();) {
    unsigned position = *next;
    unsettled.erase(next);
    changed |= visit(ops[position]);
    next = unsettled.upper_bound(position);
  }
  return changed;
}

/// Visits what is unsettled from bottom to top.
bool Lanes::visitUp() {
  bool changed = false;
  for (auto next = unsettled.end(); next != unsettled.begin();) {
    unsigned position = *--next;
    unsettled.erase(next);
    changed |= visit(ops[position]);
    next = unsettled.lower_bound(position);
  }
  return changed;
}

/// Lets the first operation with a choice make it.
bool Lanes::decide() {
  bool changed = false;
  while (!changed && !undecided.empty()) {
    Operation *op = ops[*undecided.begin()];
    undecided.erase(undecided.begin());
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      changed = visitGeneric(generic, true);
  }
  return changed;
}

Lanes::Lanes(Block &block) {
  for (Operation &op : block) {
    positions[&op] = ops.size();
    ops.push_back(&op);
  }
  for (Operation *op : ops) {
    // Sparse products: what else is on activations goes along.
    auto kernel = dyn_cast<KernelOpInterface>(op);
    auto product = dyn_cast<ActivationsOpInterface>(op);
    if (!product || !kernel || !kernel.getLineView())
      continue;
    for (Value value : getActivations(product))
      set(value, getTokenDim(value, product.getFeatureDim()));
  }
  for (bool changed = true; changed;) {
    changed = visitDown();
    changed |= visitUp();
    // Only when nothing else moves.
    changed = changed || decide();
  }
}

SmallVector<int64_t> Lanes::getOrder(Value value) const {
  std::optional<unsigned> lane = get(value);
  SmallVector<int64_t> order;
  for (int64_t dim = 0; dim != static_cast<int64_t>(getShape(value).size());
       ++dim)
    if (dim != lane)
      order.push_back(dim);
  if (lane)
    order.push_back(*lane);
  return order;
}
