// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds text, learns a vocabulary with SentencePiece, and encodes the text.

#include "Tokenize.h"
#include "Files.h"
#include "Progress.h"
#include "Tokens.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <set>
#include <thread>

using namespace sparse_opt;
using namespace sparse_opt::train;
namespace fs = std::filesystem;

/// The most bytes of a document, and of the text a vocabulary is learnt on.
static constexpr size_t maxDocument = 1 << 18;
static constexpr size_t maxSample = 2 << 20;

/// The most bytes of a line to learn from: SentencePiece aborts where a word
/// has more than 2^16 characters.
static constexpr size_t maxLine = 1 << 15;

// The special tokens, in the order of SentencePiece's flags below.
static constexpr uint32_t mask = 4;
static constexpr uint32_t firstOrdinary = 5;

/// The largest place up to `most` where a character begins in `text`, which is
/// longer than `most`.
static size_t cutPlace(std::string_view text, size_t most) {
  size_t place = most;
  // Bytes that go on with a character; there are at most three in UTF-8.
  while (place > most - 4 && (text[place] & 0xc0) == 0x80)
    --place;
  return place;
}

namespace {
/// The lines of documents, for SentencePiece to learn from.
class Lines : public sentencepiece::SentenceIterator {
public:
  explicit Lines(const std::vector<const std::string *> &documents)
      : documents(documents) {
    Next();
  }

  bool done() const override { return index == documents.size(); }
  const std::string &value() const override { return line; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    for (; index < documents.size(); ++index, begin = 0) {
      const std::string &text = *documents[index];
      while (begin < text.size()) {
        size_t end = std::min(text.find('\n', begin), text.size());
        bool isLong = end - begin > maxLine;
        if (isLong)
          end = begin + cutPlace(std::string_view(text).substr(begin), maxLine);
        line.assign(text, begin, end - begin);
        begin = end + !isLong;
        if (!line.empty())
          return;
      }
    }
  }

private:
  const std::vector<const std::string *> &documents;
  size_t index = 0, begin = 0;
  std::string line;
};
} // namespace

static bool endsWith(const std::string &text, const std::string &ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

/// Adds the files under `folder` to `files`. Links are followed, but no folder
/// is entered twice.
static void findFiles(const fs::path &folder,
                      const std::vector<std::string> &suffixes,
                      std::set<fs::path> &entered,
                      std::vector<std::string> &files) {
  if (!entered.insert(fs::canonical(folder)).second)
    return;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder)) {
    std::string path = entry.path().string();
    if (entry.is_directory())
      findFiles(entry.path(), suffixes, entered, files);
    else if (entry.is_regular_file() &&
             (suffixes.empty() ||
              std::any_of(suffixes.begin(), suffixes.end(),
                          [&](const auto &s) { return endsWith(path, s); })))
      files.push_back(path);
  }
}

/// Cuts `text` into documents after line ends; a line that is longer than a
/// document is cut between characters.
static void addDocuments(std::string_view text,
                         std::vector<std::string> &documents) {
  while (!text.empty()) {
    size_t end = text.size();
    if (end > maxDocument) {
      end = text.rfind('\n', maxDocument - 1) + 1;
      if (end == 0)
        end = cutPlace(text, maxDocument);
    }
    documents.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

/// What is learnt is written to two files, which is what they are called.
static std::string vocabularyPath(const TokenizeOptions &options) {
  return options.output + ".model";
}

/// Fails if `text` is a file that would be replaced.
static void requireOther(const TokenizeOptions &options,
                         const std::string &text) {
  std::error_code error; // of a file that is not there: another one
  for (const std::string &output : {options.output, vocabularyPath(options)})
    if (fs::equivalent(text, output, error))
      fail("expected --output to write other files than it reads, but got '",
           text, "', which it would replace");
}

/// Fails if the vocabulary would replace a file that is none: no option asked
/// for that name.
static void requireVocabulary(const std::string &path) {
  if (fs::exists(path) &&
      !sentencepiece::SentencePieceProcessor()
           .LoadFromSerializedProto(readFile(path, "vocabulary"))
           .ok())
    fail("expected '", path,
         "' to be a vocabulary, which --output replaces, "
         "but got another file");
}

/// Reads every document. Files in folders that hold a NUL byte are no text and
/// are passed over; where such a file is named, that is an error.
static std::vector<std::string> readDocuments(const TokenizeOptions &options) {
  std::vector<std::string> documents;
  for (const std::string &text : options.texts) {
    std::vector<std::string> files;
    bool isFolder = fs::is_directory(text);
    if (isFolder) {
      std::set<fs::path> entered;
      findFiles(text, options.suffixes, entered, files);
      std::sort(files.begin(), files.end());
    } else {
      files.push_back(text);
    }
    for (const std::string &file : files) {
      std::string contents = readStream(file, "text");
      bool isText = contents.find('\0') == std::string::npos;
      if (isText || !isFolder)
        requireOther(options, file);
      if (isText)
        addDocuments(contents, documents);
      else if (!isFolder)
        fail("expected '", file, "' to be text, but got a NUL byte at ",
             contents.find('\0'));
    }
  }
  return documents;
}

/// The number in `text` behind `words`, or "".
static std::string numberBehind(const std::string &text,
                                const std::string &words) {
  size_t begin = text.find(words);
  if (begin == text.npos)
    return "";
  begin += words.size();
  return text.substr(begin,
                     text.find_first_not_of("0123456789", begin) - begin);
}

/// Throws `Error` unless a vocabulary of `size` tokens was learnt. What
/// SentencePiece says of it speaks of its own sources and options.
static void checkLearnt(const sentencepiece::util::Status &status,
                        int64_t size) {
  if (status.ok())
    return;
  std::string reason = status.ToString();
  std::string most = numberBehind(reason, "set it to a value <= ");
  std::string least =
      numberBehind(reason, "required_chars. " + std::to_string(size) + " vs ");
  if (!most.empty())
    fail("expected --vocabulary to be at most ", most,
         ", what can be learnt of this text, but got ", size);
  if (!least.empty())
    fail("expected --vocabulary to be at least ", least,
         ", the characters of this text, but got ", size);
  // "<file>(<line>) [<condition>] <sentence>"
  if (size_t end = reason.rfind("] "); end != reason.npos)
    reason.erase(0, end + 2);
  fail("expected text to learn a vocabulary of ", size,
       " tokens from, but got: ", reason.empty() ? "none" : reason);
}

/// Learns a vocabulary on evenly spread documents of `documents`.
static std::string
learnVocabulary(const std::vector<const std::string *> &documents,
                int64_t size) {
  size_t bytes = 0;
  for (const std::string *document : documents)
    bytes += document->size();
  size_t stride = std::max<size_t>(1, (bytes + maxSample - 1) / maxSample);
  std::vector<const std::string *> sample;
  for (size_t i = 0; i < documents.size(); i += stride)
    sample.push_back(documents[i]);

  std::string model;
  Lines lines(sample);
  checkLearnt(sentencepiece::SentencePieceTrainer::Train(
                  {{"model_type", "bpe"},
                   {"vocab_size", std::to_string(size)},
                   {"byte_fallback", "true"},
                   {"normalization_rule_name", "identity"},
                   {"remove_extra_whitespaces", "false"},
                   {"add_dummy_prefix", "false"},
                   {"allow_whitespace_only_pieces", "true"},
                   {"max_sentence_length", std::to_string(maxDocument)},
                   {"num_threads", "1"},
                   {"minloglevel", "2"},
                   {"pad_id", "0"},
                   {"unk_id", "1"},
                   {"bos_id", "2"},
                   {"eos_id", "3"},
                   {"control_symbols", "[MASK]"}},
                  &lines, &model),
              size);
  return model;
}

/// Encodes a document line by line.
static std::vector<uint32_t>
encode(const sentencepiece::SentencePieceProcessor &processor,
       std::string_view text) {
  uint32_t newline = processor.PieceToId("<0x0A>");
  std::vector<uint32_t> tokens;
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::vector<int> ids = processor.EncodeAsIds(
        absl::string_view(text.data(), std::min(end, text.size())));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    if (end == std::string_view::npos)
      break;
    tokens.push_back(newline);
    text.remove_prefix(end + 1);
  }
  tokens.push_back(Vocabulary::separator);
  return tokens;
}

/// Encodes all documents on all processors.
static std::vector<std::vector<uint32_t>>
encode(const sentencepiece::SentencePieceProcessor &processor,
       const std::vector<std::string> &documents) {
  std::vector<std::vector<uint32_t>> encoded(documents.size());
  std::atomic<size_t> next = 0, done = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < documents.size(); ++done)
      encoded[i] = encode(processor, documents[i]);
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency());
       ++i)
    workers.emplace_back(work);
  {
    Progress progress("encode documents", documents.size(), documents.size());
    for (size_t seen = 0; seen < documents.size();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (size_t count = done; count > seen)
        progress.update(seen = count, "");
    }
  }
  for (std::thread &worker : workers)
    worker.join();
  return encoded;
}

/// How the piece `id` joins others to words. In a piece "▁" stands for a space.
static WordEnds
wordEndsOf(const sentencepiece::SentencePieceProcessor &processor, int id) {
  static constexpr std::string_view space = "\xe2\x96\x81";
  auto isWord = [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) || c == '_';
  };
  if (processor.IsControl(id) || processor.IsUnknown(id))
    return {false, false};
  std::string piece = processor.IdToPiece(id);
  if (processor.IsByte(id)) // "<0x41>"
    piece = char(std::stoi(piece.substr(3, 2), nullptr, 16));
  bool beginsWithSpace = piece.compare(0, space.size(), space) == 0;
  return {!beginsWithSpace && isWord(piece.front()),
          !endsWith(piece, std::string(space)) && isWord(piece.back())};
}

void train::tokenize(const TokenizeOptions &options) {
  requireVocabulary(vocabularyPath(options));
  std::vector<std::string> documents = readDocuments(options);
  size_t every = std::max<size_t>(2, std::lround(1 / options.heldOut));
  if (documents.size() < every)
    fail("expected at least ", every, " documents to hold out one of every ",
         every, ", but got ", documents.size());
  auto isHeldOut = [&](size_t i) { return i % every == every - 1; };

  std::vector<const std::string *> trained;
  for (size_t i = 0; i < documents.size(); ++i)
    if (!isHeldOut(i))
      trained.push_back(&documents[i]);
  std::string model = learnVocabulary(trained, options.vocabulary);
  sentencepiece::SentencePieceProcessor processor;
  [[maybe_unused]] auto status = processor.LoadFromSerializedProto(model);
  assert(status.ok() && "SentencePiece loads what it has learnt");
  std::vector<std::vector<uint32_t>> encoded = encode(processor, documents);

  std::vector<uint32_t> train, heldOut;
  for (size_t i = 0; i < encoded.size(); ++i) {
    std::vector<uint32_t> &part = isHeldOut(i) ? heldOut : train;
    part.insert(part.end(), encoded[i].begin(), encoded[i].end());
  }
  Vocabulary vocabulary = {uint32_t(processor.GetPieceSize()), firstOrdinary,
                           mask};
  std::vector<WordEnds> wordEnds;
  for (uint32_t id = 0; id < vocabulary.size; ++id)
    wordEnds.push_back(wordEndsOf(processor, id));
  writeFile(vocabularyPath(options), "vocabulary", {model});
  Tokens::write(options.output, vocabulary, wordEnds, train, heldOut);
  std::printf("%s: %zu documents, %zu tokens to train on and %zu held out, "
              "vocabulary %u, unigram entropy %.4f nats\n",
              options.output.c_str(), documents.size(), train.size(),
              heldOut.size(), vocabulary.size,
              Tokens::read(options.output).unigramEntropy());
}
