// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes bf16 integers, which are converted from and to f32 with integer
// arithmetic.

#include "bsr/Codegen/CPU/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREXPANDBF16
#include "bsr/Codegen/CPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

/// Makes bf16 i16 wherever it stands in `op`: in types and constants.
static void replaceTypes(Operation *op) {
  Builder b(op->getContext());
  AttrTypeReplacer replacer;
  // The instruction that multiplies tiles of bf16 takes these as they are.
  replacer.addReplacement([&](amx::TileType type) {
    return std::make_pair(Type(type), WalkResult::skip());
  });
  replacer.addReplacement([&](BFloat16Type) -> Type { return b.getI16Type(); });
  replacer.addReplacement([&](FloatAttr attr) -> std::optional<Attribute> {
    if (!attr.getType().isBF16())
      return std::nullopt;
    return b.getIntegerAttr(b.getI16Type(), attr.getValue().bitcastToAPInt());
  });
  replacer.addReplacement(
      [&](DenseFPElementsAttr attr) -> std::optional<Attribute> {
        if (!attr.getElementType().isBF16())
          return std::nullopt;
        return attr.bitcast(b.getI16Type());
      });
  replacer.recursivelyReplaceElementsIn(op, /*replaceAttrs=*/true,
                                        /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
}

/// `element`, or a vector of it in the shape of `type`.
static Type withElement(Type type, Type element) {
  auto vector = dyn_cast<VectorType>(type);
  return vector ? Type(vector.clone(element)) : element;
}

static Value createConstant(OpBuilder &b, Location loc, Type type,
                            int32_t value) {
  TypedAttr attr = b.getI32IntegerAttr(value);
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, loc, attr);
}

/// The instruction that multiplies pairs of bf16 takes these as they are.
static void restoreOperands(x86vector::DotBF16Op op) {
  OpBuilder b(op);
  for (OpOperand &operand : op->getOpOperands()) {
    auto type = cast<VectorType>(operand.get().getType());
    if (type.getElementType().isInteger(16))
      operand.set(LLVM::BitcastOp::create(
          b, op.getLoc(), type.clone(b.getBF16Type()), operand.get()));
  }
}

/// The vector of bf16 that AVX512_BF16 makes of one or of two vectors of f32.
static Value createRounded(OpBuilder &b, Location loc, ValueRange parts) {
  bool isOne = parts.size() == 1;
  int64_t lanes = isOne ? 16 : 32;
  StringRef name = isOne ? "llvm.x86.avx512bf16.cvtneps2bf16.512"
                         : "llvm.x86.avx512bf16.cvtne2ps2bf16.512";
  // The second operand has the lower lanes.
  SmallVector<Value> operands(llvm::reverse(parts));
  return LLVM::CallIntrinsicOp::create(
             b, loc, VectorType::get({lanes}, b.getBF16Type()),
             b.getStringAttr(name), operands)
      .getResult(0);
}

/// A rounding that says how it rounds has no subnormal operands: with AMX, an
/// instruction does it, which would make zeros of these.
static void roundByInstruction(arith::TruncFOp op, bool hasInstruction) {
  if (!op.getRoundingmodeAttr())
    return;
  auto type = dyn_cast<VectorType>(op.getType());
  if (!hasInstruction || !type || type.getNumElements() % 16 != 0) {
    op.removeRoundingmodeAttr();
    return;
  }
  OpBuilder b(op);
  Location loc = op.getLoc();
  int64_t lanes = type.getNumElements();
  auto getPart = [&](int64_t first) -> Value {
    return vector::ExtractStridedSliceOp::create(b, loc, op.getIn(), first, 16,
                                                 1);
  };
  Value rounded;
  if (lanes == 16) {
    rounded = createRounded(b, loc, op.getIn());
  } else {
    rounded = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
    for (int64_t first = 0; first != lanes; first += 32)
      rounded = vector::InsertStridedSliceOp::create(
          b, loc,
          createRounded(b, loc,
                        ValueRange{getPart(first), getPart(first + 16)}),
          rounded, first, 1);
  }
  op.replaceAllUsesWith(rounded);
  op.erase();
}

/// That instruction makes bf16.
static void restoreResult(LLVM::CallIntrinsicOp op) {
  if (!op.getIntrin().starts_with("llvm.x86.avx512bf16.cvtne"))
    return;
  OpBuilder b(op->getContext());
  b.setInsertionPointAfter(op);
  Value result = op.getResult(0);
  auto type = cast<VectorType>(result.getType());
  result.setType(type.clone(b.getBF16Type()));
  auto words = LLVM::BitcastOp::create(b, op.getLoc(), type, result);
  result.replaceAllUsesExcept(words, words);
}

namespace {
/// From bf16 to f64 by way of f32, which has all of its numbers.
struct ExtendTwice : OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::ExtFOp op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getIn()).isBF16() ||
        getElementTypeOrSelf(op.getType()).isF32())
      return failure();
    Value f32 = arith::ExtFOp::create(
        rewriter, op.getLoc(), withElement(op.getType(), rewriter.getF32Type()),
        op.getIn());
    rewriter.replaceOpWithNewOp<arith::ExtFOp>(op, op.getType(), f32);
    return success();
  }
};

/// From f64 to bf16 by way of f32. Rounded to nearest twice, what is close to
/// the middle of two bf16 could go the wrong way: the f32 is the odd one of the
/// two around an f64 that is none itself.
struct TruncateTwice : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isBF16() ||
        !getElementTypeOrSelf(op.getIn()).isF64())
      return failure();
    Location loc = op.getLoc();
    Value x = op.getIn();
    Type i32 = withElement(x.getType(), rewriter.getI32Type());
    Type f32 = withElement(x.getType(), rewriter.getF32Type());
    Value one = createConstant(rewriter, loc, i32, 1);
    Value nearest = arith::TruncFOp::create(rewriter, loc, f32, x);
    Value back = arith::ExtFOp::create(rewriter, loc, x.getType(), nearest);
    Value bits = arith::BitcastOp::create(rewriter, loc, i32, nearest);
    // Towards zero from an even f32 that is too large, away from it else; a NaN
    // stays as it is.
    Value isOther = arith::CmpFOp::create(rewriter, loc,
                                          arith::CmpFPredicate::ONE, back, x);
    Value magnitude = math::AbsFOp::create(rewriter, loc, back);
    Value exact = math::AbsFOp::create(rewriter, loc, x);
    Value isLarge = arith::CmpFOp::create(
        rewriter, loc, arith::CmpFPredicate::OGT, magnitude, exact);
    Value last = arith::AndIOp::create(rewriter, loc, bits, one);
    Value zero = createConstant(rewriter, loc, i32, 0);
    Value isEven = arith::CmpIOp::create(rewriter, loc,
                                         arith::CmpIPredicate::eq, last, zero);
    Value odd = arith::AddIOp::create(
        rewriter, loc, bits,
        arith::SelectOp::create(rewriter, loc, isLarge,
                                createConstant(rewriter, loc, i32, -1), one));
    bits = arith::SelectOp::create(
        rewriter, loc, arith::AndIOp::create(rewriter, loc, isOther, isEven),
        odd, bits);
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(
        op, op.getType(), arith::BitcastOp::create(rewriter, loc, f32, bits));
    return success();
  }
};

/// In f32: the one function that math-extend-to-supported-types leaves.
struct WidenFma : OpRewritePattern<math::FmaOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::FmaOp op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isBF16())
      return failure();
    Location loc = op.getLoc();
    Type f32 = withElement(op.getType(), rewriter.getF32Type());
    SmallVector<Value> operands =
        llvm::map_to_vector(op->getOperands(), [&](Value operand) -> Value {
          return arith::ExtFOp::create(rewriter, loc, f32, operand);
        });
    Value sum = math::FmaOp::create(rewriter, loc, f32, operands);
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getType(), sum);
    return success();
  }
};

struct ExpandBF16 : bsr::impl::BSRExpandBF16Base<ExpandBF16> {
  using Base::Base;

  void runOnOperation() override {
    auto cpu =
        dyn_cast_or_null<bsr::CPUAttr>(bsr::attrs::target.get(getOperation()));
    bool hasTiles = cpu && cpu.getBf16Tiles() == bsr::TileProducts::AMX;
    getOperation()->walk(
        [&](arith::TruncFOp op) { roundByInstruction(op, hasTiles); });
    RewritePatternSet patterns(&getContext());
    arith::populateExpandBFloat16Patterns(patterns);
    patterns.add<ExtendTwice, TruncateTwice, WidenFma>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    replaceTypes(getOperation());
    getOperation()->walk(restoreOperands);
    getOperation()->walk(restoreResult);
    // What copied bits from one type to the other has nothing to do.
    getOperation()->walk([](arith::BitcastOp op) {
      if (op.getType() != op.getIn().getType())
        return;
      op.replaceAllUsesWith(op.getIn());
      op.erase();
    });
  }
};
} // namespace
