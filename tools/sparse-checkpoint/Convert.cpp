// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Unpacks blocks, and packs them for a step.

#include "Convert.h"
#include "base/Element.h"
#include "session/Session.h"
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

using namespace sparse_opt;

void sparse_opt::writeDense(const Contents &contents, bool patterns,
                            const std::string &output) {
  contents.requireCheckpoint();
  // Of what a file of no blocks stands for no disk has enough.
  constexpr int64_t leastLimit = int64_t(1) << 30, mostPerByte = 10000;
  int64_t most = std::max(leastLimit, contents.file.size() * mostPerByte);
  int64_t left = most;
  std::vector<Tensor> tensors;
  for (auto &item : contents.file.header().items()) {
    const std::string &name = item.key();
    if (name == "__metadata__" || (!patterns && contents.isOfPattern(name)))
      continue;
    Tensor tensor = contents.file.read(name);
    if (const Matrix *matrix = contents.findValues(name)) {
      const Pattern &pattern = matrix->pattern;
      tensor.shape = {pattern.rows, pattern.cols};
      tensor.write = [&contents, name](const Sink &sink) {
        contents.writeDense(name, sink);
      };
      left -= pattern.rows * pattern.cols * bytesOf(tensor.type);
      if (left < 0)
        fail(BSR_INVALID_CHECKPOINT, "expected the dense matrices of ",
             contents.file.where(), " to have at most ", most,
             " bytes, but got more with '", name, "'");
    }
    tensors.push_back(std::move(tensor));
  }
  OrderedJson texts;
  for (auto &[key, text] : contents.texts)
    if (key != "checksum" && (patterns || key == "seed" || key == "steps"))
      texts[key] = text;
  texts["format"] = "bsr-dense";
  writeTensors(output, texts, tensors);
}

static void check(bsr_status status) {
  if (status != BSR_OK)
    throw Error(status, bsr_last_error());
}

namespace {
/// Fills a session of a step.
class Fit {
public:
  Fit(const Contents &contents, const FitOptions &options);

  void write(const std::string &output) const;

private:
  void fitPattern(int64_t index);
  void setPattern(int64_t index, const Matrix &source);
  void takeLargest(int64_t index);
  void fitBuffer(int64_t index);
  void fitHistory(int64_t index);
  void readCounters();
  void refuseOthers() const;

  /// The dense form of a matrix that shares the pattern of `pattern`; "" if it
  /// is missing and may be.
  std::string read(const std::string &name, bsr_type type,
                   const std::vector<int64_t> &shape);

  /// The pattern of the session as a matrix.
  Matrix fitted(int64_t index) const;

  struct Release {
    void operator()(bsr_step *step) const { bsr_step_unload(step); }
    void operator()(bsr_session *session) const {
      bsr_session_destroy(session);
    }
  };

  const Contents &contents;
  const FitOptions &options;
  std::unique_ptr<Contents> patterns;
  std::unique_ptr<bsr_step, Release> step;
  std::unique_ptr<bsr_session, Release> session;
  std::set<std::string> used;
  bool isReblocked = false;
};
} // namespace

Fit::Fit(const Contents &contents, const FitOptions &options)
    : contents(contents), options(options) {
  bsr_step *newStep;
  check(bsr_step_load(options.step.c_str(), &newStep));
  step.reset(newStep);
  bsr_session *newSession;
  // Blocks are read and written where the processor has them.
  check(bsr_session_create(newStep, "cpu", options.seed, &newSession));
  session.reset(newSession);
  if (!options.patterns.empty()) {
    patterns = std::make_unique<Contents>(options.patterns);
    patterns->requireCheckpoint();
  }

  check(bsr_session_initialize(newSession));
  const Manifest &manifest = session->manifest();
  for (size_t i = 0; i < manifest.patterns.size(); ++i)
    fitPattern(int64_t(i));
  for (size_t i = 0; i < manifest.buffers.size(); ++i)
    if (isKept(manifest.buffers[i]))
      fitBuffer(int64_t(i));
  readCounters();
  for (size_t i = 0; i < manifest.patterns.size(); ++i)
    fitHistory(int64_t(i));
  refuseOthers();
}

std::string Fit::read(const std::string &name, bsr_type type,
                      const std::vector<int64_t> &shape) {
  if (!contents.file.has(name) && options.initializeMissing)
    return "";
  used.insert(name);
  const Matrix *matrix = contents.findValues(name);
  if (!matrix)
    return std::string(contents.file.read(name, elementType(type), shape));
  const Pattern &pattern = matrix->pattern;
  contents.file.read(name, elementType(type),
                     {pattern.slots, pattern.blockRows, pattern.blockCols});
  if (shape != std::vector{pattern.rows, pattern.cols})
    fail(BSR_INVALID_CHECKPOINT, "expected '", name, "' of ",
         contents.file.where(), " to be a matrix ", Json(shape).dump(),
         ", but got one ", Json{pattern.rows, pattern.cols}.dump());
  return contents.dense(name);
}

Matrix Fit::fitted(int64_t index) const {
  Matrix matrix = {session->manifest().patterns[index], {}};
  bsr_pattern_view view = session->view(index);
  const Pattern &pattern = matrix.pattern;
  matrix.pattern.arrays[0].assign(view.row_ptr,
                                  view.row_ptr + pattern.gridRows() + 1);
  matrix.pattern.arrays[1].assign(view.col_idx, view.col_idx + view.blocks);
  matrix.pattern.arrays[2].assign(view.slot, view.slot + view.blocks);
  return matrix;
}

void Fit::fitPattern(int64_t index) {
  const Pattern &pattern = session->manifest().patterns[index];
  const Matrix *source = contents.findPattern(pattern.name);
  if (!source && patterns) {
    source = patterns->findPattern(pattern.name);
    if (!source)
      fail(BSR_INVALID_CHECKPOINT, "expected a pattern '", pattern.name,
           "' in ", patterns->file.where(), ", but got none");
  }
  if (source)
    setPattern(index, *source);
  else if (!pattern.isStatic)
    takeLargest(index);
}

/// Makes the blocks of pattern `index` those that hold the elements that
/// `source` stores.
void Fit::setPattern(int64_t index, const Matrix &source) {
  const Pattern &to = session->manifest().patterns[index];
  const Pattern &from = source.pattern;
  if (from.rows != to.rows || from.cols != to.cols)
    fail(BSR_INVALID_CHECKPOINT, "expected pattern '", to.name, "' to be of a ",
         to.rows, "x", to.cols, " matrix, but got one of ", from.rows, "x",
         from.cols);
  bool isSame = from.blockRows == to.blockRows &&
                from.blockCols == to.blockCols && from.slots == to.slots;
  if (isSame && !to.isStatic) {
    bsr_pattern_view view = source.view();
    check(bsr_session_set_pattern(session.get(), index, &view));
    return;
  }
  isReblocked |= !isSame;

  // Of each of the new blocks, how many elements are stored.
  std::vector<int64_t> stored(size_t(to.allBlocks()));
  source.forEachBlock([&](int64_t row, int64_t col, int64_t) {
    for (int64_t r = row * from.blockRows; r < (row + 1) * from.blockRows; ++r)
      for (int64_t c = col * from.blockCols; c < (col + 1) * from.blockCols;
           ++c)
        ++stored[size_t(r / to.blockRows * to.gridCols() + c / to.blockCols)];
  });
  auto nameOf = [&](int64_t block) {
    return "(" + std::to_string(block / to.gridCols()) + ", " +
           std::to_string(block % to.gridCols()) + ")";
  };
  if (to.isStatic) {
    fitted(index).forEachBlock([&](int64_t row, int64_t col, int64_t) {
      stored[size_t(row * to.gridCols() + col)] = 0;
    });
    for (int64_t block = 0; block < to.allBlocks(); ++block)
      if (stored[size_t(block)])
        fail(BSR_INVALID_CHECKPOINT, "expected the stored elements of '",
             to.name, "' to lie in the step's static pattern, but got block ",
             nameOf(block));
    return;
  }
  std::vector<int32_t> rowPtr = {0}, colIdx;
  for (int64_t block = 0; block < to.allBlocks(); ++block) {
    int64_t all = to.blockRows * to.blockCols, here = stored[size_t(block)];
    if (here && here != all && !options.storeZeros)
      fail(BSR_INVALID_CHECKPOINT, "expected the ", from.blockRows, "x",
           from.blockCols, " blocks of '", to.name, "' to fill blocks of ",
           to.blockRows, "x", to.blockCols, ", but got ", here, " of the ", all,
           " elements of block ", nameOf(block),
           " (--store-zeros stores zeros for the others)");
    if (here)
      colIdx.push_back(int32_t(block % to.gridCols()));
    if ((block + 1) % to.gridCols() == 0)
      rowPtr.push_back(int32_t(colIdx.size()));
  }
  int64_t blocks = int64_t(colIdx.size());
  if (blocks > to.slots)
    fail(BSR_INVALID_CHECKPOINT, "expected at most ", to.slots, " blocks of '",
         to.name, "', the slots of the step, but got ", blocks);
  colIdx.reserve(1); // an address, even if empty
  bsr_pattern_view view = {blocks,  rowPtr.data(), colIdx.data(), nullptr,
                           nullptr, nullptr,       nullptr};
  check(bsr_session_set_pattern(session.get(), index, &view));
}

void Fit::takeLargest(int64_t index) {
  const Pattern &pattern = session->manifest().patterns[index];
  const Buffer &weight = session->manifest().buffers[pattern.weight];
  int64_t blocks = BSR_MOST_BLOCKS;
  if (options.density >= 0)
    blocks = std::llround(options.density * double(pattern.allBlocks()));
  if (blocks > pattern.slots)
    fail(BSR_INVALID_ARGUMENT, "expected --density to leave at most ",
         pattern.slots, " blocks of '", pattern.name,
         "', the slots of the step, but got ", blocks);
  std::string dense =
      read(weight.name, weight.type, {pattern.rows, pattern.cols});
  if (!dense.empty())
    check(bsr_session_take_largest(session.get(), index, blocks, BSR_L1,
                                   weight.type, dense.data()));
}

void Fit::fitBuffer(int64_t index) {
  const Buffer &buffer = session->manifest().buffers[index];
  auto write = [&](const std::string &data) {
    check(bsr_session_write(session.get(), index, 0, int64_t(data.size()),
                            data.data()));
  };
  if (buffer.role == "count") {
    // Slots are those of the file as long as its blocks are.
    if (isReblocked || !contents.file.has(buffer.name))
      fail(BSR_INVALID_CHECKPOINT, "expected '", buffer.name, "' in ",
           contents.file.where(), ", how old each block is, but got ",
           isReblocked ? "other blocks" : "none");
    return write(read(buffer.name, buffer.type, buffer.shape));
  }
  if (buffer.kind != BSR_VALUES)
    return write(read(buffer.name, buffer.type, buffer.shape));
  const Pattern &pattern = session->manifest().patterns[buffer.pattern];
  std::string dense =
      read(buffer.name, buffer.type, {pattern.rows, pattern.cols});
  if (dense.empty())
    return;
  std::string values(size_t(buffer.bytes), '\0');
  forEachBlockLine(fitted(buffer.pattern), bsr_type_bytes(buffer.type),
                   [&](int64_t from, int64_t to, int64_t bytes) {
                     std::memcpy(&values[size_t(to)], &dense[size_t(from)],
                                 size_t(bytes));
                   });
  write(values);
}

/// Makes the session go on where the contents stopped, if they say where.
void Fit::readCounters() {
  auto readNumber = [&](const char *key, auto &number) {
    auto found = contents.texts.find(key);
    if (found == contents.texts.end())
      return;
    const std::string &text = found->second;
    const char *end = text.data() + text.size();
    auto parsed = std::from_chars(text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < 0)
      fail(BSR_INVALID_CHECKPOINT, "expected '", key, "' of the metadata of ",
           contents.file.where(), " to be a number from 0, but got '", text,
           "'");
  };
  readNumber("seed", session->counters.seed);
  readNumber("steps", session->counters.steps);
  readNumber("pattern_updates", session->counters.pattern_updates);
  readNumber("blocks_pruned", session->counters.blocks_pruned);
  readNumber("blocks_regrown", session->counters.blocks_regrown);
}

/// Takes the history of a pattern and its sums of scores over, where the blocks
/// are the same.
void Fit::fitHistory(int64_t index) {
  const Pattern &pattern = session->manifest().patterns[index];
  const Matrix *source = contents.findPattern(pattern.name);
  if (!source || pattern.isStatic || isReblocked)
    return;
  auto bits = [&](const char *what, int64_t words) {
    return contents.file.read(pattern.tensorName(what), ElementType::I8,
                              {8 * words});
  };
  if (contents.file.has(pattern.tensorName(everTensor)))
    session->loadHistory(
        index, bits(everTensor, PatternHistory::everWords(pattern)),
        bits(newestTensor, PatternHistory::newestWords(pattern)));
  std::string scores = pattern.tensorName(scoresTensor);
  if (contents.file.has(scores))
    session->loadScores(index, contents.file.read(scores, ElementType::F32,
                                                  {pattern.allBlocks()}));
}

void Fit::refuseOthers() const {
  for (auto &[name, entry] : contents.file.header().items())
    if (name != "__metadata__" && !used.count(name) &&
        !contents.isOfPattern(name))
      fail(BSR_INVALID_CHECKPOINT, "expected tensors of this step, but got ",
           contents.file.where(), " with another tensor '", name, "'");
}

void Fit::write(const std::string &output) const {
  std::string metadata;
  if (auto found = contents.texts.find("metadata");
      found != contents.texts.end())
    metadata = found->second;
  check(bsr_session_save(session.get(), output.c_str(), metadata.c_str()));
  const Manifest &manifest = session->manifest();
  for (size_t i = 0; i < manifest.patterns.size(); ++i)
    std::printf("%s: %lld of %lld blocks stored\n",
                printable(manifest.patterns[i].name).c_str(),
                (long long)session->view(int64_t(i)).blocks,
                (long long)manifest.patterns[i].allBlocks());
}

void sparse_opt::writeFitted(const Contents &contents,
                             const FitOptions &options,
                             const std::string &output) {
  Fit(contents, options).write(output);
}
