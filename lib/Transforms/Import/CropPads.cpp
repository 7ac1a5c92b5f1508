// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes paddings below zero as slices: upstream's bufferization copies the
// whole source into the result, and its canonicalization adds up what
// consecutive paddings take away and add.

#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCROPPADS
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// A padding of one dimension: what it leaves of the source, and what it adds.
struct Crop {
  int64_t offset, size, low, high;
};
} // namespace

/// What the paddings `low` and `high`, each of any sign, do to `extent`.
static Crop getCrop(int64_t extent, int64_t low, int64_t high) {
  int64_t offset = std::max<int64_t>(-low, 0);
  return {offset, extent + std::min<int64_t>(high, 0) - offset,
          std::max<int64_t>(low, 0), std::max<int64_t>(high, 0)};
}

/// pad(x, low < 0) -> extract_slice(x), padded by what is left, or, if nothing
/// of `x` is, what the region of the padding yields
static Value crop(tensor::PadOp pad, ArrayRef<Crop> crops) {
  OpBuilder b(pad);
  Location loc = pad.getLoc();
  if (llvm::any_of(crops, [](const Crop &crop) { return crop.size <= 0; })) {
    auto generate = tensor::GenerateOp::create(b, loc, pad.getResultType(),
                                               /*dynamicExtents=*/ValueRange());
    generate.getBody().takeBody(pad.getRegion());
    return generate;
  }
  SmallVector<OpFoldResult> offsets, sizes, lows, highs;
  for (const Crop &crop : crops) {
    offsets.push_back(b.getIndexAttr(crop.offset));
    sizes.push_back(b.getIndexAttr(crop.size));
    lows.push_back(b.getIndexAttr(crop.low));
    highs.push_back(b.getIndexAttr(crop.high));
  }
  SmallVector<OpFoldResult> strides(crops.size(), b.getIndexAttr(1));
  Value slice = tensor::ExtractSliceOp::create(b, loc, pad.getSource(), offsets,
                                               sizes, strides);
  if (llvm::none_of(crops,
                    [](const Crop &crop) { return crop.low || crop.high; }))
    return slice;
  auto rest = tensor::PadOp::create(b, loc, pad.getResultType(), slice, lows,
                                    highs, pad.getNofold());
  rest.getRegion().takeBody(pad.getRegion());
  return rest;
}

/// What `pad` does to each dimension, if it takes something away. Computed
/// paddings are none of a step (`bsr-verify-step`).
static std::optional<SmallVector<Crop>> getCrops(tensor::PadOp pad) {
  SmallVector<Crop> crops;
  bool takesAway = false;
  for (auto [extent, lowPad, highPad] :
       llvm::zip_equal(pad.getSourceType().getShape(), pad.getMixedLowPad(),
                       pad.getMixedHighPad())) {
    std::optional<int64_t> low = getConstantIntValue(lowPad);
    std::optional<int64_t> high = getConstantIntValue(highPad);
    if (!low || !high || ShapedType::isDynamic(extent))
      return std::nullopt;
    takesAway |= *low < 0 || *high < 0;
    crops.push_back(getCrop(extent, *low, *high));
  }
  return takesAway ? std::optional(crops) : std::nullopt;
}

namespace {
struct CropPads : bsr::impl::BSRCropPadsBase<CropPads> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([&](tensor::PadOp pad) {
      std::optional<SmallVector<Crop>> crops = getCrops(pad);
      if (!crops)
        return;
      pad.replaceAllUsesWith(crop(pad, *crops));
      pad.erase();
      ++numCropped;
    });
  }
};
} // namespace
