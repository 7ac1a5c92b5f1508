// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of two dense tensors, and how their loops are run.

#ifndef BSR_CODEGEN_CPU_CONTRACTIONS_H
#define BSR_CODEGEN_CPU_CONTRACTIONS_H

#include "bsr/Codegen/CPU/Kernels.h"

namespace mlir::bsr::cpu {

/// A product `c[m..., n...] += a[m..., k...] * b[n..., k...]`, with batch
/// dimensions in all three, and how its loops are run. With `dot`, lanes run
/// along `lanes`, one of k, and are summed up last; else along the last
/// dimension of c, which is one of operand number `vectors`, and elements of
/// the other operand are broadcast.
struct Contraction {
  /// How `op` is run as one, or nothing if no tile fits its maps. What is a
  /// product is upstream's to say (`isaContractionOpInterface`); here its body
  /// may be any sum of what is computed of the two.
  static std::optional<Contraction> match(linalg::GenericOp op);
  /// Takes vectors along columns instead of `dot`, if that is worth the
  /// transposition of squares of `size` elements.
  void transpose(int64_t size);

  bool isIn(unsigned operand, unsigned dim) const {
    return maps[operand].isFunctionOfDim(dim);
  }
  /// True if elements of `operand` along `dim` lie side by side.
  bool isLast(unsigned operand, unsigned dim) const;
  SmallVector<int64_t> getExtents(ArrayRef<unsigned> dims) const {
    return llvm::map_to_vector(dims, [&](unsigned dim) { return ranges[dim]; });
  }
  /// Points of the space of `dims`.
  int64_t getSize(ArrayRef<unsigned> dims) const {
    return llvm::product_of(getExtents(dims));
  }
  /// The type that elements of `operand` are multiplied in: wider than its own
  /// if the body widens them first.
  Type getFactorType(unsigned operand) const;
  /// True if the body adds up products of bf16 in f32, and does nothing else.
  bool isProductOfBF16() const;
  bool isWidened(unsigned operand) const {
    return getFactorType(operand) !=
           getElementTypeOrSelf(op->getOperand(operand).getType());
  }
  /// Where the result has its element for the point `at` of the loops.
  SmallVector<Index> getPlace(ArrayRef<Index> at) const {
    return applyMap(maps[2], at);
  }

  /// (Accessors of operations are not const.)
  mutable linalg::GenericOp op;
  Value init;
  SmallVector<AffineMap> maps;
  SmallVector<int64_t> ranges;
  bool dot = false;
  unsigned lanes = 0, vectors = 1;
  /// One of k that is last in operand `vectors` instead of the lanes.
  std::optional<unsigned> across;
  /// The dimensions that register tiles take several points of: `row` of m, and
  /// `col` of n where lanes are summed up.
  std::optional<unsigned> row, col;
  /// Loops outside of tiles: parallel ones, those inside of them that go on
  /// with what a tile of columns has loaded, and the reduced ones but `lanes`.
  SmallVector<unsigned> outer, inner, reduced;
};

/// Nested loops over `dims` of `contraction`, at the point `at` of the others.
void forPoints(Emitter &e, const Contraction &contraction,
               ArrayRef<unsigned> dims, ArrayRef<Index> at,
               llvm::function_ref<void(ArrayRef<Index>)> body);

/// The memory in which a product that is no `dot` packs all of its rows, which
/// then all work items read; nothing if they read rows where they lie, or pack
/// their own.
MemRefType getRowMemory(const Contraction &contraction, CPUTarget target);

/// Emits a product that is no `dot` into `output`, with `epilogue` on its sums.
/// `rowMemory` is that of `getRowMemory`, or null.
void emitBroadcastProduct(Emitter &e, const Contraction &contraction,
                          Value output, Epilogue epilogue, Value rowMemory);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_CONTRACTIONS_H
