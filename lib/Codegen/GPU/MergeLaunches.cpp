// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joins launches on independent data to one: of one kernel, and of neighbours.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Codegen/GPU/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
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
/// some; of each `period` of these, if that is not 0, a part.
struct Access {
  Value root;
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
  int64_t period = 0, partBegin = 0, partEnd = 0;
  bool isWritten = true;

  bool overlaps(const Access &other) const {
    if (root != other.root || end <= other.begin || other.end <= begin)
      return false;
    bool arePartsOfOne =
        period && period == other.period && begin == other.begin;
    return !arePartsOfOne ||
           (partBegin < other.partEnd && other.partBegin < partEnd);
  }
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
  bool isJoinable(const Group &group);
  void joinNeighbours(std::vector<std::unique_ptr<Group>> &order);
  gpu::GPUFuncOp createJoined(ArrayRef<gpu::LaunchFuncOp> launches);
  void replace(ArrayRef<gpu::LaunchFuncOp> launches, gpu::GPUFuncOp kernel,
               ValueRange operands);
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
  std::map<std::vector<Operation *>, gpu::GPUFuncOp> joined;
};
} // namespace

static bool conflicts(ArrayRef<Access> some, ArrayRef<Access> others) {
  return llvm::any_of(some, [&](const Access &one) {
    return llvm::any_of(others, [&](const Access &other) {
      return (one.isWritten || other.isWritten) && one.overlaps(other);
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

/// Says in `access` which part of each row of its source `slice` is: of a
/// concatenation, one of the tensors that it has.
static void addPart(memref::ReinterpretCastOp slice, Access &access) {
  MemRefType type = slice.getType();
  auto [strides, offset] = type.getStridesAndOffset();
  if (ShapedType::isDynamic(offset) || ShapedType::isDynamicShape(strides) ||
      !type.hasStaticShape() || type.getRank() < 2 || strides[0] <= 0)
    return;
  int64_t inner = 1;
  for (auto [extent, stride] :
       llvm::drop_begin(llvm::zip_equal(type.getShape(), strides)))
    inner += (extent - 1) * stride;
  int64_t bytes = llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  int64_t first = offset % strides[0];
  if (llvm::any_of(strides, [](int64_t stride) { return stride < 0; }) ||
      first + inner > strides[0])
    return;
  access.period = strides[0] * bytes;
  access.partBegin = first * bytes;
  access.partEnd = (first + inner) * bytes;
}

/// The memory that `operand` of a launch is, of a tensor map that of which it
/// tells.
static Access findAccess(Value operand) {
  if (auto cast = operand.getDefiningOp<UnrealizedConversionCastOp>())
    if (auto map =
            cast.getOperand(0).getDefiningOp<nvgpu::TmaCreateDescriptorOp>())
      operand = map.getTensor();
  Access access;
  if (auto slice = operand.getDefiningOp<memref::ReinterpretCastOp>()) {
    operand = slice.getSource();
    // A whole buffer begins where its parts are counted from.
    if (!operand.getDefiningOp() || operand.getDefiningOp<memref::ViewOp>())
      addPart(slice, access);
  }
  while (auto view = operand.getDefiningOp<ViewLikeOpInterface>()) {
    if (auto part = dyn_cast<memref::ViewOp>(*view)) {
      access.begin = 0;
      access.end = std::numeric_limits<int64_t>::max();
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
  gpu::KernelDim3 grid = launch.getGridSizeOperandValues();
  bool isLine = isConstantIntValue(grid.y, 1) && isConstantIntValue(grid.z, 1);
  if (!isLine || launch.hasClusterSize() ||
      launch.getDynamicSharedMemorySize() ||
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

/// Says that the grid of `kernel`, if it is known, has `count` rows.
static void setKnownRows(gpu::GPUFuncOp kernel, size_t count) {
  auto grid = kernel.getKnownGridSizeAttr();
  if (!grid)
    return;
  SmallVector<int32_t> extents(grid.asArrayRef());
  extents[1] = int32_t(count);
  kernel.setKnownGridSizeAttr(
      DenseI32ArrayAttr::get(kernel.getContext(), extents));
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
  setKnownRows(made, count);
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
  replace(launches, createMerged(getKernel(last), launches.size(), isShared),
          operands);
}

/// Puts a launch of `kernel` in the place of the last of `launches`.
void MergeLaunches::replace(ArrayRef<gpu::LaunchFuncOp> launches,
                            gpu::GPUFuncOp kernel, ValueRange operands) {
  gpu::LaunchFuncOp last = launches.back();
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

/// Whether `group` is a launch of an element-wise kernel, of which nothing but
/// its arguments has to be told from another kernel's.
bool MergeLaunches::isJoinable(const Group &group) {
  if (group.isFixed || group.launches.size() != 1)
    return false;
  gpu::LaunchFuncOp launch = group.launches[0];
  gpu::GPUFuncOp kernel = getKernel(launch);
  StringAttr kind = attrs::kind.get(launch);
  return kind && kind.getValue() == "elementwise" && isMergeable(launch) &&
         !kernel.getNumWorkgroupAttributions() &&
         !kernel.getNumPrivateAttributions() && kernel.getBody().hasOneBlock();
}

/// A kernel whose thread blocks do what those of one of `launches` do.
gpu::GPUFuncOp
MergeLaunches::createJoined(ArrayRef<gpu::LaunchFuncOp> launches) {
  std::vector<Operation *> parts;
  for (gpu::LaunchFuncOp launch : launches)
    parts.push_back(getKernel(launch));
  gpu::GPUFuncOp &made = joined[parts];
  if (made)
    return made;
  auto first = cast<gpu::GPUFuncOp>(parts.front());
  made = first.clone();
  made.setName((first.getName() + "_and_" + Twine(parts.size() - 1)).str());
  kernels->insert(made, std::next(Block::iterator(first)));
  setKnownRows(made, parts.size());
  Location loc = made.getLoc();
  Block &entry = made.getBody().front();
  OpBuilder b = OpBuilder::atBlockBegin(&entry);
  Value number = gpu::BlockIdOp::create(b, loc, gpu::Dimension::y);
  for (auto [index, part] : llvm::enumerate(parts)) {
    Value mine = arith::ConstantIndexOp::create(b, loc, index);
    Value isMine =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, number, mine);
    auto body = scf::IfOp::create(b, loc, isMine);
    Block *then = body.thenBlock();
    if (index == 0) {
      then->getOperations().splice(then->begin(), entry.getOperations(),
                                   std::next(body->getIterator()),
                                   entry.getTerminator()->getIterator());
      b.setInsertionPoint(entry.getTerminator());
      continue;
    }
    Block &from = cast<gpu::GPUFuncOp>(part).getBody().front();
    IRMapping to;
    for (BlockArgument argument : from.getArguments()) {
      unsigned end = made.getNumArguments();
      (void)made.insertArgument(end, argument.getType(), DictionaryAttr(), loc);
      to.map(argument, made.getArgument(end));
    }
    OpBuilder inner = OpBuilder::atBlockBegin(then);
    for (Operation &op : from.without_terminator())
      inner.clone(op, to);
  }
  return made;
}

/// Makes one launch of each run of neighbours in `order` that have as many
/// threads, other kernels, and other data.
void MergeLaunches::joinNeighbours(std::vector<std::unique_ptr<Group>> &order) {
  for (size_t at = 0; at != order.size();) {
    size_t end = at;
    SmallVector<gpu::LaunchFuncOp> launches;
    SmallVector<Access> accesses;
    size_t numParameters = 0;
    for (; end != order.size() && isJoinable(*order[end]); ++end) {
      gpu::LaunchFuncOp launch = order[end]->launches[0];
      numParameters += launch.getNumKernelOperands();
      if (!launches.empty() &&
          (launches.size() == mostTogether || numParameters > mostParameters ||
           !haveSameThreads(launches[0], launch) ||
           conflicts(accesses, order[end]->accesses)))
        break;
      launches.push_back(launch);
      llvm::append_range(accesses, order[end]->accesses);
    }
    at = std::max(end, at + 1);
    if (launches.size() < 2 || !decide("bsr-merge-launches", launches[0]))
      continue;
    PassRemark::passed("bsr-merge-launches", "KernelsJoined", launches[0])
        .add("Kernel", launches[0].getKernelName())
        .add("Launches", launches.size());
    SmallVector<Value> operands;
    for (gpu::LaunchFuncOp launch : launches)
      llvm::append_range(operands, launch.getKernelOperands());
    replace(launches, createJoined(launches), operands);
  }
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
  joinNeighbours(order);
}

void MergeLaunches::runOnOperation() {
  auto modules = getOperation().getOps<gpu::GPUModuleOp>();
  if (modules.empty())
    return;
  kernels.emplace(*modules.begin());
  merged.clear();
  joined.clear();
  written.clear();
  for (auto step : getOperation().getOps<func::FuncOp>())
    if (!step.isExternal() && !step.isPrivate())
      mergeIn(step);
  // Kernels all of whose launches were merged.
  llvm::DenseSet<StringAttr> used;
  getOperation().walk(
      [&](gpu::LaunchFuncOp launch) { used.insert(launch.getKernelName()); });
  llvm::SetVector<Operation *> left;
  auto check = [&](Operation *kernel) {
    if (!used.contains(cast<gpu::GPUFuncOp>(kernel).getNameAttr()))
      left.insert(kernel);
  };
  for (const auto &one : merged)
    check(std::get<Operation *>(one.first));
  for (const auto &one : joined)
    llvm::for_each(one.first, check);
  for (Operation *kernel : left)
    kernel->erase();
}
