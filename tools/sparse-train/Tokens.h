// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The token file: a corpus as numbers, in a part to train on and a part held
// out.

#ifndef BSR_TOOLS_SPARSETRAIN_TOKENS_H
#define BSR_TOOLS_SPARSETRAIN_TOKENS_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sparse_opt::train {

/// What a token file says about its numbers.
struct Vocabulary {
  /// Ids that every vocabulary has: the first token of a pair of sentences, and
  /// the one behind a document and behind a sentence of a pair.
  static constexpr uint32_t first = 2, separator = 3;

  /// Token ids are in [0, size).
  uint32_t size;
  /// Ids below this one stand for no text (padding, separators, the mask): they
  /// are never masked nor drawn as a random replacement.
  uint32_t firstOrdinary;
  /// The id that hides a token.
  uint32_t mask;
};

/// Which ends of a token are characters of words: letters, digits, underscores,
/// and all outside ASCII. Two tokens belong to one word if the end of the first
/// and the beginning of the second are such; a character that is none is a word
/// of its own.
struct WordEnds {
  bool begins, ends;
};

/// A token file, read whole. All numbers are little-endian:
///
///     char     magic[8]       "BSRTOKEN"
///     uint32   version        2; 1 has no words
///     uint32   width          bytes of a token: 2 or 4
///     uint64   checksum       FNV-1a of everything that follows
///     uint32   vocabulary     size, firstOrdinary, mask (see Vocabulary)
///     uint32   zero
///     uint64   trainCount
///     uint64   heldOutCount
///     uint16/32 tokens[trainCount + heldOutCount]
///     uint8    words[vocabulary size]    of each id 1 if it begins with a
///                             character of words, 2 if it ends with one
class Tokens {
public:
  /// The tokens of one part of the file.
  class Part {
  public:
    Part(const char *data, uint64_t count, uint32_t width)
        : data(data), count(count), width(width) {}

    uint64_t size() const { return count; }
    uint32_t operator[](uint64_t i) const;

  private:
    const char *data;
    uint64_t count;
    uint32_t width;
  };

  /// Reads `path`. Throws `Error` for anything but an intact token file.
  static Tokens read(const std::string &path);

  /// Writes a token file; every token is less than `vocabulary.size`, which is
  /// the number of `wordEnds`.
  static void write(const std::string &path, const Vocabulary &vocabulary,
                    const std::vector<WordEnds> &wordEnds,
                    const std::vector<uint32_t> &train,
                    const std::vector<uint32_t> &heldOut);

  const Vocabulary &vocabulary() const;
  /// Of each id; empty if the file does not say.
  std::vector<WordEnds> wordEnds() const;
  /// Tells this file from others.
  uint64_t checksum() const;
  Part train() const;
  Part heldOut() const;

  /// Entropy of the frequencies of the held-out tokens in nats: the loss of the
  /// best model that knows nothing of a token's neighbours.
  double unigramEntropy() const;

private:
  std::string contents;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TOKENS_H
