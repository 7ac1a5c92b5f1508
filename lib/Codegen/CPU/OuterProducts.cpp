// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over tokens of outer products of activations.

#include "OuterProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

int64_t OuterProducts::getCols(int64_t extent, CPUTarget target) {
  int64_t lanes = target.lanes;
  if (extent % lanes == 0)
    return lanes * getDivisor(extent / lanes, target.tileVectors());
  return getDivisor(extent, lanes * target.tileVectors());
}

int64_t OuterProducts::maxRows() const {
  int64_t vectors = llvm::divideCeil(cols, e.target.lanes);
  return CPUTarget::tileRows * e.target.tileVectors() / vectors;
}

/// Where the strip has its columns, or vectors of them, of a token.
SmallVector<Index> OuterProducts::getStripPlace(Index token, int64_t col) {
  SmallVector<Index> place{token, Index::constant(col)};
  place.back().lanes = e.width > 1;
  return place;
}

Value OuterProducts::readB(const Tokens &at, Index col, Index lane) {
  return e.convert(e.read(b, tokens.activations.at(at.leading, col, lane)),
                   sumType);
}

void OuterProducts::start(const Round &round, Index firstCol) {
  int64_t lanes = e.target.lanes, panel = e.target.panel();
  if (tokens.sliceLanes % lanes || cols % lanes) {
    // No squares: one by one.
    tokens.forRuns(e, round, 0, 1, tokens.sliceLanes, {},
                   [&](const Tokens &at, ValueRange) {
                     return e.loop(cols, {}, [&](Index col, ValueRange) {
                       e.store(
                           readB(at, e.multiplyAdd(col, 1, firstCol), at.lane),
                           strip, {at.number, col});
                       return SmallVector<Value>();
                     });
                   });
    return;
  }
  int64_t size = tokens.sliceLanes % panel ? lanes : panel;
  llvm::SaveAndRestore width(e.width, lanes);
  tokens.forRuns(
      e, round, 0, size, tokens.sliceLanes / size, {},
      [&](const Tokens &at, ValueRange) {
        for (int64_t col = 0; col != cols; ++col)
          e.prefetch(b,
                     tokens.activations.at(at.leading, firstCol.plus(col),
                                           at.lane.plus(size)),
                     size);
        for (int64_t first = 0; first != size; first += lanes) {
          Index lane = at.lane.plus(first);
          lane.lanes = lanes > 1;
          lane.align = lanes;
          for (int64_t col = 0; col != cols; col += lanes) {
            SmallVector<Value> rows;
            for (int64_t i = 0; i != lanes; ++i)
              rows.push_back(readB(at, firstCol.plus(col + i), lane));
            for (auto [i, row] : llvm::enumerate(e.transpose(rows)))
              e.store(row, strip,
                      getStripPlace(at.number.plus(first + i), col));
          }
        }
        return SmallVector<Value>();
      });
}

SmallVector<Value> OuterProducts::multiply(const Round &round, Index firstRow,
                                           int64_t rows) {
  // A cache line of tokens at a time, prefetched early enough.
  int64_t bytes = getElementTypeOrSelf(a.getType()).getIntOrFloatBitWidth() / 8;
  int64_t size = getDivisor(tokens.sliceLanes, lineBytes / bytes);
  int64_t unroll = getDivisor(size, 4);
  auto place = [&](const Tokens &at, int64_t number, Index token) {
    return tokens.activations.at(at.leading, firstRow.plus(number), token);
  };
  llvm::SaveAndRestore width(e.width, cols);
  SmallVector<Value> sums = tokens.forRuns(
      e, round, 0, size, tokens.sliceLanes / size, getZeros(e, sumType, rows),
      [&](const Tokens &at, ValueRange carried) {
        for (int64_t number = 0; number != rows; ++number)
          e.prefetch(a, place(at, number, at.lane.plus(linesAhead * size)), 1);
        return e.loop(
            size / unroll, carried, [&](Index step, ValueRange carried) {
              SmallVector<Value> sums(carried);
              for (int64_t i = 0; i != unroll; ++i) {
                Value vector = e.load(
                    strip,
                    getStripPlace(
                        e.multiplyAdd(step, unroll, at.number.plus(i)), 0));
                Index token = e.multiplyAdd(step, unroll, at.lane.plus(i));
                for (auto [number, sum] : llvm::enumerate(sums))
                  sum = multiplyAdd(e, e.read(a, place(at, number, token)),
                                    vector, sum);
              }
              return sums;
            });
      });
  return sums;
}
