// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers with a unit, as command lines have them.

#ifndef BSR_TOOLS_QUANTITY_H
#define BSR_TOOLS_QUANTITY_H

#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace tools {

/// What a number is a number of.
enum class Unit {
  Count,
  Bytes,
  BytesPerSecond,
  BytesPerCycle,
  Flops,
  Hertz,
  Seconds
};

/// The positive number that `text` is, such as `32GiB`, in `unit` without a
/// prefix; nothing if it is none, or has another unit or none.
std::optional<double> parseQuantity(llvm::StringRef text, Unit unit);

/// What `parseQuantity` takes: "a positive number with a unit, KiB, ... or GB".
std::string describeQuantity(Unit unit);

/// `bytes` in the largest of B, KiB, MiB and GiB that there is one of.
std::string formatBytes(double bytes);

} // namespace tools

#endif // BSR_TOOLS_QUANTITY_H
