// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of tiles of bf16, added up in tiles of f32 by one instruction: x86's
// tdpbf16ps, which adds the product of 16 rows of 32 numbers and of 16 pairs of
// rows of 16 to 16 by 16 sums.

#ifndef BSR_LIB_CODEGEN_CPU_TILEPRODUCTS_H
#define BSR_LIB_CODEGEN_CPU_TILEPRODUCTS_H

#include "SparseKernels.h"

namespace mlir::bsr::cpu {

/// Rows of a tile, and its columns of 32 bits: a sum, or a pair of bf16.
constexpr int64_t tileSize = 16;
/// Summands of a tile's row.
constexpr int64_t tileDepth = 2 * tileSize;
/// Tiles that hold sums, of the eight that there are; the others hold factors.
constexpr int64_t sumTiles = 4;

/// Tiles in memory and in registers.
class TileBuilder {
public:
  explicit TileBuilder(Emitter &e);

  /// A tile of sums that are zero.
  Value zero();
  /// The tile of bf16 whose first row begins at `at` in `memref`; further ones
  /// are further along the last dimension but one.
  Value load(Value memref, ArrayRef<Index> at);
  /// The tile of sums that lies there.
  Value loadSums(Value memref, ArrayRef<Index> at);
  void store(Value sums, Value memref, ArrayRef<Index> at);
  /// `sums + a * b`, of pairs of rows of `b`.
  Value multiplyAdd(Value a, Value b, Value sums);
  /// A vector of sums of tiles, as they are, in type `to`: none of them is
  /// subnormal, so that `bsr-expand-bf16` may round them by an instruction.
  Value convert(Value sums, Type to);

private:
  Emitter &e;
  Type factors, sums;
};

/// How a `bsr.spmm` is made of tiles: the values are the rows, and rows of
/// activations in pairs, which a work item puts side by side for each step of
/// 32 features, the columns.
struct TiledSpMM {
  /// Nothing if the kernel is another: blocks are no whole tiles, numbers are
  /// not bf16, tokens are fewer than a panel, or a schedule says otherwise.
  static std::optional<TiledSpMM> find(SpMMOp op, CPUTarget target);

  PatternType pattern;
  View walked;
  int64_t lines;
  /// Features of a block along the lines, which are made, and across them,
  /// which are read.
  int64_t outBlock, inBlock;
  /// Tiles of sums: of features, and of tokens.
  int64_t rowTiles, tokenTiles;
  /// Values lie as tiles read them in memory of the kernel only: two blocks of
  /// 16 features side by side, transposed, or computed from others.
  bool isPacked;

  /// Blocks whose features make a step of 32 together.
  int64_t together() const { return inBlock < tileDepth ? 2 : 1; }
  /// Steps of one block, or of `together`.
  int64_t steps() const { return together() * inBlock / tileDepth; }
  /// That memory, in the order of the view: [blocks, made features, features
  /// read]. What makes a step together lies at its first block.
  MemRefType getPacked(MLIRContext *context) const;
};

/// Emits what puts the values of `op` in `packed`.
void emitPackedValues(Emitter &e, SpMMOp op, const TiledSpMM &tiled,
                      const PatternView &view, Value packed);
/// Emits the whole panels of `kernel`, if it is made of tiles; false, and
/// nothing emitted, if not. What it has in order is memory of `getPacked`, or
/// null.
bool emitTiledSpMM(Emitter &e, const GatheredSpMM &kernel);

/// Whether the sums of `op` are those of tiles: rows of one operand as they
/// lie, and pairs of tokens of the other one, which a work item transposes for
/// all blocks of a line.
bool isTiled(SDDMMOp op, CPUTarget target);
/// The view that the kernel walks then: it transposes fewer features.
View getTiledView(SDDMMOp op);
/// Emits `op`, for which `isTiled` holds.
void emitTiledSDDMM(Emitter &e, SDDMMOp op, Value output,
                    const PatternView &view);

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_TILEPRODUCTS_H
