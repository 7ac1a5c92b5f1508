// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the gradients of block-sparse weights in a step.

#include "bsr/Analysis/GradientFinder.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/OffPattern.h"
#include "bsr/Analysis/Stripped.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;

GradientFinder::GradientFinder(
    func::FuncOp func, ArrayRef<BoundWeight> weights,
    function_ref<void(const BoundWeight &, Operation *, StringRef)> report)
    : func(func), weights(weights), report(report) {
  func.walk([&](Operation *op) { order.insert({op, order.size()}); });
  for (const BoundWeight &weight : weights)
    addSpace(weight);
  addOthers();
  for (auto [number, space] : llvm::enumerate(spaces))
    for (auto &[value, entries] : space.entries)
      claims[value].push_back(number);
  addReaders();
  addData();
  for (unsigned number : llvm::seq<unsigned>(weights.size())) {
    forwards.push_back(getForward(weights[number]));
    findHidden(number);
    opens.push_back(getOpen(number));
    activations.push_back(getActivations(number));
  }
}

/// Follows entries from `roots` back to where they come from.
void GradientFinder::walk(Space &space, ArrayRef<Value> roots,
                          const Entries &whole) {
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
    if (op && isEntryWise(op))
      visitOperands(op, cast<OpResult>(value).getResultNumber(), entries,
                    [&](OpOperand &operand, const Entries &read) {
                      reach(operand.get(), read);
                    });
    else if (!llvm::is_contained(space.sources, value))
      space.sources.push_back(value);
  }
}

/// Sorts values in the order of the program, in which operands are known first.
void GradientFinder::sortInOrder(SmallVectorImpl<Value> &values) const {
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
void GradientFinder::findOuterProducts(Space &space) {
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
    if (!op || !isEntryWise(op)) {
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
    for (OpOperand *operand : linalgOp.getDpsInputOperands()) {
      if (read.contains(operand) || isNumber(operand->get()))
        continue;
      AffineMap map = linalgOp.getMatchingIndexingMap(operand).compose(loops);
      for (unsigned dim : llvm::seq(map.getNumDims()))
        if (map.isFunctionOfDim(dim) && entries.sizes[dim] != 1)
          lines |= entries.strides[dim] < cols ? Col : Row;
    }
    if ((vary & Whole) && lines == (Row | Col))
      space.fused.push_back(op);
    vary |= lines;
    // What adds a product of its own to another one is a source as well.
    if (vary == (Row | Col) && (isProduct || lines == (Row | Col)))
      space.sources.push_back(value);
  }
}

void GradientFinder::addSpace(const BoundWeight &weight) {
  Space &space = spaces.emplace_back();
  ToDenseOp dense = weight.dense;
  llvm::append_range(space.shape, dense.getDense().getType().getShape());
  for (SampleOp sample : weight.samples)
    space.roots.push_back(sample.getDense());
  walk(space, space.roots, Entries::getWhole(space.shape));
  findOuterProducts(space);
}

/// Adds the spaces of parameters that are not marked: what is their gradient is
/// theirs. Without a role, they are arguments on which what enters their next
/// value depends; what is only added up in an argument does not.
void GradientFinder::addOthers() {
  Operation *terminator = func.getBody().front().getTerminator();
  for (BlockArgument arg : func.getArguments()) {
    unsigned number = arg.getArgNumber();
    auto result = func.getArgAttrOfType<IntegerAttr>(number, attrs::result);
    auto type = dyn_cast<RankedTensorType>(arg.getType());
    auto role = func.getArgAttrOfType<StringAttr>(number, attrs::role);
    if (!result || !type || !type.hasStaticShape() || type.getRank() == 0 ||
        !isa<FloatType>(type.getElementType()) ||
        func.getArgAttr(number, attrs::pattern) ||
        func.getArgAttr(number, attrs::patternNumber) ||
        (role && role != "param"))
      continue;
    Space space;
    llvm::append_range(space.shape, type.getShape());
    space.roots.push_back(terminator->getOperand(result.getInt()));
    walk(space, space.roots, Entries::getWhole(space.shape));
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

void GradientFinder::addReaders() {
  func.walk([&](linalg::LinalgOp op) {
    if (op.getNumDpsInputs() < 2)
      return;
    for (OpOperand *operand : op.getDpsInputOperands()) {
      if (isNumber(operand->get()))
        continue;
      Stripped stripped = strip(operand->get());
      readers[stripped.value].push_back({operand, stripped.dims});
    }
  });
}

/// What products multiply `weight` with, as it is or as an entry-wise function
/// of it.
Forward GradientFinder::getForward(const BoundWeight &weight) {
  enum Lie { Same, Transposed, Other };
  llvm::MapVector<Value, Lie> lies;
  lies.insert({ToDenseOp(weight.dense).getDense(), Same});
  Forward forward;
  SmallVector<Operation *> &products = forward.products;
  for (unsigned i = 0; i != lies.size(); ++i) {
    auto [value, lie] = *(lies.begin() + i);
    forward.values.insert(value);
    for (OpOperand &use : value.getUses()) {
      auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
      if (!op || op.getNumReductionLoops() == 0) {
        if (!isEntryWise(use.getOwner()) || isa<scf::IfOp>(use.getOwner()))
          continue;
        for (OpResult result : use.getOwner()->getResults()) {
          Lie next = Other;
          // The gradient of what data is added to is the data's as well.
          if (op && lie != Other && !readsData(op)) {
            Access access =
                getAccess(op, use, op.getIndexingMapMatchingResult(result));
            if (access == Access::Same)
              next = lie;
            else if (access == Access::Transposed)
              next = lie == Same ? Transposed : Same;
          }
          lies.insert({result, next});
        }
        continue;
      }
      AffineMap map = op.getMatchingIndexingMap(&use);
      auto kinds = op.getIteratorTypesArray();
      for (OpOperand *x : op.getDpsInputOperands()) {
        if (x == &use || isNumber(x->get()))
          continue;
        Stripped stripped = strip(x->get());
        Factor factor{stripped.value};
        AffineMap xMap = op.getMatchingIndexingMap(x);
        for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
          auto loop = dyn_cast<AffineDimExpr>(expr);
          if (!loop || lie == Other || map.getNumResults() != 2 ||
              kinds[loop.getPosition()] != utils::IteratorType::reduction)
            continue;
          if (auto at = xMap.getResultPosition(expr)) {
            factor.dim = stripped.dims[*at];
            factor.isRow = (dim == 0) == (lie == Same);
          }
        }
        forward.factors.push_back(factor);
        products.push_back(op);
      }
    }
  }
  llvm::erase_if(forward.factors, [&](const Factor &factor) {
    return forward.values.contains(factor.value);
  });
  forward.after = Dependents(products);
  findMixing(weight, forward);
  return forward;
}

/// True if `value` depends on `values`, and on no data in another way.
bool GradientFinder::isOnlyOf(Value value, const DenseSet<Value> &values) {
  bool isOf = false, isData = false;
  DenseSet<Value> seen;
  SmallVector<Operation *> worklist;
  auto reach = [&](Value next) {
    if (!seen.insert(next).second)
      return;
    auto arg = dyn_cast<BlockArgument>(next);
    if (values.contains(next))
      isOf = true;
    else if (!arg)
      worklist.push_back(next.getDefiningOp());
    else
      isData |= this->isData(arg);
  };
  reach(value);
  while (!worklist.empty() && !isData)
    visitReads(worklist.pop_back_val(), reach);
  return isOf && !isData;
}

/// Finds whether sums of the weight's entries change them in front of
/// products (weight standardization): entries off the pattern are no zeros
/// then, and the gradient of what is multiplied is not the weight's.
void GradientFinder::findMixing(const BoundWeight &weight, Forward &forward) {
  // What data enters is activations: they are mixed in every model.
  DenseSet<Value> functions;
  for (Value value : forward.values)
    if (!data.contains(value))
      functions.insert(value);
  DenseSet<Value> multiplied;
  SmallVector<Value> worklist;
  auto reach = [&](Value value) {
    if (functions.contains(value) && multiplied.insert(value).second)
      worklist.push_back(value);
  };
  for (Operation *product : forward.products)
    llvm::for_each(product->getOperands(), reach);
  while (!worklist.empty())
    if (Operation *op = worklist.pop_back_val().getDefiningOp();
        op && !isa<ToDenseOp>(op))
      visitReads(op, reach);
  SmallVector<Value> values(multiplied.begin(), multiplied.end());
  sortInOrder(values);
  Offs offs;
  offs[ToDenseOp(weight.dense).getDense()] = Off::Zero;
  for (Value value : values) {
    auto op = value.getDefiningOp<linalg::LinalgOp>();
    if (!op || !isElementWise(op))
      continue;
    offs[value] = getBodyOff(op, cast<OpResult>(value), offs);
    if (offs[value] != Off::Zero && !forward.mixing &&
        llvm::any_of(op.getDpsInputs(), [&](Value input) {
          return !functions.contains(input) && isOnlyOf(input, functions);
        }))
      forward.mixing = op;
  }
}

/// Reports what may be the gradient of a weight without a next value, of which
/// none was found: an operation with results of its shape that mixes entries,
/// has nothing to do with other parameters, and of which nothing but numbers is
/// used, such as a norm, in the next values of others.
void GradientFinder::reportCandidates(unsigned number) {
  const BoundWeight &weight = weights[number];
  if (!weight.samples.empty() || !forwards[number].hidden.empty())
    return;
  auto type = cast<RankedTensorType>(ToDenseOp(weight.dense).getType());
  SmallVector<int64_t> shape(type.getShape()), swapped(llvm::reverse(shape));
  DenseSet<Operation *> before;
  {
    SmallVector<Operation *> worklist;
    auto reach = [&](Value value) {
      if (Operation *op = value.getDefiningOp(); op && before.insert(op).second)
        worklist.push_back(op);
    };
    for (Operation *op : forwards[number].products)
      visitReads(op, reach);
    while (!worklist.empty())
      visitReads(worklist.pop_back_val(), reach);
  }
  func.walk([&](linalg::LinalgOp op) {
    if (op.getNumReductionLoops() == 0 || op->getNumResults() != 1 ||
        before.contains(op) || claims.contains(op->getResult(0)))
      return;
    auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (!result ||
        (result.getShape() != ArrayRef(shape) &&
         result.getShape() != ArrayRef(swapped)) ||
        llvm::any_of(op->getOperands(), [&](Value operand) {
          return forwards[number].values.contains(operand);
        }))
      return;
    SmallVector<Value> worklist = {op->getResult(0)};
    DenseSet<Value> seen;
    SmallVector<Operation *> numbers;
    while (!worklist.empty())
      for (Operation *user : worklist.pop_back_val().getUsers()) {
        if (llvm::all_of(user->getResults(), isNumber) &&
            user->getNumResults()) {
          numbers.push_back(user);
          continue;
        }
        if (!isEntryWise(user) || !isa<linalg::LinalgOp>(user))
          return;
        for (Value next : user->getResults())
          if (seen.insert(next).second)
            worklist.push_back(next);
      }
    DenseSet<Operation *> dependents = getDependents(numbers);
    if (llvm::any_of(func.getBody().front().getTerminator()->getOperands(),
                     [&](Value next) {
                       return !isNumber(next) && next.getDefiningOp() &&
                              dependents.contains(next.getDefiningOp());
                     }))
      report(weight, op, "may be it");
  });
}

/// True if `op`, or what it sums up, reads one of `factors`.
bool GradientFinder::readsFactor(Operation *op, ArrayRef<Factor> factors,
                                 unsigned depth) {
  for (Value operand : op->getOperands()) {
    Value stripped = strip(operand).value;
    if (llvm::any_of(factors, [&](const Factor &factor) {
          return factor.value == stripped;
        }))
      return true;
  }
  // A sum of one tensor, over a batch say.
  auto sum = dyn_cast<linalg::LinalgOp>(op);
  if (!depth || !sum || sum.getNumDpsInputs() != 1)
    return false;
  Operation *producer = strip(sum.getDpsInputs()[0]).value.getDefiningOp();
  return producer && readsFactor(producer, factors, depth - 1);
}

/// Finds products that are the gradient although no entry-wise way leads from
/// them to a next value, which depends on them by more than numbers, if there
/// is one: they multiply what the weight was multiplied with, depend on that
/// product, and sum over what they do not have in common with the weight, and
/// they are nobody else's gradient.
void GradientFinder::findHidden(unsigned number) {
  Space &space = spaces[number];
  ArrayRef<Factor> factors = forwards[number].factors;
  const DenseSet<Value> &forward = forwards[number].values;
  const Dependents &after = forwards[number].after;
  SmallVector<Value> &hidden = forwards[number].hidden;
  // What the next values depend on by more than numbers.
  std::optional<DenseSet<Value>> read;
  auto isRead = [&](Value value) {
    if (!read) {
      read.emplace();
      SmallVector<Value> worklist;
      auto reach = [&](Value next) {
        if (!isNumber(next) && read->insert(next).second)
          worklist.push_back(next);
      };
      for (SampleOp sample : weights[number].samples)
        reach(sample.getDense());
      while (!worklist.empty())
        if (Operation *op = worklist.pop_back_val().getDefiningOp())
          visitReads(op, reach);
    }
    return read->contains(value);
  };
  for (const Factor &factor : factors) {
    if (factor.dim < 0)
      continue;
    for (auto &[operand, dims] : readers.lookup(factor.value)) {
      auto op = cast<linalg::LinalgOp>(operand->getOwner());
      auto place = llvm::find(dims, factor.dim);
      if (op->getNumResults() != 1 || place == dims.end() ||
          op.getNumDpsInputs() != 2 || claims.contains(op->getResult(0)))
        continue;
      Value result = op->getResult(0);
      auto type = cast<RankedTensorType>(result.getType());
      AffineMap map = op.getMatchingIndexingMap(operand),
                resultMap = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
      OpOperand *other =
          op.getDpsInputOperand(op.getDpsInputOperand(0) == operand ? 1 : 0);
      Value otherValue = strip(other->get()).value;
      if (type.getRank() != 2 || forward.contains(otherValue) ||
          llvm::any_of(factors, [&](const Factor &another) {
            return another.value == otherValue;
          }))
        continue;
      AffineExpr loop = map.getResult(place - dims.begin());
      auto at = resultMap.getResultPosition(loop);
      if (!at)
        continue;
      // All of the factor's other dimensions are summed.
      auto kinds = op.getIteratorTypesArray();
      bool sums = llvm::all_of(map.getResults(), [&](AffineExpr expr) {
        auto dim = dyn_cast<AffineDimExpr>(expr);
        return expr == loop || !dim ||
               kinds[dim.getPosition()] == utils::IteratorType::reduction;
      });
      bool transposed = (*at == 0) != factor.isRow;
      if (!sums || type.getDimSize(transposed) != space.shape[0] ||
          type.getDimSize(!transposed) != space.shape[1] ||
          (!weights[number].samples.empty() && !isRead(result)) ||
          llvm::is_contained(hidden, result) || !after.contains(op))
        continue;
      hidden.push_back(result);
      Entries entries = Entries::getWhole(type.getShape());
      if (transposed) {
        entries = Entries::getWhole(space.shape);
        std::swap(entries.strides[0], entries.strides[1]);
        std::swap(entries.sizes[0], entries.sizes[1]);
      }
      space.entries[result].assign({entries});
    }
  }
}

/// True for arguments of the step that it neither carries nor stores in blocks.
bool GradientFinder::isData(BlockArgument arg) {
  return arg.getParentRegion() == &func.getBody() &&
         isa<RankedTensorType>(arg.getType()) &&
         !func.getArgAttr(arg.getArgNumber(), attrs::result) &&
         !func.getArgAttr(arg.getArgNumber(), attrs::pattern) &&
         !func.getArgAttr(arg.getArgNumber(), attrs::patternNumber);
}

/// True for a gather: it looks entries up, and mixes none.
static bool isGather(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  return linalgOp && linalgOp.getNumReductionLoops() == 0 && !isEntryWise(op);
}

void GradientFinder::addData() {
  SmallVector<Value> worklist;
  auto reach = [&](Value value) {
    if (!isNumber(value) && data.insert(value).second)
      worklist.push_back(value);
  };
  // A single integer is data where it looks up what is more than a number.
  auto reachLookups = [&](auto &self, Value number) -> void {
    for (Operation *user : number.getUsers()) {
      if (isGather(user))
        llvm::for_each(user->getResults(), reach);
      else if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(user))
        self(self, user->getResult(0));
    }
  };
  for (BlockArgument arg : func.getArguments()) {
    if (!isData(arg))
      continue;
    reach(arg);
    if (isNumber(arg) && getElementTypeOrSelf(arg.getType()).isInteger())
      reachLookups(reachLookups, arg);
  }
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers())
      for (; user && user != func; user = user->getParentOp())
        llvm::for_each(user->getResults(), reach);
}

/// True if `op` depends on arguments that the step does not carry, by more than
/// numbers and other than through `gradients`.
bool GradientFinder::reachesData(Operation *op,
                                 const DenseSet<Value> &gradients,
                                 bool &reachesGradient) {
  bool found = false;
  DenseSet<Value> seen;
  SmallVector<Operation *> worklist = {op};
  auto reach = [&](Value value) {
    if (isNumber(value) || !seen.insert(value).second)
      return;
    if (gradients.contains(value)) {
      reachesGradient = true;
      return;
    }
    if (Operation *producer = value.getDefiningOp()) {
      worklist.push_back(producer);
      return;
    }
    auto arg = cast<BlockArgument>(value);
    if (arg.getParentRegion() != &func.getBody()) {
      worklist.push_back(arg.getOwner()->getParentOp());
      return;
    }
    found |= isData(arg);
  };
  while (!worklist.empty())
    visitReads(worklist.pop_back_val(), reach);
  return found;
}

bool GradientFinder::isInside(unsigned number, OpOperand &use) {
  Space &space = spaces[number];
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

/// Finds which parameters' next values depend on each value by more than
/// numbers.
void GradientFinder::findOwners() {
  if (!owners.empty())
    return;
  auto reach = [&](Value value, const BitVector &by) {
    if (!isNumber(value) && by.any())
      owners[value] |= by;
  };
  for (auto [number, space] : llvm::enumerate(spaces)) {
    BitVector self(spaces.size());
    self.set(number);
    for (Value root : space.roots)
      reach(root, self);
  }
  SmallVector<Operation *> ops;
  func.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : llvm::reverse(ops)) {
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      for (Region *region : {&branch.getThenRegion(), &branch.getElseRegion()})
        if (!region->empty())
          for (auto [result, yielded] :
               llvm::zip_equal(branch.getResults(),
                               region->front().getTerminator()->getOperands()))
            reach(yielded, owners.lookup(result));
      continue;
    }
    BitVector all(spaces.size());
    for (Value result : op->getResults())
      all |= owners.lookup(result);
    visitReads(op, [&](Value value) { reach(value, all); });
  }
}

bool GradientFinder::reachesOthers(unsigned number, OpOperand &use,
                                   bool isOnly) {
  if (isInside(number, use))
    return false;
  Operation *user = use.getOwner();
  ValueRange results = user->getResults();
  if (isa<scf::YieldOp>(user))
    results = user->getParentOp()->getResults();
  if (llvm::all_of(results, isNumber))
    return false;
  findOwners();
  BitVector all(spaces.size());
  for (Value result : results)
    all |= owners.lookup(result);
  bool isOwn = all.test(number);
  all.reset(number);
  return all.any() && !(isOnly && isOwn);
}

/// Calls `reach`, which adds to `worklist`, for what the values there are made
/// of, entry by entry.
static void visitEntryWise(SmallVectorImpl<Value> &worklist,
                           function_ref<void(Value)> reach) {
  while (!worklist.empty())
    if (Operation *op = worklist.pop_back_val().getDefiningOp();
        op && isEntryWise(op))
      visitReads(op, reach);
}

/// True if `value` is what the sums of `op` start with, and nothing else of it:
/// it is added to them.
static bool isStart(Operation *op, Value value) {
  auto sum = dyn_cast<linalg::LinalgOp>(op);
  return sum && sum.getNumReductionLoops() &&
         llvm::is_contained(sum.getDpsInits(), value) &&
         !llvm::is_contained(sum.getDpsInputs(), value);
}

/// The values of the weight's space that are gradients of activations too:
/// other parameters' are computed from them, and from what does not depend on
/// them. So is that of a matrix that is added to the activations.
DenseSet<Value> GradientFinder::getActivations(unsigned number) {
  Space &space = spaces[number];
  // What the weight and its moments enter is no gradient any more.
  DenseSet<Value> updates;
  SmallVector<Value> worklist;
  auto reachUpdate = [&](Value value) {
    if (space.entries.contains(value) && updates.insert(value).second)
      worklist.push_back(value);
  };
  for (auto &known : space.entries)
    if (known.first.getDefiningOp<ToDenseOp>())
      reachUpdate(known.first);
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers())
      if (isEntryWise(user))
        llvm::for_each(user->getResults(), reachUpdate);

  DenseSet<Value> activations;
  auto reach = [&](Value value) {
    if (space.entries.contains(value) && !updates.contains(value) &&
        activations.insert(value).second)
      worklist.push_back(value);
  };
  for (auto &known : space.entries) {
    Value value = known.first;
    Operation *op = value.getDefiningOp();
    if (!op || isNumber(value) || updates.contains(value) ||
        matchPattern(value, m_Constant()) || isa<tensor::EmptyOp>(op))
      continue;
    std::optional<DenseSet<Operation *>> dependents;
    for (OpOperand &use : value.getUses()) {
      if (!reachesOthers(number, use, /*isOnly=*/false))
        continue;
      bool isActivation = reachesOthers(number, use, /*isOnly=*/true);
      if (!isActivation) {
        if (!dependents)
          dependents = getDependents(op);
        visitReads(use.getOwner(), [&](Value other) {
          isActivation |=
              other != value && !isNumber(other) &&
              !isStart(use.getOwner(), other) &&
              !isa_and_nonnull<tensor::EmptyOp>(other.getDefiningOp()) &&
              !matchPattern(other, m_Constant()) &&
              !dependents->contains(other.getDefiningOp());
        });
      }
      if (isActivation)
        reach(value);
    }
  }
  visitEntryWise(worklist, reach);
  return activations;
}

/// The values of the weight's space that something outside of it sees.
DenseSet<Value> GradientFinder::getOpen(unsigned number) {
  Space &space = spaces[number];
  DenseSet<Value> open;
  SmallVector<Value> worklist;
  auto reach = [&](Value value) {
    if (space.entries.contains(value) && open.insert(value).second)
      worklist.push_back(value);
  };
  SmallVector<Value> values(llvm::make_first_range(space.entries));
  for (Value value : values)
    if (llvm::any_of(value.getUses(),
                     [&](OpOperand &use) { return !isInside(number, use); }))
      reach(value);
  visitEntryWise(worklist, reach);
  return open;
}

/// Reports what the weight's space combines with data, entry by entry, if
/// something outside of the space sees it: there the weight is no factor of
/// products, its gradient is an element-wise function of data, and nothing says
/// where that ends and the update begins. With all `gradients` masked, an entry
/// off the pattern is zero, a constant, or made of data.
void GradientFinder::reportData(unsigned number,
                                const DenseSet<Value> &gradients) {
  const Space &space = spaces[number];
  Offs offs;
  SmallVector<Value> values(llvm::make_first_range(space.entries));
  sortInOrder(values);
  for (Value value : values) {
    Operation *op = value.getDefiningOp();
    if (gradients.contains(value) || isa_and_nonnull<ToDenseOp>(op)) {
      offs[value] = Off::Zero;
    } else if (isNumber(value) || matchPattern(value, m_Constant())) {
      continue;
    } else if (!op) {
      auto arg = cast<BlockArgument>(value);
      if (arg.getParentRegion() == &func.getBody() &&
          !func.getArgAttr(arg.getArgNumber(), attrs::result))
        offs[value] = Off::Data;
    } else if (isGather(op)) {
      offs[value] = Off::Data;
    } else if (isEntryWise(op)) {
      bool wasData = false;
      if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
        offs[value] = getBodyOff(linalgOp, cast<OpResult>(value), offs);
        wasData = llvm::any_of(op->getOperands(), [&](Value operand) {
          return getOff(offs, operand) == Off::Data;
        });
      } else {
        Off most = Off::Zero;
        visitOperands(op, cast<OpResult>(value).getResultNumber(),
                      space.entries.find(value)->second.front(),
                      [&](OpOperand &operand, const Entries &) {
                        most = std::max(most, getOff(offs, operand.get()));
                      });
        offs[value] = most;
      }
      if (wasData && getOff(offs, value) == Off::Data &&
          opens[number].contains(value)) {
        report(weights[number], op, "computes it of data, entry by entry");
        return;
      }
    }
  }
}

SmallVector<Value> GradientFinder::getGradients(unsigned number) {
  Space &space = spaces[number];
  const BoundWeight &weight = weights[number];

  ArrayRef<Factor> factors = forwards[number].factors;
  const Dependents &after = forwards[number].after;
  ArrayRef<Value> hidden = forwards[number].hidden;

  if (Operation *op = forwards[number].mixing) {
    report(weight, op,
           "brings its entries together before they are multiplied");
    return {};
  }
  reportCandidates(number);

  // What may be a gradient, in the order in which it is computed.
  SmallVector<Value> sources;
  for (Value value : hidden) {
    bool isOwn = llvm::count_if(forwards, [&](const Forward &other) {
                   return llvm::is_contained(other.hidden, value);
                 }) == 1;
    if (isOwn)
      sources.push_back(value);
    else
      report(weight, value.getDefiningOp(),
             "may be the gradient of something else as well");
  }
  llvm::append_range(sources, space.sources);
  sortInOrder(sources);
  SmallVector<Operation *> producers;
  for (Value source : sources)
    if (Operation *op = source.getDefiningOp())
      producers.push_back(op);
  Dependents dependents(producers);
  bool anyReads = llvm::any_of(
      producers, [&](Operation *op) { return readsFactor(op, factors, 2); });

  DenseSet<Value> gradients;
  SmallVector<Value> ordered;
  for (Value source : sources) {
    Operation *op = source.getDefiningOp();
    if (!op) {
      report(weight, source.getParentRegion()->getParentOp(),
             "carries entries of its update from step to step of a loop");
      continue;
    }
    // Data that the weight is used with, entry by entry.
    if (isGather(op))
      continue;
    // Of one row or column, products with the weight have its shape: here the
    // way back went through the gradient into the forward pass.
    if (llvm::is_contained(space.shape, 1) &&
        llvm::any_of(op->getOperands(), [&](Value operand) {
          return forwards[number].values.contains(operand);
        })) {
      report(weight, op, "multiplies the weight itself");
      continue;
    }
    // A factor of the update, such as a matrix that scales the weight.
    if (anyReads && !readsFactor(op, factors, 2) && !after.contains(op))
      continue;
    if (producers.size() > 1 && dependents.contains(op)) {
      // What the optimizer computes from gradients alone is its own.
      bool reachesGradient = false;
      if (!reachesData(op, gradients, reachesGradient) && reachesGradient)
        continue;
    }
    gradients.insert(source);
    ordered.push_back(source);
  }
  for (Operation *op : space.fused) {
    bool reachesGradient = false;
    if (gradients.empty() && reachesData(op, gradients, reachesGradient))
      report(weight, op, "computes it and uses it in one");
  }

  reportData(number, gradients);
  return ordered;
}
