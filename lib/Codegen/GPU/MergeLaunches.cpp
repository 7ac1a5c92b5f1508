// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joins launches of one kernel on independent data to one.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Codegen/GPU/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SetVector.h"
#include <map>

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRMERGELAUNCHES
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Launches that are one at most: each thread chooses among their buffers, by
/// one select for each.
static constexpr size_t mostTogether = 16;

/// Parameters of a kernel, of 8 bytes, in the 4 KiB that all versions of PTX
/// allow.
static constexpr size_t mostParameters = 512;

namespace {
/// Bytes that a launch touches: of an argument of the step all, of its arena
/// some.
struct Access {
  Value root;
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
  bool isWritten = true;
};

/// Launches that become one, in the place of the last, and what they touch.
struct Group {
  SmallVector<gpu::LaunchFuncOp> launches;
  SmallVector<Access> accesses;
  bool isFixed = false; ///< in its place, and all others before or behind it
};

struct MergeLaunches : bsr::impl::BSRMergeLaunchesBase<MergeLaunches> {
  using Base::Base;

  void runOnOperation() override;

private:
  void mergeIn(func::FuncOp step);
  bool isMergeable(gpu::LaunchFuncOp launch);
  void addAccesses(gpu::LaunchFuncOp launch, SmallVectorImpl<Access> &to);
  const SmallVector<bool> &findWritten(gpu::GPUFuncOp kernel);
  void merge(ArrayRef<gpu::LaunchFuncOp> launches);
  gpu::GPUFuncOp createMerged(gpu::GPUFuncOp kernel, size_t count,
                              const SmallVector<bool> &isShared);

  gpu::GPUFuncOp getKernel(gpu::LaunchFuncOp launch) {
    return kernels->lookup<gpu::GPUFuncOp>(launch.getKernelName());
  }

  std::optional<SymbolTable> kernels;
  llvm::DenseMap<Operation *, SmallVector<bool>> written;
  std::map<std::tuple<Operation *, size_t, std::vector<bool>>, gpu::GPUFuncOp>
      merged;
};
} // namespace

static bool conflicts(ArrayRef<Access> some, ArrayRef<Access> others) {
  return llvm::any_of(some, [&](const Access &one) {
    return llvm::any_of(others, [&](const Access &other) {
      return one.root == other.root && one.begin < other.end &&
             other.begin < one.end && (one.isWritten || other.isWritten);
    });
  });
}

/// Whether nothing in `value`'s kernel writes to the memory that it is.
static bool isOnlyRead(Value value) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (isa<memref::LoadOp, vector::LoadOp>(user))
      return true;
    return isa<ViewLikeOpInterface>(user) && isMemoryEffectFree(user) &&
           llvm::all_of(user->getResults(), isOnlyRead);
  });
}

const SmallVector<bool> &MergeLaunches::findWritten(gpu::GPUFuncOp kernel) {
  auto [found, isNew] = written.try_emplace(kernel);
  if (isNew) // shared memory follows the parameters
    for (BlockArgument argument : kernel.getArguments().take_front(
             kernel.getFunctionType().getNumInputs()))
      found->second.push_back(!isOnlyRead(argument));
  return found->second;
}

/// The memory that `operand` of a launch is, of a tensor map that of which it
/// tells.
static Access findAccess(Value operand) {
  if (auto cast = operand.getDefiningOp<UnrealizedConversionCastOp>())
    if (auto map =
            cast.getOperand(0).getDefiningOp<nvgpu::TmaCreateDescriptorOp>())
      operand = map.getTensor();
  Access access;
  while (auto view = operand.getDefiningOp<ViewLikeOpInterface>()) {
    if (auto part = dyn_cast<memref::ViewOp>(*view)) {
      access = Access();
      auto offset = getConstantIntValue(part.getByteShift());
      if (offset && part.getType().hasStaticShape()) {
        int64_t bytes =
            llvm::divideCeil(part.getType().getElementTypeBitWidth(), 8);
        access.begin = *offset;
        access.end = *offset + bytes * part.getType().getNumElements();
      }
    }
    operand = view.getViewSource();
  }
  access.root = operand;
  return access;
}

void MergeLaunches::addAccesses(gpu::LaunchFuncOp launch,
                                SmallVectorImpl<Access> &to) {
  const SmallVector<bool> &isWritten = findWritten(getKernel(launch));
  for (auto [operand, writes] :
       llvm::zip_equal(launch.getKernelOperands(), isWritten)) {
    if (operand.getType().isIntOrIndexOrFloat())
      continue;
    Access access = findAccess(operand);
    access.isWritten = writes;
    to.push_back(access);
  }
}

bool MergeLaunches::isMergeable(gpu::LaunchFuncOp launch) {
  StringAttr kind = attrs::kind.get(launch);
  gpu::KernelDim3 grid = launch.getGridSizeOperandValues();
  bool isLine = isConstantIntValue(grid.y, 1) && isConstantIntValue(grid.z, 1);
  if (!kind || kind.getValue() != "elementwise" || !isLine ||
      launch.hasClusterSize() || launch.getDynamicSharedMemorySize() ||
      getKernel(launch).getNumWorkgroupAttributions() ||
      !llvm::all_of(launch.getKernelOperands(), [](Value operand) {
        return isa<MemRefType>(operand.getType());
      }))
    return false;
  // Of the grid a thread knows its own place along x alone.
  return !getKernel(launch)
              .walk([](Operation *op) {
                auto block = dyn_cast<gpu::BlockIdOp>(op);
                bool isOther =
                    isa<gpu::GridDimOp, gpu::GlobalIdOp>(op) ||
                    (block && block.getDimension() != gpu::Dimension::x);
                return isOther ? WalkResult::interrupt()
                               : WalkResult::advance();
              })
              .wasInterrupted();
}

/// Whether two launches of a kernel have as many threads, in equal blocks.
static bool haveSameThreads(gpu::LaunchFuncOp one, gpu::LaunchFuncOp other) {
  auto isSame = [](const gpu::KernelDim3 &a, const gpu::KernelDim3 &b) {
    return isEqualConstantIntOrValue(a.x, b.x) &&
           isEqualConstantIntOrValue(a.y, b.y) &&
           isEqualConstantIntOrValue(a.z, b.z);
  };
  return isSame(one.getGridSizeOperandValues(),
                other.getGridSizeOperandValues()) &&
         isSame(one.getBlockSizeOperandValues(),
                other.getBlockSizeOperandValues());
}

/// Element `index` of the tree of selects over `values`, which `bits` of the
/// index decide.
static Value choose(OpBuilder &b, Location loc, ValueRange values,
                    ArrayRef<Value> bits) {
  if (values.size() == 1)
    return values.front();
  // The highest bit of the last index parts them.
  size_t half = size_t(1) << llvm::Log2_64(values.size() - 1);
  Value low = choose(b, loc, values.take_front(half), bits);
  Value high = choose(b, loc, values.drop_front(half), bits);
  return arith::SelectOp::create(b, loc, bits[llvm::Log2_64(half)], high, low);
}

gpu::GPUFuncOp MergeLaunches::createMerged(gpu::GPUFuncOp kernel, size_t count,
                                           const SmallVector<bool> &isShared) {
  gpu::GPUFuncOp &made = merged[{
      kernel, count, std::vector<bool>(isShared.begin(), isShared.end())}];
  if (made)
    return made;
  made = kernel.clone();
  made.setName((kernel.getName() + "_" + Twine(count)).str());
  kernels->insert(made, std::next(Block::iterator(kernel)));
  if (auto grid = made.getKnownGridSizeAttr()) {
    SmallVector<int32_t> extents(grid.asArrayRef());
    extents[1] = int32_t(count);
    made.setKnownGridSizeAttr(DenseI32ArrayAttr::get(&getContext(), extents));
  }
  Location loc = made.getLoc();
  Block &entry = made.getBody().front();
  OpBuilder b = OpBuilder::atBlockBegin(&entry);
  Value number = gpu::BlockIdOp::create(b, loc, gpu::Dimension::y);
  SmallVector<Value> bits;
  for (size_t bit = 1; bit < count; bit *= 2) {
    Value mask = arith::ConstantIndexOp::create(b, loc, int64_t(bit));
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value masked = arith::AndIOp::create(b, loc, number, mask);
    bits.push_back(
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, masked, zero));
  }
  // The buffers of the first launch stay, and those of the others follow each.
  unsigned at = 0;
  for (bool isOfAll : isShared) {
    SmallVector<Value> values{made.getArgument(at++)};
    for (size_t i = 1; !isOfAll && i != count; ++i, ++at) {
      (void)made.insertArgument(at, values[0].getType(), DictionaryAttr(), loc);
      values.push_back(made.getArgument(at));
    }
    if (isOfAll)
      continue;
    Value chosen = choose(b, loc, values, bits);
    SmallPtrSet<Operation *, 32> before;
    for (Operation &op : llvm::make_range(entry.begin(), b.getInsertionPoint()))
      before.insert(&op);
    values[0].replaceUsesWithIf(chosen, [&](OpOperand &use) {
      return !before.contains(use.getOwner());
    });
  }
  return made;
}

void MergeLaunches::merge(ArrayRef<gpu::LaunchFuncOp> launches) {
  gpu::LaunchFuncOp last = launches.back();
  unsigned numOperands = last.getNumKernelOperands();
  SmallVector<bool> isShared;
  SmallVector<Value> operands;
  // What a launch gets twice, such as state that it reads and writes, is two
  // parameters here too.
  for (unsigned i = 0; i != numOperands; ++i) {
    auto ofEach = llvm::map_range(launches, [&](gpu::LaunchFuncOp launch) {
      return launch.getKernelOperand(i);
    });
    isShared.push_back(llvm::all_equal(ofEach));
    if (isShared.back())
      operands.push_back(last.getKernelOperand(i));
    else
      llvm::append_range(operands, ofEach);
  }
  gpu::GPUFuncOp kernel =
      createMerged(getKernel(last), launches.size(), isShared);
  OpBuilder b(last);
  gpu::KernelDim3 grid = last.getGridSizeOperandValues();
  grid.y = arith::ConstantIndexOp::create(b, last.getLoc(),
                                          int64_t(launches.size()));
  auto together = gpu::LaunchFuncOp::create(
      b, last.getLoc(), kernel, grid, last.getBlockSizeOperandValues(),
      /*dynamicSharedMemorySize=*/Value(), operands);
  attrs::kind.set(together, attrs::kind.get(last));
  for (gpu::LaunchFuncOp launch : launches)
    launch.erase();
  numMerged += launches.size();
}

void MergeLaunches::mergeIn(func::FuncOp step) {
  // The order of launches; each group is in the place of its last one.
  std::vector<std::unique_ptr<Group>> order;
  llvm::DenseMap<Attribute, Group *> open;
  auto isFree = [&](Group *group, gpu::LaunchFuncOp launch,
                    ArrayRef<Access> accesses) {
    size_t count = group->launches.size() + 1;
    if (count > mostTogether || !haveSameThreads(group->launches[0], launch) ||
        count * group->launches[0].getNumKernelOperands() > mostParameters ||
        conflicts(group->accesses, accesses))
      return false;
    for (const auto &other : llvm::reverse(order)) {
      if (other.get() == group)
        return true;
      if (other->isFixed || conflicts(group->accesses, other->accesses))
        return false;
    }
    return false;
  };
  for (Operation &op : step.getBody().front()) {
    auto launch = dyn_cast<gpu::LaunchFuncOp>(op);
    if (!launch) {
      if (isMemoryEffectFree(&op) ||
          isa<nvgpu::TmaCreateDescriptorOp, func::ReturnOp>(op))
        continue;
      order.push_back(std::make_unique<Group>());
      order.back()->isFixed = true;
      continue;
    }
    SmallVector<Access> accesses;
    addAccesses(launch, accesses);
    Group *&group = open[launch.getKernelAttr()];
    bool isMerged = isMergeable(launch);
    if (isMerged && group && isFree(group, launch, accesses)) {
      auto place = llvm::find_if(
          order, [&](const auto &one) { return one.get() == group; });
      std::rotate(place, std::next(place), order.end());
    } else {
      order.push_back(std::make_unique<Group>());
      group = isMerged ? order.back().get() : nullptr;
    }
    order.back()->launches.push_back(launch);
    llvm::append_range(order.back()->accesses, accesses);
  }
  for (const auto &group : order) {
    if (group->launches.size() < 2)
      continue;
    gpu::LaunchFuncOp first = group->launches.front();
    if (!decide("bsr-merge-launches", first))
      continue;
    PassRemark::passed("bsr-merge-launches", "LaunchesMerged", first)
        .add("Kernel", first.getKernelName())
        .add("Launches", group->launches.size());
    merge(group->launches);
  }
}

void MergeLaunches::runOnOperation() {
  auto modules = getOperation().getOps<gpu::GPUModuleOp>();
  if (modules.empty())
    return;
  kernels.emplace(*modules.begin());
  merged.clear();
  written.clear();
  for (auto step : getOperation().getOps<func::FuncOp>())
    if (!step.isExternal() && !step.isPrivate())
      mergeIn(step);
  // Kernels all of whose launches were merged.
  llvm::DenseSet<StringAttr> used;
  getOperation().walk(
      [&](gpu::LaunchFuncOp launch) { used.insert(launch.getKernelName()); });
  llvm::SetVector<Operation *> left;
  for (const auto &one : merged)
    if (auto *kernel = std::get<Operation *>(one.first);
        !used.contains(cast<gpu::GPUFuncOp>(kernel).getNameAttr()))
      left.insert(kernel);
  for (Operation *kernel : left)
    kernel->erase();
}
