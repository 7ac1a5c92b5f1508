// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Counts.h"
#include <algorithm>
#include <sstream>

using namespace ptx;

static const char *const classNames[numClasses] = {
    "integer", "float",          "convert",    "compare", "move",
    "control", "load and store", "async copy", "matrix",  "warp",
    "barrier", "atomic",         "other"};

namespace {
struct Field {
  const char *name;
  uint64_t Counts::*value;
};
} // namespace
static const Field fields[] = {
    {"mma", &Counts::mma},
    {"wgmma", &Counts::wgmma},
    {"ldmatrix", &Counts::loadMatrix},
    {"cp.async", &Counts::asyncCopies},
    {"bulk copies", &Counts::bulkCopies},
    {"shared bytes of bulk copies", &Counts::bulkBytes},
    {"shared bytes of wgmma", &Counts::wgmmaBytes},
    {"barriers", &Counts::barriers},
    {"shared wavefronts", &Counts::sharedWavefronts},
    {"shared wavefronts without conflicts", &Counts::sharedIdeal},
    {"global requests", &Counts::globalRequests},
    {"global sectors", &Counts::globalSectors},
    {"global lines", &Counts::globalLines},
    {"global sectors past L1", &Counts::passedSectors},
    {"sectors of L2", &Counts::l2Sectors},
    {"thread blocks", &Counts::blocks}};

uint64_t Counts::total() const {
  uint64_t sum = 0;
  for (uint64_t count : instructions)
    sum += count;
  return sum;
}

void Counts::add(const Counts &other) {
  for (unsigned i = 0; i < numClasses; ++i)
    instructions[i] += other.instructions[i];
  auto addAll = [](auto &to, const auto &from) {
    std::transform(from.begin(), from.end(), to.begin(), to.begin(),
                   std::plus<uint64_t>());
  };
  addAll(units, other.units);
  addAll(mmaFlops, other.mmaFlops);
  addAll(wgmmaFlops, other.wgmmaFlops);
  for (const Field &field : fields)
    this->*field.value += other.*field.value;
  longestWarp = std::max(longestWarp, other.longestWarp);
  buffers.resize(std::max(buffers.size(), other.buffers.size()));
  for (size_t i = 0; i < other.buffers.size(); ++i) {
    buffers[i].read += other.buffers[i].read;
    buffers[i].written += other.buffers[i].written;
  }
}

std::string Counts::text() const {
  std::ostringstream out;
  out << "warp instructions: " << total() << "\n";
  for (unsigned i = 0; i < numClasses; ++i)
    if (instructions[i])
      out << "  " << classNames[i] << ": " << instructions[i] << "\n";
  for (const Field &field : fields)
    if (this->*field.value)
      out << field.name << ": " << this->*field.value << "\n";
  auto write = [&](const char *what, const auto &names, const auto &values) {
    for (size_t i = 0; i < std::size(names); ++i)
      if (values[i])
        out << what << names[i] << ": " << values[i] << "\n";
  };
  static const char *const types[nvidia::numTensorTypes] = {"16 bits", "tf32"};
  write("FLOP of mma of ", types, mmaFlops);
  write("FLOP of wgmma of ", types, wgmmaFlops);
  static const char *const unitNames[nvidia::numUnits] = {
      "f32", "f64", "integers", "approximations"};
  write("instructions of ", unitNames, units);
  out << "longest warp: " << longestWarp << "\n";
  return out.str();
}
