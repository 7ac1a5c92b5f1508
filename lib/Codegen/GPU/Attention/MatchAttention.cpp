// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the kernel of an attention, or of its gradient.

#include "bsr/Codegen/GPU/Attention/MatchAttention.h"
#include "AttentionKernels.h"
#include "bsr/Dialect/Attention.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::unique_ptr<Product> bsr::gpu::matchAttention(Operation *root,
                                                  GPUAttr target) {
  // Launches know of no keys that heads share, no factor and no trained bias.
  std::optional<Attention> attention = getAttention(root);
  if (!attention || !attention->isPlain())
    return nullptr;
  auto operands = AttentionOperands::match(*attention);
  if (!operands)
    return nullptr;
  return operands->dy ? matchGradient(*operands, target)
                      : matchForward(*operands, target);
}
