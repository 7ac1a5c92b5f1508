// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every part of sparse-train needs: errors, whole files, random numbers.

#ifndef BSR_TOOLS_SPARSETRAIN_SUPPORT_H
#define BSR_TOOLS_SPARSETRAIN_SUPPORT_H

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace bsr {

/// A failure whose message is one sentence for the user.
struct Error : std::runtime_error {
  using runtime_error::runtime_error;
};

/// Throws an `Error` whose message is the concatenation of `parts`.
template <typename... Ts>
[[noreturn]] void fail(const Ts &...parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

/// Returns the contents of the file `path`; `what` names it in the error.
std::string readFile(const std::string &path, std::string_view what);

/// The same of a file, a pipe or a device that the user names: nothing of what
/// a folder may hold is waited for.
std::string readStream(const std::string &path, std::string_view what);

/// Replaces `path` by a file that holds `parts` one after the other. The file
/// is written under a temporary name, flushed and renamed, so that a failure
/// leaves what was there before. Links are not followed.
void writeFile(const std::string &path, std::string_view what,
               std::initializer_list<std::string_view> parts);

/// A file that is added to.
class OutputFile {
public:
  OutputFile() = default;
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  /// Opens the file `path`, or makes it, which must not be there then. Links
  /// are not followed. `what` names the file in errors.
  void open(const std::string &path, std::string_view what);
  void create(const std::string &path, std::string_view what);
  void write(std::string_view bytes);
  /// Returns once the file is on the device.
  void flush() const;

private:
  void open(const std::string &path, std::string_view what, int flags);
  [[noreturn]] void failToWrite() const;

  std::string path, what;
  int number = -1;
};

/// A name for the file `path` when it is set aside: "<path>.<word>", or with a
/// number behind it where that is taken.
std::string nameAside(const std::string &path, std::string_view word);

/// 64 bits of FNV-1a over `bytes`, going on from `hash`.
uint64_t hashBytes(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325u);

/// A stream of random numbers that is a pure function of its key, so that a
/// resumed run draws what an uninterrupted one draws. SplitMix64 (Steele, Lea,
/// Flood: Fast splittable pseudorandom number generators, 2014).
class Random {
public:
  Random(uint64_t seed, uint64_t stream, uint64_t counter)
      : state(mix(mix(mix(seed) ^ stream) ^ counter)) {}

  uint64_t next() { return mix(state += 0x9e3779b97f4a7c15u); }
  /// An integer in [0, bound). Bounds up to 2^32 take the upper half of the
  /// bits, larger ones all.
  uint64_t below(uint64_t bound) {
    if (bound <= uint64_t(1) << 32)
      return (next() >> 32) * bound >> 32;
    using Product = unsigned __int128;
    return uint64_t(Product(next()) * bound >> 64);
  }

private:
  static uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t state;
};

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_SUPPORT_H
