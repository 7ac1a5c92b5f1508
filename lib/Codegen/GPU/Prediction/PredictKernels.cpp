// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long the kernels of a step take at least, by the model.

#include "bsr/Codegen/GPU/Prediction/PredictKernels.h"
#include "LaunchSampler.h"
#include "RandomPattern.h"
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
  const std::vector<uint32_t> *getWords(unsigned index);

private:
  StringRef getKind(unsigned index) {
    auto kind = attrs::kind.ofArg(step, index);
    return kind ? kind.getValue() : "";
  }

  func::FuncOp step;
  llvm::MapVector<std::pair<int64_t, View>, ViewArrays> known;
};
} // namespace

const std::vector<uint32_t> *Patterns::getWords(unsigned index) {
  StringRef kind = getKind(index);
  auto number = attrs::patternNumber.ofArg(step, index);
  for (View view : views) {
    auto kinds = getIndexKinds(view);
    const auto *found = llvm::find(kinds, kind);
    if (!number || found == kinds.end())
      continue;
    ViewArrays &arrays = known[{number.getInt(), view}];
    if (arrays[0].empty()) {
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
      arrays = makeRandomView(lines[0], lines[1], slots);
    }
    return &arrays[found - kinds.begin()];
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
/// number of an argument; the offset in it and the type, if it lies in the
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
  StepPredictor(func::FuncOp step, LaunchSampler &sampler)
      : patterns(step), sampler(sampler) {}

  /// Counts what `op` does, the next launch in their order.
  FailureOr<Sample> count(mlir::gpu::LaunchFuncOp op);
  /// Notes that `op` comes next, without a count.
  void pass(mlir::gpu::LaunchFuncOp op);

private:
  const std::vector<uint32_t> *getIndexArray(Value operand) {
    auto argument = dyn_cast<BlockArgument>(findRoot(operand));
    return argument ? patterns.getWords(argument.getArgNumber()) : nullptr;
  }
  bool hasIndexArray(mlir::gpu::LaunchFuncOp op) {
    return llvm::any_of(op.getKernelOperands(),
                        [&](Value operand) { return getIndexArray(operand); });
  }
  /// Runs what makes indices that `op` reads and that has not run yet.
  LogicalResult makeIndicesFor(mlir::gpu::LaunchFuncOp op);
  FailureOr<Sample> makeIndices(mlir::gpu::LaunchFuncOp op);
  FailureOr<Sample> run(mlir::gpu::LaunchFuncOp op, bool isWhole);
  /// The address of the buffer that `operand` is part of.
  llvm::Expected<uint64_t> getAddress(Value operand);
  /// The bytes of an operand as its parameter has them.
  llvm::Expected<SmallVector<uint8_t>> getBytes(Value operand);

  Patterns patterns;
  LaunchSampler &sampler;
  DenseMap<Root, uint64_t> addresses;
  /// The launches that make the indices in a buffer, until these are read.
  DenseMap<Root, SmallVector<mlir::gpu::LaunchFuncOp, 2>> makers;
};
} // namespace

/// True of a part of the arena.
static bool isTemporary(Value operand) {
  return !isa<BlockArgument>(findRoot(operand));
}

/// True if `op` works on integers alone and leaves some: the plan of a pattern,
/// the tokens of each row of a table. Others do what these say, so that all of
/// it has to run.
static bool makesIndices(mlir::gpu::LaunchFuncOp op) {
  return llvm::all_of(op.getKernelOperands(),
                      [](Value operand) {
                        auto type = dyn_cast<MemRefType>(operand.getType());
                        return type && (type.getElementType().isInteger(32) ||
                                        type.getElementType().isInteger(64));
                      }) &&
         llvm::any_of(op.getKernelOperands(), isTemporary);
}

void StepPredictor::pass(mlir::gpu::LaunchFuncOp op) {
  if (!makesIndices(op))
    return;
  // What makes a plan begins with the pattern; then what was there before does
  // not count.
  bool isFirst = hasIndexArray(op);
  for (Value operand : op.getKernelOperands()) {
    if (!isTemporary(operand))
      continue;
    SmallVector<mlir::gpu::LaunchFuncOp, 2> &launches =
        makers[getRoot(operand)];
    if (isFirst)
      launches.clear();
    launches.push_back(op);
  }
}

LogicalResult StepPredictor::makeIndicesFor(mlir::gpu::LaunchFuncOp op) {
  for (Value operand : op.getKernelOperands()) {
    auto found = makers.find(getRoot(operand));
    if (found == makers.end())
      continue;
    SmallVector<mlir::gpu::LaunchFuncOp, 2> launches = std::move(found->second);
    makers.erase(found);
    for (mlir::gpu::LaunchFuncOp maker : launches)
      if (maker != op && failed(makeIndices(maker)))
        return failure();
  }
  return success();
}

/// Integers of other data: such that all rows of a table that neighbours look
/// up are different ones.
template <typename Integer>
static std::vector<Integer> getRows(int64_t count) {
  constexpr Integer rows = 64, stride = 37;
  std::vector<Integer> numbers(count);
  for (auto [i, number] : llvm::enumerate(numbers))
    number = Integer(i) * stride % rows;
  return numbers;
}

llvm::Expected<uint64_t> StepPredictor::getAddress(Value operand) {
  auto [found, isNew] = addresses.try_emplace(getRoot(operand));
  if (!isNew)
    return found->second;
  auto type = cast<MemRefType>(findRoot(operand).getType());
  auto address = sampler.allocate(::getBytes(type));
  if (!address)
    return address.takeError();
  auto write = [&](const auto &numbers) {
    sampler.write(*address, numbers.data(),
                  numbers.size() * sizeof(numbers.front()));
  };
  if (const std::vector<uint32_t> *words = getIndexArray(operand))
    write(*words);
  else if (type.getElementType().isInteger(32))
    write(getRows<uint32_t>(type.getNumElements()));
  else if (type.getElementType().isInteger(64))
    write(getRows<uint64_t>(type.getNumElements()));
  return found->second = *address;
}

/// What copies of boxes know of the matrix at `address`.
static ::ptx::TensorMap describe(nvgpu::TmaCreateDescriptorOp op,
                                 uint64_t address) {
  auto matrix = cast<MemRefType>(
      op.getTensor().getDefiningOp<memref::CastOp>().getSource().getType());
  ArrayRef<int64_t> box = op.getType().getTensor().getShape();
  ::ptx::TensorMap map;
  map.address = address;
  map.dimensions = unsigned(matrix.getRank());
  map.elementBytes = matrix.getElementTypeBitWidth() / 8;
  uint64_t stride = map.elementBytes;
  for (auto [i, extents] : llvm::enumerate(llvm::zip_equal(
           llvm::reverse(matrix.getShape()), llvm::reverse(box)))) {
    auto [extent, boxExtent] = extents;
    map.size[i] = uint64_t(extent);
    map.box[i] = uint32_t(boxExtent);
    if (i != 0)
      map.stride[i - 1] = stride;
    stride *= uint64_t(extent);
  }
  switch (op.getType().getSwizzle()) {
  case nvgpu::TensorMapSwizzleKind::SWIZZLE_NONE:
    map.swizzle = ::ptx::Swizzle::None;
    break;
  case nvgpu::TensorMapSwizzleKind::SWIZZLE_32B:
    map.swizzle = ::ptx::Swizzle::Bytes32;
    break;
  case nvgpu::TensorMapSwizzleKind::SWIZZLE_64B:
    map.swizzle = ::ptx::Swizzle::Bytes64;
    break;
  case nvgpu::TensorMapSwizzleKind::SWIZZLE_128B:
    map.swizzle = ::ptx::Swizzle::Bytes128;
    break;
  }
  return map;
}

llvm::Expected<SmallVector<uint8_t>> StepPredictor::getBytes(Value operand) {
  nvgpu::TmaCreateDescriptorOp map = getTensorMap(operand);
  if (!map && !isa<MemRefType>(operand.getType())) {
    // A number that is none here is data.
    int64_t number = getConstantIntValue(operand).value_or(0);
    const auto *bytes = reinterpret_cast<const uint8_t *>(&number);
    return SmallVector<uint8_t>(bytes, bytes + sizeof(number));
  }
  auto address = getAddress(operand);
  if (!address)
    return address.takeError();
  if (!map) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(&*address);
    return SmallVector<uint8_t>(bytes, bytes + sizeof(*address));
  }
  auto encoded = LaunchSampler::encode(describe(map, *address));
  if (!encoded)
    return encoded.takeError();
  return SmallVector<uint8_t>(encoded->begin(), encoded->end());
}

static ::ptx::Dim getExtents(mlir::gpu::KernelDim3 from) {
  auto get = [](Value value) {
    std::optional<int64_t> extent = getConstantIntValue(value);
    assert(extent && "a step's launches are of constant size");
    return unsigned(*extent);
  };
  return {get(from.x), get(from.y), get(from.z)};
}

FailureOr<Sample> StepPredictor::run(mlir::gpu::LaunchFuncOp op, bool isWhole) {
  StringRef name = op.getKernelName().getValue();
  const ::ptx::Kernel *kernel = sampler.find(name);
  assert(kernel && "PTX has every kernel that the step launches");
  ::ptx::LaunchOptions options;
  options.grid = getExtents(op.getGridSizeOperandValues());
  options.block = getExtents(op.getBlockSizeOperandValues());
  if (op.hasClusterSize())
    options.cluster = getExtents(op.getClusterSizeOperandValues());
  if (Value shared = op.getDynamicSharedMemorySize())
    options.dynamicShared = unsigned(*getConstantIntValue(shared));
  options.parameters.resize(kernel->info.parameterBytes);
  SmallVector<BufferRange> buffers;
  for (auto [operand, parameter] :
       llvm::zip_equal(op.getKernelOperands(), kernel->info.parameters)) {
    auto bytes = getBytes(operand);
    if (!bytes)
      return op.emitError() << llvm::toString(bytes.takeError());
    assert(bytes->size() >= parameter.size && "a parameter of the operand");
    std::copy_n(bytes->begin(), parameter.size,
                options.parameters.begin() + parameter.offset);
    Value memory = operand;
    if (nvgpu::TmaCreateDescriptorOp map = getTensorMap(operand))
      memory = map.getTensor().getDefiningOp<memref::CastOp>().getSource();
    if (auto type = dyn_cast<MemRefType>(memory.getType()))
      buffers.push_back({addresses.lookup(getRoot(operand)), ::getBytes(type)});
  }
  auto sample = sampler.run(name, options, buffers, isWhole);
  if (!sample)
    return op.emitError() << llvm::toString(sample.takeError());
  return *sample;
}

FailureOr<Sample> StepPredictor::makeIndices(mlir::gpu::LaunchFuncOp op) {
  if (hasIndexArray(op))
    for (Value operand : op.getKernelOperands())
      makers.erase(getRoot(operand));
  if (failed(makeIndicesFor(op)))
    return failure();
  return run(op, /*isWhole=*/true);
}

FailureOr<Sample> StepPredictor::count(mlir::gpu::LaunchFuncOp op) {
  if (makesIndices(op))
    return makeIndices(op);
  if (failed(makeIndicesFor(op)))
    return failure();
  return run(op, /*isWhole=*/false);
}

/// Makes the instructions that `work` counts those of the machine.
static MachineUse useMachine(KernelWork &work, const ::ptx::Kernel &kernel,
                             const SASSKernel &machine) {
  double ratio = getMachineRatio(kernel, machine);
  work.instructions *= ratio;
  work.longestWarp *= ratio;
  for (double &count : work.arithmetic)
    count *= ratio;
  return {machine.registers, machine.spilledBytes, ratio};
}

FailureOr<SmallVector<KernelPrediction, 0>>
bsr::gpu::predictKernels(ModuleOp module, const ModelParameters &parameters,
                         const llvm::StringMap<SASSKernel> *machine) {
  FailureOr<StringRef> text = getPTX(module);
  if (failed(text))
    return failure();
  auto sampler = LaunchSampler::create(*text);
  if (!sampler)
    return module.emitError() << llvm::toString(sampler.takeError());
  const Chip &chip = getChip(module);

  llvm::MapVector<StringRef, KernelPrediction> predictions;
  for (auto step : module.getOps<func::FuncOp>()) {
    if (isOfPlans(step))
      continue;
    StepPredictor predictor(step, **sampler);
    auto predict = [&](mlir::gpu::LaunchFuncOp op,
                       bool isPlan) -> LogicalResult {
      StringRef name = op.getKernelName().getValue();
      KernelPrediction &prediction = predictions[name];
      if (++prediction.launches != 1) {
        predictor.pass(op);
        return success();
      }
      FailureOr<Sample> counted = predictor.count(op);
      if (failed(counted))
        return failure();
      prediction.name = name.str();
      prediction.when =
          isPlan ? KernelPrediction::Plans : KernelPrediction::Step;
      prediction.countedBlocks = counted->blocks;
      KernelWork &work = prediction.work = counted->work;
      if (machine) {
        auto found = machine->find(name);
        if (found == machine->end())
          return op.emitError("expected machine code of '")
                 << name << "', but got none";
        prediction.machine =
            useMachine(work, *(*sampler)->find(name), found->second);
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
    const KernelWork &work = kernel->work;
    launches += kernel->launches;
    seconds += getTotal(*kernel);
    os << llvm::left_justify(kernel->name, width)
       << llvm::formatv("{0,9}{1,12:f2}  {2,-11}", kernel->launches,
                        prediction.seconds * 1e6,
                        stringify(prediction.binding));
    for (double clocks : prediction.clocks)
      os << llvm::formatv("{0,11:f0}", clocks);
    double flops = llvm::sum_of(work.tensorFlops, 0.0) +
                   llvm::sum_of(work.warpgroupFlops, 0.0);
    os << llvm::formatv("{0,14:f3}{1,14:f0}", flops / 1e6, work.instructions);
    for (double bytes : {work.sharedBytes, work.l2Bytes, work.memoryBytes})
      os << llvm::formatv("{0,14:f2}", bytes / 1024);
    if (const std::optional<MachineUse> &machine = kernel->machine)
      os << llvm::formatv("{0,12}{1,12}{2,13:f2}", machine->registers,
                          machine->spilledBytes, machine->ratio);
    os << "  " << kernel->countedBlocks << " of "
       << llvm::formatv("{0:f0}", work.blocks) << "\n";
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
  os << "predicted for " << chip.name << " (" << chip.product << ", "
     << llvm::formatv("{0:f2}", chip.memoryBandwidth / 1e12)
     << " TB/s), not run on a device; clocks of each resource, warp "
        "instructions "
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
  os << "  thread blocks counted\n";
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
