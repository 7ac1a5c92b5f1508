// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes with what is known of the registers of a warp.

#include "WarpValues.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace llvm;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;
using namespace mlir::bsr::ptx;

/// What sets the upper bits of a number of type `type`, such as `s32`.
static Extension getExtension(StringRef type) {
  unsigned bits = getBits(type);
  return {bits == 0 ? 64 : std::min(bits, 64u), type.starts_with("s")};
}

using Inputs = std::array<uint64_t, 3>;
using Function = uint64_t (*)(const Inputs &, const Computation &);

/// How comparison `name` is computed, or null.
static Function getComparison(StringRef name) {
  return StringSwitch<Function>(name)
      .Case("eq", [](auto &in, auto &) { return uint64_t(in[0] == in[1]); })
      .Case("ne", [](auto &in, auto &) { return uint64_t(in[0] != in[1]); })
      .Cases({"lt", "lo"},
             [](auto &in, auto &c) { return uint64_t(c.isLess(in[0], in[1])); })
      .Cases({"gt", "hi"},
             [](auto &in, auto &c) { return uint64_t(c.isLess(in[1], in[0])); })
      .Cases(
          {"le", "ls"},
          [](auto &in, auto &c) { return uint64_t(!c.isLess(in[1], in[0])); })
      .Cases(
          {"ge", "hs"},
          [](auto &in, auto &c) { return uint64_t(!c.isLess(in[0], in[1])); })
      .Default(nullptr);
}

static uint64_t copy(const Inputs &in, const Computation &) { return in[0]; }

static uint64_t multiplyHigh(const Inputs &in, const Computation &c) {
  if (c.from.isSigned)
    return uint64_t((__int128(int64_t(in[0])) * int64_t(in[1])) >>
                    c.from.bits) +
           in[2];
  return uint64_t((static_cast<unsigned __int128>(in[0]) * in[1]) >>
                  c.from.bits) +
         in[2];
}

static uint64_t shiftRight(const Inputs &in, const Computation &c) {
  auto by = uint32_t(in[1]);
  if (c.from.isSigned)
    return uint64_t(int64_t(in[0]) >> std::min(by, 63u));
  return by >= c.from.bits ? 0 : in[0] >> by;
}

/// As the interpreter of the tests divides by zero: all ones.
static uint64_t divide(const Inputs &in, const Computation &c) {
  if (in[1] == 0)
    return ~uint64_t(0);
  if (!c.from.isSigned)
    return in[0] / in[1];
  return in[1] == ~uint64_t(0) ? -in[0]
                               : uint64_t(int64_t(in[0]) / int64_t(in[1]));
}

static uint64_t extractBits(const Inputs &in, const Computation &) {
  auto from = uint8_t(in[1]);
  unsigned length = std::min<unsigned>(uint8_t(in[2]), 64);
  return from >= 64 ? 0 : in[0] >> from & maskTrailingOnes<uint64_t>(length);
}

/// Operands are extended with their sign, which is above the highest bit.
static uint64_t extractSigned(const Inputs &in, const Computation &) {
  unsigned from = std::min<unsigned>(uint8_t(in[1]), 63);
  unsigned length = std::min<unsigned>(uint8_t(in[2]), 64);
  auto number = uint64_t(int64_t(in[0]) >> from);
  return length == 0 ? 0 : uint64_t(llvm::SignExtend64(number, length));
}

static uint64_t getLarger(const Inputs &in, const Computation &c) {
  return c.isLess(in[0], in[1]) ? in[1] : in[0];
}

/// The larger one, or zero if that is negative.
static uint64_t getPositive(const Inputs &in, const Computation &c) {
  return std::max<int64_t>(int64_t(getLarger(in, c)), 0);
}

/// How `instruction` on integers, bits or predicates is computed, or null.
static Function getFunction(const Instruction &instruction) {
  bool isHigh = instruction.has("hi");
  // The third operand of mul is zero.
  return StringSwitch<Function>(instruction.name())
      .Cases({"mov", "cvta", "cvt"}, copy)
      .Case("add", [](auto &in, auto &) { return in[0] + in[1]; })
      .Case("sub", [](auto &in, auto &) { return in[0] - in[1]; })
      .Cases(
          {"mul", "mad"},
          isHigh ? multiplyHigh
                 : [](const Inputs &in,
                      const Computation &) { return in[0] * in[1] + in[2]; })
      .Case("and", [](auto &in, auto &) { return in[0] & in[1]; })
      .Case("or", [](auto &in, auto &) { return in[0] | in[1]; })
      .Case("xor", [](auto &in, auto &) { return in[0] ^ in[1]; })
      .Case("not", [](auto &in, auto &) { return ~in[0]; })
      .Case("neg", [](auto &in, auto &) { return -in[0]; })
      .Case("abs",
            [](auto &in, auto &) { return uint64_t(std::abs(int64_t(in[0]))); })
      .Case("shl",
            [](auto &in, auto &c) {
              return uint32_t(in[1]) >= c.from.bits ? 0
                                                    : in[0] << uint32_t(in[1]);
            })
      .Case("shr", shiftRight)
      .Case("min",
            [](auto &in, auto &c) {
              return c.isLess(in[1], in[0]) ? in[1] : in[0];
            })
      .Case("max", instruction.has("relu") ? getPositive : getLarger)
      .Case("div", divide)
      .Case("rem",
            [](auto &in, auto &c) { return in[0] - divide(in, c) * in[1]; })
      .Case("popc",
            [](auto &in, auto &) { return uint64_t(llvm::popcount(in[0])); })
      .Case("clz",
            [](auto &in, auto &c) {
              return uint64_t(llvm::countl_zero(in[0])) - (64 - c.from.bits);
            })
      .Case("brev",
            [](auto &in, auto &c) {
              return llvm::reverseBits(in[0]) >> (64 - c.from.bits);
            })
      .Case("bfe",
            instruction.type().starts_with("s") ? extractSigned : extractBits)
      .Default(nullptr);
}

Computation Computation::get(const Instruction &instruction) {
  Computation computation;
  StringRef name = instruction.name(), type = instruction.type();
  computation.from = computation.to = getExtension(type);
  computation.numOperands =
      instruction.operands.size() - instruction.numResults;
  bool isCompare = name == "setp";
  if (name == "selp") {
    computation.isSelect = computation.numOperands == 3;
    return computation;
  }
  if (instruction.numResults != 1 || computation.numOperands == 0 ||
      computation.numOperands > 3)
    return computation;
  // Floats are copied at most.
  if (type.contains('f') && name != "mov")
    return computation;
  if (name == "cvt") {
    SmallVector<StringRef> types;
    for (StringRef part : instruction.parts)
      if (getBits(part))
        types.push_back(part);
    if (types.size() != 2 || types[0].contains('f'))
      return computation;
    computation.to = getExtension(types[0]);
  } else if (instruction.has("wide")) {
    computation.to = {2 * computation.from.bits, computation.from.isSigned};
  }
  if (!isCompare) {
    // A vector is no copy.
    if (name != "mov" || computation.numOperands == 1)
      computation.function = getFunction(instruction);
    return computation;
  }
  // A comparison that is combined with a predicate has one more operand.
  if (computation.numOperands == 2)
    for (StringRef part : ArrayRef(instruction.parts).drop_front())
      if (Function function = getComparison(part))
        computation.function = function;
  computation.to = {1, false};
  return computation;
}

WarpValue Computation::evaluate(ArrayRef<const WarpValue *> operands) const {
  WarpValue value;
  if (isSelect) {
    const WarpValue &condition = *operands[2];
    for (unsigned lane = 0; lane != numLanes; ++lane) {
      const WarpValue &chosen = *operands[condition.lanes[lane] & 1 ? 0 : 1];
      value.known |= condition.known & chosen.known & Mask(1) << lane;
      value.lanes[lane] = chosen.lanes[lane];
    }
  } else if (function) {
    value.known = ~Mask(0);
    for (const WarpValue *operand : operands)
      value.known &= operand->known;
    for (unsigned lane = 0; value.known && lane != numLanes; ++lane) {
      Inputs in{};
      for (auto [index, operand] : llvm::enumerate(operands))
        // The summand of a wide product is wide.
        in[index] = (index == 2 ? to : from)(operand->lanes[lane]);
      value.lanes[lane] = to(function(in, *this));
    }
  }
  for (const WarpValue *operand : operands)
    value.isData |= operand->isData;
  return value;
}

Progress Progress::get(const WarpValue &now, const WarpValue &before,
                       const WarpValue &earlier, Mask alive) {
  Progress progress;
  Mask known = now.known & before.known & earlier.known & alive;
  progress.isLinear = known == alive || (now.known & alive) == 0;
  for (unsigned lane = 0; lane != numLanes; ++lane)
    if (known >> lane & 1) {
      progress.step[lane] = now.lanes[lane] - before.lanes[lane];
      progress.isLinear &=
          progress.step[lane] == before.lanes[lane] - earlier.lanes[lane];
    }
  return progress;
}

void Progress::advance(WarpValue &value, int64_t count) const {
  if (!isLinear) {
    value.known = 0;
    return;
  }
  for (auto [lane, by] : llvm::zip_equal(value.lanes, step))
    lane += by * static_cast<uint64_t>(count);
}

int64_t mlir::bsr::gpu::getUnchanged(const Instruction &setp, uint64_t x,
                                     uint64_t y, uint64_t dx, uint64_t dy) {
  constexpr int64_t always = std::numeric_limits<int64_t>::max();
  Extension extend = getExtension(setp.type());
  auto difference = int64_t(extend(x) - extend(y));
  auto step = int64_t(dx - dy);
  if (step == 0)
    return always;
  // The evaluation, counted from 1, at which the difference is zero or behind.
  bool isApproached = (difference < 0) == (step > 0) && difference != 0;
  int64_t size = std::abs(difference), by = std::abs(step);
  if (setp.has("eq") || setp.has("ne")) {
    if (difference == 0)
      return 0;
    return isApproached && size % by == 0 ? size / by - 1 : always;
  }
  // Zero counts with those above for lt and ge, else with those below.
  bool isZeroAbove =
      setp.has("lt") || setp.has("ge") || setp.has("lo") || setp.has("hs");
  bool isBelow = isZeroAbove ? difference < 0 : difference <= 0;
  if (isBelow != (step > 0))
    return always;
  // Below: until it is not; zero is the end only where it counts as above.
  bool isZeroEnd = isBelow == isZeroAbove;
  int64_t changed =
      isZeroEnd ? int64_t(llvm::divideCeil(uint64_t(size), uint64_t(by)))
                : size / by + 1;
  return changed - 1;
}
