// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NumPy's files of an array, .npy.

#ifndef BSR_SUPPORT_NUMPYARRAY_H
#define BSR_SUPPORT_NUMPYARRAY_H

#include "ElementType.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparse_opt {

/// An array of numbers.
struct NumpyArray {
  ElementType type;
  std::vector<int64_t> shape;
  std::string data; // row-major, little-endian
};

/// Parses a file of NumPy's `npy` format, version 1 to 3, in `contents`, which
/// `where` names in errors: an array of a type that steps know, in C order.
NumpyArray parseNpy(std::string_view contents, const std::string &where);

} // namespace sparse_opt

#endif // BSR_SUPPORT_NUMPYARRAY_H
