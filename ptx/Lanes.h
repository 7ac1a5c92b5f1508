// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Handlers that compute lane by lane: an operation is a function object, and
// these templates make a handler of it.

#ifndef PTX_LANES_H
#define PTX_LANES_H

#include "Decoder.h"
#include "Machine.h"
#include "Rounding.h"

namespace ptx {

/// A lane's bits as a value, and back.
template <typename T, typename Storage>
inline T valueOf(Storage bits) {
  if constexpr (std::is_integral_v<T>) {
    return T(bits);
  } else {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
}
template <typename T>
inline auto storageOf(T value) {
  std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t> bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

/// d[i] = value(i) for each lane of `mask`. Of a whole warp the results are
/// written behind all: operands may be in the same register, and vectors need
/// to know nothing of that.
template <typename Storage, typename Value>
inline void setLanes(Storage *d, uint32_t mask, Value value) {
  if (mask != 0xffffffffu) {
    forLanes(mask, [&](unsigned i) { d[i] = Storage(value(i)); });
    return;
  }
  Storage results[32];
  for (unsigned i = 0; i < 32; ++i)
    results[i] = Storage(value(i));
  std::memcpy(d, results, sizeof(results));
}

template <typename T, typename F>
void unary(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  setLanes(d, mask,
           [&](unsigned i) { return storageOf<T>(F()(valueOf<T>(a[i]))); });
}

template <typename T, typename F>
void binary(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  const auto *b = warp.lanes<T>(insn.op[2]);
  setLanes(d, mask, [&](unsigned i) {
    return storageOf<T>(F()(valueOf<T>(a[i]), valueOf<T>(b[i])));
  });
}

template <typename T, typename F>
void ternary(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  const auto *b = warp.lanes<T>(insn.op[2]);
  const auto *c = warp.lanes<T>(insn.op[3]);
  setLanes(d, mask, [&](unsigned i) {
    return storageOf<T>(
        F()(valueOf<T>(a[i]), valueOf<T>(b[i]), valueOf<T>(c[i])));
  });
}

// Operands `d, a`, `d, a, b` and `d, a, b, c` of one type.
inline void operands(Decoder &d, Type type, unsigned sources) {
  d.expectOperands(sources + 1);
  d.insn.op[0] = d.define(size_t(0), type);
  for (unsigned i = 1; i <= sources; ++i)
    d.insn.op[i] = d.use(i, type);
}

[[noreturn]] inline void failType(const Decoder &d) {
  d.fail("expected a type of '", d.name, "', but got '", d.statement.opcode,
         "'");
}

// Handlers of the integer type.
#define PTX_INTEGER_HANDLER(name, wrapper)                                     \
  template <typename F>                                                        \
  Handler *name(const Decoder &d, Type type) {                                 \
    switch (type) {                                                            \
    case Type::B16:                                                            \
    case Type::U16:                                                            \
      return wrapper<uint16_t, F>;                                             \
    case Type::B32:                                                            \
    case Type::U32:                                                            \
      return wrapper<uint32_t, F>;                                             \
    case Type::B64:                                                            \
    case Type::U64:                                                            \
      return wrapper<uint64_t, F>;                                             \
    case Type::S16:                                                            \
      return wrapper<int16_t, F>;                                              \
    case Type::S32:                                                            \
      return wrapper<int32_t, F>;                                              \
    case Type::S64:                                                            \
      return wrapper<int64_t, F>;                                              \
    default:                                                                   \
      failType(d);                                                             \
    }                                                                          \
  }
PTX_INTEGER_HANDLER(unaryInteger, unary)
PTX_INTEGER_HANDLER(binaryInteger, binary)
PTX_INTEGER_HANDLER(ternaryInteger, ternary)
#undef PTX_INTEGER_HANDLER

} // namespace ptx

#endif // PTX_LANES_H
