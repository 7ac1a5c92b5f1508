// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on tensor cores.
//
// A block of threads computes up to 128 by 128 sums: it goes through the inner
// numbers 32 at a time, with copies for the next stages under way. Operands lie
// in shared memory as they lie in global memory, and are transposed when
// fragments are loaded where that is the wrong way round. Products of few sums
// but many terms are cut in parts, whose sums a second launch adds in order.

#include "DenseProduct.h"
#include "bsr/Codegen/GPU/Model.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;

/// Inner numbers of a stage.
static constexpr int64_t innerTile = 32;
/// Warps along the rows and along the columns of a tile.
static constexpr int64_t rowWarps = 4, colWarps = 2;
/// Blocks of threads that fill a chip.
static constexpr int64_t enoughBlocks = 128;

int64_t DenseProduct::Side::getStageBytes() const {
  return isInnerLast ? tile * getPitch(innerTile) : innerTile * getPitch(tile);
}

int64_t DenseProduct::getStageBytes() const {
  return left.getStageBytes() + right.getStageBytes();
}

DenseProduct::Group
DenseProduct::makeGroup(llvm::function_ref<bool(unsigned)> isIn) const {
  Group group;
  for (auto [loop, extent] : llvm::enumerate(extents))
    if (isIn(loop)) {
      group.loops.push_back(loop);
      group.size *= extent;
    }
  return group;
}

bool DenseProduct::makeLast(Group &group, unsigned loop) {
  auto *found = llvm::find(group.loops, loop);
  if (found == group.loops.end())
    return false;
  std::rotate(found, found + 1, group.loops.end());
  return true;
}

bool DenseProduct::setSide(Side &side, Value tensor, AffineMap map,
                           Group &own) {
  auto type = cast<RankedTensorType>(tensor.getType());
  if (!isLoaded(tensor) || type.getNumElements() > INT32_MAX ||
      type.getRank() == 0)
    return false;
  side.tensor = tensor;
  side.strides.assign(extents.size(), 0);
  int64_t stride = 1;
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    side.strides[map.getDimPosition(dim)] = stride;
    stride *= type.getDimSize(dim);
  }
  unsigned last = map.getDimPosition(type.getRank() - 1);
  side.isInnerLast = makeLast(inner, last);
  if (!side.isInnerLast && !makeLast(own, last))
    return false;
  // Copies begin at multiples of their size.
  for (int64_t copied : {8, 4, 2}) {
    side.copied = copied;
    if (llvm::all_of(llvm::enumerate(side.strides), [&](auto it) {
          return it.index() == last ? extents[last] % copied == 0
                                    : it.value() % copied == 0;
        }))
      return true;
  }
  return false;
}

bool DenseProduct::setResultOrder(AffineMap map) {
  for (unsigned dim = 0; dim != map.getNumResults();) {
    const auto *group =
        llvm::find_if(ArrayRef(resultGroups), [&](Group DenseProduct::*group) {
          ArrayRef<unsigned> loops = (this->*group).loops;
          return !loops.empty() && loops.front() == map.getDimPosition(dim);
        });
    if (group == std::end(resultGroups))
      return false;
    for (unsigned loop : (this->**group).loops)
      if (dim == map.getNumResults() || map.getDimPosition(dim++) != loop)
        return false;
    resultOrder.push_back(*group);
  }
  return true;
}

/// True if the body of `op` adds the product of two widened elements.
static bool hasProductBody(linalg::GenericOp op) {
  Block *body = op.getBody();
  auto sum =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  Value accumulator = body->getArgument(2);
  Value term = sum.getLhs() == accumulator ? sum.getRhs() : sum.getLhs();
  auto product = term.getDefiningOp<arith::MulFOp>();
  if (!product || (sum.getLhs() != accumulator && sum.getRhs() != accumulator))
    return false;
  auto isElement = [&](Value value, unsigned operand) {
    auto widened = value.getDefiningOp<arith::ExtFOp>();
    return widened && widened.getIn() == body->getArgument(operand);
  };
  return (isElement(product.getLhs(), 0) && isElement(product.getRhs(), 1)) ||
         (isElement(product.getLhs(), 1) && isElement(product.getRhs(), 0));
}

/// True if `tensor` is zeros.
static bool isZero(Value tensor) {
  if (auto fill = tensor.getDefiningOp<linalg::FillOp>())
    tensor = fill.getInputs()[0];
  return matchPattern(tensor, m_AnyZeroFloat());
}

std::optional<DenseProduct> DenseProduct::match(Operation *root, GPUAttr chip) {
  auto op = dyn_cast<linalg::GenericOp>(root);
  if (!op || op.getNumDpsInputs() != 2 || op->getNumResults() != 1 ||
      !hasProductBody(op) || !isZero(op.getDpsInits()[0]) ||
      !llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) {
        return map.getNumResults() != 0 && map.isProjectedPermutation();
      }))
    return std::nullopt;
  auto getType = [&](unsigned operand) {
    return getElementTypeOrSelf(op->getOperand(operand).getType());
  };
  auto result = cast<RankedTensorType>(op.getResult(0).getType());
  if (!isMultiplied(getType(0)) || getType(1) != getType(0) ||
      !result.getElementType().isF32() || result.getNumElements() > INT32_MAX)
    return std::nullopt;

  DenseProduct product;
  product.op = op;
  product.extents = op.getStaticLoopRanges();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  // Sums are stored in pairs along the last dimension of the result, which is
  // the right operand's.
  unsigned last = maps[2].getDimPosition(maps[2].getNumResults() - 1);
  unsigned right = maps[1].isFunctionOfDim(last) ? 1 : 0, left = 1 - right;
  auto makeGroup = [&](bool isLeft, bool isRight, bool isResult) {
    return product.makeGroup([&](unsigned loop) {
      return maps[left].isFunctionOfDim(loop) == isLeft &&
             maps[right].isFunctionOfDim(loop) == isRight &&
             maps[2].isFunctionOfDim(loop) == isResult;
    });
  };
  product.batch = makeGroup(true, true, true);
  product.rows = makeGroup(true, false, true);
  product.cols = makeGroup(false, true, true);
  product.inner = makeGroup(true, true, false);
  size_t numLoops = product.batch.loops.size() + product.rows.loops.size() +
                    product.cols.loops.size() + product.inner.loops.size();
  if (numLoops != product.extents.size() || product.extents[last] % 2 ||
      !product.makeLast(product.cols, last) ||
      !product.setSide(product.left, op->getOperand(left), maps[left],
                       product.rows) ||
      !product.setSide(product.right, op->getOperand(right), maps[right],
                       product.cols) ||
      product.cols.loops.back() != last)
    return std::nullopt;
  // One order of inner numbers has to do for both.
  if (product.left.isInnerLast &&
      product.left.strides[product.inner.loops.back()] != 1)
    return std::nullopt;

  // In the result each group is one dimension.
  if (!product.setResultOrder(maps[2]))
    return std::nullopt;

  product.left.tile = product.rows.size <= 64 ? 64 : 128;
  product.right.tile = product.cols.size <= 64 ? 64 : 128;
  int64_t blocks = product.batch.size *
                   llvm::divideCeil(product.rows.size, product.left.tile) *
                   llvm::divideCeil(product.cols.size, product.right.tile);
  // A part is of 8 stages at least.
  int64_t parts = std::clamp<int64_t>(
      enoughBlocks / blocks, 1,
      std::max<int64_t>(1, product.inner.size / (8 * innerTile)));
  product.partLength =
      llvm::alignTo(llvm::divideCeil(product.inner.size, parts), innerTile);
  product.parts = llvm::divideCeil(product.inner.size, product.partLength);
  product.stages = std::min<int64_t>(4, (findChip(chip.getChip())->sharedLimit -
                                         BlockBuilder::sharedSymbolBytes) /
                                            product.getStageBytes());
  return product;
}

std::optional<ResultSpace> DenseProduct::getSpace() {
  if (!Epilogue::accepts(getType()) || rows.loops.empty())
    return std::nullopt;
  // An epilogue is behind the sum of parts, without fragments.
  if (parts != 1)
    return ResultSpace{
        {llvm::to_vector<2>(llvm::seq(getType().getRank()))}, 0, 0};
  ResultSpace space{{}, 0, right.tile / colWarps};
  int64_t dim = 0;
  for (auto [number, group] : llvm::enumerate(resultOrder)) {
    if (group == &DenseProduct::rows)
      space.row = number;
    int64_t end = dim + int64_t((this->*group).loops.size());
    space.dims.push_back(llvm::to_vector<2>(llvm::seq(dim, end)));
    dim = end;
  }
  return space;
}

SmallVector<MemRefType> DenseProduct::getScratch() {
  SmallVector<MemRefType> types;
  if (parts != 1) {
    SmallVector<int64_t> shape(getType().getShape());
    shape.insert(shape.begin(), parts);
    types.push_back(MemRefType::get(shape, getType().getElementType()));
  }
  if (epilogue)
    llvm::append_range(types, epilogue->getScratch());
  return types;
}

namespace mlir::bsr {
/// What a thread does.
class DenseProductEmitter {
public:
  /// `result` is the buffer of the result, or of those of the parts, one after
  /// the other, in pairs of columns.
  DenseProductEmitter(DenseProduct &product, KernelBody &kernel,
                      const StoredRows &result, BlockBuilder &b);
  void emit();

private:
  using Group = DenseProduct::Group;
  using Side = DenseProduct::Side;

  /// The loops of `group` at `number`, the lowest digit of which counts
  /// `unit`s.
  SmallVector<Value> getDigits(const Group &group, Value number,
                               int64_t unit = 1);
  /// Where number `number` of `group` begins in the operand of `side`.
  Value getOffset(const Side &side, const Group &group, Value number);
  /// Copies the inner numbers from `inner` on of `side`, whose own numbers
  /// begin at `first`, to `stage`.
  void copySide(const Side &side, const Group &own, Value pointer, Value first,
                Value inner, Value stage);
  void copy(Value step, Value stage);
  SmallVector<Value> multiply(Value stage, ValueRange sums);
  void store(ValueRange sums);
  void emitEpilogue(ValueRange sums);
  /// The coordinates of the result but the columns, at number `row` of its
  /// rows.
  SmallVector<Value> getCoordinates(Value row);

  int64_t getSum(int64_t row, int64_t col) const {
    return (row * colTiles + col) * 4;
  }

  DenseProduct &product;
  const StoredRows &result;
  BlockBuilder &b;
  Type type;
  /// Fragments of a warp.
  int64_t rowTiles, colTiles;
  int64_t stageBytes;
  Value part, batch, firstRow, firstCol, firstInner;
  Value warpRow, warpCol;
  Value left, right;
};
} // namespace mlir::bsr

DenseProductEmitter::DenseProductEmitter(DenseProduct &product,
                                         KernelBody &kernel,
                                         const StoredRows &result,
                                         BlockBuilder &b)
    : product(product), result(result), b(b),
      type(getElementTypeOrSelf(product.left.tensor.getType())),
      rowTiles(product.left.tile / rowWarps / fragmentRows),
      colTiles(product.right.tile / colWarps / fragmentCols),
      stageBytes(product.getStageBytes()) {
  int64_t colBlocks = llvm::divideCeil(product.cols.size, product.right.tile);
  firstRow = b.mul(b.div(b.block[0], colBlocks), product.left.tile);
  firstCol = b.mul(b.rem(b.block[0], colBlocks), product.right.tile);
  batch = b.div(b.block[1], product.parts);
  part = b.rem(b.block[1], product.parts);
  firstInner = b.mul(part, product.partLength);
  warpRow = b.mul(b.div(b.warp, colWarps), rowTiles * fragmentRows);
  warpCol = b.mul(b.rem(b.warp, colWarps), colTiles * fragmentCols);
  auto getPointer = [&](const Side &side) {
    Value first = b.getPointer(kernel.inputs.lookup(side.tensor));
    return b.at(first, getOffset(side, product.batch, batch), type);
  };
  left = getPointer(product.left);
  right = getPointer(product.right);
}

Value DenseProductEmitter::getOffset(const Side &side, const Group &group,
                                     Value number) {
  Value offset = b.constant(0);
  for (unsigned loop : llvm::reverse(group.loops)) {
    bool isFirst = loop == group.loops.front();
    int64_t extent = product.extents[loop];
    Value digit = isFirst ? number : b.rem(number, extent);
    offset = b.multiplyAdd(digit, side.strides[loop], offset);
    if (!isFirst)
      number = b.div(number, extent);
  }
  return offset;
}

void DenseProductEmitter::copySide(const Side &side, const Group &own,
                                   Value pointer, Value first, Value inner,
                                   Value stage) {
  int64_t length = side.isInnerLast ? innerTile : side.tile;
  int64_t height = side.isInnerLast ? side.tile : innerTile;
  int64_t perRow = length / side.copied, rowsPerPass = blockThreads / perRow;
  int64_t pitch = getPitch(length);
  Value column = b.mul(b.rem(b.thread, perRow), side.copied);
  bool isInnerRagged = product.parts * product.partLength != product.inner.size;
  for (int64_t pass = 0; pass * rowsPerPass < height; ++pass) {
    Value row = b.add(b.div(b.thread, perRow), pass * rowsPerPass);
    Value ownNumber = b.add(first, side.isInnerLast ? row : column);
    Value innerNumber = b.add(inner, side.isInnerLast ? column : row);
    // Beyond the operand, zeros are copied, which add nothing.
    Value isInside;
    if (own.size % side.tile)
      isInside = b.less(ownNumber, b.constant(own.size));
    if (isInnerRagged) {
      Value isInner = b.less(innerNumber, b.constant(product.inner.size));
      isInside = isInside ? b.bitAnd(isInside, isInner) : isInner;
    }
    Value offset = b.add(getOffset(side, own, ownNumber),
                         getOffset(side, product.inner, innerNumber));
    int64_t bytes = side.copied * elementBytes;
    Value size;
    if (isInside) {
      size = b.select(isInside, b.constant(bytes), b.constant(0));
      offset = b.select(isInside, offset, b.constant(0));
    }
    Value to = b.multiplyAdd(row, pitch, b.mul(column, elementBytes));
    b.copyAsync(b.at(b.add(stage, to)), b.at(pointer, offset, type), size,
                bytes);
  }
}

void DenseProductEmitter::copy(Value step, Value stage) {
  int64_t steps = product.partLength / innerTile;
  b.when(b.less(step, b.constant(steps)), [&] {
    Value inner = b.multiplyAdd(step, innerTile, firstInner);
    copySide(product.left, product.rows, left, firstRow, inner, stage);
    copySide(product.right, product.cols, right, firstCol, inner,
             b.add(stage, product.left.getStageBytes()));
  });
  b.commitCopies();
}

SmallVector<Value> DenseProductEmitter::multiply(Value stage, ValueRange sums) {
  SmallVector<Value> next(sums);
  // A fragment of a side, `own` and `inner` numbers into it.
  auto load = [&](const Side &side, Value first, int64_t own, int64_t inner,
                  bool isLeft) {
    int64_t pitch = getPitch(side.isInnerLast ? innerTile : side.tile);
    int64_t row = side.isInnerLast ? own : inner;
    int64_t column = side.isInnerLast ? inner : own;
    // The left one goes through its own numbers before the inner ones, the
    // right one the other way round.
    Value at =
        b.add(first, getMatrixRow(b, pitch,
                                  /*rowsLast=*/isLeft != side.isInnerLast));
    return b.loadMatrices(
        b.at(b.at(at), row * pitch + column * elementBytes, b.b.getI8Type()),
        /*transpose=*/!side.isInnerLast);
  };
  auto getFirst = [&](const Side &side, Value warpFirst, Value at) {
    int64_t unit =
        side.isInnerLast ? getPitch(innerTile) : int64_t(elementBytes);
    return b.multiplyAdd(warpFirst, unit, at);
  };
  Value leftFirst = getFirst(product.left, warpRow, stage);
  Value rightFirst = getFirst(product.right, warpCol,
                              b.add(stage, product.left.getStageBytes()));
  for (int64_t inner = 0; inner != innerTile; inner += fragmentRows) {
    SmallVector<SmallVector<Value, 4>> rightFragments;
    for (int64_t col = 0; col != colTiles; col += 2)
      rightFragments.push_back(load(product.right, rightFirst,
                                    col * fragmentCols, inner,
                                    /*isLeft=*/false));
    for (int64_t row = 0; row != rowTiles; ++row) {
      SmallVector<Value, 4> leftFragment =
          load(product.left, leftFirst, row * fragmentRows, inner,
               /*isLeft=*/true);
      for (int64_t col = 0; col != colTiles; ++col) {
        MutableArrayRef<Value> sum =
            MutableArrayRef(next).slice(getSum(row, col), 4);
        ArrayRef<Value> right =
            ArrayRef(rightFragments[col / 2]).slice(col % 2 * 2, 2);
        llvm::copy(b.multiply(type, leftFragment, right, sum), sum.begin());
      }
    }
  }
  return next;
}

SmallVector<Value> DenseProductEmitter::getCoordinates(Value row) {
  return llvm::map_to_vector(ArrayRef(product.resultOrder).drop_back(),
                             [&](Group DenseProduct::*group) {
                               return group == &DenseProduct::batch ? batch
                                                                    : row;
                             });
}

void DenseProductEmitter::emitEpilogue(ValueRange sums) {
  WarpSums warp;
  for (int64_t row = 0; row != rowTiles; ++row)
    for (int64_t half = 0; half != 2; ++half)
      for (int64_t col = 0; col != colTiles; ++col)
        llvm::append_range(warp.sums,
                           sums.slice(getSum(row, col) + 2 * half, 2));
  warp.numRows = 2 * rowTiles;
  warp.at = getCoordinates(b.add(b.add(firstRow, warpRow), b.div(b.lane, 4)));
  warp.column = b.add(firstCol, warpCol);
  warp.warpNumber = b.div(warp.column, colTiles * fragmentCols);
  warp.areRowsRagged = product.rows.size % product.left.tile;
  warp.areColumnsRagged = product.cols.size % product.right.tile;
  product.epilogue->emit(b, warp);
}

void DenseProductEmitter::store(ValueRange sums) {
  Value lastRow = b.add(b.add(firstRow, warpRow), b.div(b.lane, 4));
  Value first = b.add(firstCol, warpCol);
  bool isRagged = product.cols.size % product.right.tile;
  for (int64_t row = 0; row != rowTiles; ++row)
    for (int64_t half = 0; half != 2; ++half) {
      Value number = b.add(lastRow, row * fragmentRows + half * 8);
      SmallVector<Value> at = getCoordinates(number);
      if (product.parts != 1)
        at.insert(at.begin(), part);
      auto storeRow = [&] {
        for (int64_t col = 0; col != colTiles; col += 2)
          storeSums(b, sums.slice(getSum(row, col) + 2 * half, 2),
                    sums.slice(getSum(row, col + 1) + 2 * half, 2), result, at,
                    b.add(first, col * fragmentCols), isRagged);
      };
      if (product.rows.size % product.left.tile == 0)
        storeRow();
      else
        b.when(b.less(number, b.constant(product.rows.size)), storeRow);
    }
}

void DenseProductEmitter::emit() {
  int64_t ahead = product.stages - 1;
  for (int64_t step = 0; step != ahead; ++step)
    copy(b.constant(step), b.constant(step * stageBytes));
  Type f32 = b.b.getF32Type();
  Value zero = arith::ConstantOp::create(b.b, b.loc, b.b.getZeroAttr(f32));
  int64_t numSums = getSum(rowTiles, 0);
  SmallVector<Value> carried(numSums, zero);
  carried.append({b.constant(0), b.constant(ahead * stageBytes)});
  SmallVector<Value> last = b.loop(
      b.constant(0), b.constant(product.partLength / innerTile), 1, carried,
      [&](Value step, ValueRange carried) {
        Value stage = carried[numSums], copied = carried[numSums + 1];
        b.waitForCopies(ahead - 1);
        b.barrier();
        copy(b.add(step, ahead), copied);
        SmallVector<Value> next = multiply(stage, carried.take_front(numSums));
        next.append({getNextStage(b, stage, stageBytes, product.stages),
                     getNextStage(b, copied, stageBytes, product.stages)});
        return next;
      });
  ValueRange sums = ValueRange(last).take_front(numSums);
  if (product.epilogue && product.parts == 1)
    emitEpilogue(sums);
  else
    store(sums);
}

/// Emits the launch that adds `parts` of `count` sums in `scratch`, in order: a
/// thread takes `length` of them, which `finish` gets with their number.
static void
emitSum(OpBuilder &b, Location loc, int64_t parts, int64_t count,
        int64_t length, Value scratch,
        llvm::function_ref<void(BlockBuilder &, Value, ValueRange)> finish) {
  Value terms = createRows(b, loc, scratch, parts, count, length).vectors;
  int64_t threads = count / length;
  int64_t blocks = llvm::divideCeil(threads, blockThreads);
  BlockBuilder::launch(
      b, loc, {blocks, 1}, blockThreads,
      /*sharedBytes=*/0, [&](BlockBuilder &b) {
        Value number = b.multiplyAdd(b.block[0], blockThreads, b.thread);
        b.when(b.less(number, b.constant(threads)), [&] {
          SmallVector<Value> sums;
          for (int64_t i = 0; i != length; ++i) {
            sums.push_back(
                b.load(terms, {b.constant(0), number, b.constant(i)}));
            for (int64_t part = 1; part != parts; ++part)
              sums.back() = arith::AddFOp::create(
                  b.b, b.loc, sums.back(),
                  b.load(terms, {b.constant(part), number, b.constant(i)}));
          }
          finish(b, number, sums);
        });
      });
}

LogicalResult DenseProduct::emit(OpBuilder &b, KernelBody &kernel,
                                 ValueRange scratch) {
  Location loc = kernel.loc;
  Value output = kernel.outputs.lookup(op.getResult(0));
  Value result = parts == 1 ? output : scratch[0];
  if (epilogue)
    epilogue->begin(b, kernel, scratch.drop_front(parts == 1 ? 0 : 1));
  SmallVector<int64_t> sizes;
  if (parts != 1)
    sizes.push_back(parts);
  for (Group DenseProduct::*group : ArrayRef(resultOrder).drop_back())
    sizes.push_back((this->*group).size);
  StoredRows stored;
  if (!epilogue || parts != 1)
    stored = createRows(b, loc, result, sizes, cols.size);
  int64_t tiles = llvm::divideCeil(rows.size, left.tile) *
                  llvm::divideCeil(cols.size, right.tile);
  BlockBuilder::launch(
      b, loc, {tiles, batch.size * parts}, blockThreads,
      stages * getStageBytes(), [&](BlockBuilder &block) {
        DenseProductEmitter(*this, kernel, stored, block).emit();
      });
  int64_t count = getType().getNumElements();
  if (parts != 1 && epilogue) {
    emitSum(b, loc, parts, count, Epilogue::length, result,
            [&](BlockBuilder &b, Value number, ValueRange sums) {
              epilogue->emit(b, number, sums);
            });
  } else if (parts != 1) {
    Value vectors = createRows(b, loc, output, {}, count).vectors;
    emitSum(b, loc, parts, count, /*length=*/2, result,
            [&](BlockBuilder &b, Value number, ValueRange sums) {
              for (auto [i, sum] : llvm::enumerate(sums))
                b.store(sum, vectors, {number, b.constant(i)});
            });
  }
  return epilogue ? epilogue->end(b) : success();
}
