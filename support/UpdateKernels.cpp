// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of which a block of threads does all that is done for one matrix.

#include "KernelText.h"
#include "KernelWriter.h"
#include "PatternKernels.h"

using namespace bsr;

/// What both kernels begin with: where a thread is, and its row of the table.
static void addHead(KernelWriter &w, const std::string &name) {
  w.add(R"(
.visible .entry NAME(.param .u64 base, .param .u64 table)
  .maxntid 1024, 1, 1
{
  .shared .align 16 .b8 counts[1024];
  .shared .align 8 .b8 parts[256];
  .shared .align 8 .b8 found[8];
  .reg .pred %isBehind, %isIn, %isLow, %isTie, %isTaken, %isKept, %isLess,
             %isNot, %isOpen, %isFrom, %isFirst, %isBefore, %hasMore,
             %hasMoreBlocks, %hasMoreDigits, %hasMoreRounds, %hasMoreWords,
             %returns;
  .reg .b32 %thread, %lane, %warp, %lower, %rows, %cols, %blocks, %count,
            %regrowth, %rounds, %word, %line, %k, %last, %i, %bin, %first,
            %from, %to, %part, %sum, %ties, %all, %place, %tiesWanted, %below,
            %shift, %digit, %peers, %rank, %until, %low, %high, %middle, %round,
            %lowLanes, %tieLanes, %value32, %prefix32, %mask32, %masked32,
            %count0, %count1, %count2, %count3, %count4, %count5, %count6,
            %count7, %size, %numKept, %numFresh, %numAll, %column, %group,
            %groups;
  .reg .f32 %score;
  .reg .b64 %base, %row, %address, %block, %other, %number, %value64,
            %prefix64, %mask64, %masked64, %colIdx, %rowPtr, %slot, %colPtr,
            %rowIdx, %slotT, %scores, %norms, %stored, %kept, %keptSlots,
            %flags, %marks, %before, %chosen, %fresh, %pruned, %freed, %result,
            %list;

  ld.param.u64 %base, [base];
  ld.param.u64 %row, [table];
  mov.u32 %word, %ctaid.x;
  mul.wide.u32 %address, %word, ROW_BYTES;
  add.u64 %row, %row, %address;
  mov.u32 %thread, %tid.x;
  and.b32 %lane, %thread, 31;
  shr.u32 %warp, %thread, 5;
  mov.u32 %lower, 1;
  shl.b32 %lower, %lower, %lane;
  sub.u32 %lower, %lower, 1;
  ld.global.u32 %rows, [%row+AT_rows];
  ld.global.u32 %cols, [%row+AT_cols];
  ld.global.u32 %blocks, [%row+AT_blocks];
  ld.global.u32 %count, [%row+AT_count];
  ld.global.u32 %regrowth, [%row+AT_regrowth];
  ld.global.u32 %rounds, [%row+AT_rounds];
  ld.global.u32 %word, [%row+AT_returns];
  setp.ne.u32 %returns, %word, 0;
)");
  replaceAll(w.text, "NAME", name);
}

static const char tail[] = "END:\n  ret;\n}\n";

/// Makes %number the number of block %k, in row %line.
static const char numberBlock[] = R"(
  mad.wide.u32 %address, %k, 4, %colIdx;
  ld.global.u32 %word, [%address];
  cvt.u64.u32 %number, %word;
  mad.wide.u32 %number, %line, %cols, %number;
)";

/// Sets bit %number of `marks`, where `guard` holds.
static std::string markBlock(const std::string &guard) {
  return R"(
  shr.u64 %address, %number, 5;
  mad.lo.u64 %address, %address, 4, %marks;
  cvt.u32.u64 %word, %number;
  and.b32 %word, %word, 31;
  mov.u32 %first, 1;
  shl.b32 %word, %first, %word;
  )" + guard +
         " red.global.or.b32 [%address], %word;\n";
}

/// Makes %size how many blocks the matrix has.
static const char sizeOfMatrix[] = "  mul.lo.u32 %size, %rows, %cols;\n";

/// Makes %word, not zero where block %i is marked, and %score its score.
static const char loadScore[] = R"(
  shr.u32 %word, %i, 5;
  mad.wide.u32 %address, %word, 4, %marks;
  mov.u32 %word, 0;
  @%isIn ld.global.u32 %word, [%address];
  and.b32 %low, %i, 31;
  shr.u32 %word, %word, %low;
  and.b32 %word, %word, 1;
  mad.wide.u32 %address, %i, 4, %scores;
  mov.f32 %score, 0f00000000;
  @%isIn ld.global.f32 %score, [%address];
)";

/// Makes the marks of all blocks zero.
static void zeroMarks(KernelWriter &w) {
  w.use({"marks"});
  w.add(sizeOfMatrix);
  w.add("  add.u32 %group, %size, 31;\n"
        "  shr.u32 %group, %group, 5;\n");
  w.zero("%marks", "%group");
  w.wait();
}

static std::string makeScoresKernel() {
  KernelWriter w;
  addHead(w, scoresKernel);
  w.add("  setp.ne.u32 %isBehind, %regrowth, 2;\n"
        "  @%isBehind bra END;\n");
  zeroMarks(w);
  w.use({"rowPtr", "colIdx"});
  w.forEachBlock(numberBlock + markBlock("@!%returns"));
  w.wait();
  w.use({"scores", "result"});
  w.forEachItem("%size",
                std::string("  setp.eq.u32 %isIn, 0, 0;\n") + loadScore + R"(
  setp.eq.u32 %isLow, %word, 0;
  setp.nan.and.f32 %isLow, %score, %score, %isLow;
  cvt.u64.u32 %number, %i;
  @%isLow red.global.min.u64 [%result+AT_nanScore], %number;
)");
  return w.text + tail;
}

/// Makes `flags` say which blocks are pruned, and `kept` those that are not.
static void prune(KernelWriter &w) {
  w.use({"rowPtr", "colIdx", "stored"});
  w.forEachBlock(std::string(numberBlock) + R"(
  mad.wide.u32 %address, %k, 8, %stored;
  st.global.u64 [%address], %number;
)");
  w.wait();
  const std::string load = R"(
  mad.wide.u32 %address, %i, 8, %norms;
  @%isIn ld.global.u64 %value, [%address];
)",
                    flag = ofBits(64, "  mov.u64 %value, 0;\n" + load + R"(
  setp.lt.and.u64 %isLow, %value, %prefix, %isIn;
  setp.eq.and.u64 %isTie, %value, %prefix, %isIn;
)");
  w.use({"norms"});
  w.select("%blocks", 64, load);
  w.use({"stored", "kept", "flags"});
  w.compact(
      "%blocks", [&] { return flag; }, R"(
  selp.b32 %word, 1, 0, %isTaken;
  mad.wide.u32 %address, %i, 4, %flags;
  @%isIn st.global.u32 [%address], %word;
  xor.pred %isKept, %isTaken, %isIn;
  mad.wide.u32 %address, %i, 8, %stored;
  mov.u64 %number, 0;
  @%isKept ld.global.u64 %number, [%address];
  sub.u32 %place, %i, %place;
  mad.wide.u32 %address, %place, 8, %kept;
  @%isKept st.global.u64 [%address], %number;
)");
}

/// Makes ranks among absent blocks their numbers: as many are stored in front
/// as have a number that is not above the rank by more than those before them.
static void regrowByRank(KernelWriter &w) {
  w.add("  setp.ne.u32 %isBehind, %regrowth, 1;\n"
        "  @%isBehind bra RANKED;\n");
  w.use({"stored", "kept", "chosen"});
  w.add(R"(
  selp.b64 %list, %kept, %stored, %returns;
  selp.b32 %size, %count, 0, %returns;
  sub.u32 %size, %blocks, %size;
)");
  w.forEachItem("%count", R"(
  mad.wide.u32 %address, %i, 8, %chosen;
  ld.global.u64 %number, [%address];
)" + w.search("%list", "%size", R"(
  cvt.u64.u32 %address, %middle;
  sub.u64 %other, %other, %address;
  setp.le.and.u64 %isLess, %other, %number, %isOpen;
)") + R"(
  cvt.u64.u32 %other, %low;
  add.u64 %number, %number, %other;
  mad.wide.u32 %address, %i, 8, %chosen;
  st.global.u64 [%address], %number;
)");
  w.add("RANKED:\n");
}

/// Chooses the blocks of the highest scores. A key orders as the score, the
/// other way round; that of a block which may not be chosen is above all.
static void regrowByScore(KernelWriter &w) {
  w.add("  setp.ne.u32 %isBehind, %regrowth, 2;\n"
        "  @%isBehind bra SCORED;\n");
  zeroMarks(w);
  w.use({"stored", "flags"});
  w.forEachItem("%blocks", R"(
  mad.wide.u32 %address, %i, 4, %flags;
  ld.global.u32 %word, [%address];
  setp.ne.and.u32 %isKept, %word, 0, %returns;
  mad.wide.u32 %address, %i, 8, %stored;
  ld.global.u64 %number, [%address];
)" + markBlock("@!%isKept"));
  w.wait();
  w.use({"scores"});
  const std::string load = std::string(loadScore) + R"(
  setp.ne.and.u32 %isBefore, %word, 0, %isIn;
  // Of both zeros the positive one.
  add.rn.f32 %score, %score, 0f00000000;
  mov.b32 %value, %score;
  shr.s32 %word, %value, 31;
  or.b32 %word, %word, 0x80000000;
  xor.b32 %value, %value, %word;
  not.b32 %value, %value;
  @%isBefore mov.b32 %value, 0xffffffff;
)";
  w.select("%size", 32, load);
  const std::string flag = ofBits(32, load + R"(
  setp.lt.and.u32 %isLow, %value, %prefix, %isIn;
  setp.eq.and.u32 %isTie, %value, %prefix, %isIn;
)");
  w.use({"chosen"});
  w.compact(
      "%size", [&] { return flag; }, R"(
  cvt.u64.u32 %number, %i;
  mad.wide.u32 %address, %place, 8, %chosen;
  @%isTaken st.global.u64 [%address], %number;
)");
  w.add("SCORED:\n");
}

/// Blocks that are pruned and chosen at once stay as they are; `fresh` becomes
/// the others that are chosen.
static void cancelReturned(KernelWriter &w) {
  w.add(R"(
  setp.eq.u32 %isBehind, %regrowth, 0;
  selp.b32 %numFresh, 0, %count, %isBehind;
  @%isBehind bra CANCELLED;
  @!%returns bra CANCELLED;
)");
  w.use({"stored", "flags", "chosen", "fresh"});
  const std::string isBefore = "  setp.lt.and.u64 %isLess, %other, %number, "
                               "%isOpen;\n";
  w.forEachItem("%blocks", R"(
  mad.wide.u32 %address, %i, 8, %stored;
  ld.global.u64 %number, [%address];
)" + w.search("%chosen", "%count", isBefore) +
                               R"(
  setp.lt.u32 %isIn, %low, %count;
  mad.wide.u32 %address, %low, 8, %chosen;
  mov.u64 %other, 0;
  @%isIn ld.global.u64 %other, [%address];
  setp.eq.and.u64 %isIn, %other, %number, %isIn;
  mad.wide.u32 %address, %i, 4, %flags;
  @%isIn st.global.u32 [%address], 0;
)");
  auto flag = [&] {
    return R"(
  mad.wide.u32 %address, %i, 8, %chosen;
  mov.u64 %number, 0;
  @%isIn ld.global.u64 %number, [%address];
)" + w.search("%stored", "%blocks", isBefore) +
           R"(
  setp.lt.u32 %isLow, %low, %blocks;
  mad.wide.u32 %address, %low, 8, %stored;
  mov.u64 %other, 0;
  @%isLow ld.global.u64 %other, [%address];
  setp.eq.and.u64 %isLow, %other, %number, %isLow;
  not.pred %isLow, %isLow;
  and.pred %isLow, %isLow, %isIn;
  setp.ne.u32 %isTie, 0, 0;
)";
  };
  w.compact("%count", flag, R"(
  mad.wide.u32 %address, %place, 8, %fresh;
  @%isTaken st.global.u64 [%address], %number;
)");
  w.add("  mov.u32 %numFresh, %all;\n"
        "CANCELLED:\n");
}

/// Makes `stored` and `slot` those of the next pattern: fresh blocks take the
/// slots that pruned ones leave, both in their order.
static void merge(KernelWriter &w) {
  w.use({"stored", "slot", "flags", "kept", "keptSlots", "pruned", "freed"});
  auto flag = [] {
    return std::string(R"(
  mad.wide.u32 %address, %i, 4, %flags;
  mov.u32 %word, 0;
  @%isIn ld.global.u32 %word, [%address];
  setp.ne.and.u32 %isLow, %word, 0, %isIn;
  setp.ne.u32 %isTie, 0, 0;
)");
  };
  w.compact("%blocks", flag, R"(
  mad.wide.u32 %address, %i, 4, %slot;
  mov.u32 %word, 0;
  @%isIn ld.global.u32 %word, [%address];
  mad.wide.u32 %address, %place, 4, %pruned;
  @%isTaken st.global.u32 [%address], %i;
  mad.wide.u32 %address, %place, 4, %freed;
  @%isTaken st.global.u32 [%address], %word;
  xor.pred %isKept, %isTaken, %isIn;
  sub.u32 %place, %i, %place;
  mad.wide.u32 %address, %place, 4, %keptSlots;
  @%isKept st.global.u32 [%address], %word;
  mad.wide.u32 %address, %i, 8, %stored;
  mov.u64 %number, 0;
  @%isKept ld.global.u64 %number, [%address];
  mad.wide.u32 %address, %place, 8, %kept;
  @%isKept st.global.u64 [%address], %number;
)");
  w.use({"fresh", "result"});
  // Without returns all that are chosen are pruned, which needs no data.
  w.add(R"(
  selp.b32 %all, %all, %count, %returns;
  sub.u32 %numKept, %blocks, %all;
  add.u32 %numAll, %numKept, %numFresh;
  setp.eq.u32 %isFirst, %thread, 0;
  cvt.u64.u32 %number, %all;
  @%isFirst st.global.u64 [%result+AT_numPruned], %number;
  cvt.u64.u32 %number, %numFresh;
  @%isFirst st.global.u64 [%result+AT_numRegrown], %number;
)");
  auto place = [&](const std::string &own, const std::string &slots,
                   const std::string &others, const std::string &numOthers) {
    return "  mad.wide.u32 %address, %i, 8, " + own +
           ";\n"
           "  ld.global.u64 %number, [%address];\n" +
           w.search(others, numOthers,
                    "  setp.lt.and.u64 %isLess, %other, %number, %isOpen;\n") +
           "  mad.wide.u32 %address, %i, 4, " + slots + R"(;
  ld.global.u32 %word, [%address];
  add.u32 %place, %i, %low;
  mad.wide.u32 %address, %place, 8, %stored;
  st.global.u64 [%address], %number;
  mad.wide.u32 %address, %place, 4, %slot;
  st.global.u32 [%address], %word;
)";
  };
  w.forEachItem("%numKept",
                place("%kept", "%keptSlots", "%fresh", "%numFresh"));
  w.forEachItem("%numFresh", place("%fresh", "%freed", "%kept", "%numKept"));
  w.wait();
}

/// Makes the views of `stored`, whose slots are in the row view already.
static void makeViews(KernelWriter &w) {
  w.use({"rowPtr", "colIdx", "stored", "marks"});
  w.add("  add.u32 %size, %rows, 1;\n");
  w.forEachItem(
      "%size",
      "  mul.wide.u32 %number, %i, %cols;\n" +
          w.search("%stored", "%numAll",
                   "  setp.lt.and.u64 %isLess, %other, %number, %isOpen;\n") +
          "  mad.wide.u32 %address, %i, 4, %rowPtr;\n"
          "  st.global.u32 [%address], %low;\n");
  w.add("  add.u32 %groups, %rows, 31;\n"
        "  shr.u32 %groups, %groups, 5;\n"
        "  mul.lo.u32 %size, %groups, %cols;\n");
  w.zero("%marks", "%size");
  w.wait();

  // The column of each block, and which rows each column has.
  w.forEachBlock(R"(
  mad.wide.u32 %address, %k, 8, %stored;
  ld.global.u64 %number, [%address];
  mul.wide.u32 %address, %line, %cols;
  sub.u64 %number, %number, %address;
  cvt.u32.u64 %column, %number;
  mad.wide.u32 %address, %k, 4, %colIdx;
  st.global.u32 [%address], %column;
  shr.u32 %group, %line, 5;
  mad.lo.u32 %group, %group, %cols, %column;
  mad.wide.u32 %address, %group, 4, %marks;
  and.b32 %word, %line, 31;
  mov.u32 %low, 1;
  shl.b32 %word, %low, %word;
  red.global.or.b32 [%address], %word;
)");
  w.wait();

  // Of each column and 32 rows, how many blocks are in front of them.
  w.use({"before", "colPtr"});
  w.scan("%cols", w.number(R"(
  mov.u32 %column, 0;
  mov.u32 %group, %i;
  mov.u32 %round, %groups;
WORDS#:
  mad.wide.u32 %address, %group, 4, %marks;
  mov.u32 %word, 0;
  @%isIn ld.global.u32 %word, [%address];
  mad.wide.u32 %address, %group, 4, %before;
  @%isIn st.global.u32 [%address], %column;
  popc.b32 %word, %word;
  add.u32 %column, %column, %word;
  add.u32 %group, %group, %cols;
  sub.u32 %round, %round, 1;
  setp.ne.u32 %hasMoreWords, %round, 0;
  @%hasMoreWords bra WORDS#;
  mad.wide.u32 %address, %i, 4, %colPtr;
  @%isIn st.global.u32 [%address], %column;
  redux.sync.add.u32 %word, %column, 0xffffffff;
  add.u32 %sum, %sum, %word;
)"),
         R"(
  mad.wide.u32 %address, %i, 4, %colPtr;
  mov.u32 %column, 0;
  @%isIn ld.global.u32 %column, [%address];
  mov.u32 %until, %column;
)" + addUpLanes() +
             R"(
  sub.u32 %word, %until, %column;
  add.u32 %word, %word, %sum;
  @%isIn st.global.u32 [%address], %word;
  redux.sync.add.u32 %word, %column, 0xffffffff;
  add.u32 %sum, %sum, %word;
)");
  w.add(R"(
  setp.eq.u32 %isFirst, %thread, 0;
  mad.wide.u32 %address, %cols, 4, %colPtr;
  @%isFirst st.global.u32 [%address], %numAll;
)");

  w.use({"rowIdx", "slotT", "slot"});
  w.forEachBlock(R"(
  mad.wide.u32 %address, %k, 4, %colIdx;
  ld.global.u32 %column, [%address];
  shr.u32 %group, %line, 5;
  mad.lo.u32 %group, %group, %cols, %column;
  mad.wide.u32 %address, %group, 4, %marks;
  ld.global.u32 %place, [%address];
  and.b32 %word, %line, 31;
  mov.u32 %low, 1;
  shl.b32 %word, %low, %word;
  sub.u32 %word, %word, 1;
  and.b32 %place, %place, %word;
  popc.b32 %place, %place;
  mad.wide.u32 %address, %group, 4, %before;
  ld.global.u32 %word, [%address];
  add.u32 %place, %place, %word;
  mad.wide.u32 %address, %column, 4, %colPtr;
  ld.global.u32 %word, [%address];
  add.u32 %place, %place, %word;
  mad.wide.u32 %address, %place, 4, %rowIdx;
  st.global.u32 [%address], %line;
  mad.wide.u32 %address, %k, 4, %slot;
  ld.global.u32 %word, [%address];
  mad.wide.u32 %address, %place, 4, %slotT;
  st.global.u32 [%address], %word;
)");
}

static std::string makeUpdateKernel() {
  KernelWriter w;
  addHead(w, updateKernel);
  w.add("  setp.eq.u32 %isBehind, %count, 0;\n"
        "  @%isBehind bra END;\n");
  prune(w);
  regrowByRank(w);
  regrowByScore(w);
  w.wait();
  cancelReturned(w);
  merge(w);
  makeViews(w);
  return w.text + tail;
}

std::string bsr::updateKernels() {
  std::string text = makeScoresKernel() + makeUpdateKernel();
  replaceAll(text, "ROW_BYTES", std::to_string(sizeof(UpdateRow)));
  replaceFields(text);
  return text;
}
