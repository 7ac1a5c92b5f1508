// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GPUs: products on tensor cores where they fit; else every element of a result
// is a thread's, or, where it is a long sum, of several.

#include "bsr/Codegen/GPU/GPUTarget.h"
#include "DenseProduct.h"
#include "LaneProduct.h"
#include "LaneSampledProduct.h"
#include "Reductions.h"
#include "SampledProduct.h"
#include "ScatterAdds.h"
#include "SparseProduct.h"
#include "Vectors.h"
#include "WarpgroupProduct.h"
#include "bsr/Analysis/InPlace.h"
#include "bsr/Codegen/Common/Nests.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace mlir::bsr;

/// Emits `kernel` as a `Product`; false if it is none.
template <typename Product>
static bool emitAs(OpBuilder &b, KernelBody &kernel, GPUAttr chip) {
  std::optional<Product> product = Product::match(kernel.plan, chip);
  if (product)
    product->emit(b, kernel);
  return product.has_value();
}

namespace {
/// An evaluator whose points are those of parallel loops, one point too: the
/// host has none.
class ThreadEvaluator : public Evaluator {
public:
  using Evaluator::Evaluator;

  void forEach(ArrayRef<int64_t> extents,
               llvm::function_ref<void(ArrayRef<Index>)> body) override {
    if (llvm::any_of(extents, [](int64_t extent) { return extent != 1; }))
      return forall(extents, body);
    SmallVector<OpFoldResult> one{b.getIndexAttr(1)};
    auto once = scf::ForallOp::create(b, loc, one, ValueRange(), std::nullopt);
    scope([&] {
      b.setInsertionPointToStart(once.getBody());
      body(SmallVector<Index>(extents.size(), Index::constant(0)));
    });
  }

  /// That of a whole vector, if it begins a multiple of its size behind the
  /// begin of a buffer, which is one of 64 bytes or more.
  std::optional<int64_t> getAlignment(Value memref,
                                      ArrayRef<Index> at) const override {
    auto type = cast<MemRefType>(memref.getType());
    auto [strides, offset] = type.getStridesAndOffset();
    bool isWhole = offset % width == 0 && at.back().align % width == 0 &&
                   llvm::all_of(llvm::drop_end(strides), [&](int64_t stride) {
                     return stride % width == 0;
                   });
    int64_t bytes = width * type.getElementTypeBitWidth() / 8;
    return isWhole && llvm::isPowerOf2_64(bytes) ? std::optional(bytes)
                                                 : std::nullopt;
  }
};

struct Model : TargetAttrInterface::ExternalModel<Model, GPUAttr> {
  // Not measured on a device.
  TargetCosts getCosts(Attribute) const { return {}; }
  bool acceptsEpilogue(Attribute, Operation *) const { return false; }
  bool wantsTokensLast(Attribute) const { return true; }
};

struct KernelModel
    : KernelTargetAttrInterface::ExternalModel<KernelModel, GPUAttr> {
  std::optional<View> getWalkedView(Attribute, Operation *op) const {
    return getLineView(op);
  }
  SmallVector<MemRefType> getScratch(Attribute chip,
                                     const ClusterPlan &plan) const {
    auto gpu = cast<GPUAttr>(chip);
    if (auto product = WarpgroupProduct::match(plan, gpu))
      return product->getScratch();
    if (auto product = SparseProduct::match(plan, gpu))
      return product->getScratch();
    if (auto product = LaneProduct::match(plan, gpu))
      return product->getScratch();
    if (auto product = DenseProduct::match(plan, gpu))
      return product->getScratch();
    SmallVector<MemRefType> scratch = getNestScratch(plan);
    llvm::append_range(scratch, getReductionScratch(plan));
    return scratch;
  }
  SmallVector<int64_t> getInPlace(Attribute, ClusterOp cluster,
                                  const ClusterPlan &plan) const {
    // The loops of a chain are launches of their own here: none has read what
    // the next one writes.
    return plan.chain ? SmallVector<int64_t>()
                      : getInPlaceArguments(cluster, plan);
  }
  LogicalResult emitBody(Attribute chip, OpBuilder &builder,
                         KernelBody &kernel) const {
    auto gpu = cast<GPUAttr>(chip);
    if (emitAs<WarpgroupProduct>(builder, kernel, gpu) ||
        emitAs<SparseProduct>(builder, kernel, gpu) ||
        emitAs<LaneProduct>(builder, kernel, gpu) ||
        emitAs<SampledProduct>(builder, kernel, gpu) ||
        emitAs<LaneSampledProduct>(builder, kernel, gpu) ||
        emitAs<DenseProduct>(builder, kernel, gpu))
      return success();
    ThreadEvaluator evaluator(builder, kernel.loc);
    ValueRange parts =
        kernel.scratch.drop_front(getNestScratch(kernel.plan).size());
    auto emitRoot = [&](Evaluator &e, Operation *root,
                        const DenseMap<Value, Value> &outputs,
                        const PatternViews &patterns) {
      if (auto scatter = dyn_cast<ScatterAddOp>(root))
        emitScatterAdd(e, scatter, outputs.lookup(scatter.getRows()));
      else if (!emitReduction(e, root, outputs, patterns, parts) &&
               !emitVectors(e, root, outputs))
        emitLoops(e, root, outputs, patterns);
    };
    return emitNests(evaluator, kernel, emitRoot);
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
    // What is emitted is theirs.
    context->loadDialect<gpu::GPUDialect, LLVM::LLVMDialect,
                         nvgpu::NVGPUDialect, NVVM::NVVMDialect>();
  });
}
