// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and prints numbers with a unit.

#include "Quantity.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FormatVariadic.h"

using llvm::ArrayRef;
using llvm::StringRef;
using tools::Unit;

namespace {
struct Suffix {
  StringRef name;
  double factor;
};
} // namespace

static ArrayRef<Suffix> getSuffixes(Unit unit) {
  static constexpr double kibi = 1024;
  static constexpr Suffix bytes[] = {
      {"KiB", kibi}, {"MiB", kibi * kibi}, {"GiB", kibi * kibi * kibi},
      {"kB", 1e3},   {"MB", 1e6},          {"GB", 1e9}};
  static constexpr Suffix rates[] = {
      {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}};
  static constexpr Suffix cycles[] = {{"B/cycle", 1}};
  static constexpr Suffix hertz[] = {{"MHz", 1e6}, {"GHz", 1e9}};
  static constexpr Suffix flops[] = {
      {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
  static constexpr Suffix seconds[] = {
      {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}};
  switch (unit) {
  case Unit::Count:
    return {};
  case Unit::Bytes:
    return bytes;
  case Unit::BytesPerSecond:
    return rates;
  case Unit::BytesPerCycle:
    return cycles;
  case Unit::Hertz:
    return hertz;
  case Unit::Flops:
    return flops;
  case Unit::Seconds:
    return seconds;
  }
  llvm_unreachable("all units are above");
}

std::optional<double> tools::parseQuantity(StringRef text, Unit unit) {
  StringRef number =
      text.take_while([](char c) { return llvm::isDigit(c) || c == '.'; });
  StringRef rest = text.drop_front(number.size());
  ArrayRef<Suffix> suffixes = getSuffixes(unit);
  double factor = suffixes.empty() && rest.empty() ? 1 : 0;
  for (const Suffix &suffix : suffixes)
    if (suffix.name == rest)
      factor = suffix.factor;
  double amount = 0;
  if (number.getAsDouble(amount) || !(amount > 0) || !factor ||
      !(amount * factor < 1e30))
    return std::nullopt;
  return amount * factor;
}

std::string tools::describeQuantity(Unit unit) {
  std::string described = "a positive number";
  ArrayRef<Suffix> suffixes = getSuffixes(unit);
  if (suffixes.empty())
    return described;
  described += " with a unit, ";
  for (auto [i, suffix] : llvm::enumerate(suffixes)) {
    if (i)
      described += i + 1 == suffixes.size() ? " or " : ", ";
    described += suffix.name;
  }
  return described;
}

std::string tools::formatBytes(double bytes) {
  unsigned unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit)
    bytes /= 1024;
  constexpr StringRef units[] = {"B", "KiB", "MiB", "GiB"};
  return llvm::formatv("{0:f2} {1}", bytes, units[unit]);
}
