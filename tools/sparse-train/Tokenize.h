// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns text into a token file.

#ifndef BSR_TOOLS_SPARSETRAIN_TOKENIZE_H
#define BSR_TOOLS_SPARSETRAIN_TOKENIZE_H

#include <cstdint>
#include <string>
#include <vector>

namespace sparse_opt::train {

struct TokenizeOptions {
  /// Files, and folders that are searched for files.
  std::vector<std::string> texts;
  /// Endings of the names of the files taken from folders; all if empty.
  std::vector<std::string> suffixes;
  /// The token file. The vocabulary is written beside it, as "<output>.model".
  std::string output;
  /// Number of different tokens.
  int64_t vocabulary = 4096;
  /// Share of the documents that are held out.
  double heldOut = 0.05;
};

/// Learns a vocabulary (byte-pair encoding with bytes for what it lacks) on a
/// sample of the text that is trained on, encodes all text with it, and writes
/// both. The result is a function of the options and the text. A file is a
/// document; a longer one than 256 KiB is several. What is held out are whole
/// documents, evenly spread over the files in the order of their paths. Every
/// line ends in the newline byte, every document in a separator.
void tokenize(const TokenizeOptions &options);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TOKENIZE_H
