// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations of tensor: which element goes where.

#include "Points.h"
#include "bsr/Interpreter/Interpreter.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;

/// The place of `indices` in an array of `shape`, or nothing outside of it.
static std::optional<size_t> getPlace(const std::vector<int64_t> &shape,
                                      ArrayRef<int64_t> indices) {
  int64_t place = 0;
  for (auto [extent, index] : llvm::zip_equal(shape, indices)) {
    if (index < 0 || index >= extent)
      return std::nullopt;
    place = place * extent + index;
  }
  return size_t(place);
}

static LogicalResult refuseOutside(Operation *op) {
  return op->emitError(outsideMessage);
}

/// Calls `run` with each place of the slice of an array of `shape` that `op`
/// reads or writes, in order.
template <typename Slice, typename Run>
static LogicalResult forEachPlace(Slice op, const std::vector<int64_t> &shape,
                                  Interpreter &interpreter, Run run) {
  auto getAll = [&](ArrayRef<OpFoldResult> values) {
    std::vector<int64_t> integers;
    for (OpFoldResult value : values)
      integers.push_back(interpreter.getInteger(value));
    return integers;
  };
  std::vector<int64_t> offsets = getAll(op.getMixedOffsets());
  std::vector<int64_t> sizes = getAll(op.getMixedSizes());
  std::vector<int64_t> strides = getAll(op.getMixedStrides());
  bool isInside = true;
  forEachPoint(sizes, [&](const std::vector<int64_t> &point) {
    std::vector<int64_t> indices;
    for (size_t i = 0; i < point.size(); ++i)
      indices.push_back(offsets[i] + point[i] * strides[i]);
    std::optional<size_t> place = getPlace(shape, indices);
    isInside &= place.has_value();
    if (place)
      run(*place);
  });
  return isInside ? success() : refuseOutside(op);
}

static std::optional<size_t> getPlaceOf(const std::vector<int64_t> &shape,
                                        ValueRange indices,
                                        Interpreter &interpreter) {
  return getPlace(shape, llvm::map_to_vector(indices, [&](Value index) {
                    return interpreter.getNumber(index).integer;
                  }));
}

static LogicalResult runExtract(tensor::ExtractOp op,
                                Interpreter &interpreter) {
  const Array &array = interpreter.getArray(op.getTensor());
  auto place = getPlaceOf(array.shape, op.getIndices(), interpreter);
  if (!place)
    return refuseOutside(op);
  interpreter.set(op, array.elements[*place]);
  return success();
}

static LogicalResult runInsert(tensor::InsertOp op, Interpreter &interpreter) {
  Array array = interpreter.getArray(op.getDest());
  auto place = getPlaceOf(array.shape, op.getIndices(), interpreter);
  if (!place)
    return refuseOutside(op);
  array.elements[*place] = interpreter.getNumber(op.getScalar());
  interpreter.set(op, std::move(array));
  return success();
}

static LogicalResult runExtractSlice(tensor::ExtractSliceOp op,
                                     Interpreter &interpreter) {
  const Array &source = interpreter.getArray(op.getSource());
  Array slice = {getShape(op.getType()), {}};
  LogicalResult done =
      forEachPlace(op, source.shape, interpreter, [&](size_t place) {
        slice.elements.push_back(source.elements[place]);
      });
  interpreter.set(op, std::move(slice));
  return done;
}

static LogicalResult runInsertSlice(tensor::InsertSliceOp op,
                                    Interpreter &interpreter) {
  Array array = interpreter.getArray(op.getDest());
  const Array &source = interpreter.getArray(op.getSource());
  size_t next = 0;
  LogicalResult done =
      forEachPlace(op, array.shape, interpreter, [&](size_t place) {
        array.elements[place] = source.elements[next++];
      });
  interpreter.set(op, std::move(array));
  return done;
}

/// The same elements in another shape.
static LogicalResult runReshape(Operation *op, Interpreter &interpreter) {
  Array array = interpreter.getArray(op->getOperand(0));
  array.shape = getShape(op->getResult(0).getType());
  interpreter.set(op->getResult(0), std::move(array));
  return success();
}

/// An array of the numbers that a region yields.
static LogicalResult runGenerate(Operation *op, Interpreter &interpreter) {
  Array array = makeUnspecified(op->getResult(0).getType());
  Body body;
  if (failed(interpreter.prepare(body, op->getRegion(0).front())))
    return failure();
  size_t next = 0;
  forEachPoint(array.shape, [&](const std::vector<int64_t> &point) {
    for (size_t i = 0; i < point.size(); ++i)
      body.getArguments()[i].integer = point[i];
    body.run(point.data());
    array.elements[next++] = body.getYielded(0);
  });
  if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    const Array &source = interpreter.getArray(pad.getSource());
    next = 0;
    forEachPoint(source.shape, [&](std::vector<int64_t> point) {
      for (auto [index, low] : llvm::zip_equal(point, pad.getMixedLowPad()))
        index += interpreter.getInteger(low);
      if (std::optional<size_t> place = getPlace(array.shape, point))
        array.elements[*place] = source.elements[next];
      ++next;
    });
  }
  interpreter.set(op->getResult(0), std::move(array));
  return interpreter.finish();
}

static LogicalResult runConcat(tensor::ConcatOp op, Interpreter &interpreter) {
  Array array = makeUnspecified(op.getType());
  int64_t offset = 0;
  for (Value input : op.getInputs()) {
    const Array &source = interpreter.getArray(input);
    size_t next = 0;
    forEachPoint(source.shape, [&](std::vector<int64_t> point) {
      point[op.getDim()] += offset;
      array.elements[*getPlace(array.shape, point)] = source.elements[next++];
    });
    offset += source.shape[op.getDim()];
  }
  interpreter.set(op, std::move(array));
  return success();
}

std::optional<LogicalResult>
interpreter::interpretTensor(Operation *op, Interpreter &interpreter) {
  using Done = std::optional<LogicalResult>;
  return llvm::TypeSwitch<Operation *, Done>(op)
      .Case([&](tensor::EmptyOp op) -> Done {
        interpreter.set(op, makeUnspecified(op.getType()));
        return success();
      })
      .Case([&](tensor::SplatOp op) -> Done {
        Array array = makeUnspecified(op.getType());
        array.elements.assign(array.elements.size(),
                              interpreter.getNumber(op.getInput()));
        interpreter.set(op, std::move(array));
        return success();
      })
      .Case([&](tensor::FromElementsOp op) -> Done {
        Array array = {getShape(op.getType()), {}};
        for (Value element : op.getElements())
          array.elements.push_back(interpreter.getNumber(element));
        interpreter.set(op, std::move(array));
        return success();
      })
      .Case([&](tensor::DimOp op) -> Done {
        int64_t dim = interpreter.getNumber(op.getIndex()).integer;
        const Array &array = interpreter.getArray(op.getSource());
        if (dim < 0 || dim >= int64_t(array.shape.size()))
          return refuseOutside(op);
        interpreter.set(op, fromInteger(array.shape[size_t(dim)]));
        return success();
      })
      .Case([&](tensor::ExtractOp op) -> Done {
        return runExtract(op, interpreter);
      })
      .Case([&](tensor::InsertOp op) -> Done {
        return runInsert(op, interpreter);
      })
      .Case([&](tensor::ExtractSliceOp op) -> Done {
        return runExtractSlice(op, interpreter);
      })
      .Case([&](tensor::InsertSliceOp op) -> Done {
        return runInsertSlice(op, interpreter);
      })
      .Case<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ReshapeOp,
            tensor::CastOp>(
          [&](auto op) -> Done { return runReshape(op, interpreter); })
      .Case<tensor::GenerateOp, tensor::PadOp>(
          [&](auto op) -> Done { return runGenerate(op, interpreter); })
      .Case([&](tensor::ConcatOp op) -> Done {
        return runConcat(op, interpreter);
      })
      .Default(Done());
}
