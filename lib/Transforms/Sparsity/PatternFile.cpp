// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads patterns from files. The runtime has a reader of its own: what it
// checks against the pattern of a compiled step is here what makes a pattern,
// and both ask the same of the row view (support/RowView.h).

#include "PatternFile.h"
#include "support/File.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::bsr;
namespace json = llvm::json;

/// The start of `value` as text, or that there is none.
static std::string describe(const json::Value *value) {
  if (!value)
    return "nothing";
  constexpr size_t longest = 60;
  std::string text = llvm::formatv("{0}", *value);
  if (text.size() > longest)
    text.replace(longest, std::string::npos, "...");
  return text;
}

/// How many brackets lie within each other in `text`, JSON, at the most.
static unsigned getDepth(StringRef text) {
  unsigned depth = 0, deepest = 0;
  bool isString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (isString && text[i] == '\\')
      ++i; // and what it escapes
    else if (text[i] == '"')
      isString = !isString;
    else if (!isString && (text[i] == '[' || text[i] == '{'))
      deepest = std::max(deepest, ++depth);
    else if (!isString && depth && (text[i] == ']' || text[i] == '}'))
      --depth;
  }
  return deepest;
}

namespace {
/// Reads the members of the object in a pattern file.
class Reader {
public:
  Reader(const json::Object &object,
         function_ref<InFlightDiagnostic()> emitError)
      : object(object), emitError(emitError) {}

  /// Checks that member `key` is `expected`.
  LogicalResult require(StringRef key, const json::Value &expected) {
    const json::Value *found = object.get(key);
    if (found && *found == expected)
      return success();
    return refuse(key, llvm::formatv("{0}", expected), found);
  }

  /// Appends the integers of the list `key`, `least` and greater, to `numbers`.
  LogicalResult read(StringRef key, int64_t least,
                     SmallVectorImpl<int32_t> &numbers) {
    const json::Value *found = object.get(key);
    const json::Array *list = found ? found->getAsArray() : nullptr;
    if (!list)
      return refuse(key, "a list", found);
    for (auto [index, value] : llvm::enumerate(*list)) {
      std::optional<int64_t> number = value.getAsInteger();
      if (!number || *number < least || *number > INT32_MAX)
        return refuse(llvm::formatv("{0}[{1}]", key, index).str(),
                      llvm::formatv("an integer in [{0}, {1}]", least,
                                    static_cast<int64_t>(INT32_MAX)),
                      &value);
      numbers.push_back(*number);
    }
    return success();
  }

  /// Reads the pair of integers `key`, 1 and greater.
  LogicalResult readPair(StringRef key, SmallVectorImpl<int32_t> &pair) {
    if (failed(read(key, 1, pair)))
      return failure();
    if (pair.size() != 2)
      return refuse(key, "two integers", object.get(key));
    return success();
  }

private:
  LogicalResult refuse(StringRef key, const Twine &expected,
                       const json::Value *found) {
    return emitError() << "expected '" << key << "' to be " << expected
                       << ", but got " << describe(found);
  }

  const json::Object &object;
  function_ref<InFlightDiagnostic()> emitError;
};
} // namespace

FailureOr<StaticPattern>
mlir::bsr::readPatternFile(MLIRContext *context, StringRef path,
                           function_ref<InFlightDiagnostic()> emitError) {
  // A block of a pattern takes some ten bytes.
  constexpr uint64_t mostBytes = uint64_t(1) << 28;
  auto [isRead, contents] = sparse_opt::tryReadFile(path.str(), mostBytes);
  if (!isRead)
    return emitError() << contents;
  // A pattern has two; the parser takes a frame of the stack for each.
  constexpr unsigned deepest = 64;
  if (unsigned depth = getDepth(contents); depth > deepest)
    return emitError() << "expected JSON of at most " << deepest
                       << " brackets within each other, but got " << depth;
  llvm::Expected<json::Value> text = json::parse(contents);
  if (!text)
    return emitError() << "expected JSON, but got '"
                       << llvm::toString(text.takeError()) << "'";
  const json::Object *object = text->getAsObject();
  if (!object)
    return emitError() << "expected an object, but got " << describe(&*text);

  StaticPattern pattern;
  SmallVector<int32_t> shape, block;
  Reader reader(*object, emitError);
  if (failed(reader.require("format", "bsr-pattern")) ||
      failed(reader.require("version", 1)) ||
      failed(reader.readPair("shape", shape)) ||
      failed(reader.readPair("block", block)) ||
      failed(reader.read("row_ptr", INT32_MIN, pattern.rowPtr)) ||
      failed(reader.read("col_idx", INT32_MIN, pattern.colIdx)))
    return failure();

  int64_t rows = shape[0], cols = shape[1];
  int64_t blockRows = block[0], blockCols = block[1];
  auto getType = [&](int64_t slots) {
    return PatternType::getChecked(emitError, context, rows, cols, blockRows,
                                   blockCols, slots);
  };
  PatternType grid = getType(/*slots=*/1);
  if (!grid)
    return failure();
  int64_t all = grid.getGridRows() * grid.getGridCols();
  int64_t stored = pattern.colIdx.size();
  if (stored < 1 || stored > all)
    return emitError() << "expected col_idx of 1 to " << all
                       << " blocks, but got " << stored;
  pattern.type = getType(stored);
  if (failed(verifyRowView(emitError, pattern.type, pattern.rowPtr,
                           pattern.colIdx)))
    return failure();
  return pattern;
}
