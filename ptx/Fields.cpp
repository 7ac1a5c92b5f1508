// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fields and counts of bits. PTX ISA, "bfe", "bfi", "popc", "clz", "bfind",
// "brev".

#include "Lanes.h"
#include <algorithm>

using namespace ptx;

template <typename T>
static void extractField(Warp &warp, const Insn &insn, uint32_t mask) {
  using Unsigned = std::make_unsigned_t<T>;
  constexpr uint32_t width = 8 * sizeof(T);
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  const uint32_t *b = warp.lanes<uint32_t>(insn.op[2]),
                 *c = warp.lanes<uint32_t>(insn.op[3]);
  forLanes(mask, [&](unsigned i) {
    uint32_t at = b[i] & 255, length = c[i] & 255;
    Unsigned value = Unsigned(a[i]);
    bool negative = std::is_signed_v<T> && length &&
                    (value >> std::min(at + length - 1, width - 1) & 1);
    Unsigned field = at >= width ? 0 : Unsigned(value >> at);
    uint32_t kept = std::min(length, at >= width ? 0 : width - at);
    Unsigned low =
        kept >= width ? ~Unsigned(0) : Unsigned((Unsigned(1) << kept) - 1);
    d[i] = Unsigned((field & low) | (negative ? ~low : 0));
  });
}

template <typename T>
static void insertField(Warp &warp, const Insn &insn, uint32_t mask) {
  constexpr uint32_t width = 8 * sizeof(T);
  const uint32_t *slots = warp.list(insn);
  auto *d = warp.lanes<T>(slots[0]);
  const auto *a = warp.lanes<T>(slots[1]), *b = warp.lanes<T>(slots[2]);
  const uint32_t *c = warp.lanes<uint32_t>(slots[3]),
                 *e = warp.lanes<uint32_t>(slots[4]);
  forLanes(mask, [&](unsigned i) {
    uint32_t at = c[i] & 255,
             length = std::min(e[i] & 255, at >= width ? 0 : width - at);
    T low = length >= width ? ~T(0) : T((T(1) << length) - 1);
    T field = at >= width ? 0 : T(low << at);
    d[i] = T((b[i] & ~field) | (at >= width ? 0 : T(a[i] << at) & field));
  });
}

namespace {
struct Popc {
  template <typename T>
  uint32_t operator()(T a) const {
    return uint32_t(__builtin_popcountll(std::make_unsigned_t<T>(a)));
  }
};

struct Clz {
  template <typename T>
  uint32_t operator()(T a) const {
    return a ? uint32_t(__builtin_clzll(std::make_unsigned_t<T>(a))) -
                   (64 - 8 * sizeof(T))
             : 8 * sizeof(T);
  }
};

struct Bfind {
  template <typename T>
  uint32_t operator()(T a) const {
    using Unsigned = std::make_unsigned_t<T>;
    Unsigned value = Unsigned(std::is_signed_v<T> && a < 0 ? ~a : a);
    return value ? 63 - uint32_t(__builtin_clzll(value)) : 0xffffffffu;
  }
};

struct BfindShift {
  template <typename T>
  uint32_t operator()(T a) const {
    uint32_t found = Bfind()(a);
    return found == 0xffffffffu ? found : uint32_t(8 * sizeof(T) - 1) - found;
  }
};
} // namespace

/// d of 32 bits, a of type T.
template <typename T, typename F>
static void toWord(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  forLanes(mask, [&](unsigned i) { d[i] = F()(T(a[i])); });
}

namespace {
struct Brev {
  template <typename T>
  T operator()(T a) const {
    T result = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i)
      result = T(result | T(a >> i & 1) << (8 * sizeof(T) - 1 - i));
    return result;
  }
};
} // namespace

static bool decodeField(Decoder &d) {
  Type type = d.type();
  bool inserts = d.name == "bfi";
  if ((sizeOf(type) != 4 && sizeOf(type) != 8) || isFloat(type) ||
      inserts != isBits(type))
    failType(d);
  d.expectOperands(inserts ? 5 : 4);
  bool wide = sizeOf(type) == 8;
  if (inserts) {
    d.list(d.define(size_t(0), type));
    d.list(d.use(1, type));
    d.list(d.use(2, type));
    d.list(d.use(3, Type::U32));
    d.list(d.use(4, Type::U32));
    d.insn.handler = wide ? insertField<uint64_t> : insertField<uint32_t>;
    return true;
  }
  d.insn.op[0] = d.define(size_t(0), type);
  d.insn.op[1] = d.use(1, type);
  d.insn.op[2] = d.use(2, Type::U32);
  d.insn.op[3] = d.use(3, Type::U32);
  d.insn.handler =
      wide ? (isSigned(type) ? extractField<int64_t> : extractField<uint64_t>)
           : (isSigned(type) ? extractField<int32_t> : extractField<uint32_t>);
  return true;
}

template <typename F>
static bool decodeToWord(Decoder &d, bool whole) {
  Type type = d.type();
  if ((sizeOf(type) != 4 && sizeOf(type) != 8) || isFloat(type) ||
      isBits(type) == whole)
    failType(d);
  d.expectOperands(2);
  d.insn.op[0] = d.define(size_t(0), Type::U32);
  d.insn.op[1] = d.use(1, type);
  bool wide = sizeOf(type) == 8;
  d.insn.handler = isSigned(type)
                       ? (wide ? toWord<int64_t, F> : toWord<int32_t, F>)
                       : (wide ? toWord<uint64_t, F> : toWord<uint32_t, F>);
  return true;
}

bool ptx::decodeFields(Decoder &d) {
  d.insn.kind = Class::Integer;
  if (d.name == "bfe" || d.name == "bfi")
    return decodeField(d);
  if (d.name == "popc")
    return decodeToWord<Popc>(d, false);
  if (d.name == "clz")
    return decodeToWord<Clz>(d, false);
  if (d.name == "bfind")
    return d.take("shiftamt") ? decodeToWord<BfindShift>(d, true)
                              : decodeToWord<Bfind>(d, true);
  if (d.name == "brev") {
    Type type = d.type();
    if (!isBits(type) || sizeOf(type) < 4)
      failType(d);
    operands(d, type, 1);
    d.insn.handler =
        sizeOf(type) == 8 ? unary<uint64_t, Brev> : unary<uint32_t, Brev>;
    return true;
  }
  return false;
}
