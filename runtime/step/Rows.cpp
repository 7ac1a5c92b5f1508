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

/// Where a buffer begins.
static char *getData(const bsr_row_buffer &buffer, void *const *addresses) {
  return static_cast<char *>(addresses[buffer.address]) + buffer.offset;
}

static void run(const bsr_row_kernel &kernel, void *const *addresses,
                const Part &part) {
  static thread_local Scratch scratch;
  static thread_local std::vector<void *> taken;
  const bsr_row_function &function = kernel.functions[part.function];
  taken.resize(kernel.num_buffers);
  bool isWhole = part.count == function.rows;
  for (int64_t i = 0; i != kernel.num_buffers; ++i) {
    const bsr_row_buffer &buffer = kernel.buffers[i];
    int64_t bytes = buffer.row_bytes;
    char *rows = getData(buffer, addresses) + part.first * bytes;
    taken[i] = rows;
    if (!bytes ||
        (isWhole && reinterpret_cast<uintptr_t>(rows) % alignment == 0))
      continue;
    char *copy = scratch.take(i + 1, function.rows * bytes);
    taken[i] = copy;
    if (buffer.is_result)
      continue;
    std::memcpy(copy, rows, part.count * bytes);
    std::memset(copy + part.count * bytes, 0,
                (function.rows - part.count) * bytes);
  }
  bsr_context context = {BSR_CONTEXT_VERSION, BSR_HOST, nullptr, 0};
  int32_t status =
      function.run(&context, taken.data(),
                   scratch.take(0, std::max<int64_t>(function.arena_bytes, 1)));
  if (status != BSR_STEP_RAN)
    fail(BSR_INVALID_STEP, "expected a function for version ",
         BSR_CONTEXT_VERSION, " of a processor's context, but got one for ",
         context.error);
  for (int64_t i = 0; i != kernel.num_buffers; ++i) {
    const bsr_row_buffer &buffer = kernel.buffers[i];
    char *rows = getData(buffer, addresses) + part.first * buffer.row_bytes;
    if (buffer.row_bytes && buffer.is_result && taken[i] != rows)
      std::memcpy(rows, taken[i], part.count * buffer.row_bytes);
  }
}

/// Fails unless `kernel` can be called for `rows` rows at `addresses`.
static void require(const bsr_row_kernel &kernel, void *const *addresses,
                    int64_t rows) {
  requireArgument(kernel.functions, "functions");
  requireArgument(kernel.buffers, "buffers");
  if (kernel.num_functions < 1 || rows < 0)
    fail(BSR_INVALID_ARGUMENT, "expected a function and rows, but got ",
         kernel.num_functions, " functions and ", rows, " rows");
  for (int64_t i = 0; i != kernel.num_functions; ++i)
    if (kernel.functions[i].rows < 1 ||
        (i > 0 && kernel.functions[i].rows >= kernel.functions[i - 1].rows))
      fail(BSR_INVALID_ARGUMENT,
           "expected functions of fewer and fewer rows, but got one of ",
           kernel.functions[i].rows);
  if (rows > 0)
    for (int64_t i = 0; i != kernel.num_addresses; ++i)
      requireArgument(addresses[i], "addresses");
  for (int64_t i = 0; i != kernel.num_buffers; ++i) {
    const bsr_row_buffer &buffer = kernel.buffers[i];
    if (buffer.address < 0 || buffer.address >= kernel.num_addresses)
      fail(BSR_INVALID_ARGUMENT, "expected buffer ", i, " at one of ",
           kernel.num_addresses, " addresses, but got number ", buffer.address);
    if (buffer.row_bytes < 0)
      fail(BSR_INVALID_ARGUMENT, "expected rows of some bytes, but got ",
           buffer.row_bytes, " of buffer ", i);
    auto at = reinterpret_cast<uintptr_t>(addresses[buffer.address]);
    if (!buffer.row_bytes && (at + buffer.offset) % alignment)
      fail(BSR_INVALID_ARGUMENT, "expected buffer ", i,
           ", which has no rows, at a multiple of ", alignment,
           " bytes, but got another address");
  }
}

bsr_status bsr_run_rows(const bsr_row_kernel *kernel, void *const *addresses,
                        int64_t rows, int64_t *missing) {
  return guarded([&] {
    requireArgument(kernel, "kernel");
    requireArgument(addresses, "addresses");
    requireArgument(missing, "missing");
    require(*kernel, addresses, rows);
    auto forParts = [&](auto visit) {
      for (int64_t first = 0; first < rows;) {
        Part part =
            nextPart(kernel->functions, kernel->num_functions, first, rows);
        if (!visit(part))
          return;
        first += part.count;
      }
    };
    int64_t needed = -1;
    forParts([&](const Part &part) {
      if (!kernel->functions[part.function].run)
        needed = part.function;
      return needed < 0;
    });
    *missing = needed;
    if (needed >= 0)
      return;
    forParts([&](const Part &part) {
      run(*kernel, addresses, part);
      return true;
    });
  });
}
