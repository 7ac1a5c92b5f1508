// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pipelines; read top to bottom, the architecture.

#include "bsr/Pipelines/Pipelines.h"
#include "bsr/Analysis/ClusterPlan.h"
#include "bsr/Codegen/CPU/CPUDispatch.h"
#include "bsr/Codegen/CPU/Passes.h"
#include "bsr/Codegen/Common/Passes.h"
#include "bsr/Codegen/GPU/GPUTarget.h"
#include "bsr/Codegen/GPU/Passes.h"
#include "bsr/Codegen/Scalar/ScalarTarget.h"
#include "bsr/Dialect/TilingInterfaceImpl.h"
#include "bsr/Transforms/Attention/Passes.h"
#include "bsr/Transforms/Bufferization/BufferizableOpInterfaceImpl.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "bsr/Transforms/Import/Passes.h"
#include "bsr/Transforms/Layout/Passes.h"
#include "bsr/Transforms/Library/Passes.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "bsr/Transforms/SparseTensors/Passes.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Func/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVM/NVVM/Target.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

/// Canonicalizes a structured step: the bodies of its operations are single
/// blocks, which have nothing to simplify.
static void addCanonicalizer(OpPassManager &pm) {
  GreedyRewriteConfig config;
  config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
  pm.addPass(createCanonicalizerPass(config));
}

static void addCleanup(OpPassManager &pm) {
  addCanonicalizer(pm);
  pm.addPass(createCSEPass());
}

/// The end of a stage, whose passes are to leave a valid module. Import has
/// none of its own: to verify a large step before and behind `bsr-bind` took
/// more than a twentieth of all compilation.
static void endStage(OpPassManager &pm, StringRef stage) {
  pm.addPass(bsr::createBSRVerifyModule({stage.str()}));
}

/// Tensors become buffers: carried state is updated where it lies, everything
/// else lies in one arena.
static void addBufferization(OpPassManager &pm) {
  pm.addPass(bsr::createBSRVerifyStep());
  pm.addPass(bsr::createBSRLowerPatterns());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRScheduleReductions());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRReuseState());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRReuseOperands());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRSeparateResults());
  pm.addPass(bsr::createBSRBufferize());
  // A copy of a buffer to itself takes two rounds to go away.
  addCleanup(pm);
  addCanonicalizer(pm);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRStoreResults());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRGuardScores());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRStartReductions());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRPlanMemory());
  pm.addPass(bsr::createBSRSplitPlans());
  // Kernels of equal layers are one function.
  pm.addPass(func::createDuplicateFunctionEliminationPass());
  endStage(pm, "bufferization");
}

/// Everything becomes loops, of operations that each processor has.
static void addScalars(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(bsr::createBSRLowerCopies());
  pm.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass());
  // What is left of halves is computed in f32: here each operation rounds.
  pm.addNestedPass<func::FuncOp>(math::createMathExtendToSupportedTypes());
  arith::ArithEmulateUnsupportedFloatsOptions halves;
  halves.sourceTypeStrs = {"bf16"};
  pm.addNestedPass<func::FuncOp>(
      arith::createArithEmulateUnsupportedFloats(halves));
  pm.addNestedPass<func::FuncOp>(bsr::createBSRKeepRoundings());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRDefineIntegers());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRApproximateMath());
}

/// Kernels become parallel loops, everything else sequential ones.
static void addLoops(OpPassManager &pm) {
  addScalars(pm);
  pm.addPass(bsr::createBSRExpandI1());
  pm.addPass(bsr::createBSREmulateDots());
  pm.addPass(bsr::createBSRExpandBF16());
  addCleanup(pm);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRFastMath());
  pm.addNestedPass<func::FuncOp>(createForallToParallelLoopPass());
  pm.addPass(createConvertSCFToOpenMPPass());
  pm.addPass(bsr::createBSRHoistMemory());
  // Removes the scopes around the loops that OpenMP needs no more.
  pm.addPass(createCanonicalizerPass());
}

/// Everything becomes the LLVM dialect.
static void addLLVM(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(createConvertVectorToSCFPass(
      VectorTransferToSCFOptions().enableFullUnroll()));
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  // What LLVM has no intrinsic for takes vectors apart: vectors come after.
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertMathToLibmPass());
  ConvertVectorToLLVMPassOptions vectors;
  vectors.x86Vector = true;
  vectors.amx = true;
  pm.addPass(createConvertVectorToLLVMPass(vectors));
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertIndexToLLVMPass());
  pm.addPass(createUBToLLVMConversionPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  // Buffers are dense and of static shape: a pointer says all.
  ConvertFuncToLLVMPassOptions funcToLLVM;
  funcToLLVM.useBarePtrCallConv = true;
  pm.addPass(createConvertFuncToLLVMPass(funcToLLVM));
  // Tiles go from block to block: one conversion knows both dialects.
  ConvertToLLVMPassOptions blocks;
  blocks.filterDialects = {"amx", "cf"};
  pm.addPass(createConvertToLLVMPass(blocks));
  pm.addPass(createConvertOpenMPToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
}

void bsr::buildToLLVMPipeline(OpPassManager &pm, const ToLLVMOptions &options) {
  addBufferization(pm);
  if (options.timers)
    pm.addPass(createBSRTimeLaunches());
  pm.addPass(createBSREmbedManifest({options.targetCpu}));
  pm.addPass(createBSRLowerReductions());
  pm.addPass(createBSRLowerTransfers());
  addLoops(pm);
  addLLVM(pm);
  pm.addPass(createBSRExportStep());
  pm.addPass(createBSRDivideStep());
  pm.addPass(createBSRVerifyLowered());
}

/// Functions that are called become parts of those that call them.
static void addInliner(OpPassManager &pm) {
  pm.addPass(createInlinerPass({}, [](OpPassManager &) {}));
  pm.addPass(createSymbolDCEPass());
  addCleanup(pm);
}

/// What the importers leave becomes one function, each value once, without
/// loops, every marked weight a matrix.
static void addImport(OpPassManager &pm, const bsr::StepOptions &options) {
  pm.addPass(bsr::createBSRVerifyStep());
  pm.addPass(bsr::createBSRCropPads());
  pm.addPass(bsr::createBSRDropSigns());
  addInliner(pm);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRMoveReads());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRUnroll({options.maxOperations}));
  // What loops that stay compute of sparse weights, but not of what they carry,
  // stands in front of them.
  pm.addPass(createLoopInvariantCodeMotionPass());
  addCleanup(pm);
  // Loops that add rows by index are operations now, which pass over others.
  pm.addNestedPass<func::FuncOp>(bsr::createBSRClampIndices());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRForwardSlices());
  pm.addPass(bsr::createBSRUnstack());
  pm.addPass(bsr::createBSRSplitWeights());
  if (options.dropUpdates)
    pm.addNestedPass<func::FuncOp>(bsr::createBSRDropUpdates());
  addCleanup(pm);
}

/// Marked weights become patterns and values: from here on nothing changes what
/// the step means.
static void addBinding(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(bsr::createBSRFlatten());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRSplitConcats());
  pm.addPass(bsr::createBSRBind());
}

/// Dense products of marked weights become sparse ones.
static void addSparsity(OpPassManager &pm, const bsr::StepOptions &options) {
  addBinding(pm);
  pm.addNestedPass<func::FuncOp>(
      bsr::createBSRPropagate({options.requireSparse, options.report}));
  addCleanup(pm);
  if (options.blockSteps) {
    pm.addNestedPass<func::FuncOp>(bsr::createBSRCountBlocks());
    addCleanup(pm);
  }
  if (options.blockRamp)
    pm.addNestedPass<func::FuncOp>(
        bsr::createBSRRampBlocks({options.blockRamp}));
  if (!options.scoreNorm.empty())
    pm.addNestedPass<func::FuncOp>(
        bsr::createBSRScoreBlocks({options.scoreNorm}));
  if (options.dataParallel || options.microBatches != 1)
    pm.addNestedPass<func::FuncOp>(bsr::createBSRDataParallel(
        {options.stages || options.microBatches != 1}));
  endStage(pm, "sparsity");
}

/// Vectors will run along tokens.
static void addLayout(OpPassManager &pm, const bsr::StepOptions &options) {
  pm.addNestedPass<func::FuncOp>(createLinalgGeneralizeNamedOpsPass());
  addCleanup(pm);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRRaise());
  if (options.stages)
    pm.addNestedPass<func::FuncOp>(
        bsr::createBSRSplitStages({options.stages, options.stage}));
  if (options.microBatches != 1 || (options.stages && options.dataParallel))
    pm.addNestedPass<func::FuncOp>(bsr::createBSRMicroBatches(
        {options.microBatches, options.schedule, options.dataParallel}));
  if (options.shardState)
    pm.addNestedPass<func::FuncOp>(
        bsr::createBSRShardState({options.shardState}));
  pm.addNestedPass<func::FuncOp>(bsr::createBSRConcatenate());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRWidenBodies());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRWidenSums());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRFoldCopies());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRLayout({options.report}));
  addCleanup(pm);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRFoldBias());
  endStage(pm, "layout");
}

void bsr::buildToBoundPipeline(OpPassManager &pm,
                               const ToSparseOptions &options) {
  addImport(pm, options.step);
  addBinding(pm);
}

void bsr::buildToSparsePipeline(OpPassManager &pm,
                                const ToSparseOptions &options) {
  addImport(pm, options.step);
  addSparsity(pm, options.step);
  pm.addNestedPass<func::FuncOp>(createLinalgGeneralizeNamedOpsPass());
  addCleanup(pm);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRRaise());
}

/// Operations become clusters, one function per structure, attention first.
static void addClusters(OpPassManager &pm, const bsr::StepOptions &options,
                        bool isHostApart) {
  if (options.attention || !options.attentionMarks.empty()) {
    bsr::BSRFindAttentionOptions attention;
    attention.report = options.report;
    attention.minKeys = options.attentionKeys;
    attention.requireSparse = options.requireSparse;
    llvm::append_range(attention.marks, options.attentionMarks);
    if (!options.attention)
      attention.minKeys = std::numeric_limits<int64_t>::max();
    pm.addNestedPass<func::FuncOp>(bsr::createBSRFindAttention(attention));
  }
  pm.addNestedPass<func::FuncOp>(bsr::createBSRCountFlops());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRDropBarriers());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRRecompute());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRHoistScalars());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRDropUnitReductions());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRLoosenSlices());
  pm.addPass(bsr::createBSRCluster({isHostApart}));
  endStage(pm, "clusters");
}

/// Clusters become kernels on buffers.
static void addKernels(OpPassManager &pm) {
  pm.addPass(bsr::createBSREmit());
  pm.addPass(bsr::createBSRVerifyKernels());
  addCleanup(pm);
  endStage(pm, "codegen");
}

/// Functions that say that they compute attention become attention, as long as
/// nothing that divides the step, or imposes patterns, has to look into it.
static void addAttention(OpPassManager &pm, const bsr::StepOptions &options) {
  if (options.attention && options.attentionMarks.empty() && !options.stages &&
      options.microBatches == 1 && !options.shardState && !options.dataParallel)
    pm.addPass(bsr::createBSRImportAttention({options.attentionKeys}));
}

/// Functions that say that they compute products of groups become these, as
/// long as nothing that divides the step has to look into them.
static void addGroups(OpPassManager &pm, const bsr::StepOptions &options) {
  if (!options.stages && options.microBatches == 1 && !options.shardState &&
      !options.dataParallel)
    pm.addPass(bsr::createBSRImportGroups());
}

/// A marked step becomes launches of clusters for `target`, which say how their
/// buffers lie. If `isHostApart`, numbers that it computes stay where its
/// tensors are.
static void addStep(OpPassManager &pm, const bsr::StepOptions &options,
                    const std::string &target, bool isHostApart = false) {
  pm.addPass(bsr::createBSRSetTarget({target}));
  addAttention(pm, options);
  addGroups(pm, options);
  addImport(pm, options);
  addSparsity(pm, options);
  if (isHostApart)
    pm.addNestedPass<func::FuncOp>(bsr::createBSRLiftNumbers());
  addLayout(pm, options);
  addClusters(pm, options, isHostApart);
  pm.addPass(bsr::createBSRPanel());
}

void bsr::buildToClustersPipeline(OpPassManager &pm,
                                  const ToCPUOptions &options) {
  addStep(pm, options.step, options.step.target);
}

void bsr::buildClustersToLLVMPipeline(OpPassManager &pm,
                                      const ToLLVMOptions &options) {
  addKernels(pm);
  buildToLLVMPipeline(pm, options);
}

void bsr::buildToCPUPipeline(OpPassManager &pm, const ToCPUOptions &options) {
  buildToClustersPipeline(pm, options);
  buildClustersToLLVMPipeline(pm, options);
}

/// Parallel loops of kernels become launches of functions in PTX.
static void addLaunches(OpPassManager &pm) {
  addScalars(pm);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRExpandPowers());
  pm.addNestedPass<func::FuncOp>(bsr::createBSRExpandSines());
  addCleanup(pm);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRFastMath());
  pm.addPass(bsr::createBSRMoveConstants());
  pm.addPass(bsr::createBSROutlineLaunches());
  // What is left of a kernel is its launches.
  addInliner(pm);
  pm.addPass(bsr::createBSRMergeLaunches());
  OpPassManager &kernels = pm.nest<gpu::GPUModuleOp>();
  kernels.addPass(memref::createExpandStridedMetadataPass());
  kernels.addPass(createLowerAffinePass());
  kernels.addPass(createSCFToControlFlowPass());
  kernels.addPass(bsr::createBSRCallIntrinsics());
  ConvertGpuOpsToNVVMOpsOptions toNVVM;
  toNVVM.useBarePtrCallConv = true;
  toNVVM.indexBitwidth = 32;
  kernels.addPass(createConvertGpuOpsToNVVMOps(toNVVM));
  kernels.addPass(bsr::createBSRPassTensorMaps());
  kernels.addPass(createConvertNVVMToLLVMPass());
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
  GpuModuleToBinaryPassOptions toPTX;
  toPTX.compilationTarget = "isa";
  pm.addPass(createGpuModuleToBinaryPass(toPTX));
}

void bsr::buildToGPUPipeline(OpPassManager &pm, const ToGPUOptions &options) {
  const std::string &target = options.step.target;
  addStep(pm, options.step, target.empty() ? "#bsr.gpu" : target,
          /*isHostApart=*/true);
  pm.addNestedPass<func::FuncOp>(bsr::createBSRGatherLaunches());
  addKernels(pm);
  addBufferization(pm);
  addLaunches(pm);
}

void bsr::buildLaunchesToLLVMPipeline(OpPassManager &pm,
                                      const LaunchesToLLVMOptions &options) {
  if (options.timers)
    pm.addPass(createBSRTimeLaunches());
  pm.addPass(createBSREmbedManifest());
  pm.addPass(createBSRExportLaunches());
}

void bsr::registerDialect(DialectRegistry &registry) {
  registry.insert<BSRDialect>();
  registerClusterPlanVerifier(registry);
  registerBufferizableOpInterfaceExternalModels(registry);
  registerTransferBufferization(registry);
  registerShardBufferization(registry);
  registerTilingInterfaceExternalModels(registry);
  registerCPUTargetExternalModels(registry);
  registerGPUTargetExternalModels(registry);
  registerScalarTargetExternalModels(registry);
  NVVM::registerNVVMTargetInterfaceExternalModels(registry);
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

void bsr::registerPassesAndPipelines() {
  registerBSRImportPasses();
  registerBSRSparsityPasses();
  registerBSRParallelPasses();
  registerBSRLayoutPasses();
  registerBSRAttentionPasses();
  registerBSRClustersPasses();
  registerBSRCodegenCommonPasses();
  registerBSRCodegenCPUPasses();
  registerBSRCodegenGPUPasses();
  registerBSRBufferizationPasses();
  registerBSRLibraryPasses();
  registerBSRSparseTensorsPasses();
  PassPipelineRegistration<ToCPUOptions>(
      "bsr-to-cpu", "Lower a marked step to the LLVM dialect, for processors",
      buildToCPUPipeline);
  PassPipelineRegistration<ToSparseOptions>(
      "bsr-to-bound",
      "Bind the marked weights of a step to patterns, and rewrite nothing else",
      buildToBoundPipeline);
  PassPipelineRegistration<ToSparseOptions>(
      "bsr-to-sparse", "Rewrite a marked step to touch only stored blocks",
      buildToSparsePipeline);
  PassPipelineRegistration<ToGPUOptions>(
      "bsr-to-gpu", "Lower a marked step to launches of PTX, for GPUs",
      buildToGPUPipeline);
  PassPipelineRegistration<LaunchesToLLVMOptions>(
      "bsr-launches-to-llvm",
      "Lower a step whose work is in launches of PTX to the LLVM dialect",
      buildLaunchesToLLVMPipeline);
  PassPipelineRegistration<ToLLVMOptions>(
      "bsr-to-llvm",
      "Lower a step whose work is in kernels to the LLVM dialect",
      buildToLLVMPipeline);
}
