// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers what processes hold.

#include "Memory.h"
#include "Host.h"

#include <cstdio>

using namespace sparse_opt;
using namespace sparse_opt::train;

Memory train::measureMemory(const Session &session, const Ranks &ranks) {
  Memory memory;
  int64_t own = 0;
  for (const Buffer &buffer : session.buffers()) {
    if (!buffer.carried || buffer.role != "state")
      continue;
    own += buffer.elements * bsr_type_bytes(buffer.type);
    memory.wholeState += buffer.wholeElements * bsr_type_bytes(buffer.type);
  }
  memory.state = ranks.gather(own);
  memory.session = ranks.gather(session.counters().bytes);
  memory.peak = ranks.gather(peakMemory());
  return memory;
}

std::string train::describe(const Memory &memory) {
  std::string line = "memory of each process:";
  for (size_t rank = 0; rank < memory.state.size(); ++rank) {
    char text[96];
    std::snprintf(
        text, sizeof text, "%s %.1f MiB of state, %.1f in all, at most %.0f",
        rank ? ";" : "", memory.state[rank] / 1048576.0,
        memory.session[rank] / 1048576.0, memory.peak[rank] / 1048576.0);
    line += text;
  }
  char text[64];
  std::snprintf(text, sizeof text, "; state in one: %.1f MiB\n",
                memory.wholeState / 1048576.0);
  return line + text;
}
