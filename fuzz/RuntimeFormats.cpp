// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The formats that the runtime and sparse-checkpoint read: manifests of steps,
// pattern files, checkpoints.

#include "../runtime/check/Sealed.h"
#include "../tools/sparse-checkpoint/Convert.h"
#include "../tools/sparse-checkpoint/Describe.h"
#include "Target.h"
#include "session/Session.h"
#include "support/File.h"

#include <cstring>

using namespace sparse_opt;

namespace {
/// A loaded step, and a session of it.
class Loaded {
public:
  Loaded() {
    fuzz::require(bsr_step_load(FAKE_STEP, &step) == BSR_OK, "the fake step");
  }
  ~Loaded() {
    bsr_session_destroy(session);
    bsr_step_unload(step);
  }
  Loaded(const Loaded &) = delete;
  Loaded &operator=(const Loaded &) = delete;

  /// Gives the step another manifest, and code that does nothing.
  void replaceManifest(Manifest manifest) {
    step->manifest = std::move(manifest);
    step->run = step->runScores = [](bsr_context *, void *const *, void *) {
      return int32_t(BSR_STEP_RAN);
    };
    step->timers = nullptr;
  }

  /// Whether there is a session in its first state.
  bool begin() {
    return bsr_session_create(step, "cpu", 1, &session) == BSR_OK &&
           bsr_session_initialize(session) == BSR_OK;
  }

  /// A run, and an update of every pattern; what they find is theirs to refuse.
  void go() {
    (void)bsr_session_run(session);
    int64_t count = bsr_step_num_patterns(step);
    std::vector<bsr_pattern_update> updates(
        size_t(count), bsr_pattern_update{BSR_SET, BSR_L1, 0.5, 0, 0, 0});
    (void)bsr_session_update(session, updates.data(), count);
  }

  bsr_step *step = nullptr;
  bsr_session *session = nullptr;
};

/// Reaches `limit`, and throws.
class Limit {
public:
  explicit Limit(int64_t limit) : left(limit) {}
  void operator()(std::string_view bytes) {
    if ((left -= int64_t(bytes.size())) < 0)
      fail(BSR_INVALID_CHECKPOINT, "expected less output");
  }

private:
  int64_t left;
};
} // namespace

/// The most bytes of a step that is run: nothing is learnt of larger ones.
static constexpr int64_t mostBytes = 1 << 24;

static void fuzzManifest(std::string_view input) {
  std::string text(input.substr(0, input.find('\0')));
  Loaded loaded;
  try {
    Manifest manifest = parseManifest(text.c_str(), "the manifest");
    int64_t bytes = manifest.arenaBytes;
    for (const Buffer &buffer : manifest.buffers)
      bytes += buffer.bytes;
    for (const Pattern &pattern : manifest.patterns)
      bytes += pattern.allBlocks() + pattern.slots * 64;
    if (bytes > mostBytes)
      return;
    loaded.replaceManifest(std::move(manifest));
  } catch (const Error &) {
    return;
  }
  fuzz::require(loaded.begin(), "a session of a valid manifest");
  loaded.go();
  std::string path = fuzz::temporaryFolder() + "/checkpoint";
  if (bsr_session_save(loaded.session, path.c_str(), "{}") == BSR_OK)
    fuzz::require(bsr_session_load(loaded.session, path.c_str()) == BSR_OK,
                  "a checkpoint that was saved to load");
}

static void fuzzPattern(std::string_view input) {
  Loaded loaded;
  fuzz::require(loaded.begin(), "a session of the fake step");
  fuzz::MemoryFile file(input);
  if (bsr_session_read_pattern(loaded.session, 0, file.path().c_str()))
    return;
  std::string path = fuzz::temporaryFolder() + "/pattern";
  auto write = [&] {
    fuzz::require(!bsr_session_write_pattern(loaded.session, 0, path.c_str()),
                  "a pattern that was read to be written");
    return readFile(path);
  };
  std::string first = write();
  fuzz::require(!bsr_session_read_pattern(loaded.session, 0, path.c_str()),
                "a pattern that was written to be read");
  fuzz::require(write() == first, "the same pattern");
  loaded.go();
}

static void fuzzCheckpoint(std::string_view input) {
  fuzz::MemoryFile file(check::sealed(std::string(input)));
  Loaded loaded;
  fuzz::require(loaded.begin(), "a session of the fake step");
  if (bsr_session_load(loaded.session, file.path().c_str()) == BSR_OK)
    loaded.go();
  try {
    Contents contents(file.path());
    FitOptions options;
    options.step = FAKE_STEP;
    options.initializeMissing = options.storeZeros = true;
    std::string output = fuzz::temporaryFolder() + "/output";
    try {
      writeFitted(contents, options, output);
    } catch (const Error &) {
      // The contents of another step.
    }
    if (!contents.isCheckpoint)
      return;
    (void)describe(contents);
    (void)drawPatterns(contents, {});
    Limit limit(mostBytes);
    for (auto &item : contents.file.header().items())
      if (item.key() != "__metadata__")
        contents.writeDense(item.key(), std::ref(limit));
    for (bool patterns : {false, true})
      writeDense(contents, patterns, output);
  } catch (const Error &) {
    // Refused.
  }
}

std::map<std::string, fuzz::Target> fuzz::targets() {
  return {{"manifest", fuzzManifest},
          {"pattern", fuzzPattern},
          {"checkpoint", fuzzCheckpoint}};
}
