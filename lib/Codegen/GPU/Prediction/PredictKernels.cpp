// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long the kernels of a step take at least, by the model.

#include "bsr/Codegen/GPU/Prediction/PredictKernels.h"
#include "RandomView.h"
#include "bsr/Analysis/Plans.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

FailureOr<StringRef> bsr::gpu::getPTX(ModuleOp module) {
  auto binaries = module.getOps<mlir::gpu::BinaryOp>();
  if (binaries.empty()) {
    module.emitError("expected a step with kernels in PTX, but got none");
    return failure();
  }
  auto object =
      cast<mlir::gpu::ObjectAttr>((*binaries.begin()).getObjects()[0]);
  return object.getObject().getValue();
}

namespace {
/// Hands out the contents of index arrays.
class Patterns {
public:
  explicit Patterns(func::FuncOp step) : step(step) {}

  /// The contents of argument `index` of the step, or null if it is no index
  /// array.
  std::shared_ptr<KnownWords> getWords(unsigned index);

private:
  StringRef getKind(unsigned index) {
    auto kind = attrs::kind.ofArg(step, index);
    return kind ? kind.getValue() : "";
  }

  func::FuncOp step;
  llvm::MapVector<std::pair<int64_t, View>, ViewArrays> known;
};
} // namespace

std::shared_ptr<KnownWords> Patterns::getWords(unsigned index) {
  StringRef kind = getKind(index);
  auto number = attrs::patternNumber.ofArg(step, index);
  for (View view : views) {
    auto kinds = getIndexKinds(view);
    const auto *found = llvm::find(kinds, kind);
    if (!number || found == kinds.end())
      continue;
    ViewArrays &arrays = known[{number.getInt(), view}];
    if (!arrays[0]) {
      // The arguments of one pattern: the first array of each view has a line
      // more than there are.
      std::array<int64_t, 2> lines{};
      int64_t slots = 0;
      for (unsigned i : llvm::seq(step.getNumArguments())) {
        if (attrs::patternNumber.ofArg(step, i) != number)
          continue;
        int64_t extent =
            cast<ShapedType>(step.getArgumentTypes()[i]).getNumElements();
        for (View other : views)
          if (getKind(i) == getIndexKinds(other)[0])
            lines[other == view ? 0 : 1] = extent - 1;
        if (i == index - (found - kinds.begin()) + 1)
          slots = extent;
      }
      arrays = makeView(lines[0], lines[1], slots);
    }
    return arrays[found - kinds.begin()];
  }
  return nullptr;
}

/// The bytes of the elements of `type`.
static int64_t getBytes(MemRefType type) {
  return type.getNumElements() *
         llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}

/// The operation that makes `operand`, if it is a tensor map.
static nvgpu::TmaCreateDescriptorOp getTensorMap(Value operand) {
  auto cast = operand.getDefiningOp<UnrealizedConversionCastOp>();
  return cast ? cast.getOperand(0).getDefiningOp<nvgpu::TmaCreateDescriptorOp>()
              : nullptr;
}

/// What a kernel's operand is part of: an argument of the step, or a buffer in
/// its arena.
static Value findRoot(Value operand) {
  if (nvgpu::TmaCreateDescriptorOp map = getTensorMap(operand))
    operand = map.getTensor();
  while (auto view = operand.getDefiningOp<ViewLikeOpInterface>()) {
    if (isa<memref::ViewOp>(view))
      break;
    operand = view.getViewSource();
  }
  return operand;
}

namespace {
/// A buffer, equal in the step and in the function that makes its plans: the
/// number of an argument; the place in it and the type, if it lies in the
/// arena; or else the value that it is.
using Root = std::tuple<int64_t, int64_t, const void *>;
} // namespace

/// The buffer that a kernel's operand is part of.
static Root getRoot(Value operand) {
  Value root = findRoot(operand);
  if (auto view = root.getDefiningOp<memref::ViewOp>()) {
    auto arena = dyn_cast<BlockArgument>(view.getSource());
    auto offset = getConstantIntValue(view.getByteShift());
    if (arena && offset)
      return {arena.getArgNumber(), *offset,
              view.getType().getAsOpaquePointer()};
  }
  if (auto argument = dyn_cast<BlockArgument>(root))
    return {argument.getArgNumber(), 0, nullptr};
  return {-1, 0, root.getAsOpaquePointer()};
}

namespace {
/// Predicts the launches of one step, and of the function that makes its plans.
class StepPredictor {
public:
  StepPredictor(func::FuncOp step,
                const llvm::StringMap<const ptx::Kernel *> &kernels)
      : patterns(step), kernels(kernels) {}

  /// Counts what `op` does, the next launch in their order.
  FailureOr<Profile> count(mlir::gpu::LaunchFuncOp op);
  /// Notes that `op` comes next, without a count.
  void pass(mlir::gpu::LaunchFuncOp op);

private:
  std::shared_ptr<KnownWords> getIndexArray(Value operand) {
    auto argument = dyn_cast<BlockArgument>(findRoot(operand));
    return argument ? patterns.getWords(argument.getArgNumber()) : nullptr;
  }
  bool hasIndexArray(mlir::gpu::LaunchFuncOp op) {
    return llvm::any_of(op.getKernelOperands(),
                        [&](Value operand) { return getIndexArray(operand); });
  }
  /// True if `op` makes the plan of a pattern, or goes on with it: it has index
  /// arrays, or a plan's, and nothing else but integers of 32 bits that are the
  /// step's own.
  bool isPlan(mlir::gpu::LaunchFuncOp op);
  /// Makes those plans that `op` reads and that are not made yet.
  LogicalResult makePlansFor(mlir::gpu::LaunchFuncOp op);
  Launch getLaunch(mlir::gpu::LaunchFuncOp op);
  const ptx::Kernel &getKernel(mlir::gpu::LaunchFuncOp op);
  /// Makes the words known that launch `op` of a plan writes.
  FailureOr<Profile> makePlan(mlir::gpu::LaunchFuncOp op);

  Patterns patterns;
  const llvm::StringMap<const ptx::Kernel *> &kernels;
  /// Numbers of buffers.
  DenseMap<Root, unsigned> buffers;
  /// The launches that have written a plan's array, until its words are needed;
  /// and then these.
  DenseMap<Root, SmallVector<mlir::gpu::LaunchFuncOp, 2>> plans;
  DenseMap<Root, std::shared_ptr<KnownWords>> planWords;
};
} // namespace

bool StepPredictor::isPlan(mlir::gpu::LaunchFuncOp op) {
  bool hasPattern = false, hasOwn = false;
  for (Value operand : op.getKernelOperands()) {
    auto type = dyn_cast<MemRefType>(operand.getType());
    if (!type || !type.getElementType().isInteger(32))
      return false;
    bool isPattern = getIndexArray(operand) != nullptr;
    if (!isPattern && isa<BlockArgument>(findRoot(operand)))
      return false;
    Root root = getRoot(operand);
    hasPattern |= isPattern || plans.contains(root) || planWords.contains(root);
    hasOwn |= !isPattern;
  }
  return hasPattern && hasOwn;
}

void StepPredictor::pass(mlir::gpu::LaunchFuncOp op) {
  if (!isPlan(op))
    return;
  bool isFirst = hasIndexArray(op);
  for (Value operand : op.getKernelOperands()) {
    if (getIndexArray(operand))
      continue;
    SmallVector<mlir::gpu::LaunchFuncOp, 2> &launches = plans[getRoot(operand)];
    if (isFirst)
      launches.clear();
    launches.push_back(op);
  }
}

LogicalResult StepPredictor::makePlansFor(mlir::gpu::LaunchFuncOp op) {
  for (Value operand : op.getKernelOperands()) {
    auto found = plans.find(getRoot(operand));
    if (found == plans.end())
      continue;
    SmallVector<mlir::gpu::LaunchFuncOp, 2> launches = std::move(found->second);
    plans.erase(found);
    for (mlir::gpu::LaunchFuncOp plan : launches)
      if (plan != op && failed(makePlan(plan)))
        return failure();
  }
  return success();
}

const ptx::Kernel &StepPredictor::getKernel(mlir::gpu::LaunchFuncOp op) {
  const ptx::Kernel *kernel = kernels.lookup(op.getKernelName().getValue());
  assert(kernel && "PTX has every kernel that the step launches");
  return *kernel;
}

Launch StepPredictor::getLaunch(mlir::gpu::LaunchFuncOp op) {
  Launch launch;
  auto getExtents = [&](mlir::gpu::KernelDim3 from) -> std::array<int64_t, 3> {
    auto get = [](Value value) {
      std::optional<int64_t> extent = getConstantIntValue(value);
      assert(extent && "a step's launches are of constant size");
      return *extent;
    };
    return {get(from.x), get(from.y), get(from.z)};
  };
  launch.grid = getExtents(op.getGridSizeOperandValues());
  launch.block = getExtents(op.getBlockSizeOperandValues());
  for (Value operand : op.getKernelOperands()) {
    LaunchArgument &argument = launch.arguments.emplace_back();
    nvgpu::TmaCreateDescriptorOp map = getTensorMap(operand);
    if (map)
      operand = map.getTensor().getDefiningOp<memref::CastOp>().getSource();
    auto type = dyn_cast<MemRefType>(operand.getType());
    if (map) {
      ArrayRef<int64_t> matrix = type.getShape();
      ArrayRef<int64_t> box = map.getType().getTensor().getShape();
      argument.box = TensorBox{matrix[0], matrix[1], box[0], box[1],
                               type.getElementTypeBitWidth() / 8};
    }
    if (!type) {
      // A number that is none here is data.
      std::optional<int64_t> number = getConstantIntValue(operand);
      argument.isNumber = number.has_value();
      argument.number = number.value_or(0);
      continue;
    }
    Root root = getRoot(operand);
    argument.buffer =
        buffers.try_emplace(root, unsigned(buffers.size())).first->second;
    argument.bytes = getBytes(type);
    argument.words = getIndexArray(operand);
    if (!argument.words)
      argument.words = planWords.lookup(root);
  }
  return launch;
}

FailureOr<Profile> StepPredictor::makePlan(mlir::gpu::LaunchFuncOp op) {
  bool isFirst = hasIndexArray(op);
  // What was in memory before does not count.
  for (Value operand : op.getKernelOperands())
    if (isFirst)
      plans.erase(getRoot(operand));
  if (failed(makePlansFor(op)))
    return failure();
  for (Value operand : op.getKernelOperands())
    if (!getIndexArray(operand)) {
      std::shared_ptr<KnownWords> &words = planWords[getRoot(operand)];
      auto type = cast<MemRefType>(operand.getType());
      if (isFirst || !words)
        words = std::make_shared<KnownWords>(type.getNumElements());
    }
  llvm::Expected<Profile> counted = fillWords(getKernel(op), getLaunch(op));
  if (!counted)
    return op.emitError() << llvm::toString(counted.takeError());
  return *counted;
}

FailureOr<Profile> StepPredictor::count(mlir::gpu::LaunchFuncOp op) {
  if (isPlan(op))
    return makePlan(op);
  if (failed(makePlansFor(op)))
    return failure();
  llvm::Expected<Profile> counted = profile(getKernel(op), getLaunch(op));
  if (!counted)
    return op.emitError() << llvm::toString(counted.takeError());
  return *counted;
}

/// Makes the instructions that `work` counts those of the machine.
static MachineUse useMachine(KernelWork &work, const ptx::Kernel &kernel,
                             const MachineKernel &machine) {
  double ratio = getMachineRatio(kernel, machine);
  work.instructions *= ratio;
  work.longestWarp *= ratio;
  for (double &count : work.arithmetic)
    count *= ratio;
  return {machine.registers, machine.spilledBytes, ratio};
}

FailureOr<SmallVector<KernelPrediction, 0>>
bsr::gpu::predictKernels(ModuleOp module, const ModelParameters &parameters,
                         const llvm::StringMap<MachineKernel> *machine) {
  FailureOr<StringRef> text = getPTX(module);
  if (failed(text))
    return failure();
  llvm::Expected<std::vector<ptx::Kernel>> kernels = ptx::parse(*text);
  if (!kernels)
    return module.emitError() << llvm::toString(kernels.takeError());
  llvm::StringMap<const ptx::Kernel *> byName;
  for (const ptx::Kernel &kernel : *kernels)
    byName[kernel.name] = &kernel;
  const Chip &chip = *findChip(cast<GPUAttr>(getTarget(module)).getChip());

  llvm::MapVector<StringRef, KernelPrediction> predictions;
  for (auto step : module.getOps<func::FuncOp>()) {
    if (isOfPlans(step))
      continue;
    StepPredictor predictor(step, byName);
    auto predict = [&](mlir::gpu::LaunchFuncOp op,
                       bool isPlan) -> LogicalResult {
      StringRef name = op.getKernelName().getValue();
      KernelPrediction &prediction = predictions[name];
      if (++prediction.launches != 1) {
        predictor.pass(op);
        return success();
      }
      FailureOr<Profile> counted = predictor.count(op);
      if (failed(counted))
        return failure();
      prediction.name = name.str();
      prediction.when =
          isPlan ? KernelPrediction::Plans : KernelPrediction::Step;
      prediction.profile = *counted;
      KernelWork &work = prediction.profile.work;
      if (machine) {
        auto found = machine->find(name);
        if (found == machine->end())
          return op.emitError("expected machine code of '")
                 << name << "', but got none";
        prediction.machine =
            useMachine(work, *byName.lookup(name), found->second);
      }
      prediction.prediction = bound(work, chip, parameters);
      return success();
    };
    func::FuncOp plans = getPlans(step);
    for (func::FuncOp func : {plans, step}) {
      if (!func)
        continue;
      WalkResult result = func.walk([&](mlir::gpu::LaunchFuncOp op) {
        return WalkResult(predict(op, func == plans));
      });
      if (result.wasInterrupted())
        return failure();
    }
  }
  return llvm::map_to_vector<0>(
      predictions, [](auto &entry) { return std::move(entry.second); });
}

/// Prints the rows of `kernels`, those first that take longest in all, and
/// `total`.
static void printRows(ArrayRef<const KernelPrediction *> kernels, size_t width,
                      StringRef total, llvm::raw_ostream &os) {
  auto getTotal = [](const KernelPrediction &kernel) {
    return kernel.launches * kernel.prediction.seconds;
  };
  SmallVector<const KernelPrediction *> order(kernels);
  llvm::sort(order, [&](const auto *a, const auto *b) {
    return std::pair(-getTotal(*a), a) < std::pair(-getTotal(*b), b);
  });
  int64_t launches = 0;
  double seconds = 0;
  for (const KernelPrediction *kernel : order) {
    const Prediction &prediction = kernel->prediction;
    const Profile &profile = kernel->profile;
    launches += kernel->launches;
    seconds += getTotal(*kernel);
    os << llvm::left_justify(kernel->name, width)
       << llvm::formatv("{0,9}{1,12:f2}  {2,-11}", kernel->launches,
                        prediction.seconds * 1e6,
                        stringify(prediction.binding));
    for (double clocks : prediction.clocks)
      os << llvm::formatv("{0,11:f0}", clocks);
    double flops = llvm::sum_of(profile.work.tensorFlops, 0.0) +
                   llvm::sum_of(profile.work.warpgroupFlops, 0.0);
    os << llvm::formatv("{0,14:f3}{1,14:f0}", flops / 1e6,
                        profile.work.instructions);
    for (double bytes : {profile.work.sharedBytes, profile.work.l2Bytes,
                         profile.work.memoryBytes})
      os << llvm::formatv("{0,14:f2}", bytes / 1024);
    if (const std::optional<MachineUse> &machine = kernel->machine)
      os << llvm::formatv("{0,12}{1,12}{2,13:f2}", machine->registers,
                          machine->spilledBytes, machine->ratio);
    SmallVector<StringRef> assumed;
    if (profile.hasDataBranches)
      assumed.push_back("branches");
    if (profile.hasDataAddresses)
      assumed.push_back("addresses");
    os << (assumed.empty() ? "" : "  ") << llvm::join(assumed, ", ") << "\n";
  }
  os << llvm::left_justify(total, width)
     << llvm::formatv("{0,9}{1,12:f2}", launches, seconds * 1e6) << "\n";
}

void bsr::gpu::print(ArrayRef<KernelPrediction> kernels, const Chip &chip,
                     llvm::raw_ostream &os) {
  constexpr StringLiteral totalOfPlans = "total of plans",
                          totalOfUpdate = "total of an update";
  // By KernelPrediction::When.
  std::array<SmallVector<const KernelPrediction *>, 3> parts;
  size_t width = totalOfUpdate.size();
  for (const KernelPrediction &kernel : kernels) {
    parts[kernel.when].push_back(&kernel);
    width = std::max(width, kernel.name.size());
  }
  bool hasMachine = !kernels.empty() && kernels.front().machine;
  os << "predicted for " << chip.name << " (" << chip.product
     << "), not run on a device; clocks of each resource, warp instructions "
     << (hasMachine ? "of machine code " : "") << "and KiB a launch\n"
     << llvm::left_justify("kernel", width)
     << llvm::formatv("{0,9}{1,12}  {2,-11}", "launches", "us each",
                      "bound by");
  for (unsigned resource = 0; resource != numResources; ++resource)
    os << llvm::right_justify(stringify(static_cast<Resource>(resource)), 11);
  for (StringRef count :
       {"tensor MFLOP", "instructions", "L1 KiB", "L2 KiB", "memory KiB"})
    os << llvm::right_justify(count, 14);
  if (hasMachine)
    os << llvm::formatv("{0,12}{1,12}{2,13}", "registers", "spill bytes",
                        "machine/PTX");
  os << "  depends on data\n";
  const auto &[ofStep, ofPlans, ofUpdate] = parts;
  printRows(ofStep, width, "total", os);
  if (!ofPlans.empty()) {
    os << "plans of patterns, once an update\n";
    printRows(ofPlans, width, totalOfPlans, os);
  }
  if (!ofUpdate.empty()) {
    os << "an update of patterns, by the runtime\n";
    printRows(ofUpdate, width, totalOfUpdate, os);
  }
}
