// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Signs of floating-point numbers. PTX ISA, "neg", "abs", "copysign".

#include "Lanes.h"

using namespace ptx;

/// neg and abs change the sign, and with .ftz flush.
template <typename T, bool absolute>
static void sign(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  T bits = T(insn.imm);
  forLanes(mask, [&](unsigned i) {
    T value = T(a[i]);
    if (insn.aux && !(value & 0x7f800000))
      value &= T(0x80000000u);
    d[i] = T(absolute ? value & ~bits : value ^ bits);
  });
}

namespace {
/// The sign of the first source, the rest of the second.
struct CopySign {
  template <typename T>
  T operator()(T a, T b) const {
    constexpr T sign = T(1) << (8 * sizeof(T) - 1);
    return T((a & sign) | (b & ~sign));
  }
};
} // namespace

static bool decodeSign(Decoder &d) {
  d.insn.aux = d.take("ftz");
  Type type = d.type();
  if (!isFloat(type) || type == Type::TF32 || (d.insn.aux && type != Type::F32))
    failType(d);
  operands(d, type, 1);
  bool absolute = d.name == "abs";
  if (type == Type::F64) {
    d.insn.imm = INT64_MIN;
    d.insn.handler = absolute ? sign<uint64_t, true> : sign<uint64_t, false>;
  } else {
    d.insn.imm = type == Type::F32   ? 0x80000000
                 : sizeOf(type) == 4 ? 0x80008000
                                     : 0x8000;
    d.insn.handler = absolute ? sign<uint32_t, true> : sign<uint32_t, false>;
  }
  return true;
}

static bool decodeCopySign(Decoder &d) {
  d.insn.kind = Class::Float;
  Type type = d.type();
  if (type != Type::F32 && type != Type::F64)
    failType(d);
  operands(d, type, 2);
  d.insn.handler = type == Type::F64 ? binary<uint64_t, CopySign>
                                     : binary<uint32_t, CopySign>;
  return true;
}

bool ptx::decodeSigns(Decoder &d) {
  if (d.name == "copysign")
    return decodeCopySign(d);
  return (d.name == "neg" || d.name == "abs") && decodeSign(d);
}
