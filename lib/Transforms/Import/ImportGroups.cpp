// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes products of groups of calls of functions that a front end says compute
// them.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Groups.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRIMPORTGROUPS
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Whether `value` is computed of an argument of `step` that has a mark.
static bool isOfMark(Value value, func::FuncOp step) {
  SetVector<Value> reached;
  reached.insert(value);
  for (size_t next = 0; next != reached.size(); ++next) {
    Value each = reached[next];
    auto argument = dyn_cast<BlockArgument>(each);
    if (argument && argument.getOwner() == &step.getBody().front() &&
        getMark(step, argument.getArgNumber()))
      return true;
    if (Operation *op = each.getDefiningOp())
      reached.insert_range(op->getOperands());
  }
  return false;
}

namespace {
/// A call of a function that computes an operation of groups.
struct Call {
  func::CallOp op;
  StringRef kind;

  bool isOuter() const { return kind == GroupedFunction::outer; }
  Value getMatrices() { return op.getOperand(isOuter() ? 3 : 1); }
  RankedTensorType getType(unsigned operand) {
    return cast<RankedTensorType>(op.getOperand(operand).getType());
  }
  RankedTensorType getResult() {
    return cast<RankedTensorType>(op.getResult(0).getType());
  }
  bool fits();
  /// The element type of the sums.
  Type getSumType() {
    bool isDouble = getType(0).getElementType().isF64() ||
                    getType(1).getElementType().isF64();
    return isDouble ? Type(Float64Type::get(op.getContext()))
                    : Float32Type::get(op.getContext());
  }
};
} // namespace

/// Whether operands and the result are what the function says. Else the call
/// stays one: its body says what it computes.
bool Call::fits() {
  if (op->getNumOperands() != (isOuter() ? 4 : 3) || op->getNumResults() != 1)
    return false;
  SmallVector<Type> types(op->getOperandTypes());
  types.push_back(op.getResult(0).getType());
  for (auto [number, type] : llvm::enumerate(types)) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.hasStaticShape())
      return false;
    Type element = tensor.getElementType();
    if (number == 2 ? !element.isInteger(32) && !element.isInteger(64)
                    : !isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
                          element))
      return false;
  }
  RankedTensorType x = getType(0), second = getType(1), groups = getType(2);
  RankedTensorType result = getResult();
  if (x.getRank() != 2 || groups.getRank() != 1 ||
      groups.getDimSize(0) != x.getDimSize(0) ||
      result.getElementTypeBitWidth() > getSumType().getIntOrFloatBitWidth())
    return false;
  if (isOuter())
    return second.getRank() == 2 && second.getDimSize(0) == x.getDimSize(0) &&
           result.getRank() == 3 &&
           getType(3).getShape() == result.getShape() &&
           result.getDimSize(1) == x.getDimSize(1) &&
           result.getDimSize(2) == second.getDimSize(1);
  unsigned in = kind == GroupedFunction::transposed ? 2 : 1;
  return second.getRank() == 3 && second.getDimSize(in) == x.getDimSize(1) &&
         result.getShape() ==
             ArrayRef({x.getDimSize(0), second.getDimSize(3 - in)});
}

/// `value` with elements of another float type.
static Value createRounded(OpBuilder &b, Location loc, Value value, Type type) {
  auto sums = cast<RankedTensorType>(value.getType());
  if (sums.getElementType() == type)
    return value;
  Value init = tensor::EmptyOp::create(b, loc, sums.getShape(), type);
  AffineMap map = b.getMultiDimIdentityMap(sums.getRank());
  SmallVector<utils::IteratorType> kinds(sums.getRank(),
                                         utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, loc, init.getType(), value, init, ArrayRef{map, map}, kinds,
             [&](OpBuilder &b, Location loc, ValueRange arguments) {
               Value number =
                   arith::TruncFOp::create(b, loc, type, arguments[0]);
               linalg::YieldOp::create(b, loc, number);
             })
      .getResult(0);
}

namespace {
struct ImportGroups : bsr::impl::BSRImportGroupsBase<ImportGroups> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<func::FuncOp> step = getStep(getOperation());
    if (failed(step))
      return signalPassFailure();
    if (!step->getBody().hasOneBlock())
      return;
    SymbolTable symbols(getOperation());
    for (auto op : llvm::make_early_inc_range(
             step->getBody().front().getOps<func::CallOp>())) {
      auto callee = symbols.lookup<func::FuncOp>(op.getCallee());
      StringAttr kind = callee ? attrs::grouped.get(callee) : StringAttr();
      if (!kind)
        continue;
      Call call{op, kind};
      if (call.fits() && !isOfMark(call.getMatrices(), *step) &&
          decide("bsr-import-groups", op))
        make(call);
    }
  }

  void make(Call call);
};
} // namespace

void ImportGroups::make(Call call) {
  OpBuilder b(call.op);
  Location loc = call.op.getLoc();
  ValueRange operands = call.op.getOperands();
  RankedTensorType sums = call.getResult().clone(call.getSumType());
  Operation *made;
  if (call.isOuter())
    made = GroupedOuterOp::create(b, loc, sums, operands[0], operands[1],
                                  operands[2]);
  else
    made = GroupedMatmulOp::create(b, loc, sums, operands[0], operands[1],
                                   operands[2],
                                   call.kind == GroupedFunction::transposed);
  ++numImported;
  PassRemark::passed("bsr-import-groups", "GroupsImported", made)
      .add("Rows", call.getType(0).getDimSize(0))
      .add("Groups",
           cast<RankedTensorType>(call.getMatrices().getType()).getDimSize(0));
  call.op.getResult(0).replaceAllUsesWith(createRounded(
      b, loc, made->getResult(0), call.getResult().getElementType()));
  call.op.erase();
}
