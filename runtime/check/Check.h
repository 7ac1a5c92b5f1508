// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of the runtime are made of: files, manifests, steps and sessions.

#ifndef BSR_RUNTIME_CHECK_H
#define BSR_RUNTIME_CHECK_H

#include "bsr/runtime.h"
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace check {

using Json = nlohmann::json;

/// Throws the error of a call that failed.
void require(bsr_status status);

/// A folder for the files of one test, gone at its end.
class Folder {
public:
  Folder();
  ~Folder();
  std::string file(const std::string &name) const { return path / name; }
  size_t numFiles() const;

private:
  std::filesystem::path path;
};

std::string readFile(const std::string &path);
void writeFile(const std::string &path, const std::string &contents);

/// The bytes of the fake step's library, and its manifest.
/// The path of a fake step, which lies in the folder `lib` beside that of the
/// program: "" is the one that works, others lack what their name says.
std::string fakePath(const std::string &name = "");
const std::string &fakeStep();
Json fakeManifest();

/// `json` with `value`, a text of JSON, at `place`; null takes away what is
/// there.
Json changed(Json json, const char *place, const char *value);

/// Writes the fake step with another manifest to `path`.
void writeStep(const std::string &path, const std::string &manifest);

/// A matrix of a manifest that the tests make up.
struct Matrix {
  int64_t rows, cols, blockRows, blockCols, slots;
  const char *type = "f32";
  double density = 0.5;
  bool hasScores = false;
};

/// A manifest with a weight, "w0", "w1", ..., and two moments for each matrix,
/// the second of which begins with 0.25 everywhere: of matrix i these are
/// buffers 9 i to 9 i + 2, and the index buffers follow.
/// Behind all of them are the scores of the matrices that have any, in the
/// arena behind 64 bytes.
Json makeManifest(const std::vector<Matrix> &matrices);

using Step = std::unique_ptr<bsr_step, void (*)(bsr_step *)>;
using Session = std::unique_ptr<bsr_session, void (*)(bsr_session *)>;

/// The fake step; one with the manifest `manifest`; a session with `seed`.
Step loadFake();
Step load(const Json &manifest);
Session start(const Step &step, uint64_t seed = 1);

bsr_pattern_view viewOf(const Session &session, int64_t pattern = 0);
void *dataOf(const Session &session, int64_t buffer);

/// Fills a buffer by `rule`, as bsr_session_initialize does by the manifest's.
bsr_status initBuffer(const Session &session, int64_t buffer,
                      const std::string &rule);

/// Validates the patterns of a session where they lie.
bsr_status checkPatterns(const Session &session);

/// Updates every pattern by set with norm L1 and no return; `pruned`, if not
/// null, receives the number of blocks pruned.
bsr_status updatePatterns(const Session &session, double drop, int64_t *pruned);

bsr_counters countersOf(const Session &session);

/// All buffers of `session`, arrays of patterns only up to their blocks.
std::string contentsOf(const Session &session, const Step &step);

/// Deterministic numbers for the tests.
class Numbers {
public:
  explicit Numbers(uint64_t seed) : state(seed) {}
  uint64_t below(uint64_t bound);

private:
  uint64_t state;
};

/// Any rule, with the corners often among its numbers.
bsr_pattern_update anyRule(const Matrix &matrix, Numbers &numbers);

} // namespace check

#endif // BSR_RUNTIME_CHECK_H
