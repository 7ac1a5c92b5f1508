// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints that are refused, and change nothing.

#include "Assertions.h"
#include "CheckpointFile.h"
#include "Sealed.h"
#include <cstring>

using namespace check;

/// Tries to load `file` into a trained session, which must not change.
class Refusals {
public:
  Refusals() : session(trained(step, 1)), before(state()) {
    writeFile(path, "");
  }

  std::string state() const {
    bsr_counters counters = countersOf(session);
    return contentsOf(session, step) + std::to_string(counters.seed) + " " +
           std::to_string(counters.steps) + " " +
           bsr_session_metadata(session.get());
  }

  /// Demands that `file` is refused.
  void refuse(const std::string &file) {
    writeFile(path, file);
    ASSERT_EQ(int(bsr_session_check(session.get(), path.c_str())),
              int(BSR_INVALID_CHECKPOINT));
    ASSERT_EQ(int(bsr_session_load(session.get(), path.c_str())),
              int(BSR_INVALID_CHECKPOINT));
    ASSERT_TRUE(state() == before);
  }

  /// Why `file` is refused, with "@" for its name.
  std::string reason(const std::string &file) {
    refuse(file);
    std::string text = bsr_last_error(), name = "checkpoint '" + path + "'";
    for (size_t at; (at = text.find(name)) != std::string::npos;)
      text.replace(at, name.size(), "@");
    return text;
  }

  Step step = loadFake();
  Session session;
  Folder folder;
  std::string path = folder.file("checkpoint");
  std::string before;
};

TEST(CheckpointTest, TruncatedAnywhereIsRefused) {
  Refusals refusals;
  std::string good = goodFile();
  for (size_t size = 0; size < good.size(); ++size)
    refusals.refuse(good.substr(0, size));
  ASSERT_EQ(refusals.reason(""), "expected the header of @ to fit into its "
                                 "0 bytes, but got a length of 0");
  ASSERT_EQ(refusals.reason(good.substr(0, 100)),
            "expected the header of @ to fit into its 100 bytes, but got a "
            "length of " +
                std::to_string(headerOf(good).dump().size() / 8 * 8 + 8));
  std::string found = headerOf(good)["__metadata__"]["checksum"];
  std::string reason = refusals.reason(good.substr(0, good.size() - 1));
  ASSERT_EQ(reason.substr(0, reason.size() - 16),
            "expected the contents of @ to have the checksum " + found +
                ", but got ");
  refusals.refuse(good + '\0');
}

TEST(CheckpointTest, WithAnyBitFlippedIsRefused) {
  Refusals refusals;
  std::string good = goodFile();
  ASSERT_GT(8 * good.size(), 10000u);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = char(bad[bit / 8] ^ 1 << bit % 8);
    refusals.refuse(bad);
  }
}

TEST(CheckpointTest, WhoseTensorsOverlapIsRefused) {
  Refusals refusals;
  std::string good = goodFile();
  Json header = headerOf(good);
  auto offsets = [](Json &entry) -> Json & { return entry["data_offsets"]; };
  Json overlapping = header;
  offsets(overlapping["state.p.b"]) = offsets(header["state.m.w"]);
  offsets(overlapping["state.p.b"])[1] = 48;
  std::string reason = refusals.reason(withHeader(good, overlapping));
  ASSERT_EQ(reason, "expected the tensors of @ to follow one another to "
                    "the end, but got one that ends at byte 48, and byte "
                    "0 after it");

  // A hole, and more bytes than tensors.
  std::string more = withHeader(good + "more", header);
  Json &last = header["state.p.w.bsr.newest"];
  int64_t end = offsets(last)[1];
  ASSERT_EQ(refusals.reason(more),
            "expected the tensors of @ to follow one another to the end, "
            "but got one that ends at byte " +
                std::to_string(end) + ", and byte " + std::to_string(end + 4) +
                " after it");
  Json shifted = header;
  offsets(shifted["state.flags"]) = {end + 1, end + 4};
  ASSERT_EQ(refusals.reason(withHeader(good + "more", shifted)).substr(0, 50),
            "expected the tensors of @ to follow one another to");
}

TEST(CheckpointTest, WithAKeyTwiceIsRefused) {
  Refusals refusals;
  std::string good = goodFile();
  Parts parts(good);
  parts.header = headerOf(good).dump();
  parts.header.insert(1, "\"state.p.b\":{\"dtype\":\"F32\",\"shape\":[12],"
                         "\"data_offsets\":[0,48]},");
  ASSERT_EQ(
      refusals.reason(sealed(parts.file())),
      "expected the header of @ to have each key once, but got 'state.p.b' "
      "twice");
}

TEST(CheckpointTest, WithAnEndlessHeaderIsRefused) {
  Refusals refusals;
  uint64_t size = 100000001;
  std::string file(reinterpret_cast<char *>(&size), 8);
  ASSERT_EQ(refusals.reason(file + std::string(size, ' ')),
            "expected the header of @ to have at most 100000000 bytes, but "
            "got 100000001");
  for (uint64_t length : {uint64_t(-1), uint64_t(1) << 63, uint64_t(1) << 32}) {
    std::memcpy(file.data(), &length, 8);
    ASSERT_EQ(refusals.reason(file),
              "expected the header of @ to fit into its 8 bytes, but got a "
              "length of " +
                  std::to_string(length));
  }
  // Deeper than any header is.
  size = 100000;
  std::memcpy(file.data(), &size, 8);
  refusals.refuse(file + std::string(size, '['));
}

TEST(CheckpointTest, OfAnotherBlockSizeIsRefused) {
  Folder folder;
  std::string path = folder.file("checkpoint");
  Step step = load(makeManifest({{8, 8, 2, 2, 8}}));
  Step other = load(makeManifest({{8, 8, 4, 4, 2}}));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  save(session, path);
  ASSERT_TRUE(fails(bsr_session_load(start(other).get(), path.c_str()),
                    BSR_INVALID_CHECKPOINT,
                    "expected 'shape' of tensor 'w0' of checkpoint '" + path +
                        "' to be [2,4,4], but got [8,2,2]"));
}

TEST(CheckpointTest, WithBitsBeyondTheMatrixIsRefused) {
  Refusals refusals;
  std::string file = goodFile();
  file[file.size() - 16 + 2] = 1; // bit 16 of 16
  ASSERT_EQ(refusals.reason(sealed(file)),
            "expected tensor 'state.p.w.bsr.ever' of @ to hold 16 bits, "
            "but got more");
}

TEST(CheckpointTest, ThatIsForeignIsRefused) {
  Refusals refusals;
  ASSERT_EQ(refusals.reason("I am a text, not a checkpoint."),
            "expected the header of @ to fit into its 30 bytes, but got a "
            "length of 8367794899556311113");
  std::string other("\x02\0\0\0\0\0\0\0{}", 10);
  ASSERT_EQ(refusals.reason(other),
            "expected '__metadata__' of the header of @ to be an object, "
            "but got nothing");
  other.back() = ']';
  ASSERT_EQ(refusals.reason(other),
            "expected the header of @ to be JSON, but got an error at byte 2");
  other[8] = '[';
  ASSERT_EQ(refusals.reason(other),
            "expected the header of @ to be an object, but got []");
}

TEST(CheckpointTest, WithAWrongEntryIsRefused) {
  Refusals refusals;
  std::string good = goodFile();
  struct {
    const char *place;
    const char *value; // JSON
    const char *sentence;
  } wrong[] = {
      {"/__metadata__/format", "\"pt\"",
       "expected 'format' of '__metadata__' of the header of @ to be "
       "\"bsr-checkpoint\", but got \"pt\""},
      {"/__metadata__/version", "\"2\"",
       "expected 'version' of '__metadata__' of the header of @ to be \"1\", "
       "but got \"2\""},
      {"/__metadata__/seed", "\"-1\"",
       "expected 'seed' of the metadata of @ to be a number from 0, but got "
       "\"-1\""},
      {"/__metadata__/seed", "\"18446744073709551616\"",
       "expected 'seed' of the metadata of @ to be a number from 0, but got "
       "\"18446744073709551616\""},
      {"/__metadata__/steps", "\"\"",
       "expected 'steps' of the metadata of @ to be a number from 0, but got "
       "\"\""},
      {"/__metadata__/steps", "\"-3\"",
       "expected 'steps' of the metadata of @ to be a number from 0, but got "
       "\"-3\""},
      {"/__metadata__/pattern_updates", "\"1x\"",
       "expected 'pattern_updates' of the metadata of @ to be a number from 0, "
       "but got \"1x\""},
      {"/__metadata__/blocks_pruned", "1",
       "expected 'blocks_pruned' of the metadata of @ to be a string, but got "
       "1"},
      {"/__metadata__/blocks_regrown", nullptr,
       "expected 'blocks_regrown' of the metadata of @ to be a string, but got "
       "nothing"},
      {"/__metadata__/metadata", nullptr,
       "expected 'metadata' of the metadata of @ to be a string, but got "
       "nothing"},
      {"/__metadata__/manifest", nullptr,
       "expected 'manifest' of the metadata of @ to be a string, but got "
       "nothing"},
      {"/state.p.b", nullptr, "expected tensor 'state.p.b' in @, but got none"},
      {"/state.p.b", "1",
       "expected tensor 'state.p.b' of @ to be an object, but got 1"},
      {"/state.p.b/dtype", "\"F16\"",
       "expected 'dtype' of tensor 'state.p.b' of @ to be \"F32\", but got "
       "\"F16\""},
      {"/state.p.b/shape", "[3, 4]",
       "expected 'shape' of tensor 'state.p.b' of @ to be [12], but got [3,4]"},
      {"/state.p.w/shape/0", "4611686018427387904",
       "expected 'shape' of tensor 'state.p.w' of @ to be [6,2,3], but got "
       "[4611686018427387904,2,3]"},
      {"/state.p.b/data_offsets", "[0, 44]",
       "expected 'data_offsets' of tensor 'state.p.b' of @ to be a start and "
       "an end 48 bytes on, but got [0,44]"},
      {"/state.p.b/data_offsets", "[0]",
       "expected 'data_offsets' of tensor 'state.p.b' of @ to be a start and "
       "an end 48 bytes on, but got [0]"},
      {"/state.p.b/data_offsets", "[400, 448]",
       "expected 'data_offsets[1]' of tensor 'state.p.b' of @ to be an integer "
       "in [0, 427], but got 448"},
      {"/state.p.w.bsr.slot", nullptr,
       "expected tensor 'state.p.w.bsr.slot' in @, but got none"},
      {"/state.p.w.bsr.slot/shape", "[5]",
       "expected 'shape' of tensor 'state.p.w.bsr.slot' of @ to be [6], but "
       "got [5]"},
      {"/state.p.w.bsr.col_idx/shape", "[6, 1]",
       "expected 'shape' of tensor 'state.p.w.bsr.col_idx' of @ to be one "
       "size, but got [6,1]"},
      {"/state.p.w.bsr.col_idx/shape", "[4611686018427387904]",
       "expected 'shape' of tensor 'state.p.w.bsr.col_idx' of @ to be one "
       "size, but got [4611686018427387904]"},
      {"/state.p.w.bsr.ever/shape", "[4]",
       "expected 'shape' of tensor 'state.p.w.bsr.ever' of @ to be [8], but "
       "got [4]"},
      {"/state.p.w.bsr.newest", nullptr,
       "expected tensor 'state.p.w.bsr.newest' in @, but got none"},
      {"/more", "[1]",
       "expected a checkpoint of this step, but got @ with another tensor "
       "'more'"},
  };
  for (auto &[place, value, sentence] : wrong) {
    Json header = changed(headerOf(good), place, value);
    ASSERT_EQ(refusals.reason(withHeader(good, header)), sentence);
  }
  for (const char *checksum : {"", "12345678901234567", "0123456789abcdeF"}) {
    Json header = headerOf(good);
    header["__metadata__"]["checksum"] = checksum;
    Parts parts(good);
    parts.header = header.dump();
    std::string reason = refusals.reason(parts.file());
    if (std::strlen(checksum) != 16)
      ASSERT_EQ(reason, "expected 'checksum' of '__metadata__' of the "
                        "header of @ to be 16 hexadecimal digits, but got "
                        "\"" +
                            std::string(checksum) + "\"");
  }
}

TEST(CheckpointTest, WithABrokenPatternIsRefused) {
  Refusals refusals;
  std::string good = goodFile();
  Json header = headerOf(good);
  auto spoiled = [&](const char *array, int place, int32_t value) {
    Parts bad(good);
    int64_t offset =
        header["state.p.w.bsr." + std::string(array)]["data_offsets"][0];
    std::memcpy(&bad.data[size_t(offset) + 4 * size_t(place)], &value, 4);
    return refusals.reason(sealed(bad.file()));
  };
  ASSERT_EQ(spoiled("row_ptr", 0, 1), "expected row_ptr[0] of pattern "
                                      "'state.p.w' to be 0, but got 1, in @");
  ASSERT_EQ(spoiled("row_ptr", 1, 2000000000),
            "expected row_ptr[1] of pattern 'state.p.w' to be in [0, 6], "
            "but got 2000000000, in @");
  ASSERT_EQ(spoiled("slot", 2, 6),
            "expected slot[2] of pattern "
            "'state.p.w' to be in [0, 5], but got 6, in @");
}

TEST(CheckpointTest, OfAnotherModelIsRefused) {
  Refusals refusals;
  Folder folder;
  std::string path = folder.file("other");
  Json manifest = fakeManifest();
  manifest["buffers"][2]["name"] = "state.p.c";
  Step step = load(manifest);
  save(start(step), path);
  ASSERT_EQ(refusals.reason(readFile(path)),
            "expected tensor 'state.p.b' in @, but got none");
}
