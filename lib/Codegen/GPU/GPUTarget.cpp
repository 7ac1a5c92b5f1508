// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GPUs: products on tensor cores where they fit; else every element of a result
// is a thread's, or, where it is a long sum, of several.

#include "bsr/Codegen/GPU/GPUTarget.h"
#include "GPUDispatch.h"
#include "PlainProducts.h"
#include "bsr/Analysis/InPlace.h"
#include "bsr/Codegen/Common/Nests.h"
#include "bsr/Codegen/GPU/Core/Elementwise.h"
#include "bsr/Codegen/GPU/Core/GPUEvaluator.h"
#include "bsr/Codegen/GPU/Reductions/ChainRows.h"
#include "bsr/Codegen/GPU/Reductions/Reductions.h"
#include "bsr/Codegen/GPU/Reductions/ScatterAdds.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// True if `root` makes a piece of a concatenation along rows, which are then
/// longer than those of the piece.
static bool isPartOfRows(Operation *root) {
  Value piece = root->getResult(0);
  while (auto collapse =
             dyn_cast<tensor::CollapseShapeOp>(*piece.getUsers().begin()))
    piece = collapse.getResult();
  auto concat = dyn_cast<tensor::ConcatOp>(*piece.getUsers().begin());
  return !concat ||
         int64_t(concat.getDim()) == concat.getResultType().getRank() - 1;
}

/// `root`, which is computed by launches of its own, as a product on tensor
/// cores; null if it is none.
static std::unique_ptr<Product> matchRoot(const ClusterPlan &plan,
                                          Operation *root, GPUAttr chip) {
  std::unique_ptr<Product> product = matchProduct(root, chip);
  // Pieces lie in a larger buffer.
  if (product && plan.pieces.contains(root) &&
      (!product->acceptsPieces() || isPartOfRows(root)))
    return nullptr;
  return product;
}

/// The memory for the launches of `root`.
static SmallVector<MemRefType> getRootScratch(const ClusterPlan &plan,
                                              Operation *root, GPUAttr chip) {
  if (std::unique_ptr<Product> product = matchRoot(plan, root, chip))
    return product->getScratch();
  SmallVector<MemRefType> scratch = getRowScratch(root);
  return scratch.empty() ? getReductionScratch(root) : scratch;
}

/// Emits `kernel` as launches of each nest, or of each root of its chain.
static LogicalResult emitRoots(OpBuilder &b, KernelBody &kernel, GPUAttr chip) {
  GPUEvaluator evaluator(b, kernel.loc);
  ValueRange scratch =
      kernel.scratch.drop_front(getNestScratch(kernel.plan).size());
  auto emitRoot = [&](Evaluator &e, Operation *root,
                      const DenseMap<Value, Value> &outputs,
                      const PatternViews &patterns) {
    size_t count = getRootScratch(kernel.plan, root, chip).size();
    ValueRange memory = scratch.take_front(count);
    scratch = scratch.drop_front(count);
    std::unique_ptr<Product> product = matchRoot(kernel.plan, root, chip);
    if (product) {
      remarkTile(root, *product);
      e.hasFailed |= failed(product->emit(b, kernel, memory));
    } else if (!emitRowSums(e, root, outputs.lookup(root->getResult(0)),
                            patterns, memory) &&
               !emitReduction(e, root, outputs, patterns, memory)) {
      emitLoops(e, root, outputs, patterns);
    }
  };
  return emitNests(evaluator, kernel,
                   [&](Evaluator &e, ArrayRef<Operation *> nest,
                       const DenseMap<Value, Value> &outputs,
                       const PatternViews &patterns) {
                     if (emitPointwise(e, nest, outputs))
                       return;
                     for (Operation *root : nest)
                       emitRoot(e, root, outputs, patterns);
                   });
}

namespace {
struct Model : TargetAttrInterface::ExternalModel<Model, GPUAttr> {
  // Not measured on a device.
  TargetCosts getCosts(Attribute) const {
    TargetCosts costs;
    costs.maxOutputs = 8;
    costs.maxRoots = 16;
    // Operations cost less than traffic: of f32 that is made of 16-bit values,
    // these are kept.
    costs.extendedEighths = 5;
    // 1.2 us of an H100's memory.
    costs.launchBytes = int64_t(4) << 20;
    return costs;
  }
  bool acceptsEpilogue(Attribute chip, Operation *op) const {
    std::unique_ptr<Product> product = matchProduct(op, cast<GPUAttr>(chip));
    return product && product->getSpace();
  }
  bool keepsInRegisters(Attribute) const { return true; }
  /// Plain kernels compute every score again wherever it is part of a sum.
  bool hasAttention(Attribute chip, Operation *op) const {
    return matchProduct(op, cast<GPUAttr>(chip)) != nullptr;
  }
  bool wantsTokensLast(Attribute) const { return true; }
  StringRef getLaunchChip(Attribute chip) const {
    return cast<GPUAttr>(chip).getChip();
  }
};

struct KernelModel
    : KernelTargetAttrInterface::ExternalModel<KernelModel, GPUAttr> {
  std::optional<View> getWalkedView(Attribute, Operation *op) const {
    return getLineView(op);
  }
  SmallVector<PatternPlan> getPatternPlans(Attribute chip,
                                           const ClusterPlan &plan) const {
    auto gpu = cast<GPUAttr>(chip);
    SmallVector<PatternPlan> plans;
    auto add = [&](const std::unique_ptr<Product> &product) {
      if (std::optional<PatternPlan> followed = product->getPlan())
        plans.push_back(std::move(*followed));
    };
    if (std::unique_ptr<Product> product = matchProduct(plan, gpu)) {
      add(product);
      return plans;
    }
    if (ChainRows::match(plan))
      return plans;
    for (Operation *root : plan.roots)
      if (std::unique_ptr<Product> product = matchRoot(plan, root, gpu))
        add(product);
    return plans;
  }
  SmallVector<MemRefType> getScratch(Attribute chip,
                                     const ClusterPlan &plan) const {
    auto gpu = cast<GPUAttr>(chip);
    if (std::unique_ptr<Product> product = matchProduct(plan, gpu))
      return product->getScratch();
    if (std::optional<ChainRows> rows = ChainRows::match(plan))
      return rows->getScratch();
    SmallVector<MemRefType> scratch = getNestScratch(plan);
    for (Operation *root : plan.roots)
      llvm::append_range(scratch, getRootScratch(plan, root, gpu));
    return scratch;
  }
  SmallVector<int64_t> getInPlace(Attribute chip, ClusterOp cluster,
                                  const ClusterPlan &plan) const {
    if (!plan.chain)
      return getInPlaceArguments(cluster, plan);
    // A chain may be several launches: none has read what the next one writes.
    std::unique_ptr<Product> product = matchProduct(plan, cast<GPUAttr>(chip));
    return product && product->acceptsUpdates()
               ? getUpdatedArguments(cluster, *plan.chain)
               : SmallVector<int64_t>();
  }
  LogicalResult emitBody(Attribute chip, OpBuilder &builder,
                         KernelBody &kernel) const {
    auto gpu = cast<GPUAttr>(chip);
    for (Operation *root : kernel.plan.roots)
      remarkPlainProduct(root, gpu);
    if (std::unique_ptr<Product> product = matchProduct(kernel.plan, gpu)) {
      remarkTile(kernel.plan.roots.front(), *product);
      return product->emit(builder, kernel, kernel.scratch);
    }
    if (std::optional<ChainRows> rows = ChainRows::match(kernel.plan))
      return rows->emit(builder, kernel);
    return emitRoots(builder, kernel, gpu);
  }
};
} // namespace

namespace {
/// Lets functions that make tensor maps be inlined.
struct TensorMapInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;

  bool isLegalToInline(Operation *op, Region *, bool,
                       IRMapping &) const override {
    return isa<nvgpu::TmaCreateDescriptorOp>(op);
  }
};
} // namespace

void bsr::registerGPUTargetExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, nvgpu::NVGPUDialect *dialect) {
    dialect->addInterfaces<TensorMapInliner>();
  });
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    GPUAttr::attachInterface<Model, KernelModel>(*context);
    // The dialects of the operations that are emitted.
    context->loadDialect<mlir::gpu::GPUDialect, LLVM::LLVMDialect,
                         nvgpu::NVGPUDialect, NVVM::NVVMDialect>();
  });
}
