// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies of boxes of a tensor to the shared memory of one or several thread
// blocks, which the tensor memory accelerator makes.

#ifndef BSR_CODEGEN_GPU_CORE_TENSORCOPIES_H
#define BSR_CODEGEN_GPU_CORE_TENSORCOPIES_H

#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/GPU/Core/TensorCores.h"

namespace mlir::bsr::gpu {

/// On the host: the tensor map for copies of boxes, `box[0]` rows of `box[1]`
/// elements, 32, 64 or 128 bytes, which are swizzled. Of `memref`, rows of
/// `columns` elements that follow each other.
Value createTensorMap(OpBuilder &b, Location loc, Value memref, int64_t columns,
                      std::array<int64_t, 2> box);

/// Copies the box of `map` from row `row` and element `column` on to shared
/// memory, zeros for what is not in the tensor; the mbarrier counts its bytes.
/// It goes to the same offset in the thread blocks of the cluster whose bits
/// are set in `blocks`, 32 bits, or, where it is null, to this one.
void copyBox(BlockBuilder &b, Value shared, Value map, Value row, Value column,
             Value barrier, Value blocks);

/// Activations that tensor copies bring: boxes of features and tokens.
struct ActivationBoxes {
  /// On the host: boxes of `box[0]` features and `box[1]` tokens of `operand`,
  /// an input of `kernel`, which is `x`.
  static ActivationBoxes create(OpBuilder &b, const KernelBody &kernel,
                                Value operand, const Activations &x,
                                std::array<int64_t, 2> box);

  /// Where a box begins.
  struct Begin {
    Value batch, feature, token;
  };
  /// Copies a box to `shared`, as `copyBox` does.
  void copy(BlockBuilder &b, Value shared, const Begin &from, Value barrier,
            Value blocks) const;

  /// The tensor map, a row of which is a feature in a batch.
  Value map;
  /// Of a batch.
  int64_t features = 0;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_TENSORCOPIES_H
