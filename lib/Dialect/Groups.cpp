// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations that multiply rows with the matrices of their groups.

#include "bsr/Dialect/Groups.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRGroups.cpp.inc"

bool GroupedFunction::isValid(Attribute attr) {
  auto kind = dyn_cast<StringAttr>(attr);
  return kind && llvm::is_contained({matmul, transposed, outer}, kind);
}

/// Checks that `tensor` has `shape`, and elements of `type`.
static LogicalResult verifyType(Operation *op, StringRef name,
                                RankedTensorType tensor,
                                ArrayRef<int64_t> shape, Type type) {
  auto expected = RankedTensorType::get(shape, type);
  if (tensor != expected)
    return op->emitOpError("expected ")
           << name << " of type " << expected << ", but got " << tensor;
  return success();
}

/// The type that sums of products of `x` and `y` are taken in.
static Type getSumType(RankedTensorType x, RankedTensorType y) {
  bool isDouble = x.getElementType().isF64() || y.getElementType().isF64();
  return isDouble ? Type(Float64Type::get(x.getContext()))
                  : Float32Type::get(x.getContext());
}

//===----------------------------------------------------------------------===//
// GroupedMatmulOp
//===----------------------------------------------------------------------===//

LogicalResult GroupedMatmulOp::verify() {
  RankedTensorType x = getX().getType(), w = getW().getType();
  unsigned inDim = getTranspose() ? 2 : 1;
  int64_t in = w.getDimSize(inDim), out = w.getDimSize(3 - inDim);
  if (x.getDimSize(1) != in)
    return emitOpError("expected rows of x of ")
           << in << " features, as many as dimension " << inDim
           << " of w has, but got " << x.getDimSize(1);
  int64_t rows = x.getDimSize(0);
  if (failed(verifyType(*this, "groups", getGroups().getType(), rows,
                        getGroups().getType().getElementType())))
    return failure();
  return verifyType(*this, "y", getY().getType(), {rows, out},
                    getSumType(x, w));
}

StringRef GroupedMatmulOp::getWorkKind() { return "dense"; }
int64_t GroupedMatmulOp::getFlops() {
  return 2 * getX().getType().getNumElements() * getY().getType().getDimSize(1);
}

//===----------------------------------------------------------------------===//
// GroupedOuterOp
//===----------------------------------------------------------------------===//

LogicalResult GroupedOuterOp::verify() {
  RankedTensorType a = getA().getType(), b = getB().getType();
  int64_t rows = a.getDimSize(0);
  if (failed(verifyType(*this, "b", b, {rows, b.getDimSize(1)},
                        b.getElementType())) ||
      failed(verifyType(*this, "groups", getGroups().getType(), rows,
                        getGroups().getType().getElementType())))
    return failure();
  RankedTensorType w = getW().getType();
  return verifyType(*this, "w", w,
                    {w.getDimSize(0), a.getDimSize(1), b.getDimSize(1)},
                    getSumType(a, b));
}

StringRef GroupedOuterOp::getWorkKind() { return "dense"; }
int64_t GroupedOuterOp::getFlops() {
  return 2 * getA().getType().getNumElements() * getB().getType().getDimSize(1);
}
