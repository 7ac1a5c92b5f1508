// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lengths of sequences that a run has a step for, and when each has its
// turn.

#ifndef BSR_TOOLS_SPARSETRAIN_LENGTHS_H
#define BSR_TOOLS_SPARSETRAIN_LENGTHS_H

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace YAML {
class Emitter;
class Node;
} // namespace YAML

namespace sparse_opt {
struct KeyRule;
}

namespace sparse_opt::train {

/// What a run with one step, for sequences of whatever length, has in the place
/// of a length.
inline constexpr int64_t anyLength = 0;

/// A file for sequences of whatever length, or one for each length.
class LengthFiles {
public:
  /// What a configuration may say.
  static constexpr const char *inWords =
      "a file, or a map of lengths to files, as {128: a, 512: b}";

  bool empty() const { return files.empty(); }
  /// Whether they are told by lengths.
  bool haveLengths() const { return !files.empty() && !files.count(anyLength); }
  /// All of them by their lengths; a single one is that of `anyLength`.
  const std::map<int64_t, std::string> &all() const { return files; }
  /// The lengths.
  std::set<int64_t> lengths() const;
  /// Makes those that begin with "./" lie in the folder of the file `path`.
  void moveTo(const std::string &path);
  /// In words, for a message.
  std::string describe() const;

private:
  friend bool convert(const YAML::Node &node, const KeyRule &rule,
                      LengthFiles &files);
  friend void emitValue(YAML::Emitter &out, const LengthFiles &files);

  std::map<int64_t, std::string> files;
};

/// Which length the batches of each training step have: from some steps on one
/// length, or one that is drawn by shares.
class Lengths {
public:
  static constexpr const char *inWords =
      "a map of steps, the first of which is 0, to the length from there on or "
      "to shares of lengths, as {0: 128, 900: {128: 0.1, 512: 0.9}}";

  bool empty() const { return phases.empty(); }
  /// All that may have a turn.
  std::set<int64_t> all() const;
  /// That of training step `step`, counted from 0; `anyLength` if there are no
  /// lengths. What is drawn is keyed by (seed, step).
  int64_t at(int64_t step, uint64_t seed) const;
  /// Up to which step, not included, `at` is known to be what it is at `step`.
  int64_t lastsUntil(int64_t step) const;
  /// How many of the first `steps` training steps have `length`, on average
  /// over seeds.
  double expected(int64_t steps, int64_t length) const;

private:
  friend bool convert(const YAML::Node &node, const KeyRule &rule,
                      Lengths &lengths);
  friend void emitValue(YAML::Emitter &out, const Lengths &lengths);

  /// The shares of lengths by the steps from which on they hold.
  std::map<int64_t, std::map<int64_t, double>> phases;
};

/// How many steps had a length before. What was counted is kept: for a later
/// step only those between are.
class LengthCounts {
public:
  LengthCounts(const Lengths &lengths, uint64_t seed)
      : lengths(lengths), seed(seed) {}

  /// Of the training steps before `step`, those that have `length`.
  int64_t before(int64_t step, int64_t length);

private:
  const Lengths lengths;
  const uint64_t seed;
  int64_t counted = 0; // steps
  std::map<int64_t, int64_t> counts;
};

/// Read a value of a configuration; false if it is none.
bool convert(const YAML::Node &node, const KeyRule &rule, LengthFiles &files);
bool convert(const YAML::Node &node, const KeyRule &rule, Lengths &lengths);

/// Print a value so that `convert` reads it back.
void emitValue(YAML::Emitter &out, const LengthFiles &files);
void emitValue(YAML::Emitter &out, const Lengths &lengths);

/// "128 and 512": lengths in words.
std::string describe(const std::set<int64_t> &lengths);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_LENGTHS_H
