// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a run records of its patterns, worked out by hand.

#include "Assertions.h"

using namespace check;

namespace {
/// A pattern of 8 rows of 4x2 blocks, 2 lines of blocks, and what is counted of
/// it: blocks, all, ever stored, most in a row and in a column, pruned,
/// regrown, newest, newest that were pruned.
bsr_recorded_pattern make(const char *name, bsr_pattern_statistics counts,
                          bsr_pattern_update update = {}) {
  return {name, 8, 4, 2, counts, update.method != BSR_STATIC, update};
}

std::string record(const std::vector<bsr_recorded_pattern> &patterns,
                   bool isUpdate) {
  const char *text = "";
  require(bsr_record_patterns(int64_t(patterns.size()), patterns.data(),
                              isUpdate, &text));
  return text;
}

bsr_pattern_update of(bsr_method method, double drop) {
  return {method, BSR_L1, drop, 0, 0, 0};
}
} // namespace

TEST(PatternRecordTest, AtTheStartThereIsNoUpdate) {
  ASSERT_EQ(record({make("a", {4, 16, 8, 3, 1, 2, 2, 2, 1})}, false),
            "{\"weight_density\":{\"a\":0.25},\"density\":0.25,"
            "\"weight_used\":{\"a\":0.5},\"used\":0.5,"
            "\"weight_imbalance\":{\"a\":1.5},\"imbalance\":1.5}");
}

TEST(PatternRecordTest, UpdatesAreOfWhatTheyUpdate) {
  // Of 12 blocks that were stored before, 3 went; what was pruned of `b` was so
  // by an update before.
  ASSERT_EQ(record({make("a", {4, 16, 8, 2, 1, 3, 1, 4, 1}, of(BSR_SET, .5)),
                    make("b", {6, 16, 6, 3, 1, 5, 5, 5, 5})},
                   true),
            "{\"drop\":0.5,\"turnover\":0.25,"
            "\"weight_density\":{\"a\":0.25,\"b\":0.375},\"density\":0.3125,"
            "\"weight_used\":{\"a\":0.5,\"b\":0.375},\"used\":0.4375,"
            "\"weight_pruned\":{\"a\":3},\"pruned\":3,"
            "\"weight_regrown\":{\"a\":1},\"regrown\":1,"
            "\"weight_lost\":{\"a\":0.25},\"lost\":0.25,"
            "\"weight_imbalance\":{\"a\":1.0,\"b\":1.0},\"imbalance\":1.0}");
}

TEST(PatternRecordTest, MethodsSayWhatTheyNeed) {
  for (bsr_method method : {BSR_STATIC, BSR_SET, BSR_RIGL, BSR_GMP}) {
    ASSERT_EQ(bsr_method_reads_scores(method), method == BSR_RIGL);
    ASSERT_EQ(bsr_method_has_drop(method),
              method == BSR_SET || method == BSR_RIGL);
  }
  auto dropOf = [](std::vector<bsr_pattern_update> updates) {
    std::vector<bsr_recorded_pattern> patterns;
    for (const bsr_pattern_update &update : updates)
      patterns.push_back(make("w", {4, 16, 4, 2, 1, 0, 0, 0, 0}, update));
    std::string text = record(patterns, true);
    return text.substr(0, text.find(','));
  };
  // The largest share, of methods that have one.
  ASSERT_EQ(dropOf({of(BSR_SET, .25), of(BSR_RIGL, .75), of(BSR_GMP, 1)}),
            "{\"drop\":0.75");
  ASSERT_EQ(dropOf({of(BSR_GMP, 1)}), "{\"turnover\":0.0");
}

TEST(PatternRecordTest, NoBlocksAreInBalance) {
  ASSERT_EQ(
      record({make("a", {0, 16, 0, 0, 0, 0, 0, 0, 0}, of(BSR_RIGL, 0))}, true),
      "{\"drop\":0.0,\"turnover\":0.0,"
      "\"weight_density\":{\"a\":0.0},\"density\":0.0,"
      "\"weight_used\":{\"a\":0.0},\"used\":0.0,"
      "\"weight_pruned\":{\"a\":0},\"pruned\":0,"
      "\"weight_regrown\":{\"a\":0},\"regrown\":0,"
      "\"weight_imbalance\":{\"a\":1.0},\"imbalance\":1.0}");
  ASSERT_EQ(record({}, true), "{}");
}

TEST(PatternRecordTest, RefusesWhatIsNoPattern) {
  const char *text = nullptr;
  bsr_recorded_pattern pattern = make("a", {});
  ASSERT_TRUE(fails(bsr_record_patterns(-1, &pattern, 0, &text),
                    BSR_INVALID_ARGUMENT,
                    "expected a count of at least 0, but got -1"));
  pattern.block_rows = 0;
  ASSERT_TRUE(fails(bsr_record_patterns(1, &pattern, 0, &text),
                    BSR_INVALID_ARGUMENT,
                    "expected 'a' to have rows of blocks, but got 8 rows and "
                    "blocks of 0x2"));
  ASSERT_FALSE(text);
}
