// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads checkpoints and dense files.

#include "Contents.h"
#include "pattern/Pattern.h"
#include <cstring>

using namespace sparse_opt;

/// The most elements of a matrix.
static constexpr int64_t mostElements = int64_t(1) << 36;

/// The most slots for each byte of a file: without a block or values, a file
/// need not be longer for them.
static constexpr int64_t mostSlotsPerByte = 64;

bsr_pattern_view Matrix::view() const {
  return {blocks(), rowPtr().data(), colIdx().data(), slot().data(),
          nullptr,  nullptr,         nullptr};
}

/// Fails unless the row view of `matrix` keeps every invariant.
static void checkMatrix(const Matrix &matrix, const std::string &where) {
  std::vector<uint64_t> marks(size_t(matrix.pattern.slots / 64 + 1));
  PatternScratch scratch = {}; // a row view needs no more
  scratch.marks = marks.data();
  try {
    checkPattern(matrix.pattern, matrix.view(), scratch);
  } catch (const Error &error) {
    fail(BSR_INVALID_CHECKPOINT, error.sentence, ", in ", where);
  }
}

Contents::Contents(const std::string &path) : file("file", path) {
  file.requireCovered();
  if (!file.has("__metadata__"))
    return;
  JsonObject metadata = file.metadata();
  for (auto &[key, value] : metadata.members().items())
    texts[key] = metadata.text(key.c_str());
  isCheckpoint = texts["format"] == "bsr-checkpoint";
  if (isCheckpoint)
    file.requireChecksum();
  if (!texts.count("matrices"))
    return;
  std::string where = "the matrices of " + file.where();
  Json list = parseJson(texts["matrices"], BSR_INVALID_CHECKPOINT, where);
  if (!list.is_array())
    metadata.refuse("matrices", "a list");
  for (const Json &entry : list)
    readMatrix(JsonObject(entry, BSR_INVALID_CHECKPOINT, where));
}

void Contents::readMatrix(const JsonObject &entry) {
  Matrix matrix = {};
  Pattern &pattern = matrix.pattern;
  pattern.name = entry.text("name");
  int64_t mostSlots = file.size() * mostSlotsPerByte;
  pattern.slots =
      entry.integer("slots", 0, std::min<int64_t>(mostSlots, INT32_MAX));
  auto readPair = [&](const char *key, int64_t &first, int64_t &second) {
    auto numbers = entry.integers(key, 1, INT32_MAX);
    if (numbers.size() != 2)
      entry.refuse(key, "two numbers");
    first = numbers[0], second = numbers[1];
  };
  readPair("shape", pattern.rows, pattern.cols);
  if (pattern.rows > mostElements / pattern.cols)
    entry.refuse("shape", "of a matrix that memory can hold");
  readPair("block", pattern.blockRows, pattern.blockCols);
  if (pattern.rows % pattern.blockRows || pattern.cols % pattern.blockCols)
    entry.refuse("block", "of a size that divides the matrix");

  for (const Json &name : entry.array("values")) {
    if (!name.is_string() || !file.has(name))
      entry.refuse("values", "the names of tensors");
    matrix.values.push_back(name);
    if (isCheckpoint) {
      Tensor tensor = file.read(name.get<std::string>());
      file.read(tensor.name, tensor.type,
                {pattern.slots, pattern.blockRows, pattern.blockCols});
    }
  }
  bsr_kind kinds[] = {BSR_ROW_PTR, BSR_COL_IDX, BSR_SLOT};
  int64_t sizes[] = {pattern.gridRows() + 1, anySize, anySize};
  for (int i = 0; i < 3; ++i) {
    std::string_view data =
        file.read(pattern.tensorName(kinds[i]), ElementType::I32, {sizes[i]});
    pattern.arrays[i].resize(data.size() / sizeof(int32_t));
    data.copy(reinterpret_cast<char *>(pattern.arrays[i].data()), data.size());
    pattern.arrays[i].reserve(1); // an address, even if empty
  }
  if (matrix.slot().size() != matrix.colIdx().size())
    fail(BSR_INVALID_CHECKPOINT, "expected as many slots of '", pattern.name,
         "' as blocks (", matrix.blocks(), ") in ", file.where(), ", but got ",
         matrix.slot().size());
  checkMatrix(matrix, file.where());
  patternPlaces.emplace(pattern.name, matrices.size());
  for (const std::string &values : matrix.values)
    valuePlaces.emplace(values, matrices.size());
  for (const char *part :
       {bsr_kind_name(BSR_ROW_PTR), bsr_kind_name(BSR_COL_IDX),
        bsr_kind_name(BSR_SLOT), everTensor, newestTensor, scoresTensor})
    patternParts.insert(pattern.tensorName(part));
  matrices.push_back(std::move(matrix));
}

const Matrix *Contents::findPattern(const std::string &name) const {
  auto found = patternPlaces.find(name);
  return found == patternPlaces.end() ? nullptr : &matrices[found->second];
}

const Matrix *Contents::findValues(const std::string &name) const {
  auto found = valuePlaces.find(name);
  return !isCheckpoint || found == valuePlaces.end() ? nullptr
                                                     : &matrices[found->second];
}

bool Contents::isOfPattern(const std::string &name) const {
  return patternParts.count(name);
}

std::string Contents::dense(const std::string &name) const {
  Tensor tensor = file.read(name);
  const Matrix *matrix = findValues(name);
  if (!matrix)
    return std::string(tensor.data);
  int64_t elementBytes = bytesOf(tensor.type);
  std::string dense(
      size_t(matrix->pattern.rows * matrix->pattern.cols * elementBytes), '\0');
  forEachBlockLine(*matrix, elementBytes,
                   [&](int64_t to, int64_t from, int64_t bytes) {
                     std::memcpy(&dense[size_t(to)], &tensor.data[size_t(from)],
                                 size_t(bytes));
                   });
  return dense;
}

void Contents::writeDense(const std::string &name, const Sink &sink) const {
  static constexpr char zeros[1 << 16] = {};
  Tensor tensor = file.read(name);
  const Matrix *matrix = findValues(name);
  if (!matrix)
    return sink(tensor.data);
  int64_t elementBytes = bytesOf(tensor.type), written = 0;
  auto writeZeros = [&](int64_t end) {
    while (written < end) {
      int64_t count = std::min<int64_t>(end - written, sizeof(zeros));
      sink({zeros, size_t(count)});
      written += count;
    }
  };
  const Pattern &pattern = matrix->pattern;
  int64_t bytes = pattern.blockCols * elementBytes;
  for (int64_t row = 0; row < pattern.rows; ++row) {
    int64_t gridRow = row / pattern.blockRows, start = row * pattern.cols;
    for (int32_t k = matrix->rowPtr()[gridRow];
         k < matrix->rowPtr()[gridRow + 1]; ++k) {
      int64_t from =
          matrix->slot()[k] * pattern.blockRows + row % pattern.blockRows;
      writeZeros((start + matrix->colIdx()[k] * pattern.blockCols) *
                 elementBytes);
      sink(tensor.data.substr(size_t(from * bytes), size_t(bytes)));
      written += bytes;
    }
  }
  writeZeros(pattern.rows * pattern.cols * elementBytes);
}

void Contents::requireCheckpoint() const {
  if (!isCheckpoint)
    fail(BSR_INVALID_CHECKPOINT, "expected ", file.where(),
         " to be a checkpoint, but got other tensors");
  JsonObject metadata = file.metadata();
  if (metadata.text("version") != "1")
    metadata.refuse("version", "\"1\"");
  for (const char *key : {"seed", "steps", "pattern_updates", "blocks_pruned",
                          "blocks_regrown", "metadata"})
    (void)metadata.text(key);
  if (!texts.count("matrices"))
    fail(BSR_INVALID_CHECKPOINT, "expected ", file.where(),
         " to say what its patterns are, but got a checkpoint of an older "
         "program (resume it and save it again)");
}
