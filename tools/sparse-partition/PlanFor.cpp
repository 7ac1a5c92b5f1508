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
  if (found == values.end())
    return isNeeded ? createStringError("expected --plan-for to have " + key +
                                        ", " + tools::describeQuantity(unit) +
                                        ", but got none")
                    : Error::success();
  std::optional<double> read = tools::parseQuantity(found->second, unit);
  if (!read)
    return createStringError("expected " + key + " of --plan-for to be " +
                             tools::describeQuantity(unit) + ", but got '" +
                             found->second + "'");
  value = *read;
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

Expected<Devices> bsr::readDevices(PlanFor &planFor, int64_t &samples,
                                   PlanShape &shape) {
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
  if (Error error = planFor.read("stages", false, shape.stages))
    return error;
  if (Error error = planFor.read("replicas", false, shape.replicas))
    return error;
  if (Error error = planFor.read("micro-batches", false, shape.microBatches))
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
