// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that rank blocks and zero them.

#include "PatternKernels.h"
#include "KernelText.h"
#include <cstddef>

using namespace bsr;

namespace {
/// An element type: how `%value#` becomes the element at `%address` + OFFSET.
struct LoadedType {
  ElementType type;
  const char *load;
};

/// A norm: the magnitude of `%value#`, and how `%sum` takes `%next`.
struct Norm {
  const char *name, *magnitude, *add;
};
} // namespace

static const LoadedType loadedTypes[] = {
    {ElementType::F64, "ld.global.f64 %value#, [%address+OFFSET];\n"},
    {ElementType::F32, "ld.global.f32 %single, [%address+OFFSET];\n"
                       "cvt.f64.f32 %value#, %single;\n"},
    {ElementType::F16, "ld.global.b16 %half, [%address+OFFSET];\n"
                       "cvt.f32.f16 %single, %half;\n"
                       "cvt.f64.f32 %value#, %single;\n"},
    {ElementType::BF16, "ld.global.u16 %word, [%address+OFFSET];\n"
                        "shl.b32 %word, %word, 16;\n"
                        "mov.b32 %single, %word;\n"
                        "cvt.f64.f32 %value#, %single;\n"},
};

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

void bsr::replaceAll(std::string &text, std::string_view from,
                     const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

void bsr::replaceFields(std::string &text) {
#define BSR_FIELD(row, field)                                                  \
  replaceAll(text, "AT_" #field "]", std::to_string(offsetof(row, field)) + "]")
  BSR_FIELD(UpdateRow, values);
  BSR_FIELD(UpdateRow, rowPtr);
  BSR_FIELD(UpdateRow, colIdx);
  BSR_FIELD(UpdateRow, slot);
  BSR_FIELD(UpdateRow, colPtr);
  BSR_FIELD(UpdateRow, rowIdx);
  BSR_FIELD(UpdateRow, slotT);
  BSR_FIELD(UpdateRow, scores);
  BSR_FIELD(UpdateRow, norms);
  BSR_FIELD(UpdateRow, stored);
  BSR_FIELD(UpdateRow, kept);
  BSR_FIELD(UpdateRow, keptSlots);
  BSR_FIELD(UpdateRow, flags);
  BSR_FIELD(UpdateRow, marks);
  BSR_FIELD(UpdateRow, before);
  BSR_FIELD(UpdateRow, chosen);
  BSR_FIELD(UpdateRow, fresh);
  BSR_FIELD(UpdateRow, pruned);
  BSR_FIELD(UpdateRow, freed);
  BSR_FIELD(UpdateRow, result);
  BSR_FIELD(UpdateRow, elements);
  BSR_FIELD(UpdateRow, rows);
  BSR_FIELD(UpdateRow, cols);
  BSR_FIELD(UpdateRow, blocks);
  BSR_FIELD(UpdateRow, count);
  BSR_FIELD(UpdateRow, regrowth);
  BSR_FIELD(UpdateRow, returns);
  BSR_FIELD(UpdateRow, rounds);
  BSR_FIELD(UpdateResult, numPruned);
  BSR_FIELD(UpdateResult, numRegrown);
  BSR_FIELD(UpdateResult, nanBlock);
  BSR_FIELD(UpdateResult, nanScore);
#undef BSR_FIELD
}

/// `count` elements that are `normThreads` apart are loaded side by side, and
/// then added in their order.
static std::string addElements(const LoadedType &type, const Norm &norm,
                               int count) {
  std::string text;
  auto append = [&](const char *part, int i) {
    std::string made = part;
    replaceAll(made, "#", std::to_string(i));
    replaceAll(made, "OFFSET",
               std::to_string(i * int(normThreads) * bytesOf(type.type)));
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
static std::string makeNormKernel(const LoadedType &type, const Norm &norm) {
  std::string text = R"(
.visible .entry bsr_norm_NORM_TYPE(.param .u64 base, .param .u64 table)
{
  .reg .pred %isBlock, %isMany, %isMore, %takes;
  .reg .b16 %half;
  .reg .b32 %word, %thread, %block, %blocks, %elements, %slot, %left, %low, %high;
  .reg .b64 %base, %row, %address, %offset, %offsetOfThread;
  .reg .f32 %single;
  .reg .f64 %value0, %value1, %value2, %value3, %next, %sum;

  ld.param.u64 %base, [base];
  ld.param.u64 %row, [table];
  mov.u32 %word, %ctaid.y;
  mul.wide.u32 %offset, %word, ROW_BYTES;
  add.u64 %row, %row, %offset;
  mov.u32 %thread, %ctaid.x;
  mov.u32 %word, %tid.x;
  mad.lo.u32 %thread, %thread, 128, %word;
  shr.u32 %block, %thread, 3;
  and.b32 %thread, %thread, 7;
  ld.global.u32 %blocks, [%row+AT_blocks];
  ld.global.u32 %elements, [%row+AT_elements];
  setp.lt.u32 %isBlock, %block, %blocks;
  setp.gt.u32 %isMany, %elements, 1;
  mov.f64 %sum, 0d0000000000000000;
  @!%isBlock bra COMBINE;

  ld.global.u64 %address, [%row+AT_slot];
  add.u64 %address, %address, %base;
  mul.wide.u32 %offset, %block, 4;
  add.u64 %address, %address, %offset;
  ld.global.u32 %slot, [%address];
  ld.global.u64 %address, [%row+AT_values];
  add.u64 %address, %address, %base;
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
  @!%isBlock bra END;
  ld.global.u64 %address, [%row+AT_norms];
  add.u64 %address, %address, %base;
  mul.wide.u32 %offset, %block, 8;
  add.u64 %address, %address, %offset;
  st.global.f64 [%address], %sum;
  setp.nan.f64 %takes, %sum, %sum;
  @!%takes bra END;
  ld.global.u64 %address, [%row+AT_result];
  add.u64 %address, %address, %base;
  cvt.u64.u32 %offset, %block;
  red.global.min.u64 [%address+AT_nanBlock], %offset;
END:
  ret;
}
)";
  replaceAll(text, "ROW_BYTES", std::to_string(sizeof(UpdateRow)));
  replaceFields(text);
  replaceAll(text, "FOUR_ELEMENTS", addElements(type, norm, 4));
  replaceAll(text, "ONE_ELEMENT", addElements(type, norm, 1));
  replaceAll(text, "FOUR_BYTES",
             std::to_string(4 * int(normThreads) * bytesOf(type.type)));
  replaceAll(text, "ONE_BYTES",
             std::to_string(int(normThreads) * bytesOf(type.type)));
  replaceAll(text, "BYTES", std::to_string(bytesOf(type.type)));
  replaceAll(text, "NORM", norm.name);
  replaceAll(text, "TYPE", nameOf(type.type));
  return text;
}

/// Pieces of 16 bytes where slots are of as many, else of 2, go round threads.
static std::string makeFillKernel() {
  std::string text = R"(
.visible .entry bsr_fill_slots(.param .u64 base, .param .u64 table)
{
  .reg .pred %isMore, %isWide, %isHere, %isFresh, %isOdd;
  .reg .b16 %half;
  .reg .b32 %word, %thread, %low, %high, %lower, %upper;
  .reg .b64 %base, %row, %values, %slots, %count, %bytes, %first, %end, %piece,
            %pieces, %slot, %at, %size, %step, %address,
            %fresh;

  ld.param.u64 %base, [base];
  ld.param.u64 %row, [table];
  mov.u32 %word, %ctaid.y;
  mul.wide.u32 %address, %word, ROW_BYTES;
  add.u64 %row, %row, %address;
  ld.global.u64 %values, [%row+AT_values];
  add.u64 %values, %values, %base;
  ld.global.u64 %slots, [%row+AT_slots];
  add.u64 %slots, %slots, %base;
  ld.global.u64 %address, [%row+AT_count];
  add.u64 %address, %address, %base;
  ld.global.u64 %count, [%address];
  ld.global.u64 %address, [%row+AT_fresh];
  add.u64 %address, %address, %base;
  ld.global.u64 %fresh, [%address];
  ld.global.u32 %low, [%row+AT_bits];
  ld.global.u32 %high, [%row+AT_rest];
  ld.global.u64 %bytes, [%row+AT_bytes];
  ld.global.u64 %first, [%row+AT_first];
  ld.global.u64 %end, [%row+AT_end];
  and.b64 %size, %bytes, 15;
  setp.eq.u64 %isWide, %size, 0;
  selp.u64 %size, 16, 2, %isWide;
  div.u64 %pieces, %bytes, %size;
  mul.lo.u64 %count, %count, %pieces;
  mov.u32 %thread, %ctaid.x;
  mov.u32 %word, %tid.x;
  mad.lo.u32 %thread, %thread, 128, %word;
  cvt.u64.u32 %piece, %thread;
  mov.u32 %word, %nctaid.x;
  mul.wide.u32 %step, %word, 128;
  setp.ge.u64 %isMore, %piece, %count;
  @%isMore bra END;
NEXT:
  div.u64 %slot, %piece, %pieces;
  setp.lt.u64 %isFresh, %slot, %fresh;
  selp.b32 %lower, %low, 0, %isFresh;
  selp.b32 %upper, %high, 0, %isFresh;
  mul.lo.u64 %at, %slot, %pieces;
  sub.u64 %at, %piece, %at;
  cvt.u32.u64 %thread, %at;
  mul.lo.u64 %at, %at, %size;
  mad.lo.u64 %address, %slot, 4, %slots;
  ld.global.u32 %word, [%address];
  cvt.u64.u32 %slot, %word;
  setp.ge.u64 %isHere, %slot, %first;
  setp.lt.and.u64 %isHere, %slot, %end, %isHere;
  sub.u64 %slot, %slot, %first;
  mad.lo.u64 %address, %slot, %bytes, %values;
  add.u64 %address, %address, %at;
  @!%isHere bra HERE;
  @%isWide st.global.v4.b32 [%address], {%lower, %upper, %lower, %upper};
  and.b32 %word, %thread, 2;
  setp.ne.u32 %isOdd, %word, 0;
  selp.b32 %lower, %upper, %lower, %isOdd;
  and.b32 %word, %thread, 1;
  shl.b32 %word, %word, 4;
  shr.b32 %lower, %lower, %word;
  cvt.u16.u32 %half, %lower;
  @!%isWide st.global.b16 [%address], %half;
HERE:
  add.u64 %piece, %piece, %step;
  setp.lt.u64 %isMore, %piece, %count;
  @%isMore bra NEXT;
END:
  ret;
}
)";
  replaceAll(text, "ROW_BYTES", std::to_string(sizeof(FillRow)));
  replaceAll(text, "AT_values", std::to_string(offsetof(FillRow, values)));
  replaceAll(text, "AT_slots", std::to_string(offsetof(FillRow, slots)));
  replaceAll(text, "AT_count", std::to_string(offsetof(FillRow, count)));
  replaceAll(text, "AT_fresh", std::to_string(offsetof(FillRow, fresh)));
  replaceAll(text, "AT_bits", std::to_string(offsetof(FillRow, bits)));
  replaceAll(text, "AT_rest",
             std::to_string(offsetof(FillRow, bits) + sizeof(uint32_t)));
  replaceAll(text, "AT_bytes", std::to_string(offsetof(FillRow, bytes)));
  replaceAll(text, "AT_first", std::to_string(offsetof(FillRow, first)));
  replaceAll(text, "AT_end", std::to_string(offsetof(FillRow, end)));
  return text;
}

std::string bsr::normKernel(const std::string &norm, ElementType type) {
  return "bsr_norm_" + norm + "_" + nameOf(type);
}

std::string bsr::patternKernels() {
  std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n";
  text += makeFillKernel();
  for (const LoadedType &type : loadedTypes)
    for (const Norm &norm : norms)
      text += makeNormKernel(type, norm);
  text += updateKernels();
  return text;
}
