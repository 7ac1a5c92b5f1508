// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of updates. They are written here, not compiled with a step: what
// they do depends on the element type alone, and not on a program.

#include "UpdateKernels.h"

using namespace bsr;

namespace {
/// An element type: how `%value#` becomes the element at `%address` + OFFSET.
struct ElementType {
  bsr_type type;
  const char *name;
  int bytes;
  const char *load;
};

/// A norm: the magnitude of `%value#`, and how `%sum` takes `%next`.
struct Norm {
  const char *name, *magnitude, *add;
};
} // namespace

static const ElementType elementTypes[] = {
    {BSR_F64, "f64", 8, "ld.global.f64 %value#, [%address+OFFSET];\n"},
    {BSR_F32, "f32", 4,
     "ld.global.f32 %single, [%address+OFFSET];\n"
     "cvt.f64.f32 %value#, %single;\n"},
    {BSR_F16, "f16", 2,
     "ld.global.b16 %half, [%address+OFFSET];\n"
     "cvt.f32.f16 %single, %half;\n"
     "cvt.f64.f32 %value#, %single;\n"},
    {BSR_BF16, "bf16", 2,
     "ld.global.u16 %word, [%address+OFFSET];\n"
     "shl.b32 %word, %word, 16;\n"
     "mov.b32 %single, %word;\n"
     "cvt.f64.f32 %value#, %single;\n"},
};

// In the order of `bsr_norm`; the mean is a sum.
static const Norm norms[] = {
    {"sum", "abs.f64 %next, %value#;\n", "add.rn.f64 %sum, %sum, %next;\n"},
    // Of one element its magnitude, which orders alike.
    {"squares",
     "abs.f64 %next, %value#;\n"
     "@%isMany mul.rn.f64 %next, %value#, %value#;\n",
     "add.rn.f64 %sum, %sum, %next;\n"},
    // NaN, once there, stays.
    {"largest", "abs.f64 %next, %value#;\n",
     "setp.gt.f64 %takes, %next, %sum;\n"
     "setp.nan.or.f64 %takes, %next, %next, %takes;\n"
     "selp.f64 %sum, %next, %sum, %takes;\n"},
};

static const Norm &find(bsr_norm norm) {
  return norms[norm == BSR_MEAN ? BSR_L1 : norm];
}

static void replace(std::string &text, std::string_view from,
                    const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// `count` elements that are `normThreads` apart are loaded side by side, and
/// then added in their order.
static std::string addElements(const ElementType &type, const Norm &norm,
                               int count) {
  std::string text;
  auto append = [&](const char *part, int i) {
    std::string made = part;
    replace(made, "#", std::to_string(i));
    replace(made, "OFFSET", std::to_string(i * int(normThreads) * type.bytes));
    text += made;
  };
  for (int i = 0; i < count; ++i)
    append(type.load, i);
  for (int i = 0; i < count; ++i) {
    append(norm.magnitude, i);
    text += norm.add;
  }
  return text;
}

/// Thread t of the eight of a block has the elements i with i mod 8 = t, as
/// partial sum t of the host, and their sums are combined in the host's order.
/// Threads behind the last block have none: shuffles are of whole warps.
static std::string makeNormKernel(const ElementType &type, const Norm &norm) {
  std::string text = R"(
.visible .entry bsr_norm_NORM_TYPE(.param .u64 values, .param .u64 slots,
                                   .param .u64 norms, .param .u32 elements,
                                   .param .u32 blocks)
{
  .reg .pred %isBlock, %isMany, %isMore, %takes;
  .reg .b16 %half;
  .reg .b32 %word, %thread, %block, %blocks, %elements, %slot, %left, %low, %high;
  .reg .b64 %address, %offset, %offsetOfThread;
  .reg .f32 %single;
  .reg .f64 %value0, %value1, %value2, %value3, %next, %sum;

  mov.u32 %thread, %ctaid.x;
  mov.u32 %word, %tid.x;
  mad.lo.u32 %thread, %thread, 128, %word;
  shr.u32 %block, %thread, 3;
  and.b32 %thread, %thread, 7;
  ld.param.u32 %blocks, [blocks];
  ld.param.u32 %elements, [elements];
  setp.lt.u32 %isBlock, %block, %blocks;
  setp.gt.u32 %isMany, %elements, 1;
  mov.f64 %sum, 0d0000000000000000;
  @!%isBlock bra.uni COMBINE;

  ld.param.u64 %address, [slots];
  mul.wide.u32 %offset, %block, 4;
  add.u64 %address, %address, %offset;
  ld.global.u32 %slot, [%address];
  ld.param.u64 %address, [values];
  mul.wide.u32 %offset, %slot, %elements;
  cvt.u64.u32 %offsetOfThread, %thread;
  add.u64 %offset, %offset, %offsetOfThread;
  mad.lo.u64 %address, %offset, BYTES, %address;
  // How many elements are left, of which this thread has the first.
  sub.s32 %left, %elements, %thread;

FOUR:
  setp.gt.s32 %isMore, %left, 24;
  @!%isMore bra ONE;
FOUR_ELEMENTS
  add.u64 %address, %address, FOUR_BYTES;
  sub.s32 %left, %left, 32;
  bra FOUR;

ONE:
  setp.gt.s32 %isMore, %left, 0;
  @!%isMore bra COMBINE;
ONE_ELEMENT
  add.u64 %address, %address, ONE_BYTES;
  sub.s32 %left, %left, 8;
  bra ONE;

COMBINE:
  bar.warp.sync 0xffffffff;
)";
  for (int half = 1; half < int(normThreads); half *= 2) {
    const std::string distance = std::to_string(half);
    text += "  mov.b64 {%low, %high}, %sum;\n"
            "  shfl.sync.down.b32 %low, %low, " +
            distance +
            ", 31, 0xffffffff;\n"
            "  shfl.sync.down.b32 %high, %high, " +
            distance +
            ", 31, 0xffffffff;\n"
            "  mov.b64 %next, {%low, %high};\n";
    text += norm.add;
  }
  text += R"(
  setp.eq.and.u32 %isBlock, %thread, 0, %isBlock;
  @!%isBlock bra.uni END;
  ld.param.u64 %address, [norms];
  mul.wide.u32 %offset, %block, 8;
  add.u64 %address, %address, %offset;
  st.global.f64 [%address], %sum;
END:
  ret;
}
)";
  replace(text, "FOUR_ELEMENTS", addElements(type, norm, 4));
  replace(text, "ONE_ELEMENT", addElements(type, norm, 1));
  replace(text, "FOUR_BYTES",
          std::to_string(4 * int(normThreads) * type.bytes));
  replace(text, "ONE_BYTES", std::to_string(int(normThreads) * type.bytes));
  replace(text, "BYTES", std::to_string(type.bytes));
  replace(text, "NORM", norm.name);
  replace(text, "TYPE", type.name);
  return text;
}

std::string bsr::normKernel(bsr_norm norm, bsr_type type) {
  std::string name = "bsr_norm_" + std::string(find(norm).name) + "_";
  for (const ElementType &known : elementTypes)
    if (known.type == type)
      name += known.name;
  return name;
}

std::string bsr::updateKernels() {
  std::string text = R"(.version 7.0
.target sm_80
.address_size 64

.visible .entry bsr_zero_slots(.param .u64 values, .param .u64 slots,
                               .param .u32 bytes)
{
  .reg .pred %isMore, %isWide;
  .reg .b16 %zero;
  .reg .b32 %slot, %bytes, %at, %step, %word;
  .reg .b64 %values, %address, %offset;

  ld.param.u64 %address, [slots];
  mov.u32 %slot, %ctaid.x;
  mul.wide.u32 %offset, %slot, 4;
  add.u64 %address, %address, %offset;
  ld.global.u32 %slot, [%address];
  ld.param.u32 %bytes, [bytes];
  ld.param.u64 %values, [values];
  mul.wide.u32 %offset, %slot, %bytes;
  add.u64 %values, %values, %offset;
  mov.u16 %zero, 0;
  mov.u32 %word, 0;
  // 16 bytes a thread where slots are of as many, else 2.
  and.b32 %step, %bytes, 15;
  setp.eq.u32 %isWide, %step, 0;
  selp.u32 %step, 16, 2, %isWide;
  mov.u32 %at, %tid.x;
  mul.lo.u32 %at, %at, %step;
  mul.lo.u32 %step, %step, 128;
NEXT:
  setp.lt.u32 %isMore, %at, %bytes;
  @!%isMore bra END;
  cvt.u64.u32 %offset, %at;
  add.u64 %address, %values, %offset;
  @%isWide st.global.v4.b32 [%address], {%word, %word, %word, %word};
  @!%isWide st.global.b16 [%address], %zero;
  add.u32 %at, %at, %step;
  bra NEXT;
END:
  ret;
}
)";
  for (const ElementType &type : elementTypes)
    for (const Norm &norm : norms)
      text += makeNormKernel(type, norm);
  return text;
}
