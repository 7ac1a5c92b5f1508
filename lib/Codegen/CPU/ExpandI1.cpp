// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stores i1 as bytes.

#include "bsr/Codegen/CPU/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/TypeUtilities.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREXPANDI1
#include "bsr/Codegen/CPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

/// `type`, which is i1 or a vector of it, with bytes instead; null if it is
/// another one.
static Type getBytes(Type type) {
  if (!getElementTypeOrSelf(type).isInteger(1))
    return {};
  Type byte = IntegerType::get(type.getContext(), 8);
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped ? Type(shaped.clone(byte)) : byte;
}

/// Lets `op`, which loads, load bytes.
static void widenLoad(Operation *op) {
  Value loaded = op->getResult(0);
  Type type = getBytes(loaded.getType());
  if (!type)
    return;
  loaded.setType(type);
  OpBuilder b(op->getContext());
  b.setInsertionPointAfter(op);
  Value zero =
      arith::ConstantOp::create(b, op->getLoc(), type, b.getZeroAttr(type));
  Value mask = arith::CmpIOp::create(b, op->getLoc(), arith::CmpIPredicate::ne,
                                     loaded, zero);
  loaded.replaceAllUsesExcept(mask, mask.getDefiningOp());
}

/// Lets `op` store `stored` in bytes.
static void widenStore(Operation *op, OpOperand &stored) {
  Type type = getBytes(stored.get().getType());
  if (!type)
    return;
  OpBuilder b(op);
  stored.set(arith::ExtUIOp::create(b, op->getLoc(), type, stored.get()));
}

/// Lets a constant be bytes.
static void widenConstant(memref::GlobalOp global) {
  auto value = dyn_cast_or_null<DenseElementsAttr>(
      global.getInitialValue().value_or(Attribute()));
  if (!value || !value.getElementType().isInteger(1))
    return;
  Type byte = IntegerType::get(global.getContext(), 8);
  global.setInitialValueAttr(
      value.mapValues(byte, [](const APInt &bit) { return bit.zext(8); }));
}

namespace {
struct ExpandI1 : bsr::impl::BSRExpandI1Base<ExpandI1> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      if (isa<memref::LoadOp, vector::LoadOp>(op))
        widenLoad(op);
      else if (auto store = dyn_cast<memref::StoreOp>(op))
        widenStore(op, store.getValueMutable());
      else if (auto store = dyn_cast<vector::StoreOp>(op))
        widenStore(op, store.getValueToStoreMutable());
      else if (auto global = dyn_cast<memref::GlobalOp>(op))
        widenConstant(global);
    });
    AttrTypeReplacer replacer;
    replacer.addReplacement([](MemRefType type) -> std::optional<Type> {
      if (Type bytes = getBytes(type))
        return bytes;
      return std::nullopt;
    });
    replacer.recursivelyReplaceElementsIn(getOperation(), /*replaceAttrs=*/true,
                                          /*replaceLocs=*/false,
                                          /*replaceTypes=*/true);
  }
};
} // namespace
