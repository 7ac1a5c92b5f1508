// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces products of pairs of bf16, and of tiles of them, by plain vectors of
// the same layout and roundings.

#include "bsr/Codegen/CPU/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Patterns.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/Transforms/DialectConversion.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREMULATEDOTS
#include "bsr/Codegen/CPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

namespace {
/// Builds the arithmetic of vectors `type` of f32, and of as many pairs of
/// bf16: a multiply-add rounds once, to nearest even; subnormal operands and
/// results are zeros of their sign (Intel's Software Developer's Manual).
class Expansion {
public:
  Expansion(OpBuilder &b, Location loc, VectorType type)
      : b(b), loc(loc), type(type), words(type.clone(b.getI32Type())) {}

  /// VDPBF16PS: products of the upper numbers of pairs are added first, then
  /// those of the lower ones.
  Value expand(x86vector::DotBF16Op op) {
    Value a = bitcast(words, op.getA()), other = bitcast(words, op.getB());
    Value sum = multiplyAdd(getUpper(a), getUpper(other), flush(op.getSrc()));
    return multiplyAdd(getLower(a), getLower(other), sum);
  }

  /// TDPBF16PS: products of the lower numbers of a row's pairs have a sum, and
  /// those of the upper ones; both together are added to the tile.
  SmallVector<Value> expand(ValueRange lhs, ValueRange rhs, ValueRange acc) {
    Value left = keep(lhs), right = keep(rhs), sums = keep(acc);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    Value numRows = arith::ConstantIndexOp::create(b, loc, acc.size());
    Value numPairs = arith::ConstantIndexOp::create(b, loc, rhs.size());
    Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
    scf::ForOp::create(
        b, loc, zero, numRows, one, {},
        [&](OpBuilder &, Location, Value row, ValueRange) {
          auto pairs = scf::ForOp::create(
              b, loc, zero, numPairs, one, ValueRange{none, none},
              [&](OpBuilder &, Location, Value pair, ValueRange both) {
                Value a = vector::BroadcastOp::create(
                    b, loc, words,
                    memref::LoadOp::create(b, loc, left,
                                           ValueRange{row, pair}));
                Value other = vector::LoadOp::create(b, loc, words, right,
                                                     ValueRange{pair, zero});
                Value lower =
                    multiplyAdd(getLower(a), getLower(other), both[0]);
                Value upper =
                    multiplyAdd(getUpper(a), getUpper(other), both[1]);
                scf::YieldOp::create(b, loc, ValueRange{lower, upper});
              });
          Value added = add(pairs.getResult(0), pairs.getResult(1));
          Value before =
              bitcast(type, vector::LoadOp::create(b, loc, words, sums,
                                                   ValueRange{row, zero}));
          Value sum = add(flush(before), added);
          vector::StoreOp::create(b, loc, bitcast(words, sum), sums,
                                  ValueRange{row, zero});
          scf::YieldOp::create(b, loc);
        });
    SmallVector<Value> rows;
    for (size_t row = 0; row != acc.size(); ++row)
      rows.push_back(bitcast(
          type,
          vector::LoadOp::create(
              b, loc, words, sums,
              ValueRange{arith::ConstantIndexOp::create(b, loc, row), zero})));
    return rows;
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
  Value multiplyAdd(Value x, Value y, Value sum) {
    return flush(math::FmaOp::create(b, loc, x, y, sum));
  }
  Value add(Value x, Value y) {
    return flush(arith::AddFOp::create(b, loc, x, y));
  }
  /// Memory that has `rows`, in words of 32 bits.
  Value keep(ValueRange rows) {
    auto row = cast<VectorType>(rows.front().getType());
    auto kept = VectorType::get(
        {row.getNumElements() * row.getElementTypeBitWidth() / 32},
        b.getI32Type());
    Value memory = memref::AllocaOp::create(
        b, loc,
        MemRefType::get(
            {static_cast<int64_t>(rows.size()), kept.getNumElements()},
            kept.getElementType()),
        b.getI64IntegerAttr(64));
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    for (auto [number, row] : llvm::enumerate(rows))
      vector::StoreOp::create(
          b, loc, bitcast(kept, row), memory,
          ValueRange{arith::ConstantIndexOp::create(b, loc, number), zero});
    return memory;
  }

  OpBuilder &b;
  Location loc;
  VectorType type, words;
};

/// The type of a tile's row.
VectorType getRowType(amx::TileType tile) {
  return VectorType::get({tile.getDimSize(1)}, tile.getElementType());
}

/// Where row number `row` of a tile lies whose first row is at `indices`.
SmallVector<Value> getRowPlace(OpBuilder &b, Location loc, ValueRange indices,
                               int64_t row) {
  SmallVector<Value> at(indices);
  Value &index = at[at.size() - 2];
  index = arith::AddIOp::create(b, loc, index,
                                arith::ConstantIndexOp::create(b, loc, row));
  return at;
}

struct ClearTile : OpConversionPattern<amx::TileZeroOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult
  matchAndRewrite(amx::TileZeroOp op, OneToNOpAdaptor,
                  ConversionPatternRewriter &rewriter) const override {
    amx::TileType type = op.getTileType();
    Value zero = arith::ConstantOp::create(
        rewriter, op.getLoc(), rewriter.getZeroAttr(getRowType(type)));
    SmallVector<Value> rows(type.getDimSize(0), zero);
    rewriter.replaceOpWithMultiple(op, {rows});
    return success();
  }
};

struct LoadTile : OpConversionPattern<amx::TileLoadOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult
  matchAndRewrite(amx::TileLoadOp op, OneToNOpAdaptor,
                  ConversionPatternRewriter &rewriter) const override {
    amx::TileType type = op.getTileType();
    SmallVector<Value> rows;
    for (int64_t row : llvm::seq(type.getDimSize(0)))
      rows.push_back(vector::LoadOp::create(
          rewriter, op.getLoc(), getRowType(type), op.getBase(),
          getRowPlace(rewriter, op.getLoc(), op.getIndices(), row)));
    rewriter.replaceOpWithMultiple(op, {rows});
    return success();
  }
};

struct StoreTile : OpConversionPattern<amx::TileStoreOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult
  matchAndRewrite(amx::TileStoreOp op, OneToNOpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    for (auto [number, row] : llvm::enumerate(adaptor.getVal()))
      vector::StoreOp::create(
          rewriter, op.getLoc(), row, op.getBase(),
          getRowPlace(rewriter, op.getLoc(), op.getIndices(), number));
    rewriter.eraseOp(op);
    return success();
  }
};

struct MultiplyTiles : OpConversionPattern<amx::TileMulFOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult
  matchAndRewrite(amx::TileMulFOp op, OneToNOpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Expansion expansion(rewriter, op.getLoc(), getRowType(op.getTileType()));
    SmallVector<Value> rows =
        expansion.expand(adaptor.getLhs(), adaptor.getRhs(), adaptor.getAcc());
    rewriter.replaceOpWithMultiple(op, {rows});
    return success();
  }
};

struct EmulateDots : bsr::impl::BSREmulateDotsBase<EmulateDots> {
  using Base::Base;

  void runOnOperation() override {
    auto cpu = dyn_cast<bsr::CPUAttr>(bsr::getTarget(getOperation()));
    if (!cpu)
      return;
    if (cpu.getBf16Dots() == bsr::PairDots::Emulated)
      getOperation()->walk([](x86vector::DotBF16Op op) {
        OpBuilder b(op);
        Expansion expansion(b, op.getLoc(), cast<VectorType>(op.getType()));
        op.replaceAllUsesWith(expansion.expand(op));
        op.erase();
      });
    if (cpu.getBf16Tiles() == bsr::TileProducts::Emulated &&
        failed(emulateTiles()))
      signalPassFailure();
  }

private:
  /// A tile becomes its rows.
  LogicalResult emulateTiles() {
    TypeConverter converter;
    converter.addConversion([](Type type) { return type; });
    converter.addConversion(
        [](amx::TileType type, SmallVectorImpl<Type> &rows) {
          rows.append(type.getDimSize(0), getRowType(type));
          return success();
        });
    ConversionTarget target(getContext());
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    target.addIllegalDialect<amx::AMXDialect>();
    RewritePatternSet patterns(&getContext());
    patterns.add<ClearTile, LoadTile, StoreTile, MultiplyTiles>(converter,
                                                                &getContext());
    scf::populateSCFStructuralTypeConversionsAndLegality(converter, patterns,
                                                         target);
    return applyPartialConversion(getOperation(), target, std::move(patterns));
  }
};
} // namespace
