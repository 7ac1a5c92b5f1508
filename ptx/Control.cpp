// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Branches, ends, and what changes nothing here.

#include "Lanes.h"

using namespace ptx;

static void nothing(Warp &, const Insn &, uint32_t) {}

static void trap(Warp &warp, const Insn &insn, uint32_t mask) {
  warp.fail(insn, unsigned(__builtin_ctz(mask)),
            "expected a kernel that ends by itself, but got a trap");
}

/// What the text only declares, such as printf, is of the driver.
static void callDriver(Warp &warp, const Insn &insn, uint32_t mask) {
  warp.fail(insn, unsigned(__builtin_ctz(mask)),
            "expected a function whose body the text has, but got a call of "
            "another one");
}

/// Lets the other lanes and warps run.
static void sleep(Warp &warp, const Insn &, uint32_t) {
  ++warp.block->cluster->version;
}

/// A prefetch needs an address, and nothing there.
static bool decodePrefetch(Decoder &d) {
  while (!d.takeAny().empty()) {
  }
  d.expectOperands(1);
  int64_t offset;
  d.address(d.operand(0), 0, Space::Global, offset);
  d.insn.kind = Class::LoadStore;
  d.insn.handler = nothing;
  return true;
}

bool ptx::decodeControl(Decoder &d) {
  std::string_view name = d.name;
  if (name == "bra") {
    d.take("uni");
    d.expectOperands(1);
    if (d.operand(0).kind != Operand::Name)
      d.fail("expected a label, but got another operand of '",
             d.statement.opcode, "'");
    d.builder.jump(d.operand(0).name, d.statement.line);
    d.insn.flags |= Branches;
    d.insn.kind = Class::Control;
    return true;
  }
  if (name == "brx") {
    d.expect("idx");
    d.take("uni");
    d.expectOperands(2);
    d.insn.op[0] = d.use(size_t(0), Type::U32);
    const auto *labels = d.builder.targets(d.operand(1).name);
    if (!labels)
      d.fail("expected a list of targets, but got '", d.operand(1).name, "'");
    for (size_t i = 0; i < labels->size(); ++i) {
      d.builder.jump((*labels)[i], d.statement.line, int(i));
      d.list(0);
    }
    d.insn.flags |= Branches;
    d.insn.kind = Class::Control;
    return true;
  }
  if (name == "ret" || name == "exit") {
    d.take("uni");
    d.expectOperands(0);
    d.insn.flags |= Exits;
    d.insn.kind = Class::Control;
    return true;
  }
  if (name == "trap" || name == "brkpt") {
    d.expectOperands(0);
    d.insn.kind = Class::Control;
    d.insn.handler = trap;
    return true;
  }
  if (name == "call") {
    d.insn.kind = Class::Control;
    d.insn.handler = callDriver;
    return true;
  }
  if (name == "prefetch" || name == "prefetchu")
    return decodePrefetch(d);
  if (name == "griddepcontrol") {
    d.require(90);
    if (d.choose({"launch_dependents", "wait"}) < 0)
      d.fail("expected '.wait' or '.launch_dependents', but got '",
             d.statement.opcode, "'");
    d.expectOperands(0);
    d.insn.handler = nothing;
    return true;
  }
  if (name == "nanosleep") {
    d.expect("u32");
    d.expectOperands(1);
    d.use(size_t(0), Type::U32);
    d.insn.flags |= MayWait;
    d.insn.handler = sleep;
    return true;
  }
  return false;
}
