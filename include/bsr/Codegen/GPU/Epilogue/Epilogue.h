// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Epilogues on the sums of a product while they are in registers.

#ifndef BSR_CODEGEN_GPU_EPILOGUE_EPILOGUE_H
#define BSR_CODEGEN_GPU_EPILOGUE_EPILOGUE_H

#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

namespace mlir::bsr::gpu {

/// The result of a product as its kernel sees it.
struct ResultSpace {
  /// The dimensions of the result, merged: those of each coordinate, which
  /// follow each other.
  SmallVector<SmallVector<int64_t, 2>> dims;
  /// The coordinate along which the rows of fragments run; their columns run
  /// along the last one.
  unsigned row;
  /// The columns that a warp has.
  int64_t warpColumns;
};

/// Sums that a warp has.
struct WarpSums {
  SumLayout layout;
  /// Row by row, as an epilogue takes them: of fragments, or of lanes that have
  /// four neighbouring columns.
  SmallVector<Value> sums;
  int64_t numRows;
  /// The coordinates but the columns; along the rows, the first one of the
  /// lane.
  SmallVector<Value> at;
  /// The first column of the warp, and how many warps are before it.
  Value column, warpNumber;
  /// True if some rows or columns may be beyond the last one.
  bool areRowsRagged, areColumnsRagged;
};

/// The element-wise operations and the sums over tokens that follow a product
/// in its chain. A lane evaluates them on four neighbouring columns, which it
/// gets from its neighbour: what it loads and stores are vectors. Of a sum
/// over tokens, a warp leaves its partial sum in scratch memory; a second
/// launch adds these in order.
class Epilogue {
public:
  /// The epilogue of `chain`, whose product's result is `space`; none if it
  /// cannot run on fragments.
  static std::optional<Epilogue> match(const Chain &chain,
                                       const ResultSpace &space);
  /// True if four columns of a result of `type` are neighbours in memory.
  static bool accepts(RankedTensorType type) {
    return type.getRank() && type.getShape().back() % length == 0;
  }

  /// The memory for partial sums.
  SmallVector<MemRefType> getScratch() const;
  /// Has `kernel` write the results, and partial sums in `scratch`: what
  /// `emit` is given is from launches behind it.
  void begin(OpBuilder &b, KernelBody &kernel, ValueRange scratch);
  /// What a warp does with its sums.
  void emit(BlockBuilder &b, const WarpSums &sums) const;
  /// What a thread does with `length` sums, from number `number * length` of
  /// all on.
  void emit(BlockBuilder &b, Value number, ValueRange sums) const;
  /// Emits the launches that add partial sums. Failure, which was reported, if
  /// something could not be emitted.
  LogicalResult end(OpBuilder &b) const;

  /// Neighbouring columns of a lane.
  static constexpr int64_t length = 4;

private:
  Epilogue(const Chain &chain, const ResultSpace &space);
  class Lane;
  bool hasTotals() const { return !totals.empty(); }
  /// True if it is emitted once, in a loop over rows.
  bool isLong() const;
  RankedTensorType getType() const {
    return cast<RankedTensorType>(chain->getProduct().getType());
  }
  SmallVector<int64_t> getSizes() const;
  SmallVector<int64_t> getPartialSizes() const;

  const Chain *chain;
  ResultSpace space;
  /// The results that are sums over tokens.
  SmallVector<OpResult> totals;
  /// Of the kernel; of each result its buffer, of each total its partial sums.
  const KernelBody *kernel = nullptr;
  llvm::MapVector<Value, Value> stored, partials;
  ValueRange scratch;
  mutable bool hasFailed = false;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_EPILOGUE_EPILOGUE_H
