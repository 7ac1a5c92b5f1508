// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what --plan-for says of machines.

#include "PlanFor.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

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

static std::string list(ArrayRef<std::string> names) {
  if (names.size() == 1)
    return names.front();
  return llvm::join(names.drop_back(), ", ") + " or " + names.back();
}

Error PlanFor::parse() {
  SmallVector<StringRef> parts;
  StringRef(text).split(parts, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    auto [key, value] = part.split('=');
    if (key.empty() || value.empty())
      return createStringError("expected --plan-for to be keys with values, "
                               "such as devices=4, but got '" +
                               part + "'");
    if (!values.try_emplace(key, value.str()).second)
      return createStringError("expected --plan-for to have " + key +
                               " once, but got it twice");
  }
  return Error::success();
}

Error PlanFor::read(StringRef key, Unit unit, bool isNeeded, double &value) {
  known.push_back(key.str());
  auto found = values.find(key);
  std::string described = "a positive number";
  ArrayRef<Suffix> suffixes = getSuffixes(unit);
  if (!suffixes.empty()) {
    auto names = llvm::map_to_vector(
        suffixes, [](const Suffix &suffix) { return suffix.name.str(); });
    described += " with a unit, " + list(names);
  }
  if (found == values.end())
    return isNeeded ? createStringError("expected --plan-for to have " + key +
                                        ", " + described + ", but got none")
                    : Error::success();
  StringRef rest = found->second;
  StringRef number =
      rest.take_while([](char c) { return llvm::isDigit(c) || c == '.'; });
  rest = rest.drop_front(number.size());
  double factor = suffixes.empty() && rest.empty() ? 1 : 0;
  for (const Suffix &suffix : suffixes)
    if (suffix.name == rest)
      factor = suffix.factor;
  double amount = 0;
  if (number.getAsDouble(amount) || !(amount > 0) || !factor ||
      !(amount * factor < 1e30))
    return createStringError("expected " + key + " of --plan-for to be " +
                             described + ", but got '" + found->second + "'");
  value = amount * factor;
  values.erase(found);
  return Error::success();
}

Error PlanFor::read(StringRef key, bool isNeeded, int64_t &value) {
  constexpr int64_t most = 65535; // what a plan can number
  auto found = values.find(key);
  std::string text = found == values.end() ? "" : found->second;
  double number = 0;
  if (Error error = read(key, Unit::Count, isNeeded, number))
    return error;
  if (text.empty())
    return Error::success();
  if (number != double(int64_t(number)) || number > most)
    return createStringError("expected " + key +
                             " of --plan-for to be a whole number from 1 to " +
                             Twine(most) + ", but got '" + text + "'");
  value = int64_t(number);
  return Error::success();
}

Error PlanFor::readShape(StringRef key, int64_t &rows, int64_t &cols) {
  known.push_back(key.str());
  auto found = values.find(key);
  std::string text = found == values.end() ? "" : found->second;
  auto [first, second] = StringRef(text).split('x');
  if (first.getAsInteger(10, rows) || second.getAsInteger(10, cols) ||
      rows < 1 || cols < 1 || rows > 65535 || cols > 65535)
    return createStringError(
        "expected " + key +
        " of --plan-for to be outputs by inputs, such as 4x16, but got " +
        (text.empty() ? "none" : "'" + text + "'"));
  values.erase(found);
  return Error::success();
}

Error PlanFor::finish() const {
  if (values.empty())
    return Error::success();
  SmallVector<std::string> left;
  for (const auto &value : values)
    left.push_back(value.getKey().str());
  llvm::sort(left);
  return createStringError("expected the keys of --plan-for to be of " +
                           list(known) + ", but got '" + left.front() + "'");
}

Expected<Devices> bsr::readDevices(PlanFor &planFor, int64_t &samples) {
  Devices devices;
  devices.batch = 0;
  if (Error error = planFor.read("devices", true, devices.count))
    return error;
  if (Error error = planFor.read("memory", Unit::Bytes, true, devices.memory))
    return error;
  if (Error error = planFor.read("flops", Unit::Flops, true, devices.flops))
    return error;
  if (Error error = planFor.read("bandwidth", Unit::BytesPerSecond, true,
                                 devices.bandwidth))
    return error;
  if (Error error =
          planFor.read("latency", Unit::Seconds, false, devices.latency))
    return error;
  if (Error error = planFor.read("memory-bandwidth", Unit::BytesPerSecond,
                                 false, devices.memoryBandwidth))
    return error;
  if (Error error = planFor.read("batch", false, devices.batch))
    return error;
  if (Error error = planFor.read("samples", false, samples))
    return error;
  if (Error error = planFor.finish())
    return error;
  return devices;
}

Expected<Cores> bsr::readCores(PlanFor &planFor, double &clock) {
  Cores cores;
  if (Error error = planFor.read("cores", true, cores.count))
    return error;
  if (Error error = planFor.read("memory", Unit::Bytes, true, cores.memory))
    return error;
  if (Error error =
          planFor.read("exchange", Unit::BytesPerCycle, true, cores.exchange))
    return error;
  if (Error error = planFor.read("clock", Unit::Hertz, true, clock))
    return error;
  if (Error error =
          planFor.readShape("macs", cores.unitOutputs, cores.unitInputs))
    return error;
  if (Error error = planFor.read("vector-macs", false, cores.vector))
    return error;
  if (Error error = planFor.finish())
    return error;
  return cores;
}
