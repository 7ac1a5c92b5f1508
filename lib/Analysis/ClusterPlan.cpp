// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How one kernel goes through the operations of a cluster.

#include "bsr/Analysis/ClusterPlan.h"
#include "bsr/Analysis/ChainMatcher.h"
#include "bsr/Analysis/ChainReader.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/Windows.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/ClusterVerifier.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

static bool isResult(Operation *op) {
  return llvm::any_of(op->getUsers(), llvm::IsaPred<YieldOp>);
}

/// The concatenations that `body` makes: not those that are read in pieces.
static SmallVector<tensor::ConcatOp> getConcats(Block &body) {
  return llvm::to_vector(llvm::make_filter_range(
      body.getOps<tensor::ConcatOp>(),
      [](tensor::ConcatOp concat) { return !areReadInLine(concat); }));
}

/// The operations that compute pieces of concatenations in `body`.
static DenseSet<Operation *> getPieces(Block &body) {
  DenseSet<Operation *> pieces;
  for (tensor::ConcatOp concat : getConcats(body))
    for (Value piece : concat.getInputs())
      if (linalg::GenericOp producer = getPieceProducer(piece))
        pieces.insert(producer);
  return pieces;
}

/// Reports an operation of `body` that kernels cannot compute: where it is
/// used, or before that if it `isRoot`.
static bool verifyOperations(Block &body,
                             llvm::function_ref<bool(Operation *)> isRoot,
                             Report report) {
  for (Operation &op : body.without_terminator()) {
    if (isRoot(&op)
            ? canCompute(&op)
            : isInlinable(&op) || areReadInLine(&op) || areSummedUp(&op))
      continue;
    report(&op, "expected an operation that a cluster can compute, but got '" +
                    op.getName().getStringRef() + "'");
    return false;
  }
  return true;
}

/// Reports a root that lies nowhere unless work items go through all nests.
static bool verifyResults(const ClusterPlan &plan, Report report) {
  for (Operation *root : plan.roots)
    if (!isResult(root) && !plan.pieces.contains(root)) {
      report(root, "expected a sum that is a result or is read by the work "
                   "item that computes it, but got one that is neither");
      return false;
    }
  return true;
}

/// True if `root` can be computed in one nest with the roots of `nest`: all are
/// element-wise, over one space, and none is a piece.
static bool isOfNest(const ClusterPlan &plan, ArrayRef<Operation *> nest,
                     Operation *root) {
  return !plan.pieces.contains(root) && !plan.pieces.contains(nest.front()) &&
         isOnePointwiseNest(nest.front(), root);
}

/// True if what `root`, which is no result, makes lies in a buffer: sums over
/// rows are in registers, and for some targets everything is.
static bool isStored(Operation *root, TargetAttrInterface target) {
  return !target.keepsInRegisters() &&
         (target.acceptsEpilogue(root) || isPointwise(root));
}

/// True if memory of work items may have `value`: sums that are transposed.
static bool isKeptByItems(const Chain &chain, Value value) {
  return value == chain.getProduct() && chain.hasTransposed();
}

std::optional<ClusterPlan>
ClusterPlan::match(ClusterOp cluster, TargetAttrInterface target,
                   const DenseSet<Operation *> &stored, Report report) {
  Block &body = cluster.getBody().front();
  if (!verifyOperations(
          body,
          [&](Operation *op) {
            return isResult(op) || target.acceptsEpilogue(op);
          },
          report))
    return std::nullopt;
  ClusterPlan plan;
  plan.pieces = getPieces(body);
  for (Operation &op : body.without_terminator()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!isa<tensor::ConcatOp>(op) && !areSummedUp(&op) &&
        (isResult(&op) || plan.pieces.contains(&op) ||
         target.acceptsEpilogue(&op) || stored.contains(&op) ||
         (generic && !isPointwise(generic))))
      plan.roots.push_back(&op);
  }
  for (Operation *root : plan.roots) {
    if (!plan.nests.empty() && isOfNest(plan, plan.nests.back(), root))
      plan.nests.back().push_back(root);
    else
      plan.nests.push_back({root});
  }

  if (getConcats(body).empty())
    plan.chain = ChainMatcher::match(
        plan.roots,
        [&](Value value) {
          return isa<BlockArgument>(value) ||
                 llvm::is_contained(plan.roots, value.getDefiningOp());
        },
        target);
  if (!plan.chain)
    return verifyResults(plan, report) ? std::optional(std::move(plan))
                                       : std::nullopt;

  auto findPlace = [&](Value value) -> Value {
    for (const Chain::Root &root : plan.chain->getRoots())
      for (Value result : root.op->getResults())
        if (llvm::is_contained(cluster.getYielded(), result) &&
            !llvm::is_contained(llvm::make_second_range(plan.places), result) &&
            plan.chain->canLieAt(value, result))
          return result;
    return {};
  };
  for (Operation *root : plan.roots) {
    if (isResult(root) || !isStored(root, target))
      continue;
    Value value = root->getResult(0);
    if (Value place = findPlace(value))
      plan.places.push_back({value, place});
    else if (!isKeptByItems(*plan.chain, value))
      plan.unplaced.push_back(value);
  }
  // A single nest has its own loops.
  if (plan.nests.size() == 1) {
    plan.chain.reset();
    auto isPlaced = [&](Operation *root) {
      return llvm::any_of(plan.places, [&](auto place) {
        return place.first.getDefiningOp() == root;
      });
    };
    llvm::erase_if(plan.roots, isPlaced);
    llvm::erase_if(plan.nests.front(), isPlaced);
    plan.places.clear();
  } else {
    plan.nests.clear();
  }
  return plan;
}

void ClusterPlan::write(ClusterOp cluster) const {
  MLIRContext *context = cluster.getContext();
  auto setRoot = [&](Operation *root, int64_t nest,
                     ArrayRef<int64_t> loops = {}, bool isTotal = false) {
    std::optional<int64_t> number;
    for (auto [value, place] : places)
      if (value.getDefiningOp() == root)
        number = llvm::find(cluster.getYielded(), place) -
                 cluster.getYielded().begin();
    attrs::root.set(root, RootAttr::get(context, nest, loops, isTotal, number));
  };
  for (auto [number, nest] : llvm::enumerate(nests))
    for (Operation *root : nest)
      setRoot(root, number);
  if (!chain) {
    cluster.setPlanAttr(PlanAttr::get(context, ClusterKind::Nests, {}));
    return;
  }
  if (Value product = chain->getProduct())
    setRoot(product.getDefiningOp(), 0);
  for (const Chain::Root &root : chain->getRoots())
    setRoot(root.op, root.nest, root.shared, root.isTotal);
  cluster.setPlanAttr(
      PlanAttr::get(context, ClusterKind::Chain, chain->getExtents()));
}

//===----------------------------------------------------------------------===//
// Plans that are written down
//===----------------------------------------------------------------------===//

static RootAttr getRoot(Operation *op) { return attrs::root.get(op); }

/// Reports a result, a piece of one or a reduction that is no root.
static bool verifyRoots(Block &body, const DenseSet<Operation *> &pieces,
                        Report report) {
  for (Operation &op : body.without_terminator()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    bool isRoot =
        !isa<tensor::ConcatOp>(op) && (isResult(&op) || pieces.contains(&op) ||
                                       (generic && !isPointwise(generic)));
    if (isRoot && !getRoot(&op)) {
      report(&op, "expected a result, a piece of one or a reduction to have a "
                  "#bsr.root, but got none");
      return false;
    }
    if (isa<tensor::ConcatOp>(op) && getRoot(&op)) {
      report(&op, "expected no #bsr.root of a concatenation, but got one");
      return false;
    }
  }
  return true;
}

/// Divides the roots of `plan` into nests by their numbers; reports what a
/// nest cannot compute.
static bool readNests(ClusterPlan &plan, Report report) {
  for (Operation *root : plan.roots) {
    RootAttr attr = getRoot(root);
    if (!attr.getLoops().empty() || attr.getIsTotal() || attr.getPlace()) {
      report(root, "expected loops, totals and places in a chain, but got one "
                   "of them in nests");
      return false;
    }
    int64_t count = plan.nests.size();
    if (attr.getNest() == count) {
      plan.nests.push_back({root});
    } else if (attr.getNest() + 1 == count &&
               isOfNest(plan, plan.nests.back(), root)) {
      plan.nests.back().push_back(root);
    } else {
      report(root, "expected the last nest, of element-wise operations over "
                   "one space, or a new one, but got nest " +
                       Twine(attr.getNest()));
      return false;
    }
  }
  return true;
}

/// Finds the places of what the chain of `plan` stores; reports what cannot lie
/// where it is said to.
static bool readPlaces(ClusterPlan &plan, ClusterOp cluster,
                       TargetAttrInterface target, Report report) {
  for (Operation *root : plan.roots) {
    std::optional<int64_t> number = getRoot(root).getPlace();
    bool takesPlace = !isResult(root) && isStored(root, target);
    Value value = root->getResult(0), place;
    if (number && *number < static_cast<int64_t>(cluster.getNumResults()))
      place = cluster.getYielded()[*number];
    bool isPlace =
        place && takesPlace && plan.chain->canLieAt(value, place) &&
        !llvm::is_contained(llvm::make_second_range(plan.places), place);
    if (number ? !isPlace : takesPlace && !isKeptByItems(*plan.chain, value)) {
      report(root, "expected a value that is a result or may lie where one of "
                   "its type will, but got " +
                       (number ? "place " + Twine(*number) : Twine("neither")));
      return false;
    }
    if (number)
      plan.places.push_back({value, place});
  }
  return true;
}

std::optional<ClusterPlan>
ClusterPlan::get(ClusterOp cluster, TargetAttrInterface target, Report report) {
  PlanAttr attr = cluster.getPlanAttr();
  if (!attr) {
    report(cluster, "expected a plan, as bsr-cluster and bsr-plan-clusters "
                    "write it, but got none");
    return std::nullopt;
  }
  Block &body = cluster.getBody().front();
  auto isComputed = [](Operation *op) {
    return getRoot(op) || (isa<tensor::ConcatOp>(op) && isResult(op));
  };
  if (!verifyOperations(body, isComputed, report))
    return std::nullopt;
  ClusterPlan plan;
  plan.pieces = getPieces(body);
  if (!verifyRoots(body, plan.pieces, report))
    return std::nullopt;
  for (Operation &op : body.without_terminator())
    if (getRoot(&op))
      plan.roots.push_back(&op);
  if (attr.getKind() == ClusterKind::Nests)
    return readNests(plan, report) && verifyResults(plan, report)
               ? std::optional(std::move(plan))
               : std::nullopt;
  if (!getConcats(body).empty()) {
    report(cluster, "expected no concatenation in a chain, but got one");
    return std::nullopt;
  }
  plan.chain = readChain(
      plan.roots, attr.getShared(),
      [&](Value value) {
        return isa<BlockArgument>(value) || getRoot(value.getDefiningOp());
      },
      target, report);
  if (!plan.chain || !readPlaces(plan, cluster, target, report))
    return std::nullopt;
  return plan;
}

namespace {
struct Verifier : ClusterVerifierInterface {
  using ClusterVerifierInterface::ClusterVerifierInterface;

  LogicalResult verifyPlan(ClusterOp cluster) const override {
    return success(
        ClusterPlan::get(cluster, getTarget(cluster), emitReport).has_value());
  }
};
} // namespace

void bsr::registerClusterPlanVerifier(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, BSRDialect *dialect) {
    dialect->addInterfaces<Verifier>();
  });
}
