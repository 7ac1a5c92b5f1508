// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns tensors into buffers; those of a step of launches in linear time.

#include "bsr/Analysis/PassOrder.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRBUFFERIZE
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

static bool isTensor(Type type) { return isa<TensorType>(type); }

static bool hasTensors(Operation *op) {
  return llvm::any_of(op->getOperandTypes(), isTensor) ||
         llvm::any_of(op->getResultTypes(), isTensor);
}

/// True if `func` is a step of launches, of which `Buffers` knows all: one
/// block of operations of which only launches and insertions write.
static bool isKnown(func::FuncOp func) {
  if (!isStep(func) || !func.getBody().hasOneBlock())
    return false;
  return llvm::all_of(func.getOps(), [](Operation &op) {
    if (auto alloc = dyn_cast<bufferization::AllocTensorOp>(op))
      return !alloc.getCopy();
    return isa<LaunchOp, tensor::InsertSliceOp, tensor::EmptyOp,
               tensor::ExtractOp, func::ReturnOp>(op) ||
           isView(&op) || matchPattern(&op, m_Constant()) ||
           (op.getNumRegions() == 0 && !hasTensors(&op));
  });
}

namespace {
/// The buffers of a step of launches. A launch writes all of its inits and
/// reads none: where it may not write over one it gets a new one. An insertion
/// that may not write gets a copy.
class Buffers {
public:
  explicit Buffers(func::FuncOp step);

  /// Gives operations other buffers where they would write over what is read
  /// later, or what must not be written. Returns how many.
  unsigned separate();

private:
  struct Buffer {
    bool isWritable;
    /// The last operations that read and write values that lie in it.
    int64_t lastRead = -1, lastWrite = -1;
  };
  /// Where a value lies.
  struct Place {
    size_t buffer;
    /// It is a part of the buffer, not the whole in some shape.
    bool isPart = false;
  };

  void define(Value value, Place place);
  void allocate(Value value, bool isWritable = true);
  bool mayWrite(Place place, int64_t position) const;
  bool mayWrite(LaunchOp launch, Value init, int64_t position) const;
  bool mayWrite(tensor::InsertSliceOp insert, int64_t position) const;
  void separate(OpOperand &init, OpResult result, bool mayWrite, bool isRead,
                int64_t position);

  func::FuncOp step;
  unsigned numSeparated = 0;
  /// The last operation that reads a value or a view of it, by its number.
  DenseMap<Value, int64_t> lastReads;
  std::vector<Buffer> buffers;
  DenseMap<Value, Place> places;
};
} // namespace

Buffers::Buffers(func::FuncOp step) : step(step) {
  int64_t position = llvm::range_size(step.front());
  for (Operation &op : llvm::reverse(step.front())) {
    --position;
    auto launch = dyn_cast<LaunchOp>(op);
    for (OpOperand &operand : op.getOpOperands()) {
      if (!isTensor(operand.get().getType()) ||
          (launch && launch.isDpsInit(&operand)))
        continue;
      int64_t at = position;
      if (isView(&op)) {
        auto found = lastReads.find(op.getResult(0));
        if (found == lastReads.end())
          continue;
        at = found->second;
      }
      int64_t &last = lastReads.try_emplace(operand.get(), at).first->second;
      last = std::max(last, at);
    }
  }
}

void Buffers::define(Value value, Place place) {
  places[value] = place;
  auto found = lastReads.find(value);
  if (found == lastReads.end())
    return;
  int64_t &last = buffers[place.buffer].lastRead;
  last = std::max(last, found->second);
}

void Buffers::allocate(Value value, bool isWritable) {
  buffers.push_back({isWritable});
  define(value, {buffers.size() - 1});
}

/// True if nothing reads what lies at `place` behind `position`.
bool Buffers::mayWrite(Place place, int64_t position) const {
  const Buffer &buffer = buffers[place.buffer];
  return buffer.isWritable && buffer.lastRead <= position &&
         buffer.lastWrite != position;
}

/// True if `launch` may write over `init`: what it reads of that buffer itself,
/// it reads element by element.
bool Buffers::mayWrite(LaunchOp launch, Value init, int64_t position) const {
  Place place = places.at(init);
  return mayWrite(place, position) &&
         llvm::all_of(launch.getDpsInputOperands(), [&](OpOperand *input) {
           auto read = places.find(input->get());
           return read == places.end() || read->second.buffer != place.buffer ||
                  (!place.isPart && !read->second.isPart &&
                   llvm::is_contained(launch.getInPlace(),
                                      input->getOperandNumber()));
         });
}

/// True if `insert` may write into its destination.
bool Buffers::mayWrite(tensor::InsertSliceOp insert, int64_t position) const {
  Place place = places.at(insert.getDest());
  return mayWrite(place, position) &&
         places.at(insert.getSource()).buffer != place.buffer;
}

/// Lets `result`, which the operation at `position` writes, lie where `init`
/// does, or else in a new buffer, with what `init` holds if that is read.
void Buffers::separate(OpOperand &init, OpResult result, bool mayWrite,
                       bool isRead, int64_t position) {
  if (!mayWrite) {
    OpBuilder b(init.getOwner());
    auto type = cast<RankedTensorType>(init.get().getType());
    init.set(bufferization::AllocTensorOp::create(
        b, result.getLoc(), type, /*dynamicSizes=*/ValueRange(),
        /*copy=*/isRead ? init.get() : Value()));
    allocate(init.get());
    ++numSeparated;
  }
  Place place = places.at(init.get());
  buffers[place.buffer].lastWrite = position;
  define(result, place);
}

unsigned Buffers::separate() {
  for (BlockArgument argument : step.getArguments())
    if (isTensor(argument.getType())) {
      auto isWritable = step.getArgAttrOfType<BoolAttr>(
          argument.getArgNumber(),
          bufferization::BufferizationDialect::kWritableAttrName);
      allocate(argument, !isWritable || isWritable.getValue());
    }
  int64_t position = -1;
  for (Operation &op : step.front()) {
    ++position;
    if (auto launch = dyn_cast<LaunchOp>(op)) {
      for (OpOperand &init : launch.getInitsMutable())
        separate(init, launch.getTiedOpResult(&init),
                 mayWrite(launch, init.get(), position), /*isRead=*/false,
                 position);
    } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
      separate(insert.getDestMutable(), op.getOpResult(0),
               mayWrite(insert, position), /*isRead=*/true, position);
    } else if (isView(&op)) {
      Place place = places.at(op.getOperand(0));
      place.isPart |= isa<tensor::ExtractSliceOp>(op);
      define(op.getResult(0), place);
    } else {
      for (Value result : op.getResults())
        if (isTensor(result.getType()))
          allocate(result, !op.hasTrait<OpTrait::ConstantLike>());
    }
  }
  return numSeparated;
}

namespace {
struct Bufferize : bsr::impl::BSRBufferizeBase<Bufferize> {
  using Base::Base;

  void runOnOperation() override {
    using namespace bufferization;
    if (failed(requireBefore<ClusterOp>("bsr-emit", getArgument(),
                                        getOperation())))
      return signalPassFailure();
    OneShotBufferizationOptions options;
    options.bufferizeFunctionBoundaries = true;
    options.setFunctionBoundaryTypeConversion(
        LayoutMapOption::IdentityLayoutMap);
    BufferizationState state;
    if (!isLaunched(getOperation())) {
      if (failed(runOneShotModuleBufferize(getOperation(), options, state)))
        signalPassFailure();
      return;
    }
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (isKnown(func))
        numSeparated += Buffers(func).separate();
    if (failed(bufferizeModuleOp(getOperation(), options, state)))
      return signalPassFailure();
    removeBufferizationAttributesInModule(getOperation());
  }

  /// True if all tensors of `module` are in steps of launches.
  static bool isLaunched(ModuleOp module) {
    return llvm::all_of(module.getOps(), [](Operation &op) {
      auto func = dyn_cast<func::FuncOp>(op);
      return (func && isKnown(func)) ||
             !op.walk([](Operation *inner) {
                  return WalkResult(failure(hasTensors(inner)));
                }).wasInterrupted();
    });
  }
};
} // namespace
