// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests between stored blocks and vectors along the matrix.

#include "SparseKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Calls `body` for every line of `view` at every point of `batch`, a share of
/// the lines of one point in a work item.
static void forAllLines(Emitter &e, const PatternView &view, int64_t lines,
                        ArrayRef<int64_t> batch,
                        llvm::function_ref<void(ArrayRef<Index>, Index)> body) {
  int64_t parts = getParts(lines, llvm::product_of(batch));
  SmallVector<int64_t> extents(batch);
  extents.push_back(parts);
  e.forall(extents, [&](ArrayRef<Index> item) {
    forLines(e, view, lines, parts, item.back(),
             [&](Index line) { body(item.drop_back(), line); });
  });
}

/// `place` at point `batch` of the leading dimensions.
static SmallVector<Index> addBatch(ArrayRef<Index> batch,
                                   ArrayRef<Index> place) {
  SmallVector<Index> result(batch);
  llvm::append_range(result, place);
  return result;
}

/// A work item is some block rows: it writes the slots of their blocks.
void cpu::emitSampleVec(Emitter &e, SampleVecOp op, Value output,
                        const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  const PatternView &view = patterns.at({op.getPattern(), View::Rows});
  bool alongCols = op.getDim() == 1;
  int64_t extent = alongCols ? pattern.getBlockCols() : pattern.getBlockRows();
  ArrayRef<int64_t> batch = op.getVec().getType().getShape().drop_back();
  forAllLines(
      e, view, pattern.getGridRows(), batch,
      [&](ArrayRef<Index> point, Index line) {
        forBlocks(
            e, view, line, {}, [&](Index slot, Index position, ValueRange) {
              e.forLanes(
                  e.constant(0), extent, e.target.lanes, [&](Index entry) {
                    Index from = e.multiplyAdd(alongCols ? position : line,
                                               extent, entry);
                    SmallVector<Index> to{slot, entry, Index::constant(0)};
                    if (alongCols)
                      std::swap(to[1], to[2]);
                    e.store(e.read(op.getVec(), addBatch(point, from)), output,
                            addBatch(point, to));
                  });
              return SmallVector<Value>();
            });
      });
}

/// The sum of the lanes of `value`, or the largest.
static Value combineLanes(Emitter &e, ReduceVecOp op, Value value) {
  if (!op.getMax() || !isa<VectorType>(value.getType()))
    return e.sumLanes(value);
  return vector::ReductionOp::create(e.b, e.loc,
                                     vector::CombiningKind::MAXIMUMF, value,
                                     arith::FastMathFlags::none);
}

/// A work item is some lines of blocks, and sums them in their order: columns
/// in lanes of their own, rows in lanes that are summed last.
void cpu::emitReduceVec(Emitter &e, ReduceVecOp op, Value output,
                        const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  bool alongCols = op.getDim() == 1;
  View walked = getView(alongCols);
  const PatternView &view = patterns.at({op.getPattern(), walked});
  int64_t rows = pattern.getBlockRows(), cols = pattern.getBlockCols();
  Type outType = op.getVec().getType().getElementType();
  Type sumType = getSumType(e.b, op.getValues().getType());
  Value start = getVecStart(e, op, sumType);
  ArrayRef<Index> point;

  auto add = [&](Value sum, Index slot, Index row, Index col) -> Value {
    Value value = e.read(op.getValues(), addBatch(point, {slot, row, col}));
    return addToVec(e, op, sum, e.broadcast(e.convert(value, sumType)));
  };
  auto store = [&](Value sum, Index line, Index entry) {
    if (op.getBackground()) {
      Value background = e.read(op.getBackground(), {});
      sum = alongCols ? addBackground(e, sum, background, view, line,
                                      pattern.getRows(), rows)
                      : addBackground(e, sum, background, view, line,
                                      pattern.getCols(), cols);
    }
    e.store(
        e.convert(sum, outType), output,
        addBatch(point, e.multiplyAdd(line, alongCols ? cols : rows, entry)));
  };
  // Several registers: as many sums under way.
  int64_t width =
      std::min<int64_t>(4 * e.target.lanes, llvm::bit_floor<uint64_t>(cols));

  auto sumCols = [&](Index line) {
    e.forLanes(e.constant(0), cols, width, [&](Index col) {
      auto addRows = [&](Index slot, Index, ValueRange sums) {
        return e.loop(rows, sums, [&](Index row, ValueRange sums) {
          return SmallVector<Value>{add(sums.front(), slot, row, col)};
        });
      };
      store(forBlocks(e, view, line, e.broadcast(start), addRows).front(), line,
            col);
    });
  };
  int64_t together = getDivisor(rows, 4);
  auto sumRows = [&](Index line) {
    e.loop(rows / together, {}, [&](Index tile, ValueRange) {
      Index first = e.multiplyAdd(tile, together, Index::constant(0));
      SmallVector<Value> totals(together, start);
      for (const Tiles &vectors : getVectors(cols, width)) {
        llvm::SaveAndRestore width(e.width, vectors.size);
        auto addCols = [&](Index slot, Index, ValueRange sums) {
          return e.loop(
              vectors.count, sums, [&](Index vector, ValueRange sums) {
                Index col = e.multiplyAdd(vector, vectors.size,
                                          Index::constant(vectors.base));
                col.lanes = vectors.size > 1;
                return llvm::map_to_vector(
                    llvm::enumerate(sums), [&](auto sum) -> Value {
                      return add(sum.value(), slot, first.plus(sum.index()),
                                 col);
                    });
              });
        };
        SmallVector<Value> sums = forBlocks(
            e, view, line, SmallVector<Value>(together, e.broadcast(start)),
            addCols);
        for (auto [total, sum] : llvm::zip_equal(totals, sums))
          total = addToVec(e, op, total, combineLanes(e, op, sum));
      }
      for (auto [row, total] : llvm::enumerate(totals))
        store(total, line, first.plus(row));
      return SmallVector<Value>();
    });
  };
  ArrayRef<int64_t> batch =
      op.getValues().getType().getShape().take_front(op.getNumBatchDims());
  forAllLines(e, view, pattern.getNumLines(walked), batch,
              [&](ArrayRef<Index> at, Index line) {
                point = at;
                alongCols ? sumCols(line) : sumRows(line);
              });
}
