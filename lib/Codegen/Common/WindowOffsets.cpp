// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where kernels find the elements of windows.

#include "bsr/Codegen/Common/WindowOffsets.h"

using namespace mlir;
using namespace mlir::bsr;

Index bsr::addOffset(IndexBuilder &b, const Offsets &offsets, Index place,
                     Index element) {
  element = element.plus(offsets.first);
  for (const Offsets::Digit &digit : llvm::reverse(offsets.digits)) {
    Index own = place;
    if (&digit != &offsets.digits.front())
      std::tie(place, own) = b.split(place, digit.extent);
    element = b.multiplyAdd(own, digit.step, element);
  }
  return element;
}
