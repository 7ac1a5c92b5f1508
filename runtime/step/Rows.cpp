// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls compiled functions of rows on the caller's memory.

#include "Rows.h"
#include <cstring>
#include <memory>
#include <new>
#include <vector>

using namespace sparse_opt;

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
          ::operator new(bytes, std::align_val_t(rowAlignment))));
      piece.bytes = bytes;
    }
    return piece.memory.get();
  }

private:
  struct Delete {
    void operator()(char *memory) const {
      ::operator delete(memory, std::align_val_t(rowAlignment));
    }
  };
  struct Piece {
    std::unique_ptr<char, Delete> memory;
    size_t bytes = 0;
  };
  std::vector<Piece> pieces;
};

} // namespace

static void run(const bsr_row_kernel &kernel, void *const *addresses,
                const RowPart &part) {
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
    if (!bytes || (isWhole && isAligned(rows)))
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

bsr_status bsr_run_rows(const bsr_row_kernel *kernel, void *const *addresses,
                        int64_t rows, int64_t *missing) {
  return guarded([&] {
    requireArgument(kernel, "kernel");
    requireArgument(addresses, "addresses");
    requireArgument(missing, "missing");
    requireRows(*kernel, addresses, rows);
    int64_t needed = -1;
    forParts(*kernel, rows, [&](const RowPart &part) {
      if (!kernel->functions[part.function].run)
        needed = part.function;
      return needed < 0;
    });
    *missing = needed;
    if (needed >= 0)
      return;
    forParts(*kernel, rows, [&](const RowPart &part) {
      run(*kernel, addresses, part);
      return true;
    });
  });
}
