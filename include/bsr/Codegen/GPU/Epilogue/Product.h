// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that are launches of their own.

#ifndef BSR_CODEGEN_GPU_EPILOGUE_PRODUCT_H
#define BSR_CODEGEN_GPU_EPILOGUE_PRODUCT_H

#include "bsr/Codegen/GPU/Epilogue/Epilogue.h"

namespace mlir::bsr::gpu {

/// The kernel of a product, and what it does with its sums. Each kind of kernel
/// is a class with a static function `match`, which `matchFirst` calls.
class Product {
public:
  virtual ~Product() = default;

  /// The plan of its pattern that its launches follow, if they follow one.
  virtual std::optional<PatternPlan> getPlan() { return std::nullopt; }
  /// The memory that its launches need, that of the epilogue included.
  virtual SmallVector<MemRefType> getScratch() = 0;
  /// Failure, which was reported, if something could not be emitted.
  virtual LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                             ValueRange scratch) = 0;
  /// Its result, if its sums can go through an epilogue.
  virtual std::optional<ResultSpace> getSpace() { return std::nullopt; }
  /// True if its result may be a part of a buffer whose rows, along the last
  /// dimension, are as long.
  virtual bool acceptsPieces() { return false; }
  /// True if its epilogue may write results over what it reads at the same
  /// indices: nothing else reads there.
  virtual bool acceptsUpdates() { return false; }
  /// In words, what the model chose for a thread block; "" if there was no
  /// choice.
  virtual std::string describeTile() const { return {}; }

  std::optional<Epilogue> epilogue;
};

/// The product of `operands`, which all `Kinds` describe alike, as the first of
/// them that takes it for `target`; null if none does.
template <typename... Kinds, typename Operands>
std::unique_ptr<Product> matchFirst(const Operands &operands, GPUAttr target) {
  std::unique_ptr<Product> found;
  auto isKind = [&](auto product) {
    using Kind = typename decltype(product)::value_type;
    if (product)
      found = std::make_unique<Kind>(std::move(*product));
    return found != nullptr;
  };
  (void)(isKind(Kinds::match(operands, target)) || ...);
  return found;
}

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_EPILOGUE_PRODUCT_H
