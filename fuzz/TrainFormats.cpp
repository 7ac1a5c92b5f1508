// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The formats that sparse-train reads: token files, configurations, dense
// weights, arrays of NumPy, and the lines that it wrote itself.

#include "../tools/sparse-train/Config.h"
#include "../tools/sparse-train/JsonLines.h"
#include "../tools/sparse-train/Tokens.h"
#include "Target.h"
#include "support/Error.h"
#include "support/Hash.h"
#include "support/NumpyArray.h"
#include "support/TensorFile.h"

#include <cstring>
#include <filesystem>
#include <fstream>

using namespace sparse_opt;
using namespace sparse_opt::train;
namespace fs = std::filesystem;

static void fuzzTokens(std::string_view input) {
  // Tokens.h: the checksum stands at 16, and is of what follows it.
  constexpr size_t place = 16, checked = 24;
  std::string bytes(input);
  if (bytes.size() >= checked) {
    uint64_t sum = fnv1a(std::string_view(bytes).substr(checked));
    std::memcpy(&bytes[place], &sum, sizeof(sum));
  }
  fuzz::MemoryFile file(bytes);
  try {
    Tokens tokens = Tokens::read(file.path());
    uint64_t sum = 0;
    for (const Tokens::Part &part : {tokens.train(), tokens.heldOut()})
      for (uint64_t i = 0; i < part.size(); ++i)
        sum += part[i];
    fuzz::require(sum < UINT64_MAX, "a sum of tokens");
    (void)tokens.unigramEntropy();
    size_t words = tokens.wordEnds().size();
    fuzz::require(words == 0 || words == tokens.vocabulary().size,
                  "words for each token or none");
  } catch (const Error &) {
    // Refused.
  }
}

static void fuzzConfiguration(std::string_view input) {
  fuzz::MemoryFile file(input);
  const std::vector<std::string> required = {"step=a", "tokens=b", "run=c"};
  try {
    // The first line as a setting.
    std::string line(input.substr(0, input.find('\n')));
    try {
      (void)readConfig("", {line, "step=a", "tokens=b", "run=c"});
    } catch (const Error &) {
      // Refused.
    }
    Config config = readConfig(file.path(), required);
    std::string text = toYAML(config);
    fuzz::MemoryFile again(text);
    fuzz::require(toYAML(readConfig(again.path(), {})) == text,
                  "a configuration that reads back");
    (void)decidingValues(config);
  } catch (const Error &) {
    // Refused.
  }
}

static void fuzzSafetensors(std::string_view input) {
  fuzz::MemoryFile file(input);
  try {
    TensorFile tensors("safetensors file", file.path());
    for (ElementType type : {ElementType::F16, ElementType::BF16,
                             ElementType::F32, ElementType::F64})
      try {
        std::string_view data = tensors.read("state.w", type, {8, 8});
        fuzz::require(data.size() == size_t(64 * bytesOf(type)),
                      "as many bytes as the tensor has");
      } catch (const Error &) {
        // Of another type or shape.
      }
  } catch (const Error &) {
    // Refused.
  }
}

static void fuzzNpy(std::string_view input) {
  try {
    NumpyArray array = parseNpy(input, "'a.npy'");
    int64_t bytes = bytesOf(array.type);
    for (int64_t extent : array.shape)
      bytes *= extent;
    fuzz::require(int64_t(array.data.size()) == bytes,
                  "as many bytes as the array has");
  } catch (const Error &) {
    // Refused.
  }
}

static void fuzzLines(std::string_view input) {
  if (input.empty())
    return;
  // The first byte says how much is kept, and of what kind.
  int64_t last = input[0] & 0x7f;
  auto kind = input[0] & 0x80 ? JsonLines::Any : JsonLines::OneAStep;
  fs::path folder = fuzz::temporaryFolder() + "/lines";
  fs::remove_all(folder);
  fs::create_directory(folder);
  std::string path = folder / "metrics.jsonl";
  std::ofstream(path, std::ios::binary) << input.substr(1);
  auto open = [&] {
    size_t count = 0;
    JsonLines lines;
    lines.open(path, last, kind, [&](auto &) { ++count; });
    return count;
  };
  size_t first = open();
  size_t files = std::distance(fs::directory_iterator(folder), {});
  fuzz::require(open() == first, "the same lines again");
  fuzz::require(std::distance(fs::directory_iterator(folder), {}) ==
                    std::ptrdiff_t(files),
                "no damage in what was written");
  JsonLines lines;
  lines.open(path, last, kind);
  lines.add({{"step", last + 1}});
}

std::map<std::string, fuzz::Target> fuzz::targets() {
  return {{"tokens", fuzzTokens},
          {"configuration", fuzzConfiguration},
          {"npy", fuzzNpy},
          {"safetensors", fuzzSafetensors},
          {"lines", fuzzLines}};
}
