// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KernelWriter.h"
#include "KernelText.h"

using namespace bsr;

std::string bsr::ofBits(int bits, std::string part) {
  for (const char *name : {"%prefix", "%masked", "%mask", "%value"})
    for (const char *end : {",", ";"})
      replaceAll(part, std::string(name) + end,
                 name + std::to_string(bits) + end);
  return part;
}

std::string bsr::addUpLanes() {
  std::string text;
  for (int distance = 1; distance < 32; distance *= 2)
    text += "  shfl.sync.up.b32 %word|%isFrom, %until, " +
            std::to_string(distance) +
            ", 0, 0xffffffff;\n"
            "  @%isFrom add.u32 %until, %until, %word;\n";
  return text;
}

std::string KernelWriter::number(std::string part) {
  replaceAll(part, "#", std::to_string(parts++));
  return part;
}

void KernelWriter::add(std::string part) { text += number(std::move(part)); }

void KernelWriter::use(std::initializer_list<const char *> fields) {
  for (const std::string name : fields)
    add("  ld.global.u64 %" + name + ", [%row+AT_" + name +
        "];\n"
        "  add.u64 %" +
        name + ", %" + name + ", %base;\n");
}

void KernelWriter::forEachItem(const std::string &count,
                               const std::string &body) {
  add("  mov.u32 %i, %thread;\n"
      "  setp.ge.u32 %isBehind, %i, " +
      count +
      ";\n"
      "  @%isBehind bra ITEMS_END#;\n"
      "ITEM#:\n" +
      body +
      "  add.u32 %i, %i, 1024;\n"
      "  setp.lt.u32 %hasMore, %i, " +
      count +
      ";\n"
      "  @%hasMore bra ITEM#;\n"
      "ITEMS_END#:\n");
}

void KernelWriter::forEachBlock(const std::string &body) {
  add(R"(
  mov.u32 %line, %warp;
  setp.ge.u32 %isBehind, %line, %rows;
  @%isBehind bra LINES_END#;
LINE#:
  mad.wide.u32 %address, %line, 4, %rowPtr;
  ld.global.u32 %k, [%address];
  ld.global.u32 %last, [%address+4];
  add.u32 %k, %k, %lane;
  setp.ge.u32 %isBehind, %k, %last;
  @%isBehind bra NEXT_LINE#;
BLOCK#:
)" + body +
      R"(
  add.u32 %k, %k, 32;
  setp.lt.u32 %hasMoreBlocks, %k, %last;
  @%hasMoreBlocks bra BLOCK#;
NEXT_LINE#:
  add.u32 %line, %line, 32;
  setp.lt.u32 %hasMore, %line, %rows;
  @%hasMore bra LINE#;
LINES_END#:
)");
}

void KernelWriter::zero(const std::string &list, const std::string &count) {
  forEachItem(count, "  mad.wide.u32 %address, %i, 4, " + list +
                         ";\n"
                         "  st.global.u32 [%address], 0;\n");
}

void KernelWriter::select(const std::string &count, int bits,
                          const std::string &load) {
  std::string part = R"(
  mov.bBITS %prefix, 0;
  mov.bBITS %mask, 0;
  mov.u32 %below, 0;
  mov.u32 %shift, FIRST_SHIFT;
DIGIT#:
  // How many keys with the prefix have each digit.
  setp.ge.u32 %isBehind, %thread, 256;
  mov.u32 %bin, counts;
  mad.lo.u32 %bin, %thread, 4, %bin;
  @!%isBehind st.shared.u32 [%bin], 0;
  bar.sync 0;
  shl.b32 %first, %warp, 5;
  setp.ge.u32 %isBehind, %first, COUNT;
  @%isBehind bra COUNTED#;
KEYS#:
  add.u32 %i, %first, %lane;
  setp.lt.u32 %isIn, %i, COUNT;
  mov.bBITS %value, 0;
LOAD
  and.bBITS %masked, %value, %mask;
  setp.eq.and.bBITS %isIn, %masked, %prefix, %isIn;
  shr.uBITS %masked, %value, %shift;
  cvt.u32.uBITS %digit, %masked;
  and.b32 %digit, %digit, 255;
  // Of lanes with one digit the first counts all.
  selp.b32 %digit, %digit, 256, %isIn;
  match.any.sync.b32 %peers, %digit, 0xffffffff;
  and.b32 %word, %peers, %lower;
  setp.eq.and.b32 %isIn, %word, 0, %isIn;
  popc.b32 %word, %peers;
  mov.u32 %bin, counts;
  mad.lo.u32 %bin, %digit, 4, %bin;
  @%isIn red.shared.add.u32 [%bin], %word;
  add.u32 %first, %first, 1024;
  setp.lt.u32 %hasMore, %first, COUNT;
  @%hasMore bra KEYS#;
COUNTED#:
  bar.sync 0;
  setp.ne.u32 %isBehind, %warp, 0;
  @%isBehind bra FOUND#;
  // A lane has eight digits: the keys with those of the lanes in front, its own.
  mov.u32 %bin, counts;
  mad.lo.u32 %bin, %lane, 32, %bin;
  ld.shared.v4.u32 {%count0, %count1, %count2, %count3}, [%bin];
  ld.shared.v4.u32 {%count4, %count5, %count6, %count7}, [%bin+16];
  add.u32 %sum, %count0, %count1;
)";
  for (int i = 2; i < 8; ++i)
    part += "  add.u32 %sum, %sum, %count" + std::to_string(i) + ";\n";
  part += "  mov.u32 %until, %sum;\n";
  part += addUpLanes();
  part += R"(
  sub.u32 %sum, %until, %sum;
  sub.u32 %rank, %count, 1;
  sub.u32 %rank, %rank, %below;
  setp.le.u32 %isIn, %sum, %rank;
  setp.gt.and.u32 %isIn, %until, %rank, %isIn;
  shl.b32 %digit, %lane, 3;
  setp.eq.u32 %isLess, 0, 0;
)";
  for (int i = 0; i < 7; ++i)
    part += "  add.u32 %word, %sum, %count" + std::to_string(i) +
            ";\n"
            "  setp.le.and.u32 %isLess, %word, %rank, %isLess;\n"
            "  @%isLess mov.u32 %sum, %word;\n"
            "  @%isLess add.u32 %digit, %digit, 1;\n";
  part += R"(
  mov.u32 %bin, found;
  @%isIn st.shared.v2.u32 [%bin], {%digit, %sum};
FOUND#:
  bar.sync 0;
  mov.u32 %bin, found;
  ld.shared.v2.u32 {%digit, %word}, [%bin];
  add.u32 %below, %below, %word;
  cvt.uBITS.u32 %masked, %digit;
  shl.bBITS %masked, %masked, %shift;
  or.bBITS %prefix, %prefix, %masked;
  mov.bBITS %masked, 255;
  shl.bBITS %masked, %masked, %shift;
  or.bBITS %mask, %mask, %masked;
  add.s32 %shift, %shift, -8;
  setp.ge.s32 %hasMoreDigits, %shift, 0;
  @%hasMoreDigits bra DIGIT#;
  sub.u32 %tiesWanted, %count, %below;
)";
  replaceAll(part, "LOAD\n", load);
  replaceAll(part, "COUNT;", count + ";");
  replaceAll(part, "FIRST_SHIFT", std::to_string(bits - 8));
  replaceAll(part, "cvt.u32.uBITS", bits == 32 ? "mov.b32" : "cvt.u32.u64");
  replaceAll(part, "cvt.uBITS.u32", bits == 32 ? "mov.b32" : "cvt.u64.u32");
  replaceAll(part, "BITS", std::to_string(bits));
  add(ofBits(bits, part));
}

void KernelWriter::scan(const std::string &count, const std::string &look,
                        const std::string &take) {
  std::string part = R"(
  // Runs of a multiple of 32.
  add.u32 %part, COUNT, 1023;
  shr.u32 %part, %part, 10;
  shl.b32 %part, %part, 5;
  mul.lo.u32 %from, %warp, %part;
  min.u32 %from, %from, COUNT;
  add.u32 %to, %from, %part;
  min.u32 %to, %to, COUNT;
  mov.u32 %sum, 0;
  mov.u32 %ties, 0;
  mov.u32 %first, %from;
  setp.ge.u32 %isBehind, %first, %to;
  @%isBehind bra LOOKED#;
LOOK#:
  add.u32 %i, %first, %lane;
  setp.lt.u32 %isIn, %i, %to;
LOOK_AT
  add.u32 %first, %first, 32;
  setp.lt.u32 %hasMore, %first, %to;
  @%hasMore bra LOOK#;
LOOKED#:
  setp.eq.u32 %isFirst, %lane, 0;
  mov.u32 %bin, parts;
  mad.lo.u32 %bin, %warp, 8, %bin;
  @%isFirst st.shared.v2.u32 [%bin], {%sum, %ties};
  bar.sync 0;
  mov.u32 %bin, parts;
  mad.lo.u32 %bin, %lane, 8, %bin;
  ld.shared.v2.u32 {%sum, %ties}, [%bin];
  redux.sync.add.u32 %all, %sum, 0xffffffff;
  setp.lt.u32 %isBefore, %lane, %warp;
  selp.b32 %sum, %sum, 0, %isBefore;
  selp.b32 %ties, %ties, 0, %isBefore;
  redux.sync.add.u32 %sum, %sum, 0xffffffff;
  redux.sync.add.u32 %ties, %ties, 0xffffffff;
  mov.u32 %first, %from;
  setp.ge.u32 %isBehind, %first, %to;
  @%isBehind bra TAKEN#;
TAKE#:
  add.u32 %i, %first, %lane;
  setp.lt.u32 %isIn, %i, %to;
TAKE_ITS
  add.u32 %first, %first, 32;
  setp.lt.u32 %hasMore, %first, %to;
  @%hasMore bra TAKE#;
TAKEN#:
  bar.sync 0;
)";
  replaceAll(part, "LOOK_AT\n", look);
  replaceAll(part, "TAKE_ITS\n", take);
  replaceAll(part, "COUNT,", count + ",");
  replaceAll(part, "COUNT;", count + ";");
  add(part);
}

void KernelWriter::compact(const std::string &count,
                           const std::function<std::string()> &flag,
                           const std::string &body) {
  const std::string vote = R"(
  vote.sync.ballot.b32 %lowLanes, %isLow, 0xffffffff;
  vote.sync.ballot.b32 %tieLanes, %isTie, 0xffffffff;
)",
                    count32 = R"(
  popc.b32 %word, %lowLanes;
  add.u32 %sum, %sum, %word;
  popc.b32 %word, %tieLanes;
  add.u32 %ties, %ties, %word;
)";
  scan(count, flag() + vote + count32, flag() + vote + R"(
  and.b32 %word, %tieLanes, %lower;
  popc.b32 %place, %word;
  add.u32 %place, %place, %ties;
  setp.lt.and.u32 %isTie, %place, %tiesWanted, %isTie;
  min.u32 %place, %place, %tiesWanted;
  or.pred %isTaken, %isLow, %isTie;
  and.b32 %word, %lowLanes, %lower;
  popc.b32 %word, %word;
  add.u32 %word, %word, %sum;
  add.u32 %place, %place, %word;
)" + body + count32);
}

std::string KernelWriter::search(const std::string &list,
                                 const std::string &count,
                                 const std::string &test) {
  return number("  mov.u32 %low, 0;\n"
                "  mov.u32 %high, " +
                count + R"(;
  mov.u32 %round, %rounds;
SEARCH#:
  setp.lt.u32 %isOpen, %low, %high;
  add.u32 %middle, %low, %high;
  shr.u32 %middle, %middle, 1;
  mad.wide.u32 %address, %middle, 8, )" +
                list + R"(;
  mov.u64 %other, 0;
  @%isOpen ld.global.u64 %other, [%address];
)" + test +
                R"(
  xor.pred %isNot, %isLess, %isOpen;
  @%isLess add.u32 %low, %middle, 1;
  @%isNot mov.u32 %high, %middle;
  sub.u32 %round, %round, 1;
  setp.ne.u32 %hasMoreRounds, %round, 0;
  @%hasMoreRounds bra SEARCH#;
)");
}
