// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups the operations of a step into clusters, one per structure. (Upstream's
// elimination of duplicate functions compares func.func only, and pair by
// pair.)

#include "Groups.h"
#include "bsr/Analysis/Kernels.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCLUSTER
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// A copy of `group` in a cluster: inputs in order of first use, then results.
/// Those of `placed` that are element-wise say that they are stored.
static ClusterOp outline(const Groups::Group &group,
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
    copy->removeAttr(attrs::recomputed);
    copy->removeAttr(attrs::peak);
    if (isPointwise(member) && llvm::is_contained(placed, member))
      copy->setAttr(attrs::stored, b.getUnitAttr());
  }
  SmallVector<Value> returned = llvm::map_to_vector(
      results, [&](Value result) { return mapping.lookup(result); });
  YieldOp::create(b, loc, returned);
  return cluster;
}

/// Leaves on `step` how many products of each kind its clusters compute
/// (`bsr.products`), and how many clusters go between a dense matrix and its
/// stored blocks (`bsr.left_dense`).
static void countProducts(func::FuncOp step, const Groups &groups) {
  llvm::MapVector<StringRef, int64_t> counts;
  for (StringRef kind : {"spmm", "spmm_transposed", "sddmm", "dense"})
    counts[kind] = 0;
  int64_t leftDense = 0;
  for (const Groups::Group &group : groups.groups) {
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
  step->setAttr(attrs::products, b.getDictionaryAttr(products));
  step->setAttr(attrs::leftDense, b.getI64IntegerAttr(leftDense));
}

/// Erases the operations of `block` that nothing needs.
static void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// True if `func` is a step as the front doors write it.
static bool isStep(func::FuncOp func) {
  return llvm::any_of(llvm::seq(func.getNumArguments()), [&](unsigned arg) {
    return func.getArgAttr(arg, attrs::name) != nullptr;
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
    // What bsr-recompute computes again everywhere is left where it was: it
    // would be a cluster that nothing launches.
    eraseDead(block);
    Groups groups(block, getTarget(step));
    if (isStep(step))
      countProducts(step, groups);
    for (size_t number = 0; number != groups.groups.size(); ++number) {
      const Groups::Group &group = groups.groups[number];
      SetVector<Value> inputs;
      SetVector<Operation *> members;
      groups.collect(group, inputs, members);
      SmallVector<Operation *> placed;
      SmallVector<Value> results = groups.getResults(number, placed);
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
            return root->hasAttr(attrs::recomputed);
          }))
        launch->setAttr(attrs::recomputed, b.getUnitAttr());
      for (auto [result, value] : llvm::zip_equal(results, launch.getResults()))
        replacements.insert({result, value});
      ++numClusters;
    }
    // Values are replaced at the end: until then the graph is the old one.
    for (auto [from, to] : replacements)
      from.replaceAllUsesWith(to);
    replacements.clear();
    eraseDead(block);
  }

  llvm::StringMap<StringAttr> structures;
  llvm::MapVector<Value, Value> replacements;
};
} // namespace
