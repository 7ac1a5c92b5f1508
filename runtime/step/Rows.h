// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a function of rows is called for any number of them, on a processor and
// on a GPU: in which parts, and what of the caller's memory is a buffer.

#ifndef BSR_RUNTIME_STEP_ROWS_H
#define BSR_RUNTIME_STEP_ROWS_H

#include "base/Status.h"
#include "bsr/rows.h"
#include <algorithm>

namespace sparse_opt {

/// To what functions want buffers aligned.
inline constexpr size_t rowAlignment = 64;

inline bool isAligned(const void *address) {
  return reinterpret_cast<uintptr_t>(address) % rowAlignment == 0;
}

/// A call of a function for the rows from `first` on, `count` of them.
struct RowPart {
  int64_t function, first, count;
};

/// The next part of `rows` rows, of which those before `first` are done.
/// `functions` are of fewer and fewer rows.
template <typename Function>
RowPart nextPart(const Function *functions, int64_t numFunctions, int64_t first,
                 int64_t rows) {
  // How many parts of the last function, which has the fewest rows, are worth
  // less than one of the function before it.
  constexpr int64_t maxLastParts = 3;
  int64_t rest = rows - first, chosen = 0, last = numFunctions - 1;
  while (chosen != last && functions[chosen].rows > rest)
    ++chosen;
  if (chosen == last && last > 0 && rest > maxLastParts * functions[last].rows)
    --chosen;
  return {chosen, first, std::min(rest, functions[chosen].rows)};
}

/// Calls `visit` for each part of `rows` rows, until it returns false.
template <typename Kernel, typename Visit>
void forParts(const Kernel &kernel, int64_t rows, Visit visit) {
  for (int64_t first = 0; first < rows;) {
    RowPart part =
        nextPart(kernel.functions, kernel.num_functions, first, rows);
    if (!visit(part))
      return;
    first += part.count;
  }
}

/// Where a buffer begins.
inline char *getData(const bsr_row_buffer &buffer, void *const *addresses) {
  return static_cast<char *>(addresses[buffer.address]) + buffer.offset;
}

/// Fails unless `kernel` can be called for `rows` rows at `addresses`.
template <typename Kernel>
void requireRows(const Kernel &kernel, void *const *addresses, int64_t rows) {
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
    if (!buffer.row_bytes && rows > 0 && !isAligned(getData(buffer, addresses)))
      fail(BSR_INVALID_ARGUMENT, "expected buffer ", i,
           ", which has no rows, at a multiple of ", rowAlignment,
           " bytes, but got another address");
  }
}

} // namespace sparse_opt

#endif // BSR_RUNTIME_STEP_ROWS_H
