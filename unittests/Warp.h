// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launches of unit tests, run lane by lane.

#ifndef BSR_UNITTESTS_WARP_H
#define BSR_UNITTESTS_WARP_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "gtest/gtest.h"
#include <map>

namespace mlir::bsr::test {

/// A buffer of 32-bit integers, row-major.
struct Integers {
  SmallVector<int64_t> shape;
  std::vector<int32_t> data;

  explicit Integers(MemRefType type, int32_t value = 0)
      : shape(type.getShape()), data(size_t(type.getNumElements()), value) {}
  int32_t &at(ArrayRef<int64_t> place) {
    int64_t offset = 0;
    for (auto [extent, index] : llvm::zip_equal(shape, place)) {
      EXPECT_TRUE(index >= 0 && index < extent) << index << " of " << extent;
      offset = offset * extent + std::clamp<int64_t>(index, 0, extent - 1);
    }
    return data[size_t(offset)];
  }
};

/// Runs what a launch of one warp a block does: each operation for all lanes
/// that are active there, before the next one. Arithmetic is what the
/// operations fold to; shared memory has words.
class Warp {
public:
  Warp(mlir::gpu::LaunchOp launch, int64_t lanes)
      : launch(launch), lanes(lanes) {}

  /// The contents of the buffer `value`.
  Integers &operator[](Value value) {
    return buffers.try_emplace(value, cast<MemRefType>(value.getType()))
        .first->second;
  }

  /// Runs block `number`.
  void run(int64_t number) {
    values.clear();
    shared.clear();
    Type index = IndexType::get(launch.getContext());
    auto set = [&](Value id, auto get) {
      for (int64_t lane = 0; lane != lanes; ++lane)
        laneValues(id)[lane] = IntegerAttr::get(index, get(lane));
    };
    set(launch.getThreadIds().x, [](int64_t lane) { return lane; });
    set(launch.getBlockIds().x, [&](int64_t) { return number; });
    set(launch.getBlockIds().y, [](int64_t) { return 0; });
    run(launch.getBody().front(), std::vector<bool>(size_t(lanes), true));
  }

private:
  using Mask = std::vector<bool>;
  using Lanes = SmallVector<Attribute>;

  Lanes &laneValues(Value value) {
    Lanes &all = values[value];
    all.resize(size_t(lanes));
    return all;
  }
  /// What `value` is in a lane: what no active lane computed is null.
  Attribute get(Value value, int64_t lane) {
    if (Attribute constant; matchPattern(value, m_Constant(&constant)))
      return constant;
    return laneValues(value)[lane];
  }
  int64_t getInt(Value value, int64_t lane) {
    auto number = dyn_cast_or_null<IntegerAttr>(get(value, lane));
    EXPECT_TRUE(number) << "a lane reads what it has not computed";
    return number ? number.getValue().getSExtValue() : 0;
  }
  void setInt(Value value, int64_t lane, int64_t number) {
    laneValues(value)[lane] = IntegerAttr::get(value.getType(), number);
  }
  template <typename Body>
  void forLanes(const Mask &mask, Body body) {
    for (int64_t lane = 0; lane != lanes; ++lane)
      if (mask[size_t(lane)])
        body(lane);
  }
  /// Gives `to` what `from` is in the lanes of `mask`, at one time.
  void assign(ValueRange to, ValueRange from, const Mask &mask) {
    SmallVector<Lanes> all;
    for (Value value : from) {
      Lanes &own = all.emplace_back(size_t(lanes));
      forLanes(mask, [&](int64_t lane) { own[lane] = get(value, lane); });
    }
    for (auto [value, own] : llvm::zip_equal(to, all))
      forLanes(mask, [&, &own = own, value = value](int64_t lane) {
        laneValues(value)[lane] = own[lane];
      });
  }

  void run(Block &block, const Mask &mask) {
    for (Operation &op : block)
      run(&op, mask);
  }

  void run(scf::ForOp loop, const Mask &outer) {
    assign(loop.getRegionIterArgs(), loop.getInitArgs(), outer);
    Value at = loop.getInductionVar();
    assign(at, loop.getLowerBound(), outer);
    auto getActive = [&] {
      Mask mask = outer;
      forLanes(outer, [&](int64_t lane) {
        mask[size_t(lane)] =
            getInt(at, lane) < getInt(loop.getUpperBound(), lane);
      });
      return mask;
    };
    for (Mask mask = getActive(); llvm::is_contained(mask, true);
         mask = getActive()) {
      run(*loop.getBody(), mask);
      assign(loop.getRegionIterArgs(),
             loop.getBody()->getTerminator()->getOperands(), mask);
      forLanes(mask, [&](int64_t lane) {
        setInt(at, lane, getInt(at, lane) + getInt(loop.getStep(), lane));
      });
    }
    assign(loop.getResults(), loop.getRegionIterArgs(), outer);
  }

  void run(scf::IfOp choice, const Mask &outer) {
    for (bool isThen : {true, false}) {
      if (!isThen && choice.getElseRegion().empty())
        continue;
      Mask mask = outer;
      forLanes(outer, [&](int64_t lane) {
        mask[size_t(lane)] =
            (getInt(choice.getCondition(), lane) != 0) == isThen;
      });
      if (!llvm::is_contained(mask, true))
        continue;
      Block &block = isThen ? *choice.thenBlock() : *choice.elseBlock();
      run(block, mask);
      assign(choice.getResults(), block.getTerminator()->getOperands(), mask);
    }
  }

  void run(Operation *op, const Mask &mask) {
    if (auto loop = dyn_cast<scf::ForOp>(op))
      return run(loop, mask);
    if (auto choice = dyn_cast<scf::IfOp>(op))
      return run(choice, mask);
    if (auto load = dyn_cast<memref::LoadOp>(op))
      return forLanes(mask, [&](int64_t lane) {
        setInt(load.getResult(), lane,
               (*this)[load.getMemRef()].at(getPlace(load.getIndices(), lane)));
      });
    if (auto store = dyn_cast<memref::StoreOp>(op))
      return forLanes(mask, [&](int64_t lane) {
        (*this)[store.getMemRef()].at(getPlace(store.getIndices(), lane)) =
            int32_t(getInt(store.getValueToStore(), lane));
      });
    if (auto load = dyn_cast<LLVM::LoadOp>(op))
      return forLanes(mask, [&](int64_t lane) {
        setInt(load.getResult(), lane, shared[getOffset(load.getAddr(), lane)]);
      });
    if (auto store = dyn_cast<LLVM::StoreOp>(op))
      return forLanes(mask, [&](int64_t lane) {
        shared[getOffset(store.getAddr(), lane)] =
            int32_t(getInt(store.getValue(), lane));
      });
    // Addresses are found where they are used; lanes wait after each operation.
    if (op->hasTrait<OpTrait::IsTerminator>() ||
        op->hasTrait<OpTrait::ConstantLike>() ||
        isa<LLVM::GEPOp, LLVM::ExtractValueOp, UnrealizedConversionCastOp,
            mlir::gpu::DynamicSharedMemoryOp, mlir::gpu::BarrierOp>(op))
      return;
    ASSERT_EQ(op->getNumResults(), 1u) << op->getName().getStringRef().str();
    forLanes(mask, [&](int64_t lane) {
      SmallVector<Attribute> operands;
      for (Value operand : op->getOperands())
        operands.push_back(get(operand, lane));
      SmallVector<OpFoldResult> folded;
      if (failed(op->fold(operands, folded)) || folded.empty())
        FAIL() << "cannot compute " << op->getName().getStringRef().str();
      Attribute number = dyn_cast<Attribute>(folded.front());
      laneValues(op->getResult(0))[lane] =
          number ? number : get(cast<Value>(folded.front()), lane);
    });
  }

  SmallVector<int64_t> getPlace(ValueRange indices, int64_t lane) {
    return llvm::map_to_vector(
        indices, [&](Value index) { return getInt(index, lane); });
  }
  /// Where `pointer`, of shared memory, points to.
  int64_t getOffset(Value pointer, int64_t lane) {
    auto moved = pointer.getDefiningOp<LLVM::GEPOp>();
    if (!moved)
      return 0;
    int64_t bytes = moved.getElemType().getIntOrFloatBitWidth() / 8;
    auto by = moved.getIndices()[0];
    auto constant = dyn_cast<IntegerAttr>(by);
    return getOffset(moved.getBase(), lane) +
           bytes *
               (constant ? constant.getInt() : getInt(cast<Value>(by), lane));
  }

  mlir::gpu::LaunchOp launch;
  int64_t lanes;
  DenseMap<Value, Lanes> values;
  std::map<int64_t, int32_t> shared;
  llvm::DenseMap<Value, Integers> buffers;
};

} // namespace mlir::bsr::test

#endif // BSR_UNITTESTS_WARP_H
