// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes token files.

#include "Tokens.h"
#include "Files.h"
#include "support/Hash.h"

#include <cmath>
#include <cstring>

using namespace sparse_opt;
using namespace sparse_opt::train;

namespace {
/// The head of a token file, as it lies on disk.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t width;
  uint64_t checksum;
  Vocabulary vocabulary;
  uint32_t zero;
  uint64_t trainCount;
  uint64_t heldOutCount;
};
static_assert(sizeof(Header) == 56, "the layout is documented in Tokens.h");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "token files are little-endian");
} // namespace

static constexpr char magic[] = "BSRTOKEN";
static constexpr uint32_t version = 2, versionWithoutWords = 1;
/// The largest vocabulary that is made.
static constexpr uint32_t mostTokens = 1 << 24;
/// Where the part of the header that the checksum covers begins.
static constexpr size_t checked = offsetof(Header, vocabulary);

static const Header &header(const std::string &contents) {
  return *reinterpret_cast<const Header *>(contents.data());
}

/// The bytes behind the tokens.
static uint64_t wordBytes(const Header &head) {
  return head.version == versionWithoutWords ? 0 : head.vocabulary.size;
}

uint32_t Tokens::Part::operator[](uint64_t i) const {
  uint32_t token = 0;
  std::memcpy(&token, data + i * width, width);
  return token;
}

Tokens Tokens::read(const std::string &path) {
  Tokens tokens;
  tokens.contents = readFile(path, "token file");
  std::string_view contents = tokens.contents;
  if (contents.substr(0, sizeof(Header::magic)) != magic)
    fail("expected '", path, "' to be a token file (made by sparse-train ",
         "tokenize), but got a file that begins otherwise");
  if (contents.size() < sizeof(Header))
    fail("expected token file '", path, "' to have at least ", sizeof(Header),
         " bytes, but got ", contents.size());
  const Header &head = header(tokens.contents);
  if (head.version != version && head.version != versionWithoutWords)
    fail("expected token file '", path, "' to have version ",
         versionWithoutWords, " or ", version, ", but got ", head.version);
  if (head.width != 2 && head.width != 4)
    fail("expected token file '", path, "' to have tokens of 2 or 4 bytes, ",
         "but got ", head.width);

  uint64_t body = contents.size() - sizeof(Header), words = wordBytes(head);
  uint64_t limit = body < words ? 0 : (body - words) / head.width;
  if (body < words || (body - words) % head.width || head.trainCount > limit ||
      head.heldOutCount != limit - head.trainCount)
    fail("expected token file '", path, "' to hold ", head.trainCount, " + ",
         head.heldOutCount, " tokens of ", head.width, " bytes and ", words,
         " bytes on words, but got ", body, " bytes");
  if (uint64_t sum = fnv1a(contents.substr(checked)); sum != head.checksum)
    fail("expected token file '", path, "' to have checksum ", head.checksum,
         ", but got ", sum);
  if (head.vocabulary.mask >= head.vocabulary.firstOrdinary ||
      head.vocabulary.firstOrdinary >= head.vocabulary.size)
    fail("expected token file '", path, "' to order its mask (",
         head.vocabulary.mask, "), first ordinary token (",
         head.vocabulary.firstOrdinary, ") and vocabulary size (",
         head.vocabulary.size, ")");
  if (head.vocabulary.size > mostTokens)
    fail("expected token file '", path, "' to have a vocabulary of at most ",
         mostTokens, ", but got ", head.vocabulary.size);
  Part all(contents.data() + sizeof(Header), limit, head.width);
  for (uint64_t i = 0; i < limit; ++i)
    if (all[i] >= head.vocabulary.size)
      fail("expected token ", i, " of token file '", path,
           "' to be less than its vocabulary size (", head.vocabulary.size,
           "), but got ", all[i]);
  return tokens;
}

void Tokens::write(const std::string &path, const Vocabulary &vocabulary,
                   const std::vector<WordEnds> &wordEnds,
                   const std::vector<uint32_t> &train,
                   const std::vector<uint32_t> &heldOut) {
  Header head = {};
  std::memcpy(head.magic, magic, sizeof(head.magic));
  head.version = version;
  head.width = vocabulary.size <= 1u << 16 ? 2 : 4;
  head.vocabulary = vocabulary;
  head.trainCount = train.size();
  head.heldOutCount = heldOut.size();
  std::string body;
  body.reserve((train.size() + heldOut.size()) * head.width + wordEnds.size());
  for (const std::vector<uint32_t> *part : {&train, &heldOut})
    for (const uint32_t &token : *part)
      body.append(reinterpret_cast<const char *>(&token), head.width);
  for (const WordEnds &ends : wordEnds)
    body += char(ends.begins | ends.ends << 1);

  std::string_view bytes(reinterpret_cast<const char *>(&head), sizeof(head));
  head.checksum = fnv1a(body, fnv1a(bytes.substr(checked)));
  writeFile(path, "token file", {bytes, body});
}

const Vocabulary &Tokens::vocabulary() const {
  return header(contents).vocabulary;
}

std::vector<WordEnds> Tokens::wordEnds() const {
  std::vector<WordEnds> ends;
  uint64_t count = wordBytes(header(contents));
  for (uint64_t i = contents.size() - count; i < contents.size(); ++i)
    ends.push_back({(contents[i] & 1) != 0, (contents[i] & 2) != 0});
  return ends;
}

uint64_t Tokens::checksum() const { return header(contents).checksum; }

Tokens::Part Tokens::train() const {
  const Header &head = header(contents);
  return Part(contents.data() + sizeof(Header), head.trainCount, head.width);
}

Tokens::Part Tokens::heldOut() const {
  const Header &head = header(contents);
  return Part(contents.data() + sizeof(Header) + head.trainCount * head.width,
              head.heldOutCount, head.width);
}

double Tokens::unigramEntropy() const {
  Part part = heldOut();
  std::vector<uint64_t> counts(vocabulary().size);
  for (uint64_t i = 0; i < part.size(); ++i)
    ++counts[part[i]];
  double entropy = 0;
  for (uint64_t count : counts)
    if (count)
      entropy -= count * std::log(double(count) / part.size());
  return entropy / part.size();
}
