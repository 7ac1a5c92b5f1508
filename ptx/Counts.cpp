// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Counts.h"
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
    {"global sectors past L1", &Counts::passedSectors}};

uint64_t Counts::total() const {
  uint64_t sum = 0;
  for (uint64_t count : instructions)
    sum += count;
  return sum;
}

void Counts::add(const Counts &other) {
  for (unsigned i = 0; i < numClasses; ++i)
    instructions[i] += other.instructions[i];
  for (const Field &field : fields)
    this->*field.value += other.*field.value;
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
  return out.str();
}
