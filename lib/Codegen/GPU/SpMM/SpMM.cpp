// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of bsr.spmm: by warpgroups, where the model finds that faster, or by
// warps, on tensor cores or on lanes.

#include "bsr/Codegen/GPU/SpMM/SpMM.h"
#include "AsyncCopyMainloop.h"
#include "SpMMKernel.h"
#include "TensorCopyMainloop.h"
#include "WarpgroupMainloop.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

namespace {
/// A product by warps, each of which owns lines and tokens. Tensor cores
/// multiply 16-bit elements in blocks of 4 to 64 rows and columns, or, rounded
/// to `tf32`, f32 in blocks of 16 to 64; lanes multiply and add the terms of
/// what is left one by one, in f32.
class TiledSpMM : public SpMMKernel {
public:
  /// The product of `operands`, if it is one that `target` runs here, on tensor
  /// cores or else on lanes.
  static std::optional<TiledSpMM> match(const BlockProduct &operands,
                                        GPUAttr target);
  static std::optional<TiledSpMM> match(const BlockProduct &operands,
                                        GPUAttr target, bool isOnTensorCores);

  std::string describeTile() const override { return tile.describe(shape); }

private:
  std::unique_ptr<SpMMMainloop> createMainloop(const SpMMContext &product,
                                               BlockBuilder &b) const override;

  SpMMTile tile;
};

/// A product that takes less time with `wgmma` and tensor copies, as the model
/// has it.
class WarpgroupSpMM : public SpMMKernel {
public:
  /// The product of `operands`, if it is one that `target` runs here.
  static std::optional<WarpgroupSpMM> match(const BlockProduct &operands,
                                            GPUAttr target);

  std::string describeTile() const override { return tile.describe(shape); }

private:
  std::unique_ptr<SpMMMainloop> createMainloop(const SpMMContext &product,
                                               BlockBuilder &b) const override {
    return std::make_unique<WarpgroupMainloop>(product, tile, b);
  }

  WarpgroupTile tile;
};
} // namespace

std::optional<TiledSpMM> TiledSpMM::match(const BlockProduct &operands,
                                          GPUAttr target,
                                          bool isOnTensorCores) {
  TiledSpMM product;
  bool fits = isOnTensorCores ? operands.fitsFragments(target.getTf32())
                              : operands.fitsLanes();
  if (!fits || !product.setShape(operands, isOnTensorCores))
    return std::nullopt;
  int64_t shareOutputs =
      isOnTensorCores ? std::min(target.getShareOutputs(), mostShares) : 0;
  auto tile = SpMMTile::choose(product.shape, *findChip(target.getChip()),
                               target.getTileOutputs(), target.getTileTokens(),
                               shareOutputs);
  if (!tile)
    return std::nullopt;
  product.tile = *tile;
  product.setTile(*tile, target);
  return product;
}

std::optional<TiledSpMM> TiledSpMM::match(const BlockProduct &operands,
                                          GPUAttr target) {
  auto product = match(operands, target, /*isOnTensorCores=*/true);
  return product ? product : match(operands, target, /*isOnTensorCores=*/false);
}

std::unique_ptr<SpMMMainloop>
TiledSpMM::createMainloop(const SpMMContext &product, BlockBuilder &b) const {
  if (tile.shareOutputs != 0)
    return std::make_unique<TensorCopyMainloop>(product, tile, b);
  return std::make_unique<AsyncCopyMainloop>(product, tile, b);
}

std::optional<WarpgroupSpMM> WarpgroupSpMM::match(const BlockProduct &operands,
                                                  GPUAttr target) {
  const Chip &chip = *findChip(target.getChip());
  bool isGiven = target.getShareTokens() != 0;
  WarpgroupSpMM product;
  // A tile that is given otherwise is one of warps.
  if ((isTileGiven(target) && !isGiven) ||
      !operands.fitsFragments(/*tf32=*/false) ||
      !product.setShape(operands, /*isOnTensorCores=*/true))
    return std::nullopt;
  const SpMMShape &shape = product.shape;
  auto tile = WarpgroupTile::choose(
      shape, chip, target.getTileOutputs(), target.getTileTokens(),
      std::min(target.getShareOutputs(), mostShares), target.getShareTokens());
  if (!tile)
    return std::nullopt;
  auto warps = SpMMTile::choose(shape, chip, /*outputs=*/0, /*tokens=*/0,
                                /*shareOutputs=*/0);
  if (!isGiven && warps &&
      bound(warps->getWork(shape), chip).seconds <=
          bound(tile->getWork(shape), chip).seconds)
    return std::nullopt;
  product.tile = *tile;
  product.setTile(*tile, target);
  return product;
}

std::unique_ptr<Product> bsr::gpu::matchSpMM(Operation *root, GPUAttr target) {
  auto product = BlockProduct::match(root);
  if (!product)
    return nullptr;
  return matchFirst<WarpgroupSpMM, TiledSpMM>(*product, target);
}

bool bsr::gpu::lacksTile(Operation *root, GPUAttr target) {
  auto product = BlockProduct::match(root);
  return isa<SpMMOp>(root) && product &&
         product->fitsFragments(target.getTf32()) &&
         SpMMShape::get(*product, /*isOnTensorCores=*/true) &&
         !WarpgroupSpMM::match(*product, target) &&
         !TiledSpMM::match(*product, target, /*isOnTensorCores=*/true);
}
