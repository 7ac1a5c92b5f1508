// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How failures inside the runtime get through the C interface.

#ifndef BSR_RUNTIME_BASE_STATUS_H
#define BSR_RUNTIME_BASE_STATUS_H

#include "bsr/runtime.h"
#include "support/Error.h"
#include <new>

namespace sparse_opt {

/// Fails unless `pointer`, the argument called `name`, points somewhere.
void requireArgument(const void *pointer, const char *name);

/// Fails unless `index` is one of `size` things, which `name` names.
void requireIndex(int64_t index, int64_t size, const char *name);

/// Keeps `error` for `bsr_last_error`; returns its status.
bsr_status keepError(Error error) noexcept;

/// Keeps what a library threw; returns a status.
bsr_status keepException(const std::exception &exception) noexcept;

/// Keeps the failure of an allocation; returns its status.
bsr_status keepOutOfMemory() noexcept;

/// Runs `body` and turns what it throws into a status: every C function that
/// can fail is one call of this.
template <typename Body>
bsr_status guarded(Body &&body) noexcept {
  try {
    body();
    return BSR_OK;
  } catch (Error &error) {
    return keepError(std::move(error));
  } catch (const std::bad_alloc &) {
    return keepOutOfMemory();
  } catch (const std::exception &exception) {
    return keepException(exception);
  }
}

} // namespace sparse_opt

#endif // BSR_RUNTIME_BASE_STATUS_H
