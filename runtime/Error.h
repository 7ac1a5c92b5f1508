// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Failures inside the runtime, and their way through the C interface.

#ifndef BSR_RUNTIME_ERROR_H
#define BSR_RUNTIME_ERROR_H

#include "bsr/runtime.h"
#include <exception>
#include <new>
#include <sstream>
#include <string>

namespace bsr {

/// A failure: one sentence, "expected <thing>, but got <value>".
struct Error {
  bsr_status status;
  std::string sentence;
};

/// Throws the error whose sentence is `parts`, one after the other.
template <typename... Parts>
[[noreturn]] void fail(bsr_status status, const Parts &...parts) {
  std::ostringstream sentence;
  (sentence << ... << parts);
  throw Error{status, sentence.str()};
}

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

} // namespace bsr

#endif // BSR_RUNTIME_ERROR_H
