// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which values have entries of a parameter, on the way to its next values.

#include "bsr/Gradients/Spaces.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;

Spaces::Spaces(func::FuncOp func, ArrayRef<BoundWeight> weights)
    : func(func), weights(weights) {
  func.walk([&](Operation *op) { order.insert({op, order.size()}); });
  for (const BoundWeight &weight : weights)
    addSpace(weight);
  addOthers();
  for (auto [number, space] : llvm::enumerate(spaces))
    for (auto &[value, entries] : space.entries)
      claims[value].push_back(number);
}

/// True for the product of a column and a row, one of which has one entry: in
/// its maps the other is the matrix, but it is a factor of the product.
static bool isThinOuterProduct(Operation *op) {
  auto product = dyn_cast<linalg::LinalgOp>(op);
  if (!product || product.getNumReductionLoops() || product.getNumLoops() < 2 ||
      product->getNumResults() != 1 ||
      !llvm::is_contained(product.getStaticLoopRanges(), 1) ||
      llvm::none_of(product.getBlock()->without_terminator(),
                    llvm::IsaPred<arith::MulFOp>))
    return false;
  BitVector all(product.getNumLoops());
  unsigned factors = 0;
  for (OpOperand *input : product.getDpsInputOperands()) {
    AffineMap map = product.getMatchingIndexingMap(input);
    BitVector own(product.getNumLoops());
    for (AffineExpr expr : map.getResults())
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        own.set(dim.getPosition());
    if (own.all())
      return false;
    factors += own.any();
    all |= own;
  }
  return factors > 1 && all.all();
}

/// Follows entries from `roots` back to where they come from.
void Spaces::walk(Space &space, ArrayRef<Value> roots, const Entries &whole) {
  SmallVector<std::pair<Value, Entries>> worklist;
  auto reach = [&](Value value, const Entries &entries) {
    auto &known = space.entries[value];
    // Of what has two, it is known that it has several.
    if (llvm::is_contained(known, entries) || known.size() > 2)
      return;
    known.push_back(entries);
    worklist.push_back({value, entries});
  };
  for (Value root : roots)
    reach(root, whole);
  while (!worklist.empty()) {
    auto [value, entries] = worklist.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (isNumber(value) || isa_and_nonnull<ToDenseOp, tensor::EmptyOp>(op) ||
        matchPattern(value, m_Constant()))
      continue;
    if (!op && value.getParentRegion() == &func.getBody())
      continue;
    bool isFollowed = false;
    bool isThrough = op && isEntryWise(op) && !isThinOuterProduct(op);
    if (isThrough)
      visitOperands(op, cast<OpResult>(value).getResultNumber(), entries,
                    [&](OpOperand &operand, const Entries &read) {
                      isFollowed = true;
                      reach(operand.get(), read);
                    });
    // A reshape that tears entries apart is as far as they can be followed.
    bool isEnd =
        isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op) &&
        !isFollowed;
    if ((isEnd || !isThrough) && !llvm::is_contained(space.sources, value))
      space.sources.push_back(value);
  }
}

void Spaces::sortInOrder(SmallVectorImpl<Value> &values) const {
  llvm::sort(values, [&](Value a, Value b) {
    auto get = [&](Value value) {
      return value.getDefiningOp() ? order.lookup(value.getDefiningOp()) + 1
                                   : 0;
    };
    return get(a) < get(b);
  });
}

/// Adds what is the product of a column and a row of the matrix, entry by
/// entry, to the sources.
void Spaces::findOuterProducts(Space &space) {
  enum { Row = 1, Col = 2, Whole = 4 };
  int64_t cols = space.shape.back();
  DenseMap<Value, unsigned> varying;
  SmallVector<Value> values(llvm::make_first_range(space.entries));
  sortInOrder(values);
  for (Value value : values) {
    unsigned &vary = varying[value];
    Operation *op = value.getDefiningOp();
    if (isNumber(value) || isa_and_nonnull<tensor::EmptyOp>(op))
      continue;
    Attribute constant;
    if (matchPattern(value, m_Constant(&constant))) {
      auto elements = dyn_cast<DenseElementsAttr>(constant);
      vary = elements && elements.isSplat() ? 0 : Whole;
      continue;
    }
    if (!op || !isEntryWise(op) || isThinOuterProduct(op)) {
      vary = Whole;
      continue;
    }
    const Entries &entries = space.entries.find(value)->second.front();
    SmallPtrSet<OpOperand *, 4> read;
    bool isProduct = true;
    visitOperands(op, cast<OpResult>(value).getResultNumber(), entries,
                  [&](OpOperand &operand, const Entries &) {
                    read.insert(&operand);
                    unsigned other = varying.lookup(operand.get());
                    vary |= other;
                    isProduct &= other != (Row | Col);
                  });
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (!linalgOp)
      continue;
    AffineMap loops = inversePermutation(
        linalgOp.getIndexingMapMatchingResult(cast<OpResult>(value)));
    unsigned lines = 0;
    auto getLine = [&](unsigned dim) -> unsigned {
      if (entries.sizes[dim] == 1)
        return 0;
      return entries.strides[dim] < cols ? Col : Row;
    };
    for (OpOperand *operand : linalgOp.getDpsInputOperands()) {
      if (read.contains(operand) || isNumber(operand->get()))
        continue;
      AffineMap map = linalgOp.getMatchingIndexingMap(operand).compose(loops);
      for (unsigned dim : llvm::seq(map.getNumDims()))
        if (map.isFunctionOfDim(dim))
          lines |= getLine(dim);
    }
    // The column may be the place of one entry.
    if (lines && !(vary & Whole))
      for (auto index : linalgOp.getBlock()->getOps<linalg::IndexOp>())
        lines |= getLine(loops.getDimPosition(index.getDim()));
    if ((vary & Whole) && lines == (Row | Col))
      space.fused.push_back(op);
    vary |= lines;
    // What adds a product of its own to another one is a source as well.
    if (vary == (Row | Col) && (isProduct || lines == (Row | Col)))
      space.sources.push_back(value);
  }
}

void Spaces::addSpace(const BoundWeight &weight) {
  Space &space = spaces.emplace_back();
  ToDenseOp dense = weight.dense;
  llvm::append_range(space.shape, dense.getDense().getType().getShape());
  for (SampleOp sample : weight.samples)
    space.roots.push_back(sample.getDense());
  walk(space, space.roots, Entries::getWhole(space.shape));
  findOuterProducts(space);
}

/// Adds the spaces of parameters that are not marked, which have gradients of
/// their own. Without a role, they are arguments on which what enters their
/// next value depends; what is only added up in an argument does not.
void Spaces::addOthers() {
  Operation *terminator = func.getBody().front().getTerminator();
  for (BlockArgument arg : func.getArguments()) {
    unsigned number = arg.getArgNumber();
    auto result = attrs::result.ofArg(func, number);
    auto type = dyn_cast<RankedTensorType>(arg.getType());
    auto role = attrs::role.ofArg(func, number);
    if (!result || !type || !type.hasStaticShape() || type.getRank() == 0 ||
        !isa<FloatType>(type.getElementType()) ||
        attrs::pattern.ofArg(func, number) ||
        attrs::patternNumber.ofArg(func, number) || (role && role != "param"))
      continue;
    Space space;
    llvm::append_range(space.shape, type.getShape());
    space.roots.push_back(terminator->getOperand(result.getInt()));
    walk(space, space.roots, Entries::getWhole(space.shape));
    findOuterProducts(space);
    if (!role) {
      SmallVector<Operation *> users(arg.getUsers());
      DenseSet<Operation *> dependents = getDependents(users);
      dependents.insert(users.begin(), users.end());
      if (llvm::none_of(space.sources, [&](Value source) {
            return dependents.contains(source.getDefiningOp());
          }))
        continue;
    }
    spaces.push_back(std::move(space));
  }
}

bool Spaces::isClaimed(unsigned number, Value value) const {
  const auto &own = spaces[number].entries.find(value)->second;
  if (own.size() != 1)
    return true;
  return llvm::any_of(claims.lookup(value), [&](unsigned other) {
    return other != number &&
           llvm::any_of(
               spaces[other].entries.find(value)->second,
               [&](const Entries &entries) { return entries.overlap(own[0]); });
  });
}

DenseSet<Value> Spaces::getCarriers(unsigned number,
                                    ArrayRef<Value> gradients) const {
  const Space &space = spaces[number];
  DenseSet<Value> carriers(gradients.begin(), gradients.end());
  SmallVector<Value> values(llvm::make_first_range(space.entries));
  sortInOrder(values);
  for (Value value : values) {
    Operation *op = value.getDefiningOp();
    if (!op || !isEntryWise(op))
      continue;
    for (const Entries &entries : space.entries.find(value)->second)
      visitOperands(op, cast<OpResult>(value).getResultNumber(), entries,
                    [&](OpOperand &operand, const Entries &) {
                      if (carriers.contains(operand.get()))
                        carriers.insert(value);
                    });
  }
  return carriers;
}

bool Spaces::isInside(unsigned number, OpOperand &use) const {
  const Space &space = spaces[number];
  Operation *user = use.getOwner();
  if (auto sample = dyn_cast<SampleOp>(user))
    return llvm::is_contained(weights[number].samples, sample);
  if (isa<scf::YieldOp>(user))
    return space.entries.contains(
        user->getParentOp()->getResult(use.getOperandNumber()));
  // A slice of something else does not see it.
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
      slice && isEntryWise(slice)) {
    Entries box;
    llvm::append_range(box.starts, slice.getStaticOffsets());
    llvm::append_range(box.sizes, slice.getStaticSizes());
    if (llvm::none_of(space.entries.find(use.get())->second,
                      [&](const Entries &own) { return own.overlap(box); }))
      return true;
  }
  return isEntryWise(user) &&
         llvm::all_of(user->getResults(), [&](Value result) {
           return result.use_empty() || space.entries.contains(result);
         });
}
