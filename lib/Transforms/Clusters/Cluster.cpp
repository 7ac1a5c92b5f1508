// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups the operations of a step into clusters, one per structure. (Upstream's
// elimination of duplicate functions compares func.func only, and pair by
// pair.)

#include "FusionGroups.h"
#include "Pieces.h"
#include "bsr/Analysis/ClusterPlan.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/Schedules.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCLUSTER
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// A copy of `group` in a cluster without results: its arguments are `inputs`.
static ClusterOp outline(const FusionGroups::Group &group,
                         const SetVector<Value> &inputs,
                         const SetVector<Operation *> &members,
                         IRMapping &mapping) {
  Location loc = group.front()->getLoc();
  OpBuilder b(group.front()->getContext());
  auto type = b.getFunctionType(TypeRange(inputs.getArrayRef()), {});
  auto cluster = ClusterOp::create(b, loc, "cluster", type);
  setWork(cluster, members.getArrayRef());
  b.setInsertionPointToStart(&cluster.getBody().front());
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
    attrs::recomputed.remove(copy);
    attrs::peak.remove(copy);
  }
  YieldOp::create(b, loc, ValueRange());
  addPieceProducers(cluster);
  return cluster;
}

/// The plan of `cluster`, a copy of `group` by `mapping`, whose `results`
/// become those that it must have: what `kept` says that others read, and what
/// has no other place. If no work item can do all of the rest, each root's.
static std::optional<ClusterPlan>
plan(ClusterOp cluster, const FusionGroups::Group &group,
     const FusionGroups::Kept &kept, const IRMapping &mapping,
     TargetAttrInterface target, SmallVector<Value> &results) {
  auto yield = [&] {
    cluster.setYielded(llvm::map_to_vector(
        results, [&](Value result) { return mapping.lookup(result); }));
  };
  results = kept.used;
  yield();
  DenseSet<Operation *> stored;
  for (Operation *root : kept.stored)
    stored.insert(mapping.lookup(root));
  std::optional<ClusterPlan> plan = ClusterPlan::match(
      cluster, target, stored, [](Operation *, const Twine &) {});
  if (!plan) {
    results.clear();
    for (Operation *root : group)
      llvm::append_range(results, root->getResults());
    yield();
    return ClusterPlan::match(cluster, target, /*stored=*/{}, emitReport);
  }
  for (Operation *root : group)
    for (Value result : root->getResults())
      if (llvm::is_contained(plan->unplaced, mapping.lookup(result)))
        results.push_back(result);
  yield();
  return plan;
}

/// Leaves on `step` how many products of each kind its clusters compute
/// (`bsr.products`), and how many clusters go between a dense matrix and its
/// stored blocks (`bsr.left_dense`).
static void countProducts(func::FuncOp step, const FusionGroups &groups) {
  llvm::MapVector<StringRef, int64_t> counts;
  for (StringRef kind : {"spmm", "spmm_transposed", "sddmm", "dense"})
    counts[kind] = 0;
  int64_t leftDense = 0;
  for (const FusionGroups::Group &group : groups.groups) {
    SetVector<Value> inputs;
    SetVector<Operation *> members;
    groups.collect(group, inputs, members);
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
  attrs::products.set(step, b.getDictionaryAttr(products));
  attrs::leftDense.set(step, b.getI64IntegerAttr(leftDense));
}

/// True if one of `inputs` is a pattern, which clusters alone know.
static bool hasPattern(const SetVector<Value> &inputs) {
  return llvm::any_of(
      inputs, [](Value input) { return isa<PatternType>(input.getType()); });
}

/// Says what `launch`, of a cluster with plan `plan`, computes.
static void remarkCluster(LaunchOp launch, const FusionGroups::Group &group,
                          const ClusterPlan &plan) {
  PassRemark remark = PassRemark::passed("bsr-cluster", "ClusterMade", launch);
  if (!remark)
    return;
  std::string roots;
  for (Operation *root : group)
    roots += (roots.empty() ? "" : ", ") + getWorkKind(root).str();
  int64_t flops = 0;
  for (Operation *root : group)
    flops += getFlops(root);
  remark.add("Kernel", launch.getKernel())
      .add("Roots", roots)
      .add("Plan", plan.chain ? "chain" : "nests")
      .add("FLOPs", flops);
}

/// True if `func` is a step as the front ends write it.
static bool isStep(func::FuncOp func) {
  return llvm::any_of(llvm::seq(func.getNumArguments()), [&](unsigned arg) {
    return attrs::name.ofArg(func, arg) != nullptr;
  });
}

namespace {
/// Clusters by what they compute, whatever they are called.
class Structures {
public:
  /// The cluster that computes what `cluster`, which has no name of its own
  /// yet, does; if there is none yet, null, and `cluster` is the first.
  ClusterOp findOrAdd(ClusterOp cluster) {
    SmallVector<ClusterOp, 1> &alike = known[computeHash(cluster)];
    StringAttr name = cluster.getSymNameAttr();
    for (ClusterOp other : alike) {
      cluster.setSymNameAttr(other.getSymNameAttr());
      if (OperationEquivalence::isEquivalentTo(
              cluster, other, OperationEquivalence::IgnoreLocations))
        return other;
    }
    cluster.setSymNameAttr(name);
    alike.push_back(cluster);
    return nullptr;
  }

private:
  static llvm::hash_code computeHash(ClusterOp cluster) {
    llvm::hash_code hash(0);
    cluster.getBody().walk([&](Operation *op) {
      hash = llvm::hash_combine(hash,
                                OperationEquivalence::computeHash(
                                    op, OperationEquivalence::ignoreHashValue,
                                    OperationEquivalence::ignoreHashValue,
                                    OperationEquivalence::IgnoreLocations));
    });
    return hash;
  }

  llvm::DenseMap<size_t, SmallVector<ClusterOp, 1>> known;
};

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
      if (failed(run(step, symbols)))
        return signalPassFailure();
  }

  LogicalResult run(func::FuncOp step, SymbolTable &symbols) {
    Block &block = step.getBody().front();
    for (Operation &op : block)
      if (failed(verifySchedule(&op)))
        return failure();
    // What bsr-recompute computes again everywhere is left where it was: it
    // would be a cluster that nothing launches.
    eraseDead(block);
    TargetAttrInterface target = getTarget(step);
    FusionGroups groups(block, target);
    if (isStep(step))
      countProducts(step, groups);
    for (size_t number = 0; number != groups.groups.size(); ++number) {
      const FusionGroups::Group &group = groups.groups[number];
      FusionGroups::Kept kept = groups.getKept(number);
      if (kept.used.empty())
        continue;
      SetVector<Value> inputs;
      SetVector<Operation *> members;
      groups.collect(group, inputs, members);
      if (!isHostApart && !hasPattern(inputs) &&
          !decide("bsr-cluster", group.front()))
        continue;
      IRMapping mapping;
      ClusterOp cluster = outline(group, inputs, members, mapping);
      SmallVector<Value> results;
      auto chosen = plan(cluster, group, kept, mapping, target, results);
      if (!chosen) {
        cluster.erase();
        return failure();
      }
      chosen->write(cluster);
      StringAttr name;
      if (ClusterOp known = structures.findOrAdd(cluster)) {
        name = known.getSymNameAttr();
        cluster.erase();
      } else {
        name = symbols.insert(cluster);
        ++numStructures;
      }
      OpBuilder b(group.front());
      Location loc = group.front()->getLoc();
      SmallVector<Value> inits;
      for (Value result : results) {
        auto type = cast<RankedTensorType>(result.getType());
        inits.push_back(tensor::EmptyOp::create(b, loc, type.getShape(),
                                                type.getElementType()));
      }
      auto launch = LaunchOp::create(
          b, loc, TypeRange(ValueRange(results)), FlatSymbolRefAttr::get(name),
          ValueRange(inputs.getArrayRef()), ValueRange(inits),
          b.getDenseI64ArrayAttr({}));
      // What is computed again must not be merged with the first time.
      if (llvm::any_of(group, [](Operation *root) {
            return attrs::recomputed.isOn(root);
          }))
        attrs::recomputed.set(launch, b.getUnitAttr());
      for (auto [result, value] : llvm::zip_equal(results, launch.getResults()))
        replacements.insert({result, value});
      remarkCluster(launch, group, *chosen);
      ++numClusters;
    }
    // Values are replaced at the end: until then the graph is the old one.
    for (auto [from, to] : replacements)
      from.replaceAllUsesWith(to);
    replacements.clear();
    eraseDead(block);
    return success();
  }

  Structures structures;
  llvm::MapVector<Value, Value> replacements;
};
} // namespace
