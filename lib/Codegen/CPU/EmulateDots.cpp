// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces products of pairs of bf16 by plain vectors of the same layout and
// roundings.

#include "bsr/Codegen/CPU/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREMULATEDOTS
#include "bsr/Codegen/CPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

namespace {
/// Builds the arithmetic of one dot: Intel's Software Developer's Manual,
/// VDPBF16PS. Products of the upper numbers of pairs are added first, then
/// those of the lower ones; each is a multiply-add that rounds once, to nearest
/// even; subnormal operands and results are zeros of their sign.
class Expansion {
public:
  Expansion(OpBuilder &b, x86vector::DotBF16Op op)
      : b(b), loc(op.getLoc()), type(cast<VectorType>(op.getType())),
        words(type.clone(b.getI32Type())) {}

  Value expand(x86vector::DotBF16Op op) {
    Value a = bitcast(words, op.getA()), other = bitcast(words, op.getB());
    Value sum = add(getUpper(a), getUpper(other), flush(op.getSrc()));
    return add(getLower(a), getLower(other), sum);
  }

private:
  Value bitcast(Type to, Value value) {
    return vector::BitCastOp::create(b, loc, to, value);
  }
  Value splat(int32_t value) {
    return arith::ConstantOp::create(
        b, loc, DenseElementsAttr::get(words, b.getI32IntegerAttr(value)));
  }
  /// A bf16 is the upper half of an f32.
  Value getUpper(Value pairs) {
    return flush(bitcast(type, arith::AndIOp::create(
                                   b, loc, pairs, splat(int32_t(0xffff0000)))));
  }
  Value getLower(Value pairs) {
    return flush(
        bitcast(type, arith::ShLIOp::create(b, loc, pairs, splat(16))));
  }
  Value flush(Value value) {
    Value bits = bitcast(words, value);
    Value exponent = arith::AndIOp::create(b, loc, bits, splat(0x7f800000));
    Value isNormal = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                           exponent, splat(0));
    Value sign =
        arith::AndIOp::create(b, loc, bits, splat(int32_t(0x80000000)));
    return bitcast(type, arith::SelectOp::create(b, loc, isNormal, bits, sign));
  }
  Value add(Value x, Value y, Value sum) {
    return flush(math::FmaOp::create(b, loc, x, y, sum));
  }

  OpBuilder &b;
  Location loc;
  VectorType type, words;
};

struct EmulateDots : bsr::impl::BSREmulateDotsBase<EmulateDots> {
  using Base::Base;

  void runOnOperation() override {
    auto cpu = dyn_cast<bsr::CPUAttr>(bsr::getTarget(getOperation()));
    if (!cpu || cpu.getBf16Dots() != bsr::PairDots::Emulated)
      return;
    getOperation()->walk([](x86vector::DotBF16Op op) {
      OpBuilder b(op);
      op.replaceAllUsesWith(Expansion(b, op).expand(op));
      op.erase();
    });
  }
};
} // namespace
