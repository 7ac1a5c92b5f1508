// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which version of PTX has an instruction. PTX ISA, "PTX ISA Notes" of the
// sections of their names, from version 6.3 on.

#include "Decoder.h"

using namespace ptx;

unsigned ptx::versionOf(std::string_view opcode) {
  struct Entry {
    std::string_view begin; ///< of the opcode
    unsigned version;
  };
  // The first one that fits counts.
  static constexpr Entry entries[] = {
      {"wgmma.", 80},
      {"setmaxnreg.", 80},
      {"cp.async.bulk", 80},
      {"cp.async.", 70},
      {"mbarrier.try_wait", 78},
      {"mbarrier.expect_tx", 80},
      {"mbarrier.arrive.expect_tx", 80},
      {"mbarrier.test_wait.parity", 71},
      {"mbarrier.", 70},
      {"barrier.cluster.", 78},
      {"mapa.", 78},
      {"getctarank.", 78},
      {"fence.proxy.async", 80},
      {"fence.mbarrier_init.", 80},
      {"elect.sync", 80},
      {"griddepcontrol.", 78},
      {"stmatrix.", 78},
      {"ldmatrix.", 65},
      {"redux.sync.", 70},
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16", 70},
      {"mma.sync.aligned.m16n8k8.row.col.f32.bf16", 70},
      {"mma.sync.aligned.m16n8k8.row.col.f32.tf32", 70},
      {"mma.sync.aligned.m16n8k16.", 70},
      {"mma.sync.aligned.m16n8k8.", 65},
      {"cvt.rn.bf16x2.f32", 70},
      {"cvt.rn.bf16.f32", 70},
      {"cvt.rn.f16x2.f32", 70},
  };
  for (const Entry &entry : entries)
    if (opcode.substr(0, entry.begin.size()) == entry.begin)
      return entry.version;
  return 0;
}
