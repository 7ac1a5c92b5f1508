// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls compiled functions of rows on the caller's memory.

#include "bsr/rows.h"
#include "base/Status.h"
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

using namespace bsr;

/// To what a library wants buffers aligned.
static constexpr size_t alignment = 64;

/// How many parts of the last function, which has the fewest rows, are worth
/// less than one of the function before it.
static constexpr int64_t maxLastParts = 3;

namespace {
/// Memory of a thread, for one call at a time.
class Scratch {
public:
  /// Returns at least `bytes` bytes, of the purpose `index`.
  char *take(size_t index, size_t bytes) {
    if (index >= pieces.size())
      pieces.resize(index + 1);
    Piece &piece = pieces[index];
    if (piece.bytes < bytes) {
      piece.memory.reset();
      piece.bytes = 0;
      piece.memory.reset(static_cast<char *>(
          ::operator new(bytes, std::align_val_t(alignment))));
      piece.bytes = bytes;
    }
    return piece.memory.get();
  }

private:
  struct Delete {
    void operator()(char *memory) const {
      ::operator delete(memory, std::align_val_t(alignment));
    }
  };
  struct Piece {
    std::unique_ptr<char, Delete> memory;
    size_t bytes = 0;
  };
  std::vector<Piece> pieces;
};

/// A call of a function for the rows from `first` on, `count` of them.
struct Part {
  int64_t function, first, count;
};
} // namespace

/// The next part of `rows` rows, of which those before `first` are done.
static Part nextPart(const bsr_row_function *functions, int64_t numFunctions,
                     int64_t first, int64_t rows) {
  int64_t rest = rows - first, chosen = 0, last = numFunctions - 1;
  while (chosen != last && functions[chosen].rows > rest)
    ++chosen;
  if (chosen == last && last > 0 && rest > maxLastParts * functions[last].rows)
    --chosen;
  return {chosen, first, std::min(rest, functions[chosen].rows)};
}

static void run(const bsr_row_function &function, const bsr_row_buffer *buffers,
                int64_t numBuffers, void *const *data, const Part &part) {
  static thread_local Scratch scratch;
  static thread_local std::vector<void *> addresses;
  addresses.assign(data, data + numBuffers);
  bool isWhole = part.count == function.rows;
  for (int64_t i = 0; i != numBuffers; ++i) {
    int64_t bytes = buffers[i].row_bytes;
    if (!bytes)
      continue;
    char *rows = static_cast<char *>(data[i]) + part.first * bytes;
    addresses[i] = rows;
    if (isWhole && reinterpret_cast<uintptr_t>(rows) % alignment == 0)
      continue;
    char *copy = scratch.take(i + 1, function.rows * bytes);
    addresses[i] = copy;
    if (buffers[i].is_result)
      continue;
    std::memcpy(copy, rows, part.count * bytes);
    std::memset(copy + part.count * bytes, 0,
                (function.rows - part.count) * bytes);
  }
  bsr_context context = {BSR_CONTEXT_VERSION, BSR_HOST, nullptr, 0};
  int32_t status =
      function.run(&context, addresses.data(),
                   scratch.take(0, std::max<int64_t>(function.arena_bytes, 1)));
  if (status != BSR_STEP_RAN)
    fail(BSR_INVALID_STEP, "expected a function for version ",
         BSR_CONTEXT_VERSION, " of a processor's context, but got one for ",
         context.error);
  for (int64_t i = 0; i != numBuffers; ++i) {
    int64_t bytes = buffers[i].row_bytes;
    char *rows = static_cast<char *>(data[i]) + part.first * bytes;
    if (bytes && buffers[i].is_result && addresses[i] != rows)
      std::memcpy(rows, addresses[i], part.count * bytes);
  }
}

bsr_status bsr_run_rows(const bsr_row_function *functions,
                        int64_t num_functions, const bsr_row_buffer *buffers,
                        int64_t num_buffers, void *const *data, int64_t rows,
                        int64_t *missing) {
  return guarded([&] {
    requireArgument(functions, "functions");
    requireArgument(buffers, "buffers");
    requireArgument(data, "data");
    requireArgument(missing, "missing");
    if (num_functions < 1 || rows < 0)
      fail(BSR_INVALID_ARGUMENT, "expected a function and rows, but got ",
           num_functions, " functions and ", rows, " rows");
    for (int64_t i = 0; i != num_functions; ++i)
      if (functions[i].rows < 1 ||
          (i > 0 && functions[i].rows >= functions[i - 1].rows))
        fail(BSR_INVALID_ARGUMENT,
             "expected functions of fewer and fewer rows, but got one of ",
             functions[i].rows);
    for (int64_t i = 0; i != num_buffers; ++i) {
      if (buffers[i].row_bytes < 0)
        fail(BSR_INVALID_ARGUMENT, "expected rows of some bytes, but got ",
             buffers[i].row_bytes, " of buffer ", i);
      if (rows > 0)
        requireArgument(data[i], "data");
      if (!buffers[i].row_bytes &&
          reinterpret_cast<uintptr_t>(data[i]) % alignment)
        fail(BSR_INVALID_ARGUMENT, "expected buffer ", i,
             ", which has no rows, at a multiple of ", alignment,
             " bytes, but got another address");
    }
    auto forParts = [&](auto visit) {
      for (int64_t first = 0; first < rows;) {
        Part part = nextPart(functions, num_functions, first, rows);
        if (!visit(part))
          return;
        first += part.count;
      }
    };
    int64_t needed = -1;
    forParts([&](const Part &part) {
      if (!functions[part.function].run)
        needed = part.function;
      return needed < 0;
    });
    *missing = needed;
    if (needed >= 0)
      return;
    forParts([&](const Part &part) {
      run(functions[part.function], buffers, num_buffers, data, part);
      return true;
    });
  });
}
