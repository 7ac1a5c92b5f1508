// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups the operations of a step into clusters, one per structure.

#include "bsr/Analysis/Chain.h"
#include "bsr/Analysis/Kernels.h"
#include "bsr/Analysis/Materialization.h"
#include "bsr/Analysis/Order.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCLUSTER
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// Groups what is not computed where it is used.
class Clusters {
public:
  Clusters(Block &block, TargetAttrInterface target);

  /// A group of roots that one function computes; the first root's place is
  /// where the launch goes. Empty where all of them went to another one.
  using Group = SmallVector<Operation *>;
  SmallVector<Group> groups;

  /// The tensors that `group` reads, in order of first use, and the operations
  /// computed inside of it, roots included, in program order.
  void collect(const Group &group, SetVector<Value> &inputs,
               SetVector<Operation *> &members) const;

  /// The results of group `number` that are kept in memory; `placed` become the
  /// roots whose results are, too, but where one of the others will be.
  SmallVector<Value> getResults(size_t number,
                                SmallVectorImpl<Operation *> &placed) const;

private:
  bool isUsedOutside(Value value, const Group &group) const;
  bool isCheaperThanMemory(Operation *root, const Group &group) const;
  bool isProduct(size_t number) const {
    return !groups[number].empty() &&
           target.acceptsEpilogue(groups[number].front());
  }
  bool join(size_t number, Operation *root, const SetVector<Value> &inputs);
  bool follow(size_t number, Operation *root, const SetVector<Value> &inputs);
  std::optional<size_t> findGroup(Operation *root,
                                  const SetVector<Value> &inputs);
  void group(Operation *root);
  int64_t getTime(Value value) const;

  TargetAttrInterface target;
  TargetCosts costs;
  Materialization roots;
  /// When a value is there: the number of the group or of the other operation
  /// that makes it.
  DenseMap<Operation *, int64_t> times;
  int64_t now = 0;
  /// The first group that may still grow.
  size_t firstOpen = 0;
  struct State {
    int64_t time;
    /// All roots are element-wise, of one space.
    bool isOneNest;
    /// The roots, if a work item can compute all of them.
    std::optional<Chain> chain;
  };
  /// What is known of each group; the groups of roots; those that read a value.
  std::vector<State> states;
  DenseMap<Operation *, size_t> groupOf;
  DenseMap<Value, SmallVector<size_t>> readers;
};
} // namespace

int64_t Clusters::getTime(Value value) const {
  Operation *op = value.getDefiningOp();
  return op ? times.lookup(op) : -1;
}

void Clusters::collect(const Group &group, SetVector<Value> &inputs,
                       SetVector<Operation *> &members) const {
  SmallVector<Operation *> sorted;
  DenseSet<Operation *> visited;
  auto visit = [&](auto &self, Operation *op) -> void {
    if (!visited.insert(op).second)
      return;
    auto visitValue = [&](Value value) {
      if (value.getParentRegion()->getParentOp() != op->getParentOp())
        return;
      Operation *producer = value.getDefiningOp();
      if (producer && (llvm::is_contained(group, producer) ||
                       (!roots.contains(producer) && isInlinable(producer))))
        self(self, producer);
      else
        inputs.insert(value);
    };
    for (auto [number, operand] : llvm::enumerate(op->getOperands())) {
      // An init that is not read is not an input.
      auto generic = dyn_cast<linalg::GenericOp>(op);
      if (generic && generic.isDpsInit(&op->getOpOperand(number)) &&
          !generic.payloadUsesValueFromOperand(&op->getOpOperand(number)) &&
          !operand.getDefiningOp<tensor::EmptyOp>())
        continue;
      // The offset of a slice is an input: see loosenSlices.
      if (isa<tensor::ExtractSliceOp>(op) && operand.getType().isIndex())
        inputs.insert(operand);
      else
        visitValue(operand);
    }
    op->walk([&](Operation *inner) {
      if (inner != op)
        for (Value operand : inner->getOperands())
          if (operand.getParentRegion() == op->getParentRegion())
            visitValue(operand);
    });
    members.insert(op);
  };
  for (Operation *root : group)
    visit(visit, root);
}

/// True if `input` has an element for each point of `root`.
static bool isLarge(Value input, Operation *root) {
  auto type = dyn_cast<RankedTensorType>(input.getType());
  auto generic = dyn_cast<linalg::GenericOp>(root);
  return type && generic && type.getNumElements() >= getNumPoints(generic);
}

/// True if `root` makes the next value of an argument that it reads: an
/// element-wise update that happens where the argument lies, and therefore in a
/// kernel that writes nothing before.
static bool isUpdate(Operation *root, const SetVector<Value> &inputs) {
  auto step = cast<func::FuncOp>(root->getParentOp());
  Operation *terminator = root->getBlock()->getTerminator();
  return llvm::any_of(inputs, [&](Value input) {
    auto argument = dyn_cast<BlockArgument>(input);
    if (!argument)
      return false;
    auto next = step.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                   "bsr.result");
    return next &&
           terminator->getOperand(next.getInt()).getDefiningOp() == root;
  });
}

bool Clusters::join(size_t number, Operation *root,
                    const SetVector<Value> &inputs) {
  Group &group = groups[number];
  State &state = states[number];
  bool isOneNest = state.isOneNest && group.size() < costs.maxOutputs &&
                   isOnePointwiseNest(group.front(), root);
  bool isChain =
      state.chain && group.size() < costs.maxRoots && !isUpdate(root, inputs) &&
      state.chain->add(cast<linalg::GenericOp>(root),
                       [&](Value value) { return roots.isLeaf(value); });
  if (!isOneNest && !isChain)
    return false;
  if (!isChain)
    state.chain.reset();
  state.isOneNest = isOneNest;
  group.push_back(root);
  return true;
}

/// Lets `root` follow the product that group `number` is, together with the
/// groups that make what is not there yet when the product runs.
bool Clusters::follow(size_t number, Operation *root,
                      const SetVector<Value> &inputs) {
  State &state = states[number];
  SetVector<size_t> late;
  for (Value input : inputs) {
    if (getTime(input) <= state.time)
      continue;
    auto made = groupOf.find(input.getDefiningOp());
    if (made == groupOf.end() || !states[made->second].chain ||
        isProduct(made->second))
      return false;
    late.insert(made->second);
  }
  Group followers;
  for (size_t other : late) {
    SetVector<Value> needed;
    SetVector<Operation *> members;
    collect(groups[other], needed, members);
    if (llvm::any_of(needed,
                     [&](Value value) { return getTime(value) > state.time; }))
      return false;
    llvm::append_range(followers, groups[other]);
  }
  followers.push_back(root);
  if (groups[number].size() + followers.size() > costs.maxRoots ||
      isUpdate(root, inputs))
    return false;
  Chain chain = *state.chain;
  for (Operation *follower : followers)
    if (!chain.add(cast<linalg::GenericOp>(follower),
                   [&](Value value) { return roots.isLeaf(value); }))
      return false;
  state.chain = std::move(chain);
  llvm::append_range(groups[number], followers);
  for (size_t other : late)
    groups[other].clear();
  for (Operation *follower : followers) {
    times[follower] = state.time;
    groupOf[follower] = number;
  }
  return true;
}

/// Lets `root` join a group that makes or reads one of its inputs: a product
/// that it can follow, or else the last one that runs when all of the inputs
/// are there.
std::optional<size_t> Clusters::findGroup(Operation *root,
                                          const SetVector<Value> &inputs) {
  if (!isChainable(root))
    return std::nullopt;
  int64_t ready = -1;
  SmallVector<size_t> candidates;
  for (Value input : inputs) {
    ready = std::max(ready, getTime(input));
    auto made = groupOf.find(input.getDefiningOp());
    if (made != groupOf.end())
      candidates.push_back(made->second);
  }
  llvm::sort(candidates, std::greater<>());
  for (size_t number : candidates)
    if (number >= firstOpen && isProduct(number) && states[number].chain &&
        follow(number, root, inputs))
      return number;
  for (Value input : inputs)
    if (isLarge(input, root))
      llvm::append_range(candidates, readers.lookup(input));
  llvm::sort(candidates, std::greater<>());
  candidates.erase(llvm::unique(candidates), candidates.end());
  auto joined = llvm::find_if(candidates, [&](size_t number) {
    return number >= firstOpen && states[number].time >= ready &&
           !groups[number].empty() && !isProduct(number) &&
           join(number, root, inputs);
  });
  return joined == candidates.end() ? std::nullopt : std::optional(*joined);
}

void Clusters::group(Operation *root) {
  SetVector<Value> inputs;
  SetVector<Operation *> members;
  collect({root}, inputs, members);
  std::optional<size_t> joined = findGroup(root, inputs);
  size_t number = joined.value_or(groups.size());
  if (!joined) {
    groups.push_back({root});
    states.push_back({++now, isOnePointwiseNest(root, root), std::nullopt});
    if (target.acceptsEpilogue(root) ||
        (isChainable(root) && !isUpdate(root, inputs)))
      states.back().chain = Chain::match(
          {root}, [&](Value value) { return roots.isLeaf(value); }, target);
  }
  times[root] = states[number].time;
  groupOf[root] = number;
  for (Value input : inputs)
    readers[input].push_back(number);
}

bool Clusters::isUsedOutside(Value value, const Group &group) const {
  SetVector<Value> reached;
  reached.insert(value);
  for (size_t next = 0; next != reached.size(); ++next) {
    for (Operation *user : reached[next].getUsers()) {
      while (user->getBlock() != value.getParentBlock())
        user = user->getParentOp();
      if (llvm::is_contained(group, user))
        continue;
      if (roots.contains(user) || !isInlinable(user))
        return true;
      reached.insert(user->result_begin(), user->result_end());
    }
  }
  return false;
}

/// True if computing `root` again reads no more than reading its result would.
bool Clusters::isCheaperThanMemory(Operation *root, const Group &group) const {
  SetVector<Value> inputs;
  SetVector<Operation *> members;
  collect({root}, inputs, members);
  return roots.getCost(root) < costs.stored &&
         llvm::count_if(
             inputs, [&](Value input) { return isLarge(input, root); }) <= 1 &&
         llvm::none_of(inputs, [&](Value input) {
           return isLarge(input, root) &&
                  llvm::is_contained(group, input.getDefiningOp());
         });
}

SmallVector<Value>
Clusters::getResults(size_t number,
                     SmallVectorImpl<Operation *> &placed) const {
  const Group &group = groups[number];
  const State &state = states[number];
  bool isChain = group.size() > 1 && !state.isOneNest;
  DenseSet<Value> stored;
  if (isChain)
    stored = state.chain->getStored();
  SmallVector<Value> all, used, inside;
  SmallVector<Operation *> seen;
  for (Operation *root : group) {
    llvm::append_range(all, root->getResults());
    bool isSeen = !isPointwise(root);
    for (Value result : root->getResults()) {
      bool isUsed = isUsedOutside(result, group);
      bool isStored =
          isChain &&
          (target.acceptsEpilogue(root) ||
           (stored.contains(result) && !isCheaperThanMemory(root, group)));
      if (isUsed)
        used.push_back(result);
      else if (isStored)
        inside.push_back(result);
      isSeen |= isUsed || isStored;
    }
    if (isSeen)
      seen.push_back(root);
  }
  // bsr-emit sees no more than the results and the reductions: what is only
  // computed on the way must not be what makes them a chain.
  auto isLeafThere = [&](Value value) {
    return roots.isLeaf(value) &&
           (!llvm::is_contained(group, value.getDefiningOp()) ||
            llvm::is_contained(seen, value.getDefiningOp()));
  };
  if (!isChain || used.empty())
    return used;
  std::optional<Chain> chain = Chain::match(seen, isLeafThere, target);
  if (!chain)
    return all;
  // What nobody else reads lies where a result will, or becomes one.
  auto isUsed = [&](Value value) { return llvm::is_contained(used, value); };
  SmallVector<Value> results(used);
  for (auto [value, place] :
       llvm::zip_equal(inside, chain->getPlaces(inside, isUsed)))
    if (place)
      placed.push_back(value.getDefiningOp());
    else
      results.push_back(value);
  return results;
}

Clusters::Clusters(Block &block, TargetAttrInterface target)
    : target(target), costs(target.getCosts()), roots(block, costs) {
  for (Operation &op : block.without_terminator()) {
    // What comes after the peak of memory is not computed before it.
    if (op.hasAttr("bsr.peak"))
      firstOpen = groups.size();
    if (roots.contains(&op)) {
      group(&op);
      continue;
    }
    if (!isInlinable(&op)) {
      times[&op] = ++now;
      continue;
    }
    // What stays outside as well is there when its operands are.
    int64_t time = -1;
    for (Value operand : op.getOperands())
      time = std::max(time, getTime(operand));
    times[&op] = time;
  }
}

/// Moves what makes scalars to where its operands are there, so that an update
/// that needs them (a bias correction, a learning rate) need not wait.
static void hoistScalars(Block &block) {
  Order order(block);
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
    if (!isMemoryEffectFree(&op) || op.getNumResults() == 0 ||
        !llvm::all_of(op.getResultTypes(), [](Type type) {
          auto tensor = dyn_cast<RankedTensorType>(type);
          return !tensor ||
                 (tensor.hasStaticShape() && tensor.getNumElements() == 1);
        }))
      continue;
    Operation *after = nullptr;
    op.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands()) {
        Operation *producer = operand.getDefiningOp();
        if (producer && producer->getBlock() == &block &&
            (!after || order.isBefore(after, producer)))
          after = producer;
      }
    });
    order.moveAfter(&op, after);
  }
}

/// Makes the reduced loops of operations parallel where each has one iteration:
/// what is reduced is one element then, which joins the init where it is used.
/// A product stays one.
static void dropUnitReductions(Block &block) {
  for (auto op : block.getOps<linalg::GenericOp>()) {
    if (op.getNumReductionLoops() == 0 || linalg::isaContractionOpInterface(op))
      continue;
    SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
    bool isUnit = llvm::all_of(
        llvm::zip_equal(kinds, op.getStaticLoopRanges()), [](auto it) {
          auto [kind, range] = it;
          return kind == utils::IteratorType::parallel || range == 1;
        });
    if (!isUnit)
      continue;
    Builder b(op.getContext());
    Attribute parallel = linalg::IteratorTypeAttr::get(
        op.getContext(), utils::IteratorType::parallel);
    op.setIteratorTypesAttr(
        b.getArrayAttr(SmallVector<Attribute>(kinds.size(), parallel)));
  }
}

/// Gives slices an offset that is a value along a dimension of which they take
/// one entry, if there are many of one tensor and shape: what the steps of a
/// loop read is then an argument of one kernel.
static void loosenSlices(Block &block, unsigned maxSlices) {
  llvm::MapVector<std::pair<Value, Type>, SmallVector<tensor::ExtractSliceOp>>
      slices;
  for (auto op : block.getOps<tensor::ExtractSliceOp>())
    if (op.hasUnitStride() && op.getOffsets().empty() && op.getSizes().empty())
      slices[{op.getSource(), op.getType()}].push_back(op);
  for (auto &[source, ops] : slices) {
    if (ops.size() <= maxSlices)
      continue;
    for (tensor::ExtractSliceOp op : ops) {
      OpBuilder b(op), atStart = OpBuilder::atBlockBegin(&block);
      SmallVector<OpFoldResult> offsets = op.getMixedOffsets();
      for (auto [dim, offset] : llvm::enumerate(offsets))
        if (op.getStaticSizes()[dim] == 1 &&
            op.getSourceType().getDimSize(dim) != 1)
          // A launch goes where the first operation of its cluster is.
          offset = arith::ConstantIndexOp::create(atStart, op.getLoc(),
                                                  op.getStaticOffsets()[dim])
                       .getResult();
      op.replaceAllUsesWith(tensor::ExtractSliceOp::create(
                                b, op.getLoc(), op.getType(), op.getSource(),
                                offsets, op.getMixedSizes(),
                                op.getMixedStrides())
                                .getResult());
      op.erase();
    }
  }
}

/// A copy of `group` in a cluster: inputs in order of first use, then results.
/// Those of `placed` that are element-wise say that they are stored.
static ClusterOp outline(const Clusters::Group &group,
                         const SetVector<Value> &inputs,
                         const SetVector<Operation *> &members,
                         ArrayRef<Value> results,
                         ArrayRef<Operation *> placed) {
  Location loc = group.front()->getLoc();
  OpBuilder b(group.front()->getContext());
  auto type = b.getFunctionType(TypeRange(inputs.getArrayRef()),
                                TypeRange(ValueRange(results)));
  auto cluster = ClusterOp::create(b, loc, "cluster", type);
  setWork(cluster, members.getArrayRef());
  b.setInsertionPointToStart(&cluster.getBody().front());
  IRMapping mapping;
  mapping.map(inputs.getArrayRef(), cluster.getArguments());
  for (Operation *member : members) {
    // The init of a result is a tensor of its own, unless it is read.
    if (auto generic = dyn_cast<linalg::GenericOp>(member))
      for (OpOperand &init : generic.getDpsInitsMutable())
        if (!mapping.contains(init.get())) {
          auto tensor = cast<RankedTensorType>(init.get().getType());
          mapping.map(init.get(),
                      tensor::EmptyOp::create(b, loc, tensor.getShape(),
                                              tensor.getElementType())
                          .getResult());
        }
    Operation *copy = b.clone(*member, mapping);
    copy->removeAttr("bsr.recomputed");
    copy->removeAttr("bsr.peak");
    if (isPointwise(member) && llvm::is_contained(placed, member))
      copy->setAttr("bsr.stored", b.getUnitAttr());
  }
  SmallVector<Value> returned = llvm::map_to_vector(
      results, [&](Value result) { return mapping.lookup(result); });
  YieldOp::create(b, loc, returned);
  return cluster;
}

/// Leaves on `step` how many products of each kind its clusters compute
/// (`bsr.products`), and how many clusters go between a dense matrix and its
/// stored blocks (`bsr.left_dense`).
static void countProducts(func::FuncOp step, const Clusters &clusters) {
  llvm::MapVector<StringRef, int64_t> counts;
  for (StringRef kind : {"spmm", "spmm_transposed", "sddmm", "dense"})
    counts[kind] = 0;
  int64_t leftDense = 0;
  for (const Clusters::Group &group : clusters.groups) {
    SetVector<Value> inputs;
    SetVector<Operation *> members;
    clusters.collect(group, inputs, members);
    for (Operation *op : members) {
      leftDense += isa<ToDenseOp, SampleOp>(op);
      auto *count = counts.find(getWorkKind(op));
      if (count != counts.end())
        ++count->second;
    }
  }
  Builder b(step.getContext());
  SmallVector<NamedAttribute> products;
  for (auto [name, count] : counts)
    products.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(count)));
  step->setAttr("bsr.products", b.getDictionaryAttr(products));
  step->setAttr("bsr.left_dense", b.getI64IntegerAttr(leftDense));
}

/// True if `func` is a step as the front doors write it.
static bool isStep(func::FuncOp func) {
  return llvm::any_of(llvm::seq(func.getNumArguments()), [&](unsigned arg) {
    return func.getArgAttr(arg, "bsr.name") != nullptr;
  });
}

namespace {
struct Cluster : bsr::impl::BSRClusterBase<Cluster> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<func::FuncOp> steps;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isDeclaration() && func.getBody().hasOneBlock() &&
          func.isPublic())
        steps.push_back(func);
    for (func::FuncOp step : steps)
      run(step, symbols);
  }

  void run(func::FuncOp step, SymbolTable &symbols) {
    Block &block = step.getBody().front();
    hoistScalars(block);
    dropUnitReductions(block);
    TargetAttrInterface target = getTarget(step);
    loosenSlices(block, target.getCosts().maxSlices);
    Clusters clusters(block, target);
    if (isStep(step))
      countProducts(step, clusters);
    for (size_t number = 0; number != clusters.groups.size(); ++number) {
      const Clusters::Group &group = clusters.groups[number];
      SetVector<Value> inputs;
      SetVector<Operation *> members;
      clusters.collect(group, inputs, members);
      SmallVector<Operation *> placed;
      SmallVector<Value> results = clusters.getResults(number, placed);
      if (results.empty())
        continue;
      ClusterOp cluster = outline(group, inputs, members, results, placed);
      std::string text;
      llvm::raw_string_ostream(text) << cluster;
      auto [known, isNew] = structures.try_emplace(text);
      if (isNew) {
        known->second = symbols.insert(cluster);
        ++numStructures;
      } else {
        cluster.erase();
      }
      OpBuilder b(group.front());
      Location loc = group.front()->getLoc();
      SmallVector<Value> inits;
      for (Value result : results) {
        auto type = cast<RankedTensorType>(result.getType());
        inits.push_back(tensor::EmptyOp::create(b, loc, type.getShape(),
                                                type.getElementType()));
      }
      auto launch =
          LaunchOp::create(b, loc, TypeRange(ValueRange(results)),
                           FlatSymbolRefAttr::get(known->second),
                           ValueRange(inputs.getArrayRef()), ValueRange(inits),
                           b.getDenseI64ArrayAttr({}));
      // What is computed again must not be merged with the first time.
      if (llvm::any_of(group, [](Operation *root) {
            return root->hasAttr("bsr.recomputed");
          }))
        launch->setAttr("bsr.recomputed", b.getUnitAttr());
      for (auto [result, value] : llvm::zip_equal(results, launch.getResults()))
        replacements.insert({result, value});
      ++numClusters;
    }
    // Values are replaced at the end: until then the graph is the old one.
    for (auto [from, to] : replacements)
      from.replaceAllUsesWith(to);
    replacements.clear();
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  llvm::StringMap<StringAttr> structures;
  llvm::MapVector<Value, Value> replacements;
};
} // namespace
