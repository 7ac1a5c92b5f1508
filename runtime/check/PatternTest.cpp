// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Patterns: set, shared, read and written; every invariant.

#include "Assertions.h"
#include <algorithm>

using namespace check;

namespace {
/// A pattern in vectors, which a test may spoil.
struct Arrays {
  std::vector<int32_t> rowPtr, colIdx, slot, colPtr, rowIdx, slotT;

  bsr_pattern_view view() const {
    return {int64_t(colIdx.size()), rowPtr.data(), colIdx.data(), slot.data(),
            colPtr.data(),          rowIdx.data(), slotT.data()};
  }
};
} // namespace

/// A pattern of the fake step: 4 x 4 blocks in 6 slots; one row and one column
/// are empty, one slot is unused.
static Arrays example() {
  return {{0, 2, 2, 3, 5}, {0, 3, 1, 0, 1}, {4, 0, 5, 1, 3},
          {0, 2, 4, 4, 5}, {0, 3, 2, 3, 0}, {4, 1, 5, 3, 0}};
}

static bool equal(const bsr_pattern_view &a, const bsr_pattern_view &b,
                  int64_t rows, int64_t cols) {
  auto same = [](const int32_t *x, const int32_t *y, int64_t size) {
    return std::equal(x, x + size, y);
  };
  return a.blocks == b.blocks && same(a.row_ptr, b.row_ptr, rows + 1) &&
         same(a.col_idx, b.col_idx, a.blocks) &&
         same(a.slot, b.slot, a.blocks) &&
         same(a.col_ptr, b.col_ptr, cols + 1) &&
         same(a.row_idx, b.row_idx, a.blocks) &&
         same(a.slot_t, b.slot_t, a.blocks);
}

TEST(PatternTest, OfANewSessionIsEmpty) {
  Step step = loadFake();
  Session session = start(step);
  ASSERT_EQ(viewOf(session).blocks, 0);
  ASSERT_TRUE(succeeds(checkPatterns(session)));
}

TEST(PatternTest, IsReadBackAsItWasSet) {
  Step step = loadFake();
  Session session = start(step);
  Arrays arrays = example();
  bsr_pattern_view view = arrays.view();
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
  ASSERT_TRUE(equal(viewOf(session), view, 4, 4));
  ASSERT_TRUE(succeeds(checkPatterns(session)));
  // The buffers are those of the manifest.
  ASSERT_EQ(static_cast<const void *>(viewOf(session).row_ptr),
            dataOf(session, 6));
  ASSERT_EQ(static_cast<const void *>(viewOf(session).slot_t),
            dataOf(session, 11));
  // Setting it to itself changes nothing.
  bsr_pattern_view own = viewOf(session);
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &own)));
  ASSERT_TRUE(equal(viewOf(session), view, 4, 4));
}

TEST(PatternTest, ThatIsSetAgainBeginsStateOfNewSlots) {
  Matrix m = {4, 4, 2, 2, 3};
  Step step = load(makeManifest({m}));
  Session session = start(step);
  int32_t rowPtr[] = {0, 1, 1}, first[] = {0};
  bsr_pattern_view view = {1,       rowPtr,  first,  nullptr,
                           nullptr, nullptr, nullptr};
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
  for (int64_t buffer : {0, 1, 2})
    ASSERT_TRUE(succeeds(initBuffer(session, buffer, "constant(5)")));
  int32_t more[] = {0, 2, 2}, both[] = {0, 1}, slots[] = {0, 2};
  view = {2, more, both, slots, nullptr, nullptr, nullptr};
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
  // The weight and the first moment begin with zeros.
  const float expected[3][3] = {{5, 0, 0}, {5, 0, 0}, {5, 0, 0.25}};
  for (int64_t buffer : {0, 1, 2})
    for (int64_t slot : {0, 1, 2})
      for (int64_t i = 0; i < 4; ++i)
        ASSERT_EQ(static_cast<float *>(dataOf(session, buffer))[slot * 4 + i],
                  expected[buffer][slot]);
}

TEST(PatternTest, AddsWhatIsLeftOut) {
  Step step = loadFake();
  Session session = start(step);
  Arrays arrays = example();
  bsr_pattern_view rows = arrays.view();
  rows.col_ptr = rows.row_idx = rows.slot_t = nullptr;
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &rows)));
  ASSERT_TRUE(equal(viewOf(session), arrays.view(), 4, 4));

  rows.slot = nullptr;
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &rows)));
  int32_t slots[] = {0, 1, 2, 3, 4}, slotsT[] = {0, 3, 2, 4, 1};
  ASSERT_TRUE(std::equal(slots, slots + 5, viewOf(session).slot));
  ASSERT_TRUE(std::equal(slotsT, slotsT + 5, viewOf(session).slot_t));

  int32_t none[] = {0, 0, 0, 0, 0};
  bsr_pattern_view empty = {0,       none,    nullptr, nullptr,
                            nullptr, nullptr, nullptr};
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &empty)));
  ASSERT_EQ(viewOf(session).blocks, 0);
}

TEST(PatternTest, RefusesWhatBreaksAnInvariant) {
  Step step = loadFake();
  Session session = start(step);
  Arrays whole = example();
  bsr_pattern_view view = whole.view();
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
  ASSERT_TRUE(succeeds(initBuffer(session, 0, "ones")));
  std::string before = contentsOf(session, step);
  struct {
    std::vector<int32_t> Arrays::*array;
    int place, value;
    const char *sentence;
  } broken[] = {
      {&Arrays::rowPtr, 0, 1,
       "row_ptr[0] of pattern 'state.p.w' to be 0, but got 1"},
      {&Arrays::rowPtr, 0, -1,
       "row_ptr[0] of pattern 'state.p.w' to be 0, but got -1"},
      {&Arrays::rowPtr, 2, 1,
       "row_ptr[2] of pattern 'state.p.w' to be in [2, 5], but got 1"},
      {&Arrays::rowPtr, 1, -7,
       "row_ptr[1] of pattern 'state.p.w' to be in [0, 5], but got -7"},
      {&Arrays::rowPtr, 3, 6,
       "row_ptr[3] of pattern 'state.p.w' to be in [2, 5], but got 6"},
      {&Arrays::rowPtr, 4, 4,
       "row_ptr[4] of pattern 'state.p.w' to be the number of blocks 5, but "
       "got 4"},
      {&Arrays::colIdx, 2, -1,
       "col_idx[2] of pattern 'state.p.w', in block row 2, to be in [0, 3], "
       "but got -1"},
      {&Arrays::colIdx, 1, 4,
       "col_idx[1] of pattern 'state.p.w', in block row 0, to be in [1, 3], "
       "but got 4"},
      {&Arrays::colIdx, 1, 0,
       "col_idx[1] of pattern 'state.p.w', in block row 0, to be in [1, 3], "
       "but got 0"},
      {&Arrays::colIdx, 3, 2,
       "col_idx[4] of pattern 'state.p.w', in block row 3, to be in [3, 3], "
       "but got 1"},
      {&Arrays::slot, 3, 6,
       "slot[3] of pattern 'state.p.w' to be in [0, 5], but got 6"},
      {&Arrays::slot, 0, -1,
       "slot[0] of pattern 'state.p.w' to be in [0, 5], but got -1"},
      {&Arrays::slot, 4, 0,
       "slot[4] of pattern 'state.p.w' to be used by no other block, but got 0 "
       "again"},
      {&Arrays::slot, 0, 2,
       "slot_t[0] of pattern 'state.p.w' to be 2 as in the row view, but got "
       "4"},
      {&Arrays::colPtr, 0, 1,
       "col_ptr[0] of pattern 'state.p.w' to be 0 as in the row view, but got "
       "1"},
      {&Arrays::colPtr, 4, 6,
       "col_ptr[4] of pattern 'state.p.w' to be 5 as in the row view, but got "
       "6"},
      {&Arrays::colPtr, 1, 3,
       "col_ptr[1] of pattern 'state.p.w' to be 2 as in the row view, but got "
       "3"},
      {&Arrays::rowIdx, 3, 4,
       "row_idx[3] of pattern 'state.p.w' to be 3 as in the row view, but got "
       "4"},
      {&Arrays::rowIdx, 1, 0,
       "row_idx[1] of pattern 'state.p.w' to be 3 as in the row view, but got "
       "0"},
      {&Arrays::slotT, 4, 4,
       "slot_t[4] of pattern 'state.p.w' to be 0 as in the row view, but got "
       "4"},
  };
  for (auto &[array, place, value, sentence] : broken) {
    Arrays spoiled = whole;
    (spoiled.*array)[place] = value;
    view = spoiled.view();
    ASSERT_TRUE(fails(bsr_session_set_pattern(session.get(), 0, &view),
                      BSR_INVALID_PATTERN,
                      "expected " + std::string(sentence)));
    ASSERT_TRUE(fails(bsr_session_check_pattern(session.get(), 0, &view),
                      BSR_INVALID_PATTERN,
                      "expected " + std::string(sentence)));
    ASSERT_TRUE(before == contentsOf(session, step));
  }

  for (int64_t blocks : {-1, 7}) {
    view = whole.view();
    view.blocks = blocks;
    ASSERT_TRUE(fails(
        bsr_session_set_pattern(session.get(), 0, &view), BSR_INVALID_PATTERN,
        "expected the blocks of pattern 'state.p.w' to be in [0, 6], "
        "but got " +
            std::to_string(blocks)));
  }
  for (auto missing :
       {&bsr_pattern_view::row_ptr, &bsr_pattern_view::col_idx}) {
    view = whole.view();
    view.*missing = nullptr;
    ASSERT_TRUE(fails(
        bsr_session_set_pattern(session.get(), 0, &view), BSR_INVALID_PATTERN,
        "expected row_ptr and col_idx of pattern 'state.p.w' to point "
        "somewhere, but got null"));
  }
  for (auto missing : {&bsr_pattern_view::slot, &bsr_pattern_view::col_ptr,
                       &bsr_pattern_view::row_idx, &bsr_pattern_view::slot_t}) {
    view = whole.view();
    view.*missing = nullptr;
    ASSERT_TRUE(fails(bsr_session_set_pattern(session.get(), 0, &view),
                      BSR_INVALID_PATTERN,
                      "expected slot, col_ptr, row_idx and slot_t of pattern "
                      "'state.p.w' together, but got some of them"));
  }
  ASSERT_TRUE(before == contentsOf(session, step));
}

TEST(PatternTest, ThatWasWrittenOverIsFoundOut) {
  Step step = loadFake();
  Session session = start(step);
  Folder folder;
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  static_cast<int32_t *>(dataOf(session, 6))[4] = 1 << 30;
  std::string sentence = "expected the blocks of pattern 'state.p.w' to be in "
                         "[0, 6], but got 1073741824";
  ASSERT_TRUE(fails(checkPatterns(session), BSR_INVALID_PATTERN, sentence));
  ASSERT_TRUE(fails(updatePatterns(session, 0.5, nullptr), BSR_INVALID_PATTERN,
                    sentence));
  ASSERT_TRUE(
      fails(bsr_session_save(session.get(), folder.file("saved").c_str(), ""),
            BSR_INVALID_PATTERN, sentence));
  ASSERT_TRUE(fails(
      bsr_session_write_pattern(session.get(), 0, folder.file("p").c_str()),
      BSR_INVALID_PATTERN, sentence));
  ASSERT_EQ(folder.numFiles(), 0u);
}

TEST(PatternTest, RefusesCountsOutOfRange) {
  Step step = loadFake();
  Session session = start(step);
  for (int64_t blocks : {-2, 7})
    ASSERT_TRUE(
        fails(bsr_session_make_pattern(session.get(), 0, blocks),
              BSR_INVALID_ARGUMENT,
              "expected the blocks of pattern 'state.p.w' to be in [0, 6], "
              "but got " +
                  std::to_string(blocks)));
  std::string sentence = "expected the index of one of 1 patterns, but got 1";
  bsr_pattern_view view = {};
  ASSERT_TRUE(fails(bsr_session_make_pattern(session.get(), 1, 0),
                    BSR_INVALID_ARGUMENT, sentence));
  ASSERT_TRUE(fails(bsr_session_set_pattern(session.get(), 1, &view),
                    BSR_INVALID_ARGUMENT, sentence));
  ASSERT_TRUE(fails(bsr_session_check_pattern(session.get(), 1, &view),
                    BSR_INVALID_ARGUMENT, sentence));
  ASSERT_TRUE(fails(bsr_session_get_pattern(session.get(), 1, &view),
                    BSR_INVALID_ARGUMENT, sentence));
  ASSERT_TRUE(fails(bsr_session_read_pattern(session.get(), 1, "x"),
                    BSR_INVALID_ARGUMENT, sentence));
  ASSERT_TRUE(fails(bsr_session_write_pattern(session.get(), 1, "x"),
                    BSR_INVALID_ARGUMENT, sentence));
}

/// The manifest of a step with one pattern, of 4 x 4 blocks, that is static.
static Json staticManifest() {
  Json manifest = makeManifest({{8, 8, 2, 2, 4}});
  Json &pattern = manifest["patterns"][0];
  pattern["static"] = true;
  pattern["row_ptr"] = {0, 1, 1, 3, 4};
  pattern["col_idx"] = {2, 0, 2, 1};
  pattern.erase("buffers");
  manifest["buffers"].erase(manifest["buffers"].begin() + 3,
                            manifest["buffers"].end());
  return manifest;
}

/// What a session of a step with `manifest`, which changes nothing, says when
/// it is to share the state of `source`.
static void refusesToShare(Json manifest, const Session &source,
                           const std::string &sentence) {
  for (Json &buffer : manifest["buffers"])
    buffer["carried"] = false;
  Step reader = load(manifest);
  bsr_session *shared = nullptr;
  ASSERT_TRUE(fails(bsr_session_share(reader.get(), source.get(), &shared),
                    BSR_INVALID_STEP, sentence));
}

TEST(PatternTest, IsSharedByStepsThatHaveIt) {
  Step fixed = load(staticManifest());
  Session source = start(fixed);
  Json other = staticManifest();
  other["patterns"][0]["col_idx"] = {2, 0, 3, 1};
  refusesToShare(
      other, source,
      "expected the static pattern of 'w0' as the source has it, but "
      "got another");

  Step step = load(makeManifest({{8, 8, 2, 2, 4}}));
  Session owner = start(step);
  other = makeManifest({{8, 8, 2, 2, 4}});
  for (Json &buffer : other["buffers"])
    if (buffer["kind"] == "values")
      buffer["name"] = "x" + std::string(buffer["name"]);
  refusesToShare(other, owner,
                 "expected the pattern of 'w0' to be of the state of step "
                 "'made', but it is not");
}

TEST(PatternTest, ThatIsStaticStays) {
  Step step = load(staticManifest());
  bsr_pattern_info info;
  ASSERT_TRUE(succeeds(bsr_step_pattern(step.get(), 0, &info)));
  ASSERT_EQ(info.is_static, 1);
  Session session = start(step);
  Arrays arrays = {{0, 1, 1, 3, 4}, {2, 0, 2, 1}, {0, 1, 2, 3},
                   {0, 1, 2, 4, 4}, {2, 3, 0, 2}, {1, 3, 0, 2}};
  ASSERT_TRUE(equal(viewOf(session), arrays.view(), 4, 4));
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  std::string before = contentsOf(session, step);
  int64_t pruned = -1;
  ASSERT_TRUE(succeeds(updatePatterns(session, 1, &pruned)));
  ASSERT_EQ(pruned, 0);
  ASSERT_TRUE(before == contentsOf(session, step));
  ASSERT_TRUE(equal(viewOf(session), arrays.view(), 4, 4));
  bsr_pattern_view view = arrays.view();
  std::string sentence =
      "expected a pattern that can change, but got 'w0', which is static";
  ASSERT_TRUE(fails(bsr_session_set_pattern(session.get(), 0, &view),
                    BSR_INVALID_ARGUMENT, sentence));
  ASSERT_TRUE(fails(bsr_session_read_pattern(session.get(), 0, "x"),
                    BSR_INVALID_ARGUMENT, sentence));
}

TEST(PatternTest, ThatIsStaticIsWritten) {
  Step step = load(staticManifest()),
       other = load(makeManifest({{8, 8, 2, 2, 4}}));
  Session session = start(step), reader = start(other);
  Folder folder;
  std::string path = folder.file("pattern.json");
  ASSERT_TRUE(
      succeeds(bsr_session_write_pattern(session.get(), 0, path.c_str())));
  ASSERT_TRUE(
      succeeds(bsr_session_read_pattern(reader.get(), 0, path.c_str())));
  ASSERT_TRUE(equal(viewOf(reader), viewOf(session), 4, 4));
}

TEST(PatternTest, ThatIsStaticIsThatOfACheckpoint) {
  Json manifest = staticManifest();
  Step step = load(manifest);
  Session session = start(step), resumed = start(step, 9);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  Folder folder;
  std::string path = folder.file("checkpoint");
  ASSERT_TRUE(succeeds(bsr_session_save(session.get(), path.c_str(), nullptr)));
  ASSERT_TRUE(succeeds(bsr_session_load(resumed.get(), path.c_str())));
  ASSERT_TRUE(contentsOf(session, step) == contentsOf(resumed, step));

  manifest["patterns"][0]["col_idx"] = {3, 0, 2, 1};
  Step other = load(manifest);
  Session refusing = start(other);
  ASSERT_TRUE(fails(bsr_session_load(refusing.get(), path.c_str()),
                    BSR_INVALID_CHECKPOINT,
                    "expected the static pattern 'w0' of this step, but got "
                    "another one in checkpoint '" +
                        path + "'"));
}

TEST(PatternTest, FileIsReadBackAsItWasWritten) {
  Step step = loadFake();
  Session session = start(step), other = start(step);
  Folder folder;
  std::string path = folder.file("pattern.json");
  Arrays arrays = example();
  bsr_pattern_view view = arrays.view();
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
  ASSERT_TRUE(
      succeeds(bsr_session_write_pattern(session.get(), 0, path.c_str())));
  ASSERT_EQ(folder.numFiles(), 1u);
  ASSERT_TRUE(succeeds(bsr_session_read_pattern(other.get(), 0, path.c_str())));
  ASSERT_TRUE(equal(viewOf(other), view, 4, 4));
}

TEST(PatternTest, FileMayLeaveOutSlotsAndColumns) {
  Step step = loadFake();
  Session session = start(step);
  Folder folder;
  std::string path = folder.file("pattern.json");
  writeFile(path, "{\"format\": \"bsr-pattern\", \"version\": 1, "
                  "\"shape\": [8, 12], \"block\": [2, 3], "
                  "\"row_ptr\": [0, 2, 2, 3, 3], \"col_idx\": [1, 2, 0]}");
  ASSERT_TRUE(
      succeeds(bsr_session_read_pattern(session.get(), 0, path.c_str())));
  bsr_pattern_view view = viewOf(session);
  ASSERT_EQ(view.blocks, 3);
  ASSERT_EQ(view.slot[2], 2);
  ASSERT_EQ(view.row_idx[0], 2);
  ASSERT_EQ(view.slot_t[0], 2);
  writeFile(path, "{\"format\": \"bsr-pattern\", \"version\": 1, "
                  "\"shape\": [8, 12], \"block\": [2, 3], "
                  "\"row_ptr\": [0, 0, 0, 0, 0], \"col_idx\": []}");
  ASSERT_TRUE(
      succeeds(bsr_session_read_pattern(session.get(), 0, path.c_str())));
  ASSERT_EQ(viewOf(session).blocks, 0);
}

TEST(PatternTest, FileThatIsWrongIsRefused) {
  Step step = loadFake();
  Session session = start(step);
  Folder folder;
  std::string path = folder.file("pattern.json");
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  ASSERT_TRUE(
      succeeds(bsr_session_write_pattern(session.get(), 0, path.c_str())));
  std::string whole = readFile(path), before = contentsOf(session, step);
  auto refuses = [&](bsr_status status, std::string sentence) {
    for (size_t at; (at = sentence.find('@')) != std::string::npos;)
      sentence.replace(at, 1, "pattern file '" + path + "'");
    ASSERT_TRUE(fails(bsr_session_read_pattern(session.get(), 0, path.c_str()),
                      status, sentence));
    ASSERT_TRUE(before == contentsOf(session, step));
  };
  struct {
    const char *place;
    const char *value; // JSON
    const char *sentence;
  } wrong[] = {
      {"/format", "\"x\"",
       "expected 'format' of @ to be \"bsr-pattern\", but got \"x\""},
      {"/version", "2",
       "expected 'version' of @ to be an integer in [1, 1], but got 2"},
      {"/shape", "[8, 8]",
       "expected 'shape' of @ to be [8, 12], but got [8,8]"},
      {"/block", "[3, 2]", "expected 'block' of @ to be [2, 3], but got [3,2]"},
      {"/row_ptr", "[0, 6]",
       "expected 'row_ptr' of @ to be of size 5, but got [0,6]"},
      {"/slot", "[1]", "expected 'slot' of @ to be of size 6, but got [1]"},
      {"/col_ptr", "[0]",
       "expected 'col_ptr' of @ to be of size 5, but got [0]"},
      {"/col_idx", "\"x\"",
       "expected 'col_idx' of @ to be an array, but got \"x\""},
      {"/col_idx/1", "3000000000",
       "expected 'col_idx[1]' of @ to be an integer in [-2147483648, "
       "2147483647], but got 3000000000"},
      {"/col_idx/1", "0.5",
       "expected 'col_idx[1]' of @ to be an integer in [-2147483648, "
       "2147483647], but got 0.5"},
      {"/row_ptr/0", "1",
       "expected row_ptr[0] of pattern 'state.p.w' to be 0, but got 1"},
  };
  for (auto &[place, value, sentence] : wrong) {
    writeFile(path, changed(Json::parse(whole), place, value).dump());
    refuses(BSR_INVALID_PATTERN, sentence);
  }
  writeFile(path, whole.substr(0, 50));
  refuses(BSR_INVALID_PATTERN,
          "expected @ to be JSON, but got an error at byte 51");
  std::filesystem::remove(path);
  refuses(BSR_IO_ERROR, "expected to read '" + path +
                            "', but got 'No such file or directory'");
}
