// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads windows of images by a table of where the rows of their matrix lie.

#include "LineReader.h"
#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Codegen/Common/WindowOffsets.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Rows of a table, at most, which lies on the stack: 64 KiB.
static constexpr int64_t maxRows = 16384;

LineReader::LineReader(Emitter &e, Value matrix) : e(e) {
  auto collapse = matrix.getDefiningOp<tensor::CollapseShapeOp>();
  auto concat = collapse ? collapse.getSrc().getDefiningOp<tensor::ConcatOp>()
                         : tensor::ConcatOp();
  if (!concat || e.getBuffer(matrix) || e.getBuffer(concat))
    return;
  std::optional<Windows> windows = Windows::get(concat);
  Value buffer = windows ? e.getBuffer(windows->line) : Value();
  if (!buffer)
    return;
  auto type = cast<MemRefType>(buffer.getType());
  int64_t features = collapse.getType().getDimSize(0);
  SmallVector<ReassociationIndices> all{{0, 1}};
  if (features > maxRows || type.getRank() != 2 ||
      type.getNumElements() > INT32_MAX ||
      !memref::CollapseShapeOp::isGuaranteedCollapsible(type, all))
    return;
  line = memref::CollapseShapeOp::create(e.b, e.loc, buffer, all);
  Type i32 = e.b.getI32Type();
  table = e.allocate({features}, i32);
  e.loop(features, {}, [&](Index feature, ValueRange) {
    auto [channel, place] =
        e.split(feature, concat.getResultType().getDimSize(1));
    Index row = e.multiplyAdd(channel, type.getDimSize(1), Index::constant(0));
    Value first = e.materialize(addOffset(e, windows->offsets, place, row));
    e.store(arith::IndexCastUIOp::create(e.b, e.loc, i32, first), table,
            feature);
    return SmallVector<Value>();
  });
}

Value LineReader::read(Index feature, Index lane) {
  Index first = Index::of(loadIndex(e, table, feature));
  return e.load(line, e.multiplyAdd(first, 1, lane));
}
