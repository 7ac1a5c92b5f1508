// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which part of a multiprocessor an instruction occupies.

#include "Decoder.h"
#include <algorithm>
#include <charconv>

using namespace ptx;
using nvidia::TensorType;
using nvidia::Unit;

/// `mma`, `sync`, `aligned` of `mma.sync.aligned`.
static std::vector<std::string_view> split(std::string_view opcode) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= opcode.size();) {
    size_t end = std::min(opcode.find('.', begin), opcode.size());
    parts.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <typename Range>
static bool contains(const Range &range, std::string_view element) {
  return std::find(std::begin(range), std::end(range), element) !=
         std::end(range);
}

/// The unit that computes, or none for what only moves.
static uint8_t findUnit(const std::vector<std::string_view> &parts) {
  static constexpr std::string_view moves[] = {
      "mov",      "ld",       "st",      "bra",   "ret",  "exit",
      "bar",      "cp",       "mma",     "cvta",  "atom", "red",
      "ldmatrix", "stmatrix", "membar",  "fence", "shfl", "vote",
      "wgmma",    "mbarrier", "barrier", "mapa"};
  static constexpr std::string_view specials[] = {
      "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "div"};
  std::string_view name = parts.front();
  if (contains(moves, name))
    return nvidia::numUnits;
  std::optional<Type> type; // the last one
  for (std::string_view part : parts)
    if (auto named = typeNamed(part))
      type = named;
  bool isDouble = type == Type::F64;
  if (contains(specials, name) && (isDouble || type == Type::F32))
    return uint8_t(isDouble ? Unit::Double : Unit::Special);
  if (name == "cvt")
    return uint8_t(contains(parts, "f64") ? Unit::Special : Unit::Integer);
  return uint8_t(isDouble                 ? Unit::Double
                 : type && isFloat(*type) ? Unit::Float
                                          : Unit::Integer);
}

/// The product of the extents in `m16n8k16`, or 0.
static uint32_t readVolume(std::string_view shape) {
  uint32_t volume = 1;
  for (char letter : {'m', 'n', 'k'}) {
    uint32_t extent = 0;
    if (shape.empty() || shape.front() != letter)
      return 0;
    auto [end, error] =
        std::from_chars(shape.data() + 1, shape.data() + shape.size(), extent);
    if (error != std::errc())
      return 0;
    volume *= extent;
    shape.remove_prefix(size_t(end - shape.data()));
  }
  return volume;
}

void ptx::findResources(std::string_view opcode, Insn &insn) {
  std::vector<std::string_view> parts = split(opcode);
  insn.unit = findUnit(parts);
  if (parts.front() != "mma" && !contains(parts, "mma_async"))
    return;
  for (std::string_view part : parts)
    insn.flops = std::max(insn.flops, 2 * readVolume(part));
  // A warp has a quarter of a product of a warpgroup.
  if (parts.front() == "wgmma")
    insn.flops /= 4;
  insn.tensorType =
      uint8_t(contains(parts, "tf32") ? TensorType::TF32 : TensorType::Half);
}
