// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints: resumed bit for bit, never half-written.

#include "Assertions.h"
#include "CheckpointFile.h"
#include "Sealed.h"
#include <cmath>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace check;

TEST(CheckpointTest, ResumesBitForBit) {
  Step step = loadFake();
  Folder folder;
  std::string path = folder.file("checkpoint");
  for (int saved = 0; saved <= 6; ++saved) {
    Session whole = trained(step, 6);
    Session first = trained(step, saved);
    save(first, path, "{\"cursor\": 17}");
    Session rest = start(step, 999);
    ASSERT_TRUE(succeeds(bsr_session_load(rest.get(), path.c_str())));
    ASSERT_EQ(std::string(bsr_session_metadata(rest.get())),
              "{\"cursor\": 17}");
    ASSERT_EQ(std::string(bsr_session_step_difference(rest.get())), "");
    *static_cast<float *>(dataOf(rest, 5)) = 0.05f;
    for (int i = saved; i < 6; ++i) {
      ASSERT_TRUE(succeeds(bsr_session_run(rest.get())));
      ASSERT_TRUE(succeeds(updatePatterns(rest, 0.5, nullptr)));
    }
    // The loss is an output: it is there once the step has run.
    if (saved < 6)
      ASSERT_TRUE(contentsOf(rest, step) == contentsOf(whole, step));
    bsr_counters a = countersOf(whole), b = countersOf(rest);
    ASSERT_EQ(a.seed, b.seed);
    ASSERT_EQ(a.steps, b.steps);
    ASSERT_EQ(a.pattern_updates, b.pattern_updates);
    ASSERT_EQ(a.blocks_pruned, b.blocks_pruned);
    ASSERT_EQ(a.blocks_regrown, b.blocks_regrown);
  }
}

TEST(CheckpointTest, IsASafetensorsFile) {
  Step step = loadFake();
  Folder folder;
  std::string path = folder.file("checkpoint");
  Session session = trained(step, 3, uint64_t(-1));
  save(session, path, "a\"\\\n\xc3\xa9");
  ASSERT_EQ(folder.numFiles(), 1u);
  std::string file = readFile(path);
  Json header = headerOf(file);
  Parts parts(file);
  ASSERT_EQ(parts.header.size() % 8, 0u);

  Json metadata = header["__metadata__"];
  for (auto &[key, value] : metadata.items())
    ASSERT_TRUE(value.is_string());
  ASSERT_EQ(metadata["format"], "bsr-checkpoint");
  ASSERT_EQ(metadata["version"], "1");
  ASSERT_EQ(metadata["seed"], "18446744073709551615");
  ASSERT_EQ(metadata["steps"], "3");
  ASSERT_EQ(metadata["pattern_updates"], "3");
  ASSERT_EQ(metadata["blocks_pruned"], "9");
  ASSERT_EQ(metadata["blocks_regrown"], "9");
  ASSERT_EQ(Json::parse(metadata["matrices"].get<std::string>()),
            Json::parse("[{\"name\": \"state.p.w\", \"shape\": [8, 12], "
                        "\"block\": [2, 3], \"slots\": 6, \"values\": "
                        "[\"state.p.w\", \"state.m.w\"]}]"));
  ASSERT_EQ(metadata["metadata"], "a\"\\\n\xc3\xa9");
  // A step that does not say what its code is is its library; the manifest
  // without what says so is compared apart.
  ASSERT_EQ(metadata["code"],
            sparse_opt::hexadecimal(sparse_opt::xxh64(readFile(fakePath()))));
  ASSERT_EQ(metadata["compilation"], "{\"target_cpu\":\"any\"}");
  auto manifest =
      nlohmann::ordered_json::parse(bsr_step_manifest_text(step.get()));
  manifest.erase("target_cpu");
  ASSERT_EQ(metadata["manifest"],
            sparse_opt::hexadecimal(sparse_opt::xxh64(manifest.dump())));
  ASSERT_TRUE(sealed(file) == file);

  // The tensors follow one another, aligned, to the end.
  struct {
    const char *name, *type;
    Json shape;
    int64_t buffer, bytes;
  } tensors[] = {{"state.m.w", "F32", {6, 2, 3}, 1, 144},
                 {"state.p.b", "F32", {12}, 2, 48},
                 {"state.p.w", "F32", {6, 2, 3}, 0, 144},
                 {"state.p.w.bsr.col_idx", "I32", {6}, 7, 24},
                 {"state.p.w.bsr.row_ptr", "I32", {5}, 6, 20},
                 {"state.p.w.bsr.slot", "I32", {6}, 8, 24},
                 {"state.t", "I32", Json::array(), 3, 4},
                 {"state.flags", "BOOL", {3}, 4, 3},
                 {"state.p.w.bsr.ever", "I8", {8}, -1, 8},
                 {"state.p.w.bsr.newest", "I8", {8}, -1, 8}};
  int64_t offset = 0;
  ASSERT_EQ(header.size(), 11u);
  for (auto &[name, type, shape, buffer, bytes] : tensors) {
    Json entry = header[name];
    ASSERT_EQ(entry["dtype"], type);
    ASSERT_EQ(entry["shape"], shape);
    ASSERT_EQ(entry["data_offsets"], Json({offset, offset + bytes}));
    if (buffer >= 0)
      ASSERT_TRUE(std::memcmp(parts.data.data() + offset,
                              dataOf(session, buffer), size_t(bytes)) == 0);
    offset += bytes;
  }
  ASSERT_EQ(uint64_t(offset), parts.data.size());
}

TEST(CheckpointTest, KeepsPatternsWithSpareSlots) {
  Step step = load(makeManifest({{8, 8, 2, 2, 12}, {4, 4, 2, 2, 4}}));
  Folder folder;
  std::string path = folder.file("checkpoint");
  for (int64_t blocks : {0, 1, 7}) {
    Session session = start(step), other = start(step, 2);
    ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
    ASSERT_TRUE(succeeds(bsr_session_make_pattern(session.get(), 0, blocks)));
    ASSERT_TRUE(succeeds(updatePatterns(session, 0.5, nullptr)));
    save(session, path);
    ASSERT_TRUE(succeeds(bsr_session_load(other.get(), path.c_str())));
    ASSERT_TRUE(contentsOf(session, step) == contentsOf(other, step));
    // Which slots are unused is known to the one that loaded, too.
    for (const Session *each : {&session, &other})
      ASSERT_TRUE(succeeds(initBuffer(*each, 0, "ones")));
    ASSERT_TRUE(contentsOf(session, step) == contentsOf(other, step));
    ASSERT_EQ(std::string(bsr_session_metadata(other.get())), "");
  }
}

TEST(CheckpointTest, IsCheckedWithoutAChange) {
  Step step = loadFake();
  Folder folder;
  std::string path = folder.file("checkpoint");
  ASSERT_TRUE(succeeds(
      bsr_session_save(trained(step, 2).get(), path.c_str(), "notes")));
  Session session = trained(step, 1);
  std::string before = contentsOf(session, step);
  ASSERT_TRUE(succeeds(bsr_session_check(session.get(), path.c_str())));
  ASSERT_EQ(std::string(bsr_session_metadata(session.get())), "notes");
  ASSERT_TRUE(contentsOf(session, step) == before);
  ASSERT_EQ(countersOf(session).steps, 1);
}

static bsr_pattern_statistics statisticsOf(const Session &session) {
  bsr_pattern_statistics statistics;
  require(bsr_session_statistics(session.get(), 0, &statistics));
  return statistics;
}

TEST(CheckpointTest, HoldsZerosInSlotsWithoutABlock) {
  Step step = loadFake();
  Session session = start(step), clean = start(step);
  Folder folder;
  for (const Session *each : {&session, &clean}) {
    ASSERT_TRUE(succeeds(bsr_session_initialize(each->get())));
    ASSERT_TRUE(succeeds(bsr_session_make_pattern(each->get(), 0, 4)));
  }
  // Slots 4 and 5 are left; a step may write there.
  std::fill_n(static_cast<float *>(dataOf(session, 1)) + 24, 12, std::nanf(""));
  save(session, folder.file("a"));
  save(clean, folder.file("b"));
  ASSERT_TRUE(readFile(folder.file("a")) == readFile(folder.file("b")));
}

TEST(CheckpointTest, KeepsTheHistoryOfPatterns) {
  Step step = load(makeManifest({{40, 40, 2, 2, 70}}));
  Folder folder;
  std::string path = folder.file("checkpoint");
  Session session = start(step), other = start(step, 2);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  ASSERT_TRUE(succeeds(bsr_session_initialize(other.get())));
  auto update = [](const Session &each) {
    ASSERT_TRUE(succeeds(updatePatterns(each, 0.3, nullptr)));
  };
  update(session);
  update(session);
  update(other);
  save(session, path);
  ASSERT_TRUE(succeeds(bsr_session_load(other.get(), path.c_str())));
  int64_t ever = statisticsOf(session).ever_stored;
  ASSERT_GT(ever, 70);
  ASSERT_EQ(statisticsOf(other).ever_stored, ever);
  // What the last update did is forgotten; what it regrew is not.
  ASSERT_EQ(statisticsOf(other).pruned, 0);
  update(session);
  update(other);
  bsr_pattern_statistics a = statisticsOf(session), b = statisticsOf(other);
  ASSERT_TRUE(std::memcmp(&a, &b, sizeof a) == 0);
  ASSERT_EQ(a.newest, 21);
  ASSERT_EQ(a.newest_pruned, 21); // their values are zero

  // A pattern that is set later does not begin the history again.
  ASSERT_TRUE(succeeds(bsr_session_make_pattern(other.get(), 0, 1)));
  ASSERT_EQ(statisticsOf(other).ever_stored, b.ever_stored);
}

TEST(CheckpointTest, OfAnotherBuildOfTheModelLoads) {
  Json manifest = fakeManifest();
  manifest["code"] = "0123456789abcdef";
  manifest["compiler"] = {{"level", 3}, {"version", "a"}};
  // What of the manifest another build has, and what is said.
  struct {
    const char *patch, *difference;
  } builds[] = {
      {"{}", ""},
      // The same code, whatever it was made with, is the same step.
      {"{\"target_cpu\": \"other\", \"target_features\": [],"
       " \"compiler\": {\"level\": 0}}",
       ""},
      {"{\"code\": \"0123456789abcdee\"}", "other code"},
      {"{\"code\": \"0123456789abcdee\", \"target_cpu\": \"z\","
       " \"compiler\": {\"level\": 0, \"version\": null, \"l1_bytes\": 4}}",
       "other code: target_cpu z, was any; l1_bytes 4, was unknown; level 0, "
       "was 3; version unknown, was a"},
      {"{\"arena_bytes\": 4096}", "another manifest"},
      {"{\"code\": \"0000000000000000\"}", "other code"}, // not known: the file
  };
  Folder folder;
  std::string path = folder.file("checkpoint");
  save(trained(load(manifest), 2), path);
  for (auto &[patch, difference] : builds) {
    Json other = manifest;
    other.merge_patch(Json::parse(patch));
    Session session = start(load(other));
    ASSERT_EQ(std::string(bsr_session_step_difference(session.get())), "");
    ASSERT_TRUE(succeeds(bsr_session_check(session.get(), path.c_str())));
    ASSERT_EQ(std::string(bsr_session_step_difference(session.get())),
              difference);
    ASSERT_EQ(countersOf(session).steps, 0);
    ASSERT_TRUE(succeeds(bsr_session_load(session.get(), path.c_str())));
    ASSERT_EQ(std::string(bsr_session_step_difference(session.get())),
              difference);
    ASSERT_EQ(countersOf(session).steps, 2);
  }
}

TEST(CheckpointTest, BehindALink) {
  Folder folder;
  std::string path = folder.file("link"), target = folder.file("target");
  Step step = loadFake();
  Session session = trained(step, 1);
  save(session, target);
  std::filesystem::create_symlink(target, path);
  Session other = start(step);
  ASSERT_TRUE(succeeds(bsr_session_load(other.get(), path.c_str())));
  ASSERT_TRUE(contentsOf(session, step).substr(0, 300) ==
              contentsOf(other, step).substr(0, 300));
  // A new checkpoint replaces the link, not what it points to; and it is not
  // written where another link points.
  std::string before = readFile(target);
  save(trained(step, 2), path);
  ASSERT_TRUE(readFile(target) == before);
  ASSERT_FALSE(std::filesystem::is_symlink(path));
  std::filesystem::create_symlink(target, path + ".tmp");
  ASSERT_TRUE(fails(bsr_session_save(session.get(), path.c_str(), ""),
                    BSR_IO_ERROR,
                    "expected to write '" + path +
                        ".tmp', but got 'Too many levels of symbolic links'"));
  ASSERT_TRUE(readFile(target) == before);
}

TEST(CheckpointTest, RefusesWithoutHistory) {
  std::string good = goodFile();
  Json header = headerOf(good);
  for (const char *name : {"state.p.w.bsr.ever", "state.p.w.bsr.newest"})
    header.erase(name);
  Folder folder;
  std::string path = folder.file("bare");
  // Its tensors stand last.
  writeFile(path, sealed(withHeader(good.substr(0, good.size() - 16), header)));
  Step step = loadFake();
  Session session = trained(step, 3);
  ASSERT_TRUE(fails(bsr_session_load(session.get(), path.c_str()),
                    BSR_INVALID_CHECKPOINT,
                    "expected tensor 'state.p.w.bsr.ever' in checkpoint '" +
                        path + "', but got none"));
}

TEST(CheckpointTest, RefusesMetadataThatIsNoUTF8) {
  Step step = loadFake();
  Session session = start(step);
  Folder folder;
  ASSERT_TRUE(
      fails(bsr_session_save(session.get(), folder.file("x").c_str(), "a\xff"),
            BSR_INVALID_ARGUMENT,
            "expected the metadata of a checkpoint to be UTF-8, but got "
            "'\"a\\ufffd\"'"));
  ASSERT_EQ(folder.numFiles(), 0u);
}

TEST(CheckpointTest, RefusesMetadataThatNoHeaderHolds) {
  Step step = loadFake();
  Session session = start(step);
  Folder folder;
  std::string metadata(100'000'000, 'a'), path = folder.file("x");
  ASSERT_EQ(bsr_session_save(session.get(), path.c_str(), metadata.c_str()),
            BSR_INVALID_ARGUMENT);
  std::string expected = "expected names, shapes and metadata for '" + path +
                         "' that fit into a header of 100000000 bytes, but got "
                         "1000";
  ASSERT_EQ(std::string(bsr_last_error()).substr(0, expected.size()), expected);
  ASSERT_EQ(folder.numFiles(), 0u);
}

TEST(CheckpointTest, ThatCannotBeWrittenLeavesTheOldOne) {
  Step step = loadFake();
  Folder folder;
  std::string path = folder.file("checkpoint");
  save(trained(step, 1), path);
  std::string old = readFile(path);
  Session session = trained(step, 2);

  // A limit on the size of files is a full device that needs no device.
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit, least;
  getrlimit(RLIMIT_FSIZE, &limit);
  for (rlim_t size : {rlim_t(0), rlim_t(8), rlim_t(old.size() - 1)}) {
    least = limit;
    least.rlim_cur = size;
    setrlimit(RLIMIT_FSIZE, &least);
    bsr_status status =
        bsr_session_save(session.get(), path.c_str(), "{\"cursor\": 1}");
    setrlimit(RLIMIT_FSIZE, &limit);
    ASSERT_TRUE(
        fails(status, BSR_IO_ERROR,
              "expected to write '" + path + "', but got 'File too large'"));
    ASSERT_TRUE(readFile(path) == old);
    ASSERT_EQ(folder.numFiles(), 1u);
  }
  ASSERT_TRUE(succeeds(bsr_session_save(session.get(), path.c_str(), "")));
  ASSERT_TRUE(readFile(path) != old);
}

TEST(CheckpointTest, NeedsAPlace) {
  Step step = loadFake();
  Session session = start(step);
  Folder folder;
  std::string path = folder.file("none/checkpoint");
  ASSERT_TRUE(fails(bsr_session_save(session.get(), path.c_str(), ""),
                    BSR_IO_ERROR,
                    "expected to write '" + path +
                        ".tmp', but got 'No such file or directory'"));
  ASSERT_TRUE(fails(bsr_session_load(session.get(), path.c_str()), BSR_IO_ERROR,
                    "expected to read '" + path +
                        "', but got 'No such file or directory'"));
  path = folder.file("folder");
  std::filesystem::create_directory(path);
  ASSERT_TRUE(fails(
      bsr_session_save(session.get(), path.c_str(), ""), BSR_IO_ERROR,
      "expected '" + path + "' to be a file, but got a folder or a device"));
  ASSERT_TRUE(fails(bsr_session_load(session.get(), path.c_str()), BSR_IO_ERROR,
                    "expected '" + path +
                        "' to be a file, but got a folder or a device"));
  ASSERT_EQ(folder.numFiles(), 1u);
}

TEST(CheckpointTest, IsWrittenByOneAtATime) {
  Step step = loadFake();
  Session session = start(step);
  Folder folder;
  std::string path = folder.file("checkpoint");
  int other = open((path + ".tmp").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  ASSERT_TRUE(fails(bsr_session_save(session.get(), path.c_str(), ""),
                    BSR_IO_ERROR,
                    "expected to write '" + path +
                        ".tmp', but got 'Resource temporarily unavailable'"));
  ASSERT_EQ(folder.numFiles(), 1u);
  // What a killed process left is no hindrance.
  close(other);
  save(session, path);
  ASSERT_EQ(folder.numFiles(), 1u);
  ASSERT_TRUE(succeeds(bsr_session_load(session.get(), path.c_str())));
}

TEST(CheckpointTest, InTheWorkingFolder) {
  Step step = loadFake();
  Session session = start(step);
  Folder folder;
  std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.file(""));
  bsr_status saved = bsr_session_save(session.get(), "checkpoint", "");
  bsr_status loaded = bsr_session_load(session.get(), "checkpoint");
  std::filesystem::current_path(before);
  ASSERT_TRUE(succeeds(saved));
  ASSERT_TRUE(succeeds(loaded));
}

TEST(CheckpointTest, SurvivesBeingKilled) {
  Step step = load(makeManifest({{512, 512, 16, 16, 600}}));
  Folder folder;
  std::string path = folder.file("checkpoint");
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  save(session, path);
  Session reader = start(step);
  for (int round = 0; round < 40; ++round) {
    pid_t child = fork();
    if (child == 0)
      for (;;)
        (void)bsr_session_save(session.get(), path.c_str(), "");
    usleep(useconds_t(500 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_TRUE(succeeds(bsr_session_load(reader.get(), path.c_str())));
    ASSERT_TRUE(contentsOf(reader, step) == contentsOf(session, step));
  }
}
