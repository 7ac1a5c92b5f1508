// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix by warps, on tensor cores
// or on arithmetic units.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_TILEDSPMM_H
#define BSR_LIB_CODEGEN_GPU_SPMM_TILEDSPMM_H

#include "ChunkWalk.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

namespace mlir::bsr::gpu {

/// A `bsr.spmm` by warps, each of which owns lines and tokens. Tensor cores
/// multiply 16-bit elements in blocks of 4 to 64 rows and columns, or, rounded
/// to `tf32`, f32 in blocks of 16 to 64; lanes multiply and add the terms of
/// what is left one by one, in f32.
class TiledSpMM : public PlannedSpMM {
public:
  /// The product of `operands`, if it is one that `chip` runs here, on tensor
  /// cores or else on lanes.
  static std::optional<TiledSpMM> match(const BlockProduct &operands,
                                        GPUAttr chip);
  static std::optional<TiledSpMM> match(const BlockProduct &operands,
                                        GPUAttr chip, bool isOnTensorCores);

  std::optional<ResultSpace> getSpace() override;
  std::string describeTile() const override { return tile.describe(shape); }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class SpMMEmitter;

  SpMMTile tile;
};

/// What a thread of a product does, whose `walk` says what is copied.
class SpMMEmitter {
public:
  virtual ~SpMMEmitter() = default;
  void emit();

protected:
  SpMMEmitter(TiledSpMM &product, const SpMMLaunch &launch, ChunkWalk &walk,
              BlockBuilder &b);

  /// What a warp does before it multiplies.
  virtual void begin() {}
  /// Adds to the sums of the warp's lines what is in a stage.
  virtual SmallVector<Value> multiply(Value stage, ValueRange words,
                                      ValueRange sums) = 0;
  /// The output of the lane's first row in a line.
  virtual Value getFirstRow() = 0;
  /// All sums, from what those of each row of the lane begin with.
  virtual SmallVector<Value> fillRows(ValueRange starts) = 0;
  /// Stores row `row` of the lane, of all lines, as `output` of the result.
  virtual void storeRow(int64_t row, Value output, ValueRange sums) = 0;
  /// The sums of all lines in fragments, if they are.
  FragmentGrid getFragments() const {
    return {tile.warpLines * shape.outBlock / fragmentRows,
            tile.warpTokens / fragmentCols};
  }

  const SpMMShape &shape;
  const SpMMTile &tile;
  const SpMMLaunch &launch;
  ChunkWalk &walk;
  BlockBuilder &b;
  const StageLayout &layout;
  /// Of what is multiplied.
  Type type;
  /// Rows of the lane in a line, and how far apart they are.
  int64_t numRows = 0, rowDistance = 1;

private:
  Value getOutput(int64_t line, int64_t row);
  SmallVector<Value> getInitialSums();
  void store(ValueRange sums);
  void emitEpilogue(ValueRange sums);

  TiledSpMM &product;
};

/// What multiplies by tensor cores, and by lanes.
std::unique_ptr<SpMMEmitter> createWarpEmitter(TiledSpMM &product,
                                               const SpMMLaunch &launch,
                                               ChunkWalk &walk,
                                               BlockBuilder &b);
std::unique_ptr<SpMMEmitter> createLaneEmitter(TiledSpMM &product,
                                               const SpMMLaunch &launch,
                                               ChunkWalk &walk,
                                               BlockBuilder &b);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_TILEDSPMM_H
