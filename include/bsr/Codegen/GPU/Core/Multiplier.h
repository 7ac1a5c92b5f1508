// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies in a mainloop, and how the sums of a warp lie: one interface,
// whatever multiplies.

#ifndef BSR_CODEGEN_GPU_CORE_MULTIPLIER_H
#define BSR_CODEGEN_GPU_CORE_MULTIPLIER_H

#include "bsr/Codegen/GPU/Core/TensorCores.h"

namespace mlir::bsr::gpu {

/// Where the sums of a lane are among those of its warp. Of tensor cores: in
/// fragments of 8 columns, of each of which a lane has two neighbours, in rows
/// that are 8 apart. Or lanes have several neighbouring columns, and rows that
/// are neighbours themselves.
struct SumLayout {
  bool areFragments = true;
  /// Neighbouring columns of a lane, behind which those of the other lanes of
  /// the row lie, and then its next ones.
  int64_t colsTogether = 2;
  /// Lanes that have one row.
  int64_t rowLanes = 4;
  /// The rows of a lane that are neighbours, and how far behind the first of
  /// them the next ones begin.
  int64_t rowsTogether = 1, rowDistance = 8;

  /// The lane's first row, and how far row `row` lies behind it.
  Value getFirstRow(BlockBuilder &b) const {
    return b.mul(b.div(b.lane, rowLanes), rowsTogether);
  }
  int64_t getRow(int64_t row) const {
    return row / rowsTogether * rowDistance + row % rowsTogether;
  }
};

/// Stores `sums`, those of one row of the lane, in row `row` of a result, whose
/// warp begins at `column`; if `isRagged`, none beyond the last column.
void storeRow(BlockBuilder &b, const SumLayout &layout, ValueRange sums,
              const StoredRows &rows, ValueRange row, Value column,
              bool isRagged);

/// Multiplies two operands that lie in shared memory, and adds that to sums in
/// registers. An operand has numbers of its own, which are the rows or the
/// columns of the sums, and inner numbers.
class Multiplier {
public:
  virtual ~Multiplier() = default;

  enum Side { Left, Right };
  /// How far behind the first element of an operand lies what the thread reads
  /// of it, in bytes.
  virtual Value getOffset(Side side) const = 0;
  /// What the thread reads of the operand at `pointer`, to be kept in registers
  /// for several products.
  virtual SmallVector<Value> load(Side side, Value pointer) const = 0;
  /// `sums` plus the product of two operands, each of which is the pointer to
  /// it, moved by its offset, or what `load` returned.
  virtual SmallVector<Value> multiply(ValueRange left, ValueRange right,
                                      ValueRange sums) const = 0;

  /// Sums whose rows begin with `starts`, one for each row of the thread.
  virtual SmallVector<Value> fillRows(ValueRange starts) const = 0;
  /// Each of `sums`, which may be fewer values while a loop carries them.
  virtual SmallVector<Value> unpack(ValueRange sums) const {
    return SmallVector<Value>(sums);
  }
  /// `sums` row by row, those of each as `SumLayout` says.
  virtual SmallVector<Value> getRows(ValueRange sums) const = 0;

  /// The pointer to the operand that begins at `begin`, in bytes of shared
  /// memory, moved by its offset.
  Value at(Side side, Value begin) const {
    return b.at(b.add(begin, getOffset(side)));
  }

  const SumLayout layout;
  /// Rows and sums of a thread.
  const int64_t numRows, numSums;

protected:
  Multiplier(BlockBuilder &b, const SumLayout &layout, int64_t numRows,
             int64_t numSums)
      : layout(layout), numRows(numRows), numSums(numSums), b(b) {}

  BlockBuilder &b;
};

/// The sums that a lane has of `rows` by `cols` fragments of 16x8, row by row:
/// of each fragment two neighbouring columns of a row, and of the row 8 below.
struct FragmentGrid {
  /// Sums of a fragment.
  static constexpr int64_t fragmentSums = 4;

  int64_t rows, cols;

  int64_t getSum(int64_t row, int64_t col) const {
    return (row * cols + col) * fragmentSums;
  }
  int64_t getNumSums() const { return getSum(rows, 0); }
  /// Rows of the lane, each of which is 8 below the one before.
  int64_t getNumRows() const { return 2 * rows; }
  /// The sums of a row of the lane, two of each fragment, and those of all.
  SmallVector<Value> getRow(ValueRange sums, int64_t row) const;
  SmallVector<Value> getRows(ValueRange sums) const;
  /// All sums, from those of each row, which are alike.
  SmallVector<Value> fillRows(ValueRange values) const;
};

/// Multiplies by the tensor cores of a warp (`mma.sync`): 16-bit elements, or
/// f32, which is rounded to tf32. They go through shared memory in units of 16
/// by 16 elements. A unit of the left operand is one or two fragments along
/// inner numbers, of the right one as many for 8 of its own numbers each.
class WarpMultiplier : public Multiplier {
public:
  /// How an operand lies in shared memory: rows `pitch` bytes apart, of inner
  /// numbers or else of its own.
  struct Operand {
    int64_t pitch;
    bool isInnerLast;
    /// The warp's first number of its own; null if that is 0.
    Value first = {};
    /// Rows of 32, 64 or 128 bytes are swizzled as tensor copies do it; what
    /// follows in a row lies `leadingStride` further on.
    bool isSwizzled = false;
    int64_t leadingStride = 0;
    /// Of a right operand of one fragment, whose units are of 8 numbers and of
    /// 32 inner ones, how many of the 8 it has: these again for the others.
    /// Such an operand is multiplied as `load` returns it.
    int64_t count = fragmentCols;
  };
  /// The operand of which all units of 16 inner numbers are kept in registers,
  /// while those of the other one go by.
  using Kept = Side;
  /// What is multiplied: fragments of `type` for `rows` and `cols` of sums, and
  /// `depth` inner numbers.
  struct Shape {
    Type type;
    int64_t rows, cols, depth;
    Kept kept = Left;
  };

  WarpMultiplier(BlockBuilder &b, const Shape &shape, const Operand &left,
                 const Operand &right);

  /// Bytes of a row of `length` elements in shared memory, so that what is
  /// loaded at one time lies in different banks.
  static int64_t getPitch(int64_t length, int64_t elementBytes,
                          bool isInnerLast);

  Value getOffset(Side side) const override;
  /// Registers by units of 16 inner numbers, and then of 16 of its own.
  SmallVector<Value> load(Side side, Value pointer) const override;
  SmallVector<Value> multiply(ValueRange left, ValueRange right,
                              ValueRange sums) const override;
  SmallVector<Value> fillRows(ValueRange starts) const override {
    return grid.fillRows(starts);
  }
  SmallVector<Value> getRows(ValueRange sums) const override {
    return grid.getRows(sums);
  }

  /// Makes the unit of an operand that begins at a number of its own and an
  /// inner one.
  using LoadUnit =
      llvm::function_ref<SmallVector<Value, 8>(int64_t own, int64_t inner)>;
  /// The same of operands that are not all in shared memory.
  SmallVector<Value> multiplyUnits(LoadUnit left, LoadUnit right,
                                   ValueRange sums) const;
  /// The unit of an operand in shared memory, or of one that was loaded.
  SmallVector<Value, 8> getUnit(Side side, ValueRange operand, int64_t own,
                                int64_t inner) const;
  /// Registers that `load` returns.
  int64_t getNumRegisters(Side side) const;

private:
  /// The lane's part of an operand.
  struct Rows : Operand {
    /// Where it begins; swizzled, also those of the units side by side that
    /// begin in different banks, from the first one on.
    Value offset;
    SmallVector<Value, 4> steps;
  };
  Rows getRows(const Operand &operand, Side side) const;
  SmallVector<Value, 8> loadUnit(Side side, Value pointer, int64_t own,
                                 int64_t inner) const;
  /// Where the element in a row and a column lies, which 16 divides if it is
  /// one of 16 bits.
  Value moveTo(const Rows &rows, Value pointer, int64_t row,
               int64_t column) const;
  /// True if an operand's units are of 8 numbers of its own.
  bool isNarrow(Side side) const { return side == Right && grid.cols == 1; }
  int64_t getUnitDepth(Side side) const {
    return isNarrow(side) ? 2 * fragmentRows : fragmentRows;
  }
  /// Units along the numbers of an operand's own.
  int64_t getNumUnits(Side side) const {
    return side == Left ? grid.rows : llvm::divideCeil(grid.cols, 2);
  }

  const Shape shape;
  const FragmentGrid grid;
  const int64_t elementBytes;
  std::array<Rows, 2> operands;
};

/// Multiplies and adds the terms one by one, in f32: a lane has the sums of
/// some numbers of either operand.
class LaneMultiplier : public Multiplier {
public:
  /// How an operand lies in shared memory, as for `WarpMultiplier`, and the
  /// numbers of it that are the lane's: `count`, of which `together` are
  /// neighbours, and the next ones begin `distance` behind these.
  struct Operand {
    int64_t pitch;
    bool isInnerLast;
    int64_t count, together, distance;
    /// The first of them.
    Value first;
    /// In rows of inner numbers, 16 bytes are at position `i ^ row / 4 % 8`:
    /// what lies side by side there in 32 rows, every fourth of which is read
    /// at one time, is in different banks.
    bool isSwizzled = false;
  };
  /// What is multiplied: elements of `type`, `depth` inner numbers, of which
  /// `together` are loaded at a time.
  struct Shape {
    Type type;
    int64_t depth, together;
  };

  LaneMultiplier(BlockBuilder &b, const Shape &shape, const SumLayout &layout,
                 const Operand &left, const Operand &right);

  Value getOffset(Side side) const override;
  /// All that is loaded at a time, by inner number: of a multiplier whose
  /// `depth` is that.
  SmallVector<Value> load(Side side, Value pointer) const override {
    return loadAll(operands[side],
                   getPointers(operands[side], pointer, b.constant(0), 0));
  }
  SmallVector<Value> multiply(ValueRange left, ValueRange right,
                              ValueRange sums) const override;
  SmallVector<Value> fillRows(ValueRange starts) const override;
  SmallVector<Value> getRows(ValueRange sums) const override {
    return SmallVector<Value>(sums);
  }

private:
  /// Where the lane's numbers of an operand are, `inner` numbers behind inner
  /// number `first`: of all, or, swizzled, of each of its neighbours.
  SmallVector<Value> getPointers(const Operand &operand, Value pointer,
                                 Value first, int64_t inner) const;
  /// Elements that lie side by side: of number `number` of the lane, or of it
  /// and its neighbours.
  SmallVector<Value> loadSome(const Operand &operand, ArrayRef<Value> pointers,
                              int64_t number, int64_t inner) const;
  /// Numbers of the lane that one of these loads is of.
  int64_t getLoaded(const Operand &operand) const;
  SmallVector<Value> loadAll(const Operand &operand,
                             ArrayRef<Value> pointers) const;
  /// Adds the products of the inner numbers that are loaded at a time, of the
  /// left operand `factors`.
  void multiplySome(ValueRange factors, ArrayRef<Value> right,
                    MutableArrayRef<Value> sums) const;

  const Shape shape;
  const int64_t elementBytes;
  std::array<Operand, 2> operands;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_MULTIPLIER_H
