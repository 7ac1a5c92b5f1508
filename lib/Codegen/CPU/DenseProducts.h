// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops of products of two dense tensors whose vectors run along the
// result.

#ifndef BSR_LIB_CODEGEN_CPU_DENSEPRODUCTS_H
#define BSR_LIB_CODEGEN_CPU_DENSEPRODUCTS_H

#include "Contractions.h"
#include "PairProducts.h"

namespace mlir::bsr::cpu {

/// Emits the loops of one product. A column is a panel of lanes, at a point of
/// the parallel loops of the operand of the vectors. A work item has a block of
/// rows and some columns, and takes so many summands at a time that what the
/// vectors are loaded from stays in a cache: those of a column in the
/// first-level cache while all rows sweep over it, or those of all columns of
/// the item in the second-level cache while each tile of rows sweeps over them
/// (`isStreamed`). Between k-blocks, partial sums are kept in the output.
class BroadcastProduct {
public:
  BroadcastProduct(Emitter &e, const Contraction &c, Value output,
                   Epilogue epilogue, Value rowMemory);
  void emit();

private:
  /// A k-block: the summands that are taken together.
  struct KBlock {
    Value from, count;
    /// True at run time for the first and the last; null if there is one.
    Value isFirst, isLast;
  };
  /// The columns of a work item: one point of the leading loops over columns,
  /// `run` points of the next one, all of the others. Panels of lanes are the
  /// last loop.
  struct Columns {
    SmallVector<int64_t> extents;
    size_t numLeading;
    int64_t run;

    ArrayRef<int64_t> getLeading() const {
      return ArrayRef(extents).take_front(numLeading);
    }
    ArrayRef<int64_t> getInner() const {
      return ArrayRef(extents).drop_front(numLeading + 1);
    }
    int64_t getNumRuns() const {
      return llvm::divideCeil(extents[numLeading], run);
    }
    int64_t getNumPerItem() const { return run * llvm::product_of(getInner()); }
  };
  /// Rows of a work item: the first `count` of `tiles`, from row `first` on.
  struct Rows {
    Tiles tiles;
    Index first;
    Value count;
    /// [inner, tiles, summands, rows of a tile], of pairs [inner, tiles, rows
    /// of a tile, summands], of one tile if vectors are streamed; the memory of
    /// all rows; or null if rows are read where they lie.
    Value packed;
  };
  /// A work item.
  struct Item {
    /// The batch loops; columns and rows are 0.
    SmallVector<Index> at;
    /// Its point of the leading loops over columns, and the run of the next.
    SmallVector<Index> leading;
    Value lowColumn, highColumn;
    SmallVector<Rows> rows;
    /// [columns, summands, panel], of one column unless vectors are streamed,
    /// or null if vectors are read where they lie.
    Value vectors;
  };
  /// Some lanes of a column: where they are packed, and their number among the
  /// vectors of all lanes.
  struct Lanes {
    Index column;
    int64_t offset;
    Index number;
  };
  /// How many work items there are, and what they pack.
  struct Division {
    /// Blocks of rows, `height` from one to the next, and the tiles of one; the
    /// last one may have fewer, `lastTiles`, of a single size.
    int64_t blocks, height;
    SmallVector<Tiles, 2> tiles;
    int64_t lastTiles;
    Columns columns;
    bool packsRows, packsVectors;
  };

  Columns divideColumns(int64_t numPanels, int64_t numParts) const;
  std::optional<Division> divide(int64_t numPanels, ArrayRef<Tiles> rows);
  SmallVector<Rows> getRowsOf(Index block, const Division &division);
  void packAllRows(const Division &division);
  void emitItems(const Tiles &lanes, const Division &division);
  void emitKBlock(const Item &item, const Columns &parts, const Tiles &lanes,
                  const KBlock &kBlock);
  void
  forColumns(const Item &item, const Columns &parts, const Tiles &lanes,
             llvm::function_ref<void(ArrayRef<Index> at, const Lanes &)> body);
  void emitTile(ArrayRef<Index> at, const KBlock &kBlock, const Item &item,
                const Rows &rows, ArrayRef<Index> packed, const Lanes &lanes);
  SmallVector<Index> getVectorPlace(const Lanes &lanes, Index summand,
                                    int64_t offset = 0);
  void emitEpilogue(ArrayRef<Index> at, const KBlock &kBlock, int64_t numRows,
                    Index number);
  void packVectors(ArrayRef<Index> at, const KBlock &kBlock, Value memory,
                   const Lanes &lanes);
  void packRows(ArrayRef<Index> at, const KBlock &kBlock, const Rows &rows);
  void packTile(ArrayRef<Index> at, const KBlock &kBlock, const Rows &rows,
                Value tile, ArrayRef<Index> packed);

  Value getVectors() const { return c.op->getOperand(c.vectors); }
  Value getRows() const { return c.op->getOperand(1 - c.vectors); }
  AffineMap getVectorMap() const { return c.maps[c.vectors]; }
  AffineMap getRowMap() const { return c.maps[1 - c.vectors]; }

  /// The type that elements of `operand` are packed in.
  Type getPackedType(unsigned operand) const {
    return hasPairs ? e.b.getBF16Type() : c.getFactorType(operand);
  }
  bool usesPairs() const { return hasPairs && canZip(e.target, e.width); }

  bool isScattered();
  SmallVector<Index> getRowPlace(const Rows &rows, ArrayRef<Index> tile,
                                 Index summand, int64_t row);
  SmallVector<Index> getTilePlace(const Rows &rows, Index first, Index summand);
  void forSummands(const KBlock &kBlock, bool isSquare,
                   llvm::function_ref<void(Value step, bool isSquare)> body);
  Index getNumber(ArrayRef<Index> steps);
  Index getInner(ArrayRef<Index> at);
  SmallVector<Index> getPoint(ArrayRef<Index> at, ArrayRef<Index> steps,
                              const KBlock &kBlock);

  Emitter &e;
  const Contraction &c;
  Value output;
  Epilogue epilogue;
  /// All rows, tile after tile, each summand by summand, of pairs row by row;
  /// or null.
  Value rowMemory;
  /// The parallel loops of both operands, and of that of the vectors only.
  SmallVector<unsigned> batch, columns;
  /// The reduced loops; a k-block takes `length` steps of the last one, which
  /// needs more than one k-block if `hasKBlocks`.
  SmallVector<unsigned> summands;
  int64_t length;
  bool hasKBlocks;
  /// Vectors stream from the second-level cache.
  bool isStreamed;
  /// Summands are multiplied in pairs, where lanes allow it.
  bool hasPairs;
  int64_t numSummands, unroll;
};

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_DENSEPRODUCTS_H
