// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels for processors are made for.

#include "bsr/Codegen/CPU/CPUTarget.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

cpu::CPUTarget::CPUTarget(CPUAttr attr)
    : lanes(attr.getVectorBits() / 32), count(attr.getNumRegisters()),
      firstCache(attr.getL1Bytes()), secondCache(attr.getL2Bytes()),
      hasPairDots(attr.getBf16Dots() != PairDots::None && lanes >= 4 &&
                  lanes <= 16),
      hasTiles(attr.getBf16Tiles() != TileProducts::None && lanes == 16 &&
               count >= 32) {}

CPUTarget cpu::getCPUTarget(Operation *op) {
  return CPUTarget(cast<CPUAttr>(getTarget(op)));
}

RankedTensorType cpu::getPanelType(RankedTensorType tensor, int64_t panel) {
  // A way of a first-level cache, and the quarter of it that a block may take.
  constexpr int64_t way = 4096, share = way / 4;
  ArrayRef<int64_t> shape = tensor.getShape();
  int64_t rows = shape[shape.size() - 2];
  int64_t rowBytes = panel * tensor.getElementTypeBitWidth() / 8;
  // One row more: what products read of a row, panel after panel, lies in all
  // sets of the cache, not in four of them.
  int64_t padding = share / rowBytes + 1;
  if (rows * rowBytes % way == 0 && rows >= 16 * padding)
    rows += padding;
  SmallVector<int64_t> result(shape.drop_back(2));
  result.append({shape.back() / panel, rows, panel});
  return tensor.clone(result);
}
