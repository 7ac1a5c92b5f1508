// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies in a mainloop, and how the sums of a warp lie.

#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// True if an operand is in shared memory, and not in registers.
static bool isPointer(ValueRange operand) {
  return isa<LLVM::LLVMPointerType>(operand.front().getType());
}

void bsr::gpu::storeRow(BlockBuilder &b, const SumLayout &layout,
                        ValueRange sums, const StoredRows &rows, ValueRange row,
                        Value column, bool isRagged) {
  if (layout.areFragments)
    return storeRow(b, sums, rows, row, column, isRagged);
  int64_t together = layout.colsTogether, turn = together * layout.rowLanes;
  column = b.multiplyAdd(b.rem(b.lane, layout.rowLanes), together, column);
  for (int64_t col = 0; col != int64_t(sums.size()); col += rows.length)
    storeVector(b, sums.slice(col, rows.length), rows, row,
                b.add(column, col / together * turn + col % together),
                isRagged);
}

//===----------------------------------------------------------------------===//
// Tensor cores
//===----------------------------------------------------------------------===//

SmallVector<Value> FragmentGrid::getRow(ValueRange sums, int64_t row) const {
  SmallVector<Value> result;
  for (int64_t col = 0; col != cols; ++col)
    llvm::append_range(result,
                       sums.slice(getSum(row / 2, col) + row % 2 * 2, 2));
  return result;
}

SmallVector<Value> FragmentGrid::getRows(ValueRange sums) const {
  SmallVector<Value> result;
  for (int64_t row = 0; row != getNumRows(); ++row)
    llvm::append_range(result, getRow(sums, row));
  return result;
}

SmallVector<Value> FragmentGrid::fillRows(ValueRange values) const {
  SmallVector<Value> sums;
  for (int64_t row = 0; row != rows; ++row)
    for (int64_t sum = 0; sum != cols * fragmentSums; ++sum)
      sums.push_back(values[2 * row + sum / 2 % 2]);
  return sums;
}

/// Registers of a fragment of the left operand; one of the right has half.
static constexpr int64_t fragmentRegisters = 4;
/// Inner numbers of a fragment of tf32.
static constexpr int64_t tf32Depth = 8;

WarpMultiplier::WarpMultiplier(BlockBuilder &b, const Shape &shape,
                               const Operand &left, const Operand &right)
    : Multiplier(b, SumLayout(),
                 FragmentGrid{shape.rows, shape.cols}.getNumRows(),
                 FragmentGrid{shape.rows, shape.cols}.getNumSums()),
      shape(shape), grid{shape.rows, shape.cols},
      elementBytes(shape.type.getIntOrFloatBitWidth() / 8),
      operands{getRows(left, Left), getRows(right, Right)} {}

int64_t WarpMultiplier::getPitch(int64_t length, int64_t elementBytes,
                                 bool isInnerLast) {
  constexpr int64_t wordBytes = 4;
  // Lanes load words: 8 neighbours of each of 4 rows.
  if (elementBytes == wordBytes && !isInnerLast)
    return (length + 8) * wordBytes;
  // Of each of 8 rows they load 16 bytes, which an odd multiple of 16 is apart.
  int64_t bytes = length * elementBytes;
  return bytes == copiedBytes ? bytes : bytes + copiedBytes;
}

WarpMultiplier::Rows WarpMultiplier::getRows(const Operand &operand,
                                             Side side) const {
  Rows rows{operand, {}, {}};
  MatrixPosition position =
      isNarrow(side)
          ? MatrixPosition{b.rem(b.rem(b.lane, 8), operand.count),
                           b.div(b.lane, 8)}
          : getMatrixPosition(b, (side == Left) != operand.isInnerLast);
  Value begin = b.mul(position.row, operand.pitch);
  if (operand.isSwizzled) {
    // 128 bytes follow each other as they are; the next 128 have the bits of
    // their number flipped in those of each 16 bytes.
    constexpr int64_t lineBytes = 128;
    int64_t pieces = operand.pitch / copiedBytes;
    Value flipped = b.rem(b.div(begin, lineBytes), pieces);
    for (int64_t piece = 0; piece != pieces; piece += 2) {
      Value number = b.bitXor(b.add(position.column, piece), flipped);
      Value offset = b.multiplyAdd(number, copiedBytes, begin);
      if (piece == 0)
        rows.offset = offset;
      rows.steps.push_back(b.sub(offset, rows.offset));
    }
  } else if (shape.type.isF32() && !operand.isInnerLast) {
    // Matrices of `ldmatrix` are 16 bytes wide: those of f32 have 4 inner
    // numbers, and are loaded element by element.
    rows.offset = b.multiplyAdd(b.rem(b.lane, 4), operand.pitch,
                                b.mul(b.div(b.lane, 4), elementBytes));
  } else {
    rows.offset = b.add(begin, b.mul(position.column, copiedBytes));
  }
  if (!operand.first)
    return rows;
  if (operand.isInnerLast)
    rows.offset = b.multiplyAdd(operand.first, operand.pitch, rows.offset);
  else if (!operand.isSwizzled)
    rows.offset = b.multiplyAdd(operand.first, elementBytes, rows.offset);
  else
    rows.offset =
        b.multiplyAdd(b.div(operand.first, operand.pitch / elementBytes),
                      operand.leadingStride, rows.offset);
  return rows;
}

Value WarpMultiplier::getOffset(Side side) const {
  return operands[side].offset;
}

Value WarpMultiplier::moveTo(const Rows &rows, Value pointer, int64_t row,
                             int64_t column) const {
  Type i8 = b.b.getI8Type();
  int64_t bytes = column * elementBytes;
  if (!rows.isSwizzled)
    return b.at(pointer, row * rows.pitch + bytes, i8);
  int64_t piece = bytes % rows.pitch / (2 * copiedBytes);
  if (piece != 0)
    pointer = b.at(pointer, rows.steps[piece], i8);
  return b.at(pointer,
              row * rows.pitch + bytes / rows.pitch * rows.leadingStride, i8);
}

SmallVector<Value, 8> WarpMultiplier::loadUnit(Side side, Value pointer,
                                               int64_t own,
                                               int64_t inner) const {
  const Rows &rows = operands[side];
  auto find = [&](int64_t own, int64_t inner) {
    return rows.isInnerLast ? moveTo(rows, pointer, own, inner)
                            : moveTo(rows, pointer, inner, own);
  };
  SmallVector<Value, 8> registers;
  if (!shape.type.isF32()) {
    llvm::append_range(registers,
                       b.loadMatrices(find(own, inner), !rows.isInnerLast));
    return registers;
  }
  Type f32 = b.b.getF32Type();
  for (int64_t first = 0; first != fragmentRows; first += tf32Depth) {
    if (rows.isInnerLast) {
      for (Value word : b.loadMatrices(find(own, inner + first),
                                       /*transpose=*/false))
        registers.push_back(
            b.roundToTF32(LLVM::BitcastOp::create(b.b, b.loc, f32, word)));
      continue;
    }
    // What `ldmatrix` does not transpose: 8 of its own numbers are apart, or 4
    // inner ones.
    bool isLeft = side == Left;
    for (int64_t i = 0; i != fragmentRegisters; ++i) {
      int64_t apart = (isLeft ? i % 2 : i / 2) * 8;
      int64_t behind = first + (isLeft ? i / 2 : i % 2) * 4;
      registers.push_back(
          b.roundToTF32(b.load(find(own + apart, inner + behind), f32)));
    }
  }
  return registers;
}

int64_t WarpMultiplier::getNumRegisters(Side side) const {
  int64_t ofUnit = fragmentRegisters * (shape.type.isF32() ? 2 : 1);
  return getNumUnits(side) * llvm::divideCeil(shape.depth, fragmentRows) *
         ofUnit;
}

SmallVector<Value> WarpMultiplier::load(Side side, Value pointer) const {
  SmallVector<Value> registers;
  for (int64_t inner = 0; inner < shape.depth; inner += getUnitDepth(side))
    for (int64_t unit = 0; unit != getNumUnits(side); ++unit)
      llvm::append_range(registers,
                         loadUnit(side, pointer, unit * fragmentRows, inner));
  return registers;
}

SmallVector<Value, 8> WarpMultiplier::getUnit(Side side, ValueRange operand,
                                              int64_t own,
                                              int64_t inner) const {
  if (isPointer(operand))
    return loadUnit(side, operand.front(), own, inner);
  // A narrow unit of 32 inner numbers is as long as two halves of others.
  int64_t units = getNumUnits(side);
  int64_t ofUnit = int64_t(operand.size()) / units /
                   llvm::divideCeil(shape.depth, fragmentRows);
  int64_t unit = inner / fragmentRows * units + own / fragmentRows;
  return SmallVector<Value, 8>(operand.slice(unit * ofUnit, ofUnit));
}

SmallVector<Value> WarpMultiplier::multiply(ValueRange left, ValueRange right,
                                            ValueRange sums) const {
  return multiplyUnits(
      [&](int64_t own, int64_t inner) {
        return getUnit(Left, left, own, inner);
      },
      [&](int64_t own, int64_t inner) {
        return getUnit(Right, right, own, inner);
      },
      sums);
}

SmallVector<Value> WarpMultiplier::multiplyUnits(LoadUnit left, LoadUnit right,
                                                 ValueRange sums) const {
  // A unit has the rows of one fragment, or the columns of two.
  constexpr int64_t halfRegisters = fragmentRegisters / 2;
  int64_t together = isNarrow(Right) ? 1 : fragmentRows / fragmentCols;
  bool isLeftKept = shape.kept == Left;
  int64_t numKept = getNumUnits(isLeftKept ? Left : Right);
  int64_t numOthers = getNumUnits(isLeftKept ? Right : Left);
  SmallVector<Value> next(sums);
  auto multiplyAdd = [&](ArrayRef<Value> left, ArrayRef<Value> right,
                         int64_t half, MutableArrayRef<Value> sum) {
    for (size_t first = 0; first != left.size(); first += fragmentRegisters)
      llvm::copy(
          b.multiply(shape.type, left.slice(first, fragmentRegisters),
                     right.slice(first + half * halfRegisters, halfRegisters),
                     sum),
          sum.begin());
  };
  for (int64_t inner = 0; inner < shape.depth; inner += fragmentRows) {
    SmallVector<SmallVector<Value, 8>> units;
    for (int64_t i = 0; i != numKept; ++i)
      units.push_back((isLeftKept ? left : right)(i * fragmentRows, inner));
    for (int64_t i = 0; i != numOthers; ++i) {
      SmallVector<Value, 8> other =
          (isLeftKept ? right : left)(i * fragmentRows, inner);
      for (int64_t j = 0; j != numKept; ++j)
        for (int64_t half = 0; half != together; ++half) {
          int64_t sum = grid.getSum(isLeftKept ? j : i,
                                    (isLeftKept ? i : j) * together + half);
          multiplyAdd(
              isLeftKept ? units[j] : other, isLeftKept ? other : units[j],
              half,
              MutableArrayRef(next).slice(sum, FragmentGrid::fragmentSums));
        }
    }
  }
  return next;
}

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

LaneMultiplier::LaneMultiplier(BlockBuilder &b, const Shape &shape,
                               const SumLayout &layout, const Operand &left,
                               const Operand &right)
    : Multiplier(b, layout, left.count, left.count * right.count), shape(shape),
      elementBytes(shape.type.getIntOrFloatBitWidth() / 8), operands{left,
                                                                     right} {}

Value LaneMultiplier::getOffset(Side side) const {
  const Operand &operand = operands[side];
  return b.mul(operand.first,
               operand.isInnerLast ? operand.pitch : elementBytes);
}

SmallVector<Value> LaneMultiplier::getPointers(const Operand &operand,
                                               Value pointer, Value first,
                                               int64_t inner) const {
  Type i8 = b.b.getI8Type();
  int64_t bytes = operand.isInnerLast ? elementBytes : operand.pitch;
  if (!operand.isSwizzled || !operand.isInnerLast)
    return {b.at(b.at(pointer, b.mul(first, bytes), i8), inner * bytes, i8)};
  constexpr int64_t rowsAlike = 4, pieces = 8;
  Value turn = b.rem(b.div(operand.first, rowsAlike), pieces);
  Value begin =
      b.bitXor(b.mul(b.add(first, inner), bytes), b.mul(turn, copiedBytes));
  SmallVector<Value> pointers;
  for (int64_t number = 0; number != operand.count;
       number += operand.together) {
    int64_t row = number / operand.together * operand.distance;
    int64_t moved = row / rowsAlike % pieces * copiedBytes;
    pointers.push_back(b.at(pointer, b.bitXor(begin, b.constant(moved)), i8));
  }
  return pointers;
}

int64_t LaneMultiplier::getLoaded(const Operand &operand) const {
  return operand.isInnerLast
             ? 1
             : std::min(operand.together, copiedBytes / elementBytes);
}

SmallVector<Value> LaneMultiplier::loadSome(const Operand &operand,
                                            ArrayRef<Value> pointers,
                                            int64_t number,
                                            int64_t inner) const {
  int64_t turn = number / operand.together;
  int64_t own = turn * operand.distance + number % operand.together;
  int64_t offset = operand.isInnerLast
                       ? own * operand.pitch + inner * elementBytes
                       : own * elementBytes + inner * operand.pitch;
  Value from = pointers[pointers.size() == 1 ? 0 : turn];
  return b.loadFloats(b.at(from, offset, b.b.getI8Type()), shape.type,
                      operand.isInnerLast ? shape.together
                                          : getLoaded(operand));
}

SmallVector<Value> LaneMultiplier::loadAll(const Operand &operand,
                                           ArrayRef<Value> pointers) const {
  SmallVector<Value> loaded(shape.together * operand.count);
  int64_t step = getLoaded(operand);
  for (int64_t number = 0; number != operand.count; number += step)
    for (int64_t i = 0; i != (operand.isInnerLast ? 1 : shape.together); ++i)
      for (auto [j, value] :
           llvm::enumerate(loadSome(operand, pointers, number, i))) {
        int64_t inner = operand.isInnerLast ? int64_t(j) : i;
        int64_t own = number + (operand.isInnerLast ? 0 : int64_t(j));
        loaded[inner * operand.count + own] = value;
      }
  return loaded;
}

void LaneMultiplier::multiplySome(ValueRange factors, ArrayRef<Value> right,
                                  MutableArrayRef<Value> sums) const {
  const Operand &cols = operands[Right];
  int64_t rows = operands[Left].count;
  auto multiplyColumn = [&](int64_t col, int64_t inner, Value factor) {
    for (int64_t row = 0; row != rows; ++row) {
      Value &sum = sums[row * cols.count + col];
      sum = math::FmaOp::create(b.b, b.loc, factors[inner * rows + row], factor,
                                sum);
    }
  };
  // All of the left operand are in registers, of the right one few at a time.
  int64_t step = getLoaded(cols);
  for (int64_t i = 0; i != (cols.isInnerLast ? 1 : shape.together); ++i)
    for (int64_t col = 0; col != cols.count; col += step)
      for (auto [j, factor] : llvm::enumerate(loadSome(cols, right, col, i)))
        multiplyColumn(cols.isInnerLast ? col : col + int64_t(j),
                       cols.isInnerLast ? int64_t(j) : i, factor);
}

SmallVector<Value> LaneMultiplier::multiply(ValueRange left, ValueRange right,
                                            ValueRange sums) const {
  // What is multiplied without a loop around it, at most.
  constexpr int64_t mostProducts = 512;
  int64_t count = shape.depth / shape.together;
  int64_t step =
      std::clamp<int64_t>(mostProducts / (shape.together * numSums), 1, count);
  return b.unroll(
      count, step, sums, [&](Value first, int64_t i, ValueRange sums) {
        auto getAll = [&](Side side, ValueRange operand) {
          return getPointers(operands[side], operand.front(),
                             b.mul(first, shape.together), i * shape.together);
        };
        SmallVector<Value> factors =
            isPointer(left) ? loadAll(operands[Left], getAll(Left, left))
                            : SmallVector<Value>(left);
        SmallVector<Value> next(sums);
        multiplySome(factors, getAll(Right, right), next);
        return next;
      });
}

SmallVector<Value> LaneMultiplier::fillRows(ValueRange starts) const {
  SmallVector<Value> sums;
  for (Value start : starts)
    sums.append(operands[Right].count, start);
  return sums;
}
