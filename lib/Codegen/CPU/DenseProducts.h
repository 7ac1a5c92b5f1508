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
/// vectors of a column are loaded from stays in the first-level cache while all
/// rows sweep over it; between k-blocks, partial sums are kept in the output.
class BroadcastProduct {
public:
  BroadcastProduct(Emitter &e, const Contraction &c, Value output,
                   Epilogue epilogue);
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
    /// of a tile, summands], or null if rows are read where they lie.
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
    /// [summands, panel], or null if vectors are read where they lie.
    Value vectors;
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
  void emitItems(const Tiles &lanes, const Division &division);
  void emitKBlock(const Item &item, const Columns &parts, const Tiles &lanes,
                  const KBlock &kBlock);
  void emitTile(ArrayRef<Index> at, const KBlock &kBlock, const Rows &rows,
                ArrayRef<Index> packed, Value vectors);
  void emitEpilogue(ArrayRef<Index> at, const KBlock &kBlock, int64_t numRows,
                    Index number);
  void packVectors(ArrayRef<Index> at, const KBlock &kBlock, Value memory);
  void packRows(ArrayRef<Index> at, const KBlock &kBlock, const Rows &rows);

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
  SmallVector<Index> getRowPlace(ArrayRef<Index> tile, Index summand,
                                 int64_t row);
  Index getNumber(ArrayRef<Index> steps);
  Index getInner(ArrayRef<Index> at);
  SmallVector<Index> getPoint(ArrayRef<Index> at, ArrayRef<Index> steps,
                              const KBlock &kBlock);

  Emitter &e;
  const Contraction &c;
  Value output;
  Epilogue epilogue;
  /// The parallel loops of both operands, and of that of the vectors only.
  SmallVector<unsigned> batch, columns;
  /// The reduced loops; a k-block takes `length` steps of the last one, which
  /// needs more than one k-block if `hasKBlocks`.
  SmallVector<unsigned> summands;
  int64_t length;
  bool hasKBlocks;
  /// Summands are multiplied in pairs, where lanes allow it.
  bool hasPairs;
  int64_t numSummands, unroll;
};

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_DENSEPRODUCTS_H
